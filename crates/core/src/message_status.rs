//! The status of a message, from its delivery and from the status updates of the service.
//!
//! Status updates arrive in any order, more than once, or never. The furthest one counts, and a failure
//! only if no update says that the message was delivered.

use std::time::Duration;

use serde_json::json;
use surehook_messaging::{ChannelResponse, meta_errors, sender::parse_send_id};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{string_enum, time::Timestamp};
use surehook_webhooks::{
    attribute::AttributeName,
    provider::{EventPart, MessageStatusUpdate},
};

use crate::{
    delivery::state::DeliveryStatus,
    event::{ProviderStatus, StatusUpdate},
    store::NextStep,
};

/// Prefix of the event kind of a status update.
const STATUS_KIND_PREFIX: &str = "status.";
/// Retry delay of a failed message whose error code asks for no other.
const RETRY_DELAY: Duration = Duration::from_secs(60);

string_enum! {
    /// The status of a message.
    pub enum MessageStatus {
        /// Stored, not attempted yet.
        Accepted = "accepted",
        /// Being sent, or waiting for a retry.
        Sending = "sending",
        /// Accepted by the service.
        Sent = "sent",
        /// Delivered to the recipient.
        Delivered = "delivered",
        /// Read or played by the recipient.
        Read = "read",
        /// Not delivered, and not retried.
        Failed = "failed",
        /// Cancelled by a user.
        Cancelled = "cancelled",
    }
}

