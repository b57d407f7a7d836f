//! What comes in: typed, bounded, with errors that say where. Every refusal is a [`Problem`].

use std::sync::Arc;

use axum::{
    body::HttpBody as _,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use http::{StatusCode, Uri, header, request::Parts};
use serde::de::DeserializeOwned;

use crate::{App, body, problem::Problem};

/// The largest body the API takes.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The one part of the address that differs.
#[derive(Debug)]
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // What is not UTF-8 is the name of nothing.
        let Path(segment) = Path::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::not_found("address"))?;
        Ok(Self(segment))
    }
}

/// The two parts of the address that differ.
#[derive(Debug)]
pub(crate) struct Segments(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segments {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path((one, other)) = Path::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::not_found("address"))?;
        Ok(Self(one, other))
    }
}

/// A query string.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(Problem::invalid(rejection.body_text())),
        }
    }
}

/// A query string that may name places in a body beside what is always the same: `body.PATH=value`.
#[derive(Debug)]
pub(crate) struct AskedOfBody<T>(pub(crate) T, pub(crate) Vec<(String, String)>);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for AskedOfBody<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let pairs = parts.uri.query().unwrap_or_default().split('&');
        let (bodies, rest): (Vec<&str>, Vec<&str>) = pairs.partition(|pair| is_of_body(pair));
        let bodies: Vec<(String, String)> = read_query(&bodies)?;
        let cut = |(name, value): (String, String)| Some((name.get(5..)?.to_owned(), value));
        Ok(Self(read_query(&rest)?, bodies.into_iter().filter_map(cut).collect()))
    }
}

/// Whether a pair of a query begins with `body.`, also if its dot is escaped.
fn is_of_body(pair: &str) -> bool {
    let rest = pair.strip_prefix("body").and_then(|rest| rest.get(..rest.len().min(3)));
    rest.is_some_and(|rest| rest.starts_with('.') || rest.eq_ignore_ascii_case("%2e"))
}

fn read_query<T: DeserializeOwned>(pairs: &[&str]) -> Result<T, Problem> {
    let unreadable = |_| Problem::invalid("the query cannot be read");
    let uri: Uri = format!("/?{}", pairs.join("&")).parse().map_err(unreadable)?;
    match Query::try_from_uri(&uri) {
        Ok(Query(read)) => Ok(read),
        Err(rejection) => Err(Problem::invalid(rejection.body_text())),
    }
}

/// A JSON object, or nothing at all, which stands for an empty one.
#[derive(Debug)]
pub(crate) struct Wish<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for Wish<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        Input::from_request(request, app).await.map(|Input(wish)| Self(wish))
    }
}

/// A JSON object.
#[derive(Debug)]
pub(crate) struct Input<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Input<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let is_json = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| {
                kind.split(';').next().unwrap_or_default().trim() == "application/json"
            });
        if !is_json {
            let detail = "send JSON with Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        let time = app.limits.body_timeout;
        let body = body::whole(request.into_body(), BODY_BYTES_MAX, time).await?;
        // A list would be read as the fields in the order in which they happen to be declared.
        if body.trim_ascii_start().starts_with(b"[") {
            return Err(Problem::invalid("the body is a list; it must be an object"));
        }
        match serde_json::from_slice(&body) {
            Ok(value) => Ok(Self(value)),
            Err(error) if error.is_data() => Err(Problem::invalid(error.to_string())),
            Err(error) => {
                let detail = format!("the body is not JSON: {error}");
                Err(Problem::new(StatusCode::BAD_REQUEST, "bad_json", detail))
            }
        }
    }
}
