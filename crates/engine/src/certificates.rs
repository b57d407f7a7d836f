//! The certificates that a provider signs its requests with: fetched when a request names one, and
//! kept.
//!
//! Whoever calls the door chooses what is fetched, within the provider's own addresses. So there is a
//! bound to everything: what is fetched at a time, how large it is, how long it takes, what is kept.
//! However many requests name an address, one fetch of it is under way, in a task of its own, and
//! all of them get what comes of it. What cannot be fetched is remembered for a moment too, apart
//! from what could: names that lead nowhere do not push out those that are in use.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, future::Shared};
use http::Uri;
use surehook_core::{
    delivery::AttemptOutcome,
    request::IncomingRequest,
    time::Timestamp,
    verify::{Certificate, VerifiedRequest, Verifier},
};
use tokio::time::Instant;
use url::Url;

use crate::{
    ingest::IngestError,
    sender::{HttpSender, HttpSenderConfig, RESPONSE_BYTES_KEPT},
    tls::TrustStore,
};

/// How long a fetch may take. The provider waits for its answer meanwhile.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How many are fetched at a time.
const FETCHES_MAX: usize = 4;
/// How long a certificate is kept. What it says of its own end is looked at in every request.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// How many certificates are kept. A provider has a few at a time.
const KEPT_MAX: usize = 32;
/// How long an address is left alone that gave no certificate.
const FAILURE_KEPT_FOR: Duration = Duration::from_secs(30);
/// How many of those are remembered.
const FAILURES_MAX: usize = 128;

/// A certificate in PEM, or a sentence on why there is none.
type CertificateResult = Result<Bytes, Arc<str>>;
type PendingCertificate = Shared<Pin<Box<dyn Future<Output = CertificateResult> + Send>>>;

/// Fetches what is at an address.
#[async_trait]
pub(crate) trait FetchCertificate: fmt::Debug + Send + Sync {
    async fn fetch(&self, url: &Url) -> Result<Bytes, String>;
}

/// Fetches through the guarded way out, with connections of its own.
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
        let uri: Uri = url.as_str().parse().map_err(|_| "its address cannot be called")?;
        let report = self.0.fetch(uri, FETCH_TIMEOUT).await;
        match report.outcome {
            AttemptOutcome::Answered { status: 200, .. } => {
                // Of a longer answer only the beginning is at hand.
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

/// What was fetched lately, and what is being fetched.
#[derive(Debug)]
pub(crate) struct CertificateCache {
    fetcher: Arc<dyn FetchCertificate>,
    trust: TrustStore,
    inside: Arc<Mutex<CertificateCacheState>>,
}

#[derive(Debug, Default)]
struct CertificateCacheState {
    kept: HashMap<String, (Bytes, Instant)>,
    failed: HashMap<String, (Arc<str>, Instant)>,
    fetching: HashMap<String, PendingCertificate>,
}

impl CertificateCache {
    pub(crate) fn new(fetcher: Arc<dyn FetchCertificate>, trust: TrustStore) -> Self {
        Self { fetcher, trust, inside: Arc::default() }
    }

    /// Checks a request with the certificate at `url`, which its verifier named.
    pub(crate) async fn verify(
        &self,
        verifier: &Verifier,
        url: &Url,
        request: &IncomingRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, IngestError> {
        let pem = self.get(url).await.map_err(|why| IngestError::Certificate(why.to_string()))?;
        let certificate = Certificate { pem: &pem, roots: self.trust.roots() };
        verifier
            .verify_with_certificate(request, &certificate, now)
            .map_err(IngestError::NotVerified)
    }

    async fn get(&self, url: &Url) -> CertificateResult {
        let fetching = {
            let mut inside = lock(&self.inside);
            if let Some(known) = inside.known(url.as_str(), Instant::now()) {
                return known;
            }
            // One that has ended without clearing itself away broke down.
            inside.fetching.retain(|_, fetching| fetching.peek().is_none());
            match inside.fetching.get(url.as_str()) {
                Some(fetching) => fetching.clone(),
                None if inside.fetching.len() >= FETCHES_MAX => {
                    return Err("others are being fetched".into());
                }
                None => {
                    let fetching = self.start(url);
                    inside.fetching.insert(url.as_str().to_owned(), fetching.clone());
                    fetching
                }
            }
        };
        fetching.await
    }

    /// Starts a fetch in a task of its own. To be called under the lock, which the task takes at
    /// its end.
    fn start(&self, url: &Url) -> PendingCertificate {
        let (fetcher, inside, url) =
            (Arc::clone(&self.fetcher), Arc::clone(&self.inside), url.clone());
        let task = tokio::spawn(async move {
            let fetched = fetcher.fetch(&url).await.map_err(Arc::from);
            if let Err(why) = &fetched {
                // Whoever calls the door can make this happen: no reason to fill the log.
                tracing::debug!(%url, %why, "could not fetch a certificate");
            }
            lock(&inside).keep(url.into(), fetched.clone(), Instant::now());
            fetched
        });
        async move { task.await.unwrap_or_else(|_| Err("it was broken off".into())) }
            .boxed()
            .shared()
    }
}

fn lock(inside: &Mutex<CertificateCacheState>) -> MutexGuard<'_, CertificateCacheState> {
    // Each change is one step; a panic cannot leave it half done.
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CertificateCacheState {
    fn known(&self, url: &str, now: Instant) -> Option<CertificateResult> {
        match (self.kept.get(url), self.failed.get(url)) {
            (Some((pem, until)), _) if now < *until => Some(Ok(pem.clone())),
            (_, Some((why, until))) if now < *until => Some(Err(Arc::clone(why))),
            (Some(_) | None, Some(_) | None) => None,
        }
    }

    fn keep(&mut self, url: String, fetched: CertificateResult, now: Instant) {
        self.fetching.remove(&url);
        match fetched {
            Ok(pem) => {
                self.failed.remove(&url);
                put(&mut self.kept, url, (pem, now + KEPT_FOR), KEPT_MAX);
            }
            Err(why) => put(&mut self.failed, url, (why, now + FAILURE_KEPT_FOR), FAILURES_MAX),
        }
    }
}

/// Puts one more in, in the place of the one that has the least time left if it is full.
fn put<T>(all: &mut HashMap<String, (T, Instant)>, url: String, new: (T, Instant), max: usize) {
    if all.len() >= max && !all.contains_key(&url) {
        let oldest = all.iter().min_by_key(|(_, (_, until))| *until).map(|(url, _)| url.clone());
        oldest.map(|oldest| all.remove(&oldest));
    }
    all.insert(url, new);
}
