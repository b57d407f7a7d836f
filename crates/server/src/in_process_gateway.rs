//! Calls to the API that are made inside this process, without a socket: by the dashboard with the
//! rights of its user, and by CLI commands that read a data folder.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use surehook_core::{access::ClientAddress, clock::ClockStatus};
use surehook_dashboard::gateway::{
    Credential, DashboardGateway, DashboardSession, NewSession, SignInError,
};
use surehook_types::time::Timestamp;
use tower::ServiceExt as _;

use crate::{
    ServerState,
    auth::{DashboardCall, InProcessCall},
    problem::Problem,
    router,
    session::StartedSession,
};

/// The gateway that the dashboard talks to.
pub(crate) struct InProcessGateway {
    pub(crate) server: Arc<ServerState>,
    /// The API router, without the dashboard's pages.
    pub(crate) api: Router,
}

#[async_trait]
impl DashboardGateway for InProcessGateway {
    async fn call(&self, session: &DashboardSession, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().insert(DashboardCall(session.hash));
        match self.api.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn find_session(&self, secret: &str) -> Option<DashboardSession> {
        let session = self.server.use_session(secret).await?;
        Some(DashboardSession {
            id: session.id,
            hash: session.hash,
            name: session.name,
            role: session.role,
            expires_at: session.expires_at,
        })
    }

    async fn sign_in(
        &self,
        credential: Credential<'_>,
        client: Option<&ClientAddress>,
    ) -> Result<NewSession, SignInError> {
        let session = match credential {
            Credential::ApiToken(token) => self.server.start_session_with_token(token).await,
            Credential::LoginLink(code) => self.server.start_session_with_link(code).await,
        };
        let unavailable = |_: Problem| SignInError::Unavailable;
        let session = session.map_err(unavailable)?;
        let Some(StartedSession { secret, lifetime }) = session else {
            let throttled = self.server.failed_logins.record(client, self.now());
            return Err(match throttled {
                None => SignInError::InvalidCredential,
                Some(retry_after_secs) => SignInError::Throttled { retry_after_secs },
            });
        };
        Ok(NewSession { secret, lifetime_secs: lifetime.as_secs() })
    }

    async fn sign_out(&self, session: &DashboardSession) {
        // First in memory: even if the store fails, this process no longer accepts the session.
        self.server.tokens.remove(session.id);
        let now = self.server.engine.clock().now();
        if let Err(error) = self.server.engine.store().remove_token(session.id, now).await {
            tracing::warn!(%error, session = %session.id, "could not remove session from the store");
        }
        self.server.engine.announce_token_change();
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn public_url(&self) -> Option<String> {
        self.server.engine.public_url().map(|url| url.as_str().to_owned())
    }

    fn now(&self) -> Timestamp {
        self.server.engine.clock().now()
    }

    fn clock_status(&self) -> ClockStatus {
        self.server.engine.clock_status()
    }

    fn new_idempotency_key(&self) -> String {
        format!("{:032x}", self.server.engine.rng().next_u128())
    }
}

impl ServerState {
    /// Answers `GET /api/v1{path}` without a token, read-only: the user of this process can read the
    /// data folder anyway.
    pub async fn get_in_process(
        self: &Arc<Self>,
        path: &str,
    ) -> Result<(StatusCode, Bytes), http::Error> {
        let request =
            Request::get(format!("/api/v1{path}")).extension(InProcessCall).body(Body::empty())?;
        let response = match router::build_api_router(Arc::clone(self)).oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        // The body is already in memory and cannot break off.
        let body = response.into_body().collect().await.map(|body| body.to_bytes());
        Ok((status, body.unwrap_or_default()))
    }
}
