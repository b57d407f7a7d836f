//! Bearer tokens and what each role may do. Only the SHA-256 of a token is kept: it is 32 random
//! bytes, so a hash is enough.
//!
//! [`needed`] is the one table of rights. What is not in it falls on the safe side: whatever only
//! reads is for everybody with a token, whatever else is for admins.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use data_encoding::HEXLOWER;
use http::{Method, StatusCode, header};
use sha2::{Digest, Sha256};
use surehook_core::{
    access::{ApiToken, Role, TokenHash},
    ids::TokenId,
    rng::Rng,
    time::Timestamp,
};

use crate::{App, problem::Problem};

/// The hash under which a token is kept.
pub fn hash_token(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// A token that nobody has had: 32 random bytes.
pub fn new_token(chance: &dyn Rng) -> String {
    let bytes = [chance.bits().to_be_bytes(), chance.bits().to_be_bytes()].concat();
    format!("shk_{}", HEXLOWER.encode(&bytes))
}

/// What is done by changing nothing that is configured: looking after deliveries, and sending. Each entry is
/// the address after `/api/v1`; `{}` stands for whatever differs.
const OPERATIONS: &[(Method, &str)] = &[
    (Method::POST, "/events/{}/duplicates/{}/deliver"),
    (Method::POST, "/deliveries/{}/replay"),
    (Method::POST, "/deliveries/{}/cancel"),
    (Method::POST, "/dead-letters/reprocess"),
    (Method::POST, "/destinations/{}/pause"),
    (Method::POST, "/destinations/{}/resume"),
    (Method::POST, "/destinations/{}/probe"),
    (Method::POST, "/replays"),
    (Method::POST, "/replays/{}/pause"),
    (Method::POST, "/replays/{}/resume"),
    (Method::POST, "/replays/{}/cancel"),
    (Method::POST, "/media"),
    (Method::POST, "/quarantine/release"),
    (Method::POST, "/quarantine/{}/release"),
    (Method::POST, "/messages"),
    (Method::POST, "/events/{}/reveal"),
];

/// What is sent to be looked at, and changes nothing.
const TRIALS: [(Method, &str); 1] = [(Method::POST, "/routes/try")];

/// What only an admin may even look at.
const CONFIDENTIAL: [&str; 2] = ["/tokens", "/tokens/{}"];

/// The role that a call needs. `path` is the router's, with its placeholders.
fn needed(method: &Method, path: &str) -> Role {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    if CONFIDENTIAL.iter().any(|known| is_same(known, path)) {
        return Role::Admin;
    }
    let is_in = |calls: &[(Method, &str)]| {
        calls.iter().any(|(verb, known)| verb == method && is_same(known, path))
    };
    if *method == Method::GET || *method == Method::HEAD || is_in(&TRIALS) {
        return Role::Viewer;
    }
    if is_in(OPERATIONS) { Role::Operator } else { Role::Admin }
}

/// Whether two patterns are of the same addresses, whatever their placeholders are called.
fn is_same(known: &str, path: &str) -> bool {
    let is_placeholder = |part: &str| part.starts_with('{');
    let alike = |(a, b): (&str, &str)| a == b || (is_placeholder(a) && is_placeholder(b));
    known.split('/').count() == path.split('/').count()
        && known.split('/').zip(path.split('/')).all(alike)
}

/// The tokens that are known, in memory: every request asks for them.
#[derive(Debug)]
pub(crate) struct Tokens(RwLock<HashMap<TokenHash, ApiToken>>);

impl Tokens {
    pub(crate) fn new(tokens: Vec<ApiToken>) -> Self {
        Self(RwLock::new(tokens.into_iter().map(|token| (token.hash, token)).collect()))
    }

    /// Knows one more, once it is stored. Not a session whose token was taken away since; says
    /// whether it is known.
    pub(crate) fn add(&self, token: ApiToken) -> bool {
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = token.session {
            // Those that have ended are of no use to anybody, as in the store.
            let now = token.created_at;
            tokens.retain(|_, known| known.session.is_none() || !known.has_expired(now));
            let is_there = |with: TokenId| tokens.values().any(|known| known.id == with);
            if session.begun_with.is_some_and(|with| !is_there(with)) {
                return false;
            }
        }
        tokens.insert(token.hash, token);
        true
    }

    /// Whether there is such a token.
    pub(crate) fn knows(&self, id: TokenId) -> bool {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.values().any(|token| token.id == id)
    }

    /// Knows one less, and no session that was begun with it, once it is stored no more.
    pub(crate) fn forget(&self, id: TokenId) {
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let began = |token: &ApiToken| token.session.and_then(|session| session.begun_with);
        tokens.retain(|_, token| token.id != id && began(token) != Some(id));
    }

    /// Whether a token that was let in is still good.
    pub(crate) fn is_good(&self, hash: &TokenHash, now: Timestamp) -> bool {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.get(hash).is_some_and(|token| !token.has_expired(now))
    }

    /// The token that was let in.
    pub(crate) fn holder(&self, hash: &TokenHash) -> Option<ApiToken> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.get(hash).cloned()
    }

    /// Finds by the hash: what timing could tell about a hash does not help to guess a token.
    pub(crate) fn find(&self, token: &str, now: Timestamp) -> Result<ApiToken, &'static str> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match tokens.get(&hash_token(token)).filter(|token| token.session.is_none()) {
            None => Err("this token is not known"),
            Some(token) if token.has_expired(now) => Err("this token has expired"),
            Some(token) => Ok(token.clone()),
        }
    }

    /// The session that has this secret, while it lasts.
    pub(crate) fn session(&self, secret: &str, now: Timestamp) -> Option<ApiToken> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let session = tokens.get(&hash_token(secret)).filter(|token| token.session.is_some())?;
        (!session.has_expired(now)).then(|| session.clone())
    }

    /// What somebody may do who was let in before.
    fn role_of(&self, hash: &TokenHash, now: Timestamp) -> Result<Role, &'static str> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let token = tokens.get(hash).filter(|token| !token.has_expired(now));
        token.map(|token| token.role).ok_or("this session has ended; sign in again")
    }
}

