//! Stripe: a timestamp and one or more signatures in one header; the event has an id.

use std::sync::LazyLock;

use super::{BodyFields, EventKey, EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

/// What an event is, and what it is about. A "thin" event has only the id of its object.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/id",
        "/type",
        "/data/object/id",
        "/related_object/id",
        "/account",
        "/data/object/status",
        "/data/object/customer",
        "/data/object/payment_intent",
        "/data/object/customer_email",
        "/data/object/receipt_email",
        "/data/object/customer_details/email",
        "/data/object/email",
        "/data/object/last_payment_error/code",
    ])
});

const ABOUT: [(AttributeName, usize); 11] = [
    (AttributeName::Object, 2),
    (AttributeName::Object, 3),
    (AttributeName::Account, 4),
    (AttributeName::ProviderStatus, 5),
    (AttributeName::User, 6),
    (AttributeName::Object, 7),
    (AttributeName::Email, 8),
    (AttributeName::Email, 9),
    (AttributeName::Email, 10),
    (AttributeName::Email, 11),
    (AttributeName::Error, 12),
];

#[derive(Debug)]
pub(super) struct Stripe;

impl Provider for Stripe {
    fn name(&self) -> &'static str {
        "stripe"
    }

    /// The key is the whole `whsec_…` as it is written, unlike with Standard Webhooks. Of several
    /// `v1` any may fit; `v0` is for tests of theirs and is not looked at.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            template: "{timestamp}.{body}".to_owned(),
            signature_param: Some("v1".to_owned()),
            timestamp_param: Some("t".to_owned()),
            ..HmacSpec::new("stripe-signature")
        };
        Verifier::hmac(spec, secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        ParsedRequest::one(EventPart {
            kind: found.get(1).and_then(EventKind::new),
            key: EventKey::known(found.key("stripe", &[0]), "stripe:id"),
            order: found.first(&[2, 3]).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// It goes on for three days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(4 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["stripe-signature"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
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
    use super::super::testing::{about, told, verify};
    use crate::verify::VerifyError;

    #[test]
    fn events_are_told_apart_by_their_ids_alone() {
        let cases = [
            (
                "usual",
                r#"{"id":"evt_1","type":"charge.refunded","data":{"object":{"id":"ch_1"}}}"#,
                ["charge.refunded", "stripe:evt_1", "ch_1"],
            ),
            (
                "an invoice that is only foreseen has no id",
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
            assert_eq!(told("stripe", &[], body), expected, "case: {name}");
        }
    }

    #[test]
    fn a_payment_is_found_by_customer_account_and_error() {
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
        assert_eq!(about("stripe", &[], body), expected);
        // A customer that was expanded is an object and no id.
        let body = r#"{"data":{"object":{"customer":{"id":"cus_1"}}}}"#;
        assert!(about("stripe", &[], body).is_empty());
    }

    #[test]
    fn any_current_signature_will_do_and_no_test_signature() {
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
