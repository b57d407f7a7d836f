//! `HubSpot`: a list of up to a hundred events, signed over method, address, body and time (version 3).

use std::sync::LazyLock;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderName;
use sha2::Sha256;

use super::{
    BodyFields, EventKey, EventPart, ParsedRequest, Provider, RefusalPolicy, SampleEvent, list,
};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::Timestamp,
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, VerifySpecError,
        only_value, parse_timestamp,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("x-hubspot-signature-v3");
static TIMESTAMP: HeaderName = HeaderName::from_static("x-hubspot-request-timestamp");

/// How far the timestamp may be from now, in either direction.
const TOLERANCE_MILLIS: u64 = 300_000;

/// What `HubSpot` writes out in the address before it signs it.
const DECODED: [(&str, char); 12] = [
    ("3A", ':'),
    ("2F", '/'),
    ("3F", '?'),
    ("40", '@'),
    ("21", '!'),
    ("24", '$'),
    ("27", '\''),
    ("28", '('),
    ("29", ')'),
    ("2A", '*'),
    ("2C", ','),
    ("3B", ';'),
];

/// What one event is, and what it is about.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/portalId",
        "/subscriptionId",
        "/eventId",
        "/occurredAt",
        "/subscriptionType",
        "/objectId",
        "/fromObjectId",
        "/primaryObjectId",
        "/toObjectId",
        "/newObjectId",
        "/sourceId",
        "/messageId",
    ])
});

const ABOUT: [(AttributeName, usize); 8] = [
    (AttributeName::Account, 0),
    (AttributeName::Object, 5),
    (AttributeName::Object, 6),
    (AttributeName::Object, 7),
    (AttributeName::Object, 8),
    (AttributeName::Object, 9),
    (AttributeName::User, 10),
    (AttributeName::MessageId, 11),
];

#[derive(Debug)]
pub(super) struct Hubspot;

impl Provider for Hubspot {
    fn name(&self) -> &'static str {
        "hubspot"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let many = secrets.len();
        Ok(Verifier::own(Box::new(VersionThree { secrets }), many))
    }

    /// Anything but a list is one event without a key: workflows send the object itself.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        match list::split(request.body, read_one) {
            Some(parts) => ParsedRequest::Events(parts),
            None => ParsedRequest::one(EventPart { key: EventKey::None, ..EventPart::default() }),
        }
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-hubspot-signature-v3", "x-hubspot-signature"]
    }

    /// It does not send again what was answered with 401.
    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Quarantine
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

/// `eventId` alone is not unique, and `attemptNumber` is another one at each attempt.
fn read_one(item: &[u8]) -> EventPart {
    let found = FIELDS.read(item);
    let object = found.first(&[5, 6, 7]);
    let order = found.get(0).zip(object).map(|(portal, object)| format!("{portal}:{object}"));
    EventPart {
        kind: found.get(4).and_then(EventKind::new),
        key: EventKey::known(found.key("hubspot", &[0, 1, 2, 3]), "hubspot:eventId"),
        order: order.and_then(|order| DedupKey::new(&order)),
        attributes: found.attributes(&ABOUT),
        ..EventPart::default()
    }
}

/// The third version of `HubSpot`'s signatures, with the client secret of an app.
#[derive(Debug)]
struct VersionThree {
    secrets: Vec<Secret>,
}

