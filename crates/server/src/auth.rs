//! Bearer tokens and the permissions of each role. Only the SHA-256 of a token is stored; a token is
//! 32 random bytes, so no slow hash is needed.
//!
//! [`required_role`] decides all permissions. Endpoints that are not listed are safe by default: any
//! token may read, and only admins may change something.

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
    access::{ApiToken, ClientAddress, Role, TokenHash},
    one_shot::{OneShotUrl, UrlPattern},
};
use surehook_types::{ids::TokenId, rng::Rng, time::Timestamp};

use crate::{
    ServerState,
    problem::Problem,
    session::{SESSION_EXTENSION_MIN, SESSION_IDLE_MAX, SESSION_LIFETIME},
};

pub fn hash_token(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// Generates a token of 32 random bytes.
pub fn new_token(rng: &dyn Rng) -> String {
    let bytes = [rng.next_u128().to_be_bytes(), rng.next_u128().to_be_bytes()].concat();
    format!("shk_{}", HEXLOWER.encode(&bytes))
}

/// Endpoints for operators: they act on deliveries and send messages, but change no configuration.
/// Paths are relative to `/api/v1`; `{}` stands for any parameter.
const OPERATOR_ENDPOINTS: &[(Method, &str)] = &[
    (Method::POST, "/events/{}/duplicates/{}/deliver"),
    (Method::POST, "/deliveries/{}/replay"),
    (Method::POST, "/deliveries/{}/cancel"),
    (Method::POST, "/dead-letters/reprocess"),
    (Method::POST, "/admin/dlq/reprocess"),
    (Method::POST, "/destinations/{}/pause"),
    (Method::POST, "/destinations/{}/resume"),
    (Method::POST, "/destinations/{}/probe"),
    (Method::POST, "/destinations/{}/listen"),
    (Method::POST, "/alerts/{}/test"),
    (Method::POST, "/replays"),
    (Method::POST, "/replays/{}/pause"),
    (Method::POST, "/replays/{}/resume"),
    (Method::POST, "/replays/{}/cancel"),
    (Method::POST, "/media"),
    (Method::POST, "/quarantine/release"),
    (Method::POST, "/quarantine/{}/release"),
    (Method::POST, "/messages"),
    (Method::POST, "/events/{}/reveal"),
    (Method::POST, "/idempotency"),
    (Method::POST, "/idempotency/{}/{}"),
    (Method::POST, "/idempotency/{}/{}/extend"),
    (Method::POST, "/idempotency/{}/{}/complete"),
    (Method::POST, "/idempotency/{}/{}/release"),
];

/// The endpoints that a token limited to namespaces may use, with everything below their paths. They
/// check the namespace themselves.
const NAMESPACE_ENDPOINTS: [&str; 2] = ["/idempotency", "/stats/idempotency"];

fn is_namespace_endpoint(path: &str) -> bool {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    NAMESPACE_ENDPOINTS.iter().any(|endpoint| path.strip_prefix(endpoint).is_some_and(is_below))
}

/// The namespaces of the idempotency service that a caller may use; `None` for all. Every authenticated
/// request carries it.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceAccess(Option<Arc<[String]>>);

impl NamespaceAccess {
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn allows(&self, namespace: &str) -> bool {
        self.0.as_ref().is_none_or(|allowed| allowed.iter().any(|name| name == namespace))
    }

    pub(crate) fn check(&self, namespace: &str) -> Result<(), Problem> {
        if self.allows(namespace) {
            return Ok(());
        }
        let detail = format!("This token may not use the namespace `{namespace}`.");
        Err(namespace_not_allowed(detail))
    }
}

pub(crate) fn namespace_not_allowed(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "namespace_not_allowed", detail)
}

/// The URLs that a caller may deliver to without a configured destination; `None` for none. Every
/// authenticated request carries it.
#[derive(Clone, Debug)]
pub(crate) struct UrlAccess(pub(crate) Option<Arc<[UrlPattern]>>);

