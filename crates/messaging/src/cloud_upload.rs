//! Uploads a file to the Cloud API: `POST /{phone_number_id}/media`, as a multipart form.
//!
//! Only the bytes before and after the file are built here, so the file itself can be streamed.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;
use url::Url;

use super::{ChannelAccount, meta_errors, response::parse_json};

/// The only channel that accepts uploads.
pub const CHANNEL_NAME: &str = "whatsapp-cloud";

/// A POST request that uploads a file.
#[derive(Debug)]
pub struct UploadForm {
    pub url: Url,
    /// Includes the token, marked as sensitive.
    pub headers: HeaderMap,
    /// Form bytes before the file.
    pub before: Bytes,
    /// Form bytes after the file.
    pub after: Bytes,
}

/// Composes an upload. `random` makes the boundary unpredictable, so that no file can contain it.
pub fn compose_upload(
    account: &ChannelAccount,
    mime_type: &str,
    filename: &str,
    random: u128,
) -> UploadForm {
    let boundary = format!("surehook-{random:032x}");
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
        escape_filename(filename),
    );
    let mut headers = account.headers(header::AUTHORIZATION, "Bearer ");
    // Cannot fail: the boundary consists of letters, digits and hyphens.
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

/// Escapes a file name for a quoted form field, as browsers do.
fn escape_filename(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// The media id of the Cloud API, or why the upload failed.
pub fn parse_upload_response(status: u16, body: &[u8]) -> Result<String, String> {
    let body = parse_json(body);
    if let Some(response) =
        body.get("error").and_then(|error| meta_errors::parse_error(error, status))
    {
        return Err(response.text);
    }
    let id = body.get("id").and_then(Value::as_str);
    match id.filter(|id| (200..300).contains(&status) && !id.is_empty()) {
        Some(id) => Ok(id.to_owned()),
        None => Err(format!("status {status} without a media id")),
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::secret::Secret;

    use super::*;
    use crate::find_channel;

    fn account() -> ChannelAccount {
        let cloud = find_channel(CHANNEL_NAME).unwrap();
        cloud.build_account(None, Some("106540352242922"), Secret::new("token-1")).unwrap()
    }

    #[test]
    fn upload_form_has_the_three_fields_of_the_cloud_api() {
        let form = compose_upload(&account(), "image/png", "a \"b\"\r\n.png", 7);
        let boundary = "surehook-00000000000000000000000000000007";
        assert!(form.url.path().ends_with("/106540352242922/media"), "{}", form.url);
        let kind = form.headers[header::CONTENT_TYPE].to_str().unwrap();
        assert_eq!(kind, format!("multipart/form-data; boundary={boundary}"));
        assert_eq!(form.headers[header::AUTHORIZATION], "Bearer token-1");
        assert!(!format!("{form:?}").contains("token-1"));
        let form_bytes = [&form.before[..], b"BYTES", &form.after[..]].concat();
        let expected = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"messaging_product\"\r\n\r\n\
             whatsapp\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"type\"\r\n\r\nimage/png\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; \
             filename=\"a %22b%22%0D%0A.png\"\r\nContent-Type: image/png\r\n\r\nBYTES\r\n\
             --{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(form_bytes).unwrap(), expected);
    }

    #[test]
    fn upload_response_is_media_id_or_error() {
        let error = r#"{"error":{"message":"(#100) Param file must be a file","code":100}}"#;
        let cases = [
            (200, r#"{"id":"1234567890"}"#, Ok("1234567890")),
            (200, r#"{"id":""}"#, Err("without a media id")),
            (200, "<html>", Err("without a media id")),
            (400, error, Err("100")),
            (503, "", Err("status 503")),
        ];
        for (status, body, expected) in cases {
            match (parse_upload_response(status, body.as_bytes()), expected) {
                (Ok(id), Ok(expected)) => assert_eq!(id, expected),
                (Err(message), Err(part)) => {
                    assert!(message.contains(part), "case: {body}: {message}");
                }
                (result, _) => panic!("case: {body}: {result:?}"),
            }
        }
    }
}