/// Marks a request that was made inside this process. Nothing that comes over a socket has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromInside;

/// Marks a call that the dashboard makes for somebody who has signed in: by which session. Nothing
/// that comes over a socket has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnBehalf(pub(crate) TokenHash);

/// Whether whoever asks may see the secrets in what is stored. Each request that is let through has
/// one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Insight(pub(crate) bool);

/// Lets a request through if it carries a token that is known and reaches that far.
pub(crate) async fn require_token(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    match who(&app, &request) {
        Err(detail) => {
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).into_response()
        }
        Ok((role, hash)) => {
            let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
            let needed = needed(request.method(), path);
            if role < needed {
                return forbidden(role, needed);
            }
            // Whoever has the process has its folder, and every byte in it.
            let insight = role >= Role::Operator || hash.is_none();
            request.extensions_mut().insert(Insight(insight));
            if let Some(hash) = hash {
                // Whose `Idempotency-Key` it is.
                request.extensions_mut().insert(hash);
            }
            next.run(request).await
        }
    }
}

/// What whoever asks may do, and by which token.
fn who(app: &App, request: &Request) -> Result<(Role, Option<TokenHash>), &'static str> {
    if request.extensions().get::<FromInside>().is_some() {
        return Ok((Role::Viewer, None));
    }
    let now = app.engine.clock().now();
    if let Some(OnBehalf(hash)) = request.extensions().get() {
        return Ok((app.tokens.role_of(hash, now)?, Some(*hash)));
    }
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or("send a token as `Authorization: Bearer …`")?;
    let token = app.tokens.find(token, now)?;
    Ok((token.role, Some(token.hash)))
}

fn forbidden(role: Role, needed: Role) -> Response {
    let detail = format!("this token has the role {role}, and this needs {needed}");
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).into_response()
}

#[cfg(test)]
mod tests {
    use surehook_core::access::Session;

    use super::*;
    use crate::front;

