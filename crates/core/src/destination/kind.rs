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
}

impl DestinationKind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WhatsappCloud => "whatsapp-cloud",
            Self::EvolutionGo => "evolution-go",
            Self::EvolutionApi => "evolution-api",
        }
    }

    /// The service that sends its messages, if it takes messages.
    pub fn service(self) -> Option<&'static dyn Service> {
        match self {
            Self::Http => None,
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
        assert!(DestinationKind::Http.service().is_none());
    }
}
