//! The gateway as seen by the dashboard: API calls on behalf of a signed-in user, and sessions.
//!
//! The dashboard is a client of the API (docs/decisions/0047): everything it shows or does can also
//! be done by a script, and every rule about permissions, masking and validation exists once, behind
//! this trait.

use async_trait::async_trait;
use axum::body::Body;
use http::{Request, Response};
use surehook_core::{
    access::{ClientAddress, Role, TokenHash},
    clock::ClockStatus,
};
use surehook_types::{ids::TokenId, time::Timestamp};

/// The session of a signed-in browser.
#[derive(Clone, Debug)]
pub struct DashboardSession {
    /// Not a credential: knowing the id does not sign anyone in.
    pub id: TokenId,
    /// Hash of the session's secret. API calls are authorized by it.
    pub hash: TokenHash,
    pub name: Option<String>,
    pub role: Role,
    pub expires_at: Option<Timestamp>,
}

/// The credential of a sign-in.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'c> {
    ApiToken(&'c str),
    /// The code of a single-use login link.
    LoginLink(&'c str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignInError {
    /// The token or code is unknown, already used or expired.
    InvalidCredential,
    /// Too many invalid credentials came from this address.
    Throttled { retry_after_secs: u64 },
    /// The session could not be stored.
    Unavailable,
}

#[derive(Clone, Debug)]
pub struct NewSession {
    /// The value of the session cookie.
    pub secret: String,
    pub lifetime_secs: u64,
}

/// The server that the dashboard runs in.
#[async_trait]
pub trait DashboardGateway: Send + Sync + 'static {
    /// Calls the API with the permissions of `session`.
    async fn call(&self, session: &DashboardSession, request: Request<Body>) -> Response<Body>;

    /// The session that belongs to a cookie, unless it is unknown or expired.
    async fn find_session(&self, secret: &str) -> Option<DashboardSession>;

    /// Starts a session. Failures are counted for the address that they come from.
    async fn sign_in(
        &self,
        credential: Credential<'_>,
        client: Option<&ClientAddress>,
    ) -> Result<NewSession, SignInError>;

    async fn sign_out(&self, session: &DashboardSession);

    fn version(&self) -> &'static str;

    /// The address under which senders reach the gateway, if it is configured.
    fn public_url(&self) -> Option<String>;

    fn now(&self) -> Timestamp;

    fn clock_status(&self) -> ClockStatus;

    /// A random value. Forms that must not be executed twice carry one.
    fn new_idempotency_key(&self) -> String;
}
