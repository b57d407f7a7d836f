//! Calendly: timestamp and signature in one header; events have no id.

use surehook_types::time::HumanDuration;

use super::{
    EventKey, EventPart, JSON, ParsedRequest, Provider,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{Account, Email, Object, Phone, ProviderStatus},
    key::DedupKey,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier},
};

/// Calendly retries for a day.
const WINDOW: HumanDuration = HumanDuration::from_secs(2 * 86_400);

/// Calendly advises three minutes. It is undocumented whether retries are signed again, and after a
/// day of refusals the subscription is disabled, so the tolerance covers all retries. A replayed
/// request is a duplicate, because keys are remembered longer.
const TOLERANCE: HumanDuration = HumanDuration::from_secs(25 * 3600);

pub(super) static CALENDLY: Provider = Provider {
    name: "calendly",
    verifier: |secrets| {
        let spec = HmacSpec {
            template: "{timestamp}.{body}".to_owned(),
            signature_param: Some("v1".to_owned()),
            timestamp_param: Some("t".to_owned()),
            tolerance: TOLERANCE,
            ..HmacSpec::new("calendly-webhook-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["calendly-webhook-signature"],
    dedup_window: WINDOW,
    parse_request: |request, _| ParsedRequest::single(parse_event(request)),
    samples: &[
        sample!(JSON, "invitee.created", "calendly.invitee.created.json"),
        sample!(JSON, "invitee.canceled", "calendly.invitee.canceled.json"),
        sample!(JSON, "invitee_no_show.created", "calendly.invitee_no_show.created.json"),
        sample!(
            JSON,
            "routing_form_submission.created",
            "calendly.routing_form_submission.created.json"
        ),
    ],
    ..Provider::DEFAULT
};

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event}"],
    key: &["calendly:{/event}:{/payload/uri}:{/created_at}"],
    key_label: "calendly:event:uri:created_at",
    attributes: &[
        (Object, &["/payload/uri"]),
        (Email, &["/payload/email"]),
        (ProviderStatus, &["/payload/status"]),
        (Account, &["/created_by"]),
        (Phone, &["/payload/text_reminder_number"]),
    ],
    extra_fields: &MEETING_URIS,
    ..EventTemplate::EMPTY
});

/// Fields that may have the URI of the meeting, or of something that belongs to it.
const MEETING_URIS: [&str; 4] =
    ["/payload/uri", "/payload/scheduled_event/uri", "/payload/event", "/payload/invitee"];

fn parse_event(request: &IncomingRequest<'_>) -> EventPart {
    let found = EVENT.read(request);
    let mut event = found.event();
    let meeting = MEETING_URIS.iter().find_map(|uri| scheduled_event(found.get(uri)?));
    event.attributes.push_some(Object, meeting);
    event.ordering_key = meeting.and_then(DedupKey::new);
    let has_time = found.get("/event").is_some() && found.get("/created_at").is_some();
    if event.key == EventKey::None && has_time {
        // The body contains the time, so equal bytes are the same event.
        event.key = EventKey::ContentHash(WINDOW.0);
    }
    event
}

/// `EV` of `https://api.calendly.com/scheduled_events/EV/invitees/IN`.
fn scheduled_event(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("/scheduled_events/")?;
    rest.split(['/', '?']).next().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_events, attribute_pairs};
    use crate::provider::find;

    #[test]
    fn invitees_are_ordered_by_meeting() {
        assert_events(
            "calendly",
            &[],
            r#"
            case | body | kind | key | ordering key
            an invitee | {"event":"invitee.created","created_at":"T","payload":{"uri":"https://x/scheduled_events/EV/invitees/IN"}} | invitee.created | calendly:invitee.created:https://x/scheduled_events/EV/invitees/IN:T | EV
            a no-show | {"event":"invitee_no_show.created","created_at":"T","payload":{"uri":"https://x/invitee_no_shows/NS","invitee":"https://x/scheduled_events/EV/invitees/IN"}} | invitee_no_show.created | calendly:invitee_no_show.created:https://x/invitee_no_shows/NS:T | EV
            a form | {"event":"routing_form_submission.created","created_at":"T","payload":{"uri":"https://x/routing_form_submissions/RF"}} | routing_form_submission.created | calendly:routing_form_submission.created:https://x/routing_form_submissions/RF:T | -
            no URI | {"event":"new.kind","created_at":"T","payload":{}} | new.kind | content 172800s | -
            no time | {"event":"new.kind","payload":{"uri":"u"}} | new.kind | - | -
            no id in the URI | {"payload":{"uri":"https://x/scheduled_events//"}} | - | - | -
            not JSON | x | - | - | -
            "#,
        );
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