impl UrlAccess {
    pub(crate) fn check(&self, url: &OneShotUrl) -> Result<(), Problem> {
        let patterns = self.0.as_deref().unwrap_or_default();
        if patterns.iter().any(|pattern| pattern.allows(url)) {
            return Ok(());
        }
        let detail = match patterns {
            [] => "This token may not deliver to URLs. Create one that may, with `urls` (surehook token create --url-pattern), or name a `destination`.".to_owned(),
            _ => format!("This token may not deliver to {}. Its URLs are: {}.", url.origin, join(patterns)),
        };
        Err(Problem::new(StatusCode::FORBIDDEN, "url_not_allowed", detail))
    }
}

fn join(patterns: &[UrlPattern]) -> String {
    patterns.iter().map(UrlPattern::to_string).collect::<Vec<_>>().join(", ")
}

/// POST endpoints that change nothing.
const READ_ONLY_POSTS: [(Method, &str); 2] =
    [(Method::POST, "/routes/try"), (Method::POST, "/destinations/{}/what-if")];

/// Endpoints that only admins may read.
const ADMIN_ENDPOINTS: [&str; 2] = ["/tokens", "/tokens/{}"];

/// The role that an endpoint needs. `path` is the router's pattern, with its parameters.
fn required_role(method: &Method, path: &str) -> Role {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    if ADMIN_ENDPOINTS.iter().any(|endpoint| is_same_pattern(endpoint, path)) {
        return Role::Admin;
    }
    let is_listed = |endpoints: &[(Method, &str)]| {
        endpoints.iter().any(|(verb, pattern)| verb == method && is_same_pattern(pattern, path))
    };
    if *method == Method::GET || *method == Method::HEAD || is_listed(&READ_ONLY_POSTS) {
        return Role::Viewer;
    }
    if is_listed(OPERATOR_ENDPOINTS) { Role::Operator } else { Role::Admin }
}

/// Compares path patterns, ignoring the names of parameters.
fn is_same_pattern(pattern: &str, path: &str) -> bool {
    let is_parameter = |part: &str| part.starts_with('{');
    let is_equal = |(a, b): (&str, &str)| a == b || (is_parameter(a) && is_parameter(b));
    pattern.split('/').count() == path.split('/').count()
        && pattern.split('/').zip(path.split('/')).all(is_equal)
}

/// All tokens and sessions, in memory because every request needs them.
#[derive(Debug)]
pub(crate) struct TokenRegistry(RwLock<HashMap<TokenHash, ApiToken>>);

impl TokenRegistry {
    pub(crate) fn new(tokens: Vec<ApiToken>, now: Timestamp) -> Self {
        Self(RwLock::new(Self::by_hash(tokens, now)))
    }

    /// Replaces all tokens by those in the store. A session that was just used on this node keeps its later
    /// end, which may not be stored yet.
    pub(crate) fn replace(&self, tokens: Vec<ApiToken>, now: Timestamp) {
        let mut next = Self::by_hash(tokens, now);
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (hash, session) in next.iter_mut().filter(|(_, token)| token.session.is_some()) {
            let known = tokens.get(hash).and_then(|known| known.expires_at);
            session.expires_at = session.expires_at.max(known);
        }
        *tokens = next;
    }

    /// The tokens by their hashes; sessions end after the idle time at the latest.
    fn by_hash(tokens: Vec<ApiToken>, now: Timestamp) -> HashMap<TokenHash, ApiToken> {
        let limit_idle_time = |mut token: ApiToken| {
            if token.session.is_some() {
                // Sessions of older versions were stored with their whole lifetime.
                token.expires_at = token.expires_at.map(|at| at.min(now + SESSION_IDLE_MAX));
            }
            (token.hash, token)
        };
        tokens.into_iter().map(limit_idle_time).collect()
    }

