//! The `OAuth2` token of one destination: fetched once, shared by all attempts, fetched again when
//! it runs out or is refused.
//!
//! However many attempts need a token, one fetch is under way at a time, and all of them get what
//! comes of it. It runs in a task of its own, so that an attempt whose time is up does not take it
//! away from the others. A failure is remembered for a moment too: a token endpoint in trouble is
//! not asked once for each delivery that waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use http::HeaderValue;
use surehook_core::delivery::{AttemptFailure, AttemptOutcome};
use surehook_core::destination::oauth2::{
    AccessToken, Oauth2Config, TokenError, parse_token_response,
};
use tokio::time::Instant;

use crate::sender::{HttpOutboundRequest, HttpSender, SendReport};

/// How long a token endpoint may take in all.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the endpoint is left alone after it gave no token.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(1);

type TokenResult = Result<HeaderValue, TokenError>;
type PendingFetch = Shared<Pin<Box<dyn Future<Output = TokenResult> + Send>>>;

/// The token of one destination.
#[derive(Debug)]
pub(crate) struct TokenCache {
    digest: [u8; 32],
    inside: Mutex<TokenCacheState>,
}

#[derive(Debug, Default)]
struct TokenCacheState {
    latest: Option<CachedToken>,
    fetching: Option<PendingFetch>,
}

/// What the last fetch came to, and until when that holds.
#[derive(Debug)]
struct CachedToken {
    fetched: TokenResult,
    until: Instant,
}

/// A token for an attempt.
#[derive(Debug, Clone)]
pub(crate) struct TokenGrant {
    pub(crate) header: HeaderValue,
    /// Whether it was fetched while this attempt waited.
    pub(crate) is_fresh: bool,
}

impl TokenCache {
    /// No token yet, to be fetched as `oauth2` says.
    pub(crate) fn new(oauth2: &Oauth2Config) -> Self {
        Self { digest: oauth2.digest(), inside: Mutex::default() }
    }

    /// Whether these are the tokens that `oauth2` asks for.
    pub(crate) fn are_of(&self, oauth2: &Oauth2Config) -> bool {
        self.digest == oauth2.digest()
    }

    fn inside(&self) -> MutexGuard<'_, TokenCacheState> {
        // What is inside is replaced as a whole; a panic cannot leave it half changed.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token other than `refused`. Waits for a fetch if there is none.
    pub(crate) async fn get(
        self: &Arc<Self>,
        oauth2: &Oauth2Config,
        http: &HttpSender,
        refused: Option<&HeaderValue>,
    ) -> Result<TokenGrant, TokenError> {
        let fetching = {
            let mut inside = self.inside();
            if let Some(latest) = &inside.latest
                && Instant::now() < latest.until
            {
                match &latest.fetched {
                    Ok(header) if Some(header) == refused => {}
                    Ok(header) => {
                        return Ok(TokenGrant { header: header.clone(), is_fresh: false });
                    }
                    Err(problem) => return Err(problem.clone()),
                }
            }
            // One that has ended without clearing itself away broke down.
            let running = inside.fetching.take().filter(|fetching| fetching.peek().is_none());
            let fetching = running.unwrap_or_else(|| self.start(oauth2, http));
            inside.fetching = Some(fetching.clone());
            fetching
        };
        fetching.await.map(|header| TokenGrant { header, is_fresh: true })
    }

    /// Starts a fetch in a task of its own. To be called under the lock, which the task takes at
    /// its end.
    fn start(self: &Arc<Self>, oauth2: &Oauth2Config, http: &HttpSender) -> PendingFetch {
        let (headers, body) = oauth2.request();
        let request =
            HttpOutboundRequest { url: oauth2.token_url.clone(), headers, body: body.into() };
        let (tokens, http) = (Arc::clone(self), http.clone());
        let task = tokio::spawn(async move {
            let report = http.send(request, FETCH_TIMEOUT).await;
            tokens.keep(read(report))
        });
        let broken_off = TokenError {
            failure: AttemptFailure::Token,
            detail: "fetching the token was broken off".to_owned(),
        };
        async move { task.await.unwrap_or(Err(broken_off)) }.boxed().shared()
    }

    fn keep(&self, token: Result<AccessToken, TokenError>) -> TokenResult {
        let (fetched, lasts) = match token {
            Ok(token) => (Ok(token.header), token.life),
            Err(problem) => (Err(problem), FAILURE_REMEMBERED),
        };
        let latest = CachedToken { fetched: fetched.clone(), until: Instant::now() + lasts };
        *self.inside() = TokenCacheState { latest: Some(latest), fetching: None };
        fetched
    }

    /// Forgets a token that was refused, so that the next attempt fetches another.
    pub(crate) fn forget(&self, refused: &HeaderValue) {
        let mut inside = self.inside();
        if inside.latest.as_ref().is_some_and(|latest| latest.fetched.as_ref() == Ok(refused)) {
            inside.latest = None;
        }
    }
}

/// What came of asking the token endpoint.
fn read(report: SendReport) -> Result<AccessToken, TokenError> {
    match report.outcome {
        AttemptOutcome::Answered { status, .. } => {
            parse_token_response(status, &report.response_body)
        }
        AttemptOutcome::Failed(failure) => {
            let detail = report.detail.unwrap_or_default();
            Err(TokenError { failure, detail: format!("the token endpoint: {detail}") })
        }
        AttemptOutcome::Interpreted(_) => {
            Err(TokenError { failure: AttemptFailure::Token, detail: String::new() })
        }
    }
}
