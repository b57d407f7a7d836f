//! Stripe: a timestamp and one or more signatures in one header; the event has an id.

use std::sync::LazyLock;

use super::{Fields, Found, Part, PartKey, Provider, Reading, Sample};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::DedupKey,
    request::Incoming,
    secret::Secret,
    time::Span,
    verify::{HmacSpec, Verifier, VerifySpec, VerifySpecError},
};

/// `id`, `type`, and the id of what it is about.
static FIELDS: LazyLock<Fields> =
    LazyLock::new(|| Fields::new(&["/id", "/type", "/data/object/id", "/account"]));

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
        Verifier::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
    }

    fn read(&self, request: &Incoming<'_>, _: Option<&Secret>) -> Reading {
        let found = FIELDS.read(request.body);
        Reading::one(Part {
            kind: found.get(1).and_then(EventKind::new),
            key: PartKey::known(found.key("stripe", &[0]), "stripe:id"),
            order: found.get(2).and_then(DedupKey::new),
            attributes: attributes(&found),
            ..Part::default()
        })
    }

    /// It goes on for three days.
    fn dedup_window(&self) -> Span {
        Span::from_secs(4 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["stripe-signature"]
    }

    fn samples(&self) -> &'static [Sample] {
        &[Sample {
            kind: "payment_intent.succeeded",
            headers: &[("content-type", "application/json; charset=utf-8")],
            target: "",
            body: r#"{"id":"evt_{{id}}","object":"event","api_version":"2026-04-22","created":{{now}},"type":"payment_intent.succeeded","livemode":false,"pending_webhooks":1,"data":{"object":{"id":"pi_{{id}}","object":"payment_intent","amount":4200,"currency":"brl","status":"succeeded"}}}"#,
        }]
    }
}

fn attributes(found: &Found<'_>) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.push_some(AttributeName::Object, found.get(2));
    attributes.push_some(AttributeName::Account, found.get(3));
    attributes
}
