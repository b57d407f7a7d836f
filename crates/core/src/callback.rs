//! Callbacks: a webhook that tells the sender of a message how its delivery ended.
//!
//! A callback is stored with the delivery. When the delivery ends, in whatever way, the same transaction
//! makes the callback due; the engine then posts it to the outbox as an event of its own, with retries,
//! dead letters and replay like any other. Its ids derive from the delivery, so it is posted once, also
//! across a crash. A replay of the delivery has a callback of its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use surehook_retry::{AttemptFailure, DeadReason};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    string_enum,
    time::Timestamp,
};

use crate::{
    delivery::state::DeliveryStatus,
    outbox::{OutboxPost, OutboxPostError},
};

/// Prefix of the kind of a callback event; how the delivery ended follows.
const CALLBACK_KIND_PREFIX: &str = "delivery.";
/// Bytes of the last response that a callback holds.
const RESPONSE_BYTES_MAX: usize = 1024;

string_enum! {
    /// How a delivery ended.
    pub enum DeliveryEnd {
        Succeeded = "succeeded",
        Dead = "dead",
        Cancelled = "cancelled",
    }
}

impl DeliveryEnd {
    /// `None` for a state that is not an end, or that a replay has taken over.
    pub const fn of(status: DeliveryStatus) -> Option<Self> {
        match status {
            DeliveryStatus::Succeeded => Some(Self::Succeeded),
            DeliveryStatus::Dead => Some(Self::Dead),
            DeliveryStatus::Cancelled => Some(Self::Cancelled),
            DeliveryStatus::Pending
            | DeliveryStatus::InFlight
            | DeliveryStatus::Scheduled
            | DeliveryStatus::Held
            | DeliveryStatus::Replayed => None,
        }
    }
}

/// The destination to which the end of a delivery is reported, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    pub destination: DestinationId,
    /// The path at a destination of the kind `origin`; empty for others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The ends that are reported.
    pub on: Vec<DeliveryEnd>,
}

/// A callback whose delivery has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueCallback {
    pub callback: Callback,
    pub delivery: DeliveryId,
    /// The message that was delivered.
    pub event: EventId,
    /// Name of the destination of the delivery.
    pub destination: String,
    pub end: DeliveryEnd,
    pub reason: Option<DeadReason>,
    pub attempts: u32,
    pub ended_at: Timestamp,
    pub last_attempt: Option<LastAttempt>,
}

/// The last attempt of a delivery, as far as a callback reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    pub status: Option<u16>,
    pub failure: Option<AttemptFailure>,
    pub detail: Option<String>,
    pub response: Vec<u8>,
}

/// The result of a due callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackResult {
    /// This event delivers it.
    Posted(EventId),
    /// The sender did not ask for this end.
    NotRequested,
    /// Its destination was deleted.
    NoDestination,
}

impl DueCallback {
    /// The webhook that reports the end, to be posted to the outbox.
    pub fn build_post(&self) -> Result<OutboxPost, OutboxPostError> {
        let kind = format!("{CALLBACK_KIND_PREFIX}{}", self.end.as_str());
        let last_attempt = self.last_attempt.as_ref().map(|last| {
            let response = &last.response[..last.response.len().min(RESPONSE_BYTES_MAX)];
            json!({
                "status": last.status,
                "failure": last.failure.map(AttemptFailure::as_str),
                "detail": last.detail,
                "response": String::from_utf8_lossy(response),
            })
        });
        let body = json!({
            "type": kind,
            "message_id": self.event,
            "delivery_id": self.delivery,
            "destination": self.destination,
            "status": self.end.as_str(),
            "reason": self.reason.map(DeadReason::as_str),
            "attempts": self.attempts,
            "ended_at": self.ended_at,
            "last_attempt": last_attempt,
        });
        let post =
            OutboxPost::webhook(Some(&kind), &BTreeMap::new(), Bytes::from(body.to_string()))?;
        Ok(OutboxPost {
            path: self.callback.path.clone(),
            query: self.callback.query.clone(),
            ..post
        })
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::ids::Id;

    use super::*;

    #[test]
    fn callback_names_the_message_its_end_and_the_last_response() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let due = DueCallback {
            callback: Callback {
                destination: Id::new(at, 1),
                path: "/done".to_owned(),
                query: None,
                on: DeliveryEnd::ALL.to_vec(),
            },
            delivery: Id::new(at, 2),
            event: Id::new(at, 3),
            destination: "app-example".to_owned(),
            end: DeliveryEnd::Dead,
            reason: Some(DeadReason::MaxRetries),
            attempts: 3,
            ended_at: at,
            last_attempt: Some(LastAttempt {
                status: Some(500),
                failure: None,
                detail: None,
                response: vec![b'x'; 5000],
            }),
        };
        let post = due.build_post().unwrap();
        let body: serde_json::Value = serde_json::from_slice(&post.body).unwrap();
        assert_eq!((post.path.as_str(), post.kind.unwrap().as_str()), ("/done", "delivery.dead"));
        assert_eq!(body["message_id"], due.event.to_string());
        assert_eq!((&body["reason"], &body["attempts"]), (&json!("max_retries"), &json!(3)));
        assert_eq!(body["last_attempt"]["status"], 500);
        assert_eq!(body["last_attempt"]["response"].as_str().unwrap().len(), RESPONSE_BYTES_MAX);
    }

    #[test]
    fn only_final_states_without_a_successor_are_ends() {
        let ends = DeliveryStatus::ALL.iter().filter(|status| DeliveryEnd::of(**status).is_some());
        assert_eq!(ends.count(), DeliveryEnd::ALL.len());
    }
}
