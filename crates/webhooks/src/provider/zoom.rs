//! Zoom: signed with a timestamp; revalidates the URL regularly.

use data_encoding::HEXLOWER;
use serde::Serialize;
use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, HandshakeKind, JSON_UTF8, ParsedRequest, Provider, ProviderReply,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{Account, Email, Object, User},
    mac::HmacKey,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier},
};

/// Zoom retries for a little over two hours. A signature is valid for as long before and after its
/// time as the tolerance, so keys must be remembered for more than twice the tolerance.
const WINDOW: HumanDuration = HumanDuration::from_secs(86_400);

pub(super) static ZOOM: Provider = Provider {
    name: "zoom",
    verifier: |secrets| {
        let spec = HmacSpec {
            prefix: "v0=".to_owned(),
            template: "v0:{timestamp}:{body}".to_owned(),
            timestamp_header: Some("x-zm-request-timestamp".to_owned()),
            // Covers the retries, because it is undocumented whether they are signed again. That is
            // safe: the key comes from the signed body and is remembered longer than the tolerance, so
            // a replayed request is a duplicate.
            tolerance: HumanDuration::from_secs(3 * 3600),
            ..HmacSpec::new("x-zm-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["x-zm-signature", "x-zm-request-timestamp"],
    handshake: HandshakeKind::Automatic,
    dedup_window: WINDOW,
    parse_request,
    samples: &[
        sample!(JSON_UTF8, "meeting.started", "zoom.meeting.started.json"),
        sample!(JSON_UTF8, "meeting.ended", "zoom.meeting.ended.json"),
        sample!(JSON_UTF8, "meeting.participant_joined", "zoom.meeting.participant_joined.json"),
        sample!(JSON_UTF8, "recording.completed", "zoom.recording.completed.json"),
        sample!(JSON_UTF8, "endpoint.url_validation", "zoom.endpoint.url_validation.json"),
    ],
    ..Provider::DEFAULT
};

/// Events have no id. Two participants may join in the same millisecond, so they are part of the key.
static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event}"],
    key: &[
        "zoom:{/event}:{/event_ts}:{/payload/object/uuid|/payload/object/id}\
         :{/payload/object/participant/participant_uuid|/payload/object/participant/user_id}",
        "zoom:{/event}:{/event_ts}:{/payload/object/uuid|/payload/object/id}",
    ],
    key_label: "zoom:event:event_ts:object",
    are_key_headers_signed: false,
    ordering_key: &["{/payload/object/id|/payload/object/uuid}"],
    attributes: &[
        (Object, &["/payload/object/uuid", "/payload/object/id"]),
        (User, &["/payload/object/participant/participant_uuid"]),
        (User, &["/payload/object/participant/user_id"]),
        (User, &["/payload/object/host_id", "/payload/operator_id"]),
        (Account, &["/payload/account_id"]),
        (Email, &["/payload/object/participant/email", "/payload/operator"]),
    ],
    extra_fields: &["/payload/plainToken"],
});

fn parse_request(request: &IncomingRequest<'_>, secret: Option<&Secret>) -> ParsedRequest {
    let fields = EVENT.read(request);
    let mut event = fields.event();
    event.is_ping = fields.get("/event") == Some("endpoint.url_validation");
    if event.is_ping
        && let (Some(token), Some(secret)) = (fields.get("/payload/plainToken"), secret)
    {
        return ParsedRequest::Handshake(validation_reply(token, secret));
    }
    let has_type_and_time = fields.get("/event").is_some() && fields.get("/event_ts").is_some();
    if event.key == EventKey::None && has_type_and_time {
        // The body contains the time, so equal bytes are the same event.
        event.key = EventKey::ContentHash(WINDOW.0);
    }
    ParsedRequest::single(event)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationReply<'t> {
    plain_token: &'t str,
    encrypted_token: String,
}

/// Answers the URL validation with the HMAC of the token, which proves knowledge of the secret.
fn validation_reply(plain_token: &str, secret: &Secret) -> ProviderReply {
    let proof = HmacKey::sha256(secret.expose()).sign([plain_token.as_bytes()]);
    let encrypted_token = HEXLOWER.encode(proof.as_ref());
    let answer = ValidationReply { plain_token, encrypted_token };
    ProviderReply::json(serde_json::to_vec(&answer).expect("texts can be serialized"))
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::Sha256;

    use super::{
        super::testing::{assert_events, attribute_pairs, incoming, parse, part, verify},
        *,
    };

    #[test]
    fn key_is_built_from_event_time_and_object() {
        assert_events(
            "zoom",
            &[],
            r#"
            case | body | kind | key | ordering key
            a meeting | {"event":"meeting.started","event_ts":5,"payload":{"object":{"uuid":"u==","id":"123"}}} | meeting.started | zoom:meeting.started:5:u== | 123
            a participant | {"event":"meeting.participant_joined","event_ts":5,"payload":{"object":{"uuid":"u==","id":123,"participant":{"user_id":"16","participant_uuid":"p1"}}}} | meeting.participant_joined | zoom:meeting.participant_joined:5:u==:p1 | 123
            another participant in the same millisecond | {"event":"meeting.participant_joined","event_ts":5,"payload":{"object":{"uuid":"u==","id":123,"participant":{"user_id":"17"}}}} | meeting.participant_joined | zoom:meeting.participant_joined:5:u==:17 | 123
            a user | {"event":"user.created","event_ts":5,"payload":{"object":{"id":"z8"}}} | user.created | zoom:user.created:5:z8 | z8
            no object | {"event":"app_deauthorized","event_ts":5,"payload":{"account_id":"a"}} | app_deauthorized | content 86400s | -
            no time | {"event":"user.created","payload":{"object":{"id":"z8"}}} | user.created | - | z8
            not JSON | x | - | - | -
            "#,
        );
    }

    #[test]
    fn url_validation_returns_hmac_of_plain_token() {
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
        let ParsedRequest::Events(parts) = ZOOM.parse_request(&request, None) else {
            panic!("no event")
        };
        assert!(parts[0].is_ping);
        assert!(!part("zoom", &[], r#"{"event":"meeting.ended"}"#).is_ping);
    }

    #[test]
    fn retries_are_accepted_within_the_tolerance() {
        let timestamp = ("x-zm-request-timestamp", "1000");
        let mut mac = Hmac::<Sha256>::new_from_slice(b"s").unwrap();
        mac.update(b"v0:1000:{}");
        let signature = format!("v0={}", HEXLOWER.encode(&mac.finalize().into_bytes()));
        let check =
            |now| verify("zoom", &["s"], &[timestamp, ("x-zm-signature", &signature)], "{}", now);
        assert!(check(1000 + 3 * 3600).is_ok());
        assert!(check(1001 + 3 * 3600).is_err());
        assert!(ZOOM.dedup_window.0.as_secs() > 2 * 3 * 3600);
    }

    #[test]
    fn attributes_include_meeting_ids_and_people() {
        let body = r#"{"event":"meeting.started","payload":{"account_id":"a","operator":"ana@example.com","object":{"uuid":"u==","id":"123","host_id":"h"}}}"#;
        let expected = ["object=u==", "object=123", "email=ana@example.com", "user=h", "account=a"];
        assert_eq!(attribute_pairs("zoom", &[], body), expected);
    }
}
