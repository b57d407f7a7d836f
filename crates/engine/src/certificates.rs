//! Signing certificates of providers: fetched when a request names one, and cached.
//!
//! The sender of a request chooses the URL, within the provider's own addresses. So everything is
//! bounded: concurrent fetches, size, time, and the cache. However many requests name a URL, one fetch of
//! it runs, in a task of its own, and all of them get its result. Failures are cached for a moment too,
//! separately: URLs that lead nowhere do not push out those in use.

#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::Uri;
use surehook_retry::AttemptOutcome;
use surehook_types::time::Timestamp;
use surehook_webhooks::{
    request::IncomingRequest,
    verify::{CertificateChain, VerifiedRequest, Verifier},
};
use tokio::time::Instant;
use url::Url;

use crate::{
    ingest::IngestError,
    lock::lock,
    sender::{HttpSender, HttpSenderConfig, RESPONSE_BYTES_KEPT},
    tls::TrustStore,
};

/// The timeout of a fetch. The provider waits for our response meanwhile.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent fetches.
const FETCHES_MAX: usize = 4;
/// How long a certificate is cached. Its own validity is checked for every request.
const CACHED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Cached certificates. A provider has a few at a time.
const CACHED_MAX: usize = 32;
/// How long a failure is cached.
const FAILURE_CACHED_FOR: Duration = Duration::from_secs(30);
/// Cached failures.
const FAILURES_MAX: usize = 128;

/// A certificate in PEM, or why there is none.
type CertificateResult = Result<Bytes, Arc<str>>;
type PendingCertificate = Shared<BoxFuture<'static, CertificateResult>>;

#[async_trait]
pub(crate) trait FetchCertificate: fmt::Debug + Send + Sync {
    async fn fetch(&self, url: &Url) -> Result<Bytes, String>;
}

/// Fetches through the address guard, with connections of its own.
#[derive(Debug)]
pub(crate) struct HttpCertificateFetcher(HttpSender);

impl HttpCertificateFetcher {
    pub(crate) fn new(config: &HttpSenderConfig) -> Self {
        Self(HttpSender::new(HttpSenderConfig { pool_idle_max: FETCHES_MAX, ..config.clone() }))
    }
}

#[async_trait]
impl FetchCertificate for HttpCertificateFetcher {
    async fn fetch(&self, url: &Url) -> Result<Bytes, String> {
        let uri: Uri = url.as_str().parse().map_err(|_| "its URL is invalid")?;
        let report = self.0.fetch(uri, FETCH_TIMEOUT).await;
        match report.outcome {
            AttemptOutcome::Answered { status: 200, .. } => {
                // Of a longer response only the beginning is kept.
                if report.response_body.len() >= RESPONSE_BYTES_KEPT {
                    return Err("it is too long for a certificate".to_owned());
                }
                Ok(report.response_body.into())
            }
            AttemptOutcome::Answered { status, .. } => Err(format!("the answer was {status}")),
            AttemptOutcome::Failed(_) | AttemptOutcome::Interpreted(_) => {
                Err(report.detail.unwrap_or_default())
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct CertificateCache {
    fetcher: Arc<dyn FetchCertificate>,
    trust: TrustStore,
    state: Arc<Mutex<CertificateCacheState>>,
}

#[derive(Debug, Default)]
struct CertificateCacheState {
    cached: HashMap<String, (Bytes, Instant)>,
    failed: HashMap<String, (Arc<str>, Instant)>,
    fetching: HashMap<String, PendingCertificate>,
}

impl CertificateCache {
    pub(crate) fn new(fetcher: Arc<dyn FetchCertificate>, trust: TrustStore) -> Self {
        Self { fetcher, trust, state: Arc::default() }
    }

    /// Verifies a request with the certificate at `url`.
    pub(crate) async fn verify(
        &self,
        verifier: &Verifier,
        url: &Url,
        request: &IncomingRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, IngestError> {
        let pem =
            self.get(url).await.map_err(|reason| IngestError::Certificate(reason.to_string()))?;
        let certificate = CertificateChain { pem: &pem, roots: self.trust.roots() };
        verifier
            .verify_with_certificate(request, &certificate, now)
            .map_err(IngestError::NotVerified)
    }

    async fn get(&self, url: &Url) -> CertificateResult {
        let fetching = {
            let mut state = lock(&self.state);
            if let Some(cached) = state.find(url.as_str(), Instant::now()) {
                return cached;
            }
            // A fetch that has ended without clearing itself panicked.
            state.fetching.retain(|_, fetching| fetching.peek().is_none());
            match state.fetching.get(url.as_str()) {
                Some(fetching) => fetching.clone(),
                None if state.fetching.len() >= FETCHES_MAX => {
                    return Err("too many certificates are being fetched".into());
                }
                None => {
                    let fetching = self.start_fetch(url);
                    state.fetching.insert(url.as_str().to_owned(), fetching.clone());
                    fetching
                }
            }
        };
        fetching.await
    }

    /// Starts a fetch in a task of its own. Must be called under the lock, which the task takes at its end.
    fn start_fetch(&self, url: &Url) -> PendingCertificate {
        let (fetcher, state, url) =
            (Arc::clone(&self.fetcher), Arc::clone(&self.state), url.clone());
        let task = tokio::spawn(async move {
            let fetched = fetcher.fetch(&url).await.map_err(Arc::from);
            if let Err(reason) = &fetched {
                // Any sender can cause this: it must not fill the log.
                tracing::debug!(%url, %reason, "could not fetch a certificate");
            }
            lock(&state).store(url.into(), fetched.clone(), Instant::now());
            fetched
        });
        async move { task.await.unwrap_or_else(|_| Err("the fetch was interrupted".into())) }
            .boxed()
            .shared()
    }
}

impl CertificateCacheState {
    fn find(&self, url: &str, now: Instant) -> Option<CertificateResult> {
        match (self.cached.get(url), self.failed.get(url)) {
            (Some((pem, until)), _) if now < *until => Some(Ok(pem.clone())),
            (_, Some((reason, until))) if now < *until => Some(Err(Arc::clone(reason))),
            (Some(_) | None, Some(_) | None) => None,
        }
    }

    fn store(&mut self, url: String, fetched: CertificateResult, now: Instant) {
        self.fetching.remove(&url);
        match fetched {
            Ok(pem) => {
                self.failed.remove(&url);
                insert_bounded(&mut self.cached, url, pem, now + CACHED_FOR, CACHED_MAX);
            }
            Err(reason) => {
                let until = now + FAILURE_CACHED_FOR;
                insert_bounded(&mut self.failed, url, reason, until, FAILURES_MAX);
            }
        }
    }
}

/// Inserts an entry; a full map loses the one that expires first.
fn insert_bounded<T>(
    all: &mut HashMap<String, (T, Instant)>,
    url: String,
    value: T,
    until: Instant,
    max: usize,
) {
    if all.len() >= max && !all.contains_key(&url) {
        let oldest = all.iter().min_by_key(|(_, (_, until))| *until).map(|(url, _)| url.clone());
        oldest.map(|oldest| all.remove(&oldest));
    }
    all.insert(url, (value, until));
}
