//! Headers that a destination adds to each request: fixed values, or templates with placeholders such as
//! `{{event.id}}`.
//!
//! The value of a placeholder may come from the sender of the event and is not trusted: control characters
//! are removed, so that it cannot add headers.

use http::{HeaderName, HeaderValue};
use surehook_types::{redact::MASK, secret::SecretRef};

use crate::store::ClaimedDelivery;

/// A rendered value is truncated to this length; servers refuse longer lines.
const RENDERED_BYTES_MAX: usize = 8 * 1024;

const REQUEST_HEADER_PREFIX: &str = "request.header.";

/// A placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Placeholder {
    EventId,
    EventKey,
    EventSource,
    EventReceivedAt,
    DeliveryId,
    Attempt,
    RequestPath,
    RequestQuery,
    RequestHeader(HeaderName),
}

impl Placeholder {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "event.id" => Self::EventId,
            "event.key" => Self::EventKey,
            "event.source" => Self::EventSource,
            "event.received_at" => Self::EventReceivedAt,
            "delivery.id" => Self::DeliveryId,
            "attempt" => Self::Attempt,
            "request.path" => Self::RequestPath,
            "request.query" => Self::RequestQuery,
            _ => Self::RequestHeader(text.strip_prefix(REQUEST_HEADER_PREFIX)?.parse().ok()?),
        })
    }

    /// Appends the value; a missing value appends nothing.
    fn write(&self, claimed: &ClaimedDelivery, value: &mut Vec<u8>) {
        let head = &claimed.payload.head;
        let mut append = |text: &str| value.extend_from_slice(text.as_bytes());
        match self {
            Self::EventId => append(&claimed.event.to_string()),
            Self::EventKey => append(claimed.key.as_ref().map_or("", |key| key.as_str())),
            Self::EventSource => append(claimed.source.as_str()),
            Self::EventReceivedAt => append(&claimed.received_at.to_string()),
            Self::DeliveryId => append(&claimed.id.to_string()),
            Self::Attempt => append(&(claimed.attempts + 1).to_string()),
            Self::RequestPath => append(&head.path),
            Self::RequestQuery => append(head.query.as_deref().unwrap_or_default()),
            Self::RequestHeader(name) => {
                // The header with the source's secret is stored masked and counts as missing.
                let is_unmasked = |value: &[u8]| value != MASK.as_bytes();
                let lines = head.headers.lines();
                let lines = lines.filter(|(other, line)| other == name && is_unmasked(line));
                for (number, (_, line)) in lines.enumerate() {
                    // RFC 9110, 5.3: repeated header lines form one list.
                    value.extend_from_slice(if number == 0 { b"" } else { b", " });
                    value.extend_from_slice(line);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum TemplatePart {
    Text(Box<str>),
    Placeholder(Placeholder),
}

/// A header value with placeholders.
#[derive(Clone)]
pub struct HeaderTemplate(Vec<TemplatePart>);

/// Leaves out the text, which may contain a secret.
impl std::fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeaderTemplate(•••)")
    }
}

/// The value of an added header.
#[derive(Clone, Debug)]
pub enum HeaderValueSource {
    /// The same at every attempt.
    Fixed(HeaderValue),
    /// Rendered at every attempt.
    Template(HeaderTemplate),
}

/// Why a header value is invalid. No text contains any part of it except a placeholder.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderTemplateError {
    #[error("the value contains characters that are not allowed in a header")]
    Characters,
    #[error("placeholder without closing `}}}}`")]
    Unclosed,
    #[error(
        "unknown placeholder `{{{{{0}}}}}`; available: event.id, event.key, event.source, event.received_at, delivery.id, attempt, request.path, request.query, request.header.NAME"
    )]
    Unknown(String),
}

/// Longest part of an unknown placeholder shown in an error.
const SHOWN_CHARS_MAX: usize = 40;

impl HeaderValueSource {
    /// Parses a value. A value from an environment variable is used unchanged, without placeholders.
    pub fn parse(value: &SecretRef, resolved: &[u8]) -> Result<Self, HeaderTemplateError> {
        let mut fixed =
            HeaderValue::from_bytes(resolved).map_err(|_| HeaderTemplateError::Characters)?;
        fixed.set_sensitive(true);
        match value.literal() {
            Some(text) if text.contains("{{") => Ok(Self::Template(HeaderTemplate::parse(text)?)),
            Some(_) | None => Ok(Self::Fixed(fixed)),
        }
    }

    /// The value for one attempt; `None` if it is empty.
    pub fn render(&self, claimed: &ClaimedDelivery) -> Option<HeaderValue> {
        match self {
            Self::Fixed(value) => Some(value.clone()),
            Self::Template(template) => template.render(claimed),
        }
    }
}

impl HeaderTemplate {
    fn parse(mut text: &str) -> Result<Self, HeaderTemplateError> {
        let mut parts = Vec::new();
        while let Some((before, rest)) = text.split_once("{{") {
            let (name, after) = rest.split_once("}}").ok_or(HeaderTemplateError::Unclosed)?;
            let unknown =
                || HeaderTemplateError::Unknown(name.chars().take(SHOWN_CHARS_MAX).collect());
            parts.push(TemplatePart::Text(before.into()));
            parts.push(TemplatePart::Placeholder(
                Placeholder::parse(name.trim()).ok_or_else(unknown)?,
            ));
            text = after;
        }
        parts.push(TemplatePart::Text(text.into()));
        Ok(Self(parts))
    }

