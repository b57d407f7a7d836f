//! Decisions about an event and their stable codes.
//!
//! Decisions made while an event is received ([`IntakeRecord`]) are stored with the event, so that an
//! ordinary event needs no further row. Later ones, apart from attempts, are an [`EventDecision`], a
//! row of its own. [`crate::timeline`] puts everything in order.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use surehook_types::{
    ids::{DeliveryId, EventId},
    name::Name,
    string_enum,
    time::Timestamp,
};

/// Decisions made while an event was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeRecord {
    /// How the request was verified, such as `hmac-sha256 secret 1 of 2`.
    pub verified_by: Option<Arc<str>>,
    /// Where the dedup key was found, such as `header:idempotency-key`; `None` without a key.
    pub key_from: Option<Arc<str>>,
    /// Routes that created no delivery, as written by [`encode_unrouted`]; `None` if there are none.
    pub unrouted: Option<String>,
}

/// Why a route created no delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRoutedReason {
    /// The filter returned false.
    FilterFalse,
    /// The filter failed, with this code.
    FilterFailed(String),
    /// The route has a filter, and the body is not JSON.
    NotJson,
    /// An earlier route already delivers to the same destination.
    SameDestination,
    /// The transform had no output.
    DroppedByTransform,
    /// The event is a ping of the provider.
    Ping,
}

/// Prefix of the code of a failed filter.
const FILTER_FAILED: &str = "filter_failed:";

impl NotRoutedReason {
    /// Whether the filter gave no answer, so that the event may have been meant for the destination.
    pub const fn is_failure(&self) -> bool {
        match self {
            Self::FilterFailed(_) | Self::NotJson => true,
            Self::FilterFalse | Self::SameDestination | Self::DroppedByTransform | Self::Ping => {
                false
            }
        }
    }

    pub fn to_code(&self) -> String {
        match self {
            Self::FilterFalse => "filter_false".to_owned(),
            Self::FilterFailed(code) => format!("{FILTER_FAILED}{code}"),
            Self::NotJson => "not_json".to_owned(),
            Self::SameDestination => "same_destination".to_owned(),
            Self::DroppedByTransform => "dropped_by_transform".to_owned(),
            Self::Ping => "ping".to_owned(),
        }
    }

    pub fn parse(code: &str) -> Option<Self> {
        Some(match code {
            "filter_false" => Self::FilterFalse,
            "not_json" => Self::NotJson,
            "same_destination" => Self::SameDestination,
            "dropped_by_transform" => Self::DroppedByTransform,
            "ping" => Self::Ping,
            _ => Self::FilterFailed(code.strip_prefix(FILTER_FAILED)?.to_owned()),
        })
    }
}

/// A route that created no delivery, with the name that the destination had at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRoute {
    pub to: Name,
    pub reason: NotRoutedReason,
}

/// Encodes the routes as compact JSON, `{"filter_false":["crm","mail"]}`; `None` for no routes.
pub fn encode_unrouted(unrouted: &[SkippedRoute]) -> Option<String> {
    let mut by_reason: BTreeMap<String, Vec<&Name>> = BTreeMap::new();
    for route in unrouted {
        by_reason.entry(route.reason.to_code()).or_default().push(&route.to);
    }
    // Strings and lists of strings always serialize.
    (!by_reason.is_empty()).then(|| serde_json::to_string(&by_reason).unwrap_or_default())
}

/// Decodes the text of [`encode_unrouted`]; `None` if it is something else.
pub fn decode_unrouted(text: &str) -> Option<Vec<SkippedRoute>> {
    let by_reason: BTreeMap<String, Vec<Name>> = serde_json::from_str(text).ok()?;
    let mut unrouted = Vec::new();
    for (code, names) in by_reason {
        let reason = NotRoutedReason::parse(&code)?;
        unrouted.extend(names.into_iter().map(|to| SkippedRoute { to, reason: reason.clone() }));
    }
    Some(unrouted)
}

string_enum! {
    /// What happened to an event after it was received. Attempts have their own rows.
    pub enum EventDecisionKind {
        /// A duplicate arrived while all deliveries were dead: a new delivery replaces this one.
        Revived = "revived",
        /// A user replayed it: a new delivery replaces this one.
        Replayed = "replayed",
        /// Cancelled by a user, because the destination was deleted, or because the route that had
        /// failed works now and does not take the event.
        Cancelled = "cancelled",
        /// The attempt ended without a result; the delivery is due again.
        LeaseExpired = "lease_expired",
        /// The process ended during an attempt; the delivery is due again.
        Recovered = "recovered",
        /// The sender retried and waits for the result, so the next attempt was brought forward.
        BroughtForward = "hastened",
        /// The sender that waited for the result was answered.
        Answered = "answered",
        /// The result of an attempt is unknown; its recorded crash outcome applies.
        OutcomeUnknown = "unheard",
        /// A status update confirmed the delivery.
        Confirmed = "confirmed",
        /// A status update reported that the delivery failed.
        Refuted = "refuted",
        /// The stored body is missing or damaged; the delivery was given up.
        Damaged = "damaged",
        /// A duplicate of this event was delivered anyway, as an event of its own.
        DeliveredAnyway = "delivered_anyway",
        /// This event was created from a duplicate that was delivered anyway.
        NotADuplicate = "not_a_duplicate_of",
        /// The end of the delivery was reported by a callback, which is an event of its own.
        CallbackPosted = "callback_posted",
        /// The end of the delivery was not reported: the destination of the callback was deleted.
        CallbackLost = "callback_lost",
        /// A user revealed masked values.
        Revealed = "revealed",
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct EventDecision {
    pub event: EventId,
    /// The delivery it concerns, if it concerns a single one.
    pub delivery: Option<DeliveryId>,
    pub at: Timestamp,
    pub kind: EventDecisionKind,
    /// Further facts: an object, or null.
    pub detail: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_parses_from_its_code() {
        for kind in EventDecisionKind::ALL {
            assert_eq!(EventDecisionKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(EventDecisionKind::parse("unknown"), None);
    }

    #[test]
    fn unrouted_routes_round_trip_through_short_text() {
        let to = |to: &str, reason| SkippedRoute { to: to.parse().unwrap(), reason };
        let routes = [
            to("crm", NotRoutedReason::FilterFalse),
            to("mail", NotRoutedReason::FilterFalse),
            to("log", NotRoutedReason::FilterFailed("too_much_work".to_owned())),
            to("a", NotRoutedReason::NotJson),
            to("b", NotRoutedReason::SameDestination),
            to("c", NotRoutedReason::DroppedByTransform),
            to("d", NotRoutedReason::Ping),
        ];

        let text = encode_unrouted(&routes).unwrap();

        assert!(text.contains(r#""filter_false":["crm","mail"]"#), "{text}");
        assert!(text.contains(r#""filter_failed:too_much_work":["log"]"#), "{text}");
        let decoded = decode_unrouted(&text).unwrap();
        assert_eq!(decoded.len(), routes.len());
        assert!(routes.iter().all(|route| decoded.contains(route)), "{decoded:?}");
        assert_eq!(encode_unrouted(&[]), None);
        assert_eq!(decode_unrouted(r#"{"unknown":["crm"]}"#), None);
        assert_eq!(decode_unrouted("["), None);
    }
}
