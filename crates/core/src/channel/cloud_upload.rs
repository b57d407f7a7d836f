//! A file that goes to the Cloud API itself: `POST /{phone_number_id}/media`, as a form.
//!
//! The file is not held here: a form is what stands before it and what stands after it.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;
use url::Url;

use super::{ChannelAccount, answer::json, meta};

/// The only service that takes files.
pub const CHANNEL_NAME: &str = "whatsapp-cloud";

/// A request that uploads a file.
#[derive(Debug)]
pub struct UploadForm {
    /// Where to, with POST.
    pub url: Url,
    /// With the token, which does not print.
    pub headers: HeaderMap,
    /// What stands before the file.
    pub before: Bytes,
    /// What stands after it.
    pub after: Bytes,
}

/// The request that uploads a file. `dice` keeps the file from holding what parts the form.
pub fn compose_upload(
    account: &ChannelAccount,
    mime_type: &str,
    filename: &str,
    dice: u128,
) -> UploadForm {
    let boundary = format!("surehook-{dice:032x}");
    let field = |name: &str, value: &str| {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        )
    };
    let before = format!(
        "{}{}--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\
         Content-Type: {mime_type}\r\n\r\n",
        field("messaging_product", "whatsapp"),
        field("type", mime_type),
        quoted(filename),
    );
    let mut headers = account.headers(header::AUTHORIZATION, "Bearer ");
    // Of letters and digits only.
    if let Ok(form) = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}")) {
        headers.insert(header::CONTENT_TYPE, form);
    }
    UploadForm {
        url: account.url([account.sender(), "media"]),
        headers,
        before: before.into(),
        after: format!("\r\n--{boundary}--\r\n").into(),
    }
}

/// What can stand between quotes in a form, as browsers write it.
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// What the Cloud API calls the file, or why it did not take it.
pub fn parse_upload_response(status: u16, body: &[u8]) -> Result<String, String> {
    let body = json(body);
    if let Some(answer) = body.get("error").and_then(|error| meta::parse_error(error, status)) {
        return Err(answer.text);
    }
    let id = body.get("id").and_then(Value::as_str);
    match id.filter(|id| (200..300).contains(&status) && !id.is_empty()) {
        Some(id) => Ok(id.to_owned()),
        None => Err(format!("it answered {status} without an id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{channel::find, secret::Secret};

    fn account() -> ChannelAccount {
        let cloud = find(CHANNEL_NAME).unwrap();
        cloud.build_account(None, Some("106540352242922"), Secret::new("token-1")).unwrap()
    }

    #[test]
    fn a_form_has_the_three_fields_of_the_cloud_api() {
        let form = compose_upload(&account(), "image/png", "a \"b\"\r\n.png", 7);
        let boundary = "surehook-00000000000000000000000000000007";
        assert!(form.url.path().ends_with("/106540352242922/media"), "{}", form.url);
        let kind = form.headers[header::CONTENT_TYPE].to_str().unwrap();
        assert_eq!(kind, format!("multipart/form-data; boundary={boundary}"));
        assert_eq!(form.headers[header::AUTHORIZATION], "Bearer token-1");
        assert!(!format!("{form:?}").contains("token-1"));
        let whole = [&form.before[..], b"BYTES", &form.after[..]].concat();
        let expected = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"messaging_product\"\r\n\r\n\
             whatsapp\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"type\"\r\n\r\nimage/png\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; \
             filename=\"a %22b%22%0D%0A.png\"\r\nContent-Type: image/png\r\n\r\nBYTES\r\n\
             --{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(whole).unwrap(), expected);
    }

    #[test]
    fn the_answer_is_an_id_or_says_why_not() {
        let error = r#"{"error":{"message":"(#100) Param file must be a file","code":100}}"#;
        let cases = [
            (200, r#"{"id":"1234567890"}"#, Ok("1234567890")),
            (200, r#"{"id":""}"#, Err("without an id")),
            (200, "<html>", Err("without an id")),
            (400, error, Err("100")),
            (503, "", Err("it answered 503")),
        ];
        for (status, body, expected) in cases {
            match (parse_upload_response(status, body.as_bytes()), expected) {
                (Ok(id), Ok(expected)) => assert_eq!(id, expected),
                (Err(why), Err(part)) => assert!(why.contains(part), "case: {body}: {why}"),
                (read, _) => panic!("case: {body}: {read:?}"),
            }
        }
    }
}
