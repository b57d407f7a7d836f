//! Linear: signed over the raw body without a timestamp; the delivery id is in a header.

use surehook_types::{secret::Secret, time::HumanDuration};

use super::{EventKey, EventPart, ParsedRequest, Provider, SampleEvent, fields::body_fields};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

body_fields! {
    /// `webhookId` is not used: it is the same in all events of a webhook.
    static FIELDS {
        TYPE = "/type",
        ACTION = "/action",
        DATA_ID = "/data/id",
        IDENTIFIER = "/data/identifier",
        ISSUE_ID = "/data/issueId",
        ACTOR_ID = "/actor/id",
        ACTOR_EMAIL = "/actor/email",
        ORGANIZATION_ID = "/organizationId",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 6] = [
    (AttributeName::Object, DATA_ID),
    (AttributeName::Object, IDENTIFIER),
    (AttributeName::Object, ISSUE_ID),
    (AttributeName::User, ACTOR_ID),
    (AttributeName::Email, ACTOR_EMAIL),
    (AttributeName::Account, ORGANIZATION_ID),
];

#[derive(Debug)]
pub(super) struct Linear;

impl Provider for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    /// Age is not checked: it is undocumented whether `webhookTimestamp` is renewed when Linear retries
    /// after one and six hours, and a replayed request has the same delivery id.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Verifier::hmac(HmacSpec::new("linear-signature"), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let kind = match (found.get(TYPE), found.get(ACTION)) {
            (Some(thing), Some(action)) => EventKind::new(&format!("{thing}.{action}")),
            (thing, _) => thing.or_else(|| request.header("linear-event")).and_then(EventKind::new),
        };
        let delivery = request.header("linear-delivery");
        let key = delivery.and_then(|id| DedupKey::new(&format!("linear:{id}")));
        ParsedRequest::single(EventPart {
            kind,
            key: EventKey::known(key, "linear:linear-delivery"),
            order: found.get(DATA_ID).and_then(DedupKey::new),
            attributes: found.attributes(&ATTRIBUTES),
            ..EventPart::default()
        })
    }

    /// The last of three attempts comes seven hours after the first.
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
    use super::super::testing::{attribute_pairs, summary, verify};

    #[test]
    fn key_is_the_delivery_header_and_never_the_webhook_id() {
        let delivery = ("linear-delivery", "d-1");
        let event = ("linear-event", "Issue");
        let issue = r#"{"action":"update","type":"Issue","data":{"id":"i-1"},"webhookId":"w-1"}"#;
        let cases: [(_, &[_], _, _); 5] = [
            ("typical", &[delivery, event], issue, ["Issue.update", "linear:d-1", "i-1"]),
            ("no delivery", &[event], issue, ["Issue.update", "-", "i-1"]),
            ("no action", &[delivery], r#"{"type":"Issue"}"#, ["Issue", "linear:d-1", "-"]),
            ("only headers", &[delivery, event], "{}", ["Issue", "linear:d-1", "-"]),
            ("not JSON", &[delivery], "x", ["-", "linear:d-1", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(summary("linear", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn old_request_is_accepted_and_other_header_is_ignored() {
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
    fn attributes_include_issue_and_author() {
        let body = r#"{"data":{"id":"c-1","issueId":"i-1"},"actor":{"id":"u-1","email":"ana@example.com"},"organizationId":"o-1"}"#;
        let expected =
            ["object=c-1", "object=i-1", "email=ana@example.com", "user=u-1", "account=o-1"];
        assert_eq!(attribute_pairs("linear", &[], body), expected);
    }
}
