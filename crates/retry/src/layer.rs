//! A tower layer that retries requests.

use std::{
    fmt,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tower_layer::Layer;
use tower_service::Service;

use crate::{Classify, Retrier, RetryError, RetrySummary, StopReason};

/// Wraps services so that failed requests are retried.
///
/// Requests must be `Clone`; a clone is made for each attempt. The response of the last attempt is
/// returned, also if it counts as a failure (a status 503). An error carries the number of attempts
/// and why there are no more ([`RetryError`]); [`Retrier::observer`] sees this for every request.
pub struct RetryLayer<C> {
    retrier: Arc<Retrier<C>>,
}

impl<C> RetryLayer<C> {
    /// A layer that retries as this retrier does. All services it wraps share the retrier's budget.
    pub fn new(retrier: Retrier<C>) -> Self {
        Self { retrier: Arc::new(retrier) }
    }
}

// Not derived, which would ask for `C: Clone`.
impl<C> Clone for RetryLayer<C> {
    fn clone(&self) -> Self {
        Self { retrier: Arc::clone(&self.retrier) }
    }
}

impl<C: fmt::Debug> fmt::Debug for RetryLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer").field("retrier", &self.retrier).finish()
    }
}

impl<S, C> Layer<S> for RetryLayer<C> {
    type Service = RetryService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryService { inner, retrier: Arc::clone(&self.retrier) }
    }
}

/// A service with retries, made by [`RetryLayer`].
pub struct RetryService<S, C> {
    inner: S,
    retrier: Arc<Retrier<C>>,
}

impl<S: Clone, C> Clone for RetryService<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), retrier: Arc::clone(&self.retrier) }
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for RetryService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryService")
            .field("inner", &self.inner)
            .field("retrier", &self.retrier)
            .finish()
    }
}

impl<S, C, Request> Service<Request> for RetryService<S, C>
where
    S: Service<Request> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    C: Classify<S::Response, S::Error> + Send + Sync + 'static,
    Request: Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = RetryError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A service that cannot become ready is broken for good, by tower's contract.
        self.inner.poll_ready(context).map_err(|error| {
            let (stop, elapsed) = (StopReason::NotRetryable, Duration::ZERO);
            let summary = RetrySummary { attempts: 0, stop, failure: None, elapsed };
            RetryError { last: Some(error), summary }
        })
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let spare = self.inner.clone();
        // The clone may not be ready: the first attempt takes the service that was polled.
        let mut ready = Some(mem::replace(&mut self.inner, spare.clone()));
        let retrier = Arc::clone(&self.retrier);
        Box::pin(async move {
            let attempt = move |_| {
                let request = request.clone();
                let polled = ready.take();
                let is_ready = polled.is_some();
                let mut service = polled.unwrap_or_else(|| spare.clone());
                async move {
                    if !is_ready {
                        poll_fn(|context| service.poll_ready(context)).await?;
                    }
                    service.call(request).await
                }
            };
            retrier.run(attempt).await.into_result()
        })
    }
}
