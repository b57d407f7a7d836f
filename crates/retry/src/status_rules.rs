//! A destination's own rules about the HTTP statuses of its answers.
//!
//! A rule maps statuses to an action. The first matching rule decides; without one the status table
//! of `classify` applies.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::{borrow::Cow, fmt, ops::RangeInclusive, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{DeadReason, FailureClass};

/// Maximum number of rules of one destination.
pub const STATUS_RULES_MAX: usize = 64;

/// Valid HTTP statuses.
const STATUSES: RangeInclusive<u16> = 100..=999;

/// One rule of a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusRule {
    /// The statuses it applies to: `409`, `"500-599"` or `"5xx"`.
    pub status: StatusRange,
    /// What to do with such an answer.
    pub then: StatusAction,
    /// The reason recorded for `dead`; by the status table when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
}

/// The action for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatusAction {
    /// Count it as delivered.
    Succeeded,
    /// Retry by the policy.
    Retry,
    /// Retry, and slow down the whole destination.
    Throttle,
    /// Give up at once.
    Dead,
    /// Pause the destination until a person resumes it; the delivery is kept.
    Pause,
}

impl StatusAction {
    /// `None` is a success.
    pub(super) const fn class(self) -> Option<FailureClass> {
        match self {
            Self::Succeeded => None,
            Self::Retry => Some(FailureClass::Transient),
            Self::Throttle => Some(FailureClass::Throttled),
            Self::Dead => Some(FailureClass::Permanent),
            Self::Pause => Some(FailureClass::Config),
        }
    }
}

/// One status or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRange(RangeInclusive<u16>);

/// Why status rules are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatusRuleError {
    /// The text is neither a status nor a range of statuses.
    #[error("invalid status; write 409, \"500-599\" or \"5xx\", from 100 to 999")]
    Status,
    /// Only a dead delivery has a reason.
    #[error("`reason` is only allowed with then = \"dead\"")]
    ReasonWithoutDead,
    /// Other reasons are for the gateway to find.
    #[error("`reason` must be unrecoverable, payload_error or invalid_endpoint")]
    Reason,
    /// More than [`STATUS_RULES_MAX`].
    #[error("too many rules; at most {STATUS_RULES_MAX} are allowed")]
    TooMany,
}

impl FromStr for StatusRange {
    type Err = StatusRuleError;

    fn from_str(text: &str) -> Result<Self, StatusRuleError> {
        let number = |digits: &str| -> Option<u16> {
            let has_three_digits =
                digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|status| has_three_digits && STATUSES.contains(status))
        };
        let range = match (text.strip_suffix("xx"), text.split_once('-')) {
            (Some(hundreds), _) => number(&format!("{hundreds}00")).map(|low| low..=low + 99),
            (None, Some((low, high))) => match (number(low.trim()), number(high.trim())) {
                (Some(low), Some(high)) if low <= high => Some(low..=high),
                (Some(_) | None, Some(_) | None) => None,
            },
            (None, None) => number(text).map(|status| status..=status),
        };
        range.map(Self).ok_or(StatusRuleError::Status)
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.0.start(), self.0.end());
        if low == high {
            write!(f, "{low}")
        } else if low % 100 == 0 && *high == low + 99 {
            write!(f, "{}xx", low / 100)
        } else {
            write!(f, "{low}-{high}")
        }
    }
}

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a status such as 409, \"500-599\" or \"5xx\"")]
        enum RawStatus<'a> {
            Number(u16),
            Text(#[serde(borrow)] Cow<'a, str>),
        }
        let text = match RawStatus::deserialize(deserializer)? {
            RawStatus::Number(status) => Cow::Owned(status.to_string()),
            RawStatus::Text(text) => text,
        };
        text.parse().map_err(de::Error::custom)
    }
}

/// The validated rules of one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusRules(Vec<StatusRule>);

impl StatusRules {
    /// No rules: the status table decides.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Validates the rules.
    pub fn new(rules: &[StatusRule]) -> Result<Self, StatusRuleError> {
        if rules.len() > STATUS_RULES_MAX {
            return Err(StatusRuleError::TooMany);
        }
        for rule in rules {
            match (rule.reason, rule.then) {
                (None, _) => {}
                (Some(reason), StatusAction::Dead) if is_allowed_reason(reason) => {}
                (Some(_), StatusAction::Dead) => return Err(StatusRuleError::Reason),
                (Some(_), _) => return Err(StatusRuleError::ReasonWithoutDead),
            }
        }
        Ok(Self(rules.to_vec()))
    }