impl VerificationScheme for VersionThree {
    fn name(&self) -> &'static str {
        "hubspot-v3"
    }

    fn covers_url(&self) -> bool {
        true
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let signature = only_value(request.headers, &SIGNATURE, "signature")?
            .ok_or_else(|| VerifyError::MissingSignature { header: SIGNATURE.clone() })?;
        let signature = BASE64
            .decode(signature.as_bytes())
            .map_err(|_| VerifyError::Malformed { part: "signature" })?;
        let timestamp = only_value(request.headers, &TIMESTAMP, "timestamp")?
            .ok_or(VerifyError::MissingTimestamp)?
            .as_bytes();
        let signed_at =
            parse_timestamp(timestamp).ok_or(VerifyError::Malformed { part: "timestamp" })?;
        if now.as_millis().abs_diff(signed_at) > TOLERANCE_MILLIS {
            return Err(VerifyError::Stale);
        }
        let urls = request.urls();
        if urls.is_empty() {
            return Err(VerifyError::UnknownAddress);
        }
        let fits = |secret: &Secret| {
            urls.iter().flat_map(|url| spellings(url)).any(|url| {
                mac(secret, &url, request.body, timestamp).verify_slice(&signature).is_ok()
            })
        };
        self.secrets.iter().position(fits).ok_or(VerifyError::Mismatch)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let secret = self.secrets.first().ok_or(SignError("there is no secret to sign with"))?;
        let timestamp = now.as_millis().to_string();
        let mac = mac(secret, &decoded(request.url), request.body, timestamp.as_bytes());
        Ok(RequestSignature::headers(vec![
            (SIGNATURE.clone(), BASE64.encode(&mac.finalize().into_bytes())),
            (TIMESTAMP.clone(), timestamp),
        ]))
    }
}

/// The door takes nothing but POST.
fn mac(secret: &Secret, url: &str, body: &[u8], timestamp: &[u8]) -> Hmac<Sha256> {
    let mut mac =
        Hmac::new_from_slice(secret.expose()).expect("HMAC takes keys of any length (RFC 2104)");
    for part in [b"POST", url.as_bytes(), body, timestamp] {
        mac.update(part);
    }
    mac
}

/// The address as `HubSpot` documents it, and as it is: its own libraries sign the latter.
fn spellings(url: &str) -> Vec<String> {
    let decoded = decoded(url);
    if decoded == url { vec![decoded] } else { vec![decoded, url.to_owned()] }
}

