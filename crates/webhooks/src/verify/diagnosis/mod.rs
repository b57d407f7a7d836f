//! Finds out why a signature does not match, by trying common mistakes one after the other.
//!
//! Only for `surehook verify`, where the operator has the secret. Incoming requests never use it.

mod json;

pub use self::json::indent_json;

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use http::{HeaderMap, HeaderValue};
use surehook_types::{secret::Secret, time::Timestamp};

use super::{Verifier, VerifySpecError};
use crate::request::IncomingRequest;

/// Builds a verifier with the given secrets.
pub type VerifierFactory<'b> = dyn Fn(Vec<Secret>) -> Result<Verifier, VerifySpecError> + 'b;

/// The request and the secrets, with a change that would explain the mismatch.
#[derive(Clone)]
struct RequestVariant<'r> {
    /// Empty if nothing is changed.
    description: String,
    secrets: Vec<Secret>,
    headers: Cow<'r, HeaderMap>,
    body: Cow<'r, [u8]>,
    origin: Option<Cow<'r, str>>,
    path: Cow<'r, str>,
    query: Option<&'r str>,
}

impl RequestVariant<'_> {
    fn with(&self, description: impl Into<String>, change: impl FnOnce(&mut Self)) -> Self {
        let mut variant = Self { description: description.into(), ..self.clone() };
        change(&mut variant);
        variant
    }
}

/// Describes the common mistake that explains why `request` is refused, if there is one.
pub fn find_cause(
    build: &VerifierFactory<'_>,
    secrets: &[Secret],
    request: &IncomingRequest<'_>,
    now: Timestamp,
) -> Option<String> {
    let received = RequestVariant {
        description: String::new(),
        secrets: secrets.to_vec(),
        headers: Cow::Borrowed(request.headers),
        body: request.body.into(),
        origin: request.origin.map(Cow::from),
        path: request.path.into(),
        query: request.query,
    };
    let mut variants = vec![received.clone()];
    variants.extend(secret_variants(&received));
    variants.extend(body_variants(&received));
    variants.extend(signature_variants(&received));
    variants.extend(url_variants(&received));
    let matches = |variant: &RequestVariant<'_>, at: Timestamp| {
        let Ok(verifier) = build(variant.secrets.clone()) else { return false };
        let changed = IncomingRequest {
            source: request.source,
            path: &variant.path,
            query: variant.query,
            headers: &variant.headers,
            body: &variant.body,
            origin: variant.origin.as_deref(),
        };
        verifier.verify(&changed, at).is_ok()
    };
    [now].into_iter().chain(find_timestamps(request)).find_map(|at| {
        let variant = variants.iter().find(|variant| matches(variant, at))?;
        Some(describe(&variant.description, at, now))
    })
}

fn describe(description: &str, at: Timestamp, now: Timestamp) -> String {
    let old = (at != now).then(|| {
        let (difference, direction) =
            if at < now { (now.since(at), "old") } else { (at.since(now), "ahead") };
        format!(
            "it was signed at {at}, {} s {direction}: compare the clocks, or pass --now",
            difference.as_secs()
        )
    });
    match (description, old) {
        ("", Some(old)) => format!("the signature matches, but {old}"),
        (description, Some(old)) => format!("the signature matches {description}; also, {old}"),
        (description, None) => format!("the signature matches {description}"),
    }
}