/// The status of a message, from its newest delivery and all status updates.
pub fn message_status(
    delivery: DeliveryStatus,
    attempts: u32,
    updates: impl IntoIterator<Item = MessageStatusUpdate>,
) -> MessageStatus {
    match updates.into_iter().max() {
        Some(MessageStatusUpdate::Read) => MessageStatus::Read,
        Some(MessageStatusUpdate::Delivered) => MessageStatus::Delivered,
        // Not final: a retry is scheduled, or a user has replayed it.
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

/// Parses a status update about one of our sends from an event of the Cloud API.
///
/// The attributes hold the message id of the service, our send id and the error code.
pub fn parse_status_update(part: &EventPart, now: Timestamp) -> Option<StatusUpdate> {
    let state = part.kind.as_ref()?.as_str().strip_prefix(STATUS_KIND_PREFIX)?;
    let get = |target| part.attributes.iter().find(|(name, _)| *name == target);
    let (_, id) = get(AttributeName::Object)?;
    let (event, destination) = parse_send_id(id)?;
    let status = match MessageStatusUpdate::parse(state)? {
        MessageStatusUpdate::Sent | MessageStatusUpdate::Delivered | MessageStatusUpdate::Read => {
            ProviderStatus::Sent
        }
        MessageStatusUpdate::Failed => ProviderStatus::Failed(next_step_after_failure(
            get(AttributeName::Error).map(|(_, code)| code),
            now,
        )),
    };
    let sent_id = get(AttributeName::MessageId).map(|(_, id)| id.to_owned());
    Some(StatusUpdate { event, destination, at: now, sent_id, status })
}

/// The next step after a failed message: it is no longer in flight, so it is retried unless its error code
/// is permanent.
fn next_step_after_failure(code: Option<&str>, now: Timestamp) -> NextStep {
    let code = code.and_then(|code| code.parse::<u32>().ok());
    let response = code.and_then(|code| meta_errors::parse_error(&json!({ "code": code }), 400));
    match response {
        Some(ChannelResponse { class: Some(FailureClass::Permanent), dead_reason, .. }) => {
            NextStep::Dead(dead_reason.unwrap_or(DeadReason::Unrecoverable))
        }
        Some(response) => NextStep::RetryAt(now + response.backoff_after(1).unwrap_or(RETRY_DELAY)),
        None => NextStep::Dead(DeadReason::Unrecoverable),
    }
}

#[cfg(test)]
mod tests {
    use surehook_messaging::sender::send_id;
    use surehook_types::ids::{DestinationId, EventId};
    use surehook_webhooks::attribute::{Attributes, EventKind};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn furthest_status_update_counts_in_any_order() {
        use DeliveryStatus as Delivery;
        use MessageStatus::{Accepted, Cancelled, Delivered, Failed, Read, Sending, Sent};
        use MessageStatusUpdate as Update;

        let cases: [(Delivery, u32, &[Update], MessageStatus); 24] = [
            (Delivery::Pending, 0, &[], Accepted),
            (Delivery::Held, 0, &[], Accepted),
            (Delivery::Pending, 1, &[], Sending),
            (Delivery::InFlight, 0, &[], Sending),
            (Delivery::Scheduled, 2, &[], Sending),
            (Delivery::Succeeded, 1, &[], Sent),
            (Delivery::Dead, 3, &[], Failed),
            (Delivery::Cancelled, 0, &[], Cancelled),
            (Delivery::Succeeded, 1, &[Update::Sent], Sent),
            (Delivery::Succeeded, 1, &[Update::Delivered, Update::Sent], Delivered),
            (Delivery::Succeeded, 1, &[Update::Sent, Update::Read, Update::Delivered], Read),
            (Delivery::Succeeded, 1, &[Update::Read, Update::Read], Read),
            (Delivery::Succeeded, 1, &[Update::Failed, Update::Sent], Failed),
            (Delivery::Succeeded, 1, &[Update::Delivered, Update::Failed], Delivered),
            (Delivery::Succeeded, 1, &[Update::Failed, Update::Read], Read),
            // A retry is scheduled, or a user has replayed it.
            (Delivery::Pending, 0, &[Update::Failed], Sending),
            (Delivery::Scheduled, 1, &[Update::Sent, Update::Failed], Sending),
            (Delivery::InFlight, 1, &[Update::Failed], Sending),
            (Delivery::Held, 0, &[Update::Failed], Sending),
            (Delivery::Scheduled, 1, &[Update::Failed, Update::Delivered], Delivered),
            (Delivery::Dead, 1, &[Update::Failed], Failed),
            (Delivery::Cancelled, 1, &[Update::Failed], Failed),
            // An ambiguous send, resolved by a status update.
            (Delivery::Dead, 1, &[Update::Delivered], Delivered),
            (Delivery::Scheduled, 1, &[Update::Sent], Sent),
        ];
        for (delivery, attempts, updates, expected) in cases {
            let status = message_status(delivery, attempts, updates.iter().copied());
            assert_eq!(status, expected, "case: {delivery:?} {attempts} {updates:?}");
        }
    }

    #[test]
    fn status_names_of_all_services_are_parsed() {
        use MessageStatusUpdate::{Delivered, Failed, Read, Sent};
        let cases = [
            ("sent", Some(Sent)),
            ("SERVER_ACK", Some(Sent)),
            ("DELIVERY_ACK", Some(Delivered)),
            ("Delivered", Some(Delivered)),
            ("READ", Some(Read)),
            ("played", Some(Read)),
            ("failed", Some(Failed)),
            ("undelivered", Some(Failed)),
            ("ERROR", Some(Failed)),
            ("PENDING", None),
            ("queued", None),
            ("DELETED", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(MessageStatusUpdate::parse(name), expected, "case: {name}");
        }
    }

    #[test]
    fn status_update_of_our_send_sets_next_step() {
        let event = EventId::new(NOW, 1);
        let destination = DestinationId::new(NOW, 2);
        let id = send_id(event, destination);
        let retry = |seconds| {
            Some(ProviderStatus::Failed(NextStep::RetryAt(NOW + Duration::from_secs(seconds))))
        };
        let dead = |reason| Some(ProviderStatus::Failed(NextStep::Dead(reason)));
        let cases = [
            ("status.sent", &*id, "", Some(ProviderStatus::Sent)),
            ("status.delivered", &id, "", Some(ProviderStatus::Sent)),
            ("status.read", &id, "", Some(ProviderStatus::Sent)),
            ("status.failed", &id, "131026", dead(DeadReason::Unrecoverable)),
            ("status.failed", &id, "131009", dead(DeadReason::PayloadError)),
            ("status.failed", &id, "131049", retry(86_400)),
            ("status.failed", &id, "131000", retry(60)),
            ("status.failed", &id, "131042", retry(60)),
            ("status.failed", &id, "", dead(DeadReason::Unrecoverable)),
            ("status.warning", &id, "", None),
            ("message.text", &id, "", None),
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
            let update = parse_status_update(&part, NOW);
            let status = update.as_ref().map(|update| update.status);
            assert_eq!(status, expected, "case: {kind} {error}");
            if let Some(update) = update {
                assert_eq!((update.event, update.destination), (event, destination));
                assert_eq!(update.sent_id.as_deref(), Some("wamid.1"));
            }
        }
    }
}
