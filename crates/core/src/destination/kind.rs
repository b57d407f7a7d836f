//! The kinds of destinations.

use surehook_messaging::Channel;
use surehook_types::string_enum;

string_enum! {
    /// The kind of a destination, which determines how it is called.
    #[derive(Default)]
    pub enum DestinationKind {
        /// HTTP endpoint that receives webhooks.
        #[default]
        Http = "http",
        /// All URLs of one origin, for one-shot deliveries: each message names its URL.
        Origin = "origin",
        /// WhatsApp Cloud API; events are messages.
        WhatsappCloud = "whatsapp-cloud",
        /// Evolution Go; events are messages.
        EvolutionGo = "evolution-go",
        /// Evolution API; events are messages.
        EvolutionApi = "evolution-api",
        /// Program on the machine of the gateway.
        Exec = "exec",
        /// Redis stream.
        RedisStream = "redis-stream",
        /// Programs that ask for their deliveries, such as `surehook listen`.
        Listen = "listen",
        /// Mail server; events are mails with a subject and a text.
        Email = "email",
    }
}

/// Groups kinds with the same settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationFamily {
    /// HTTP endpoints.
    Webhook,
    /// Messaging services.
    Channel,
    /// Programs.
    Program,
    /// Redis streams.
    Stream,
    /// Listeners, which ask for their deliveries.
    Listener,
    /// Mail servers.
    Mail,
}

impl DestinationKind {
    pub const fn family(self) -> DestinationFamily {
        match self {
            Self::Http | Self::Origin => DestinationFamily::Webhook,
            Self::WhatsappCloud | Self::EvolutionGo | Self::EvolutionApi => {
                DestinationFamily::Channel
            }
            Self::Exec => DestinationFamily::Program,
            Self::RedisStream => DestinationFamily::Stream,
            Self::Listen => DestinationFamily::Listener,
            Self::Email => DestinationFamily::Mail,
        }
    }

    /// Whether several lanes can share its deliveries.
    pub const fn can_have_shards(self) -> bool {
        match self.family() {
            // The pace per recipient and the daily limit are counted by one lane, and listeners call the
            // node of one.
            DestinationFamily::Channel | DestinationFamily::Listener => false,
            DestinationFamily::Webhook
            | DestinationFamily::Program
            | DestinationFamily::Stream
            | DestinationFamily::Mail => true,
        }
    }

    /// The channel that sends its messages, for messaging destinations.
    pub fn channel(self) -> Option<&'static dyn Channel> {
        match self {
            Self::Http
            | Self::Origin
            | Self::Exec
            | Self::RedisStream
            | Self::Listen
            | Self::Email => None,
            Self::WhatsappCloud | Self::EvolutionGo | Self::EvolutionApi => {
                surehook_messaging::find_channel(self.as_str())
            }
        }
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use surehook_messaging::CHANNELS;

    use super::*;

    #[test]
    fn every_channel_is_a_kind_with_the_same_name() {
        for channel in CHANNELS {
            let kind: DestinationKind =
                serde_json::from_value(serde_json::json!(channel.name())).unwrap();
            assert_eq!(kind.channel().unwrap().name(), channel.name());
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        for kind in [
            DestinationKind::Http,
            DestinationKind::Origin,
            DestinationKind::Exec,
            DestinationKind::RedisStream,
            DestinationKind::Listen,
            DestinationKind::Email,
        ] {
            assert!(kind.channel().is_none());
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
