//! The gateway as the dashboard sees it: calls of the API with somebody's rights, and who that is.
//!
//! The dashboard is a client of the API (docs/decisions/0047): whatever it shows or does, a script
//! could, and every rule about rights, masking and validation exists once, on the other side of
//! this trait.

use async_trait::async_trait;
use axum::body::Body;
use http::{Request, Response};
use surehook_core::{
    access::{Role, TokenHash},
    ids::TokenId,
    time::Timestamp,
};

/// Who looks, once he has signed in.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The session's id, which opens nothing.
    pub id: TokenId,
    /// The hash of the session's secret: whose rights a call has.
    pub hash: TokenHash,
    /// How he is called.
    pub name: Option<String>,
    /// What he may do.
    pub role: Role,
    /// When he has to sign in again.
    pub until: Option<Timestamp>,
}

/// What somebody signs in with.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'p> {
    /// A token of the API.
    Token(&'p str),
    /// The code of a link that opens once.
    Link(&'p str),
}

/// Why nobody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The token or the code is not known, was used, or has ended.
    Unknown,
    /// The store did not take the session.
    Unavailable,
}

/// A session that has begun.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// What the browser keeps.
    pub secret: String,
    /// For how many seconds.
    pub seconds: u64,
}

/// What the dashboard needs of a gateway.
#[async_trait]
pub trait Gateway: Send + Sync + 'static {
    /// Makes a call of the API with the rights of `caller`.
    async fn call(&self, caller: &Caller, request: Request<Body>) -> Response<Body>;

    /// Who has this session.
    fn caller(&self, session: &str) -> Option<Caller>;

    /// Begins a session.
    async fn sign_in(&self, proof: Proof<'_>) -> Result<SignedIn, Refused>;

    /// Ends a session.
    async fn sign_out(&self, caller: &Caller);

    /// The version that runs.
    fn version(&self) -> &'static str;

    /// Where senders reach the gateway, if the settings say so.
    fn public_url(&self) -> Option<String>;

    /// The time, for whoever shows an age.
    fn now(&self) -> Timestamp;

    /// A value that nobody has had: forms that must be carried out once carry one.
    fn once(&self) -> String;
}
