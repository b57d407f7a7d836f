//! Whole calls for the tests of presets: address, headers and body as a provider would send them.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ParsedRequest, ProviderReply, find};
use crate::{
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::Timestamp,
    verify::{RequestSignature, SignError, Verifier, VerifyError},
};

/// A call of a provider.
#[derive(Clone, Debug)]
pub(super) struct Call {
    preset: &'static str,
    secrets: Vec<Vec<u8>>,
    /// The address that the provider signed.
    pub(super) url: String,
    /// Whether the source knows where it is reached.
    pub(super) knows_origin: bool,
    headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    now_millis: i64,
}

impl Call {
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

    /// The same with secrets in place of the one.
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

    /// Adds a header, or puts it in the place of the one of that name.
    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.into().into_bytes()));
        self
    }

    /// Adds one more header of a name.
    pub(super) fn again(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    /// Signed by the preset itself.
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

    pub(super) fn with<T>(&self, look: impl FnOnce(&IncomingRequest<'_>) -> T) -> T {
        let headers = self.header_map().unwrap();
        let (origin, target) = self.url.split_once("/in/").unwrap();
        let (target, query) = match target.split_once('?') {
            Some((target, query)) => (target, Some(query)),
            None => (target, None),
        };
        let (source, path) = target.split_at(target.find('/').unwrap_or(target.len()));
        let origin = Some(origin).filter(|_| self.knows_origin);
        look(&IncomingRequest { source, path, query, headers: &headers, body: &self.body, origin })
    }

    /// Which secret fits, or the word for why none does.
    pub(super) fn verify(&self) -> Result<usize, &'static str> {
        let Some(verifier) = self.verifier() else { return Err("secret") };
        let now = Timestamp::from_millis(self.now_millis);
        let verified = self.with(|request| verifier.verify(request, now));
        verified
            .map(|verified| verified.secret_index)
            .map_err(|refused| VerifyError::code(&refused))
    }

    pub(super) fn read(&self) -> ParsedRequest {
        self.with(|request| find(self.preset).unwrap().parse_request(request, None))
    }

    /// What the provider is told: status, type and text.
    pub(super) fn reply(&self) -> Option<(u16, Option<&'static str>, String)> {
        let reply = match self.read() {
            ParsedRequest::Handshake(reply) => Some(reply),
            ParsedRequest::Events(_) => {
                self.with(|request| find(self.preset).unwrap().success_reply(request))
            }
        };
        reply.map(|ProviderReply { status, content_type, body }| {
            (status.as_u16(), content_type, String::from_utf8(body.to_vec()).unwrap())
        })
    }

    /// Changes each bit of the body, of these headers and of the secret, one at a time: all are
    /// refused, except where a letter of a hexadecimal number only changed its case.
    pub(super) fn assert_every_bit_counts(&self, headers: &[&str]) {
        assert_eq!(self.verify(), Ok(0), "{self:?}");
        for at in 0..self.body.len() * 8 {
            let mut call = self.clone();
            flip(&mut call.body, at);
            assert!(call.verify().is_err(), "bit {at} of the body: {call:?}");
        }
        for at in 0..self.secrets[0].len() * 8 {
            let mut call = self.clone();
            flip(&mut call.secrets[0], at);
            let is_same =
                is_hex(&self.secrets[0]) && self.secrets[0].eq_ignore_ascii_case(&call.secrets[0]);
            assert!(is_same || call.verify().is_err(), "bit {at} of the secret: {call:?}");
        }
        for name in headers {
            let place = self.headers.iter().position(|(other, _)| other == name).unwrap();
            for at in 0..self.headers[place].1.len() * 8 {
                let mut call = self.clone();
                flip(&mut call.headers[place].1, at);
                let (before, after) = (&self.headers[place].1, &call.headers[place].1);
                let is_same = is_hex(before) && before.eq_ignore_ascii_case(after);
                let is_refused = call.header_map().is_none() || call.verify().is_err();
                assert!(is_same || is_refused, "bit {at} of {name}: {call:?}");
            }
        }
    }
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

fn flip(bytes: &mut [u8], at: usize) {
    bytes[at / 8] ^= 1 << (at % 8);
}
