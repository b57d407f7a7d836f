//! `HubSpot`: up to a hundred events per request, signed over method, URL, body and time (version 3).

use std::time::Duration;

use data_encoding::BASE64;
use http::HeaderName;
use surehook_types::{secret::Secret, time::Timestamp};

use super::{
    ParsedRequest, Provider, RefusalPolicy, SampleEvent,
    fields::{EventReader, EventTemplate},
    raw_json,
};
use crate::{
    attribute::AttributeName::{Account, MessageId, Object, User},
    mac::HmacKey,
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, check_age,
        decode_signature, signature_header, signing_secret, timestamp_header,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("x-hubspot-signature-v3");
static TIMESTAMP: HeaderName = HeaderName::from_static("x-hubspot-request-timestamp");

/// Largest allowed difference between the timestamp and now, in either direction.
const TOLERANCE_MILLIS: u64 = 300_000;

/// Characters that `HubSpot` decodes in the URL before signing.
const DECODED_CHARACTERS: [(&str, char); 12] = [
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

pub(super) static HUBSPOT: Provider = Provider {
    name: "hubspot",
    verifier: |secrets| Ok(Verifier::from_scheme(secrets.len(), HubspotV3Scheme { secrets })),
    signature_headers: &["x-hubspot-signature-v3", "x-hubspot-signature"],
    // `HubSpot` does not retry after 401.
    on_refusal: RefusalPolicy::Quarantine,
    parse_request: |request, _| {
        let read = |item: &[u8]| EVENT.read_json(item).event();
        // Workflows send a single object.
        ParsedRequest::list(raw_json::split_array(request.body, read))
    },
    samples: &[
        SampleEvent::json(
            "contact.creation",
            r#"[{"eventId":1{{number}},"subscriptionId":25,"portalId":33,"appId":1160452,"occurredAt":{{now_ms}},"subscriptionType":"contact.creation","attemptNumber":0,"objectId":1{{number}},"changeSource":"CRM","changeFlag":"CREATED"}]"#,
        ),
        SampleEvent::json(
            "contact.propertyChange",
            r#"[{"eventId":1{{number}},"subscriptionId":22,"portalId":33,"appId":1160452,"occurredAt":{{now_ms}},"subscriptionType":"contact.propertyChange","attemptNumber":0,"objectId":1{{number}},"propertyName":"phone","propertyValue":"+{{phone}}","changeSource":"CRM"}]"#,
        ),
        SampleEvent::json(
            "deal.creation",
            r#"[{"eventId":1{{number}},"subscriptionId":27,"portalId":33,"appId":1160452,"occurredAt":{{now_ms}},"subscriptionType":"deal.creation","attemptNumber":0,"objectId":1{{number}},"changeSource":"CRM","changeFlag":"CREATED"}]"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// `eventId` alone is not unique, and `attemptNumber` differs at each attempt.
static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/subscriptionType}"],
    key: &["hubspot:{/portalId}:{/subscriptionId}:{/eventId}:{/occurredAt}"],
    key_label: "hubspot:eventId",
    ordering_key: &["{/portalId}:{/objectId|/fromObjectId|/primaryObjectId}"],
    attributes: &[
        (Account, &["/portalId"]),
        (Object, &["/objectId", "/fromObjectId", "/primaryObjectId"]),
        (Object, &["/toObjectId", "/newObjectId"]),
        (User, &["/sourceId"]),
        (MessageId, &["/messageId"]),
    ],
    ..EventTemplate::EMPTY
});

/// Version 3 of `HubSpot`'s signatures, with the client secret of an app.
#[derive(Debug)]
struct HubspotV3Scheme {
    secrets: Vec<Secret>,
}

impl VerificationScheme for HubspotV3Scheme {
    fn name(&self) -> &'static str {
        "hubspot-v3"
    }

    fn covers_url(&self) -> bool {
        true
    }

    fn max_age(&self) -> Option<Duration> {
        Some(Duration::from_millis(TOLERANCE_MILLIS))
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let signature = decode_signature(&BASE64, signature_header(request.headers, &SIGNATURE)?)?;
        let timestamp = timestamp_header(request.headers, &TIMESTAMP)?;
        check_age(timestamp, now.as_millis(), TOLERANCE_MILLIS)?;
        let urls = url_spellings(&request.url()?);
        let is_match = |secret: &Secret| {
            let key = HmacKey::sha256(secret.expose());
            urls.iter()
                .any(|url| key.verify(signed_parts(url, request.body, timestamp), &signature))
        };
        self.secrets.iter().position(is_match).ok_or(VerifyError::Mismatch)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let key = HmacKey::sha256(signing_secret(&self.secrets)?.expose());
        let (url, timestamp) = (decode_url(request.url), now.as_millis().to_string());
        let signature = key.sign(signed_parts(&url, request.body, timestamp.as_bytes()));
        Ok(RequestSignature::headers(vec![
            (SIGNATURE.clone(), BASE64.encode(signature.as_ref())),
            (TIMESTAMP.clone(), timestamp),
        ]))
    }
}

/// The method is always POST, because no other one is accepted.
fn signed_parts<'r>(url: &'r str, body: &'r [u8], timestamp: &'r [u8]) -> [&'r [u8]; 4] {
    [b"POST", url.as_bytes(), body, timestamp]
}

