//! Dashboard sessions. A signed-in browser has a token of its own, which ends with the token it was
//! started with (docs/decisions/0051).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use data_encoding::HEXLOWER;
use surehook_core::access::{ApiToken, LinkCreator, Role, Session, StoredLoginLink};
use surehook_types::{
    ids::TokenId,
    rng::{Rng, new_id},
    store_error::StoreError,
    time::Timestamp,
};
use tokio_util::sync::CancellationToken;

use crate::{ServerState, api::tokens::run_to_completion, auth::hash_token, problem::Problem};

/// The longest time until a user has to sign in again.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// A session ends when it was not used for this long.
pub(crate) const SESSION_IDLE_MAX: Duration = Duration::from_secs(12 * 3600);

/// The expiry of a session in use is stored again after this time, not at every request.
pub(crate) const SESSION_EXTENSION_MIN: Duration = Duration::from_secs(10 * 60);

const LINK_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The least time between two reads of all tokens: unknown tokens must not load the store.
const TOKENS_READ_EVERY_MIN: Duration = Duration::from_millis(200);

fn new_secret(prefix: &str, rng: &dyn Rng) -> String {
    let bytes = [rng.next_u128().to_be_bytes(), rng.next_u128().to_be_bytes()].concat();
    format!("{prefix}{}", HEXLOWER.encode(&bytes))
}

/// A new session: the secret for the browser's cookie, and its lifetime.
pub(crate) struct StartedSession {
    pub(crate) secret: String,
    pub(crate) lifetime: Duration,
}

impl ServerState {
    /// Creates a one-time link that signs in an admin; returns its path and expiry. It belongs to no
    /// token, so no revocation ends its session.
    pub async fn create_login_link(&self) -> Result<(String, Timestamp), StoreError> {
        self.add_login_link(None).await
    }

    /// Creates a one-time link for a token: its session ends with that token.
    pub(crate) async fn create_login_link_for(
        &self,
        token: Option<&ApiToken>,
    ) -> Result<(String, Timestamp), StoreError> {
        self.add_login_link(token.map(LinkCreator::from_token)).await
    }

    async fn add_login_link(
        &self,
        created_by: Option<LinkCreator>,
    ) -> Result<(String, Timestamp), StoreError> {
        let now = self.engine.clock().now();
        let code = new_secret("shl_", self.engine.rng());
        let expires_at = now + LINK_LIFETIME;
        let link = StoredLoginLink { hash: hash_token(&code), expires_at, created_by };
        self.engine.store().add_login_link(link, now).await?;
        Ok((format!("/login?code={code}"), expires_at))
    }

    /// Reads the tokens from the store again, because another node may have changed them. Returns `false`
    /// if there can be no other node, or they were just read.
    pub(crate) async fn refresh_tokens(&self) -> bool {
        if self.engine.is_only_node() {
            return false;
        }
        let mut read_at = self.tokens_read_at.lock().await;
        if read_at.is_some_and(|read_at| read_at.elapsed() < TOKENS_READ_EVERY_MIN) {
            return false;
        }
        match self.engine.store().list_tokens().await {
            Ok(tokens) => {
                self.tokens.replace(tokens, self.engine.clock().now());
                *read_at = Some(Instant::now());
                true
            }
            Err(error) => {
                tracing::warn!(%error, "could not read the tokens");
                false
            }
        }
    }

    /// Reads the tokens whenever another node has changed them, until `stop`.
    pub(crate) async fn follow_token_changes(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.engine.token_changes();
        loop {
            let changed = tokio::select! {
                () = stop.cancelled() => return,
                changed = changes.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            // Also if they were just read: this change may be later.
            while !self.refresh_tokens().await && !stop.is_cancelled() {
                tokio::time::sleep(TOKENS_READ_EVERY_MIN).await;
            }
        }
    }

    /// Finds the session of a browser and notes that it is in use.
    pub(crate) async fn use_session(self: &Arc<Self>, secret: &str) -> Option<ApiToken> {
        let now = self.engine.clock().now();
        let mut session = self.tokens.find_session(secret, now);
        if session.is_none() && self.refresh_tokens().await {
            session = self.tokens.find_session(secret, now);
        }
        let session = session?;
        if let Some(expires_at) = self.tokens.extend_session(&session.hash, now) {
            let (server, id) = (Arc::clone(self), session.id);
            tokio::spawn(async move {
                match server.engine.store().extend_session(id, expires_at).await {
                    Ok(()) => server.engine.announce_token_change(),
                    Err(error) => {
                        tracing::warn!(%error, session = %id, "could not store the session's expiry");
                    }
                }
            });
        }
        Some(session)
    }

    /// Starts a session with an API token; `None` if the token is invalid.
    pub(crate) async fn start_session_with_token(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<Option<StartedSession>, Problem> {
        let mut found = self.tokens.find(token, self.engine.clock().now());
        if found.is_err() && self.refresh_tokens().await {
            found = self.tokens.find(token, self.engine.clock().now());
        }
        let Ok(token) = found else { return Ok(None) };
        // A token that is limited to namespaces may not see any page.
        if token.namespaces.is_some() {
            return Ok(None);
        }
        let name = token.name.clone();
        self.start_session(token.role, name, Some(token.id), token.expires_at).await
    }

    /// Starts a session with the code of a login link; `None` if the code is invalid.
    pub(crate) async fn start_session_with_link(
        self: &Arc<Self>,
        code: &str,
    ) -> Result<Option<StartedSession>, Problem> {
        let now = self.engine.clock().now();
        let Some(link) = self.engine.store().take_login_link(hash_token(code), now).await? else {
            return Ok(None);
        };
        let name = Some("one-time link".to_owned());
        let token = link.created_by.map(|creator| creator.id);
        let ends_at = link.created_by.and_then(|creator| creator.expires_at);
        let session = self.start_session(Role::Admin, name, token, ends_at).await;
        if session.is_err()
            && let Err(error) = self.engine.store().add_login_link(link, now).await
        {
            tracing::warn!(%error, "could not make a login link usable again");
        }
        session
    }

    async fn start_session(
        self: &Arc<Self>,
        role: Role,
        name: Option<String>,
        sign_in_token: Option<TokenId>,
        ends_at: Option<Timestamp>,
    ) -> Result<Option<StartedSession>, Problem> {
        let now = self.engine.clock().now();
        let secret = new_secret("shs_", self.engine.rng());
        let ends_at =
            ends_at.map_or(now + SESSION_LIFETIME, |ends| ends.min(now + SESSION_LIFETIME));
        let token = ApiToken {
            id: new_id(self.engine.rng(), now),
            hash: hash_token(&secret),
            name,
            role,
            created_at: now,
            expires_at: Some(ends_at.min(now + SESSION_IDLE_MAX)),
            namespaces: None,
            urls: None,
            session: Some(Session { sign_in_token }),
        };
        let (server, id) = (Arc::clone(self), token.id);
        let is_added = run_to_completion(async move {
            let is_stored = server.engine.store().add_token(token.clone()).await?;
            server.engine.announce_token_change();
            if is_stored && !server.tokens.add(token) {
                // Its sign-in token is known to the store, from another node.
                return Ok(server.refresh_tokens().await);
            }
            Ok(is_stored)
        });
        if !is_added.await? {
            return Ok(None);
        }
        let token = sign_in_token.map(|token| token.to_string()).unwrap_or_default();
        tracing::info!(session = %id, %role, begun_with = token, "signed in to the dashboard");
        Ok(Some(StartedSession { secret, lifetime: ends_at.since(now) }))
    }
}
