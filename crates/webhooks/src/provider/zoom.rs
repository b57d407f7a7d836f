//! Zoom: signed with a timestamp; revalidates the URL regularly.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::Sha256;
use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, EventPart, FieldValues, ParsedRequest, Provider, ProviderReply, SampleEvent,
    fields::body_fields,
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
        EVENT_TS = "/event_ts",
        PLAIN_TOKEN = "/payload/plainToken",
        OBJECT_UUID = "/payload/object/uuid",
        OBJECT_ID = "/payload/object/id",
        PARTICIPANT_UUID = "/payload/object/participant/participant_uuid",
        PARTICIPANT_USER_ID = "/payload/object/participant/user_id",
        ACCOUNT_ID = "/payload/account_id",
        HOST_ID = "/payload/object/host_id",
        OPERATOR_ID = "/payload/operator_id",
        PARTICIPANT_EMAIL = "/payload/object/participant/email",
        OPERATOR = "/payload/operator",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 9] = [
    (AttributeName::Object, OBJECT_UUID),
    (AttributeName::Object, OBJECT_ID),
    (AttributeName::User, PARTICIPANT_UUID),
    (AttributeName::User, PARTICIPANT_USER_ID),
    (AttributeName::Account, ACCOUNT_ID),
    (AttributeName::User, HOST_ID),
    (AttributeName::User, OPERATOR_ID),
    (AttributeName::Email, PARTICIPANT_EMAIL),
    (AttributeName::Email, OPERATOR),
];

/// Zoom retries for a little over two hours.
const WINDOW: HumanDuration = HumanDuration::from_secs(86_400);

#[derive(Debug)]
pub(super) struct Zoom;

impl Provider for Zoom {
    fn name(&self) -> &'static str {
        "zoom"
    }

    /// The tolerance covers the retries, because it is undocumented whether they are signed again. That
    /// is safe: the key comes from the signed body and is remembered longer than the tolerance, so a
    /// replayed request is a duplicate.
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
        let is_url_validation = found.get(EVENT) == Some("endpoint.url_validation");
        if is_url_validation && let (Some(token), Some(secret)) = (found.get(PLAIN_TOKEN), secret) {
            return ParsedRequest::Handshake(validation_reply(token, secret));
        }
        ParsedRequest::single(EventPart {
            kind: found.get(EVENT).and_then(EventKind::new),
            key: key(&found),
            order: found.first(&[OBJECT_ID, OBJECT_UUID]).and_then(DedupKey::new),
            attributes: found.attributes(&ATTRIBUTES),
            is_ping: is_url_validation,
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

/// Events have no id. Two participants may join in the same millisecond, so they are part of the key.
/// The body contains the time, so equal bytes are the same event.
fn key(found: &FieldValues<'_>) -> EventKey {
    if found.get(EVENT).is_none() || found.get(EVENT_TS).is_none() {
        return EventKey::None;
    }
    let mut fields = vec![EVENT, EVENT_TS];
    match [OBJECT_UUID, OBJECT_ID].into_iter().find(|field| found.get(*field).is_some()) {
        Some(object) => fields.push(object),
        None => return EventKey::ContentHash(WINDOW.0),
    }
    fields.extend(
        [PARTICIPANT_UUID, PARTICIPANT_USER_ID]
            .into_iter()
            .find(|field| found.get(*field).is_some()),
    );
    EventKey::known(found.key("zoom", &fields), "zoom:event:event_ts:object")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationReply<'t> {
    plain_token: &'t str,
    encrypted_token: String,
}

/// Proves knowledge of the secret.
fn validation_reply(plain_token: &str, secret: &Secret) -> ProviderReply {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose())
        .expect("HMAC takes keys of any length (RFC 2104)");
    mac.update(plain_token.as_bytes());
    let encrypted_token = HEXLOWER.encode(&mac.finalize().into_bytes());
    let answer = ValidationReply { plain_token, encrypted_token };
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
    use super::super::testing::{attribute_pairs, incoming, parse, part, summary, verify};
    use super::*;

    #[test]
    fn key_is_built_from_event_time_and_object() {
        let cases = [
            (
                "a meeting",
                r#"{"event":"meeting.started","event_ts":5,"payload":{"object":{"uuid":"u==","id":"123"}}}"#,
                ["meeting.started", "zoom:meeting.started:5:u==", "123"],
            ),
            (
                "a participant",
                r#"{"event":"meeting.participant_joined","event_ts":5,"payload":{"object":{"uuid":"u==","id":123,"participant":{"user_id":"16","participant_uuid":"p1"}}}}"#,
                ["meeting.participant_joined", "zoom:meeting.participant_joined:5:u==:p1", "123"],
            ),
            (
                "another participant in the same millisecond",
                r#"{"event":"meeting.participant_joined","event_ts":5,"payload":{"object":{"uuid":"u==","id":123,"participant":{"user_id":"17"}}}}"#,
                ["meeting.participant_joined", "zoom:meeting.participant_joined:5:u==:17", "123"],
            ),
            (
                "a user",
                r#"{"event":"user.created","event_ts":5,"payload":{"object":{"id":"z8"}}}"#,
                ["user.created", "zoom:user.created:5:z8", "z8"],
            ),
            (
                "no object",
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
            assert_eq!(summary("zoom", &[], body), expected, "case: {name}");
        }
    }

    #[test]
    fn url_validation_is_answered_with_the_matching_secret() {
        let body = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
        let ParsedRequest::Handshake(reply) = parse("zoom", &[], body) else {
            panic!("no handshake")
        };
        let expected = concat!(
            r#"{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":""#,
            r#"72cef096bfd47c0b8664df30d07721641e4abd7e885ba432204260db477a9a3e"}"#
        );
        assert_eq!(String::from_utf8_lossy(&reply.body), expected);
        assert_eq!((reply.status.as_u16(), reply.content_type), (200, Some("application/json")));
        // Without a secret there is no proof, so it is stored like a ping.
        let headers = http::HeaderMap::new();
        let request = incoming(&headers, body);
        let ParsedRequest::Events(parts) = Zoom.parse_request(&request, None) else {
            panic!("no event")
        };
        assert!(parts[0].is_ping);
        assert!(!part("zoom", &[], r#"{"event":"meeting.ended"}"#).is_ping);
    }

    #[test]
    fn retries_are_accepted_within_the_tolerance() {
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
    fn attributes_include_meeting_ids_and_people() {
        let body = r#"{"event":"meeting.started","payload":{"account_id":"a","operator":"ana@example.com","object":{"uuid":"u==","id":"123","host_id":"h"}}}"#;
        let expected = ["object=u==", "object=123", "email=ana@example.com", "user=h", "account=a"];
        assert_eq!(attribute_pairs("zoom", &[], body), expected);
    }
}
