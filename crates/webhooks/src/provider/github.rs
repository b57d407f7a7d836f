//! GitHub: signed over the raw body, which may be a form; event and delivery id are in headers.

use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, EventPart, ParsedRequest, Provider, RefusalPolicy, SampleEvent, fields::body_fields,
    form,
};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    provider::BODY_BYTES_CEILING,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

body_fields! {
    static FIELDS {
        REPOSITORY = "/repository/full_name",
        ORGANIZATION = "/organization/login",
        SENDER = "/sender/login",
        ACTION = "/action",
        PULL_REQUEST = "/pull_request/number",
        ISSUE = "/issue/number",
        AFTER = "/after",
        WORKFLOW_RUN = "/workflow_run/id",
        RELEASE_TAG = "/release/tag_name",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 9] = [
    (AttributeName::Account, REPOSITORY),
    (AttributeName::Account, ORGANIZATION),
    (AttributeName::User, SENDER),
    (AttributeName::ProviderStatus, ACTION),
    (AttributeName::Object, PULL_REQUEST),
    (AttributeName::Object, ISSUE),
    (AttributeName::Object, AFTER),
    (AttributeName::Object, WORKFLOW_RUN),
    (AttributeName::Object, RELEASE_TAG),
];

#[derive(Debug)]
pub(super) struct Github;

impl Provider for Github {
    fn name(&self) -> &'static str {
        "github"
    }

    /// The older `X-Hub-Signature` with SHA-1 is ignored.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec =
            HmacSpec { prefix: "sha256=".to_owned(), ..HmacSpec::new("x-hub-signature-256") };
        Verifier::hmac(spec, secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let json = form::payload_json(request);
        let found = FIELDS.read(&json);
        let kind = request.header("x-github-event");
        let delivery = request.header("x-github-delivery");
        let key = delivery.and_then(|id| DedupKey::new(&format!("github:{id}")));
        ParsedRequest::single(EventPart {
            kind: kind.and_then(EventKind::new),
            key: EventKey::known(key, "github:x-github-delivery"),
            order: found.first(&[REPOSITORY, ORGANIZATION]).and_then(DedupKey::new),
            attributes: found.attributes(&ATTRIBUTES),
            // Sent once, when the webhook is created.
            is_ping: kind == Some("ping"),
            ..EventPart::default()
        })
    }

    /// GitHub does not retry; people can redeliver for three days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(4 * 86_400)
    }

    fn max_body_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES_CEILING)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-hub-signature-256", "x-hub-signature"]
    }

    /// GitHub does not retry, so a wrong secret must not lose events.
    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Keep
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

macro_rules! sample {
    ($kind:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[
                ("content-type", "application/json"),
                ("user-agent", "GitHub-Hookshot/surehook"),
                ("x-github-event", $kind),
                ("x-github-delivery", "{{uuid}}"),
                ("x-github-hook-id", "292430182"),
                ("x-github-hook-installation-target-type", "repository"),
                ("x-github-hook-installation-target-id", "79929171"),
            ],
            target: "",
            body: include_str!(concat!("samples/github.", $kind, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("push"),
    sample!("pull_request"),
    sample!("issues"),
    sample!("issue_comment"),
    sample!("release"),
    sample!("workflow_run"),
    sample!("ping"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute_pairs, part, summary, verify};

    const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

    #[test]
    fn published_vector_is_accepted() {
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let secret = "It's a Secret to Everybody";
        let check = |name, value: &str, body| {
            verify("github", &[secret], &[(name, value)], body, 0).map(|v| v.by).ok()
        };
        assert_eq!(check("x-hub-signature-256", signature, "Hello, World!"), Some("hmac-sha256"));
        assert_eq!(check("x-hub-signature-256", signature, "Hello, World?"), None);
        assert_eq!(check("x-hub-signature-256", &signature[7..], "Hello, World!"), None);
        // The correct SHA-1 signature is not enough.
        let old = "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59";
        assert_eq!(check("x-hub-signature", old, "Hello, World!"), None);
    }

    #[test]
    fn kind_and_key_come_from_headers_and_order_from_body() {
        let event = ("x-github-event", "issues");
        let delivery = ("x-github-delivery", "d-1");
        let repository = r#"{"action":"opened","repository":{"full_name":"acme/gw"}}"#;
        let in_form = "payload=%7B%22repository%22%3A%7B%22full_name%22%3A%22acme%2Fgw%22%7D%7D";
        let organization = r#"{"organization":{"login":"acme"}}"#;
        let cases: [(_, &[_], _, _); 6] = [
            ("JSON", &[event, delivery], repository, ["issues", "github:d-1", "acme/gw"]),
            ("a form", &[event, delivery, FORM], in_form, ["issues", "github:d-1", "acme/gw"]),
            (
                "of an organization",
                &[event, delivery],
                organization,
                ["issues", "github:d-1", "acme"],
            ),
            ("no delivery", &[event], repository, ["issues", "-", "acme/gw"]),
            (
                "two deliveries",
                &[event, delivery, delivery],
                repository,
                ["issues", "-", "acme/gw"],
            ),
            ("nothing", &[], "Hello, World!", ["-", "-", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(summary("github", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn only_ping_event_is_a_ping() {
        for (event, expected) in [("ping", true), ("push", false), ("Ping", false)] {
            assert_eq!(part("github", &[("x-github-event", event)], "{}").is_ping, expected);
        }
    }

    #[test]
    fn attributes_include_repository_sender_and_number() {
        let body = r#"{"action":"closed","pull_request":{"number":7},"sender":{"login":"ana"},
            "repository":{"full_name":"acme/gw"},"organization":{"login":"acme"}}"#;
        let expected =
            ["object=7", "user=ana", "account=acme/gw", "account=acme", "provider_status=closed"];
        assert_eq!(attribute_pairs("github", &[], body), expected);
    }
}
