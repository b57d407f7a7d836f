//! GitLab: a token in a header, or the newer signatures of Standard Webhooks.

mod scheme;

use std::sync::LazyLock;

use self::scheme::GitlabScheme;
use super::{BodyFields, EventKey, EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    source::BODY_BYTES_CEILING,
    time::HumanDuration,
    verify::{Verifier, VerifySpecError},
};

static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/object_kind",
        "/event_name",
        "/project_id",
        "/project/id",
        "/group_id",
        "/project/path_with_namespace",
        "/user_username",
        "/user/username",
        "/object_attributes/iid",
        "/object_attributes/id",
        "/after",
        "/object_attributes/action",
        "/object_attributes/status",
    ])
});

const ABOUT: [(AttributeName, usize); 8] = [
    (AttributeName::Account, 5),
    (AttributeName::User, 6),
    (AttributeName::User, 7),
    (AttributeName::Object, 8),
    (AttributeName::Object, 9),
    (AttributeName::Object, 10),
    (AttributeName::ProviderStatus, 11),
    (AttributeName::ProviderStatus, 12),
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
        let many = secrets.len();
        Ok(Verifier::own(Box::new(GitlabScheme::new(secrets)?), many))
    }

    /// `X-Gitlab-Event-UUID` is no key: webhooks that set off one another share it.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        // They are the same; only the first is signed.
        let id = request.header("webhook-id").or_else(|| request.header("idempotency-key"));
        let key = id.and_then(|id| DedupKey::new(&format!("gitlab:{id}")));
        ParsedRequest::one(EventPart {
            kind: found.first(&[0, 1]).and_then(EventKind::new),
            key: EventKey::known(key, "gitlab:idempotency-key"),
            order: found.first(&[2, 3, 4]).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// It tries again for minutes; people can for two days.
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
    use super::super::testing::{about, told};

    #[test]
    fn a_delivery_is_told_apart_by_the_header_that_stays_the_same() {
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
            ("another place", &[key], request, ["merge_request", "gitlab:k-1", "15"]),
            ("of the system", &[key], system, ["project_create", "gitlab:k-1", "74"]),
            ("of a group", &[key], group, ["subgroup_create", "gitlab:k-1", "10"]),
            ("old", &[uuid], push, ["push", "-", "15"]),
            ("not JSON", &[key], "x", ["-", "gitlab:k-1", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(told("gitlab", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn a_merge_request_is_found_by_project_user_and_number() {
        let body = r#"{"user":{"username":"ana"},"project":{"path_with_namespace":"acme/gw"},
            "object_attributes":{"id":99,"iid":1,"action":"open"}}"#;
        let expected =
            ["object=1", "object=99", "user=ana", "account=acme/gw", "provider_status=open"];
        assert_eq!(about("gitlab", &[], body), expected);
    }
}
