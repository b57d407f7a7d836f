//! Stored bodies and headers in API responses, with their secrets masked.
//!
//! [`surehook_types::redact`] decides what is secret. Operators may request the exact bytes.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::{BodyContent, HeaderField};
use surehook_core::{access::Role, event::Payload, store::Configuration};
use surehook_types::redact::{self, MASK, RedactedBody, SecretNames};

use crate::{auth::SecretAccess, problem::Problem};

/// Number of masked values in the body.
const MASKED_HEADER: HeaderName = HeaderName::from_static("surehook-masked");
/// Set if a compressed body was decompressed to mask it.
const UNPACKED_HEADER: HeaderName = HeaderName::from_static("surehook-unpacked");

/// Query of endpoints that return a body.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BodyQuery {
    /// Return the exact stored bytes, including secrets. Requires the role operator.
    #[schemars(with = "Option<bool>")]
    exact: Option<String>,
}

impl BodyQuery {
    /// Whether the exact bytes are requested; an error if the caller may not have them.
    pub(super) fn is_exact(&self, access: SecretAccess) -> Result<bool, Problem> {
        match self.exact.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => require_secret_access(access).map(|()| true),
            Some(_) => Err(Problem::invalid("`exact` must be true or false.")),
        }
    }
}

pub(super) fn require_secret_access(access: SecretAccess) -> Result<(), Problem> {
    if access.is_granted() {
        return Ok(());
    }
    let detail =
        format!("The exact bytes may contain secrets; the role {} is required.", Role::Operator);
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
}

/// Description shared by endpoints that return a body.
pub(super) const BODY_DESCRIPTION: &str = "Secret values are replaced by `•••`; all other bytes are \
    unchanged. The header `Surehook-Masked` gives the number of masked values.";

/// A body as a download, masked unless `exact`.
pub(super) fn download_response(
    name: &str,
    payload: Payload,
    names: &SecretNames,
    exact: bool,
) -> Result<Response, Problem> {
    let Payload { head, body, .. } = payload;
    if exact {
        return Ok(attachment(name, body));
    }
    let RedactedBody { body: masked, fields, is_unpacked } =
        redact::mask_body(&head.headers.to_map(), &body, names).map_err(opaque_body_problem)?;
    if fields == 0 {
        return Ok(attachment(name, body));
    }
    let mut response = attachment(name, bytes::Bytes::from(masked.into_owned()));
    response.headers_mut().insert(MASKED_HEADER, HeaderValue::from(fields));
    if is_unpacked {
        response.headers_mut().insert(UNPACKED_HEADER, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// The problem for a body that cannot be parsed, so that its secrets cannot be found.
pub(super) fn opaque_body_problem(error: redact::UnreadableBodyError) -> Problem {
    let detail = format!(
        "{error}, so its secrets cannot be masked. Use exact=true, which requires the role {}.",
        Role::Operator
    );
    Problem::new(StatusCode::CONFLICT, "body_opaque", detail)
}

/// Bytes as a download, so that a browser never runs them.
fn attachment(name: &str, body: bytes::Bytes) -> Response {
    let value = format!("attachment; filename=\"{name}.bin\"");
    let disposition =
        HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("attachment"));
    let content_type = HeaderValue::from_static("application/octet-stream");
    let headers =
        [(header::CONTENT_TYPE, content_type), (header::CONTENT_DISPOSITION, disposition)];
    (headers, body).into_response()
}

/// A body for a JSON response, and the number of masked values. A body that cannot be parsed is
/// masked completely.
pub(super) fn mask_body(
    headers: &HeaderMap,
    body: &[u8],
    names: &SecretNames,
) -> (BodyContent, usize) {
    match redact::mask_body(headers, body, names) {
        Ok(masked) => (BodyContent::from(&*masked.body), masked.fields),
        Err(_) => (BodyContent::Text { text: MASK.to_owned() }, 1),
    }
}

/// The path of an accepted request after the source's name. Senders that can configure only a URL put a
/// secret there, so those who may not see secrets see none of it.
pub(super) fn visible_path(path: &str, access: SecretAccess) -> String {
    if access.is_granted() { path.to_owned() } else { redact::mask_path(path) }
}

/// Headers for a JSON response, secrets masked. A signature is masked for those who may not see secrets:
/// with it, a request can be sent again.
pub(super) fn mask_headers<'a>(
    lines: impl Iterator<Item = (&'a str, &'a [u8])>,
    names: &SecretNames,
    access: SecretAccess,
    configuration: &Configuration,
) -> Vec<HeaderField> {
    let is_hidden = |name: &str| !access.is_granted() && configuration.is_signature_header(name);
    lines
        .map(|(name, value)| {
            let value = match names.is_secret_parameter(name) || is_hidden(name) {
                true => BodyContent::Text { text: MASK.to_owned() },
                false => BodyContent::from(value),
            };
            HeaderField { name: name.to_owned(), value }
        })
        .collect()
}
