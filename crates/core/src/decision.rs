//! What was decided about an event, and why; in words that stay the same.
//!
//! What is decided while an event is taken in ([`IntakeRecord`]) is kept with the event itself, so that an
//! ordinary one pays for no further row. What happens to it later and is no attempt is a [`EventDecision`],
//! a row of its own. [`crate::story`] puts all of it in order.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    ids::{DeliveryId, EventId},
    name::Name,
    time::Timestamp,
};

/// What was decided when an event was taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeRecord {
    /// How the request proved where it comes from, such as `hmac-sha256 secret 1 of 2`.
    pub verified_by: Option<Arc<str>>,
    /// Where its key was found, such as `header:idempotency-key`; `None` if it has no key.
    pub key_from: Option<Arc<str>>,
    /// The routes that led to no delivery, as [`write_unrouted`] writes them; `None` if all did.
    pub unrouted: Option<String>,
}

/// Why a route led to no delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRoutedReason {
    /// Its filter said no.
    FilterFalse,
    /// Its filter failed; the word says how.
    FilterFailed(String),
    /// It has a filter, and the body is not JSON.
    NotJson,
    /// An earlier route leads to the same destination.
    SameDestination,
    /// Its transform had no output.
    DroppedByTransform,
    /// The provider only asked whether we are there.
    Ping,
}

/// What stands before the word of a filter that failed.
const FILTER_FAILED: &str = "filter_failed:";

impl NotRoutedReason {
    /// The word for it.
    pub fn word(&self) -> String {
        match self {
            Self::FilterFalse => "filter_false".to_owned(),
            Self::FilterFailed(code) => format!("{FILTER_FAILED}{code}"),
            Self::NotJson => "not_json".to_owned(),
            Self::SameDestination => "same_destination".to_owned(),
            Self::DroppedByTransform => "dropped_by_transform".to_owned(),
            Self::Ping => "ping".to_owned(),
        }
    }

    /// The reason that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "filter_false" => Self::FilterFalse,
            "not_json" => Self::NotJson,
            "same_destination" => Self::SameDestination,
            "dropped_by_transform" => Self::DroppedByTransform,
            "ping" => Self::Ping,
            _ => Self::FilterFailed(word.strip_prefix(FILTER_FAILED)?.to_owned()),
        })
    }
}

/// A route that led to no delivery. The destination has the name that it had then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnroutedRoute {
    /// Where it would have gone.
    pub to: Name,
    /// Why it did not.
    pub why: NotRoutedReason,
}

/// The routes as one short text, `{"filter_false":["crm","mail"]}`; none for none.
pub fn write_unrouted(unrouted: &[UnroutedRoute]) -> Option<String> {
    let mut by_reason: BTreeMap<String, Vec<&Name>> = BTreeMap::new();
    for route in unrouted {
        by_reason.entry(route.why.word()).or_default().push(&route.to);
    }
    // Texts and lists of them always become JSON.
    (!by_reason.is_empty()).then(|| serde_json::to_string(&by_reason).unwrap_or_default())
}

/// Reads what [`write_unrouted`] wrote; none if it is something else.
pub fn read_unrouted(text: &str) -> Option<Vec<UnroutedRoute>> {
    let by_reason: BTreeMap<String, Vec<Name>> = serde_json::from_str(text).ok()?;
    let mut unrouted = Vec::new();
    for (word, names) in by_reason {
        let why = NotRoutedReason::parse(&word)?;
        unrouted.extend(names.into_iter().map(|to| UnroutedRoute { to, why: why.clone() }));
    }
    Some(unrouted)
}

/// What kind of thing happened to an event after it was taken in. Attempts have their own rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventDecisionKind {
    /// A duplicate came and all was dead: a new delivery took over.
    Revived,
    /// Somebody asked for it: a new delivery took over.
    Replayed,
    /// The destination was deleted.
    Cancelled,
    /// Its claim was not renewed in time; it is due again.
    LeaseExpired,
    /// The process ended while it was under way; it is due again.
    Recovered,
    /// A sender came again and waits, so the next attempt was brought forward.
    BroughtForward,
    /// A sender that waited for the result was told something.
    Answered,
    /// Nothing more was heard of an attempt that may have arrived; what was noted before it holds.
    OutcomeUnknown,
    /// A status says that it has arrived.
    Confirmed,
    /// A status says that it has failed.
    Refuted,
    /// The stored body is missing or not what it was; the delivery was given up.
    Damaged,
    /// A person said that a duplicate of it is none: that is an event of its own now.
    DeliveredAnyway,
    /// It is a duplicate of which a person said that it is none.
    NotADuplicate,
    /// Somebody looked at what is masked.
    Revealed,
}

impl EventDecisionKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::Revived,
        Self::Replayed,
        Self::Cancelled,
        Self::LeaseExpired,
        Self::Recovered,
        Self::BroughtForward,
        Self::Answered,
        Self::OutcomeUnknown,
        Self::Confirmed,
        Self::Refuted,
        Self::Damaged,
        Self::DeliveredAnyway,
        Self::NotADuplicate,
        Self::Revealed,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Revived => "revived",
            Self::Replayed => "replayed",
            Self::Cancelled => "cancelled",
            Self::LeaseExpired => "lease_expired",
            Self::Recovered => "recovered",
            Self::BroughtForward => "hastened",
            Self::Answered => "answered",
            Self::OutcomeUnknown => "unheard",
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Damaged => "damaged",
            Self::DeliveredAnyway => "delivered_anyway",
            Self::NotADuplicate => "not_a_duplicate_of",
            Self::Revealed => "revealed",
        }
    }

    /// The kind that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Something that happened to an event after it was taken in.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDecision {
    /// To which event.
    pub event: EventId,
    /// To which of its deliveries, if it was one.
    pub delivery: Option<DeliveryId>,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventDecisionKind,
    /// What else there is to know; an object, or null.
    pub detail: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_word_and_back() {
        for kind in EventDecisionKind::ALL {
            assert_eq!(EventDecisionKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(EventDecisionKind::parse("whim"), None);
    }

    #[test]
    fn unrouted_are_short_and_read_back() {
        let to = |to: &str, why| UnroutedRoute { to: to.parse().unwrap(), why };
        let routes = [
            to("crm", NotRoutedReason::FilterFalse),
            to("mail", NotRoutedReason::FilterFalse),
            to("log", NotRoutedReason::FilterFailed("too_much_work".to_owned())),
            to("a", NotRoutedReason::NotJson),
            to("b", NotRoutedReason::SameDestination),
            to("c", NotRoutedReason::DroppedByTransform),
        ];

        let text = write_unrouted(&routes).unwrap();

        assert!(text.contains(r#""filter_false":["crm","mail"]"#), "{text}");
        assert!(text.contains(r#""filter_failed:too_much_work":["log"]"#), "{text}");
        let read = read_unrouted(&text).unwrap();
        assert_eq!(read.len(), routes.len());
        assert!(routes.iter().all(|route| read.contains(route)), "{read:?}");
        assert_eq!(write_unrouted(&[]), None);
        assert_eq!(read_unrouted(r#"{"whim":["crm"]}"#), None);
        assert_eq!(read_unrouted("["), None);
    }
}
