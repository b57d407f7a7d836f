//! Why a signature does not fit: the mistakes that people make, tried one after the other.
//!
//! Only for whoever debugs with the secret at hand. The door never does this.

mod json;

use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use http::{HeaderMap, HeaderValue};

use super::{Verifier, VerifySpecError};
use crate::{request::IncomingRequest, secret::Secret, time::Timestamp};

/// Makes a verifier with these secrets.
pub type VerifierFactory<'b> = dyn Fn(Vec<Secret>) -> Result<Verifier, VerifySpecError> + 'b;

/// A request that would fit, and what was changed to get there.
#[derive(Clone, Default)]
struct Variant {
    said: String,
    secrets: Option<Vec<Secret>>,
    body: Option<Bytes>,
    headers: Option<HeaderMap>,
    origin: Option<String>,
    path: Option<String>,
    drops_query: bool,
}

/// Says which one common mistake explains that `request` is refused; nothing if none does.
pub fn find_cause(
    build: &VerifierFactory<'_>,
    secrets: &[Secret],
    request: &IncomingRequest<'_>,
    now: Timestamp,
) -> Option<String> {
    let fits = |variant: &Variant, at: Timestamp| {
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
    let mut variants = vec![Variant::default()];
    variants.extend(of_secrets(secrets));
    variants.extend(of_body(request.body));
    variants.extend(of_headers(request.headers));
    variants.extend(of_address(request));
    let mut times = vec![now];
    times.extend(times_in(request));
    for at in times {
        for variant in &variants {
            if fits(variant, at) {
                return Some(tell(variant, at, now));
            }
        }
    }
    None
}

fn tell(variant: &Variant, at: Timestamp, now: Timestamp) -> String {
    let old = (at != now).then(|| {
        let (apart, way) = if at < now { (now.since(at), "old") } else { (at.since(now), "ahead") };
        format!(
            "it was signed at {at}, {} s {way}: compare the clocks, or give --now",
            apart.as_secs()
        )
    });
    match (variant.said.as_str(), old) {
        ("", Some(old)) => format!("the signature itself fits; {old}"),
        (said, Some(old)) => format!("it fits {said}; and {old}"),
        (said, None) => format!("it fits {said}"),
    }
}

/// The secret was copied with something too much or too little, or is written in another way.
fn of_secrets(secrets: &[Secret]) -> Vec<Variant> {
    let text = |secret: &Secret| std::str::from_utf8(secret.expose()).ok().map(str::to_owned);
    let each = |said: &str, change: &dyn Fn(&str) -> Option<Vec<u8>>| {
        let changed: Vec<Secret> =
            secrets.iter().filter_map(|secret| change(&text(secret)?).map(Secret::new)).collect();
        (!changed.is_empty()).then(|| Variant {
            said: said.to_owned(),
            secrets: Some(changed),
            ..Variant::default()
        })
    };
    let bare = |secret: &str| secret.split_once('_').map_or(secret, |(_, rest)| rest).to_owned();
    let base64 = |text: &str| {
        let text = text.trim().trim_end_matches('=');
        BASE64_NOPAD.decode(text.as_bytes()).or_else(|_| BASE64URL_NOPAD.decode(text.as_bytes()))
    };
    let tries: [Option<Variant>; 8] = [
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
        each("the secret without what stands before its `_`", &|secret| {
            secret.contains('_').then(|| bare(secret).into())
        }),
        each("the secret without what stands before its `_`, decoded from base64", &|secret| {
            secret.contains('_').then(|| base64(&bare(secret)).ok()).flatten()
        }),
    ];
    tries.into_iter().flatten().collect()
}

/// The body is not what was signed, byte for byte.
fn of_body(body: &[u8]) -> Vec<Variant> {
    let variant = |said: &str, body: Vec<u8>| Variant {
        said: said.to_owned(),
        body: Some(body.into()),
        ..Variant::default()
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
        let said = format!(
            "the body parsed and written again ({how}): sign and send the same bytes, exactly as \
             they came"
        );
        variants.push(variant(&said, text.into()));
    }
    variants.retain(|variant| variant.body.as_deref() != Some(body));
    variants
}

/// The signature is written in another way than the scheme says.
fn of_headers(headers: &HeaderMap) -> Vec<Variant> {
    let mut variants = Vec::new();
    for (name, value) in headers {
        let Ok(text) = value.to_str() else { continue };
        let (prefix, bare) = split_prefix(text);
        let hex = HEXLOWER_PERMISSIVE.decode(bare.as_bytes()).ok().filter(|bytes| is_digest(bytes));
        let base64 = BASE64.decode(bare.as_bytes()).ok().filter(|bytes| is_digest(bytes));
        let mut tries = Vec::new();
        if let Some(bytes) = &hex {
            tries.push(("in base64; it came in hex", format!("{prefix}{}", BASE64.encode(bytes))));
            if prefix.is_empty() {
                tries.push(("with `sha256=` before it", format!("sha256={bare}")));
            }
        }
        if let Some(bytes) = &base64 {
            tries
                .push(("in hex; it came in base64", format!("{prefix}{}", HEXLOWER.encode(bytes))));
        }
        if !prefix.is_empty() && (hex.is_some() || base64.is_some()) {
            tries.push(("without what stands before it", bare.to_owned()));
        }
        if text.trim_matches(['"', '\'', ' ']) != text {
            tries.push(("without quotes", text.trim_matches(['"', '\'', ' ']).to_owned()));
        }
        for (said, text) in tries {
            let Ok(value) = HeaderValue::from_str(&text) else { continue };
            let mut changed = headers.clone();
            changed.insert(name.clone(), value);
            let said = format!("the signature of `{name}` {said}");
            variants.push(Variant { said, headers: Some(changed), ..Variant::default() });
        }
    }
    variants
}

/// `sha256=` or `v1,` and what follows.
fn split_prefix(text: &str) -> (&str, &str) {
    let end = text.find(['=', ',']).filter(|end| *end < 8 && *end + 1 < text.len());
    end.map_or(("", text), |end| text.split_at(end + 1))
}

/// As long as SHA-1, SHA-256 or SHA-512.
fn is_digest(bytes: &[u8]) -> bool {
    matches!(bytes.len(), 20 | 32 | 64)
}

/// The sender called another address than we know of.
fn of_address(request: &IncomingRequest<'_>) -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |said: &str, change: &dyn Fn(&mut Variant)| {
        let mut variant = Variant { said: said.to_owned(), ..Variant::default() };
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
            let said = format!("an address that begins with {scheme}: set `public_url`");
            add(&said, &|variant| variant.origin = Some(origin.clone()));
        }
    }
    add("the address with a slash at its end", &|variant| {
        variant.path = Some(format!("{}/", request.path));
    });
    if let Some(bare) = request.path.strip_suffix('/') {
        add("the address without the slash at its end", &|variant| {
            variant.path = Some(bare.to_owned());
        });
    }
    if request.query.is_some() {
        add("the address without its query", &|variant| variant.drops_query = true);
    }
    variants
}

