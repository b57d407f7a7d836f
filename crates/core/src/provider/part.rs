//! What a provider's rules find in a request.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use crate::{
    attribute::{Attributes, EventKind},
    key::DedupKey,
};

/// What a verified request is.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedRequest {
    /// A question that is answered at once and kept nowhere.
    Handshake(ProviderReply),
    /// The events in it, in their order. None at all is fine: there is nothing to keep.
    Events(Vec<EventPart>),
}

impl ParsedRequest {
    /// One event: the request as it is.
    pub fn one(part: EventPart) -> Self {
        Self::Events(vec![part])
    }
}

/// One event of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPart {
    /// Its body; `None` is the body of the request, byte for byte.
    pub body: Option<Bytes>,
    /// What kind of event it is, in the provider's words.
    pub kind: Option<EventKind>,
    /// What makes it the same as another.
    pub key: EventKey,
    /// Events with the same one belong in one order.
    pub order: Option<DedupKey>,
    /// What it can be found by.
    pub attributes: Attributes,
    /// It is kept and goes nowhere: it only tells that the provider can reach us.
    pub is_ping: bool,
}

/// How an event is told apart from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EventKey {
    /// By the rules of the source, or the usual ones.
    #[default]
    Rules,
    /// By this key; the text says where it comes from, for people.
    Known(DedupKey, &'static str),
    /// By the hash of its body, for this long: equal bytes later are another event.
    ContentHash(Duration),
    /// Not at all.
    None,
}

impl EventKey {
    /// The key, or none if there is nothing to make it of.
    pub fn known(key: Option<DedupKey>, from: &'static str) -> Self {
        key.map_or(Self::None, |key| Self::Known(key, from))
    }
}

/// An answer of its own for a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderReply {
    /// The status.
    pub status: StatusCode,
    /// The type of the body; none for an empty one.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: Bytes,
}

impl ProviderReply {
    /// Nothing but a status.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, content_type: None, body: Bytes::new() }
    }

    /// 200 with a text, exactly.
    pub fn text(body: impl Into<Bytes>) -> Self {
        let content_type = Some("text/plain; charset=utf-8");
        Self { status: StatusCode::OK, content_type, body: body.into() }
    }

    /// 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        let content_type = Some("application/json");
        Self { status: StatusCode::OK, content_type, body: body.into() }
    }
}

/// A realistic event to send for a test.
///
/// Its texts may hold `{{id}}` (letters and digits, another one
/// in every event), `{{number}}` (the same in digits, without a zero at
/// the beginning), `{{uuid}}`, `{{phone}}` (digits of a mobile
/// number), `{{now}}` (seconds since 1970), `{{now_ms}}` and `{{now_iso}}`.
#[derive(Clone, Copy, Debug)]
pub struct SampleEvent {
    /// The kind of event, as the preset names it.
    pub kind: &'static str,
    /// Headers beside the signature.
    pub headers: &'static [(&'static str, &'static str)],
    /// What is added to the path of the source, and the query.
    pub target: &'static str,
    /// The body.
    pub body: &'static str,
}
