//! The retry loop: attempts an operation until it succeeds or must be given up.
//!
//! The decisions are those of [`crate::decide_retry`], which the gateway uses. Time, randomness and
//! waiting are passed in. [`crate::retry`], [`crate::retry_blocking`] and the tower layer run this loop
//! with the clock of the system.

use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use surehook_types::{rng::Rng, string_enum, time::Clock};

use crate::{
    AttemptProgress, Classify, DeadReason, FailureClass, RetryBudget, RetryPermit, RetryPolicy,
    RetryTerms, ScheduleReason, StatusRules,
    decide::{WaitDecision, decide_wait},
};

/// Classifiers have their own rules.
const NO_RULES: &StatusRules = &StatusRules::none();

/// Waits without blocking the thread. Passed in, so that tests need not wait.
pub trait Sleeper: fmt::Debug + Send + Sync {
    /// Completes after this time.
    fn sleep(&self, delay: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Waits by blocking the thread. Passed in, so that tests need not wait.
pub trait BlockingSleeper {
    /// Returns after this time.
    fn sleep(&self, delay: Duration);
}

/// The number of the running attempt and the time left for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptContext {
    /// Number of the attempt, from 1.
    pub number: u32,
    /// Time until the deadline, if there is one: a good timeout of the attempt.
    pub remaining: Option<Duration>,
}

string_enum! {
    /// Why no further attempt was made.
    #[non_exhaustive]
    pub enum StopReason {
        /// The last attempt succeeded.
        Succeeded = "succeeded",
        /// All attempts of the policy were made.
        MaxAttempts = "max_attempts",
        /// The classifier says that a retry would not help.
        NotRetryable = "not_retryable",
        /// The next attempt would begin after the deadline or the policy's maximum age, or the
        /// deadline ended the running one.
        DeadlineReached = "deadline_reached",
        /// The retry budget is used up.
        BudgetExhausted = "budget_exhausted",
    }
}

impl StopReason {
    const fn describe(self) -> &'static str {
        match self {
            Self::Succeeded => "it succeeded",
            Self::MaxAttempts => "the policy allows no more",
            Self::NotRetryable => "a retry would not help",
            Self::DeadlineReached => "no time is left before the deadline",
            Self::BudgetExhausted => "the retry budget is used up",
        }
    }
}

/// How the attempts of one operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySummary {
    /// Number of attempts that began.
    pub attempts: u32,
    /// Why no further attempt was made.
    pub stop: StopReason,
    /// The kind of the last failure; `None` for a success, and if no attempt ended.
    pub failure: Option<FailureClass>,
    /// Time since the first attempt began, waits included.
    pub elapsed: Duration,
}

/// The result of an operation with retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the report has the result of the operation"]
#[non_exhaustive]
pub struct RetryReport<T, E> {
    /// The result of the last attempt. `None` if the deadline ended an attempt and there is no earlier
    /// error: an earlier `Ok` that counts as a failure is dropped before the wait, because a response
    /// may hold a connection.
    pub last: Option<Result<T, E>>,
    /// How it ended.
    pub summary: RetrySummary,
}

impl<T, E> RetryReport<T, E> {
    /// Whether the last attempt succeeded.
    pub fn is_success(&self) -> bool {
        self.summary.stop == StopReason::Succeeded
    }

    /// The last result, with the summary in its error. An `Ok` that counts as a failure, such as a
    /// response with status 503, remains an `Ok`.
    pub fn into_result(self) -> Result<T, RetryError<E>> {
        let Self { last, summary } = self;
        match last {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(RetryError { last: Some(error), summary }),
            None => Err(RetryError { last: None, summary }),
        }
    }
}

/// The error of an operation that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryError<E> {
    /// The last error; `None` if the deadline ended the only attempt.
    pub last: Option<E>,
    /// How many attempts were made, and why there are no more.
    pub summary: RetrySummary,
}

impl<E: fmt::Display> fmt::Display for RetryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RetrySummary { attempts, stop, .. } = self.summary;
        let plural = if attempts == 1 { "" } else { "s" };
        write!(f, "gave up after {attempts} attempt{plural}: {}", stop.describe())?;
        match &self.last {
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}

// Without `source`, so that boxed errors, which are not `Error` themselves, are supported: the message
// contains the last error.
impl<E: fmt::Debug + fmt::Display> std::error::Error for RetryError<E> {}