/// The URL decoded as `HubSpot` documents it, and unchanged, as its libraries sign it.
fn url_spellings(url: &str) -> Vec<String> {
    let decoded = decode_url(url);
    if decoded == url { vec![decoded] } else { vec![decoded, url.to_owned()] }
}

fn decode_url(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    let mut rest = url;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let code = after.get(..2).unwrap_or_default();
        match DECODED_CHARACTERS.iter().find(|(escape, _)| escape.eq_ignore_ascii_case(code)) {
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

#[cfg(test)]
mod tests {
    use super::{
        super::{
            ParsedRequest,
            testing::{TestCall, attribute_pairs},
        },
        decode_url,
    };

    const URL: &str = "https://gw.test/in/hubspot/1";
    const NOW: i64 = 1_779_024_000_000;

    fn call() -> TestCall {
        TestCall::new("hubspot", "hs-client-secret").url(URL).at(NOW).body("[]").signed()
    }

    #[test]
    fn signature_covers_method_url_body_and_time() {
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
            ("invalid time", call().header(time, "soon"), Err("malformed")),
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
            ("two", call().add_header(signature, "AAAA"), Err("malformed")),
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
    fn url_is_signed_with_some_characters_decoded() {
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
            assert_eq!(decode_url(url), expected);
        }
        let signed = call().url("https://gw.test/in/hubspot?to=a:b").signed();
        let called = signed.url("https://gw.test/in/hubspot?to=a%3Ab");
        assert_eq!(called.verify(), Ok(0), "what HubSpot documents");
    }

    #[test]
    fn each_array_item_is_an_event() {
        let one = r#"{"eventId":1,"subscriptionId":2,"portalId":3,"occurredAt":4,"objectId":5,"subscriptionType":"deal.creation"}"#;
        let association = r#"{"eventId":1,"subscriptionId":2,"portalId":3,"occurredAt":5,"fromObjectId":6,"toObjectId":7,"subscriptionType":"contact.associationChange"}"#;
        let keys = |body: &str| match call().body(body).parse() {
            ParsedRequest::Events(parts) => parts
                .iter()
                .map(|part| {
                    let kind = part.kind.as_ref().map_or("-", |kind| kind.as_str());
                    let order = part.ordering_key.as_ref().map_or("-", |key| key.as_str());
                    format!("{kind} {:?} {order} {}", part.key, part.body.is_some())
                })
                .collect::<Vec<_>>(),
            ParsedRequest::Handshake(_) => panic!("unexpected handshake"),
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
        assert_eq!(attribute_pairs("hubspot", &[], &format!("[{one}]")), expected);
    }
}
