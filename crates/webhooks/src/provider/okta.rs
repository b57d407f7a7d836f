//! Okta event hooks: a secret in the `Authorization` header, several events per request, and a GET with a
//! challenge before the first of them.

use http::{Method, StatusCode};
use serde::Serialize;
use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    HandshakeAnswer, HandshakeKind, HandshakeRequest, ParsedRequest, Provider, ProviderReply,
    RefusalPolicy, SampleEvent,
    fields::{EventReader, EventTemplate},
    raw_json,
};
use crate::{
    attribute::AttributeName::{Account, Email, Object, ProviderStatus, User},
    request::IncomingRequest,
    verify::{Verifier, VerifyError, VerifySpec},
};

const CHALLENGE: &str = "x-okta-verification-challenge";
/// Okta's challenges have some 40 characters; longer texts are not echoed.
const CHALLENGE_BYTES_MAX: usize = 512;

// https://developer.okta.com/docs/concepts/event-hooks/
pub(super) static OKTA: Provider = Provider {
    name: "okta",
    verifier: |secrets| {
        Verifier::new(&VerifySpec::Token { header: "authorization".to_owned() }, secrets)
    },
    secret_header: Some("authorization"),
    // One retry, and none after a 4xx: a wrong secret must not lose events.
    on_refusal: RefusalPolicy::Keep,
    dedup_window: HumanDuration::from_secs(2 * 86_400),
    handshake: HandshakeKind::Automatic,
    answer_handshake,
    parse_request,
    success_reply: |_| Some(ProviderReply::empty(StatusCode::OK)),
    samples: &[
        SampleEvent::json(
            "user.session.start",
            r#"{"eventType":"com.okta.event_hook","eventTypeVersion":"1.0","cloudEventsVersion":"0.1","contentType":"application/json","eventId":"{{uuid}}","eventTime":"{{now_iso}}","source":"https://loja.okta.com/api/v1/eventHooks/whoql0HfiLGPWc8Jx0g3","data":{"events":[{"version":"0","severity":"INFO","actor":{"id":"00u1{{number}}","type":"User","alternateId":"ana.souza@example.com","displayName":"Ana Souza"},"outcome":{"result":"SUCCESS"},"uuid":"{{uuid}}","published":"{{now_iso}}","eventType":"user.session.start","displayMessage":"User login to Okta","transaction":{"type":"WEB","id":"V04Oy4ubUOc5UuG6s9DyNQAABtc"}}]}}"#,
        ),
        SampleEvent::json(
            "user.lifecycle.create",
            r#"{"eventType":"com.okta.event_hook","eventTypeVersion":"1.0","cloudEventsVersion":"0.1","contentType":"application/json","eventId":"{{uuid}}","eventTime":"{{now_iso}}","source":"https://loja.okta.com/api/v1/eventHooks/whoql0HfiLGPWc8Jx0g3","data":{"events":[{"version":"0","severity":"INFO","actor":{"id":"00u1qw6mqitPHM8AJ0g7","type":"User","alternateId":"admin@example.com","displayName":"Admin"},"outcome":{"result":"SUCCESS"},"target":[{"id":"00u2{{number}}","type":"User","alternateId":"bia@example.com","displayName":"Bia"}],"uuid":"{{uuid}}","published":"{{now_iso}}","eventType":"user.lifecycle.create","displayMessage":"Create Okta user"}]}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static REQUEST: EventReader = EventReader::new(&EventTemplate {
    attributes: &[(Account, &["/source"])],
    extra_fields: &["/data/events"],
    ..EventTemplate::EMPTY
});

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/eventType}"],
    key: &["okta:{/uuid}"],
    key_label: "okta:uuid",
    ordering_key: &["{/target/0/id|/actor/id}"],
    attributes: &[
        (Object, &["/target/0/id", "/target/1/id"]),
        (User, &["/actor/id"]),
        (Email, &["/target/0/alternateId", "/actor/alternateId"]),
        (ProviderStatus, &["/outcome/result"]),
    ],
    ..EventTemplate::EMPTY
});

#[derive(Serialize)]
struct VerificationReply<'c> {
    verification: &'c str,
}

