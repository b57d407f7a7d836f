//! The API without a socket: for a command that looks at a data folder itself.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::{App, auth::FromInside, front};

impl App {
    /// Asks what `GET /api/v1{path}` would answer. Whoever has the process needs no token, and can
    /// only look.
    pub async fn ask(self: &Arc<Self>, path: &str) -> Result<(StatusCode, Bytes), http::Error> {
        let request =
            Request::get(format!("/api/v1{path}")).extension(FromInside).body(Body::empty())?;
        let answer = match front::router(Arc::clone(self)).oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let status = answer.status();
        // The body is in memory already; it cannot break off.
        let body = answer.into_body().collect().await.map(|body| body.to_bytes());
        Ok((status, body.unwrap_or_default()))
    }
}
