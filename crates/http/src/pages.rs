//! The dashboard on top of the API: its calls run here with the rights of whoever has signed in.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{Router, body::Body};
use http::{Request, Response};
use surehook_core::time::Timestamp;
use surehook_dashboard::gateway::{Caller, Gateway, Proof, Refused, SignedIn};
use tower::ServiceExt as _;

use crate::{App, auth::OnBehalf, problem::Problem, session::Begun};

/// The gateway as the dashboard sees it.
pub(crate) struct Behind {
    pub(crate) app: Arc<App>,
    /// The API, without the pages.
    pub(crate) api: Router,
}

#[async_trait]
impl Gateway for Behind {
    async fn call(&self, caller: &Caller, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().insert(OnBehalf(caller.hash));
        match self.api.clone().oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    fn caller(&self, session: &str) -> Option<Caller> {
        let session = self.app.tokens.session(session, self.app.engine.clock().now())?;
        Some(Caller {
            id: session.id,
            hash: session.hash,
            name: session.name,
            role: session.role,
            until: session.expires_at,
        })
    }

    async fn sign_in(&self, proof: Proof<'_>) -> Result<SignedIn, Refused> {
        let begun = match proof {
            Proof::Token(token) => self.app.begin_with_token(token).await,
            Proof::Link(code) => self.app.begin_with_link(code).await,
        };
        let unavailable = |_: Problem| Refused::Unavailable;
        let Begun { secret, life } = begun.map_err(unavailable)?.ok_or(Refused::Unknown)?;
        Ok(SignedIn { secret, seconds: life.as_secs() })
    }

    async fn sign_out(&self, caller: &Caller) {
        // Also if it cannot be written down: this process lets nobody in by it.
        self.app.tokens.forget(caller.id);
        self.app.links.forget(caller.id);
        let now = self.app.engine.clock().now();
        if let Err(error) = self.app.engine.store().remove_token(caller.id, now).await {
            tracing::warn!(%error, session = %caller.id, "a session could not be taken away");
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

    fn once(&self) -> String {
        format!("{:032x}", self.app.engine.chance().bits())
    }
}
