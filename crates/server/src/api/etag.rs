//! `ETag`, `If-None-Match` and `If-Match` (RFC 9110 §13): versioned responses and conditional changes.

use std::{convert::Infallible, fmt};

use axum::{
    extract::{FromRequestParts, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::problem::Problem;

/// Bytes of the hash that become the tag.
const TAG_HASH_BYTES: usize = 16;

/// A strong entity tag: a hash of the representation's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ETag(String);

impl ETag {
    fn from_bytes(bytes: &[u8]) -> Self {
        let hash = Sha256::digest(bytes);
        Self(format!("\"{}\"", data_encoding::HEXLOWER.encode(&hash[..TAG_HASH_BYTES])))
    }

    /// The tag of a response with `value` as JSON.
    pub(crate) fn from_value(value: &impl Serialize) -> Self {
        // Response types always serialize.
        Self::from_bytes(&serde_json::to_vec(value).unwrap_or_default())
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A JSON response whose `ETag` is the hash of its bytes.
#[derive(Debug)]
pub(crate) struct JsonWithETag<T>(pub(crate) StatusCode, pub(crate) T);

impl<T: Serialize> IntoResponse for JsonWithETag<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.1).unwrap_or_default();
        let tag = ETag::from_bytes(&body).to_string();
        let mut response = (self.0, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// A JSON response whose `ETag` covers only part of it, such as the settings without the state.
#[derive(Debug)]
pub(crate) struct VersionedJson<T> {
    pub(crate) status: StatusCode,
    pub(crate) tag: ETag,
    /// The response also holds state outside the version, so 304 must never be answered.
    pub(crate) has_state: bool,
    pub(crate) value: T,
}

/// Marks a response that is sent even if the client has its version.
#[derive(Clone, Copy)]
struct AlwaysSent;

impl<T: Serialize> IntoResponse for VersionedJson<T> {
    fn into_response(self) -> Response {
        let mut response = JsonWithETag(self.status, self.value).into_response();
        if let Ok(tag) = HeaderValue::from_str(&self.tag.0) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        if self.has_state {
            response.extensions_mut().insert(AlwaysSent);
        }
        response
    }
}

/// The condition of `If-Match` or `If-None-Match`, with its tags.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ETagCondition {
    Any,
    OneOf(Vec<String>),
}

fn parse_condition(headers: &HeaderMap, name: &HeaderName) -> Option<ETagCondition> {
    let lines: Vec<&str> = headers.get_all(name).iter().map(|v| v.to_str().unwrap_or("")).collect();
    if lines.is_empty() {
        return None;
    }
    // Our tags contain no commas, so splitting a foreign one cannot produce one of ours.
    let tags = lines.iter().flat_map(|line| line.split(',')).map(|tag| tag.trim().to_owned());
    let tags: Vec<String> = tags.collect();
    Some(if tags == ["*"] { ETagCondition::Any } else { ETagCondition::OneOf(tags) })
}

/// The `If-Match` condition of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IfMatch(Option<ETagCondition>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parse_condition(&parts.headers, &header::IF_MATCH)))
    }
}

impl IfMatch {
    /// Checks the current version. Call it inside the change, so that nothing can come in between.
    pub(crate) fn check(&self, current: &impl Serialize) -> Result<(), Problem> {
        let Some(ETagCondition::OneOf(tags)) = &self.0 else { return Ok(()) };
        // Strong comparison: our tags are never weak.
        if tags.contains(&ETag::from_value(current).0) {
            return Ok(());
        }
        let detail = "The resource has changed since you read it. Read it again and retry.";
        Err(Problem::new(StatusCode::PRECONDITION_FAILED, "changed_meanwhile", detail))
    }
}

/// Middleware: answers 304 if the client already has the current version.
pub(crate) async fn answer_not_modified(request: Request, next: Next) -> Response {
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let condition = parse_condition(request.headers(), &header::IF_NONE_MATCH).filter(|_| is_get);
    let response = next.run(request).await;
    let (Some(condition), Some(tag)) = (condition, response.headers().get(header::ETAG)) else {
        return response;
    };
    let has_current_version = match &condition {
        ETagCondition::Any => true,
        // Weak comparison, as RFC 9110 requires here.
        ETagCondition::OneOf(tags) => {
            tags.iter().any(|known| known.strip_prefix("W/").unwrap_or(known).as_bytes() == tag)
        }
    };
    let is_always_sent = response.extensions().get::<AlwaysSent>().is_some();
    if !has_current_version || is_always_sent || response.status() != StatusCode::OK {
        return response;
    }
    (StatusCode::NOT_MODIFIED, [(header::ETAG, tag.clone())]).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn change_is_applied_only_to_versions_in_if_match() {
        let value = json!({ "name": "a" });
        let tag = ETag::from_value(&value);
        let weak = format!("W/{tag}");
        let several = format!("\"x\", {tag}");
        let cases = [
            (vec![], true),
            (vec!["*"], true),
            (vec![tag.0.as_str()], true),
            (vec![several.as_str()], true),
            (vec!["\"x\"", tag.0.as_str()], true),
            (vec![weak.as_str()], false),
            (vec!["\"x\""], false),
            (vec![""], false),
            (vec!["\"*\""], false),
            (vec![tag.0.trim_matches('"')], false),
        ];
        for (lines, is_applied) in cases {
            let mut headers = HeaderMap::new();
            for line in &lines {
                headers.append(header::IF_MATCH, line.parse().unwrap());
            }
            let condition = IfMatch(parse_condition(&headers, &header::IF_MATCH));
            assert_eq!(condition.check(&value).is_ok(), is_applied, "case: {lines:?}");
        }
    }
}
