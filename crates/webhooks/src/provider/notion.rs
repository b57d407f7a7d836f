//! Notion: signed with a token that Notion sends to the URL once, and that a person enters there and here.

use http::{Method, StatusCode};
use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    HandshakeKind, ParsedRequest, Provider, ProviderReply, SampleEvent,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{Account, Object, User},
    request::IncomingRequest,
    verify::{HmacSpec, Verifier},
};

/// A larger body is not the request with the token.
const VERIFICATION_BYTES_MAX: usize = 4096;

// https://developers.notion.com/reference/webhooks
pub(super) static NOTION: Provider = Provider {
    name: "notion",
    verifier: |secrets| {
        let prefix = "sha256=".to_owned();
        Verifier::hmac(HmacSpec { prefix, ..HmacSpec::new("x-notion-signature") }, secrets)
    },
    signature_headers: &["x-notion-signature"],
    retry_members: &["attempt_number"],
    // Eight attempts within about a day.
    dedup_window: HumanDuration::from_secs(3 * 86_400),
    handshake: HandshakeKind::SentSecret,
    answer_handshake: |request| {
        let is_token = request.method == Method::POST && is_verification(request.body);
        is_token.then(|| Ok(ProviderReply::empty(StatusCode::OK)))
    },
    parse_request,
    samples: &[
        SampleEvent::json(
            "page.content_updated",
            r#"{"id":"{{uuid}}","timestamp":"{{now_iso}}","workspace_id":"13950b26-c203-4f3b-b97d-93ec06319565","workspace_name":"Loja","subscription_id":"29d75c0d-5546-4414-8459-7b7a92f1fc4b","integration_id":"0ef2e755-4912-8096-91c1-00376a88a5ca","type":"page.content_updated","authors":[{"id":"c7c11cca-1d73-471d-9b6e-bdef51470190","type":"person"}],"accessible_by":[],"attempt_number":1,"entity":{"id":"153104cd-477e-809d-8dc4-{{number}}","type":"page"},"data":{"updated_blocks":[{"id":"153104cd-477e-80ec-9ce5-de8d89d5a7a5","type":"block"}],"parent":{"id":"13950b26-c203-4f3b-b97d-93ec06319565","type":"space"}}}"#,
        ),
        SampleEvent::json(
            "comment.created",
            r#"{"id":"{{uuid}}","timestamp":"{{now_iso}}","workspace_id":"13950b26-c203-4f3b-b97d-93ec06319565","subscription_id":"29d75c0d-5546-4414-8459-7b7a92f1fc4b","integration_id":"0ef2e755-4912-8096-91c1-00376a88a5ca","type":"comment.created","authors":[{"id":"c7c11cca-1d73-471d-9b6e-bdef51470190","type":"person"}],"attempt_number":1,"entity":{"id":"153104cd-477e-809d-8dc5-{{number}}","type":"comment"},"data":{"page_id":"0ef104cd-477e-80e1-8571-cfd10e92339a","parent":{"id":"0ef104cd-477e-80e1-8571-cfd10e92339a","type":"page"}}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}"],
    key: &["notion:{/subscription_id|-}:{/id}"],
    key_label: "notion:id",
    ordering_key: &["{/entity/id}"],
    attributes: &[
        (Object, &["/entity/id", "/data/page_id"]),
        (User, &["/authors/0/id"]),
        (Account, &["/workspace_id"]),
    ],
    ..EventTemplate::EMPTY
});

static VERIFICATION: EventReader = EventReader::new(&EventTemplate {
    extra_fields: &["/verification_token", "/id", "/type"],
    ..EventTemplate::EMPTY
});

/// Whether a body brings the token of a new subscription. Events have an id and a type.
fn is_verification(body: &[u8]) -> bool {
    let found = VERIFICATION.read_json(body);
    body.len() <= VERIFICATION_BYTES_MAX
        && found.get("/verification_token").is_some()
        && found.get("/id|/type").is_none()
}

fn parse_request(request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
    match is_verification(request.body) {
        true => ParsedRequest::Handshake(ProviderReply::empty(StatusCode::OK)),
        false => EVENT.parse(request),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::{
        super::{
            HandshakeRequest, ProviderReply,
            testing::{TestCall, assert_events, attribute_pairs},
        },
        NOTION,
    };

    const TOKEN: &str = "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl";

    /// Made with `signWebhookPayload` of @notionhq/client 5.26.0.
    #[test]
    fn signature_of_the_library_is_accepted() {
        let body = r#"{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}"#;
        let call = TestCall::new("notion", TOKEN).body(body);
        let call = call.header(
            "x-notion-signature",
            "sha256=461e8cbcba8a75c3edd866f0e71280f5a85cbf21eff040ebd10fe266df38a735",
        );
        assert_eq!(call.verify(), Ok(0));
        assert_eq!(call.reply(), Some((200, None, String::new())), "the token is no event");
        call.assert_every_bit_counts(&[]);
    }

    #[test]
    fn only_the_request_with_the_token_is_a_handshake() {
        let headers = HeaderMap::new();
        let answer = |method: &Method, body: &str| {
            let body = body.as_bytes();
            let request = HandshakeRequest {
                method,
                query: None,
                headers: &headers,
                body,
                verify_token: None,
            };
            NOTION.answer_handshake(&request)
        };
        let token = r#"{"verification_token":"secret_1"}"#;
        let accepted = Some(Ok(ProviderReply::empty(http::StatusCode::OK)));
        assert_eq!(answer(&Method::POST, token), accepted);
        assert_eq!(answer(&Method::GET, token), None);
        let long = format!(r#"{{"verification_token":"{}"}}"#, "x".repeat(5000));
        for other in [
            "",
            "{}",
            r#"{"verification_token":""}"#,
            r#"{"verification_token":{}}"#,
            r#"{"verification_token":"t","id":"1"}"#,
            r#"{"verification_token":"t","type":"page.created"}"#,
            &long,
        ] {
            assert_eq!(answer(&Method::POST, other), None, "{other}");
        }
    }

    #[test]
    fn events_are_keyed_by_id() {
        assert_events(
            "notion",
            &[],
            r#"
            case | body | kind | key | ordering key
            event | {"id":"e1","subscription_id":"s1","type":"page.created","entity":{"id":"p1"},"attempt_number":2} | page.created | notion:s1:e1 | p1
            no subscription | {"id":"e1","type":"page.created"} | page.created | notion:-:e1 | -
            no id | {"type":"page.created"} | page.created | - | -
            not JSON | x | - | - | -
            "#,
        );
        let body = r#"{"id":"e","type":"t","workspace_id":"w","entity":{"id":"p"},"authors":[{"id":"u"}]}"#;
        assert_eq!(attribute_pairs("notion", &[], body), ["object=p", "user=u", "account=w"]);
    }
}
