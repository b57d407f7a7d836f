//! The status updates that messaging providers send about messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A status update of the service. Ordered: a failure ranks above `sent` and below `delivered`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatusUpdate {
    /// The provider accepted the message.
    Sent,
    /// The message will not be delivered.
    Failed,
    /// The recipient's device has it.
    Delivered,
    /// Read or played.
    Read,
}

impl MessageStatusUpdate {
    /// Parses the status names that services use, in any case.
    pub fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "sent" | "server_ack" => Some(Self::Sent),
            "failed" | "undelivered" | "error" => Some(Self::Failed),
            "delivered" | "delivery_ack" => Some(Self::Delivered),
            "read" | "played" => Some(Self::Read),
            _ => None,
        }
    }
}
