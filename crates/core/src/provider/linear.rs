//! Linear: signed over the raw body without a timestamp; the delivery has an id in a header.

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

/// `webhookId` is not among them: it is the id of the webhook, the same in all of its events.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/type",
        "/action",
        "/data/id",
        "/data/identifier",
        "/data/issueId",
        "/actor/id",
        "/actor/email",
        "/organizationId",
    ])
});

const ABOUT: [(AttributeName, usize); 6] = [
    (AttributeName::Object, 2),
    (AttributeName::Object, 3),
    (AttributeName::Object, 4),
    (AttributeName::User, 5),
    (AttributeName::Email, 6),
    (AttributeName::Account, 7),
];

#[derive(Debug)]
pub(super) struct Linear;

impl Provider for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    /// Nothing is refused for its age: it is not known whether `webhookTimestamp` is fresh when
    /// Linear sends again after an hour or six, and what is sent twice has the same delivery id.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Verifier::hmac(HmacSpec::new("linear-signature"), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let kind = match (found.get(0), found.get(1)) {
            (Some(thing), Some(action)) => EventKind::new(&format!("{thing}.{action}")),
            (thing, _) => thing.or_else(|| request.header("linear-event")).and_then(EventKind::new),
        };
        let delivery = request.header("linear-delivery");
        let key = delivery.and_then(|id| DedupKey::new(&format!("linear:{id}")));
        ParsedRequest::one(EventPart {
            kind,
            key: EventKey::known(key, "linear:linear-delivery"),
            order: found.get(2).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// The last of its three tries comes seven hours after the first.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["linear-signature"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

macro_rules! sample {
    ($thing:literal, $action:literal) => {
        SampleEvent {
            kind: concat!($thing, ".", $action),
            headers: &[
                ("content-type", "application/json; charset=utf-8"),
                ("user-agent", "Linear-Webhook"),
                ("linear-delivery", "{{uuid}}"),
                ("linear-event", $thing),
                ("linear-timestamp", "{{now_ms}}"),
            ],
            target: "",
            body: include_str!(concat!("samples/linear.", $thing, ".", $action, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] =
    &[sample!("Issue", "create"), sample!("Issue", "update"), sample!("Comment", "create")];

#[cfg(test)]
mod tests {
    use super::super::testing::{about, told, verify};

    #[test]
    fn a_delivery_is_told_apart_by_its_header_and_never_by_the_webhook() {
        let delivery = ("linear-delivery", "d-1");
        let event = ("linear-event", "Issue");
        let issue = r#"{"action":"update","type":"Issue","data":{"id":"i-1"},"webhookId":"w-1"}"#;
        let cases: [(_, &[_], _, _); 5] = [
            ("usual", &[delivery, event], issue, ["Issue.update", "linear:d-1", "i-1"]),
            ("no delivery", &[event], issue, ["Issue.update", "-", "i-1"]),
            ("no action", &[delivery], r#"{"type":"Issue"}"#, ["Issue", "linear:d-1", "-"]),
            ("only headers", &[delivery, event], "{}", ["Issue", "linear:d-1", "-"]),
            ("not JSON", &[delivery], "x", ["-", "linear:d-1", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(told("linear", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn age_is_no_reason_and_another_header_no_signature() {
        // HMAC-SHA256 of the body with the key "secret".
        let body = r#"{"webhookTimestamp":1}"#;
        let signature = "ddfc0e40f5cd54cef793e9ebca5bc71d37ef21a6d14c6a3e7b41fce90a27bfdd";
        let years_later = 1_779_024_000;
        let check =
            |name| verify("linear", &["secret"], &[(name, signature)], body, years_later).is_ok();
        assert!(check("linear-signature"));
        assert!(!check("x-linear-signature"));
    }

    #[test]
    fn a_comment_is_found_by_its_issue_and_author() {
        let body = r#"{"data":{"id":"c-1","issueId":"i-1"},"actor":{"id":"u-1","email":"ana@example.com"},"organizationId":"o-1"}"#;
        let expected =
            ["object=c-1", "object=i-1", "email=ana@example.com", "user=u-1", "account=o-1"];
        assert_eq!(about("linear", &[], body), expected);
    }
}
