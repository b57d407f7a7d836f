//! Zoom: signed with a timestamp; asks again and again whether the address is still ours.

use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::Sha256;

use super::{
    BodyFields, EventKey, EventPart, FieldValues, ParsedRequest, Provider, ProviderReply,
    SampleEvent,
};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/event",
        "/event_ts",
        "/payload/plainToken",
        "/payload/object/uuid",
        "/payload/object/id",
        "/payload/object/participant/participant_uuid",
        "/payload/object/participant/user_id",
        "/payload/account_id",
        "/payload/object/host_id",
        "/payload/operator_id",
        "/payload/object/participant/email",
        "/payload/operator",
    ])
});

const ABOUT: [(AttributeName, usize); 9] = [
    (AttributeName::Object, 3),
    (AttributeName::Object, 4),
    (AttributeName::User, 5),
    (AttributeName::User, 6),
    (AttributeName::Account, 7),
    (AttributeName::User, 8),
    (AttributeName::User, 9),
    (AttributeName::Email, 10),
    (AttributeName::Email, 11),
];

/// It sends again for two hours and a bit.
const WINDOW: HumanDuration = HumanDuration::from_secs(86_400);

#[derive(Debug)]
pub(super) struct Zoom;

impl Provider for Zoom {
    fn name(&self) -> &'static str {
        "zoom"
    }

    /// The tolerance spans its retries, because it is not known whether they are signed anew.
    /// Nothing is lost by it: the key is made of the signed body, so that whatever is sent once
    /// more is a duplicate for longer than it is let in.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            prefix: "v0=".to_owned(),
            template: "v0:{timestamp}:{body}".to_owned(),
            timestamp_header: Some("x-zm-request-timestamp".to_owned()),
            tolerance: HumanDuration::from_secs(3 * 3600),
            ..HmacSpec::new("x-zm-signature")
        };
        Verifier::hmac(spec, secrets)
    }

    fn parse_request(
        &self,
        request: &IncomingRequest<'_>,
        secret: Option<&Secret>,
    ) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let is_question = found.get(0) == Some("endpoint.url_validation");
        if is_question && let (Some(token), Some(secret)) = (found.get(2), secret) {
            return ParsedRequest::Handshake(validation(token, secret));
        }
        ParsedRequest::one(EventPart {
            kind: found.get(0).and_then(EventKind::new),
            key: key(&found),
            order: found.first(&[4, 3]).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            is_ping: is_question,
            ..EventPart::default()
        })
    }

    fn dedup_window(&self) -> HumanDuration {
        WINDOW
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-zm-signature", "x-zm-request-timestamp"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

/// Events have no id. Two people may join a meeting in one millisecond, so they are part of the
/// key; and since the time is in the body, equal bytes are the same event.
fn key(found: &FieldValues<'_>) -> EventKey {
    if found.get(0).is_none() || found.get(1).is_none() {
        return EventKey::None;
    }
    let mut places = vec![0, 1];
    match [3, 4].into_iter().find(|place| found.get(*place).is_some()) {
        Some(object) => places.push(object),
        None => return EventKey::ContentHash(WINDOW.0),
    }
    places.extend([5, 6].into_iter().find(|place| found.get(*place).is_some()));
    EventKey::known(found.key("zoom", &places), "zoom:event:event_ts:object")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Validation<'t> {
    plain_token: &'t str,
    encrypted_token: String,
}

/// Proves that we know the secret.
fn validation(plain_token: &str, secret: &Secret) -> ProviderReply {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose())
        .expect("HMAC takes keys of any length (RFC 2104)");
    mac.update(plain_token.as_bytes());
    let encrypted_token = HEXLOWER.encode(&mac.finalize().into_bytes());
    let answer = Validation { plain_token, encrypted_token };
    ProviderReply::json(serde_json::to_vec(&answer).unwrap_or_default())
}

