//! Asana: signed with a secret that comes in a handshake; any number of events per request, without ids.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, EventPart, HandshakeKind, ParsedRequest, Provider, ProviderReply, SampleEvent,
    fields::{EventReader, EventTemplate},
    raw_json,
};
use crate::{
    attribute::AttributeName::{Object, User},
    request::IncomingRequest,
    verify::{HmacSpec, Verifier},
};

static SECRET: HeaderName = HeaderName::from_static("x-hook-secret");
const SIGNATURE: &str = "x-hook-signature";
/// Asana's secrets have 64 characters; longer texts are not echoed.
const SECRET_BYTES_MAX: usize = 256;
/// Asana retries for a day.
const WINDOW: HumanDuration = HumanDuration::from_secs(3 * 86_400);

// https://developers.asana.com/docs/webhooks-guide
pub(super) static ASANA: Provider = Provider {
    name: "asana",
    verifier: |secrets| Verifier::hmac(HmacSpec::new(SIGNATURE), secrets),
    signature_headers: &[SIGNATURE],
    dedup_window: WINDOW,
    handshake: HandshakeKind::EchoedSecret,
    answer_handshake: |request| {
        let is_post = request.method == Method::POST;
        echo_secret(request.headers).filter(|_| is_post).map(Ok)
    },
    parse_request,
    samples: &[
        SampleEvent::json(
            "task.changed",
            r#"{"events":[{"user":{"gid":"1202178852626547","resource_type":"user"},"created_at":"{{now_iso}}","action":"changed","resource":{"gid":"12{{number}}","resource_type":"task","resource_subtype":"default_task"},"parent":null,"change":{"field":"due_on","action":"changed"}}]}"#,
        ),
        SampleEvent::json(
            "story.added",
            r#"{"events":[{"user":{"gid":"1202178852626547","resource_type":"user"},"created_at":"{{now_iso}}","action":"added","resource":{"gid":"13{{number}}","resource_type":"story","resource_subtype":"comment_added"},"parent":{"gid":"12{{number}}","resource_type":"task","resource_subtype":"default_task"}}]}"#,
        ),
        SampleEvent::json(
            "batch",
            r#"{"events":[{"user":{"gid":"1202178852626547","resource_type":"user"},"created_at":"{{now_iso}}","action":"added","resource":{"gid":"14{{number}}","resource_type":"task"},"parent":{"gid":"15{{number}}","resource_type":"project"}},{"user":{"gid":"1202178852626547","resource_type":"user"},"created_at":"{{now_iso}}","action":"changed","resource":{"gid":"14{{number}}","resource_type":"task"},"parent":null,"change":{"field":"name","action":"changed"}}]}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static REQUEST: EventReader =
    EventReader::new(&EventTemplate { extra_fields: &["/events"], ..EventTemplate::EMPTY });

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/resource/resource_type}.{/action}", "{/action}"],
    ordering_key: &["{/resource/gid}"],
    attributes: &[(Object, &["/resource/gid", "/parent/gid"]), (User, &["/user/gid"])],
    ..EventTemplate::EMPTY
});

/// The reply to the request that brings the secret of a new webhook. Nothing is stored: events are verified
/// with the configured secrets, so a webhook that a stranger registers is confirmed and then refused.
fn echo_secret(headers: &HeaderMap) -> Option<ProviderReply> {
    let mut values = headers.get_all(&SECRET).iter();
    let (Some(secret), None) = (values.next(), values.next()) else { return None };
    let is_echoed = |secret: &HeaderValue| {
        let bytes = secret.as_bytes();
        (1..=SECRET_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_alphanumeric)
    };
    let is_handshake = is_echoed(secret) && !headers.contains_key(SIGNATURE);
    let header = Some((SECRET.clone(), secret.clone()));
    is_handshake.then(|| ProviderReply { header, ..ProviderReply::empty(StatusCode::OK) })
}

