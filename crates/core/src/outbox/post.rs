//! What is posted to the outbox: the event that a message becomes.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};

use crate::{
    attribute::{AttributeName, Attributes, EventKind, ParseEventKindError},
    channel::{Message, MessageSpec, message::MessageContent},
    destination::RESERVED,
    event::is_never_forwarded,
    key::DedupKey,
};

/// What every event of a message begins with; the type of the message follows.
pub const MESSAGE_KIND_PREFIX: &str = "message.";
/// The kind of a webhook that says nothing about itself.
const WEBHOOK: &str = "webhook";
/// Headers of one webhook.
const HEADERS_MAX: usize = 64;

/// What is posted to the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxPost {
    /// What sort of thing it is.
    pub kind: Option<EventKind>,
    /// What it can be found by.
    pub attributes: Attributes,
    /// Who gets it: what goes to one comes in order, where the destination keeps one.
    pub order: Option<DedupKey>,
    /// What is sent beside the body.
    pub headers: HeaderMap,
    /// What is sent; of a message what was written.
    pub body: Bytes,
}

/// Why something cannot be posted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboxPostError {
    /// `type` is none.
    #[error("type: {0}")]
    Kind(#[from] ParseEventKindError),
    /// A header cannot be sent.
    #[error("headers: `{0}` cannot be set here: {1}")]
    Header(String, &'static str),
    /// There are too many.
    #[error("headers: there are more than {HEADERS_MAX}")]
    TooManyHeaders,
}

impl OutboxPost {
    /// A message as it was written and as it is meant.
    pub fn message(spec: &MessageSpec, message: &Message) -> Self {
        let mut attributes = Attributes::default();
        attributes.push(AttributeName::Phone, message.to.as_str());
        let answered = message.reply_to.as_ref().map(|reply| &reply.message_id);
        attributes.push_some(AttributeName::MessageId, answered);
        if let MessageContent::Reaction(reaction) = &message.content {
            attributes.push(AttributeName::MessageId, &reaction.message_id);
        }
        Self {
            kind: EventKind::new(&format!("{MESSAGE_KIND_PREFIX}{}", message.kind().as_str())),
            attributes,
            order: DedupKey::new(message.to.as_str()),
            headers: of_json(),
            // Texts, numbers and lists of them always become JSON.
            body: serde_json::to_vec(spec).unwrap_or_default().into(),
        }
    }

    /// A webhook: any JSON.
    pub fn webhook(
        kind: Option<&str>,
        headers: &BTreeMap<String, String>,
        body: Bytes,
    ) -> Result<Self, OutboxPostError> {
        let kind = EventKind::try_from(kind.unwrap_or(WEBHOOK).to_owned())?;
        if headers.len() > HEADERS_MAX {
            return Err(OutboxPostError::TooManyHeaders);
        }
        let mut map = of_json();
        for (name, value) in headers {
            let invalid = |why| OutboxPostError::Header(name.clone(), why);
            let name: HeaderName = name.parse().map_err(|_| invalid("the name is not valid"))?;
            if RESERVED.contains(&name.as_str()) || map.contains_key(&name) {
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
            order: None,
            headers: map,
            body,
        })
    }
}

fn of_json() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_by_whom_it_goes_to_and_what_it_answers() {
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
        for (written, kind, attributes) in cases {
            let spec: MessageSpec = serde_json::from_str(written).unwrap();
            let post = OutboxPost::message(&spec, &spec.clone().build().unwrap());
            assert_eq!(post.kind.unwrap().as_str(), kind);
            assert_eq!(post.attributes.to_json(), attributes);
            assert_eq!(serde_json::from_slice::<MessageSpec>(&post.body).unwrap(), spec);
        }
    }

    #[test]
    fn a_webhook_has_only_headers_that_are_sent() {
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
