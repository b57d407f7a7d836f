//! What a destination is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::channel::{self, Channel};

/// What a destination is, and so how it is called.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DestinationKind {
    /// A program that takes webhooks over HTTP.
    #[default]
    Http,
    /// WhatsApp's Cloud API; events are messages.
    WhatsappCloud,
    /// Evolution Go; events are messages.
    EvolutionGo,
    /// Evolution API; events are messages.
    EvolutionApi,
    /// A program on the gateway's own machine.
    Exec,
    /// A stream in Redis.
    RedisStream,
}

/// What kinds have in common, and so which settings belong to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationFamily {
    /// It takes webhooks.
    Webhook,
    /// It takes messages.
    Channel,
    /// It is run.
    Program,
    /// It is added to.
    Stream,
}

impl DestinationKind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WhatsappCloud => "whatsapp-cloud",
            Self::EvolutionGo => "evolution-go",
            Self::EvolutionApi => "evolution-api",
            Self::Exec => "exec",
            Self::RedisStream => "redis-stream",
        }
    }

    /// What it has in common with others.
    pub const fn family(self) -> DestinationFamily {
        match self {
            Self::Http => DestinationFamily::Webhook,
            Self::WhatsappCloud | Self::EvolutionGo | Self::EvolutionApi => {
                DestinationFamily::Channel
            }
            Self::Exec => DestinationFamily::Program,
            Self::RedisStream => DestinationFamily::Stream,
        }
    }

    /// The service that sends its messages, if it takes messages.
    pub fn channel(self) -> Option<&'static dyn Channel> {
        match self {
            Self::Http | Self::Exec | Self::RedisStream => None,
            Self::WhatsappCloud | Self::EvolutionGo | Self::EvolutionApi => {
                channel::find(self.as_str())
            }
        }
    }

    /// Whether its numbers are those of unofficial clients, which are banned when they send much.
    pub const fn is_unofficial(self) -> bool {
        matches!(self, Self::EvolutionGo | Self::EvolutionApi)
    }

    /// Whether it is what everybody means who says nothing.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::CHANNELS;

    #[test]
    fn every_service_is_a_kind_and_written_as_its_name() {
        for channel in CHANNELS {
            let kind: DestinationKind =
                serde_json::from_value(serde_json::json!(channel.name())).unwrap();
            assert_eq!(kind.channel().unwrap().name(), channel.name());
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        for kind in [DestinationKind::Http, DestinationKind::Exec, DestinationKind::RedisStream] {
            assert!(kind.channel().is_none());
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