    /// Adds a token once it is stored. Returns false for a session whose token was revoked meanwhile:
    /// it is not added.
    pub(crate) fn add(&self, token: ApiToken) -> bool {
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = token.session {
            // Expired sessions are dropped here, as in the store.
            let now = token.created_at;
            tokens.retain(|_, stored| stored.session.is_none() || !stored.has_expired(now));
            let exists = |id: TokenId| tokens.values().any(|stored| stored.id == id);
            if session.sign_in_token.is_some_and(|id| !exists(id)) {
                return false;
            }
        }
        tokens.insert(token.hash, token);
        true
    }

    #[cfg(test)]
    fn contains(&self, id: TokenId) -> bool {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.values().any(|token| token.id == id)
    }

    /// Removes a token, and the sessions that were started with it, once the store has removed it.
    pub(crate) fn remove(&self, id: TokenId) {
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let sign_in_token =
            |token: &ApiToken| token.session.and_then(|session| session.sign_in_token);
        tokens.retain(|_, token| token.id != id && sign_in_token(token) != Some(id));
    }

    /// Whether a token that was accepted before is still valid.
    pub(crate) fn is_valid(&self, hash: &TokenHash, now: Timestamp) -> bool {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.get(hash).is_some_and(|token| !token.has_expired(now))
    }

    pub(crate) fn find_by_hash(&self, hash: &TokenHash) -> Option<ApiToken> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tokens.get(hash).cloned()
    }

    /// Finds a valid token that is not a session. Looks up by hash, so that timing reveals nothing that
    /// helps to guess a token.
    pub(crate) fn find(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<ApiToken, AuthenticationError> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match tokens.get(&hash_token(token)).filter(|token| token.session.is_none()) {
            None => Err(AuthenticationError::Unknown),
            Some(token) if token.has_expired(now) => {
                Err(AuthenticationError::Other("This token has expired."))
            }
            Some(token) => Ok(token.clone()),
        }
    }

    /// The unexpired session with this secret.
    pub(crate) fn find_session(&self, secret: &str, now: Timestamp) -> Option<ApiToken> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let session = tokens.get(&hash_token(secret)).filter(|token| token.session.is_some())?;
        (!session.has_expired(now)).then(|| session.clone())
    }

    /// Moves the end of a session that is in use. Returns its new expiry if it is worth storing.
    pub(crate) fn extend_session(&self, hash: &TokenHash, now: Timestamp) -> Option<Timestamp> {
        let next = {
            let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let session = tokens.get(hash)?;
            let mut next = (session.created_at + SESSION_LIFETIME).min(now + SESSION_IDLE_MAX);
            if let Some(id) = session.session?.sign_in_token {
                // A session never outlives the token it was started with.
                let token = tokens.values().find(|token| token.id == id)?;
                next = token.expires_at.map_or(next, |at| at.min(next));
            }
            let is_worthwhile = |expires_at| expires_at + SESSION_EXTENSION_MIN <= next;
            session.expires_at.is_some_and(is_worthwhile).then_some(next)?
        };
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tokens.get_mut(hash)?.expires_at = Some(next);
        Some(next)
    }

    /// The role of a session, unless it has ended.
    fn session_role(&self, hash: &TokenHash, now: Timestamp) -> Result<Role, &'static str> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let token = tokens.get(hash).filter(|token| !token.has_expired(now));
        token.map(|token| token.role).ok_or("This session has ended. Sign in again.")
    }
}

/// Why a request is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthenticationError {
    /// An unknown token, perhaps a guess: such failures are throttled.
    Unknown,
    /// Any other reason, in words for the caller.
    Other(&'static str),
}

/// The response to an unknown token: 401, or 429 if the address has presented too many.
fn unknown_token(server: &ServerState, client: Option<&ClientAddress>) -> Problem {
    match server.failed_logins.record(client, server.engine.clock().now()) {
        None => Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unknown token."),
        Some(secs) => {
            let detail = format!(
                "Too many unknown tokens from this address. Try again in {secs} s, or send a valid \
                 token; it works at once."
            );
            let status = StatusCode::TOO_MANY_REQUESTS;
            Problem::new(status, "too_many_failed_tokens", detail).retry_after(secs)
        }
    }
}