/// Times that stand in the headers or the body: of an old request, its own is one of them.
fn times_in(request: &IncomingRequest<'_>) -> Vec<Timestamp> {
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

    /// What is found when `signed` was signed with `with`, and `came` is checked with `ours`.
    fn found(with: &str, ours: &str, signed: &str, came: &str) -> Option<String> {
        let headers = HeaderMap::new();
        let outgoing =
            OutgoingRequest { id: "", url: "", headers: &headers, body: signed.as_bytes() };
        let made = plain(vec![Secret::new(with)]).unwrap().sign(&outgoing, NOW).unwrap();
        let (name, value) = &made.headers[0];
        let headers = HeaderMap::from_iter([(name.clone(), value.parse().unwrap())]);
        find_cause(&plain, &[Secret::new(ours)], &incoming(&headers, came.as_bytes()), NOW)
    }

    fn incoming<'r>(headers: &'r HeaderMap, body: &'r [u8]) -> IncomingRequest<'r> {
        IncomingRequest { source: "s", path: "", query: None, headers, body, origin: None }
    }

    #[test]
    fn the_common_mistakes_are_named() {
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
        for (with, ours, signed, came, expected) in cases {
            let told = found(with, ours, signed, came).unwrap_or_default();
            assert!(told.contains(expected), "case: {signed:?} {came:?}: {told}");
            assert_eq!(told.is_empty(), expected.is_empty(), "case: {signed:?}: {told}");
            assert!(!told.contains("a secret of"), "{told}");
        }
    }

    #[test]
    fn an_old_signature_says_how_old_it_is() {
        let provider = provider::find("stripe").unwrap();
        let build = |secrets: Vec<Secret>| provider.verifier(secrets);
        let headers = HeaderMap::new();
        let outgoing = OutgoingRequest { id: "", url: "", headers: &headers, body: b"{}" };
        let made = build(vec![Secret::new(SECRET)]).unwrap().sign(&outgoing, NOW).unwrap();
        let (name, value) = &made.headers[0];
        let headers = HeaderMap::from_iter([(name.clone(), value.parse().unwrap())]);
        let later = Timestamp::from_millis(NOW.as_millis() + 7_200_000);

        let told = find_cause(&build, &[Secret::new(SECRET)], &incoming(&headers, b"{}"), later);

        assert!(told.as_ref().is_some_and(|told| told.contains("7200 s old")), "{told:?}");
    }

    #[test]
    fn a_signature_in_another_encoding_is_recognised() {
        let base64 = |secrets: Vec<Secret>| {
            let spec = HmacSpec { encoding: SignatureEncoding::Base64, ..HmacSpec::new("x-sig") };
            Verifier::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
        };
        let headers = HeaderMap::new();
        let outgoing = OutgoingRequest { id: "", url: "", headers: &headers, body: b"{}" };
        let made = plain(vec![Secret::new(SECRET)]).unwrap().sign(&outgoing, NOW).unwrap();
        let hex = &made.headers[0].1;
        for value in [hex.clone(), format!("sha256={hex}")] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("x-sig"),
                value.parse().unwrap(),
            )]);
            let told = find_cause(&base64, &[Secret::new(SECRET)], &incoming(&headers, b"{}"), NOW);
            let told = told.unwrap_or_default();
            assert_eq!(told.contains("in base64"), !value.contains('='), "{value}: {told}");
        }
    }
}
