//! Pattern for HTTP statuses: `503`, or `5xx` for a whole class.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One status or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPattern {
    Exact(u16),
    /// All statuses that begin with this digit.
    Class(u16),
}

impl StatusPattern {
    /// Lowest and highest matching status.
    pub const fn range(self) -> (u16, u16) {
        match self {
            Self::Exact(status) => (status, status),
            Self::Class(digit) => (digit * 100, digit * 100 + 99),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid status; use for example 503, or 5xx for all that begin with 5")]
pub struct ParseStatusPatternError;

impl FromStr for StatusPattern {
    type Err = ParseStatusPatternError;

    fn from_str(text: &str) -> Result<Self, ParseStatusPatternError> {
        let digits = |text: &str| {
            let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| is_digits)
        };
        let class = text.strip_suffix("xx").and_then(digits);
        let exact = digits(text).filter(|status| (100..=999).contains(status));
        match (class, exact) {
            (Some(digit), _) if (1..=9).contains(&digit) => Ok(Self::Class(digit)),
            (None, Some(status)) => Ok(Self::Exact(status)),
            (Some(_), _) | (None, None) => Err(ParseStatusPatternError),
        }
    }
}

impl fmt::Display for StatusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(status) => write!(f, "{status}"),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

impl Serialize for StatusPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From a string or a number.
impl<'de> Deserialize<'de> for StatusPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PatternVisitor;
        impl de::Visitor<'_> for PatternVisitor {
            type Value = StatusPattern;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status such as 503, or \"5xx\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<StatusPattern, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, status: u64) -> Result<StatusPattern, E> {
                self.visit_str(&status.to_string())
            }
        }
        deserializer.deserialize_any(PatternVisitor)
    }
}

impl JsonSchema for StatusPattern {
    fn schema_name() -> Cow<'static, str> {
        "StatusPattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^([1-9]xx|[1-9][0-9]{2})$";
        json_schema!({
            "description": "A status, or `5xx` for a whole class. Answers show a string.",
            "anyOf": [
                { "type": "integer", "minimum": 100, "maximum": 999 },
                { "type": "string", "pattern": pattern },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_pattern_is_a_status_or_a_class() {
        let cases = [
            ("503", Some((503, 503))),
            ("5xx", Some((500, 599))),
            ("2xx", Some((200, 299))),
            ("99", None),
            ("1000", None),
            ("+50", None),
            ("0xx", None),
            ("12xx", None),
            ("xx", None),
            ("5x", None),
            ("", None),
        ];
        for (text, range) in cases {
            assert_eq!(
                text.parse::<StatusPattern>().ok().map(StatusPattern::range),
                range,
                "case: {text}"
            );
        }
        for (json, code) in
            [("503", StatusPattern::Exact(503)), ("\"4xx\"", StatusPattern::Class(4))]
        {
            assert_eq!(serde_json::from_str::<StatusPattern>(json).unwrap(), code);
            assert_eq!(code.to_string().parse(), Ok(code));
        }
        assert!(serde_json::from_str::<StatusPattern>("99").is_err());
    }
}