/// The secret was copied with extra or missing characters, or in another encoding.
fn secret_variants<'r>(received: &RequestVariant<'r>) -> Vec<RequestVariant<'r>> {
    let bare = |secret: &str| secret.split_once('_').map(|(_, rest)| rest.to_owned());
    let base64 = |text: &str| {
        let text = text.trim().trim_end_matches('=').as_bytes();
        BASE64_NOPAD.decode(text).or_else(|_| BASE64URL_NOPAD.decode(text)).ok()
    };
    type Change<'c> = &'c dyn Fn(&str) -> Option<Vec<u8>>;
    let changes: [(&str, Change<'_>); 8] = [
        ("the secret without the spaces or the newline around it", &|secret| {
            (secret.trim() != secret).then(|| secret.trim().into())
        }),
        ("the secret with a newline at its end: the other side read it from a file", &|secret| {
            Some(format!("{secret}\n").into())
        }),
        ("the secret without the quotes around it", &|secret| {
            let bare = secret.trim_matches(['"', '\'']);
            (bare != secret).then(|| bare.into())
        }),
        ("the secret decoded from base64", &base64),
        ("the secret decoded from hex", &|secret| {
            HEXLOWER_PERMISSIVE.decode(secret.trim().as_bytes()).ok()
        }),
        ("the secret encoded as base64", &|secret| Some(BASE64.encode(secret.as_bytes()).into())),
        ("the secret without the prefix before its `_`", &|secret| bare(secret).map(Into::into)),
        ("the secret without the prefix before its `_`, decoded from base64", &|secret| {
            base64(&bare(secret)?)
        }),
    ];
    let variant = |(description, change): (&str, Change<'_>)| {
        let change = |secret: &Secret| change(std::str::from_utf8(secret.expose()).ok()?);
        let secrets: Vec<_> = received.secrets.iter().filter_map(change).map(Secret::new).collect();
        let is_changed = !secrets.is_empty();
        is_changed.then(|| received.with(description, |variant| variant.secrets = secrets))
    };
    changes.into_iter().filter_map(variant).collect()
}

/// The body differs from the signed bytes.
fn body_variants<'r>(received: &RequestVariant<'r>) -> Vec<RequestVariant<'r>> {
    let body = &*received.body;
    let mut variants = Vec::new();
    let mut add = |description: &str, changed: Vec<u8>| {
        if changed != body {
            variants.push(received.with(description, |variant| variant.body = changed.into()));
        }
    };
    add(
        "the body without the spaces or the newline around it: something added them",
        body.trim_ascii().to_vec(),
    );
    add("the body with a newline at its end: something cut it off", [body, b"\n"].concat());
    add("an empty body: the body got lost before it was signed", Vec::new());
    if let Ok(text) = std::str::from_utf8(body) {
        let plain = text.replace("\r\n", "\n");
        let crlf = plain.replace('\n', "\r\n");
        add("the body with plain newlines: something made them CRLF", plain.into());
        add("the body with CRLF: something changed its newlines", crlf.into());
    }
    for (how, text) in json::spellings(body) {
        let description = format!(
            "the body parsed and serialized again ({how}): sign and forward the exact bytes that \
             were received"
        );
        add(&description, text.into());
    }
    variants
}

/// The signature is in another encoding or has another prefix than the scheme expects.
fn signature_variants<'r>(received: &RequestVariant<'r>) -> Vec<RequestVariant<'r>> {
    let mut variants = Vec::new();
    for (name, value) in &*received.headers {
        let Ok(text) = value.to_str() else { continue };
        let mut add = |change: &str, text: String| {
            let Ok(value) = HeaderValue::from_str(&text) else { return };
            variants.push(received.with(format!("as `{name}` {change}"), |variant| {
                variant.headers.to_mut().insert(name.clone(), value);
            }));
        };
        let (prefix, bare) = split_prefix(text);
        let hex = HEXLOWER_PERMISSIVE.decode(bare.as_bytes()).ok().filter(|bytes| is_digest(bytes));
        let base64 = BASE64.decode(bare.as_bytes()).ok().filter(|bytes| is_digest(bytes));
        if let Some(bytes) = &hex {
            add("in base64; it was sent in hex", format!("{prefix}{}", BASE64.encode(bytes)));
            if prefix.is_empty() {
                add("with the prefix `sha256=`", format!("sha256={bare}"));
            }
        }
        if let Some(bytes) = &base64 {
            add("in hex; it was sent in base64", format!("{prefix}{}", HEXLOWER.encode(bytes)));
        }
        if !prefix.is_empty() && (hex.is_some() || base64.is_some()) {
            add("without its prefix", bare.to_owned());
        }
        let unquoted = text.trim_matches(['"', '\'', ' ']);
        if unquoted != text {
            add("without quotes", unquoted.to_owned());
        }
    }
    variants
}

