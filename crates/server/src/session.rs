//! Dashboard sessions. A signed-in browser has a token of its own, which ends with the token it was
//! started with (docs/decisions/0051).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use data_encoding::HEXLOWER;
use surehook_core::access::{ApiToken, Role, Session, TokenHash};
use surehook_types::{
    ids::TokenId,
    rng::{Rng, new_id},
    time::Timestamp,
};

use crate::{ServerState, api::tokens::run_to_completion, auth::hash_token, problem::Problem};

/// The longest time until a user has to sign in again.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// A session ends when it was not used for this long.
pub(crate) const SESSION_IDLE_MAX: Duration = Duration::from_secs(12 * 3600);

/// The expiry of a session in use is stored again after this time, not at every request.
pub(crate) const SESSION_EXTENSION_MIN: Duration = Duration::from_secs(10 * 60);

const LINK_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Unused links kept at a time; beyond that the oldest is dropped.
const LINKS_MAX: usize = 100;

/// A one-time login link that was not used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingLoginLink {
    expires_at: Timestamp,
    created_by: Option<LinkCreator>,
}

/// The token that created a link. Sessions started with the link end with that token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LinkCreator {
    id: TokenId,
    expires_at: Option<Timestamp>,
}

impl LinkCreator {
    /// For a session, this is the token it was started with, if there is one.
    fn from_token(token: &ApiToken) -> Self {
        let id = token.session.and_then(|session| session.sign_in_token).unwrap_or(token.id);
        Self { id, expires_at: token.expires_at }
    }
}

/// Unused one-time login links by the hash of their code. Kept in memory only: they are short-lived,
/// and `surehook token link` creates a new one.
#[derive(Debug, Default)]
pub(crate) struct LoginLinks(Mutex<HashMap<TokenHash, PendingLoginLink>>);

impl LoginLinks {
    fn lock(&self) -> MutexGuard<'_, HashMap<TokenHash, PendingLoginLink>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a link; returns its code and its expiry.
    fn create(
        &self,
        rng: &dyn Rng,
        now: Timestamp,
        created_by: Option<LinkCreator>,
    ) -> (String, Timestamp) {
        let code = new_secret("shl_", rng);
        let expires_at = now + LINK_LIFETIME;
        let mut links = self.lock();
        links.retain(|_, link| link.expires_at > now);
        if links.len() >= LINKS_MAX {
            let oldest =
                links.iter().min_by_key(|(_, link)| link.expires_at).map(|(hash, _)| *hash);
            oldest.and_then(|hash| links.remove(&hash));
        }
        links.insert(hash_token(&code), PendingLoginLink { expires_at, created_by });
        (code, expires_at)
    }

    /// Takes the link of a code, so that it works only once.
    fn redeem(&self, code: &str, now: Timestamp) -> Option<PendingLoginLink> {
        self.lock().remove(&hash_token(code)).filter(|link| link.expires_at > now)
    }

    /// Makes a redeemed link usable again, after its session could not be started.
    fn restore(&self, code: &str, link: PendingLoginLink) {
        self.lock().insert(hash_token(code), link);
    }

    /// Removes the links that a revoked token created.
    pub(crate) fn remove_created_by(&self, token: TokenId) {
        self.lock().retain(|_, link| link.created_by.is_none_or(|creator| creator.id != token));
    }
}

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
    pub fn create_login_link(&self) -> (String, Timestamp) {
        self.add_login_link(None)
    }

    /// Creates a one-time link for a token: its session ends with that token.
    pub(crate) fn create_login_link_for(&self, token: Option<&ApiToken>) -> (String, Timestamp) {
        self.add_login_link(token.map(LinkCreator::from_token))
    }

    fn add_login_link(&self, created_by: Option<LinkCreator>) -> (String, Timestamp) {
        let now = self.engine.clock().now();
        let (code, expires_at) = self.login_links.create(self.engine.rng(), now, created_by);
        (format!("/login?code={code}"), expires_at)
    }

    /// Finds the session of a browser and notes that it is in use.
    pub(crate) fn use_session(self: &Arc<Self>, secret: &str) -> Option<ApiToken> {
        let now = self.engine.clock().now();
        let session = self.tokens.find_session(secret, now)?;
        if let Some(expires_at) = self.tokens.extend_session(&session.hash, now) {
            let (server, id) = (Arc::clone(self), session.id);
            tokio::spawn(async move {
                if let Err(error) = server.engine.store().extend_session(id, expires_at).await {
                    tracing::warn!(%error, session = %id, "could not store the session's expiry");
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
        let Ok(token) = self.tokens.find(token, self.engine.clock().now()) else {
            return Ok(None);
        };
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
        let Some(link) = self.login_links.redeem(code, self.engine.clock().now()) else {
            return Ok(None);
        };
        let name = Some("one-time link".to_owned());
        let token = link.created_by.map(|creator| creator.id);
        let ends_at = link.created_by.and_then(|creator| creator.expires_at);
        let session = self.start_session(Role::Admin, name, token, ends_at).await;
        if session.is_err() {
            self.login_links.restore(code, link);
            // The token may have been revoked in between.
            if let Some(token) = token
                && !self.tokens.contains(token)
            {
                self.login_links.remove_created_by(token);
            }
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
            Ok(server.engine.store().add_token(token.clone()).await? && server.tokens.add(token))
        });
        if !is_added.await? {
            return Ok(None);
        }
        let token = sign_in_token.map(|token| token.to_string()).unwrap_or_default();
        tracing::info!(session = %id, %role, begun_with = token, "signed in to the dashboard");
        Ok(Some(StartedSession { secret, lifetime: ends_at.since(now) }))
    }
}

#[cfg(test)]
mod tests {
    use surehook_engine::system::SystemRng;

    use super::*;

    #[test]
    fn login_link_works_once_and_not_after_its_expiry() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = LoginLinks::default();
        let (first, expires_at) = links.create(&SystemRng, now, None);
        let (second, _) = links.create(&SystemRng, now, None);

        assert_eq!(links.redeem("shl_guessed", now), None);
        let link = links.redeem(&first, now).unwrap();
        assert_eq!(links.redeem(&first, now), None, "a link works once");
        assert_eq!(links.redeem(&second, expires_at), None, "the link has expired");

        links.restore(&first, link);
        assert_eq!(links.redeem(&first, now), Some(link), "a restored link works again");
    }

    #[test]
    fn login_link_ends_with_the_token_that_created_it() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = LoginLinks::default();
        let id = |n: u128| TokenId::new(now, n << 100);
        let creator = |n| Some(LinkCreator { id: id(n), expires_at: None });
        let codes = [None, creator(1), creator(2)].map(|by| links.create(&SystemRng, now, by).0);

        links.remove_created_by(id(1));

        let works = codes.map(|code| links.redeem(&code, now).is_some());
        assert_eq!(works, [true, false, true]);
    }

    #[test]
    fn oldest_login_links_are_dropped_beyond_the_maximum() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = LoginLinks::default();
        for n in 0..2 * u64::try_from(LINKS_MAX).unwrap() {
            links.create(&SystemRng, now + Duration::from_millis(n), None);
        }
        assert_eq!(links.0.lock().unwrap().len(), LINKS_MAX);
    }
}
