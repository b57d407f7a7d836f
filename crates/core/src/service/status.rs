//! What a status of the Cloud API says about one of our own sends.

use std::time::Duration;

use serde_json::json;

use super::{Answer, Told, meta};
use crate::{
    attribute::AttributeName,
    delivery::{DeadReason, FailureClass},
    destination::sender::read_send_id,
    event::{ProviderStatus, StatusUpdate},
    provider::EventPart,
    store::NextStep,
    time::Timestamp,
};

/// What the kinds of statuses begin with.
const STATUS: &str = "status.";
/// How long a message waits that failed and may be sent again, where the code says nothing.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What an event says of a send of ours, if it is a status of one.
///
/// Its attributes hold all of it: what the service calls the message, what we called the send, what
/// became of it, and the code of the error.
pub fn confirmation(part: &EventPart, now: Timestamp) -> Option<StatusUpdate> {
    let state = part.kind.as_ref()?.as_str().strip_prefix(STATUS)?;
    let get = |wanted| part.attributes.iter().find(|(name, _)| *name == wanted);
    let (_, id) = get(AttributeName::Object)?;
    let (event, destination) = read_send_id(id)?;
    let said = match Told::from_word(state)? {
        Told::Sent | Told::Delivered | Told::Read => ProviderStatus::Sent,
        Told::Failed => ProviderStatus::Failed(after_failure(
            get(AttributeName::Error).map(|(_, code)| code),
            now,
        )),
    };
    let sent_id = get(AttributeName::MessageId).map(|(_, id)| id.to_owned());
    Some(StatusUpdate { event, destination, at: now, sent_id, said })
}

/// A message that failed is not on its way any more, so it may be sent again unless its code says that
/// this is of no use.
fn after_failure(code: Option<&str>, now: Timestamp) -> NextStep {
    let code = code.and_then(|code| code.parse::<u32>().ok());
    let answer = code.and_then(|code| meta::read_error(&json!({ "code": code }), 400));
    match answer {
        Some(Answer { class: Some(FailureClass::Permanent), dead_reason, .. }) => {
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
            let found = confirmation(&part, NOW);
            assert_eq!(found.as_ref().map(|found| found.said), expected, "case: {kind} {error}");
            if let Some(found) = found {
                assert_eq!((found.event, found.destination), (event, destination));
                assert_eq!(found.sent_id.as_deref(), Some("wamid.1"));
            }
        }
    }
}
