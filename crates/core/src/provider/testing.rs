//! What the tests of presets share.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Part, PartKey, Reading, find};
use crate::{
    request::Incoming,
    secret::Secret,
    time::Timestamp,
    verify::{Refused, Verified},
};

pub(super) type Headers<'t> = &'t [(&'t str, &'t str)];

pub(super) fn headers(pairs: Headers<'_>) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

pub(super) fn incoming<'r>(headers: &'r HeaderMap, body: &'r str) -> Incoming<'r> {
    Incoming { source: "s", path: "", query: None, headers, body: body.as_bytes(), origin: None }
}

/// A request as a preset reads it.
pub(super) fn read(preset: &str, pairs: Headers<'_>, body: &str) -> Reading {
    let secret = Secret::new("secret");
    find(preset).unwrap().read(&incoming(&headers(pairs), body), Some(&secret))
}

/// All events of a request.
pub(super) fn parts(preset: &str, pairs: Headers<'_>, body: &str) -> Vec<Part> {
    match read(preset, pairs, body) {
        Reading::Events(parts) => parts,
        Reading::Greeting(reply) => panic!("{preset} reads {body} as {reply:?}"),
    }
}

/// The only event of a request.
pub(super) fn part(preset: &str, pairs: Headers<'_>, body: &str) -> Part {
    match read(preset, pairs, body) {
        Reading::Events(mut parts) if parts.len() == 1 => parts.remove(0),
        other @ (Reading::Events(_) | Reading::Greeting(_)) => {
            panic!("{preset} reads {body} as {other:?}")
        }
    }
}

/// Kind, key and ordering key of the only event of a request, `-` for what is not there.
pub(super) fn told(preset: &str, pairs: Headers<'_>, body: &str) -> [String; 3] {
    told_of(&part(preset, pairs, body))
}

/// The same of an event.
pub(super) fn told_of(part: &Part) -> [String; 3] {
    let key = match &part.key {
        PartKey::Known(key, _) => key.as_str().to_owned(),
        PartKey::Rules => "rules".to_owned(),
        PartKey::Content(window) => format!("content {}s", window.as_secs()),
        PartKey::None => "-".to_owned(),
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
) -> Result<Verified, Refused> {
    let secrets = secrets.iter().map(|secret| Secret::new(*secret)).collect();
    let verifier = find(preset).unwrap().verifier(secrets).unwrap();
    verifier.verify(&incoming(&headers(pairs), body), Timestamp::from_millis(now * 1000))
}
