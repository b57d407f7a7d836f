//! The outbox: the built-in source of the messages and webhooks that are sent through the API.
//!
//! It is created with the first message, or with the first route from it. It accepts no incoming
//! webhooks. Only its retention, its redaction and `enabled` can be set.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use surehook_messaging::{Message, MessageSpec, message::MessageContent};
use surehook_types::name::Name;
use surehook_webhooks::{
    attribute::{AttributeName, Attributes, EventKind, ParseEventKindError},
    key::DedupKey,
    provider::{ParsedRequest, Provider},
    verify::{Verifier, VerifySpec},
};

use crate::{
    destination::RESERVED_HEADERS,
    event::is_never_forwarded,
    source::{SourceSpec, SourceSpecError},
};

/// Name of the source and of its provider.
pub const OUTBOX: &str = "outbox";

/// The provider of the outbox: the gateway itself. It accepts no incoming requests.
pub static OUTBOX_PROVIDER: Provider = Provider {
    name: OUTBOX,
    verifier: |_| Verifier::new(&VerifySpec::None, Vec::new()),
    parse_request: |_, _| ParsedRequest::Events(Vec::new()),
    ..Provider::DEFAULT
};

/// Whether the name is taken by the outbox and cannot be given to another source.
pub fn is_reserved_name(name: &Name) -> bool {
    name.as_str() == OUTBOX
}

impl SourceSpec {
    /// The outbox with its default settings.
    pub fn outbox() -> Self {
        Self { provider: OUTBOX.to_owned(), ..Self::named(Name::from_static(OUTBOX)) }
    }

    pub fn is_outbox(&self) -> bool {
        self.provider == OUTBOX
    }

    /// Rejects settings that have no effect on the outbox.
    pub(crate) fn check_outbox(&self) -> Result<(), SourceSpecError> {
        let settable = Self {
            redact: self.redact.clone(),
            strip_secrets: self.strip_secrets,
            retention: self.retention,
            enabled: self.enabled,
            ..Self::outbox()
        };
        if *self == settable { Ok(()) } else { Err(SourceSpecError::Outbox) }
    }
}

/// Prefix of the kind of a message event; the message type follows.
pub const MESSAGE_KIND_PREFIX: &str = "message.";
/// Kind of a webhook without a `type`.
const DEFAULT_WEBHOOK_KIND: &str = "webhook";
/// Maximum number of headers of one webhook.
const HEADERS_MAX: usize = 64;

/// The event that a message or webhook sent through the API becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxPost {
    pub kind: Option<EventKind>,
    pub attributes: Attributes,
    /// The recipient, as the ordering key for destinations that deliver in order.
    pub ordering_key: Option<DedupKey>,
    pub headers: HeaderMap,
    /// The bytes to send; for a message, its spec as JSON.
    pub body: Bytes,
    /// The path at a destination of the kind `origin`; empty for others.
    pub path: String,
    /// The query at a destination of the kind `origin`.
    pub query: Option<String>,
}

