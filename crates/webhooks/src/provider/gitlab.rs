//! GitLab: a token in a header, or signatures by Standard Webhooks.

mod scheme;

use surehook_types::{secret::Secret, time::HumanDuration};

use self::scheme::GitlabScheme;
use super::{EventKey, EventPart, ParsedRequest, Provider, SampleEvent, fields::body_fields};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    provider::BODY_BYTES_CEILING,
    request::IncomingRequest,
    verify::{Verifier, VerifySpecError},
};

body_fields! {
    static FIELDS {
        OBJECT_KIND = "/object_kind",
        EVENT_NAME = "/event_name",
        PROJECT_ID = "/project_id",
        PROJECT = "/project/id",
        GROUP_ID = "/group_id",
        PROJECT_PATH = "/project/path_with_namespace",
        USERNAME = "/user_username",
        USER = "/user/username",
        OBJECT_IID = "/object_attributes/iid",
        OBJECT_ID = "/object_attributes/id",
        AFTER = "/after",
        ACTION = "/object_attributes/action",
        STATUS = "/object_attributes/status",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 8] = [
    (AttributeName::Account, PROJECT_PATH),
    (AttributeName::User, USERNAME),
    (AttributeName::User, USER),
    (AttributeName::Object, OBJECT_IID),
    (AttributeName::Object, OBJECT_ID),
    (AttributeName::Object, AFTER),
    (AttributeName::ProviderStatus, ACTION),
    (AttributeName::ProviderStatus, STATUS),
];

#[derive(Debug)]
pub(super) struct Gitlab;

impl Provider for Gitlab {
    fn name(&self) -> &'static str {
        "gitlab"
    }

    fn secret_header(&self) -> Option<&'static str> {
        Some(scheme::TOKEN)
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let count = secrets.len();
        Ok(Verifier::from_scheme(Box::new(GitlabScheme::new(secrets)?), count))
    }

    /// `X-Gitlab-Event-UUID` is not a key: webhooks that trigger each other share it.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        // Both have the same value; only `webhook-id` is signed.
        let id = request.header("webhook-id").or_else(|| request.header("idempotency-key"));
        let key = id.and_then(|id| DedupKey::new(&format!("gitlab:{id}")));
        ParsedRequest::single(EventPart {
            kind: found.first(&[OBJECT_KIND, EVENT_NAME]).and_then(EventKind::new),
            key: EventKey::known(key, "gitlab:idempotency-key"),
            order: found.first(&[PROJECT_ID, PROJECT, GROUP_ID]).and_then(DedupKey::new),
            attributes: found.attributes(&ATTRIBUTES),
            ..EventPart::default()
        })
    }

    /// GitLab retries for minutes; people can resend for two days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(4 * 86_400)
    }

    fn max_body_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES_CEILING)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["webhook-signature", "webhook-timestamp", "webhook-id"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

macro_rules! sample {
    ($kind:literal, $event:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[
                ("content-type", "application/json"),
                ("user-agent", "GitLab/18.6.0"),
                ("x-gitlab-event", $event),
                ("x-gitlab-instance", "https://gitlab.com"),
                ("x-gitlab-webhook-uuid", "02affd2d-2cba-4033-917d-ec22d5dc4b38"),
                ("x-gitlab-event-uuid", "{{uuid}}"),
                ("idempotency-key", "{{uuid}}"),
            ],
            target: "",
            body: include_str!(concat!("samples/gitlab.", $kind, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("push", "Push Hook"),
    sample!("merge_request", "Merge Request Hook"),
    sample!("issue", "Issue Hook"),
    sample!("note", "Note Hook"),
    sample!("pipeline", "Pipeline Hook"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute_pairs, summary};

    #[test]
    fn key_is_the_delivery_header_that_stays_the_same() {
        let key = ("idempotency-key", "k-1");
        let id = ("webhook-id", "k-2");
        let uuid = ("x-gitlab-event-uuid", "u-1");
        let push = r#"{"object_kind":"push","event_name":"push","project_id":15}"#;
        let request =
            r#"{"object_kind":"merge_request","project":{"id":15},"object_attributes":{"id":99}}"#;
        let system = r#"{"event_name":"project_create","project_id":74}"#;
        let group = r#"{"event_name":"subgroup_create","group_id":10}"#;
        let cases: [(_, &[_], _, _); 7] = [
            ("a push", &[key, uuid], push, ["push", "gitlab:k-1", "15"]),
            ("signed", &[key, id], push, ["push", "gitlab:k-2", "15"]),
            ("project in another field", &[key], request, ["merge_request", "gitlab:k-1", "15"]),
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
