//! Square: HMAC over the URL and the body.

use surehook_types::time::HumanDuration;

use super::{
    SampleEvent,
    fields::body_fields,
    preset::{HmacPreset, PresetKey},
};
use crate::{
    attribute::AttributeName,
    verify::{HmacSpec, SignatureEncoding},
};

body_fields! {
    /// The object is nested under the name of its type.
    static FIELDS {
        MERCHANT_ID = "/merchant_id",
        EVENT_ID = "/event_id",
        TYPE = "/type",
        DATA_ID = "/data/id",
        PAYMENT_STATUS = "/data/object/payment/status",
        PAYMENT_ORDER_ID = "/data/object/payment/order_id",
        PAYMENT_CUSTOMER_ID = "/data/object/payment/customer_id",
        REFUND_STATUS = "/data/object/refund/status",
        REFUND_PAYMENT_ID = "/data/object/refund/payment_id",
        INVOICE_STATUS = "/data/object/invoice/status",
        ORDER_STATE = "/data/object/order_updated/state",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 9] = [
    (AttributeName::Account, MERCHANT_ID),
    (AttributeName::Object, DATA_ID),
    (AttributeName::ProviderStatus, PAYMENT_STATUS),
    (AttributeName::Object, PAYMENT_ORDER_ID),
    (AttributeName::User, PAYMENT_CUSTOMER_ID),
    (AttributeName::ProviderStatus, REFUND_STATUS),
    (AttributeName::Object, REFUND_PAYMENT_ID),
    (AttributeName::ProviderStatus, INVOICE_STATUS),
    (AttributeName::ProviderStatus, ORDER_STATE),
];

pub(super) static SQUARE: HmacPreset = HmacPreset {
    name: "square",
    signature,
    signature_headers: &["x-square-hmacsha256-signature"],
    // Square retries for a day.
    dedup_window: HumanDuration::from_secs(3 * 86_400),
    fields: &FIELDS,
    kind: &[TYPE],
    key: PresetKey::Fields {
        prefix: "square",
        fields: &[MERCHANT_ID, EVENT_ID],
        label: "square:event_id",
    },
    order: &[DATA_ID],
    attributes: &ATTRIBUTES,
    samples: SAMPLES,
};

/// The URL is signed exactly as configured in the subscription.
fn signature() -> HmacSpec {
    HmacSpec {
        template: "{url}{body}".to_owned(),
        encoding: SignatureEncoding::Base64,
        ..HmacSpec::new("x-square-hmacsha256-signature")
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
    use super::super::testing::{TestCall, attribute_pairs, summary};

    const URL: &str = "https://gw.test/in/square/1";

    fn call() -> TestCall {
        TestCall::new("square", "sq-signature-key-1234")
            .url(URL)
            .body("{\"event_id\":\"e1\"}")
            .signed()
    }

    #[test]
    fn signature_covers_the_url() {
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
        assert_eq!(guessing.verify(), Ok(0), "the URL comes from the Host header");
        assert_eq!(guessing.without("host").verify(), Err("unknown_address"));
        call().assert_every_bit_counts(&["x-square-hmacsha256-signature"]);
    }

    #[test]
    fn keys_are_per_merchant() {
        let cases = [
            (
                "typical",
                r#"{"merchant_id":"M1","type":"payment.updated","event_id":"e1","data":{"id":"p1"}}"#,
                ["payment.updated", "square:M1:e1", "p1"],
            ),
            ("no merchant", r#"{"type":"a","event_id":"e1"}"#, ["a", "-", "-"]),
            ("no id", r#"{"merchant_id":"M1","type":"a"}"#, ["a", "-", "-"]),
            ("not JSON", "x", ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(summary("square", &[], body), expected, "case: {name}");
        }
        let body = r#"{"merchant_id":"M1","data":{"id":"p1","object":{"payment":{"id":"p1","status":"COMPLETED","order_id":"o1","customer_id":"c1"}}}}"#;
        let expected =
            ["object=p1", "object=o1", "user=c1", "account=M1", "provider_status=COMPLETED"];
        assert_eq!(attribute_pairs("square", &[], body), expected);
    }
}