/// Why a message or webhook cannot be posted to the outbox.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboxPostError {
    #[error("type: {0}")]
    Kind(#[from] ParseEventKindError),
    #[error("headers: `{0}` cannot be set here: {1}")]
    Header(String, &'static str),
    #[error("headers: more than {HEADERS_MAX} headers")]
    TooManyHeaders,
}

impl OutboxPost {
    /// The event of a message. The spec is stored, so that a later attempt reads what was sent.
    pub fn message(spec: &MessageSpec, message: &Message) -> Self {
        let mut attributes = Attributes::default();
        attributes.push(AttributeName::Phone, message.to.as_str());
        let replied_to = message.reply_to.as_ref().map(|reply| &reply.message_id);
        attributes.push_some(AttributeName::MessageId, replied_to);
        if let MessageContent::Reaction(reaction) = &message.content {
            attributes.push(AttributeName::MessageId, &reaction.message_id);
        }
        Self {
            kind: EventKind::new(&format!("{MESSAGE_KIND_PREFIX}{}", message.kind().as_str())),
            attributes,
            ordering_key: DedupKey::new(message.to.as_str()),
            headers: json_headers(),
            // Cannot fail: a spec holds only text, numbers and lists of them.
            body: serde_json::to_vec(spec).unwrap_or_default().into(),
            path: String::new(),
            query: None,
        }
    }

    /// The event of an outbound webhook with any JSON body.
    pub fn webhook(
        kind: Option<&str>,
        headers: &BTreeMap<String, String>,
        body: Bytes,
    ) -> Result<Self, OutboxPostError> {
        let kind = EventKind::try_from(kind.unwrap_or(DEFAULT_WEBHOOK_KIND).to_owned())?;
        if headers.len() > HEADERS_MAX {
            return Err(OutboxPostError::TooManyHeaders);
        }
        let mut map = json_headers();
        for (name, value) in headers {
            let invalid = |reason| OutboxPostError::Header(name.clone(), reason);
            let name: HeaderName = name.parse().map_err(|_| invalid("the name is not valid"))?;
            if RESERVED_HEADERS.contains(&name.as_str()) || map.contains_key(&name) {
                return Err(invalid("it is set by the gateway, or given twice"));
            }
            if is_never_forwarded(name.as_str()) {
                return Err(invalid("it belongs to the destination; set it there"));
            }
            let value = HeaderValue::from_str(value)
                .map_err(|_| invalid("the value has characters that no header can carry"))?;
            map.insert(name, value);
        }
        Ok(Self {
            kind: Some(kind),
            attributes: Attributes::default(),
            ordering_key: None,
            headers: map,
            body,
            path: String::new(),
            query: None,
        })
    }
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

#[cfg(test)]
mod tests {
    use surehook_types::{ids::SourceId, time::Timestamp};

    use super::*;

    #[test]
    fn outbox_rejects_settings_without_effect() {
        let cases = [
            (r#"{"name":"outbox","provider":"outbox"}"#, true),
            (r#"{"name":"outbox","provider":"outbox","retention":{"bodies":"1d"}}"#, true),
            (r#"{"name":"outbox","provider":"outbox","redact":["pin"],"enabled":false}"#, true),
            (r#"{"name":"other","provider":"outbox"}"#, false),
            (r#"{"name":"outbox","provider":"outbox","verify":"none"}"#, false),
            (r#"{"name":"outbox","provider":"outbox","keys":["pointer:/id"]}"#, false),
            (r#"{"name":"outbox","provider":"outbox","sync":{"destination":"a"}}"#, false),
        ];
        for (json, is_good) in cases {
            let spec: SourceSpec = serde_json::from_str(json).unwrap();
            let built = spec.build(SourceId::new(Timestamp::default(), 1), &|_| None);
            assert_eq!(built.is_ok(), is_good, "case: {json}");
        }
        let spec: SourceSpec = serde_json::from_str(cases[0].0).unwrap();
        assert_eq!(spec, SourceSpec::outbox());
    }

    #[test]
    fn message_is_indexed_by_recipient_and_replied_message() {
        let cases = [
            (
                r#"{"to":"+55 11 98765-4321","text":"hi"}"#,
                "message.text",
                r#"{"phone":["5511987654321"]}"#,
            ),
            (
                r#"{"to":"12036304@g.us","text":"hi","reply_to":"wamid.A"}"#,
                "message.text",
                r#"{"message_id":["wamid.A"],"chat":["12036304@g.us"]}"#,
            ),
            (
                r#"{"to":"5511987654321","reaction":{"message_id":"wamid.B","emoji":"x"}}"#,
                "message.reaction",
                r#"{"message_id":["wamid.B"],"phone":["5511987654321"]}"#,
            ),
        ];
        for (json, kind, attributes) in cases {
            let spec: MessageSpec = serde_json::from_str(json).unwrap();
            let post = OutboxPost::message(&spec, &spec.clone().build().unwrap());
            assert_eq!(post.kind.unwrap().as_str(), kind);
            assert_eq!(post.attributes.to_json(), attributes);
            assert_eq!(serde_json::from_slice::<MessageSpec>(&post.body).unwrap(), spec);
        }
    }

    #[test]
    fn webhook_accepts_only_headers_that_are_forwarded() {
        let cases = [
            ("x-order", "7", true),
            ("X-Order", "7", true),
            ("Authorization", "Bearer x", false),
            ("cookie", "a=b", false),
            ("webhook-id", "x", false),
            ("content-type", "text/plain", false),
            ("x-forwarded-for", "1.2.3.4", false),
            ("not a name", "x", false),
            ("x-order", "a\r\nb: c", false),
        ];
        for (name, value, is_good) in cases {
            let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let post = OutboxPost::webhook(Some("order.paid"), &headers, Bytes::from_static(b"{}"));
            assert_eq!(post.is_ok(), is_good, "case: {name}: {value}");
        }
        let plain = OutboxPost::webhook(None, &BTreeMap::new(), Bytes::new()).unwrap();
        assert_eq!(plain.kind.unwrap().as_str(), "webhook");
        assert!(OutboxPost::webhook(Some(" "), &BTreeMap::new(), Bytes::new()).is_err());
    }
}