    fn render(&self, claimed: &ClaimedDelivery) -> Option<HeaderValue> {
        let mut bytes = Vec::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                TemplatePart::Placeholder(placeholder) => placeholder.write(claimed, &mut bytes),
            }
        }
        // CR, LF and NUL would let the sender of the event add headers.
        bytes.retain(|byte| !byte.is_ascii_control());
        bytes.truncate(RENDERED_BYTES_MAX);
        let mut value = HeaderValue::from_bytes(bytes.trim_ascii()).ok()?;
        value.set_sensitive(true);
        (!value.is_empty()).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use surehook_types::{
        ids::{DeliveryId, DestinationId, EventId},
        time::Timestamp,
    };
    use surehook_webhooks::key::DedupKey;

    use super::*;
    use crate::{
        delivery::{ClaimProof, LaneEpoch},
        event::{HeaderBlock, Payload, RequestHead},
    };

    const NOW: Timestamp = Timestamp::from_millis(1_614_265_330_000);

    fn claimed(key: Option<&str>, query: Option<&str>, headers: &str) -> ClaimedDelivery {
        ClaimedDelivery {
            id: DeliveryId::new(NOW, 2),
            event: EventId::new(NOW, 3),
            destination: DestinationId::new(NOW, 1),
            source: "shop".parse().unwrap(),
            key: key.and_then(DedupKey::new),
            proof: ClaimProof { epoch: LaneEpoch(1), number: 1 },
            attempts: 2,
            throttled: 0,
            created_at: NOW,
            received_at: NOW,
            pending_route: None,
            ordered: false,
            payload: Payload {
                head: Arc::new(RequestHead {
                    path: "/orders/1".to_owned(),
                    query: query.map(ToOwned::to_owned),
                    headers: HeaderBlock::from_bytes(headers.as_bytes().to_vec()),
                    remote: Arc::default(),
                }),
                body: Bytes::new(),
                fingerprint: [0; 32],
            },
        }
    }

    fn parse(text: &str) -> Result<HeaderValueSource, HeaderTemplateError> {
        HeaderValueSource::parse(&text.parse().unwrap(), text.as_bytes())
    }

    fn render(text: &str, claimed: &ClaimedDelivery) -> Option<String> {
        let value = parse(text).unwrap().render(claimed)?;
        assert!(value.is_sensitive(), "case: {text}");
        Some(String::from_utf8(value.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn placeholders_are_replaced_by_their_values() {
        let delivery =
            claimed(Some("k-é"), Some("a=1&b"), "x-a: 1\r\nx-b: 2\r\nx-a: 3\r\nx-tab: a\tb\r\n");
        let cases = [
            ("plain", "plain".to_owned()),
            ("} }} {", "} }} {".to_owned()),
            ("{{event.id}}", delivery.event.to_string()),
            ("{{ event.id }}", delivery.event.to_string()),
            ("{{delivery.id}}", delivery.id.to_string()),
            ("{{event.key}}", "k-é".to_owned()),
            ("{{event.source}}/{{attempt}}", "shop/3".to_owned()),
            ("{{event.received_at}}", "2021-02-25T15:02:10.000Z".to_owned()),
            ("{{request.path}}?{{request.query}}", "/orders/1?a=1&b".to_owned()),
            ("{{request.header.X-A}};{{request.header.x-b}}", "1, 3;2".to_owned()),
            ("{{request.header.x-tab}}", "ab".to_owned()),
            ("a{{request.header.missing}}b", "ab".to_owned()),
        ];
        for (text, expected) in cases {
            assert_eq!(render(text, &delivery), Some(expected), "case: {text}");
        }
    }

    #[test]
    fn empty_rendered_value_adds_no_header() {
        let empty = claimed(None, None, "");
        for text in ["{{event.key}}", "{{request.query}}", " {{request.header.x}} "] {
            assert_eq!(render(text, &empty), None, "case: {text}");
        }
    }

    #[test]
    fn unknown_placeholder_is_rejected_by_name() {
        let unknown = |name: &str| Some(HeaderTemplateError::Unknown(name.to_owned()));
        let cases = [
            ("{{event.body}}", unknown("event.body")),
            ("{{}}", unknown("")),
            ("{{request.header.}}", unknown("request.header.")),
            ("{{request.header.a b}}", unknown("request.header.a b")),
            ("{{event.id", Some(HeaderTemplateError::Unclosed)),
            ("{{event.id}} {{", Some(HeaderTemplateError::Unclosed)),
            ("a\nb", Some(HeaderTemplateError::Characters)),
            ("a\nb{{event.id}}", Some(HeaderTemplateError::Characters)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).err(), expected, "case: {text}");
        }
        let error = parse("{{event.body}}").unwrap_err().to_string();
        assert!(
            error.starts_with("unknown placeholder `{{event.body}}`; available: event.id,"),
            "{error}"
        );
    }

    #[test]
    fn value_from_environment_is_used_without_placeholders() {
        let text = HeaderValueSource::parse(&"env:TOKEN".parse().unwrap(), b"{{what}}").unwrap();
        assert_eq!(text.render(&claimed(None, None, "")).unwrap(), "{{what}}");
    }

    proptest! {
        #[test]
        fn sender_cannot_inject_control_characters(
            path in any::<String>(), query in any::<String>(), key in any::<String>(),
        ) {
            let mut delivery = claimed(Some(&key), Some(&query), "");
            delivery.payload.head = Arc::new(RequestHead {
                path, query: Some(query), ..RequestHead::default()
            });
            let text = "x{{request.path}}{{request.query}}{{event.key}}";
            let value = parse(text).unwrap().render(&delivery).unwrap();
            prop_assert!(value.len() <= RENDERED_BYTES_MAX);
            prop_assert!(!value.as_bytes().iter().any(u8::is_ascii_control));
        }
    }
}