/// Echoes the challenge. It proves that the URL is ours, and nothing about the caller.
fn answer_handshake(request: &HandshakeRequest<'_>) -> HandshakeAnswer {
    let challenge = request.headers.get(CHALLENGE).filter(|_| request.method == Method::GET)?;
    let challenge = challenge.to_str().ok();
    let challenge = challenge.filter(|text| (1..=CHALLENGE_BYTES_MAX).contains(&text.len()));
    let reply = |verification| {
        // A string always serializes.
        let body = serde_json::to_vec(&VerificationReply { verification }).unwrap_or_default();
        ProviderReply::json(body)
    };
    Some(challenge.map(reply).ok_or(VerifyError::Malformed { part: "handshake" }))
}

fn parse_request(request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
    let found = REQUEST.read(request);
    let read = |item: &[u8]| {
        let mut event = EVENT.read_json(item).event();
        found.add_attributes(&mut event.attributes);
        event
    };
    let events = found.raw("/data/events");
    ParsedRequest::list(events.and_then(|events| raw_json::split_list(request.body, events, read)))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::{
        super::{
            HandshakeRequest, ProviderReply,
            testing::{TestCall, attribute_pairs, event_summary, headers, parts},
        },
        OKTA,
    };
    use crate::verify::VerifyError;

    #[test]
    fn secret_of_the_authorization_header_is_compared() {
        let call = TestCall::new("okta", "the-secret-of-the-event-hook").body("{}");
        let sent = |text: &str| call.clone().header("authorization", text).verify();
        assert_eq!(sent("the-secret-of-the-event-hook"), Ok(0));
        assert_eq!(sent("Bearer the-secret-of-the-event-hook"), Ok(0));
        assert_eq!(sent("another secret"), Err("mismatch"));
        assert_eq!(call.verify(), Err("missing_credentials"));
        assert_eq!(call.reply(), Some((200, None, String::new())));
    }

    #[test]
    fn challenge_of_a_get_request_is_echoed() {
        let answer = |method: &Method, headers: &HeaderMap| {
            let request =
                HandshakeRequest { method, query: None, headers, body: b"", verify_token: None };
            OKTA.answer_handshake(&request)
        };
        let challenge = |text: &str| headers(&[("x-okta-verification-challenge", text)]);
        let sent = challenge("Me_rShK8JHsTnbyYrWXCEoMGbM_zsZ6k0hLPZ_Pg");
        let reply = r#"{"verification":"Me_rShK8JHsTnbyYrWXCEoMGbM_zsZ6k0hLPZ_Pg"}"#;
        assert_eq!(answer(&Method::GET, &sent), Some(Ok(ProviderReply::json(reply))));
        assert_eq!(
            answer(&Method::GET, &challenge(r#"a"b"#)),
            Some(Ok(ProviderReply::json(r#"{"verification":"a\"b"}"#)))
        );
        let malformed = Some(Err(VerifyError::Malformed { part: "handshake" }));
        assert_eq!(answer(&Method::GET, &challenge("")), malformed);
        assert_eq!(answer(&Method::GET, &challenge(&"a".repeat(513))), malformed);
        assert_eq!(answer(&Method::GET, &headers(&[])), None);
        assert_eq!(answer(&Method::POST, &sent), None);
    }

    #[test]
    fn each_item_is_an_event_keyed_by_its_uuid() {
        let one = r#"{"uuid":"u1","eventType":"user.session.start","actor":{"id":"a1","alternateId":"ana@example.com"},"outcome":{"result":"SUCCESS"},"target":null}"#;
        let two = r#"{"uuid":"u2","eventType":"group.user_membership.add","actor":{"id":"a1"},"target":[{"id":"t1"},{"id":"g1"}]}"#;
        let request = |items: &str| {
            format!(r#"{{"eventId":"e","source":"https://o/x","data":{{"events":[{items}]}}}}"#)
        };
        let found = |body: &str| {
            let parts = parts("okta", &[], body);
            parts.iter().map(|part| (event_summary(part), part.body.is_some())).collect::<Vec<_>>()
        };
        let first = ["user.session.start", "okta:u1", "a1"].map(str::to_owned);
        let second = ["group.user_membership.add", "okta:u2", "t1"].map(str::to_owned);
        assert_eq!(found(&request(one)), [(first.clone(), false)]);
        assert_eq!(found(&request(&format!("{one},{two}"))), [(first, true), (second, true)]);
        assert_eq!(found(&request("")), []);
        assert_eq!(found("{}"), [(["-", "-", "-"].map(str::to_owned), false)]);
        assert_eq!(
            attribute_pairs("okta", &[], &request(one)),
            ["email=ana@example.com", "user=a1", "account=https://o/x", "provider_status=SUCCESS"]
        );
    }
}
