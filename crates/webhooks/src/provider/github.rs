//! GitHub: signed over the raw body, which may be a form; event and delivery id are in headers.

use surehook_types::time::HumanDuration;

use super::{
    BODY_BYTES_CEILING, EventPart, ParsedRequest, Provider, RefusalPolicy, SampleEvent,
    fields::{EventReader, EventTemplate},
    form,
};
use crate::{
    attribute::AttributeName::{Account, Object, ProviderStatus, User},
    request::IncomingRequest,
    verify::{HmacSpec, Verifier},
};

macro_rules! github_sample {
    ($kind:literal) => {
        SampleEvent::new(
            $kind,
            &[
                ("content-type", "application/json"),
                ("user-agent", "GitHub-Hookshot/surehook"),
                ("x-github-event", $kind),
                ("x-github-delivery", "{{uuid}}"),
                ("x-github-hook-id", "292430182"),
                ("x-github-hook-installation-target-type", "repository"),
                ("x-github-hook-installation-target-id", "79929171"),
            ],
            include_str!(concat!("samples/github.", $kind, ".json")),
        )
    };
}

pub(super) static GITHUB: Provider = Provider {
    name: "github",
    // The older `X-Hub-Signature` with SHA-1 is ignored.
    verifier: |secrets| {
        let prefix = "sha256=".to_owned();
        Verifier::hmac(HmacSpec { prefix, ..HmacSpec::new("x-hub-signature-256") }, secrets)
    },
    signature_headers: &["x-hub-signature-256", "x-hub-signature"],
    // GitHub does not retry, so a wrong secret must not lose events. People can redeliver for three days.
    on_refusal: RefusalPolicy::Keep,
    dedup_window: HumanDuration::from_secs(4 * 86_400),
    max_body_bytes: Some(BODY_BYTES_CEILING),
    parse_request: |request, _| {
        let body = &form::payload_json(request);
        let event = EVENT.read(&IncomingRequest { body, ..*request }).event();
        // Sent once, when the webhook is created.
        let is_ping = request.header("x-github-event") == Some("ping");
        ParsedRequest::single(EventPart { is_ping, ..event })
    },
    samples: &[
        github_sample!("push"),
        github_sample!("pull_request"),
        github_sample!("issues"),
        github_sample!("issue_comment"),
        github_sample!("release"),
        github_sample!("workflow_run"),
        github_sample!("ping"),
    ],
    ..Provider::DEFAULT
};

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{x-github-event}"],
    key: &["github:{x-github-delivery}"],
    key_label: "github:x-github-delivery",
    ordering_key: &["{/repository/full_name|/organization/login}"],
    attributes: &[
        (Account, &["/repository/full_name", "/organization/login"]),
        (User, &["/sender/login"]),
        (ProviderStatus, &["/action"]),
        (Object, &["/pull_request/number", "/issue/number", "/after"]),
        (Object, &["/workflow_run/id", "/release/tag_name"]),
    ],
    ..EventTemplate::EMPTY
});

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
