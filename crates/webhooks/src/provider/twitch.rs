//! Twitch `EventSub`: signed over id, time and body. A new subscription is confirmed by a signed challenge,
//! and its end is announced by a message without an event.

use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventPart, HandshakeKind, ParsedRequest, Provider, ProviderReply, SampleEvent,
    fields::{EventReader, EventTemplate},
    raw_json,
};
use crate::{
    attribute::{
        AttributeName::{Account, Object, ProviderStatus, User},
        EventKind,
    },
    request::IncomingRequest,
    verify::{HmacSpec, TimestampUnit, Verifier},
};

/// The kind of the message that ends a subscription.
const REVOCATION: &str = "revocation";

// https://dev.twitch.tv/docs/eventsub/handling-webhook-events/
pub(super) static TWITCH: Provider = Provider {
    name: "twitch",
    verifier: |secrets| {
        let spec = HmacSpec {
            prefix: "sha256=".to_owned(),
            template: "{id}{timestamp}{body}".to_owned(),
            id_header: Some("twitch-eventsub-message-id".to_owned()),
            timestamp_header: Some("twitch-eventsub-message-timestamp".to_owned()),
            timestamp_unit: TimestampUnit::Iso8601,
            // Twitch asks receivers to ignore older messages.
            tolerance: HumanDuration::from_secs(600),
            ..HmacSpec::new("twitch-eventsub-message-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["twitch-eventsub-message-signature", "twitch-eventsub-message-timestamp"],
    dedup_window: HumanDuration::from_secs(86_400),
    handshake: HandshakeKind::Automatic,
    parse_request,
    samples: &[
        SampleEvent::json(
            "channel.follow",
            r#"{"subscription":{"id":"f1c2a387-161a-49f9-a165-0f21d7a4e1c4","type":"channel.follow","version":"2","status":"enabled","cost":0,"condition":{"broadcaster_user_id":"12826","moderator_user_id":"12826"},"transport":{"method":"webhook","callback":"https://hooks.example.com/in/twitch"},"created_at":"2026-05-01T10:11:12.634234626Z"},"event":{"user_id":"{{number}}","user_login":"ana","user_name":"Ana","broadcaster_user_id":"12826","broadcaster_user_login":"loja","broadcaster_user_name":"Loja","followed_at":"{{now_iso}}"}}"#,
        ),
        SampleEvent::json(
            "stream.online",
            r#"{"subscription":{"id":"f1c2a387-161a-49f9-a165-0f21d7a4e1c5","type":"stream.online","version":"1","status":"enabled","cost":0,"condition":{"broadcaster_user_id":"12826"},"transport":{"method":"webhook","callback":"https://hooks.example.com/in/twitch"},"created_at":"2026-05-01T10:11:12.634234626Z"},"event":{"id":"{{number}}","broadcaster_user_id":"12826","broadcaster_user_login":"loja","broadcaster_user_name":"Loja","type":"live","started_at":"{{now_iso}}"}}"#,
        ),
        SampleEvent::json(
            REVOCATION,
            r#"{"subscription":{"id":"f1c2a387-161a-49f9-a165-{{number}}","type":"channel.follow","version":"2","status":"authorization_revoked","cost":1,"condition":{"broadcaster_user_id":"12826","moderator_user_id":"12826"},"transport":{"method":"webhook","callback":"https://hooks.example.com/in/twitch"},"created_at":"2026-05-01T10:11:12.634234626Z"}}"#,
        ),
        SampleEvent::json(
            "webhook_callback_verification",
            r#"{"challenge":"pogchamp-kappa-{{id}}","subscription":{"id":"f1c2a387-161a-49f9-a165-0f21d7a4e1c4","status":"webhook_callback_verification_pending","type":"channel.follow","version":"2","cost":1,"condition":{"broadcaster_user_id":"12826"},"transport":{"method":"webhook","callback":"https://hooks.example.com/in/twitch"},"created_at":"{{now_iso}}"}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// The message id is the same at every attempt, and is signed. The type of the message is in a header
/// that is not signed, so it is read from the body.
static MESSAGE: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/subscription/type}"],
    key: &["twitch:{twitch-eventsub-message-id}"],
    key_label: "twitch:message-id",
    are_key_headers_signed: true,
    ordering_key: &[
        "{/event/broadcaster_user_id|/subscription/condition/broadcaster_user_id|/event/user_id}",
    ],
    attributes: &[
        (Account, &["/event/broadcaster_user_id"]),
        (Account, &["/subscription/condition/broadcaster_user_id"]),
        (User, &["/event/user_id"]),
        (Object, &["/event/id", "/subscription/id"]),
    ],
    extra_fields: &["/challenge", "/event", "/events", "/subscription/status"],
});

/// An event of a batch, as drops are sent.
static BATCHED_EVENT: EventReader = EventReader::new(&EventTemplate {
    key: &["twitch:{/id}"],
    key_label: "twitch:id",
    ordering_key: &["{/data/user_id}"],
    attributes: &[(Object, &["/id", "/data/entitlement_id"]), (User, &["/data/user_id"])],
    ..EventTemplate::EMPTY
});

fn parse_request(request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
    let message = MESSAGE.read(request);
    let mut event = message.event();
    if let Some(events) = message.raw("/events") {
        let read = |item: &[u8]| EventPart {
            kind: event.kind.clone(),
            ..BATCHED_EVENT.read_json(item).event()
        };
        if let Some(parts) = raw_json::split_list(request.body, events, read) {
            return ParsedRequest::Events(parts);
        }
    }
    let has_event = message.raw("/event").is_some() || message.raw("/events").is_some();
    match (message.get("/challenge"), message.get("/subscription/status")) {
        (Some(challenge), _) if !has_event => {
            return ParsedRequest::Handshake(ProviderReply::text(challenge.to_owned()));
        }
        (None, Some(status)) if !has_event => {
            event.kind = EventKind::new(REVOCATION);
            event.attributes.push_some(ProviderStatus, Some(status));
        }
        (_, _) => {}
    }
    ParsedRequest::single(event)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestCall, attribute_pairs, event_summary, parts, summary};

    const ID: &str = "twitch-eventsub-message-id";
    const TIME: &str = "twitch-eventsub-message-timestamp";
    const SIGNATURE: &str = "twitch-eventsub-message-signature";
    const NOW: i64 = 1_779_024_000_000;

    fn call(body: &str) -> TestCall {
        TestCall::new("twitch", "s3cre7-of-ten-letters").at(NOW).body(body).signed()
    }

    /// Made with Python's `hmac` from the description in the documentation.
    #[test]
    fn documented_construction_is_accepted() {
        let body = r#"{"challenge":"pogchamp-kappa-360noscope-vohiyo","subscription":{"status":"webhook_callback_verification_pending"}}"#;
        let call = TestCall::new(
            "twitch",
            "5f1a6e7cd2e7137ccf9e15b2f43fe63949eb84b1db83c1d5a867dc93429de4e4",
        )
        .at(1_573_750_402_634)
        .header(ID, "e76c6bd4-55c9-4987-8304-da1588d8988b")
        .header(TIME, "2019-11-14T16:53:22.634234626Z")
        .header(
            SIGNATURE,
            "sha256=4f95261f818df5d678b2b9dae20f2d9ae6a24628e0ea261977afb57d9d07579f",
        )
        .body(body);
        assert_eq!(call.verify(), Ok(0));
        let reply =
            (200, Some("text/plain; charset=utf-8"), "pogchamp-kappa-360noscope-vohiyo".into());
        assert_eq!(call.reply(), Some(reply));
    }

    #[test]
    fn signature_covers_id_time_and_body() {
        let good = call(r#"{"event":{}}"#);
        let cases = [
            ("good", good.clone(), Ok(0)),
            ("ten minutes old", good.clone().at(NOW + 600_000), Ok(0)),
            ("older", good.clone().at(NOW + 600_001), Err("stale")),
            ("from the future", good.clone().at(NOW - 600_001), Err("stale")),
            ("another id", good.clone().header(ID, "msg_2"), Err("mismatch")),
            ("no id", good.clone().without(ID), Err("missing_id")),
            ("no time", good.clone().without(TIME), Err("missing_timestamp")),
            ("no signature", good.clone().without(SIGNATURE), Err("missing_signature")),
            ("another body", good.clone().body("{}"), Err("mismatch")),
            ("another secret", good.secrets(&["other"]), Err("mismatch")),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
    }

    #[test]
    fn challenge_is_answered_with_its_text_and_is_no_event() {
        let challenge = r#"{"challenge":"abc \"d\" é","subscription":{"status":"x","type":"t"}}"#;
        let text = Some("text/plain; charset=utf-8");
        assert_eq!(call(challenge).reply(), Some((200, text, r#"abc "d" é"#.to_owned())));
        let event = r#"{"challenge":"abc","subscription":{"type":"t"},"event":{"id":"1"}}"#;
        assert_eq!(call(event).reply(), None, "an event that has a field of this name");
    }

    #[test]
    fn messages_are_keyed_by_their_signed_id() {
        let id = [(ID, "m1"), ("twitch-eventsub-message-type", "webhook_callback_verification")];
        let cases = [
            (
                r#"{"subscription":{"type":"channel.follow","status":"enabled"},"event":{"user_id":"7","broadcaster_user_id":"12"}}"#,
                ["channel.follow", "twitch:m1", "12"],
            ),
            (
                r#"{"subscription":{"id":"s1","type":"channel.follow","status":"user_removed","condition":{"broadcaster_user_id":"12"}}}"#,
                ["revocation", "twitch:m1", "12"],
            ),
            ("not JSON", ["-", "twitch:m1", "-"]),
        ];
        for (body, expected) in cases {
            assert_eq!(summary("twitch", &id, body), expected, "{body}");
        }
        let revoked = r#"{"subscription":{"id":"s1","type":"t","status":"authorization_revoked"}}"#;
        let expected = ["object=s1", "provider_status=authorization_revoked"];
        assert_eq!(attribute_pairs("twitch", &id, revoked), expected);
    }

    #[test]
    fn each_event_of_a_batch_is_an_event() {
        let batch = r#"{"subscription":{"type":"drop.entitlement.grant"},"events":[{"id":"a","data":{"user_id":"1"}},{"id":"b","data":{"user_id":"2"}}]}"#;
        let parts = parts("twitch", &[(ID, "m1")], batch);
        let found: Vec<_> = parts.iter().map(event_summary).collect();
        let kind = "drop.entitlement.grant";
        assert_eq!(found, [[kind, "twitch:a", "1"], [kind, "twitch:b", "2"]]);
        let first = r#"{"subscription":{"type":"drop.entitlement.grant"},"events":[{"id":"a","data":{"user_id":"1"}}]}"#;
        assert_eq!(parts[0].body.as_deref(), Some(first.as_bytes()));
    }
}
