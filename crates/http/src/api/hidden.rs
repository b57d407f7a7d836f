//! What is not shown of a stored request or answer: whatever lets somebody in somewhere.
//!
//! What is secret is decided in one place, [`surehook_core::redact`]; this is how it gets into an
//! answer. Whoever may look after deliveries can ask for the exact bytes of a body.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_core::{
    access::Role,
    event::Payload,
    redact::{self, MASK, RedactedBody, SecretNames},
};

use super::{Bytes, HeaderLine};
use crate::{auth::Insight, problem::Problem};

/// Says how many values of a body were replaced.
const MASKED: HeaderName = HeaderName::from_static("surehook-masked");
/// Says that a body came packed and is shown unpacked.
const UNPACKED: HeaderName = HeaderName::from_static("surehook-unpacked");

/// How a body is wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BodyQuery {
    /// `true` gives every byte as it is stored, secrets too. Needs the role operator.
    #[schemars(with = "Option<bool>")]
    exact: Option<String>,
}

impl BodyQuery {
    /// Whether the exact bytes are wanted, by somebody who may have them.
    pub(super) fn is_exact(&self, insight: Insight) -> Result<bool, Problem> {
        match self.exact.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => exactly(insight).map(|()| true),
            Some(_) => Err(Problem::invalid("exact is true or false")),
        }
    }
}

/// Whether somebody may have the exact bytes.
pub(super) fn exactly(insight: Insight) -> Result<(), Problem> {
    if insight.0 {
        return Ok(());
    }
    let detail = format!("the exact bytes may hold secrets, and need the role {}", Role::Operator);
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
}

/// Text and headers of a body call, for its description.
pub(super) const ABOUT_BODIES: &str = "Values of secret fields are replaced by `•••`, and every \
    other byte is as it was; the header `Surehook-Masked` says how many there were. With \
    `exact=true` nothing is replaced.";

/// A body as a file, its secrets masked unless it is wanted exactly.
pub(super) fn download(
    name: &str,
    payload: Payload,
    names: &SecretNames,
    exact: bool,
) -> Result<Response, Problem> {
    let Payload { head, body, .. } = payload;
    if exact {
        return Ok(file(name, body));
    }
    let RedactedBody { body: shown, fields, unpacked } =
        redact::mask_body(&head.headers.to_map(), &body, names).map_err(opaque)?;
    if fields == 0 {
        return Ok(file(name, body));
    }
    let mut response = file(name, bytes::Bytes::from(shown.into_owned()));
    response.headers_mut().insert(MASKED, HeaderValue::from(fields));
    if unpacked {
        response.headers_mut().insert(UNPACKED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// What is said of a body that cannot be looked into.
pub(super) fn opaque(opaque: redact::UnreadableBodyError) -> Problem {
    let detail = format!(
        "{opaque}, so its secrets cannot be masked; ask with exact=true, which needs the role {}",
        Role::Operator
    );
    Problem::new(StatusCode::CONFLICT, "body_opaque", detail)
}

/// Bytes as a file: whatever they say they are, a browser must not run them.
fn file(name: &str, body: bytes::Bytes) -> Response {
    let file = format!("attachment; filename=\"{name}.bin\"");
    let disposition =
        HeaderValue::from_str(&file).unwrap_or(HeaderValue::from_static("attachment"));
    let kind = HeaderValue::from_static("application/octet-stream");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, disposition)];
    (headers, body).into_response()
}

/// A body inside an answer, and how many of its values were replaced. One that cannot be looked into
/// is masked as a whole.
pub(super) fn body(headers: &HeaderMap, body: &[u8], names: &SecretNames) -> (Bytes, usize) {
    match redact::mask_body(headers, body, names) {
        Ok(shown) => (Bytes::from(&*shown.body), shown.fields),
        Err(_) => (Bytes::Text { text: MASK.to_owned() }, 1),
    }
}

/// The lines of a head.
pub(super) fn header_lines<'a>(
    lines: impl Iterator<Item = (&'a str, &'a [u8])>,
    names: &SecretNames,
) -> Vec<HeaderLine> {
    lines
        .map(|(name, value)| {
            let value = match names.is_parameter(name) {
                true => Bytes::Text { text: MASK.to_owned() },
                false => Bytes::from(value),
            };
            HeaderLine { name: name.to_owned(), value }
        })
        .collect()
}
