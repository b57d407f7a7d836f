//! Square: a keyed hash over the address that it called and the body.

use std::sync::LazyLock;

use super::{BodyFields, EventKey, EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{HmacSpec, SignatureEncoding, Verifier, VerifySpecError},
};

/// What an event is, and what it is about. The object stands under its own type.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/merchant_id",
        "/event_id",
        "/type",
        "/data/id",
        "/data/object/payment/status",
        "/data/object/payment/order_id",
        "/data/object/payment/customer_id",
        "/data/object/refund/status",
        "/data/object/refund/payment_id",
        "/data/object/invoice/status",
        "/data/object/order_updated/state",
    ])
});

const ABOUT: [(AttributeName, usize); 9] = [
    (AttributeName::Account, 0),
    (AttributeName::Object, 3),
    (AttributeName::ProviderStatus, 4),
    (AttributeName::Object, 5),
    (AttributeName::User, 6),
    (AttributeName::ProviderStatus, 7),
    (AttributeName::Object, 8),
    (AttributeName::ProviderStatus, 9),
    (AttributeName::ProviderStatus, 10),
];

#[derive(Debug)]
pub(super) struct Square;

impl Provider for Square {
    fn name(&self) -> &'static str {
        "square"
    }

    /// The address is signed as it stands in the subscription, byte for byte.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            template: "{url}{body}".to_owned(),
            encoding: SignatureEncoding::Base64,
            ..HmacSpec::new("x-square-hmacsha256-signature")
        };
        Verifier::hmac(spec, secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        ParsedRequest::one(EventPart {
            kind: found.get(2).and_then(EventKind::new),
            key: EventKey::known(found.key("square", &[0, 1]), "square:event_id"),
            order: found.get(3).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// It goes on for a day.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(3 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-square-hmacsha256-signature"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

static SAMPLES: &[SampleEvent] = &[
    sample(
        "payment.updated",
        r#"{"merchant_id":"6SSW7HV8K2ST5","type":"payment.updated","event_id":"{{uuid}}","created_at":"{{now_iso}}","data":{"type":"payment","id":"pay{{id}}","object":{"payment":{"id":"pay{{id}}","status":"COMPLETED","order_id":"order{{id}}","amount_money":{"amount":4200,"currency":"USD"}}}}}"#,
    ),
    sample(
        "refund.updated",
        r#"{"merchant_id":"6SSW7HV8K2ST5","type":"refund.updated","event_id":"{{uuid}}","created_at":"{{now_iso}}","data":{"type":"refund","id":"refund{{id}}","object":{"refund":{"id":"refund{{id}}","payment_id":"pay{{id}}","status":"COMPLETED","amount_money":{"amount":4200,"currency":"USD"}}}}}"#,
    ),
    sample(
        "order.updated",
        r#"{"merchant_id":"6SSW7HV8K2ST5","type":"order.updated","event_id":"{{uuid}}","created_at":"{{now_iso}}","data":{"type":"order_updated","id":"order{{id}}","object":{"order_updated":{"order_id":"order{{id}}","state":"OPEN","version":2}}}}"#,
    ),
];

const fn sample(kind: &'static str, body: &'static str) -> SampleEvent {
    let headers = &[("content-type", "application/json"), ("square-environment", "Production")];
    SampleEvent { kind, headers, target: "", body }
}

#[cfg(test)]
mod tests {
    use super::super::{
        testing::{about, told},
        testing_calls::Call,
    };

    const URL: &str = "https://gw.test/in/square/1";

    fn call() -> Call {
        Call::new("square", "sq-signature-key-1234").url(URL).body("{\"event_id\":\"e1\"}").signed()
    }

    #[test]
    fn the_address_is_part_of_what_is_signed() {
        let cases = [
            ("the same", URL, Ok(0)),
            ("a slash more", "https://gw.test/in/square/1/", Err("mismatch")),
            ("a query", "https://gw.test/in/square/1?a=1", Err("mismatch")),
            ("not secure", "http://gw.test/in/square/1", Err("mismatch")),
            ("another host", "https://gw.example/in/square/1", Err("mismatch")),
        ];
        for (name, url, expected) in cases {
            assert_eq!(call().url(url).verify(), expected, "case: {name}");
        }
        let mut guessing = call().header("host", "gw.test");
        guessing.knows_origin = false;
        assert_eq!(guessing.verify(), Ok(0), "the address is what the host says");
        assert_eq!(guessing.without("host").verify(), Err("unknown_address"));
        call().assert_every_bit_counts(&["x-square-hmacsha256-signature"]);
    }

    #[test]
    fn events_are_told_apart_within_their_merchant() {
        let cases = [
            (
                "usual",
                r#"{"merchant_id":"M1","type":"payment.updated","event_id":"e1","data":{"id":"p1"}}"#,
                ["payment.updated", "square:M1:e1", "p1"],
            ),
            ("no merchant", r#"{"type":"a","event_id":"e1"}"#, ["a", "-", "-"]),
            ("no id", r#"{"merchant_id":"M1","type":"a"}"#, ["a", "-", "-"]),
            ("not JSON", "x", ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(told("square", &[], body), expected, "case: {name}");
        }
        let body = r#"{"merchant_id":"M1","data":{"id":"p1","object":{"payment":{"id":"p1","status":"COMPLETED","order_id":"o1","customer_id":"c1"}}}}"#;
        let expected =
            ["object=p1", "object=o1", "user=c1", "account=M1", "provider_status=COMPLETED"];
        assert_eq!(about("square", &[], body), expected);
    }
}
