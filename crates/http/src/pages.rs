//! The dashboard on top of the API: its calls run here with the rights of whoever has signed in.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{Router, body::Body};
use http::{Request, Response};
use surehook_core::time::Timestamp;
use surehook_dashboard::gateway::{
    Credential, DashboardGateway, DashboardSession, NewSession, SignInError,
};
use tower::ServiceExt as _;

use crate::{App, auth::OnBehalf, problem::Problem, session::Begun};

/// The gateway as the dashboard sees it.
pub(crate) struct Behind {
    pub(crate) app: Arc<App>,
    /// The API, without the pages.
    pub(crate) api: Router,
}

#[async_trait]
impl DashboardGateway for Behind {
    async fn call(&self, session: &DashboardSession, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().insert(OnBehalf(session.hash));
        match self.api.clone().oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    fn find_session(&self, secret: &str) -> Option<DashboardSession> {
        let session = self.app.tokens.session(secret, self.app.engine.clock().now())?;
        Some(DashboardSession {
            id: session.id,
            hash: session.hash,
            name: session.name,
            role: session.role,
            expires_at: session.expires_at,
        })
    }

    async fn sign_in(&self, credential: Credential<'_>) -> Result<NewSession, SignInError> {
        let begun = match credential {
            Credential::ApiToken(token) => self.app.begin_with_token(token).await,
            Credential::LoginLink(code) => self.app.begin_with_link(code).await,
        };
        let unavailable = |_: Problem| SignInError::Unavailable;
        let Begun { secret, life } =
            begun.map_err(unavailable)?.ok_or(SignInError::InvalidCredential)?;
        Ok(NewSession { secret, lifetime_secs: life.as_secs() })
    }

    async fn sign_out(&self, session: &DashboardSession) {
        // Also if it cannot be written down: this process lets nobody in by it.
        self.app.tokens.forget(session.id);
        self.app.links.forget(session.id);
        let now = self.app.engine.clock().now();
        if let Err(error) = self.app.engine.store().remove_token(session.id, now).await {
            tracing::warn!(%error, session = %session.id, "a session could not be taken away");
        }
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn public_url(&self) -> Option<String> {
        self.app.engine.public_url().map(|url| url.as_str().to_owned())
    }

    fn now(&self) -> Timestamp {
        self.app.engine.clock().now()
    }

    fn new_idempotency_key(&self) -> String {
        format!("{:032x}", self.app.engine.chance().bits())
    }
}
