//! The retry loop with the clock, the randomness and the timers of the system.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};

use crate::{AttemptContext, Classify, Retrier, RetryPolicy, RetryReport};

/// The origin of [`Clock::elapsed`] is this long before the first use: tokio's paused clock may be
/// behind the real one.
const ORIGIN_LEAD: Duration = Duration::from_secs(3600);
static FIRST_USE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The clock of the system; tokio's, where it is paused in a test.
#[derive(Debug)]
struct MachineClock;

impl Clock for MachineClock {
    #[expect(clippy::disallowed_methods, reason = "an implementation of the injected clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        #[cfg(feature = "tokio")]
        let now = tokio::time::Instant::now().into_std();
        #[cfg(not(feature = "tokio"))]
        let now = Instant::now();
        let behind = FIRST_USE.saturating_duration_since(now);
        (now.saturating_duration_since(*FIRST_USE) + ORIGIN_LEAD).saturating_sub(behind)
    }
}

/// Random numbers for jitter from the keys of the standard library's hash maps, which the operating
/// system seeds. Not for secrets.
#[derive(Debug)]
struct HashRng;

impl Rng for HashRng {
    fn next_u128(&self) -> u128 {
        let half = || u128::from(RandomState::new().hash_one(()));
        half() << 64 | half()
    }
}

impl<C> Retrier<C> {
    /// A retrier with the clock of the system.
    pub fn new(policy: RetryPolicy, classifier: C) -> Self {
        Self::with_clock(policy, classifier, Arc::new(MachineClock), Arc::new(HashRng))
    }
}

/// Waits on tokio's timer.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioSleeper;

#[cfg(feature = "tokio")]
impl crate::Sleeper for TokioSleeper {
    fn sleep(&self, delay: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(delay))
    }
}

/// Blocks the thread.
#[cfg(feature = "blocking")]
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadSleeper;

#[cfg(feature = "blocking")]
impl crate::BlockingSleeper for ThreadSleeper {
    fn sleep(&self, delay: Duration) {
        std::thread::sleep(delay);
    }
}

#[cfg(feature = "tokio")]
impl<C> Retrier<C> {
    /// Attempts the operation until it succeeds or must be given up, with tokio's timer.
    ///
    /// Cancellation safe: see [`Retrier::run_with`].
    pub async fn run<T, E, Op, Attempt>(&self, operation: Op) -> RetryReport<T, E>
    where
        C: Classify<T, E>,
        Op: FnMut(AttemptContext) -> Attempt,
        Attempt: Future<Output = Result<T, E>>,
    {
        self.run_with(&TokioSleeper, operation).await
    }
}

#[cfg(feature = "blocking")]
impl<C> Retrier<C> {
    /// Attempts the operation until it succeeds or must be given up, on this thread. Waits block it.
    pub fn run_blocking<T, E>(
        &self,
        operation: impl FnMut(AttemptContext) -> Result<T, E>,
    ) -> RetryReport<T, E>
    where
        C: Classify<T, E>,
    {
        self.run_blocking_with(&ThreadSleeper, operation)
    }
}

/// Attempts the operation until it succeeds or must be given up. [`Retrier`] adds a deadline, a budget
/// and an observer.
///
/// Cancellation safe: see [`Retrier::run_with`].
///
/// ```
/// use surehook_retry::{EveryErrorClassifier, RetryPolicy, retry};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let report = retry(RetryPolicy::quick(), EveryErrorClassifier, |attempt| async move {
///     Ok::<_, std::io::Error>(attempt.number)
/// })
/// .await;
/// assert_eq!(report.into_result().unwrap(), 1);
/// # }
/// ```
#[cfg(feature = "tokio")]
pub async fn retry<T, E, C, Op, Attempt>(
    policy: RetryPolicy,
    classifier: C,
    operation: Op,
) -> RetryReport<T, E>
where
    C: Classify<T, E>,
    Op: FnMut(AttemptContext) -> Attempt,
    Attempt: Future<Output = Result<T, E>>,
{
    Retrier::new(policy, classifier).run(operation).await
}

/// Attempts the operation until it succeeds or must be given up, on this thread. Waits block it.
/// [`Retrier`] adds a deadline, a budget and an observer.
///
/// ```
/// use surehook_retry::{EveryErrorClassifier, RetryPolicy, retry_blocking};
///
/// let report = retry_blocking(RetryPolicy::quick(), EveryErrorClassifier, |_| "8".parse::<u8>());
/// assert_eq!(report.into_result(), Ok(8));
/// ```
#[cfg(feature = "blocking")]
pub fn retry_blocking<T, E, C: Classify<T, E>>(
    policy: RetryPolicy,
    classifier: C,
    operation: impl FnMut(AttemptContext) -> Result<T, E>,
) -> RetryReport<T, E> {
    Retrier::new(policy, classifier).run_blocking(operation)
}
