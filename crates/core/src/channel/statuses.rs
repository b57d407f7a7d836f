//! What became of a message: what our deliveries say, and what the service told about it later.
//!
//! Statuses come in any order, come twice, and some never come. So what counts is the furthest that
//! any of them says, and a failure only as long as nothing says that it arrived.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ChannelResponse, meta};
use crate::{
    attribute::AttributeName,
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    destination::sender::parse_send_id,
    event::{ProviderStatus, StatusUpdate},
    provider::EventPart,
    store::NextStep,
    time::Timestamp,
};

/// What the kinds of statuses begin with.
const STATUS: &str = "status.";
/// How long a message waits that failed and may be sent again, where the code says nothing.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What a service tells about a message that it took.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatusUpdate {
    /// It is on its way.
    Sent,
    /// It did not arrive.
    Failed,
    /// It arrived.
    Delivered,
    /// Somebody read or heard it.
    Read,
}

impl MessageStatusUpdate {
    /// What a word says that services have in common, in either case.
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
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// What became of a message, by the newest delivery of it and all that was told.
pub fn message_status(
    delivery: DeliveryStatus,
    attempts: u32,
    told: impl IntoIterator<Item = MessageStatusUpdate>,
) -> MessageStatus {
    // In their order a failure is more than `sent` and less than `delivered`.
    match told.into_iter().max() {
        Some(MessageStatusUpdate::Read) => MessageStatus::Read,
        Some(MessageStatusUpdate::Delivered) => MessageStatus::Delivered,
        // Something is still done about it: it is going to be sent again, or somebody has sent it again.
        Some(MessageStatusUpdate::Failed) if !delivery.is_final() => MessageStatus::Sending,
        Some(MessageStatusUpdate::Failed) => MessageStatus::Failed,
        Some(MessageStatusUpdate::Sent) => MessageStatus::Sent,
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

/// What an event says of a send of ours, if it is a status of one.
///
/// Its attributes hold all of it: what the service calls the message, what we called the send, what
/// became of it, and the code of the error.
pub fn parse_status_update(part: &EventPart, now: Timestamp) -> Option<StatusUpdate> {
    let state = part.kind.as_ref()?.as_str().strip_prefix(STATUS)?;
    let get = |wanted| part.attributes.iter().find(|(name, _)| *name == wanted);
    let (_, id) = get(AttributeName::Object)?;
    let (event, destination) = parse_send_id(id)?;
    let said = match MessageStatusUpdate::parse(state)? {
        MessageStatusUpdate::Sent | MessageStatusUpdate::Delivered | MessageStatusUpdate::Read => {
            ProviderStatus::Sent
        }
        MessageStatusUpdate::Failed => ProviderStatus::Failed(after_failure(
            get(AttributeName::Error).map(|(_, code)| code),
            now,
        )),
    };
    let sent_id = get(AttributeName::MessageId).map(|(_, id)| id.to_owned());
    Some(StatusUpdate { event, destination, at: now, sent_id, status: said })
}

/// A message that failed is not on its way any more, so it may be sent again unless its code says that
/// this is of no use.
fn after_failure(code: Option<&str>, now: Timestamp) -> NextStep {
    let code = code.and_then(|code| code.parse::<u32>().ok());
    let answer = code.and_then(|code| meta::parse_error(&json!({ "code": code }), 400));
    match answer {
        Some(ChannelResponse { class: Some(FailureClass::Permanent), dead_reason, .. }) => {
            NextStep::Dead(dead_reason.unwrap_or(DeadReason::Unrecoverable))
        }
        Some(answer) => NextStep::RetryAt(now + answer.wait_after(1).unwrap_or(AGAIN_AFTER)),
        None => NextStep::Dead(DeadReason::Unrecoverable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attribute::{Attributes, EventKind},
        destination::sender::send_id,
        ids::{DestinationId, EventId},
    };

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn the_furthest_that_is_told_counts_in_any_order() {
        use MessageStatus::{Accepted, Cancelled, Delivered, Failed, Read, Sending, Sent};
        let cases: [(DeliveryStatus, u32, &[MessageStatusUpdate], MessageStatus); 24] = [
            (DeliveryStatus::Pending, 0, &[], Accepted),
            (DeliveryStatus::Held, 0, &[], Accepted),
            (DeliveryStatus::Pending, 1, &[], Sending),
            (DeliveryStatus::InFlight, 0, &[], Sending),
            (DeliveryStatus::Scheduled, 2, &[], Sending),
            (DeliveryStatus::Succeeded, 1, &[], Sent),
            (DeliveryStatus::Dead, 3, &[], Failed),
            (DeliveryStatus::Cancelled, 0, &[], Cancelled),
            (DeliveryStatus::Succeeded, 1, &[MessageStatusUpdate::Sent], Sent),
            (
                DeliveryStatus::Succeeded,
                1,
                &[MessageStatusUpdate::Delivered, MessageStatusUpdate::Sent],
                Delivered,
            ),
            (
                DeliveryStatus::Succeeded,
                1,
                &[
                    MessageStatusUpdate::Sent,
                    MessageStatusUpdate::Read,
                    MessageStatusUpdate::Delivered,
                ],
                Read,
            ),
            (
                DeliveryStatus::Succeeded,
                1,
                &[MessageStatusUpdate::Read, MessageStatusUpdate::Read],
                Read,
            ),
            (
                DeliveryStatus::Succeeded,
                1,
                &[MessageStatusUpdate::Failed, MessageStatusUpdate::Sent],
                Failed,
            ),
            (
                DeliveryStatus::Succeeded,
                1,
                &[MessageStatusUpdate::Delivered, MessageStatusUpdate::Failed],
                Delivered,
            ),
            (
                DeliveryStatus::Succeeded,
                1,
                &[MessageStatusUpdate::Failed, MessageStatusUpdate::Read],
                Read,
            ),
            // It is going to be sent again, or a person has sent it again.
            (DeliveryStatus::Pending, 0, &[MessageStatusUpdate::Failed], Sending),
            (
                DeliveryStatus::Scheduled,
                1,
                &[MessageStatusUpdate::Sent, MessageStatusUpdate::Failed],
                Sending,
            ),
            (DeliveryStatus::InFlight, 1, &[MessageStatusUpdate::Failed], Sending),
            (DeliveryStatus::Held, 0, &[MessageStatusUpdate::Failed], Sending),
            (
                DeliveryStatus::Scheduled,
                1,
                &[MessageStatusUpdate::Failed, MessageStatusUpdate::Delivered],
                Delivered,
            ),
            (DeliveryStatus::Dead, 1, &[MessageStatusUpdate::Failed], Failed),
            (DeliveryStatus::Cancelled, 1, &[MessageStatusUpdate::Failed], Failed),
            // A send of which nobody knew, until something was told of it.
            (DeliveryStatus::Dead, 1, &[MessageStatusUpdate::Delivered], Delivered),
            (DeliveryStatus::Scheduled, 1, &[MessageStatusUpdate::Sent], Sent),
        ];
        for (delivery, attempts, told, expected) in cases {
            let found = message_status(delivery, attempts, told.iter().copied());
            assert_eq!(found, expected, "case: {delivery:?} {attempts} {told:?}");
        }
    }

    #[test]
    fn services_have_words_in_common() {
        let cases = [
            ("sent", Some(MessageStatusUpdate::Sent)),
            ("SERVER_ACK", Some(MessageStatusUpdate::Sent)),
            ("DELIVERY_ACK", Some(MessageStatusUpdate::Delivered)),
            ("Delivered", Some(MessageStatusUpdate::Delivered)),
            ("READ", Some(MessageStatusUpdate::Read)),
            ("played", Some(MessageStatusUpdate::Read)),
            ("failed", Some(MessageStatusUpdate::Failed)),
            ("undelivered", Some(MessageStatusUpdate::Failed)),
            ("ERROR", Some(MessageStatusUpdate::Failed)),
            ("PENDING", None),
            ("queued", None),
            ("DELETED", None),
            ("", None),
        ];
        for (word, told) in cases {
            assert_eq!(MessageStatusUpdate::parse(word), told, "case: {word}");
        }
    }

    #[test]
    fn a_status_of_a_send_of_ours_says_what_became_of_it() {
        let event = EventId::new(NOW, 1);
        let destination = DestinationId::new(NOW, 2);
        let ours = send_id(event, destination);
        let again = |seconds| {
            Some(ProviderStatus::Failed(NextStep::RetryAt(NOW + Duration::from_secs(seconds))))
        };
        let dead = |reason| Some(ProviderStatus::Failed(NextStep::Dead(reason)));
        let cases = [
            ("status.sent", &*ours, "", Some(ProviderStatus::Sent)),
            ("status.delivered", &ours, "", Some(ProviderStatus::Sent)),
            ("status.read", &ours, "", Some(ProviderStatus::Sent)),
            ("status.failed", &ours, "131026", dead(DeadReason::Unrecoverable)),
            ("status.failed", &ours, "131009", dead(DeadReason::PayloadError)),
            ("status.failed", &ours, "131049", again(86_400)),
            ("status.failed", &ours, "131000", again(60)),
            ("status.failed", &ours, "131042", again(60)),
            ("status.failed", &ours, "", dead(DeadReason::Unrecoverable)),
            ("status.warning", &ours, "", None),
            ("message.text", &ours, "", None),
            ("status.sent", "order-5", "", None),
        ];
        for (kind, object, error, expected) in cases {
            let mut attributes = Attributes::default();
            attributes.push(AttributeName::Object, object);
            attributes.push(AttributeName::MessageId, "wamid.1");
            if !error.is_empty() {
                attributes.push(AttributeName::Error, error);
            }
            let part = EventPart { kind: EventKind::new(kind), attributes, ..EventPart::default() };
            let found = parse_status_update(&part, NOW);
            assert_eq!(found.as_ref().map(|found| found.status), expected, "case: {kind} {error}");
            if let Some(found) = found {
                assert_eq!((found.event, found.destination), (event, destination));
                assert_eq!(found.sent_id.as_deref(), Some("wamid.1"));
            }
        }
    }
}