macro_rules! sample {
    ($kind:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[("content-type", "application/json; charset=utf-8")],
            target: "",
            body: include_str!(concat!("samples/zoom.", $kind, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("meeting.started"),
    sample!("meeting.ended"),
    sample!("meeting.participant_joined"),
    sample!("recording.completed"),
    sample!("endpoint.url_validation"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{about, incoming, part, read, told, verify};
    use super::*;

    #[test]
    fn events_without_an_id_get_one_of_what_they_have() {
        let cases = [
            (
                "a meeting",
                r#"{"event":"meeting.started","event_ts":5,"payload":{"object":{"uuid":"u==","id":"123"}}}"#,
                ["meeting.started", "zoom:meeting.started:5:u==", "123"],
            ),
            (
                "somebody in it",
                r#"{"event":"meeting.participant_joined","event_ts":5,"payload":{"object":{"uuid":"u==","id":123,"participant":{"user_id":"16","participant_uuid":"p1"}}}}"#,
                ["meeting.participant_joined", "zoom:meeting.participant_joined:5:u==:p1", "123"],
            ),
            (
                "somebody else in the same millisecond",
                r#"{"event":"meeting.participant_joined","event_ts":5,"payload":{"object":{"uuid":"u==","id":123,"participant":{"user_id":"17"}}}}"#,
                ["meeting.participant_joined", "zoom:meeting.participant_joined:5:u==:17", "123"],
            ),
            (
                "a user",
                r#"{"event":"user.created","event_ts":5,"payload":{"object":{"id":"z8"}}}"#,
                ["user.created", "zoom:user.created:5:z8", "z8"],
            ),
            (
                "nothing to name it by",
                r#"{"event":"app_deauthorized","event_ts":5,"payload":{"account_id":"a"}}"#,
                ["app_deauthorized", "content 86400s", "-"],
            ),
            (
                "no time",
                r#"{"event":"user.created","payload":{"object":{"id":"z8"}}}"#,
                ["user.created", "-", "z8"],
            ),
            ("not JSON", "x", ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(told("zoom", &[], body), expected, "case: {name}");
        }
    }

    #[test]
    fn the_question_is_answered_with_the_secret_that_fitted() {
        let body = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
        let ParsedRequest::Handshake(reply) = read("zoom", &[], body) else {
            panic!("no greeting")
        };
        let expected = concat!(
            r#"{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":""#,
            r#"72cef096bfd47c0b8664df30d07721641e4abd7e885ba432204260db477a9a3e"}"#
        );
        assert_eq!(String::from_utf8_lossy(&reply.body), expected);
        assert_eq!((reply.status.as_u16(), reply.content_type), (200, Some("application/json")));
        // Without a secret there is no proof, and it is kept like a ping.
        let headers = http::HeaderMap::new();
        let request = incoming(&headers, body);
        let ParsedRequest::Events(parts) = Zoom.parse_request(&request, None) else {
            panic!("no event")
        };
        assert!(parts[0].is_ping);
        assert!(!part("zoom", &[], r#"{"event":"meeting.ended"}"#).is_ping);
    }

    #[test]
    fn what_it_sends_again_is_let_in_and_no_longer() {
        let at = ("x-zm-request-timestamp", "1000");
        let mut mac = Hmac::<Sha256>::new_from_slice(b"s").unwrap();
        mac.update(b"v0:1000:{}");
        let signature = format!("v0={}", HEXLOWER.encode(&mac.finalize().into_bytes()));
        let check = |now| verify("zoom", &["s"], &[at, ("x-zm-signature", &signature)], "{}", now);
        assert!(check(1000 + 3 * 3600).is_ok());
        assert!(check(1001 + 3 * 3600).is_err());
        assert!(Zoom.dedup_window().0.as_secs() > 2 * 3 * 3600);
    }

    #[test]
    fn a_meeting_is_found_by_its_ids_and_people() {
        let body = r#"{"event":"meeting.started","payload":{"account_id":"a","operator":"ana@example.com","object":{"uuid":"u==","id":"123","host_id":"h"}}}"#;
        let expected = ["object=u==", "object=123", "email=ana@example.com", "user=h", "account=a"];
        assert_eq!(about("zoom", &[], body), expected);
    }
}
