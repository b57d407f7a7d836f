//! Typeform: looks like GitHub's signature, and is written in base64.

use std::sync::LazyLock;

use super::{BodyFields, EventKey, EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{HmacSpec, SignatureEncoding, Verifier, VerifySpecError},
};

static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/event_id",
        "/event_type",
        "/form_response/form_id",
        "/form_response/token",
        "/form_response/hidden/email",
        "/form_response/hidden/user_id",
    ])
});

const ABOUT: [(AttributeName, usize); 4] = [
    (AttributeName::Account, 2),
    (AttributeName::Object, 3),
    (AttributeName::Email, 4),
    (AttributeName::User, 5),
];

#[derive(Debug)]
pub(super) struct Typeform;

impl Provider for Typeform {
    fn name(&self) -> &'static str {
        "typeform"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            prefix: "sha256=".to_owned(),
            encoding: SignatureEncoding::Base64,
            ..HmacSpec::new("typeform-signature")
        };
        Verifier::hmac(spec, secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        ParsedRequest::one(EventPart {
            kind: found.get(1).and_then(EventKind::new),
            key: EventKey::known(found.key("typeform", &[0]), "typeform:event_id"),
            order: found.get(2).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// It goes on for ten hours.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(2 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["typeform-signature"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        &[SampleEvent {
            kind: "form_response",
            headers: &[("content-type", "application/json")],
            target: "",
            body: include_str!("samples/typeform.form_response.json"),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{about, told, verify};

    #[test]
    fn a_response_is_told_apart_by_its_event_and_not_by_its_form() {
        let body = r#"{"event_id":"E1","event_type":"form_response","form_response":{"form_id":"F1","token":"t1","hidden":{"email":"ana@example.com"}}}"#;
        assert_eq!(told("typeform", &[], body), ["form_response", "typeform:E1", "F1"]);
        assert_eq!(
            about("typeform", &[], body),
            ["object=t1", "email=ana@example.com", "account=F1"]
        );
        assert_eq!(told("typeform", &[], r#"{"event_type":"x"}"#), ["x", "-", "-"]);
        assert_eq!(told("typeform", &[], "x"), ["-", "-", "-"]);
    }

    #[test]
    fn the_signature_is_base64_and_nothing_else() {
        // HMAC-SHA256 of `{}` with the key `secret`, in both spellings.
        let base64 = "sha256=dzJZAsrKgS3CWXM6rNBGtzgXNyx3e42VtAJkdHRRbhM=";
        let hex = "sha256=77325902caca812dc259733aacd046b73817372c777b8d95b402647474516e13";
        let check = |value: &str| {
            verify("typeform", &["secret"], &[("typeform-signature", value)], "{}", 0).is_ok()
        };
        assert_eq!([check(base64), check(&base64[7..]), check(hex)], [true, false, false]);
    }
}