    /// The first rule that matches `status`.
    pub(super) fn find(&self, status: u16) -> Option<&StatusRule> {
        self.0.iter().find(|rule| rule.status.0.contains(&status))
    }
}

/// The other reasons depend on time and attempt counts, not on a single answer.
const fn is_allowed_reason(reason: DeadReason) -> bool {
    match reason {
        DeadReason::Unrecoverable | DeadReason::PayloadError | DeadReason::InvalidEndpoint => true,
        DeadReason::MaxRetries | DeadReason::Expired | DeadReason::Ambiguous => false,
    }
}

impl JsonSchema for StatusRange {
    fn schema_name() -> Cow<'static, str> {
        "StatusRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^([1-9]xx|[1-9][0-9]{2}( ?- ?[1-9][0-9]{2})?)$";
        json_schema!({
            "description": "A status, `5xx` for a whole class, or `500-503`. Answers show a string.",
            "anyOf": [
                { "type": "integer", "minimum": 100, "maximum": 999 },
                { "type": "string", "pattern": pattern },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::time::Timestamp;

    use super::{
        super::{
            AttemptFailure, AttemptOutcome, AttemptProgress, RetryDecision, RetryTerms, classify,
            cool_until, decide_retry, should_pause_destination,
        },
        *,
    };
    use crate::RetryPolicy;

    #[test]
    fn status_range_parses_number_range_and_class() {
        let cases = [
            ("409", Some((409, 409)), "409"),
            ("500-599", Some((500, 599)), "5xx"),
            ("500 - 504", Some((500, 504)), "500-504"),
            ("5xx", Some((500, 599)), "5xx"),
            ("9xx", Some((900, 999)), "9xx"),
            ("99", None, ""),
            ("1000", None, ""),
            ("+40", None, ""),
            ("599-500", None, ""),
            ("0xx", None, ""),
            ("xx", None, ""),
            ("5XX", None, ""),
            ("5é", None, ""),
            ("", None, ""),
            ("-", None, ""),
        ];
        for (text, range, shown) in cases {
            let read = text.parse::<StatusRange>().ok();
            let expected = range.map(|(low, high)| StatusRange(low..=high));
            assert_eq!(read, expected, "case: {text}");
            assert_eq!(read.map_or(String::new(), |read| read.to_string()), shown, "case: {text}");
        }
    }

    #[test]
    fn status_rules_round_trip_through_json() {
        let text = r#"[{"status":409,"then":"succeeded"},{"status":"5xx","then":"dead","reason":"payload_error"}]"#;
        let rules: Vec<StatusRule> = serde_json::from_str(text).unwrap();
        assert_eq!(rules[0].status, StatusRange(409..=409));
        assert_eq!(rules[1].reason, Some(DeadReason::PayloadError));
        let again: Vec<StatusRule> =
            serde_json::from_str(&serde_json::to_string(&rules).unwrap()).unwrap();
        assert_eq!(again, rules);
        for bad in [
            r#"{"status":"99","then":"retry"}"#,
            r#"{"status":200,"then":"explode"}"#,
            r#"{"status":200,"then":"retry","whatever":1}"#,
            r#"{"status":[200],"then":"retry"}"#,
        ] {
            assert!(serde_json::from_str::<StatusRule>(bad).is_err(), "case: {bad}");
        }
    }

    #[test]
    fn invalid_status_rules_are_rejected() {
        let rule = |then, reason| StatusRule { status: "404".parse().unwrap(), then, reason };
        let cases = [
            (rule(StatusAction::Dead, Some(DeadReason::InvalidEndpoint)), Ok(())),
            (rule(StatusAction::Dead, Some(DeadReason::Expired)), Err(StatusRuleError::Reason)),
            (
                rule(StatusAction::Retry, Some(DeadReason::Unrecoverable)),
                Err(StatusRuleError::ReasonWithoutDead),
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(
                StatusRules::new(std::slice::from_ref(&rule)).map(drop),
                expected,
                "case: {rule:?}"
            );
        }
        let many = vec![rule(StatusAction::Retry, None); STATUS_RULES_MAX + 1];
        assert_eq!(StatusRules::new(&many), Err(StatusRuleError::TooMany));
    }

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn rules(json: &str) -> StatusRules {
        StatusRules::new(&serde_json::from_str::<Vec<StatusRule>>(json).unwrap()).unwrap()
    }

    fn decide(rules: &StatusRules, status: u16, attempts: u32) -> RetryDecision {
        let outcome = AttemptOutcome::Answered { status, retry_after: None };
        let progress = AttemptProgress { attempts, throttled: 0, created_at: NOW };
        {
            let terms = RetryTerms { retry: &RetryPolicy::quick(), rules };
            decide_retry(&outcome, classify(&outcome, rules), progress, terms, NOW, 0.0)
        }
    }

    #[test]
    fn first_matching_rule_overrides_the_status_table() {
        let rules = rules(
            r#"[{"status":409,"then":"succeeded"},
                {"status":404,"then":"retry"},
                {"status":"420-429","then":"throttle"},
                {"status":400,"then":"dead"},
                {"status":418,"then":"dead"},
                {"status":"4xx","then":"dead","reason":"invalid_endpoint"},
                {"status":503,"then":"dead","reason":"payload_error"},
                {"status":"2xx","then":"retry"},
                {"status":203,"then":"succeeded"}]"#,
        );
        let dead = |reason| RetryDecision::Dead { reason, class: FailureClass::Permanent };
        let cases = [
            (409, Some(RetryDecision::Succeeded), None),
            (404, None, Some(FailureClass::Transient)),
            (420, None, Some(FailureClass::Throttled)),
            (400, Some(dead(DeadReason::PayloadError)), Some(FailureClass::Permanent)),
            (418, Some(dead(DeadReason::Unrecoverable)), Some(FailureClass::Permanent)),
            (401, Some(dead(DeadReason::InvalidEndpoint)), Some(FailureClass::Permanent)),
            (503, Some(dead(DeadReason::PayloadError)), Some(FailureClass::Permanent)),
            (200, None, Some(FailureClass::Transient)),
            // An earlier rule matched already.
            (203, None, Some(FailureClass::Transient)),
            // No rule matches these.
            (500, None, Some(FailureClass::Transient)),
            (
                308,
                Some(RetryDecision::Dead {
                    reason: DeadReason::InvalidEndpoint,
                    class: FailureClass::Config,
                }),
                Some(FailureClass::Config),
            ),
        ];
        for (status, expected, class) in cases {
            let outcome = AttemptOutcome::Answered { status, retry_after: None };
            assert_eq!(classify(&outcome, &rules), class, "case: {status}");
            let found = decide(&rules, status, 1);
            match expected {
                Some(expected) => assert_eq!(found, expected, "case: {status}"),
                None => assert!(
                    matches!(found, RetryDecision::RetryAt { class: c, .. } if Some(c) == class),
                    "case: {status}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn throttle_rule_cools_the_lane_down() {
        let rules = rules(r#"[{"status":420,"then":"throttle"},{"status":429,"then":"retry"}]"#);
        let progress = AttemptProgress { attempts: 1, throttled: 1, created_at: NOW };
        let cools = |status| {
            let outcome = AttemptOutcome::Answered { status, retry_after: None };
            let terms = RetryTerms { retry: &RetryPolicy::quick(), rules: &rules };
            cool_until(&outcome, classify(&outcome, &rules), progress, terms, NOW, 0.0).is_some()
        };
        assert_eq!([cools(420), cools(429), cools(500)], [true, false, false]);
    }

    #[test]
    fn pause_rule_keeps_the_delivery_until_attempts_run_out() {
        let rules = rules(r#"[{"status":410,"then":"pause"}]"#);
        let gone = AttemptOutcome::Answered { status: 410, retry_after: None };
        assert_eq!(classify(&gone, &rules), Some(FailureClass::Config));
        assert!(should_pause_destination(&gone, &rules));
        assert!(!should_pause_destination(&gone, &StatusRules::none()));
        assert!(!should_pause_destination(&AttemptOutcome::Failed(AttemptFailure::Tls), &rules));
        assert!(matches!(decide(&rules, 410, 1), RetryDecision::Pause { due_at } if due_at > NOW));
        assert_eq!(
            decide(&rules, 410, 3),
            RetryDecision::Dead { reason: DeadReason::MaxRetries, class: FailureClass::Config }
        );
    }
}
