//! Finds out why a signature does not match, by trying common mistakes one after the other.
//!
//! Only for `surehook verify`, where the operator has the secret. Incoming requests never use it.

mod json;

use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use http::{HeaderMap, HeaderValue};
use surehook_types::{secret::Secret, time::Timestamp};

use super::{Verifier, VerifySpecError};
use crate::request::IncomingRequest;

/// Builds a verifier with the given secrets.
pub type VerifierFactory<'b> = dyn Fn(Vec<Secret>) -> Result<Verifier, VerifySpecError> + 'b;

/// A change to the request or the secrets that would explain the mismatch.
#[derive(Clone, Default)]
struct RequestVariant {
    description: String,
    secrets: Option<Vec<Secret>>,
    body: Option<Bytes>,
    headers: Option<HeaderMap>,
    origin: Option<String>,
    path: Option<String>,
    drops_query: bool,
}

/// Describes the common mistake that explains why `request` is refused, if there is one.
pub fn find_cause(
    build: &VerifierFactory<'_>,
    secrets: &[Secret],
    request: &IncomingRequest<'_>,
    now: Timestamp,
) -> Option<String> {
    let matches = |variant: &RequestVariant, at: Timestamp| {
        let secrets = variant.secrets.clone().unwrap_or_else(|| secrets.to_vec());
        let Ok(verifier) = build(secrets) else { return false };
        let changed = IncomingRequest {
            body: variant.body.as_deref().unwrap_or(request.body),
            headers: variant.headers.as_ref().unwrap_or(request.headers),
            origin: variant.origin.as_deref().or(request.origin),
            path: variant.path.as_deref().unwrap_or(request.path),
            query: request.query.filter(|_| !variant.drops_query),
            ..*request
        };
        verifier.verify(&changed, at).is_ok()
    };
    let mut variants = vec![RequestVariant::default()];
    variants.extend(secret_variants(secrets));
    variants.extend(body_variants(request.body));
    variants.extend(signature_variants(request.headers));
    variants.extend(url_variants(request));
    let mut times = vec![now];
    times.extend(find_timestamps(request));
    for at in times {
        for variant in &variants {
            if matches(variant, at) {
                return Some(describe(variant, at, now));
            }
        }
    }
    None
}

fn describe(variant: &RequestVariant, at: Timestamp, now: Timestamp) -> String {
    let old = (at != now).then(|| {
        let (difference, direction) =
            if at < now { (now.since(at), "old") } else { (at.since(now), "ahead") };
        format!(
            "it was signed at {at}, {} s {direction}: compare the clocks, or pass --now",
            difference.as_secs()
        )
    });
    match (variant.description.as_str(), old) {
        ("", Some(old)) => format!("the signature matches, but {old}"),
        (description, Some(old)) => format!("the signature matches {description}; also, {old}"),
        (description, None) => format!("the signature matches {description}"),
    }
}

/// The secret was copied with extra or missing characters, or in another encoding.
fn secret_variants(secrets: &[Secret]) -> Vec<RequestVariant> {
    let text = |secret: &Secret| std::str::from_utf8(secret.expose()).ok().map(str::to_owned);
    let each = |description: &str, change: &dyn Fn(&str) -> Option<Vec<u8>>| {
        let changed: Vec<Secret> =
            secrets.iter().filter_map(|secret| change(&text(secret)?).map(Secret::new)).collect();
        (!changed.is_empty()).then(|| RequestVariant {
            description: description.to_owned(),
            secrets: Some(changed),
            ..RequestVariant::default()
        })
    };
    let bare = |secret: &str| secret.split_once('_').map_or(secret, |(_, rest)| rest).to_owned();
    let base64 = |text: &str| {
        let text = text.trim().trim_end_matches('=');
        BASE64_NOPAD.decode(text.as_bytes()).or_else(|_| BASE64URL_NOPAD.decode(text.as_bytes()))
    };
    let tries: [Option<RequestVariant>; 8] = [
        each("the secret without the spaces or the newline around it", &|secret| {
            (secret.trim() != secret).then(|| secret.trim().into())
        }),
        each(
            "the secret with a newline at its end: the other side read it from a file",
            &|secret| Some(format!("{secret}\n").into()),
        ),
        each("the secret without the quotes around it", &|secret| {
            let bare = secret.trim_matches(['"', '\'']);
            (bare != secret).then(|| bare.into())
        }),
        each("the secret decoded from base64", &|secret| base64(secret).ok()),
        each("the secret decoded from hex", &|secret| {
            HEXLOWER_PERMISSIVE.decode(secret.trim().as_bytes()).ok()
        }),
        each("the secret encoded as base64", &|secret| {
            Some(BASE64.encode(secret.as_bytes()).into())
        }),
        each("the secret without the prefix before its `_`", &|secret| {
            secret.contains('_').then(|| bare(secret).into())
        }),
        each("the secret without the prefix before its `_`, decoded from base64", &|secret| {
            secret.contains('_').then(|| base64(&bare(secret)).ok()).flatten()
        }),
    ];
    tries.into_iter().flatten().collect()
}