fn decoded(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    let mut rest = url;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let code = after.get(..2).unwrap_or_default();
        match DECODED.iter().find(|(known, _)| known.eq_ignore_ascii_case(code)) {
            Some((_, char)) => {
                text.push(*char);
                rest = &after[2..];
            }
            None => {
                text.push('%');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

static SAMPLES: &[SampleEvent] = &[
    sample(
        "contact.creation",
        r#"[{"eventId":1{{number}},"subscriptionId":25,"portalId":33,"appId":1160452,"occurredAt":{{now_ms}},"subscriptionType":"contact.creation","attemptNumber":0,"objectId":1{{number}},"changeSource":"CRM","changeFlag":"CREATED"}]"#,
    ),
    sample(
        "contact.propertyChange",
        r#"[{"eventId":1{{number}},"subscriptionId":22,"portalId":33,"appId":1160452,"occurredAt":{{now_ms}},"subscriptionType":"contact.propertyChange","attemptNumber":0,"objectId":1{{number}},"propertyName":"phone","propertyValue":"+{{phone}}","changeSource":"CRM"}]"#,
    ),
    sample(
        "deal.creation",
        r#"[{"eventId":1{{number}},"subscriptionId":27,"portalId":33,"appId":1160452,"occurredAt":{{now_ms}},"subscriptionType":"deal.creation","attemptNumber":0,"objectId":1{{number}},"changeSource":"CRM","changeFlag":"CREATED"}]"#,
    ),
];

const fn sample(kind: &'static str, body: &'static str) -> SampleEvent {
    SampleEvent { kind, headers: &[("content-type", "application/json")], target: "", body }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ParsedRequest, testing::about, testing_calls::Call},
        decoded,
    };

    const URL: &str = "https://gw.test/in/hubspot/1";
    const NOW: i64 = 1_779_024_000_000;

    fn call() -> Call {
        Call::new("hubspot", "hs-client-secret").url(URL).at(NOW).body("[]").signed()
    }

    #[test]
    fn method_address_body_and_time_are_signed() {
        let signature = "x-hubspot-signature-v3";
        let time = "x-hubspot-request-timestamp";
        let cases = [
            ("good", call(), Ok(0)),
            ("5 minutes old", call().at(NOW + 300_000), Ok(0)),
            ("a millisecond more", call().at(NOW + 300_001), Err("stale")),
            ("from the future", call().at(NOW - 300_001), Err("stale")),
            ("in seconds", call().header(time, "1779024000"), Err("stale")),
            ("another time", call().header(time, "1779024000001"), Err("mismatch")),
            ("no time", call().without(time), Err("missing_timestamp")),
            ("no time that is one", call().header(time, "soon"), Err("malformed")),
            ("another address", call().url("https://gw.test/in/hubspot/2"), Err("mismatch")),
            ("a query", call().url(format!("{URL}?a=1")), Err("mismatch")),
            ("another body", call().body("[{}]"), Err("mismatch")),
            ("another secret", call().secrets(&["other"]), Err("mismatch")),
            ("a second secret", call().secrets(&["other", "hs-client-secret"]), Ok(1)),
            ("no signature", call().without(signature), Err("missing_signature")),
            (
                "an old version",
                call().without(signature).header("x-hubspot-signature", "00"),
                Err("missing_signature"),
            ),
            ("hex", call().header(signature, "0123zz"), Err("malformed")),
            ("two", call().again(signature, "AAAA"), Err("malformed")),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
        let mut lost = call();
        lost.knows_origin = false;
        assert_eq!(lost.verify(), Err("unknown_address"));
        let body = r#"[{"eventId":1}]"#;
        call().body(body).signed().assert_every_bit_counts(&[signature, time]);
    }

    #[test]
    fn the_address_is_signed_with_some_characters_written_out() {
        let cases = [
            ("https://a.test/in/s", "https://a.test/in/s"),
            ("/p?u=a%3Ab%2Fc%3fd%40e%21%24%27%28%29%2a%2C%3B", "/p?u=a:b/c?d@e!$'()*,;"),
            ("/p?u=a%20b%26%3D%23%25%2B", "/p?u=a%20b%26%3D%23%25%2B"),
            ("/p?u=%", "/p?u=%"),
            ("/p?u=%2", "/p?u=%2"),
            ("/p?u=%é%3A", "/p?u=%é:"),
            ("/p?u=%253A", "/p?u=%253A"),
        ];
        for (url, expected) in cases {
            assert_eq!(decoded(url), expected);
        }
        let signed = call().url("https://gw.test/in/hubspot?to=a:b").signed();
        let called = signed.url("https://gw.test/in/hubspot?to=a%3Ab");
        assert_eq!(called.verify(), Ok(0), "what HubSpot documents");
    }

    #[test]
    fn each_item_is_an_event() {
        let one = r#"{"eventId":1,"subscriptionId":2,"portalId":3,"occurredAt":4,"objectId":5,"subscriptionType":"deal.creation"}"#;
        let association = r#"{"eventId":1,"subscriptionId":2,"portalId":3,"occurredAt":5,"fromObjectId":6,"toObjectId":7,"subscriptionType":"contact.associationChange"}"#;
        let keys = |body: &str| match call().body(body).read() {
            ParsedRequest::Events(parts) => parts
                .iter()
                .map(|part| {
                    let kind = part.kind.as_ref().map_or("-", |kind| kind.as_str());
                    let order = part.order.as_ref().map_or("-", |order| order.as_str());
                    format!("{kind} {:?} {order} {}", part.key, part.body.is_some())
                })
                .collect::<Vec<_>>(),
            ParsedRequest::Handshake(_) => panic!("no greeting"),
        };
        let first = |alone: bool| {
            format!(
                r#"deal.creation Known(DedupKey(hubspot:3:2:1:4), "hubspot:eventId") 3:5 {alone}"#
            )
        };
        let second = r#"contact.associationChange Known(DedupKey(hubspot:3:2:1:5), "hubspot:eventId") 3:6 true"#;
        assert_eq!(keys("[]"), Vec::<String>::new());
        assert_eq!(keys(&format!("[{one}]")), [first(false)]);
        assert_eq!(keys(&format!("[{one},{association}]")), [first(true), second.to_owned()]);
        assert_eq!(keys("[1,{\"eventId\":1}]"), ["- None - true", "- None - true"]);
        assert_eq!(keys(one), ["- None - false"], "a workflow sends no list");
        assert_eq!(keys("not JSON"), ["- None - false"]);
        let expected = ["object=5", "account=3"];
        assert_eq!(about("hubspot", &[], &format!("[{one}]")), expected);
    }
}
