//! Helpers for the tests of presets.

use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_types::{secret::Secret, time::Timestamp};

use super::{EventKey, EventPart, ParsedRequest, ProviderReply, find};
use crate::{
    request::{IncomingRequest, OutgoingRequest},
    verify::{RequestSignature, SignError, VerifiedRequest, Verifier, VerifyError},
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

/// Parses a request with a preset.
pub(super) fn parse(preset: &str, pairs: Headers<'_>, body: &str) -> ParsedRequest {
    let secret = Secret::new("secret");
    find(preset).unwrap().parse_request(&incoming(&headers(pairs), body), Some(&secret))
}

/// All events of a request.
pub(super) fn parts(preset: &str, pairs: Headers<'_>, body: &str) -> Vec<EventPart> {
    match parse(preset, pairs, body) {
        ParsedRequest::Events(parts) => parts,
        ParsedRequest::Handshake(reply) => panic!("{preset} reads {body} as {reply:?}"),
    }
}

/// The only event of a request.
pub(super) fn part(preset: &str, pairs: Headers<'_>, body: &str) -> EventPart {
    match parse(preset, pairs, body) {
        ParsedRequest::Events(mut parts) if parts.len() == 1 => parts.remove(0),
        other @ (ParsedRequest::Events(_) | ParsedRequest::Handshake(_)) => {
            panic!("{preset} reads {body} as {other:?}")
        }
    }
}

/// Kind, key and ordering key of the only event of a request; `-` if absent.
pub(super) fn summary(preset: &str, pairs: Headers<'_>, body: &str) -> [String; 3] {
    let mut part = part(preset, pairs, body);
    let rules = crate::key::KeyRules::of_preset(find(preset).unwrap().key_rules).unwrap();
    if part.key == EventKey::Rules
        && !rules.rules().is_empty()
        && let Ok(found) = rules.extract(&headers(pairs), body.as_bytes())
    {
        part.key = EventKey::known_or_none(found.map(|found| found.key), "");
    }
    event_summary(&part)
}

/// Compares the only event of each request in a table, whose first row names the columns.
pub(super) fn assert_events(preset: &str, pairs: Headers<'_>, table: &str) {
    for row in rows(table).skip(1) {
        let [case, body, expected @ ..] = &row[..] else { panic!("a short row: {row:?}") };
        assert_eq!(summary(preset, pairs, body), expected, "case: {case}");
    }
}

/// The rows of a table, split into columns at each `|`.
pub(super) fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.trim().lines().map(|row| row.split('|').map(str::trim).collect())
}

/// Kind, key and ordering key of an event; `-` if absent.
pub(super) fn event_summary(part: &EventPart) -> [String; 3] {
    let key = match &part.key {
        EventKey::Known(key, _) | EventKey::Unsigned(Some(key), _) => key.as_str().to_owned(),
        EventKey::Rules => "rules".to_owned(),
        EventKey::ContentHash(window) => format!("content {}s", window.as_secs()),
        EventKey::None | EventKey::Unsigned(None, _) => "-".to_owned(),
    };
    let kind = part.kind.as_ref().map_or("-", |kind| kind.as_str()).to_owned();
    [kind, key, part.ordering_key.as_ref().map_or("-", |key| key.as_str()).to_owned()]
}

/// The attributes of the only event of a request, `name=value` each.
pub(super) fn attribute_pairs(preset: &str, pairs: Headers<'_>, body: &str) -> Vec<String> {
    let part = part(preset, pairs, body);
    part.attributes.iter().map(|(name, value)| format!("{}={value}", name.as_str())).collect()
}

/// Verifies a request with a preset; `now` in seconds.
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

/// A complete request of a provider: URL, headers and body.
#[derive(Clone, Debug)]
pub(super) struct TestCall {
    preset: &'static str,
    secrets: Vec<Vec<u8>>,
    /// The URL that the provider signed.
    pub(super) url: String,
    /// Whether the source knows its public URL.
    pub(super) knows_origin: bool,
    headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    now_millis: i64,
}

impl TestCall {
    pub(super) fn new(preset: &'static str, secret: &str) -> Self {
        Self {
            preset,
            secrets: vec![secret.into()],
            url: "https://gw.test/in/s".to_owned(),
            knows_origin: true,
            headers: Vec::new(),
            body: Vec::new(),
            now_millis: 0,
        }
    }

    /// Replaces the secrets.
    pub(super) fn secrets(mut self, secrets: &[&str]) -> Self {
        self.secrets = secrets.iter().map(|secret| (*secret).into()).collect();
        self
    }

