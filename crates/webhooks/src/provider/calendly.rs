//! Calendly: timestamp and signature in one header; events have no id.

use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, EventPart, FieldValues, ParsedRequest, Provider, SampleEvent, fields::body_fields,
};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

body_fields! {
    static FIELDS {
        EVENT = "/event",
        CREATED_AT = "/created_at",
        URI = "/payload/uri",
        SCHEDULED_EVENT_URI = "/payload/scheduled_event/uri",
        PAYLOAD_EVENT = "/payload/event",
        INVITEE = "/payload/invitee",
        EMAIL = "/payload/email",
        STATUS = "/payload/status",
        CREATED_BY = "/created_by",
        REMINDER_NUMBER = "/payload/text_reminder_number",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 5] = [
    (AttributeName::Object, URI),
    (AttributeName::Email, EMAIL),
    (AttributeName::ProviderStatus, STATUS),
    (AttributeName::Account, CREATED_BY),
    (AttributeName::Phone, REMINDER_NUMBER),
];

/// Calendly retries for a day.
const WINDOW: HumanDuration = HumanDuration::from_secs(2 * 86_400);

/// Calendly advises three minutes. It is undocumented whether retries are signed again, and after a
/// day of refusals the subscription is disabled, so the tolerance covers all retries. A replayed
/// request is a duplicate, because keys are remembered longer.
const TOLERANCE: HumanDuration = HumanDuration::from_secs(25 * 3600);

#[derive(Debug)]
pub(super) struct Calendly;

impl Provider for Calendly {
    fn name(&self) -> &'static str {
        "calendly"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            template: "{timestamp}.{body}".to_owned(),
            signature_param: Some("v1".to_owned()),
            timestamp_param: Some("t".to_owned()),
            tolerance: TOLERANCE,
            ..HmacSpec::new("calendly-webhook-signature")
        };
        Verifier::hmac(spec, secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let meeting = [URI, SCHEDULED_EVENT_URI, PAYLOAD_EVENT, INVITEE]
            .into_iter()
            .find_map(|field| scheduled_event(&found[field]));
        let mut attributes = found.attributes(&ATTRIBUTES);
        attributes.push_some(AttributeName::Object, meeting);
        ParsedRequest::single(EventPart {
            kind: found.get(EVENT).and_then(EventKind::new),
            key: key(&found),
            order: meeting.and_then(DedupKey::new),
            attributes,
            ..EventPart::default()
        })
    }

    fn dedup_window(&self) -> HumanDuration {
        WINDOW
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["calendly-webhook-signature"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

fn key(found: &FieldValues<'_>) -> EventKey {
    match found.key("calendly", &[EVENT, URI, CREATED_AT]) {
        // The body contains the time, so equal bytes are the same event.
        None if found.get(EVENT).is_some() && found.get(CREATED_AT).is_some() => {
            EventKey::ContentHash(WINDOW.0)
        }
        key => EventKey::known(key, "calendly:event:uri:created_at"),
    }
}

/// `EV` of `https://api.calendly.com/scheduled_events/EV/invitees/IN`.
fn scheduled_event(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("/scheduled_events/")?;
    rest.split(['/', '?']).next().filter(|id| !id.is_empty())
}

macro_rules! sample {
    ($kind:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[("content-type", "application/json")],
            target: "",
            body: include_str!(concat!("samples/calendly.", $kind, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("invitee.created"),
    sample!("invitee.canceled"),
    sample!("invitee_no_show.created"),
    sample!("routing_form_submission.created"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute_pairs, summary};
    use crate::provider::find;

    #[test]
    fn invitees_are_ordered_by_meeting() {
        let cases = [
            (
                "an invitee",
                r#"{"event":"invitee.created","created_at":"T","payload":{"uri":"https://x/scheduled_events/EV/invitees/IN"}}"#,
                [
                    "invitee.created",
                    "calendly:invitee.created:https://x/scheduled_events/EV/invitees/IN:T",
                    "EV",
                ],
            ),
            (
                "a no-show",
                r#"{"event":"invitee_no_show.created","created_at":"T","payload":{"uri":"https://x/invitee_no_shows/NS","invitee":"https://x/scheduled_events/EV/invitees/IN"}}"#,
                [
                    "invitee_no_show.created",
                    "calendly:invitee_no_show.created:https://x/invitee_no_shows/NS:T",
                    "EV",
                ],
            ),
            (
                "a form",
                r#"{"event":"routing_form_submission.created","created_at":"T","payload":{"uri":"https://x/routing_form_submissions/RF"}}"#,
                [
                    "routing_form_submission.created",
                    "calendly:routing_form_submission.created:https://x/routing_form_submissions/RF:T",
                    "-",
                ],
            ),
            (
                "no URI",
                r#"{"event":"new.kind","created_at":"T","payload":{}}"#,
                ["new.kind", "content 172800s", "-"],
            ),
            ("no time", r#"{"event":"new.kind","payload":{"uri":"u"}}"#, ["new.kind", "-", "-"]),
            (
                "no id in the URI",
                r#"{"payload":{"uri":"https://x/scheduled_events//"}}"#,
                ["-", "-", "-"],
            ),
            ("not JSON", "x", ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(summary("calendly", &[], body), expected, "case: {name}");
        }
    }

    #[test]
    fn attributes_include_invitee_and_meeting() {
        let body = r#"{"created_by":"https://x/users/A","payload":{"uri":"https://x/scheduled_events/EV/invitees/IN","email":"ana@example.com","status":"canceled"}}"#;
        let expected = [
            "object=https://x/scheduled_events/EV/invitees/IN",
            "object=EV",
            "email=ana@example.com",
            "account=https://x/users/A",
            "provider_status=canceled",
        ];
        assert_eq!(attribute_pairs("calendly", &[], body), expected);
    }

    #[test]
    fn tolerance_covers_all_attempts() {
        use surehook_types::{secret::Secret, time::Timestamp};

        use crate::request::OutgoingRequest;
        let verifier = find("calendly").unwrap().verifier(vec![Secret::new("key")]).unwrap();
        let none = http::HeaderMap::new();
        let outgoing = OutgoingRequest { id: "", url: "", headers: &none, body: b"{}" };
        let signed = verifier.sign(&outgoing, Timestamp::from_millis(1_000_000)).unwrap();
        let value = signed.headers[0].1.as_str();
        let check = |now| {
            let headers = [("calendly-webhook-signature", value)];
            super::super::testing::verify("calendly", &["key"], &headers, "{}", now).is_ok()
        };
        assert_eq!(
            [check(1000), check(91_000), check(91_001), check(-89_000), check(-89_001)],
            [true, true, false, true, false]
        );
    }
}
