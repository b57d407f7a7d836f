//! What a destination is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::service::{self, Service};

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
pub enum Family {
    /// It takes webhooks.
    Webhook,
    /// It takes messages.
    Service,
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
    pub const fn family(self) -> Family {
        match self {
            Self::Http => Family::Webhook,
            Self::WhatsappCloud | Self::EvolutionGo | Self::EvolutionApi => Family::Service,
            Self::Exec => Family::Program,
            Self::RedisStream => Family::Stream,
        }
    }

    /// The service that sends its messages, if it takes messages.
    pub fn service(self) -> Option<&'static dyn Service> {
        match self {
            Self::Http | Self::Exec | Self::RedisStream => None,
            Self::WhatsappCloud | Self::EvolutionGo | Self::EvolutionApi => {
                service::find(self.as_str())
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
    use crate::service::SERVICES;

    #[test]
    fn every_service_is_a_kind_and_written_as_its_name() {
        for service in SERVICES {
            let kind: DestinationKind =
                serde_json::from_value(serde_json::json!(service.name())).unwrap();
            assert_eq!(kind.service().unwrap().name(), service.name());
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        for kind in [DestinationKind::Http, DestinationKind::Exec, DestinationKind::RedisStream] {
            assert!(kind.service().is_none());
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