/// Splits off a prefix such as `sha256=` or `v1,`.
fn split_prefix(text: &str) -> (&str, &str) {
    let end = text.find(['=', ',']).filter(|end| *end < 8 && *end + 1 < text.len());
    end.map_or(("", text), |end| text.split_at(end + 1))
}

/// Whether the length is that of SHA-1, SHA-256 or SHA-512.
fn is_digest(bytes: &[u8]) -> bool {
    matches!(bytes.len(), 20 | 32 | 64)
}

/// The sender called another URL than the configured one.
fn url_variants<'r>(received: &RequestVariant<'r>) -> Vec<RequestVariant<'r>> {
    let mut variants = Vec::new();
    let other_scheme = match received.origin.as_deref().and_then(|origin| origin.split_once("://"))
    {
        Some(("https", rest)) => Some(("http", rest)),
        Some(("http", rest)) => Some(("https", rest)),
        _ => None,
    };
    if let Some((scheme, rest)) = other_scheme {
        let description = format!("a URL that begins with {scheme}: set `public_url`");
        variants.push(received.with(description, |variant| {
            variant.origin = Some(format!("{scheme}://{rest}").into());
        }));
    }
    variants.push(received.with("the URL with a trailing slash", |variant| {
        variant.path.to_mut().push('/');
    }));
    if received.path.ends_with('/') {
        variants.push(received.with("the URL without the trailing slash", |variant| {
            variant.path.to_mut().pop();
        }));
    }
    if received.query.is_some() {
        variants.push(received.with("the URL without its query", |variant| variant.query = None));
    }
    variants
}