/// Marks a request made by this process itself. Requests from a socket never carry it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InProcessCall;

/// Marks a request that the dashboard makes for a signed-in user, with the hash of the session.
/// Requests from a socket never carry it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DashboardCall(pub(crate) TokenHash);

/// Whether the caller may see secrets in stored data. Every authenticated request carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecretAccess(bool);

impl SecretAccess {
    pub(crate) fn is_granted(self) -> bool {
        self.0
    }
}

/// Middleware: requires a valid token whose role is sufficient for the endpoint.
pub(crate) async fn require_token(
    State(server): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut caller = authenticate(&server, &request);
    if caller.is_err() && server.refresh_tokens().await {
        caller = authenticate(&server, &request);
    }
    match caller {
        Err(AuthenticationError::Unknown) => {
            unknown_token(&server, request.extensions().get()).into_response()
        }
        Err(AuthenticationError::Other(detail)) => {
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).into_response()
        }
        Ok(Caller { role, hash, namespaces, urls }) => {
            let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
            let required = required_role(request.method(), path);
            if role < required {
                return forbidden(role, required);
            }
            if namespaces.is_limited() && !is_namespace_endpoint(path) {
                let detail = "This token is limited to namespaces of the idempotency service.";
                return namespace_not_allowed(detail).into_response();
            }
            request.extensions_mut().insert(namespaces);
            request.extensions_mut().insert(urls);
            // An in-process call can read the data folder anyway.
            let may_see_secrets = role >= Role::Operator || hash.is_none();
            request.extensions_mut().insert(SecretAccess(may_see_secrets));
            if let Some(hash) = hash {
                // The scope of the `Idempotency-Key`.
                request.extensions_mut().insert(hash);
            }
            next.run(request).await
        }
    }
}

/// The authenticated sender of a request.
struct Caller {
    role: Role,
    /// Hash of the token or session; none for a call of this process.
    hash: Option<TokenHash>,
    namespaces: NamespaceAccess,
    urls: UrlAccess,
}

fn authenticate(server: &ServerState, request: &Request) -> Result<Caller, AuthenticationError> {
    let (all_namespaces, no_urls) = (NamespaceAccess(None), UrlAccess(None));
    if request.extensions().get::<InProcessCall>().is_some() {
        return Ok(Caller {
            role: Role::Viewer,
            hash: None,
            namespaces: all_namespaces,
            urls: no_urls,
        });
    }
    let now = server.engine.clock().now();
    if let Some(DashboardCall(hash)) = request.extensions().get() {
        let role = server.tokens.session_role(hash, now).map_err(AuthenticationError::Other)?;
        return Ok(Caller { role, hash: Some(*hash), namespaces: all_namespaces, urls: no_urls });
    }
    let bearer = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or(AuthenticationError::Other("Send a token as `Authorization: Bearer …`."))?;
    let token = server.tokens.find(bearer, now)?;
    let (namespaces, urls) = (NamespaceAccess(token.namespaces), UrlAccess(token.urls));
    Ok(Caller { role: token.role, hash: Some(token.hash), namespaces, urls })
}

