//! The `OAuth2` token of one destination: fetched once, shared by all attempts, fetched again when it
//! expires or is refused.
//!
//! However many attempts need a token, one fetch runs at a time and all of them get its result. It runs
//! in a task of its own, so that an attempt that times out does not cancel it for the others. A failure
//! is cached for a moment too: a failing token endpoint is not called once per waiting delivery.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::HeaderValue;
use surehook_core::destination::oauth2::{
    AccessToken, Oauth2Config, TokenError, parse_token_response,
};
use surehook_retry::{AttemptFailure, AttemptOutcome};
use tokio::time::Instant;

use crate::lock::lock;
use crate::sender::{HttpOutboundRequest, HttpSender, SendReport};

/// The timeout of a token request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a failure is cached.
const FAILURE_CACHED_FOR: Duration = Duration::from_secs(1);

type TokenResult = Result<HeaderValue, TokenError>;
type PendingFetch = Shared<BoxFuture<'static, TokenResult>>;

#[derive(Debug)]
pub(crate) struct TokenCache {
    digest: [u8; 32],
    state: Mutex<TokenCacheState>,
}

#[derive(Debug, Default)]
struct TokenCacheState {
    cached: Option<CachedToken>,
    fetching: Option<PendingFetch>,
}

/// The result of the last fetch, and how long it is valid.
#[derive(Debug)]
struct CachedToken {
    result: TokenResult,
    valid_until: Instant,
}

/// A token for an attempt.
#[derive(Debug, Clone)]
pub(crate) struct TokenGrant {
    pub(crate) header: HeaderValue,
    /// Whether this attempt waited for the token; otherwise it comes from the cache.
    pub(crate) is_newly_fetched: bool,
}

impl TokenCache {
    pub(crate) fn new(oauth2: &Oauth2Config) -> Self {
        Self { digest: oauth2.digest(), state: Mutex::default() }
    }

    /// Whether the cache is for these settings.
    pub(crate) fn is_for(&self, oauth2: &Oauth2Config) -> bool {
        self.digest == oauth2.digest()
    }

    /// A token other than `refused`. Waits for a fetch if none is cached.
    pub(crate) async fn get(
        self: &Arc<Self>,
        oauth2: &Oauth2Config,
        http: &HttpSender,
        refused: Option<&HeaderValue>,
    ) -> Result<TokenGrant, TokenError> {
        let fetching = {
            let mut state = lock(&self.state);
            if let Some(cached) = &state.cached
                && Instant::now() < cached.valid_until
            {
                match &cached.result {
                    Ok(header) if Some(header) == refused => {}
                    Ok(header) => {
                        return Ok(TokenGrant { header: header.clone(), is_newly_fetched: false });
                    }
                    Err(problem) => return Err(problem.clone()),
                }
            }
            // A fetch that has ended without clearing itself panicked.
            let running = state.fetching.take().filter(|fetching| fetching.peek().is_none());
            let fetching = running.unwrap_or_else(|| self.start_fetch(oauth2, http));
            state.fetching = Some(fetching.clone());
            fetching
        };
        fetching.await.map(|header| TokenGrant { header, is_newly_fetched: true })
    }

    /// Starts a fetch in a task of its own. Must be called under the lock, which the task takes at its end.
    fn start_fetch(self: &Arc<Self>, oauth2: &Oauth2Config, http: &HttpSender) -> PendingFetch {
        let (headers, body) = oauth2.token_request();
        let request =
            HttpOutboundRequest { url: oauth2.token_url.clone(), headers, body: body.into() };
        let (cache, http) = (Arc::clone(self), http.clone());
        let task = tokio::spawn(async move {
            let report = http.send(request, FETCH_TIMEOUT).await;
            cache.store(parse_report(report))
        });
        let cancelled = TokenError {
            failure: AttemptFailure::Token,
            detail: "fetching the token was interrupted".to_owned(),
        };
        async move { task.await.unwrap_or(Err(cancelled)) }.boxed().shared()
    }

    fn store(&self, token: Result<AccessToken, TokenError>) -> TokenResult {
        let (result, valid_for) = match token {
            Ok(token) => (Ok(token.header), token.usable_for),
            Err(problem) => (Err(problem), FAILURE_CACHED_FOR),
        };
        let cached =
            CachedToken { result: result.clone(), valid_until: Instant::now() + valid_for };
        *lock(&self.state) = TokenCacheState { cached: Some(cached), fetching: None };
        result
    }

    /// Removes a refused token, so that the next attempt fetches another.
    pub(crate) fn remove(&self, refused: &HeaderValue) {
        let mut state = lock(&self.state);
        if state.cached.as_ref().is_some_and(|cached| cached.result.as_ref() == Ok(refused)) {
            state.cached = None;
        }
    }
}

fn parse_report(report: SendReport) -> Result<AccessToken, TokenError> {
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
