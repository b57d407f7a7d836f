//! Bearer tokens. Only their SHA-256 is kept: a token is 32 random bytes, so a hash is enough.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use sha2::{Digest, Sha256};
use std::sync::Arc;

use crate::{App, problem::Problem};

/// The hash of a token.
pub type TokenHash = [u8; 32];

/// The hash under which a token is kept.
pub fn hash_token(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[derive(Debug)]
pub(crate) struct Tokens(Vec<TokenHash>);

impl Tokens {
    pub(crate) fn new(hashes: Vec<TokenHash>) -> Self {
        Self(hashes)
    }

    /// Compares hashes: what timing could tell about a hash does not help to guess a token.
    fn find(&self, token: &str) -> Option<TokenHash> {
        let hash = hash_token(token);
        let known = self.0.iter().fold(false, |known, other| known | (*other == hash));
        known.then_some(hash)
    }
}

/// Lets a request through if it carries a token that is known.
pub(crate) async fn require_token(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    match token {
        Some(token) => match app.tokens.find(token) {
            Some(hash) => {
                // Whose `Idempotency-Key` it is.
                request.extensions_mut().insert(hash);
                next.run(request).await
            }
            None => unauthorized("this token is not known"),
        },
        None => unauthorized("send the admin token as `Authorization: Bearer …`"),
    }
}

fn unauthorized(detail: &str) -> Response {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).into_response()
}