    /// Every call that needs a token, with the least role that may make it.
    const CALLS: &[(&str, &str, Role)] = &[
        ("GET", "/events", Role::Viewer),
        ("GET", "/events/{id}", Role::Viewer),
        ("GET", "/events/{id}/body", Role::Viewer),
        ("GET", "/events/{id}/duplicates/{n}", Role::Viewer),
        ("POST", "/events/{id}/duplicates/{n}/deliver", Role::Operator),
        ("POST", "/events/{id}/reveal", Role::Operator),
        ("GET", "/deliveries", Role::Viewer),
        ("GET", "/deliveries/{id}", Role::Viewer),
        ("POST", "/deliveries/{id}/replay", Role::Operator),
        ("POST", "/deliveries/{id}/cancel", Role::Operator),
        ("GET", "/deliveries/{id}/body", Role::Viewer),
        ("GET", "/dead-letters", Role::Viewer),
        ("POST", "/dead-letters/reprocess", Role::Operator),
        ("POST", "/media", Role::Operator),
        ("GET", "/media/{id}", Role::Viewer),
        ("POST", "/messages", Role::Operator),
        ("GET", "/messages", Role::Viewer),
        ("GET", "/messages/{id}", Role::Viewer),
        ("GET", "/replays", Role::Viewer),
        ("POST", "/replays", Role::Operator),
        ("GET", "/replays/{id}", Role::Viewer),
        ("POST", "/replays/{id}/pause", Role::Operator),
        ("POST", "/replays/{id}/resume", Role::Operator),
        ("POST", "/replays/{id}/cancel", Role::Operator),
        ("GET", "/requests", Role::Viewer),
        ("GET", "/requests/{id}", Role::Viewer),
        ("GET", "/quarantine", Role::Viewer),
        ("GET", "/quarantine/{id}", Role::Viewer),
        ("POST", "/quarantine/{id}/release", Role::Operator),
        ("POST", "/quarantine/release", Role::Operator),
        ("DELETE", "/quarantine/{id}", Role::Admin),
        ("GET", "/stats/series", Role::Viewer),
        ("POST", "/destinations/{wanted}/pause", Role::Operator),
        ("POST", "/destinations/{wanted}/resume", Role::Operator),
        ("POST", "/destinations/{wanted}/probe", Role::Operator),
        ("GET", "/dead-letters/stats", Role::Viewer),
        ("GET", "/dead-letters/groups", Role::Viewer),
        ("GET", "/stats", Role::Viewer),
        ("GET", "/about", Role::Viewer),
        ("GET", "/inbox", Role::Viewer),
        ("GET", "/configuration", Role::Viewer),
        ("PUT", "/configuration", Role::Admin),
        ("GET", "/tokens", Role::Admin),
        ("POST", "/tokens", Role::Admin),
        ("POST", "/tokens/link", Role::Admin),
        ("DELETE", "/tokens/{id}", Role::Admin),
        ("GET", "/sources", Role::Viewer),
        ("POST", "/sources", Role::Admin),
        ("GET", "/sources/{wanted}", Role::Viewer),
        ("PUT", "/sources/{wanted}", Role::Admin),
        ("DELETE", "/sources/{wanted}", Role::Admin),
        ("GET", "/destinations", Role::Viewer),
        ("POST", "/destinations", Role::Admin),
        ("GET", "/destinations/{wanted}", Role::Viewer),
        ("PUT", "/destinations/{wanted}", Role::Admin),
        ("DELETE", "/destinations/{wanted}", Role::Admin),
        ("GET", "/routes", Role::Viewer),
        ("POST", "/routes", Role::Admin),
        ("GET", "/routes/{wanted}", Role::Viewer),
        ("PUT", "/routes/{wanted}", Role::Admin),
        ("DELETE", "/routes/{wanted}", Role::Admin),
        ("POST", "/routes/try", Role::Viewer),
        ("GET", "/stream", Role::Viewer),
        ("GET", "/metrics", Role::Viewer),
        // Not there, and still decided: a call that is forgotten here is for admins.
        ("PATCH", "/events/{id}", Role::Admin),
        ("POST", "/events", Role::Admin),
        ("HEAD", "/events", Role::Viewer),
    ];

    fn token(n: u8, session: Option<Session>) -> ApiToken {
        let at = Timestamp::from_millis(1_000 + i64::from(n));
        ApiToken {
            id: TokenId::new(at, u128::from(n)),
            hash: [n; 32],
            name: None,
            role: Role::Admin,
            created_at: at,
            expires_at: session.map(|_| Timestamp::from_millis(1_010)),
            session,
        }
    }

    #[test]
    fn a_session_is_known_only_with_its_token() {
        let first = token(1, None);
        let of_first = |n| token(n, Some(Session { begun_with: Some(first.id) }));
        let tokens = Tokens::new(vec![first.clone()]);
        assert!(tokens.add(of_first(2)));

        tokens.forget(first.id);

        assert!(!tokens.add(of_first(3)), "its token was taken away meanwhile");
        assert!(tokens.0.read().unwrap().is_empty());
    }

    #[test]
    fn sessions_that_have_ended_leave() {
        let tokens = Tokens::new(vec![token(1, None)]);
        assert!(tokens.add(token(2, Some(Session { begun_with: None }))));

        assert!(tokens.add(token(50, Some(Session { begun_with: None }))));

        assert!(!tokens.knows(token(2, None).id));
        assert!(tokens.knows(token(1, None).id) && tokens.knows(token(50, None).id));
    }

    #[test]
    fn every_call_needs_what_the_table_says() {
        for (method, path, expected) in CALLS.iter().copied() {
            let method: Method = method.parse().unwrap();
            let full = if path == "/metrics" { path.to_owned() } else { format!("/api/v1{path}") };
            assert_eq!(needed(&method, &full), expected, "case: {method} {path}");
        }
    }

    #[test]
    fn no_call_is_missing_from_the_table() {
        for (method, path) in front::table().guarded_calls() {
            let path = path.strip_prefix("/api/v1").unwrap_or(path);
            let known = CALLS
                .iter()
                .any(|(verb, other, _)| verb.eq_ignore_ascii_case(method) && is_same(other, path));
            assert!(known, "`{method} {path}` is in no line of the table");
        }
    }

    #[test]
    fn what_looks_after_deliveries_is_for_operators() {
        for (method, path) in OPERATIONS {
            let named = path.replace("{}", "{wanted}");
            assert_eq!(needed(method, &format!("/api/v1{named}")), Role::Operator, "case: {path}");
            assert_eq!(needed(method, &format!("{named}/more")), Role::Admin, "case: {path}");
            assert_eq!(needed(&Method::DELETE, path), Role::Admin, "case: {path}");
        }
    }
}
