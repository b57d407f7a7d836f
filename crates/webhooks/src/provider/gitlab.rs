//! GitLab: a token in a header, or signatures by Standard Webhooks.

mod scheme;

use surehook_types::time::HumanDuration;

use self::scheme::GitlabScheme;
use super::{
    BODY_BYTES_CEILING, Provider, SampleEvent,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{Account, Object, ProviderStatus, User},
    verify::Verifier,
};

macro_rules! gitlab_sample {
    ($kind:literal, $event:literal) => {
        SampleEvent::new(
            $kind,
            &[
                ("content-type", "application/json"),
                ("user-agent", "GitLab/18.6.0"),
                ("x-gitlab-event", $event),
                ("x-gitlab-instance", "https://gitlab.com"),
                ("x-gitlab-webhook-uuid", "02affd2d-2cba-4033-917d-ec22d5dc4b38"),
                ("x-gitlab-event-uuid", "{{uuid}}"),
                ("idempotency-key", "{{uuid}}"),
            ],
            include_str!(concat!("samples/gitlab.", $kind, ".json")),
        )
    };
}

pub(super) static GITLAB: Provider = Provider {
    name: "gitlab",
    verifier: |secrets| Ok(Verifier::from_scheme(secrets.len(), GitlabScheme::new(secrets)?)),
    signature_headers: &["webhook-signature", "webhook-timestamp", "webhook-id"],
    secret_header: Some(scheme::TOKEN),
    // GitLab retries for minutes; people can resend for two days.
    dedup_window: HumanDuration::from_secs(4 * 86_400),
    max_body_bytes: Some(BODY_BYTES_CEILING),
    parse_request: |request, _| EVENT.parse(request),
    samples: &[
        gitlab_sample!("push", "Push Hook"),
        gitlab_sample!("merge_request", "Merge Request Hook"),
        gitlab_sample!("issue", "Issue Hook"),
        gitlab_sample!("note", "Note Hook"),
        gitlab_sample!("pipeline", "Pipeline Hook"),
    ],
    ..Provider::DEFAULT
};

/// `webhook-id` and `idempotency-key` have the same value; only the first one is signed.
/// `X-Gitlab-Event-UUID` is not a key: webhooks that trigger each other share it.
static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/object_kind|/event_name}"],
    key: &["gitlab:{webhook-id|idempotency-key}"],
    key_label: "gitlab:idempotency-key",
    are_key_headers_signed: true,
    ordering_key: &["{/project_id|/project/id|/group_id}"],
    attributes: &[
        (Account, &["/project/path_with_namespace"]),
        (User, &["/user_username", "/user/username"]),
        (Object, &["/object_attributes/iid", "/object_attributes/id", "/after"]),
        (ProviderStatus, &["/object_attributes/action", "/object_attributes/status"]),
    ],
    ..EventTemplate::EMPTY
});

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute_pairs, summary};

    #[test]
    fn key_is_the_webhook_id_or_else_the_idempotency_key_header() {
        let key = ("idempotency-key", "k-1");
        let id = ("webhook-id", "k-2");
        let uuid = ("x-gitlab-event-uuid", "u-1");
        let push = r#"{"object_kind":"push","event_name":"push","project_id":15}"#;
        let merge_request =
            r#"{"object_kind":"merge_request","project":{"id":15},"object_attributes":{"id":99}}"#;
        let system = r#"{"event_name":"project_create","project_id":74}"#;
        let group = r#"{"event_name":"subgroup_create","group_id":10}"#;
        let cases: [(_, &[_], _, _); 7] = [
            ("a push", &[key, uuid], push, ["push", "gitlab:k-1", "15"]),
            ("signed", &[key, id], push, ["push", "gitlab:k-2", "15"]),
            (
                "project in another field",
                &[key],
                merge_request,
                ["merge_request", "gitlab:k-1", "15"],
            ),
            ("system hook", &[key], system, ["project_create", "gitlab:k-1", "74"]),
            ("group hook", &[key], group, ["subgroup_create", "gitlab:k-1", "10"]),
            ("old version", &[uuid], push, ["push", "-", "15"]),
            ("not JSON", &[key], "x", ["-", "gitlab:k-1", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(summary("gitlab", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn attributes_include_project_user_and_number() {
        let body = r#"{"user":{"username":"ana"},"project":{"path_with_namespace":"acme/gw"},
            "object_attributes":{"id":99,"iid":1,"action":"open"}}"#;
        let expected =
            ["object=1", "object=99", "user=ana", "account=acme/gw", "provider_status=open"];
        assert_eq!(attribute_pairs("gitlab", &[], body), expected);
    }
}
