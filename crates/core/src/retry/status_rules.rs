//! What a destination says itself about the statuses that it answers with.
//!
//! A rule names statuses and a verb; the first one that fits an answer decides, and what no rule
//! names is judged by the table.

use std::{borrow::Cow, fmt, ops::RangeInclusive, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{DeadReason, FailureClass};

/// Nobody has more to say about statuses than this.
pub const STATUS_RULES_MAX: usize = 64;

/// Every status that a message can carry.
const STATUSES: RangeInclusive<u16> = 100..=999;

/// One rule, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusRule {
    /// Which answers it is about: `409`, `"500-599"` or `"5xx"`.
    pub status: StatusRange,
    /// What they mean.
    pub then: StatusAction,
    /// Why a delivery is dead, for `dead` only; by the table when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
}

/// What an answer means to whoever wrote the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatusAction {
    /// The event has arrived.
    Succeeded,
    /// Again, by the policy.
    Retry,
    /// Again, and the whole lane slows down.
    Throttle,
    /// Given up at once.
    Dead,
    /// Somebody must look at the destination before it is called again; the delivery is kept.
    Pause,
}

impl StatusAction {
    /// The kind of failure that this is; `None` is a success.
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

/// A status, or some that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRange(RangeInclusive<u16>);

/// A rule that makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatusRuleError {
    /// Not a status.
    #[error("a status is written as 409, \"500-599\" or \"5xx\", from 100 to 999")]
    Status,
    /// A reason where nothing dies.
    #[error("`reason` goes with then = \"dead\" only")]
    ReasonWithoutDeath,
    /// A reason that is not about an answer.
    #[error("`reason` may be unrecoverable, payload_error or invalid_endpoint")]
    Reason,
    /// Too many.
    #[error("there may be {STATUS_RULES_MAX} rules")]
    TooMany,
}

impl FromStr for StatusRange {
    type Err = StatusRuleError;

    fn from_str(text: &str) -> Result<Self, StatusRuleError> {
        let number = |digits: &str| -> Option<u16> {
            let plain = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|status| plain && STATUSES.contains(status))
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
        #[serde(untagged, expecting = "a status such as 409, \"500-599\" or \"5xx\"")]
        enum Written<'a> {
            Number(u16),
            Text(#[serde(borrow)] Cow<'a, str>),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Number(status) => Cow::Owned(status.to_string()),
            Written::Text(text) => text,
        };
        text.parse().map_err(de::Error::custom)
    }
}

/// The rules of one destination, checked. Without any, the table decides alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusRules(Vec<StatusRule>);

impl StatusRules {
    /// No rules: the table decides.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Checks that each rule makes sense.
    pub fn new(rules: &[StatusRule]) -> Result<Self, StatusRuleError> {
        if rules.len() > STATUS_RULES_MAX {
            return Err(StatusRuleError::TooMany);
        }
        for rule in rules {
            match (rule.reason, rule.then) {
                (None, _) => {}
                (Some(reason), StatusAction::Dead) if is_about_an_answer(reason) => {}
                (Some(_), StatusAction::Dead) => return Err(StatusRuleError::Reason),
                (Some(_), _) => return Err(StatusRuleError::ReasonWithoutDeath),
            }
        }
        Ok(Self(rules.to_vec()))
    }

    /// The first rule about `status`.
    pub(super) fn find(&self, status: u16) -> Option<&StatusRule> {
        self.0.iter().find(|rule| rule.status.0.contains(&status))
    }
}

/// The other reasons are about time and numbers, which no single answer knows.
const fn is_about_an_answer(reason: DeadReason) -> bool {
    match reason {
        DeadReason::Unrecoverable | DeadReason::PayloadError | DeadReason::InvalidEndpoint => true,
        DeadReason::MaxRetries | DeadReason::Expired | DeadReason::Ambiguous => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            AttemptFailure, AttemptOutcome, AttemptProgress, RetryDecision, RetryTerms, classify,
            cool_until, decide_retry, should_pause_destination,
        },
        *,
    };
    use crate::{retry::RetryPolicy, time::Timestamp};

    #[test]
    fn statuses_are_a_number_a_range_or_a_hundred() {
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
    fn rules_are_read_as_they_are_written() {
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
    fn rules_that_make_no_sense_are_refused() {
        let rule = |then, reason| StatusRule { status: "404".parse().unwrap(), then, reason };
        let cases = [
            (rule(StatusAction::Dead, Some(DeadReason::InvalidEndpoint)), Ok(())),
            (rule(StatusAction::Dead, Some(DeadReason::Expired)), Err(StatusRuleError::Reason)),
            (
                rule(StatusAction::Retry, Some(DeadReason::Unrecoverable)),
                Err(StatusRuleError::ReasonWithoutDeath),
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

    fn verdict(rules: &StatusRules, status: u16, attempts: u32) -> RetryDecision {
        let outcome = AttemptOutcome::Answered { status, retry_after: None };
        let progress = AttemptProgress { attempts, throttled: 0, created_at: NOW };
        {
            let terms = RetryTerms { retry: &RetryPolicy::quick(), rules };
            decide_retry(&outcome, classify(&outcome, rules), progress, terms, NOW, 0.0)
        }
    }

    #[test]
    fn the_first_rule_about_a_status_comes_before_the_table() {
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
            // The rule before it has spoken already.
            (203, None, Some(FailureClass::Transient)),
            // Nothing is said about these.
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
            let found = verdict(&rules, status, 1);
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
    fn a_rule_that_throttles_cools_the_lane() {
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
    fn a_rule_that_pauses_keeps_the_delivery_while_it_has_attempts() {
        let rules = rules(r#"[{"status":410,"then":"pause"}]"#);
        let gone = AttemptOutcome::Answered { status: 410, retry_after: None };
        assert_eq!(classify(&gone, &rules), Some(FailureClass::Config));
        assert!(should_pause_destination(&gone, &rules));
        assert!(!should_pause_destination(&gone, &StatusRules::none()));
        assert!(!should_pause_destination(&AttemptOutcome::Failed(AttemptFailure::Tls), &rules));
        assert!(matches!(verdict(&rules, 410, 1), RetryDecision::Pause { due_at } if due_at > NOW));
        assert_eq!(
            verdict(&rules, 410, 3),
            RetryDecision::Dead { reason: DeadReason::MaxRetries, class: FailureClass::Config }
        );
    }
}