/// Timestamps in the headers or the body; the time of signing may be one of them.
fn find_timestamps(request: &IncomingRequest<'_>) -> Vec<Timestamp> {
    let mut times = Vec::new();
    let texts = request.headers.values().filter_map(|value| value.to_str().ok());
    let body = std::str::from_utf8(request.body).unwrap_or_default();
    for text in texts.chain([body]) {
        for digits in text.split(|letter: char| !letter.is_ascii_digit()) {
            let millis = match digits.len() {
                10 => digits.parse::<i64>().ok().map(|seconds| seconds * 1000),
                13 => digits.parse().ok(),
                _ => None,
            };
            let time = millis.map(Timestamp::from_millis);
            if let Some(time) = time.filter(|time| !times.contains(time) && times.len() < 16) {
                times.push(time);
            }
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        provider,
        request::OutgoingRequest,
        verify::{HmacSpec, SignatureEncoding, VerifySpec},
    };

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const SECRET: &str = "a secret of the sender";

    fn plain(secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Verifier::new(&VerifySpec::Hmac(Box::new(HmacSpec::new("x-sig"))), secrets)
    }

    /// The cause found when `signed` was signed with `with`, and `received` is verified with `ours`.
    fn cause(with: &str, ours: &str, signed: &str, received: &str) -> Option<String> {
        let headers = HeaderMap::new();
        let outgoing =
            OutgoingRequest { id: "", url: "", headers: &headers, body: signed.as_bytes() };
        let signature = plain(vec![Secret::new(with)]).unwrap().sign(&outgoing, NOW).unwrap();
        let (name, value) = &signature.headers[0];
        let headers = HeaderMap::from_iter([(name.clone(), value.parse().unwrap())]);
        find_cause(&plain, &[Secret::new(ours)], &incoming(&headers, received.as_bytes()), NOW)
    }

    fn incoming<'r>(headers: &'r HeaderMap, body: &'r [u8]) -> IncomingRequest<'r> {
        IncomingRequest { source: "s", path: "", query: None, headers, body, origin: None }
    }

    #[test]
    fn common_mistakes_are_recognized() {
        let encoded = BASE64.encode(SECRET.as_bytes());
        let prefixed = format!("whsec_{encoded}");
        let cases = [
            (SECRET, "a secret of the sender\n", "{}", "{}", "the spaces or the newline around it"),
            ("a secret of the sender\n", SECRET, "{}", "{}", "with a newline at its end"),
            (SECRET, "\"a secret of the sender\"", "{}", "{}", "quotes"),
            (SECRET, &encoded, "{}", "{}", "decoded from base64"),
            (SECRET, &prefixed, "{}", "{}", "before its `_`, decoded"),
            (&encoded, &prefixed, "{}", "{}", "before its `_`"),
            (SECRET, "612073656372657420 6f66", "{}", "{}", ""),
            (SECRET, SECRET, "{}", "{}\n", "the body without the spaces or the newline"),
            (SECRET, SECRET, "{}\n", "{}", "the body with a newline"),
            (SECRET, SECRET, "a\nb", "a\r\nb", "plain newlines"),
            (
                SECRET,
                SECRET,
                r#"{"a":1,"b":"x, y"}"#,
                r#"{ "a": 1, "b": "x, y" }"#,
                "without spaces",
            ),
            (SECRET, SECRET, r#"{"a": 1, "b": "x,y"}"#, r#"{"a":1,"b":"x,y"}"#, "after each comma"),
            (SECRET, SECRET, "{\"a\":\"\\u00e9\"}", r#"{"a":"é"}"#, "in ASCII"),
            (SECRET, "something else", "{}", "{}", ""),
        ];
        for (with, ours, signed, received, expected) in cases {
            let description = cause(with, ours, signed, received).unwrap_or_default();
            assert!(description.contains(expected), "case: {signed:?} {received:?}: {description}");
            assert_eq!(
                description.is_empty(),
                expected.is_empty(),
                "case: {signed:?}: {description}"
            );
            assert!(!description.contains("a secret of"), "{description}");
        }
    }

    #[test]
    fn stale_signature_is_reported_with_its_age() {
        let provider = provider::find("stripe").unwrap();
        let build = |secrets: Vec<Secret>| provider.verifier(secrets);
        let headers = HeaderMap::new();
        let outgoing = OutgoingRequest { id: "", url: "", headers: &headers, body: b"{}" };
        let signature = build(vec![Secret::new(SECRET)]).unwrap().sign(&outgoing, NOW).unwrap();
        let (name, value) = &signature.headers[0];
        let headers = HeaderMap::from_iter([(name.clone(), value.parse().unwrap())]);
        let later = Timestamp::from_millis(NOW.as_millis() + 7_200_000);

        let description =
            find_cause(&build, &[Secret::new(SECRET)], &incoming(&headers, b"{}"), later);

        assert!(
            description.as_ref().is_some_and(|description| description.contains("7200 s old")),
            "{description:?}"
        );
    }

    #[test]
    fn signature_in_another_encoding_is_recognized() {
        let base64 = |secrets: Vec<Secret>| {
            let spec = HmacSpec { encoding: SignatureEncoding::Base64, ..HmacSpec::new("x-sig") };
            Verifier::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
        };
        let headers = HeaderMap::new();
        let outgoing = OutgoingRequest { id: "", url: "", headers: &headers, body: b"{}" };
        let signature = plain(vec![Secret::new(SECRET)]).unwrap().sign(&outgoing, NOW).unwrap();
        let hex = &signature.headers[0].1;
        for value in [hex.clone(), format!("sha256={hex}")] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("x-sig"),
                value.parse().unwrap(),
            )]);
            let description =
                find_cause(&base64, &[Secret::new(SECRET)], &incoming(&headers, b"{}"), NOW);
            let description = description.unwrap_or_default();
            assert_eq!(
                description.contains("in base64"),
                !value.contains('='),
                "{value}: {description}"
            );
        }
    }
}