fn forbidden(role: Role, required: Role) -> Response {
    let detail = format!(
        "You don't have permission to do this. Your role is {role}; {required} is required."
    );
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use surehook_core::access::Session;

    use super::*;
    use crate::router::api_table;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    /// Every authenticated endpoint with the lowest role that may use it.
    const ENDPOINTS: &[(&str, &str, Role)] = &[
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
        ("GET", "/admin/dlq/stats", Role::Viewer),
        ("GET", "/admin/dlq/pending", Role::Viewer),
        ("POST", "/admin/dlq/reprocess", Role::Operator),
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
        ("GET", "/idempotency", Role::Viewer),
        ("POST", "/idempotency", Role::Operator),
        ("GET", "/idempotency/{namespace}/{key}", Role::Viewer),
        ("POST", "/idempotency/{namespace}/{key}", Role::Operator),
        ("POST", "/idempotency/{namespace}/{key}/extend", Role::Operator),
        ("POST", "/idempotency/{namespace}/{key}/complete", Role::Operator),
        ("POST", "/idempotency/{namespace}/{key}/release", Role::Operator),
        ("GET", "/stats/idempotency", Role::Viewer),
        ("POST", "/destinations/{id}/pause", Role::Operator),
        ("POST", "/destinations/{id}/resume", Role::Operator),
        ("POST", "/destinations/{id}/probe", Role::Operator),
        ("POST", "/destinations/{id}/listen", Role::Operator),
        ("POST", "/destinations/{id}/what-if", Role::Viewer),
        ("GET", "/dead-letters/stats", Role::Viewer),
        ("GET", "/dead-letters/groups", Role::Viewer),
        ("GET", "/stats", Role::Viewer),
        ("GET", "/nodes", Role::Viewer),
        ("GET", "/alerts", Role::Viewer),
        ("POST", "/alerts/{channel}/test", Role::Operator),
        ("GET", "/about", Role::Viewer),
        ("GET", "/clock", Role::Viewer),
        ("POST", "/clock/confirm", Role::Admin),
        ("POST", "/freeze", Role::Admin),
        ("GET", "/inbox", Role::Viewer),
        ("GET", "/configuration", Role::Viewer),
        ("PUT", "/configuration", Role::Admin),
        ("POST", "/settings/reload", Role::Admin),
        ("GET", "/tokens", Role::Admin),
        ("POST", "/tokens", Role::Admin),
        ("POST", "/tokens/link", Role::Admin),
        ("DELETE", "/tokens/{id}", Role::Admin),
        ("GET", "/sources", Role::Viewer),
        ("POST", "/sources", Role::Admin),
        ("GET", "/sources/{id}", Role::Viewer),
        ("PUT", "/sources/{id}", Role::Admin),
        ("DELETE", "/sources/{id}", Role::Admin),
        ("GET", "/destinations", Role::Viewer),
        ("POST", "/destinations", Role::Admin),
        ("GET", "/destinations/{id}", Role::Viewer),
        ("PUT", "/destinations/{id}", Role::Admin),
        ("DELETE", "/destinations/{id}", Role::Admin),
        ("GET", "/routes", Role::Viewer),
        ("POST", "/routes", Role::Admin),
        ("GET", "/routes/{id}", Role::Viewer),
        ("PUT", "/routes/{id}", Role::Admin),
        ("DELETE", "/routes/{id}", Role::Admin),
        ("POST", "/routes/try", Role::Viewer),
        ("GET", "/stream", Role::Viewer),
        ("GET", "/metrics", Role::Viewer),
        // Unlisted endpoints that change something are for admins.
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
            namespaces: None,
            urls: None,
            session,
        }
    }

    #[test]
    fn session_is_removed_and_not_added_without_its_token() {
        let first = token(1, None);
        let session_of_first = |n| token(n, Some(Session { sign_in_token: Some(first.id) }));
        let tokens = TokenRegistry::new(vec![first.clone()], NOW);
        assert!(tokens.add(session_of_first(2)));

        tokens.remove(first.id);

        assert!(!tokens.add(session_of_first(3)), "its token was removed meanwhile");
        assert!(tokens.0.read().unwrap().is_empty());
    }

    #[test]
    fn used_session_is_extended_up_to_its_lifetime_and_an_idle_one_ends() {
        let hour = |n: u64| NOW + Duration::from_secs(n * 3600);
        let owner = ApiToken { expires_at: Some(hour(30)), ..token(1, None) };
        let session = |n, sign_in_token| ApiToken {
            created_at: NOW,
            expires_at: Some(NOW + SESSION_LIFETIME),
            ..token(n, Some(Session { sign_in_token }))
        };
        let all = vec![owner.clone(), session(2, None), session(3, Some(owner.id))];
        let tokens = TokenRegistry::new(all, NOW);
        let extend = |n: u8, now| tokens.extend_session(&[n; 32], now);

        assert!(tokens.is_valid(&[2; 32], hour(11)));
        assert!(!tokens.is_valid(&[2; 32], hour(12)), "it was not used for 12 hours");
        assert_eq!(extend(2, NOW + Duration::from_secs(60)), None, "not worth storing");
        assert_eq!(extend(2, hour(11)), Some(hour(23)));
        assert!(tokens.is_valid(&[2; 32], hour(22)));
        assert_eq!(extend(2, hour(7 * 24 - 1)), Some(NOW + SESSION_LIFETIME));
        assert_eq!(extend(3, hour(11)), Some(hour(23)));
        assert_eq!(extend(3, hour(22)), Some(hour(30)), "not longer than its token");
        tokens.remove(owner.id);
        assert_eq!(extend(3, hour(23)), None);
        assert_eq!(extend(1, hour(1)), None, "a token is no session");
    }

    #[test]
    fn tokens_of_the_store_replace_those_in_memory() {
        let (first, second) = (token(1, None), token(2, None));
        let session = token(3, Some(Session { sign_in_token: None }));
        let used = ApiToken { expires_at: Some(Timestamp::from_millis(2_000)), ..session.clone() };
        let tokens = TokenRegistry::new(vec![first.clone(), used.clone()], NOW);

        tokens.replace(vec![second.clone(), session], NOW);

        assert!(!tokens.is_valid(&first.hash, NOW) && tokens.is_valid(&second.hash, NOW));
        assert_eq!(tokens.find_by_hash(&used.hash), Some(used), "it was used on this node");
    }

    #[test]
    fn adding_a_session_drops_expired_sessions() {
        let tokens = TokenRegistry::new(vec![token(1, None)], NOW);
        assert!(tokens.add(token(2, Some(Session { sign_in_token: None }))));

        assert!(tokens.add(token(50, Some(Session { sign_in_token: None }))));

        assert!(!tokens.contains(token(2, None).id));
        assert!(tokens.contains(token(1, None).id) && tokens.contains(token(50, None).id));
    }

    #[test]
    fn every_endpoint_requires_the_listed_role() {
        for (method, path, expected) in ENDPOINTS.iter().copied() {
            let method: Method = method.parse().unwrap();
            let full = if path == "/metrics" { path.to_owned() } else { format!("/api/v1{path}") };
            assert_eq!(required_role(&method, &full), expected, "case: {method} {path}");
        }
    }

    #[test]
    fn every_authenticated_endpoint_is_listed() {
        for (method, path) in api_table().authenticated_endpoints() {
            let path = path.strip_prefix("/api/v1").unwrap_or(path);
            let is_listed = ENDPOINTS.iter().any(|(verb, pattern, _)| {
                verb.eq_ignore_ascii_case(method) && is_same_pattern(pattern, path)
            });
            assert!(is_listed, "`{method} {path}` is not listed");
        }
    }

    #[test]
    fn operator_endpoints_require_operator_and_nothing_else() {
        for (method, path) in OPERATOR_ENDPOINTS {
            let pattern = path.replace("{}", "{id}");
            assert_eq!(
                required_role(method, &format!("/api/v1{pattern}")),
                Role::Operator,
                "case: {path}"
            );
            assert_eq!(
                required_role(method, &format!("{pattern}/more")),
                Role::Admin,
                "case: {path}"
            );
            assert_eq!(required_role(&Method::DELETE, path), Role::Admin, "case: {path}");
        }
    }
}
