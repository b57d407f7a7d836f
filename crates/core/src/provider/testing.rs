//! What the tests of presets share.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{EventKey, EventPart, ParsedRequest, find};
use crate::{
    request::IncomingRequest,
    secret::Secret,
    time::Timestamp,
    verify::{VerifiedRequest, VerifyError},
};

pub(super) type Headers<'t> = &'t [(&'t str, &'t str)];

pub(super) fn headers(pairs: Headers<'_>) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

pub(super) fn incoming<'r>(headers: &'r HeaderMap, body: &'r str) -> IncomingRequest<'r> {
    IncomingRequest {
        source: "s",
        path: "",
        query: None,
        headers,
        body: body.as_bytes(),
        origin: None,
    }
}

/// A request as a preset reads it.
pub(super) fn read(preset: &str, pairs: Headers<'_>, body: &str) -> ParsedRequest {
    let secret = Secret::new("secret");
    find(preset).unwrap().parse_request(&incoming(&headers(pairs), body), Some(&secret))
}

/// All events of a request.
pub(super) fn parts(preset: &str, pairs: Headers<'_>, body: &str) -> Vec<EventPart> {
    match read(preset, pairs, body) {
        ParsedRequest::Events(parts) => parts,
        ParsedRequest::Handshake(reply) => panic!("{preset} reads {body} as {reply:?}"),
    }
}

/// The only event of a request.
pub(super) fn part(preset: &str, pairs: Headers<'_>, body: &str) -> EventPart {
    match read(preset, pairs, body) {
        ParsedRequest::Events(mut parts) if parts.len() == 1 => parts.remove(0),
        other @ (ParsedRequest::Events(_) | ParsedRequest::Handshake(_)) => {
            panic!("{preset} reads {body} as {other:?}")
        }
    }
}

/// Kind, key and ordering key of the only event of a request, `-` for what is not there.
pub(super) fn told(preset: &str, pairs: Headers<'_>, body: &str) -> [String; 3] {
    told_of(&part(preset, pairs, body))
}

/// The same of an event.
pub(super) fn told_of(part: &EventPart) -> [String; 3] {
    let key = match &part.key {
        EventKey::Known(key, _) => key.as_str().to_owned(),
        EventKey::Rules => "rules".to_owned(),
        EventKey::ContentHash(window) => format!("content {}s", window.as_secs()),
        EventKey::None => "-".to_owned(),
    };
    let kind = part.kind.as_ref().map_or("-", |kind| kind.as_str()).to_owned();
    [kind, key, part.order.as_ref().map_or("-", |order| order.as_str()).to_owned()]
}

/// The attributes of the only event of a request, `name=value` each.
pub(super) fn about(preset: &str, pairs: Headers<'_>, body: &str) -> Vec<String> {
    let part = part(preset, pairs, body);
    part.attributes.iter().map(|(name, value)| format!("{}={value}", name.as_str())).collect()
}

/// Whether a preset lets a request in, `now` in seconds.
pub(super) fn verify(
    preset: &str,
    secrets: &[&str],
    pairs: Headers<'_>,
    body: &str,
    now: i64,
) -> Result<VerifiedRequest, VerifyError> {
    let secrets = secrets.iter().map(|secret| Secret::new(*secret)).collect();
    let verifier = find(preset).unwrap().verifier(secrets).unwrap();
    verifier.verify(&incoming(&headers(pairs), body), Timestamp::from_millis(now * 1000))
}
