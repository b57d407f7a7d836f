//! Stripe: timestamp and signatures in one header; events have an id.

use surehook_types::time::HumanDuration;

use super::{
    SampleEvent,
    fields::body_fields,
    preset::{HmacPreset, PresetKey},
};
use crate::{attribute::AttributeName, verify::HmacSpec};

body_fields! {
    /// A thin event has only the id of its object.
    static FIELDS {
        ID = "/id",
        TYPE = "/type",
        OBJECT_ID = "/data/object/id",
        RELATED_OBJECT_ID = "/related_object/id",
        ACCOUNT = "/account",
        STATUS = "/data/object/status",
        CUSTOMER = "/data/object/customer",
        PAYMENT_INTENT = "/data/object/payment_intent",
        CUSTOMER_EMAIL = "/data/object/customer_email",
        RECEIPT_EMAIL = "/data/object/receipt_email",
        CUSTOMER_DETAILS_EMAIL = "/data/object/customer_details/email",
        EMAIL = "/data/object/email",
        PAYMENT_ERROR_CODE = "/data/object/last_payment_error/code",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 11] = [
    (AttributeName::Object, OBJECT_ID),
    (AttributeName::Object, RELATED_OBJECT_ID),
    (AttributeName::Account, ACCOUNT),
    (AttributeName::ProviderStatus, STATUS),
    (AttributeName::User, CUSTOMER),
    (AttributeName::Object, PAYMENT_INTENT),
    (AttributeName::Email, CUSTOMER_EMAIL),
    (AttributeName::Email, RECEIPT_EMAIL),
    (AttributeName::Email, CUSTOMER_DETAILS_EMAIL),
    (AttributeName::Email, EMAIL),
    (AttributeName::Error, PAYMENT_ERROR_CODE),
];

pub(super) static STRIPE: HmacPreset = HmacPreset {
    name: "stripe",
    signature,
    signature_headers: &["stripe-signature"],
    // Stripe retries for three days.
    dedup_window: HumanDuration::from_secs(4 * 86_400),
    fields: &FIELDS,
    kind: &[TYPE],
    key: PresetKey::Fields { prefix: "stripe", fields: &[ID], label: "stripe:id" },
    order: &[OBJECT_ID, RELATED_OBJECT_ID],
    attributes: &ATTRIBUTES,
    samples: SAMPLES,
};

/// The key is the whole text `whsec_…`, unlike with Standard Webhooks. Any of several `v1`
/// signatures may match; `v0` is only for Stripe's tests and is ignored.
fn signature() -> HmacSpec {
    HmacSpec {
        template: "{timestamp}.{body}".to_owned(),
        signature_param: Some("v1".to_owned()),
        timestamp_param: Some("t".to_owned()),
        ..HmacSpec::new("stripe-signature")
    }
}

static SAMPLES: &[SampleEvent] = &[
    sample(
        "payment_intent.succeeded",
        include_str!("samples/stripe.payment_intent.succeeded.json"),
    ),
    sample(
        "payment_intent.payment_failed",
        include_str!("samples/stripe.payment_intent.payment_failed.json"),
    ),
    sample(
        "checkout.session.completed",
        include_str!("samples/stripe.checkout.session.completed.json"),
    ),
    sample("invoice.paid", include_str!("samples/stripe.invoice.paid.json")),
    sample(
        "customer.subscription.deleted",
        include_str!("samples/stripe.customer.subscription.deleted.json"),
    ),
    sample("charge.refunded", include_str!("samples/stripe.charge.refunded.json")),
];

const fn sample(kind: &'static str, body: &'static str) -> SampleEvent {
    SampleEvent {
        kind,
        headers: &[("content-type", "application/json; charset=utf-8")],
        target: "",
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute_pairs, summary, verify};
    use crate::verify::VerifyError;

    #[test]
    fn key_is_the_event_id() {
        let cases = [
            (
                "typical",
                r#"{"id":"evt_1","type":"charge.refunded","data":{"object":{"id":"ch_1"}}}"#,
                ["charge.refunded", "stripe:evt_1", "ch_1"],
            ),
            (
                "an upcoming invoice has no id",
                r#"{"id":"evt_2","type":"invoice.upcoming","data":{"object":{"object":"invoice"}}}"#,
                ["invoice.upcoming", "stripe:evt_2", "-"],
            ),
            (
                "thin",
                r#"{"id":"evt_3","object":"v2.core.event","type":"v1.billing.meter.no_meter_found","related_object":{"id":"mtr_1"}}"#,
                ["v1.billing.meter.no_meter_found", "stripe:evt_3", "mtr_1"],
            ),
            ("no id", r#"{"type":"a.b"}"#, ["a.b", "-", "-"]),
            ("not JSON", "id=evt_1", ["-", "-", "-"]),
            ("a list", r#"[{"id":"evt_1"}]"#, ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(summary("stripe", &[], body), expected, "case: {name}");
        }
    }

    #[test]
    fn attributes_include_customer_account_and_error() {
        let body = r#"{"id":"evt_1","account":"acct_1","data":{"object":{"id":"ch_1","status":"failed",
            "customer":"cus_1","payment_intent":"pi_1","receipt_email":"Ana@example.com",
            "last_payment_error":{"code":"card_declined"}}}}"#;
        let expected = [
            "object=ch_1",
            "object=pi_1",
            "email=Ana@example.com",
            "user=cus_1",
            "error=card_declined",
            "account=acct_1",
            "provider_status=failed",
        ];
        assert_eq!(attribute_pairs("stripe", &[], body), expected);
        // An expanded customer is an object, not an id.
        let body = r#"{"data":{"object":{"customer":{"id":"cus_1"}}}}"#;
        assert!(attribute_pairs("stripe", &[], body).is_empty());
    }

    #[test]
    fn any_v1_signature_is_accepted_and_v0_is_ignored() {
        // HMAC-SHA256 of `1000.{}` with the key `whsec_test`, and another one.
        let real = "291d03e2e8ca99ce6b2dd4a86974b888822bbc53e44c7c5718da223c4c86d444";
        let other = "292d03e2e8ca99ce6b2dd4a86974b888822bbc53e44c7c5728da223c4c86d444";
        let cases = [
            ("one", format!("t=1000,v1={real}"), 1000, Ok(0)),
            ("rotating", format!("t=1000,v1={other},v1={real}"), 1000, Ok(0)),
            ("also a test one", format!("t=1000,v0={other},v1={real}"), 1000, Ok(0)),
            ("300 s old", format!("t=1000,v1={real}"), 1300, Ok(0)),
            ("301 s old", format!("t=1000,v1={real}"), 1301, Err("stale")),
            ("only a test one", format!("t=1000,v0={real}"), 1000, Err("missing_signature")),
            ("wrong", format!("t=1000,v1={other}"), 1000, Err("mismatch")),
            ("another time", format!("t=1001,v1={real}"), 1000, Err("mismatch")),
            ("no time", format!("v1={real}"), 1000, Err("missing_timestamp")),
        ];
        for (name, header, now, expected) in cases {
            let result =
                verify("stripe", &["whsec_test"], &[("stripe-signature", &header)], "{}", now);
            let result = result.map(|verified| verified.secret_index);
            assert_eq!(
                result.as_ref().map_err(VerifyError::code),
                expected.as_ref().map_err(|c| *c),
                "case: {name}"
            );
        }
    }
}
