//! Ordered delivery.
//!
//! An *ordering key* is a value found in the event. Of all deliveries to a destination with the same
//! key only the first that has not ended is attempted; the others are `held`. Deliveries without a
//! key are not ordered.

use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_retry::{DeadReason, RetryDecision, RetryPolicy, ScheduleReason};
use surehook_types::time::Timestamp;
use surehook_webhooks::key::{DedupKey, KeyRule, KeyRules, ParseKeyRuleError};

/// Ordered delivery of a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderingSpec {
    /// Where the ordering key is: `provider` for what the provider's preset says, or a
    /// `/json/pointer`, `header:NAME`, or a jq expression.
    #[schemars(length(min = 1))]
    pub key: String,
    /// What happens to later deliveries of the key when one fails.
    #[serde(default)]
    pub on_failure: OrderingFailurePolicy,
}

/// What happens to later deliveries of an ordering key when one fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderingFailurePolicy {
    /// They wait: the first one is retried until it succeeds or is cancelled. One with an ambiguous
    /// outcome is not retried, because it must not be sent twice: it is given up and the next one is
    /// attempted.
    #[default]
    Block,
    /// The first one is given up as usual and the next one is attempted.
    Dead,
}

impl OrderingFailurePolicy {
    /// Adjusts the retry decision of an ordered delivery.
    pub fn adjust(
        self,
        decision: RetryDecision,
        policy: &RetryPolicy,
        now: Timestamp,
    ) -> RetryDecision {
        match (self, decision) {
            (_, parked @ RetryDecision::Dead { reason: DeadReason::Ambiguous, .. }) => parked,
            (Self::Block, RetryDecision::Dead { class, .. }) => RetryDecision::RetryAt {
                due_at: now + policy.delay_max(),
                class,
                reason: ScheduleReason::KeepsOrder,
            },
            (Self::Block | Self::Dead, decision) => decision,
        }
    }
}

/// Ordered delivery, resolved from [`OrderingSpec`].
#[derive(Debug)]
pub struct OrderingPolicy {
    source: KeySource,
    /// What happens to later deliveries of the key when one fails.
    pub on_failure: OrderingFailurePolicy,
}

#[derive(Debug)]
enum KeySource {
    /// From the provider's preset.
    Provider,
    /// From the request, by these rules.
    Event(KeyRules),
}

/// The keyword for the provider's key. It has no meaning as a jq expression.
const PROVIDER: &str = "provider";

impl OrderingSpec {
    pub fn build(&self) -> Result<OrderingPolicy, ParseKeyRuleError> {
        let text = self.key.trim();
        if text == PROVIDER {
            return Ok(OrderingPolicy { source: KeySource::Provider, on_failure: self.on_failure });
        }
        let has_prefix = ["header:", "pointer:", "jq:"].iter().any(|kind| text.starts_with(kind));
        let rule: KeyRule = match text {
            _ if has_prefix => text.parse()?,
            _ if text.starts_with('/') => format!("pointer:{text}").parse()?,
            _ => format!("jq:{text}").parse()?,
        };
        let source = KeySource::Event(KeyRules::from_rules(vec![rule]));
        Ok(OrderingPolicy { source, on_failure: self.on_failure })
    }
}

impl OrderingPolicy {
    /// The ordering key of an event; `None` if it has none or more than one.
    pub fn key(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        provider_key: Option<&DedupKey>,
    ) -> Option<DedupKey> {
        match &self.source {
            KeySource::Provider => provider_key.cloned(),
            KeySource::Event(rules) => {
                rules.extract(headers, body).ok().flatten().map(|extracted| extracted.key)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use surehook_retry::FailureClass;

    use super::*;

    fn key(source: &str, body: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("x-customer", "h-7".parse().unwrap());
        let order =
            OrderingSpec { key: source.to_owned(), on_failure: OrderingFailurePolicy::Block };
        let found = order.build().unwrap().key(&headers, body.as_bytes(), None);
        found.map(|key| key.as_str().to_owned())
    }

    #[test]
    fn ordering_key_is_extracted_by_pointer_jq_or_header() {
        let body = r#"{"data":{"customer":"c-1","number":17},"list":[1]}"#;
        let cases = [
            ("pointer", "/data/customer", Some("c-1")),
            ("pointer, spelled out", "pointer:/data/customer", Some("c-1")),
            ("number", "/data/number", Some("17")),
            ("jq", ".data | .customer + \"-\" + (.number | tostring)", Some("c-1-17")),
            ("jq, spelled out", "jq:.data.customer", Some("c-1")),
            ("header", "header:X-Customer", Some("h-7")),
            ("absent", "/data/absent", None),
            ("not a value", "/list", None),
            ("a filter that fails", ".list | keys[0].x", None),
        ];
        for (name, source, expected) in cases {
            assert_eq!(key(source, body).as_deref(), expected, "case: {name}");
        }
        assert_eq!(key("/data/customer", "not JSON"), None);
    }

    #[test]
    fn invalid_ordering_key_rule_is_rejected() {
        for source in ["header:no such name", ". |", "/a~2"] {
            let spec =
                OrderingSpec { key: source.to_owned(), on_failure: OrderingFailurePolicy::Dead };
            assert!(spec.build().is_err(), "case: {source}");
        }
    }

    #[test]
    fn blocking_delivery_is_never_given_up() {
        let now = Timestamp::from_millis(5_000);
        let policy = RetryPolicy::quick();
        let dead =
            RetryDecision::Dead { reason: DeadReason::MaxRetries, class: FailureClass::Transient };
        let (due_at, reason) = (now + Duration::from_secs(8), ScheduleReason::KeepsOrder);
        let retry = RetryDecision::RetryAt { due_at, class: FailureClass::Transient, reason };
        assert_eq!(OrderingFailurePolicy::Block.adjust(dead, &policy, now), retry);
        assert_eq!(OrderingFailurePolicy::Dead.adjust(dead, &policy, now), dead);
        let success = RetryDecision::Succeeded;
        assert_eq!(OrderingFailurePolicy::Block.adjust(success, &policy, now), success);
    }

    #[test]
    fn ambiguous_delivery_is_not_retried_to_keep_order() {
        let now = Timestamp::from_millis(5_000);
        let parked =
            RetryDecision::Dead { reason: DeadReason::Ambiguous, class: FailureClass::Ambiguous };
        for on_failure in [OrderingFailurePolicy::Block, OrderingFailurePolicy::Dead] {
            assert_eq!(on_failure.adjust(parked, &RetryPolicy::quick(), now), parked);
        }
    }
}
