//! `ETag`, `If-None-Match` and `If-Match` (RFC 9110 §13): answers that say which version they are of,
//! and changes that hold for one version only.

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

/// Bytes of the hash that are shown.
const TAG_BYTES: usize = 16;

/// The tag of a representation: it is of the bytes, so it is strong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag(String);

impl Tag {
    fn of_bytes(bytes: &[u8]) -> Self {
        let hash = Sha256::digest(bytes);
        Self(format!("\"{}\"", data_encoding::HEXLOWER.encode(&hash[..TAG_BYTES])))
    }

    /// The tag that an answer with `value` has.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        // What is answered is plain data and always becomes JSON.
        Self::of_bytes(&serde_json::to_vec(value).unwrap_or_default())
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An answer in JSON with its tag.
#[derive(Debug)]
pub(crate) struct Tagged<T>(pub(crate) StatusCode, pub(crate) T);

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.1).unwrap_or_default();
        let tag = Tag::of_bytes(&body).to_string();
        let mut response = (self.0, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// An answer in JSON whose version is not that of its bytes.
#[derive(Debug)]
pub(crate) struct TaggedAs<T> {
    pub(crate) status: StatusCode,
    pub(crate) tag: Tag,
    /// It holds something that changes and does not count, so that it is always sent.
    pub(crate) moves: bool,
    pub(crate) value: T,
}

/// Marks an answer that is sent even to whoever knows its version.
#[derive(Clone, Copy)]
struct Moves;

impl<T: Serialize> IntoResponse for TaggedAs<T> {
    fn into_response(self) -> Response {
        let mut response = Tagged(self.status, self.value).into_response();
        if let Ok(tag) = HeaderValue::from_str(&self.tag.0) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        if self.moves {
            response.extensions_mut().insert(Moves);
        }
        response
    }
}

/// The tags of a condition; `*` stands for any.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    Any,
    OneOf(Vec<String>),
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Option<Tags> {
    let lines: Vec<&str> = headers.get_all(name).iter().map(|v| v.to_str().unwrap_or("")).collect();
    if lines.is_empty() {
        return None;
    }
    // Our tags hold no commas, so cutting a foreign one that does cannot make it one of ours.
    let tags = lines.iter().flat_map(|line| line.split(',')).map(|tag| tag.trim().to_owned());
    let tags: Vec<String> = tags.collect();
    Some(if tags == ["*"] { Tags::Any } else { Tags::OneOf(tags) })
}

/// What a change expects to find: the versions of `If-Match`, or anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected(Option<Tags>);

impl<S: Send + Sync> FromRequestParts<S> for Expected {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(tags(&parts.headers, &header::IF_MATCH)))
    }
}

impl Expected {
    /// Whether what is there now is what was expected. Ask where nothing can come in between.
    pub(crate) fn check(&self, current: &impl Serialize) -> Result<(), Problem> {
        let Some(Tags::OneOf(tags)) = &self.0 else { return Ok(()) };
        // Strong comparison: a weak tag is none of ours.
        if tags.contains(&Tag::of(current).0) {
            return Ok(());
        }
        let detail = "it was changed since that ETag; read it again and decide anew";
        Err(Problem::new(StatusCode::PRECONDITION_FAILED, "changed_meanwhile", detail))
    }
}

/// Answers 304 where the client has the very version that it asks for.
pub(crate) async fn spare_what_is_known(request: Request, next: Next) -> Response {
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let known = tags(request.headers(), &header::IF_NONE_MATCH).filter(|_| is_get);
    let response = next.run(request).await;
    let (Some(known), Some(tag)) = (known, response.headers().get(header::ETAG)) else {
        return response;
    };
    let is_known = match &known {
        Tags::Any => true,
        // Weak comparison, as RFC 9110 wants it here.
        Tags::OneOf(tags) => {
            tags.iter().any(|known| known.strip_prefix("W/").unwrap_or(known).as_bytes() == tag)
        }
    };
    let moves = response.extensions().get::<Moves>().is_some();
    if !is_known || moves || response.status() != StatusCode::OK {
        return response;
    }
    (StatusCode::NOT_MODIFIED, [(header::ETAG, tag.clone())]).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_holds_for_the_versions_it_names() {
        let value = json!({ "name": "a" });
        let tag = Tag::of(&value);
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
        for (lines, holds) in cases {
            let mut headers = HeaderMap::new();
            for line in &lines {
                headers.append(header::IF_MATCH, line.parse().unwrap());
            }
            let expected = Expected(tags(&headers, &header::IF_MATCH));
            assert_eq!(expected.check(&value).is_ok(), holds, "case: {lines:?}");
        }
    }
}
