//! Extractors for path, query and JSON body. Every rejection is a [`Problem`] that says what is wrong.

use std::sync::Arc;

use axum::{
    body::HttpBody as _,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use http::{StatusCode, Uri, header, request::Parts};
use serde::de::DeserializeOwned;

use crate::{ServerState, body::read_body, problem::Problem};

/// Largest JSON body of an API request.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The only parameter of the path.
#[derive(Debug)]
pub(crate) struct PathParam(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(value) = Path::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::not_found("endpoint"))?;
        Ok(Self(value))
    }
}

/// The two parameters of the path.
#[derive(Debug)]
pub(crate) struct PathParamPair(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathParamPair {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path((first, second)) = Path::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::not_found("endpoint"))?;
        Ok(Self(first, second))
    }
}

#[derive(Debug)]
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse_query(&parts.uri).map(Self)
    }
}

/// Query parameters plus any number of `body.PATH=value` filters.
#[derive(Debug)]
pub(crate) struct QueryParamsWithBodyValues<T>(pub(crate) T, pub(crate) Vec<(String, String)>);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParamsWithBodyValues<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let pairs = parts.uri.query().unwrap_or_default().split('&');
        let (values, rest): (Vec<&str>, Vec<&str>) = pairs.partition(|pair| is_body_value(pair));
        let values: Vec<(String, String)> = parse_pairs(&values)?;
        let strip = |(name, value): (String, String)| Some((name.get(5..)?.to_owned(), value));
        Ok(Self(parse_pairs(&rest)?, values.into_iter().filter_map(strip).collect()))
    }
}

/// Whether a query pair begins with `body.`, also if the dot is percent-encoded.
fn is_body_value(pair: &str) -> bool {
    let rest = pair.strip_prefix("body").and_then(|rest| rest.get(..rest.len().min(3)));
    rest.is_some_and(|rest| rest.starts_with('.') || rest.eq_ignore_ascii_case("%2e"))
}

fn parse_pairs<T: DeserializeOwned>(pairs: &[&str]) -> Result<T, Problem> {
    let invalid = |_| Problem::invalid("The query string cannot be parsed.");
    let uri: Uri = format!("/?{}", pairs.join("&")).parse().map_err(invalid)?;
    parse_query(&uri)
}

fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    match Query::try_from_uri(uri) {
        Ok(Query(params)) => Ok(params),
        Err(rejection) => Err(Problem::invalid(rejection.body_text())),
    }
}

/// A JSON object; an empty body counts as an empty object.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<ServerState>> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, server: &Arc<ServerState>) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        JsonBody::from_request(request, server).await.map(|JsonBody(value)| Self(value))
    }
}

/// A JSON object.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<ServerState>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, server: &Arc<ServerState>) -> Result<Self, Problem> {
        let is_json = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| {
                kind.split(';').next().unwrap_or_default().trim() == "application/json"
            });
        if !is_json {
            let detail = "Send JSON with `Content-Type: application/json`.";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        let pace = server.limits.body_pace();
        let body = read_body(request.into_body(), BODY_BYTES_MAX, pace).await?;
        // serde would accept an array as the fields in declaration order.
        if body.trim_ascii_start().starts_with(b"[") {
            return Err(Problem::invalid("The body is a JSON array. Send a JSON object."));
        }
        match serde_json::from_slice(&body) {
            Ok(value) => Ok(Self(value)),
            Err(error) if error.is_data() => Err(Problem::invalid(error.to_string())),
            Err(error) => {
                let detail = format!("The body is not valid JSON: {error}");
                Err(Problem::new(StatusCode::BAD_REQUEST, "bad_json", detail))
            }
        }
    }
}