/// The body differs from the signed bytes.
fn body_variants(body: &[u8]) -> Vec<RequestVariant> {
    let variant = |description: &str, body: Vec<u8>| RequestVariant {
        description: description.to_owned(),
        body: Some(body.into()),
        ..RequestVariant::default()
    };
    let mut variants = vec![
        variant("the body without the spaces or the newline around it: something added them", {
            body.trim_ascii().to_vec()
        }),
        variant("the body with a newline at its end: something cut it off", {
            [body, b"\n"].concat()
        }),
        variant("an empty body: the body got lost before it was signed", Vec::new()),
    ];
    if let Ok(text) = std::str::from_utf8(body) {
        variants.push(variant("the body with plain newlines: something made them CRLF", {
            text.replace("\r\n", "\n").into()
        }));
        variants.push(variant("the body with CRLF: something changed its newlines", {
            text.replace("\r\n", "\n").replace('\n', "\r\n").into()
        }));
    }
    for (how, text) in json::spellings(body) {
        let description = format!(
            "the body parsed and serialized again ({how}): sign and forward the exact bytes that \
             were received"
        );
        variants.push(variant(&description, text.into()));
    }
    variants.retain(|variant| variant.body.as_deref() != Some(body));
    variants
}

/// The signature is in another encoding or has another prefix than the scheme expects.
fn signature_variants(headers: &HeaderMap) -> Vec<RequestVariant> {
    let mut variants = Vec::new();
    for (name, value) in headers {
        let Ok(text) = value.to_str() else { continue };
        let (prefix, bare) = split_prefix(text);
        let hex = HEXLOWER_PERMISSIVE.decode(bare.as_bytes()).ok().filter(|bytes| is_digest(bytes));
        let base64 = BASE64.decode(bare.as_bytes()).ok().filter(|bytes| is_digest(bytes));
        let mut tries = Vec::new();
        if let Some(bytes) = &hex {
            tries.push((
                "in base64; it was sent in hex",
                format!("{prefix}{}", BASE64.encode(bytes)),
            ));
            if prefix.is_empty() {
                tries.push(("with the prefix `sha256=`", format!("sha256={bare}")));
            }
        }
        if let Some(bytes) = &base64 {
            tries.push((
                "in hex; it was sent in base64",
                format!("{prefix}{}", HEXLOWER.encode(bytes)),
            ));
        }
        if !prefix.is_empty() && (hex.is_some() || base64.is_some()) {
            tries.push(("without its prefix", bare.to_owned()));
        }
        if text.trim_matches(['"', '\'', ' ']) != text {
            tries.push(("without quotes", text.trim_matches(['"', '\'', ' ']).to_owned()));
        }
        for (change, text) in tries {
            let Ok(value) = HeaderValue::from_str(&text) else { continue };
            let mut changed = headers.clone();
            changed.insert(name.clone(), value);
            let description = format!("as `{name}` {change}");
            variants.push(RequestVariant {
                description,
                headers: Some(changed),
                ..RequestVariant::default()
            });
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
fn url_variants(request: &IncomingRequest<'_>) -> Vec<RequestVariant> {
    let mut variants = Vec::new();
    let mut add = |description: &str, change: &dyn Fn(&mut RequestVariant)| {
        let mut variant =
            RequestVariant { description: description.to_owned(), ..RequestVariant::default() };
        change(&mut variant);
        variants.push(variant);
    };
    if let Some(origin) = request.origin {
        let other = match origin.split_once("://") {
            Some(("https", rest)) => Some(("http", format!("http://{rest}"))),
            Some(("http", rest)) => Some(("https", format!("https://{rest}"))),
            _ => None,
        };
        if let Some((scheme, origin)) = other {
            let description = format!("a URL that begins with {scheme}: set `public_url`");
            add(&description, &|variant| variant.origin = Some(origin.clone()));
        }
    }
    add("the URL with a trailing slash", &|variant| {
        variant.path = Some(format!("{}/", request.path));
    });
    if let Some(bare) = request.path.strip_suffix('/') {
        add("the URL without the trailing slash", &|variant| {
            variant.path = Some(bare.to_owned());
        });
    }
    if request.query.is_some() {
        add("the URL without its query", &|variant| variant.drops_query = true);
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
