//! Deliveries that must arrive one after the other.
//!
//! An *ordering key* is a value found in the event. Of all deliveries of a destination that have the
//! same one, only the first that has not ended may be tried; the others are `held` until their turn
//! comes. Deliveries without a key are not ordered at all.

use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    delivery::{DeadReason, RetryDecision, RetryPolicy, ScheduleReason},
    key::{DedupKey, KeyRule, KeyRules, ParseKeyRuleError},
    time::Timestamp,
};

/// The order of a destination as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderingSpec {
    /// Where the ordering key is: `provider` for what the provider's preset says, or a
    /// `/json/pointer`, `header:NAME`, or a jq expression.
    #[schemars(length(min = 1))]
    pub key: String,
    /// What happens to those behind a delivery that does not work.
    #[serde(default)]
    pub on_failure: OrderingFailurePolicy,
}

/// What happens to those behind a delivery that does not work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderingFailurePolicy {
    /// They wait: the first one is tried until it works or a person cancels it. One of which nobody
    /// knows whether it arrived is not: sending it again is what was to be avoided, so it is left to a
    /// person as usual, and the next has its turn.
    #[default]
    Block,
    /// The first one is given up as usual, and the next has its turn.
    Dead,
}

impl OrderingFailurePolicy {
    /// What is done with an ordered delivery instead of `verdict`.
    pub fn adjust(
        self,
        verdict: RetryDecision,
        policy: &RetryPolicy,
        now: Timestamp,
    ) -> RetryDecision {
        match (self, verdict) {
            (_, parked @ RetryDecision::Dead { reason: DeadReason::Ambiguous, .. }) => parked,
            (Self::Block, RetryDecision::Dead { class, .. }) => RetryDecision::RetryAt {
                due_at: now + policy.delay_max(),
                class,
                reason: ScheduleReason::KeepsOrder,
            },
            (Self::Block | Self::Dead, verdict) => verdict,
        }
    }
}

/// The order of a destination as it is meant.
#[derive(Debug)]
pub struct OrderingPolicy {
    place: Place,
    /// What happens to those behind a delivery that does not work.
    pub on_failure: OrderingFailurePolicy,
}

/// Where the ordering key comes from.
#[derive(Debug)]
enum Place {
    /// The provider's preset knows.
    Provider,
    /// It is found in the event.
    Event(KeyRules),
}

/// How the first is written. It would mean nothing as a jq expression.
const PROVIDER: &str = "provider";

impl OrderingSpec {
    /// Reads where the key is.
    pub fn build(&self) -> Result<OrderingPolicy, ParseKeyRuleError> {
        let text = self.key.trim();
        if text == PROVIDER {
            return Ok(OrderingPolicy { place: Place::Provider, on_failure: self.on_failure });
        }
        let known = ["header:", "pointer:", "jq:"].iter().any(|kind| text.starts_with(kind));
        let rule: KeyRule = match text {
            _ if known => text.parse()?,
            _ if text.starts_with('/') => format!("pointer:{text}").parse()?,
            _ => format!("jq:{text}").parse()?,
        };
        let place = Place::Event(KeyRules::from_rules(vec![rule]));
        Ok(OrderingPolicy { place, on_failure: self.on_failure })
    }
}

impl OrderingPolicy {
    /// The ordering key of an event; none if it has none, or more than one.
    pub fn key(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        of_provider: Option<&DedupKey>,
    ) -> Option<DedupKey> {
        match &self.place {
            Place::Provider => of_provider.cloned(),
            Place::Event(rules) => {
                rules.extract(headers, body).ok().flatten().map(|found| found.key)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::FailureClass;

    fn key(place: &str, body: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("x-customer", "h-7".parse().unwrap());
        let order =
            OrderingSpec { key: place.to_owned(), on_failure: OrderingFailurePolicy::Block };
        let found = order.build().unwrap().key(&headers, body.as_bytes(), None);
        found.map(|key| key.as_str().to_owned())
    }

    #[test]
    fn an_ordering_key_is_found_where_it_is_said_to_be() {
        let body = r#"{"data":{"customer":"c-1","number":17},"list":[1]}"#;
        let cases = [
            ("pointer", "/data/customer", Some("c-1")),
            ("pointer, spelled out", "pointer:/data/customer", Some("c-1")),
            ("number", "/data/number", Some("17")),
            ("jq", ".data | .customer + \"-\" + (.number | tostring)", Some("c-1-17")),
            ("jq, spelled out", "jq:.data.customer", Some("c-1")),
            ("header", "header:X-Customer", Some("h-7")),
            ("absent", "/data/nobody", None),
            ("not a value", "/list", None),
            ("a filter that fails", ".list | keys[0].x", None),
        ];
        for (name, place, expected) in cases {
            assert_eq!(key(place, body).as_deref(), expected, "case: {name}");
        }
        assert_eq!(key("/data/customer", "not JSON"), None);
    }

    #[test]
    fn a_place_that_makes_no_sense_is_refused() {
        for place in ["header:no such name", ". |", "/a~2"] {
            let spec =
                OrderingSpec { key: place.to_owned(), on_failure: OrderingFailurePolicy::Dead };
            assert!(spec.build().is_err(), "case: {place}");
        }
    }

    #[test]
    fn a_first_one_that_blocks_is_never_given_up() {
        let now = Timestamp::from_millis(5_000);
        let policy = RetryPolicy::quick();
        let dead =
            RetryDecision::Dead { reason: DeadReason::MaxRetries, class: FailureClass::Transient };
        let (due_at, reason) = (now + Duration::from_secs(8), ScheduleReason::KeepsOrder);
        let again = RetryDecision::RetryAt { due_at, class: FailureClass::Transient, reason };
        assert_eq!(OrderingFailurePolicy::Block.adjust(dead, &policy, now), again);
        assert_eq!(OrderingFailurePolicy::Dead.adjust(dead, &policy, now), dead);
        let done = RetryDecision::Succeeded;
        assert_eq!(OrderingFailurePolicy::Block.adjust(done, &policy, now), done);
    }

    #[test]
    fn what_is_left_to_a_person_is_not_sent_again_by_its_line() {
        let now = Timestamp::from_millis(5_000);
        let parked =
            RetryDecision::Dead { reason: DeadReason::Ambiguous, class: FailureClass::Ambiguous };
        for on_failure in [OrderingFailurePolicy::Block, OrderingFailurePolicy::Dead] {
            assert_eq!(on_failure.adjust(parked, &RetryPolicy::quick(), now), parked);
        }
    }
}