    pub(super) fn at(mut self, now_millis: i64) -> Self {
        self.now_millis = now_millis;
        self
    }

    pub(super) fn url(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    pub(super) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a header.
    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.into().into_bytes()));
        self
    }

    /// Adds another header of this name.
    pub(super) fn add_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    /// Signs with the preset itself.
    pub(super) fn signed(self) -> Self {
        let signed = self.signature().unwrap();
        signed
            .headers
            .into_iter()
            .fold(self, |call, (name, value)| call.header(name.as_str(), value))
    }

    pub(super) fn signature(&self) -> Result<RequestSignature, SignError> {
        let headers = self.header_map().unwrap();
        let (url, body) = (self.url.as_str(), self.body.as_slice());
        let outgoing = OutgoingRequest { id: "msg_1", url, headers: &headers, body };
        self.verifier().unwrap().sign(&outgoing, Timestamp::from_millis(self.now_millis))
    }

    pub(super) fn verifier(&self) -> Option<Verifier> {
        let secrets = self.secrets.iter().map(|secret| Secret::new(secret.as_slice())).collect();
        find(self.preset).unwrap().verifier(secrets).ok()
    }

    fn header_map(&self) -> Option<HeaderMap> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value).ok()?);
        }
        Some(map)
    }

    pub(super) fn with_request<T>(&self, read: impl FnOnce(&IncomingRequest<'_>) -> T) -> T {
        let headers = self.header_map().unwrap();
        let (origin, target) = self.url.split_once("/in/").unwrap();
        let (target, query) = match target.split_once('?') {
            Some((target, query)) => (target, Some(query)),
            None => (target, None),
        };
        let (source, path) = target.split_at(target.find('/').unwrap_or(target.len()));
        let origin = Some(origin).filter(|_| self.knows_origin);
        read(&IncomingRequest { source, path, query, headers: &headers, body: &self.body, origin })
    }

    /// The position of the matching secret, or the error code.
    pub(super) fn verify(&self) -> Result<usize, &'static str> {
        let Some(verifier) = self.verifier() else { return Err("secret") };
        let now = Timestamp::from_millis(self.now_millis);
        let verified = self.with_request(|request| verifier.verify(request, now));
        verified
            .map(|verified| verified.secret_index)
            .map_err(|refused| VerifyError::code(&refused))
    }

    pub(super) fn parse(&self) -> ParsedRequest {
        self.with_request(|request| find(self.preset).unwrap().parse_request(request, None))
    }

    /// The reply to the provider: status, content type and text.
    pub(super) fn reply(&self) -> Option<(u16, Option<&'static str>, String)> {
        let reply = match self.parse() {
            ParsedRequest::Handshake(reply) => Some(reply),
            ParsedRequest::Events(_) => {
                self.with_request(|request| find(self.preset).unwrap().success_reply(request))
            }
        };
        reply.map(|ProviderReply { status, content_type, body, .. }| {
            (status.as_u16(), content_type, String::from_utf8(body.to_vec()).unwrap())
        })
    }

    /// Flips each bit of the body, of these headers and of the secret, one at a time: every change must
    /// be refused, except a change of case in hexadecimal digits.
    pub(super) fn assert_every_bit_counts(&self, headers: &[&str]) {
        assert_eq!(self.verify(), Ok(0), "{self:?}");
        for bit in 0..self.body.len() * 8 {
            let mut call = self.clone();
            flip(&mut call.body, bit);
            assert!(call.verify().is_err(), "bit {bit} of the body: {call:?}");
        }
        for bit in 0..self.secrets[0].len() * 8 {
            let mut call = self.clone();
            flip(&mut call.secrets[0], bit);
            let is_same =
                is_hex(&self.secrets[0]) && self.secrets[0].eq_ignore_ascii_case(&call.secrets[0]);
            assert!(is_same || call.verify().is_err(), "bit {bit} of the secret: {call:?}");
        }
        for name in headers {
            let index = self.headers.iter().position(|(other, _)| other == name).unwrap();
            for bit in 0..self.headers[index].1.len() * 8 {
                let mut call = self.clone();
                flip(&mut call.headers[index].1, bit);
                let (before, after) = (&self.headers[index].1, &call.headers[index].1);
                let is_same = is_hex(before) && before.eq_ignore_ascii_case(after);
                let is_refused = call.header_map().is_none() || call.verify().is_err();
                assert!(is_same || is_refused, "bit {bit} of {name}: {call:?}");
            }
        }
    }
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}