/// An event of a retried operation, for the observer of a [`Retrier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryEvent {
    /// An attempt failed and another one follows.
    #[non_exhaustive]
    RetryScheduled {
        /// Number of the failed attempt.
        attempt: u32,
        /// The kind of failure.
        failure: FailureClass,
        /// Time until the next attempt.
        delay: Duration,
        /// Where this time comes from.
        reason: ScheduleReason,
    },
    /// There are no further attempts.
    Stopped(RetrySummary),
}

type Observer = Arc<dyn Fn(&RetryEvent) + Send + Sync>;

/// Runs operations with retries: a policy, a classifier, and optionally a deadline and a budget.
///
/// One retrier can serve many operations at once.
#[derive(Clone)]
pub struct Retrier<C> {
    policy: RetryPolicy,
    classifier: C,
    deadline: Option<Duration>,
    budget: Option<Arc<RetryBudget>>,
    observer: Option<Observer>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl<C: fmt::Debug> fmt::Debug for Retrier<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retrier")
            .field("policy", &self.policy)
            .field("classifier", &self.classifier)
            .field("deadline", &self.deadline)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl<C> Retrier<C> {
    /// A retrier with this clock and these random numbers. `Retrier::new` takes those of the system.
    pub fn with_clock(
        policy: RetryPolicy,
        classifier: C,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        Self { policy, classifier, deadline: None, budget: None, observer: None, clock, rng }
    }

    /// Limits the time of an operation with all its attempts and waits.
    ///
    /// No attempt begins after the deadline, and no wait that would reach it. An attempt that is
    /// running at that time is dropped, except in a blocking call: pass
    /// [`AttemptContext::remaining`] as the timeout of the attempt there.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Retries only as long as this budget allows. Share one budget among all that call a service.
    #[must_use]
    pub fn budget(mut self, budget: Arc<RetryBudget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Calls this function before every wait and at the end, for logs and metrics.
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&RetryEvent) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Attempts the operation until it succeeds or must be given up, on any async runtime.
    ///
    /// Cancellation safe: dropping the future drops the running attempt or ends the wait, and a retry
    /// that has not begun is given back to the budget.
    pub async fn run_with<T, E, Op, Attempt>(
        &self,
        sleeper: &dyn Sleeper,
        mut operation: Op,
    ) -> RetryReport<T, E>
    where
        C: Classify<T, E>,
        Op: FnMut(AttemptContext) -> Attempt,
        Attempt: Future<Output = Result<T, E>>,
    {
        let mut run = RetryRun::begin(self);
        let mut last = None;
        while let Some(context) = run.begin_attempt() {
            let attempt = operation(context);
            let result = match context.remaining {
                None => attempt.await,
                Some(remaining) => match finish_within(attempt, sleeper.sleep(remaining)).await {
                    Some(result) => result,
                    None => break,
                },
            };
            match run.finish_attempt(&result) {
                NextStep::Stop(summary) => return RetryReport { last: Some(result), summary },
                NextStep::Wait(delay) => {
                    last = result.err().map(Err);
                    sleeper.sleep(delay).await;
                }
            }
        }
        RetryReport { last, summary: run.stop(StopReason::DeadlineReached) }
    }

    /// Attempts the operation until it succeeds or must be given up, on this thread.
    pub fn run_blocking_with<T, E>(
        &self,
        sleeper: &dyn BlockingSleeper,
        mut operation: impl FnMut(AttemptContext) -> Result<T, E>,
    ) -> RetryReport<T, E>
    where
        C: Classify<T, E>,
    {
        let mut run = RetryRun::begin(self);
        let mut last = None;
        while let Some(context) = run.begin_attempt() {
            let result = operation(context);
            match run.finish_attempt(&result) {
                NextStep::Stop(summary) => return RetryReport { last: Some(result), summary },
                NextStep::Wait(delay) => {
                    last = result.err().map(Err);
                    sleeper.sleep(delay);
                }
            }
        }
        RetryReport { last, summary: run.stop(StopReason::DeadlineReached) }
    }
}

/// The attempt's result, or `None` if the limit ends first.
async fn finish_within<A: Future>(
    attempt: A,
    limit: impl Future<Output = ()>,
) -> Option<A::Output> {
    let (mut attempt, mut limit) = (pin!(attempt), pin!(limit));
    poll_fn(|context| match attempt.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => limit.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// The state of one operation.
struct RetryRun<'r, C> {
    retrier: &'r Retrier<C>,
    began: Duration,
    attempts: u32,
    failure: Option<FailureClass>,
    /// The policy's last delay, for decorrelated jitter.
    previous: Option<Duration>,
    /// The retry that is waited for. Given back if the operation is dropped meanwhile.
    permit: Option<RetryPermit<'r>>,
}

enum NextStep {
    Stop(RetrySummary),
    Wait(Duration),
}

impl<'r, C> RetryRun<'r, C> {
    fn begin(retrier: &'r Retrier<C>) -> Self {
        let began = retrier.clock.elapsed();
        if let Some(budget) = &retrier.budget {
            budget.record_first_try(began);
        }
        Self { retrier, began, attempts: 0, failure: None, previous: None, permit: None }
    }

    fn elapsed(&self) -> Duration {
        self.retrier.clock.elapsed().saturating_sub(self.began)
    }

    /// `None` if the last wait took until the deadline.
    fn begin_attempt(&mut self) -> Option<AttemptContext> {
        let remaining = self.retrier.deadline.map(|limit| limit.saturating_sub(self.elapsed()));
        if self.attempts > 0 && remaining == Some(Duration::ZERO) {
            return None;
        }
        if let Some(permit) = self.permit.take() {
            permit.spend();
        }
        self.attempts += 1;
        Some(AttemptContext { number: self.attempts, remaining })
    }

    fn finish_attempt<T, E>(&mut self, result: &Result<T, E>) -> NextStep
    where
        C: Classify<T, E>,
    {
        let Retrier { policy, classifier, deadline, budget, clock, rng, .. } = self.retrier;
        let class = classifier.classify(result);
        self.failure = class.failure();
        let (now, elapsed) = (clock.now(), self.elapsed());
        // The age is counted by the monotonic clock, whatever happens to the wall clock. Throttled
        // attempts count as well: nothing else limits how often they are made.
        let progress =
            AttemptProgress { attempts: self.attempts, throttled: 0, created_at: now - elapsed };
        let backoff = policy.delay_after_previous(self.attempts, self.previous, rng.next_f64());
        let terms = RetryTerms { retry: policy, rules: NO_RULES };
        let decision =
            decide_wait(&class.to_outcome(), class.failure(), progress, terms, now, backoff);
        let (delay, failure, reason) = match decision {
            WaitDecision::Wait { delay, class, reason } => (delay, class, reason),
            WaitDecision::Succeeded => return NextStep::Stop(self.stop(StopReason::Succeeded)),
            WaitDecision::Dead { reason, .. } => {
                return NextStep::Stop(self.stop(stop_reason(reason)));
            }
            // Only rules and channels pause.
            WaitDecision::Pause { .. } => {
                return NextStep::Stop(self.stop(StopReason::NotRetryable));
            }
        };
        if deadline.is_some_and(|limit| elapsed.saturating_add(delay) >= limit) {
            return NextStep::Stop(self.stop(StopReason::DeadlineReached));
        }
        if let Some(budget) = budget {
            self.permit = budget.take_retry(clock.elapsed());
            if self.permit.is_none() {
                return NextStep::Stop(self.stop(StopReason::BudgetExhausted));
            }
        }
        self.previous = Some(backoff);
        let attempt = self.attempts;
        self.notify(&RetryEvent::RetryScheduled { attempt, failure, delay, reason });
        NextStep::Wait(delay)
    }

    fn stop(&self, stop: StopReason) -> RetrySummary {
        let (attempts, failure) = (self.attempts, self.failure);
        let summary = RetrySummary { attempts, stop, failure, elapsed: self.elapsed() };
        self.notify(&RetryEvent::Stopped(summary));
        summary
    }

    fn notify(&self, event: &RetryEvent) {
        if let Some(observer) = &self.retrier.observer {
            observer(event);
        }
    }
}

const fn stop_reason(reason: DeadReason) -> StopReason {
    match reason {
        DeadReason::MaxRetries => StopReason::MaxAttempts,
        DeadReason::Expired => StopReason::DeadlineReached,
        DeadReason::InvalidEndpoint
        | DeadReason::PayloadError
        | DeadReason::Unrecoverable
        | DeadReason::Ambiguous => StopReason::NotRetryable,
    }
}
