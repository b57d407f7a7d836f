//! Typeform: like GitHub's signature, but in base64.

use surehook_types::time::HumanDuration;

use super::{
    SampleEvent,
    fields::body_fields,
    preset::{HmacPreset, PresetKey},
};
use crate::{
    attribute::AttributeName,
    verify::{HmacSpec, SignatureEncoding},
};

body_fields! {
    static FIELDS {
        EVENT_ID = "/event_id",
        EVENT_TYPE = "/event_type",
        FORM_ID = "/form_response/form_id",
        RESPONSE_TOKEN = "/form_response/token",
        HIDDEN_EMAIL = "/form_response/hidden/email",
        HIDDEN_USER_ID = "/form_response/hidden/user_id",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 4] = [
    (AttributeName::Account, FORM_ID),
    (AttributeName::Object, RESPONSE_TOKEN),
    (AttributeName::Email, HIDDEN_EMAIL),
    (AttributeName::User, HIDDEN_USER_ID),
];

pub(super) static TYPEFORM: HmacPreset = HmacPreset {
    name: "typeform",
    signature,
    signature_headers: &["typeform-signature"],
    // Typeform retries for ten hours.
    dedup_window: HumanDuration::from_secs(2 * 86_400),
    fields: &FIELDS,
    kind: &[EVENT_TYPE],
    key: PresetKey::Fields { prefix: "typeform", fields: &[EVENT_ID], label: "typeform:event_id" },
    order: &[FORM_ID],
    attributes: &ATTRIBUTES,
    samples: &[SampleEvent {
        kind: "form_response",
        headers: &[("content-type", "application/json")],
        target: "",
        body: include_str!("samples/typeform.form_response.json"),
    }],
};

fn signature() -> HmacSpec {
    HmacSpec {
        prefix: "sha256=".to_owned(),
        encoding: SignatureEncoding::Base64,
        ..HmacSpec::new("typeform-signature")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute_pairs, summary, verify};

    #[test]
    fn key_is_the_event_id_and_not_the_form_id() {
        let body = r#"{"event_id":"E1","event_type":"form_response","form_response":{"form_id":"F1","token":"t1","hidden":{"email":"ana@example.com"}}}"#;
        assert_eq!(summary("typeform", &[], body), ["form_response", "typeform:E1", "F1"]);
        assert_eq!(
            attribute_pairs("typeform", &[], body),
            ["object=t1", "email=ana@example.com", "account=F1"]
        );
        assert_eq!(summary("typeform", &[], r#"{"event_type":"x"}"#), ["x", "-", "-"]);
        assert_eq!(summary("typeform", &[], "x"), ["-", "-", "-"]);
    }

    #[test]
    fn signature_must_be_base64() {
        // HMAC-SHA256 of `{}` with the key `secret`, in both spellings.
        let base64 = "sha256=dzJZAsrKgS3CWXM6rNBGtzgXNyx3e42VtAJkdHRRbhM=";
        let hex = "sha256=77325902caca812dc259733aacd046b73817372c777b8d95b402647474516e13";
        let check = |value: &str| {
            verify("typeform", &["secret"], &[("typeform-signature", value)], "{}", 0).is_ok()
        };
        assert_eq!([check(base64), check(&base64[7..]), check(hex)], [true, false, false]);
    }
}
