//! What became of a message: what our deliveries say, and what the service told about it later.
//!
//! Statuses come in any order, come twice, and some never come. So what counts is the furthest that
//! any of them says, and a failure only as long as nothing says that it arrived.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::delivery::state::DeliveryStatus;

/// What a service tells about a message that it took.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// It is on its way.
    Sent,
    /// It did not arrive.
    Failed,
    /// It arrived.
    Delivered,
    /// Somebody read or heard it.
    Read,
}

impl Told {
    /// What a word says that services have in common, in either case.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "sent" | "server_ack" => Some(Self::Sent),
            "failed" | "undelivered" | "error" => Some(Self::Failed),
            "delivered" | "delivery_ack" => Some(Self::Delivered),
            "read" | "played" => Some(Self::Read),
            _ => None,
        }
    }
}

/// What became of a message so far.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// It is on our disk and was not tried yet.
    Accepted,
    /// It is being tried, or will be tried again.
    Sending,
    /// The destination took it.
    Sent,
    /// It arrived.
    Delivered,
    /// Somebody read or heard it.
    Read,
    /// It did not arrive, and nothing more is done about it.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl MessageStatus {
    /// Every one of them, in the order of a life.
    pub const ALL: [Self; 7] = [
        Self::Accepted,
        Self::Sending,
        Self::Sent,
        Self::Delivered,
        Self::Read,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Sending => "sending",
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Read => "read",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The one that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// What became of a message, by the newest delivery of it and all that was told.
pub fn progress(
    delivery: DeliveryStatus,
    attempts: u32,
    told: impl IntoIterator<Item = Told>,
) -> MessageStatus {
    // In their order a failure is more than `sent` and less than `delivered`.
    match told.into_iter().max() {
        Some(Told::Read) => MessageStatus::Read,
        Some(Told::Delivered) => MessageStatus::Delivered,
        // Something is still done about it: it is going to be sent again, or somebody has sent it again.
        Some(Told::Failed) if !delivery.is_final() => MessageStatus::Sending,
        Some(Told::Failed) => MessageStatus::Failed,
        Some(Told::Sent) => MessageStatus::Sent,
        None => match delivery {
            DeliveryStatus::Succeeded | DeliveryStatus::Replayed => MessageStatus::Sent,
            DeliveryStatus::Dead => MessageStatus::Failed,
            DeliveryStatus::Cancelled => MessageStatus::Cancelled,
            DeliveryStatus::InFlight => MessageStatus::Sending,
            DeliveryStatus::Pending | DeliveryStatus::Scheduled | DeliveryStatus::Held
                if attempts > 0 =>
            {
                MessageStatus::Sending
            }
            DeliveryStatus::Pending | DeliveryStatus::Scheduled | DeliveryStatus::Held => {
                MessageStatus::Accepted
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_that_is_told_counts_in_any_order() {
        use MessageStatus::{Accepted, Cancelled, Delivered, Failed, Read, Sending, Sent};
        let cases: [(DeliveryStatus, u32, &[Told], MessageStatus); 24] = [
            (DeliveryStatus::Pending, 0, &[], Accepted),
            (DeliveryStatus::Held, 0, &[], Accepted),
            (DeliveryStatus::Pending, 1, &[], Sending),
            (DeliveryStatus::InFlight, 0, &[], Sending),
            (DeliveryStatus::Scheduled, 2, &[], Sending),
            (DeliveryStatus::Succeeded, 1, &[], Sent),
            (DeliveryStatus::Dead, 3, &[], Failed),
            (DeliveryStatus::Cancelled, 0, &[], Cancelled),
            (DeliveryStatus::Succeeded, 1, &[Told::Sent], Sent),
            (DeliveryStatus::Succeeded, 1, &[Told::Delivered, Told::Sent], Delivered),
            (DeliveryStatus::Succeeded, 1, &[Told::Sent, Told::Read, Told::Delivered], Read),
            (DeliveryStatus::Succeeded, 1, &[Told::Read, Told::Read], Read),
            (DeliveryStatus::Succeeded, 1, &[Told::Failed, Told::Sent], Failed),
            (DeliveryStatus::Succeeded, 1, &[Told::Delivered, Told::Failed], Delivered),
            (DeliveryStatus::Succeeded, 1, &[Told::Failed, Told::Read], Read),
            // It is going to be sent again, or a person has sent it again.
            (DeliveryStatus::Pending, 0, &[Told::Failed], Sending),
            (DeliveryStatus::Scheduled, 1, &[Told::Sent, Told::Failed], Sending),
            (DeliveryStatus::InFlight, 1, &[Told::Failed], Sending),
            (DeliveryStatus::Held, 0, &[Told::Failed], Sending),
            (DeliveryStatus::Scheduled, 1, &[Told::Failed, Told::Delivered], Delivered),
            (DeliveryStatus::Dead, 1, &[Told::Failed], Failed),
            (DeliveryStatus::Cancelled, 1, &[Told::Failed], Failed),
            // A send of which nobody knew, until something was told of it.
            (DeliveryStatus::Dead, 1, &[Told::Delivered], Delivered),
            (DeliveryStatus::Scheduled, 1, &[Told::Sent], Sent),
        ];
        for (delivery, attempts, told, expected) in cases {
            let found = progress(delivery, attempts, told.iter().copied());
            assert_eq!(found, expected, "case: {delivery:?} {attempts} {told:?}");
        }
    }

    #[test]
    fn services_have_words_in_common() {
        let cases = [
            ("sent", Some(Told::Sent)),
            ("SERVER_ACK", Some(Told::Sent)),
            ("DELIVERY_ACK", Some(Told::Delivered)),
            ("Delivered", Some(Told::Delivered)),
            ("READ", Some(Told::Read)),
            ("played", Some(Told::Read)),
            ("failed", Some(Told::Failed)),
            ("undelivered", Some(Told::Failed)),
            ("ERROR", Some(Told::Failed)),
            ("PENDING", None),
            ("queued", None),
            ("DELETED", None),
            ("", None),
        ];
        for (word, told) in cases {
            assert_eq!(Told::from_word(word), told, "case: {word}");
        }
    }
}