/// Events have no id. Each contains its time in milliseconds, so equal ones are the same event.
fn parse_request(request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
    // If the source verifies nothing.
    if let Some(reply) = echo_secret(request.headers) {
        return ParsedRequest::Handshake(reply);
    }
    let key = EventKey::ContentHash(WINDOW.0);
    let read = |item: &[u8]| EventPart { key: key.clone(), ..EVENT.read_json(item).event() };
    let found = REQUEST.read(request);
    let events = found.raw("/events");
    ParsedRequest::list(events.and_then(|events| raw_json::split_list(request.body, events, read)))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::{
        super::{
            HandshakeRequest,
            testing::{TestCall, attribute_pairs, event_summary, headers, parts, verify},
        },
        ASANA,
    };

    #[test]
    fn body_is_signed_in_hex() {
        // `printf '{"events":[]}' | openssl dgst -sha256 -hmac b537207f20cbfa02357cf448134da559`
        let signature = "3fc836005dfa84ae042d88d80e2473a1c6d931719bd8e9106bf6bc54a505a3f7";
        let secret = "b537207f20cbfa02357cf448134da559";
        let body = r#"{"events":[]}"#;
        let signed = [("x-hook-signature", signature)];
        assert!(verify("asana", &[secret], &signed, body, 0).is_ok());
        assert!(verify("asana", &["other"], &signed, body, 0).is_err());
        let call = TestCall::new("asana", secret).body(r#"{"events":[{}]}"#).signed();
        call.assert_every_bit_counts(&["x-hook-signature"]);
    }

    #[test]
    fn secret_of_a_new_webhook_is_echoed() {
        let secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
        let answer = |method: &Method, headers: &HeaderMap| {
            let request =
                HandshakeRequest { method, query: None, headers, body: b"", verify_token: None };
            ASANA.answer_handshake(&request)
        };
        let good = headers(&[("x-hook-secret", secret)]);
        let reply = answer(&Method::POST, &good).unwrap().unwrap();
        let response = reply.to_response();
        assert_eq!((response.status().as_u16(), &*response.body().to_vec()), (200, &b""[..]));
        assert_eq!(response.headers()["x-hook-secret"], secret);
        assert_eq!(answer(&Method::GET, &good), None);
        let long = "a".repeat(257);
        for other in [
            headers(&[]),
            headers(&[("x-hook-secret", "")]),
            headers(&[("x-hook-secret", "<script>")]),
            headers(&[("x-hook-secret", &long)]),
            headers(&[("x-hook-secret", secret), ("x-hook-signature", "00")]),
            [headers(&[("x-hook-secret", "a")]), headers(&[("x-hook-secret", "b")])]
                .into_iter()
                .flatten()
                .fold(HeaderMap::new(), |mut all, (_, value)| {
                    all.append("x-hook-secret", value);
                    all
                }),
        ] {
            assert_eq!(answer(&Method::POST, &other), None, "{other:?}");
        }
    }

    #[test]
    fn each_item_is_an_event_with_the_hash_of_its_content_as_key() {
        let changed = r#"{"action":"changed","resource":{"gid":"1","resource_type":"task"},"created_at":"2026-05-20T14:00:00.000Z"}"#;
        let added = r#"{"action":"added","resource":{"gid":"2","resource_type":"story"},"parent":{"gid":"1"},"user":{"gid":"9"}}"#;
        let found = |body: &str| {
            let parts = parts("asana", &[], body);
            let describe = |part| (event_summary(part), part.body.is_some());
            parts.iter().map(describe).collect::<Vec<_>>()
        };
        let first = ["task.changed", "content 259200s", "1"].map(str::to_owned);
        let second = ["story.added", "content 259200s", "2"].map(str::to_owned);
        let unknown = ["-", "-", "-"].map(str::to_owned);
        assert_eq!(found(&format!(r#"{{"events":[{changed}]}}"#)), [(first.clone(), false)]);
        assert_eq!(
            found(&format!(r#"{{"events":[{changed},{added}]}}"#)),
            [(first, true), (second, true)]
        );
        assert_eq!(found(r#"{"events":[]}"#), [], "a sign of life");
        for other in ["{}", r#"{"events":{}}"#, "not JSON"] {
            assert_eq!(found(other), [(unknown.clone(), false)], "{other}");
        }
        let body = format!(r#"{{"events":[{added}]}}"#);
        assert_eq!(attribute_pairs("asana", &[], &body), ["object=2", "object=1", "user=9"]);
    }

    /// A retry may group the events in another way.
    #[test]
    fn an_event_has_the_same_body_alone_and_in_a_batch() {
        let (one, two) = (r#"{"action":"a","resource":{"gid":"1"}}"#, r#"{"action":"b"}"#);
        let alone = format!(r#"{{"events":[{one}]}}"#);
        let batch = parts("asana", &[], &format!(r#"{{"events":[{two},{one}]}}"#));
        assert_eq!(batch[1].body.as_deref(), Some(alone.as_bytes()));
    }
}
