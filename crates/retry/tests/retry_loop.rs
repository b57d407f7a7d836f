//! The retry loop, async and blocking. Time is tokio's paused clock or a counter: no test waits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    cell::{Cell, RefCell},
    future::pending,
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use http::Response;
use surehook_retry::{
    AttemptClass, BlockingSleeper, EveryErrorClassifier, FailureClass, HttpClassifier, Jitter,
    Retrier, RetryAfter, RetryBudget, RetryBudgetConfig, RetryEvent, RetryPolicy,
    RetryPolicyBuilder, ScheduleReason, StopReason, on_error, retry, retry_blocking,
};
use surehook_types::{
    rng::Rng,
    time::{Clock, Timestamp},
};
use tokio::time::Instant;

/// Saturday, 15 November 2025, 08:00:00 GMT.
const START: Timestamp = Timestamp::from_millis(1_763_193_600_000);

/// Tokio's clock, which shows `START` at its first use.
#[derive(Debug, Default)]
struct PausedClock(OnceLock<Instant>);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        START + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        self.0.get_or_init(Instant::now).elapsed()
    }
}

/// Always the same number.
#[derive(Debug)]
struct FixedRoll(f64);

impl Rng for FixedRoll {
    fn next_u128(&self) -> u128 {
        0
    }

    fn next_f64(&self) -> f64 {
        self.0
    }
}

/// Five attempts with waits of 1, 2, 4 and 8 s.
fn doubling() -> RetryPolicyBuilder {
    RetryPolicy::builder().max_attempts(5).jitter(Jitter::Share(0.0))
}

fn retrier<C>(policy: RetryPolicyBuilder, classifier: C) -> Retrier<C> {
    let clock = Arc::new(PausedClock::default());
    Retrier::with_clock(policy.build().unwrap(), classifier, clock, Arc::new(FixedRoll(1.0)))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Delays and reasons of all waits.
type WaitLog = Arc<Mutex<Vec<(Duration, ScheduleReason)>>>;

fn log_waits<C>(retrier: Retrier<C>) -> (Retrier<C>, WaitLog) {
    let waits = WaitLog::default();
    let log = Arc::clone(&waits);
    let retrier = retrier.observer(move |event| {
        if let RetryEvent::RetryScheduled { delay, reason, .. } = event {
            log.lock().unwrap().push((*delay, *reason));
        }
    });
    (retrier, waits)
}

#[tokio::test(start_paused = true)]
async fn operation_is_retried_until_it_succeeds() {
    let (retrier, waits) = log_waits(retrier(doubling(), EveryErrorClassifier));
    let report = retrier
        .run(async |attempt| if attempt.number < 4 { Err("busy") } else { Ok(attempt.number) })
        .await;
    assert!(report.is_success());
    assert_eq!(report.summary.attempts, 4);
    assert_eq!(report.summary.failure, None);
    assert_eq!(report.summary.elapsed, secs(7));
    let backoff = ScheduleReason::Backoff;
    assert_eq!(*waits.lock().unwrap(), [1, 2, 4].map(|delay| (secs(delay), backoff)));
    assert_eq!(report.into_result(), Ok(4));
}

#[tokio::test(start_paused = true)]
async fn last_error_is_reported_when_attempts_are_used_up() {
    let report = retrier(doubling(), EveryErrorClassifier)
        .run(async |attempt| Err::<(), _>(format!("error {}", attempt.number)))
        .await;
    assert_eq!(report.summary.stop, StopReason::MaxAttempts);
    assert_eq!(report.summary.attempts, 5);
    assert_eq!(report.summary.failure, Some(FailureClass::Transient));
    let error = report.into_result().unwrap_err();
    assert_eq!(error.last.as_deref(), Some("error 5"));
    let text = "gave up after 5 attempts: the policy allows no more; last error: error 5";
    assert_eq!(error.to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn failures_that_a_retry_would_not_help_end_at_once() {
    use FailureClass::{Ambiguous, Config, Permanent, Throttled, Transient};
    for (class, attempts) in
        [(Permanent, 1), (Config, 1), (Ambiguous, 1), (Transient, 5), (Throttled, 5)]
    {
        let retrier =
            retrier(doubling(), on_error(|class: &FailureClass| AttemptClass::failed(*class)));
        let report = retrier.run(async |_| Err::<(), _>(class)).await;
        assert_eq!(report.summary.attempts, attempts, "case: {class:?}");
        let is_final = report.summary.stop == StopReason::NotRetryable;
        assert_eq!(is_final, attempts == 1, "case: {class:?}");
        assert_eq!(report.last, Some(Err(class)));
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_for_in_both_forms() {
    let cases = [
        ("seconds", "90", secs(90), ScheduleReason::RetryAfter),
        ("date", "Sat, 15 Nov 2025 08:01:30 GMT", secs(90), ScheduleReason::RetryAfter),
        ("shorter than the backoff", "0", secs(2), ScheduleReason::Backoff),
        ("date in the past", "Fri, 14 Nov 2025 08:00:00 GMT", secs(2), ScheduleReason::Backoff),
        ("longer than a day", "9999999", secs(86_400), ScheduleReason::RetryAfter),
        ("neither form", "soon", secs(2), ScheduleReason::Backoff),
    ];
    for (name, value, delay, reason) in cases {
        let policy = doubling().initial_delay(secs(2));
        let (retrier, waits) = log_waits(retrier(policy, HttpClassifier::default()));
        let report = retrier
            .run(async |attempt| {
                let status = if attempt.number == 1 { 429 } else { 204 };
                let response = Response::builder().status(status).header("retry-after", value);
                response.body(())
            })
            .await;
        assert!(report.is_success(), "case: {name}");
        assert_eq!(*waits.lock().unwrap(), [(delay, reason)], "case: {name}");
        assert_eq!(report.summary.elapsed, delay, "case: {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_response_is_returned_as_it_is() {
    let retrier = retrier(doubling().max_attempts(2), HttpClassifier::default());
    let report = retrier.run(async |_| Response::builder().status(503).body("down")).await;
    assert_eq!(report.summary.stop, StopReason::MaxAttempts);
    assert_eq!(*report.into_result().unwrap().body(), "down");
}

#[tokio::test(start_paused = true)]
async fn wait_that_would_reach_the_deadline_is_not_begun() {
    let retrier = retrier(doubling(), EveryErrorClassifier).deadline(secs(3));
    let report = retrier.run(async |attempt| Err::<(), _>(attempt.remaining)).await;
    assert_eq!(report.summary.stop, StopReason::DeadlineReached);
    assert_eq!(report.summary.attempts, 2);
    assert_eq!(report.summary.elapsed, secs(1), "the wait of 2 s was not begun");
    assert_eq!(report.last, Some(Err(Some(secs(2)))), "what was left for the second attempt");
}

#[tokio::test(start_paused = true)]
async fn retry_after_behind_the_deadline_ends_without_waiting() {
    let asked = AttemptClass::THROTTLED.with_retry_after(Some(RetryAfter::Delay(secs(600))));
    let retrier = retrier(doubling(), on_error(move |_| asked)).deadline(secs(60));
    let report = retrier.run(async |_| Err::<(), _>("throttled")).await;
    assert_eq!(report.summary.stop, StopReason::DeadlineReached);
    assert_eq!(report.summary.attempts, 1);
    assert_eq!(report.summary.elapsed, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_running_attempt_and_keeps_the_error_before_it() {
    let retrier = retrier(doubling(), EveryErrorClassifier).deadline(secs(10));
    let report = retrier
        .run(async |attempt| {
            if attempt.number == 2 {
                pending::<()>().await;
            }
            Err::<(), _>("first")
        })
        .await;
    assert_eq!(report.summary.stop, StopReason::DeadlineReached);
    assert_eq!(report.summary.attempts, 2);
    assert_eq!(report.summary.elapsed, secs(10));
    assert_eq!(report.into_result().unwrap_err().last, Some("first"));
}

#[tokio::test(start_paused = true)]
async fn deadline_during_the_only_attempt_leaves_no_error() {
    let retrier = retrier(doubling(), EveryErrorClassifier).deadline(secs(10));
    let report = retrier.run(|_| pending::<Result<(), io::Error>>()).await;
    assert!(report.last.is_none());
    assert_eq!(report.summary.failure, None);
    let text = "gave up after 1 attempt: no time is left before the deadline";
    assert_eq!(report.into_result().unwrap_err().to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn maximum_age_of_the_policy_ends_like_a_deadline() {
    let retrier = retrier(doubling().max_age(secs(4)), EveryErrorClassifier);
    let report = retrier.run(async |_| Err::<(), _>("busy")).await;
    assert_eq!(report.summary.stop, StopReason::DeadlineReached);
    assert_eq!((report.summary.attempts, report.summary.elapsed), (3, secs(3)));
}

#[tokio::test(start_paused = true)]
async fn decorrelated_delay_follows_from_the_previous_one() {
    let policy = doubling().max_attempts(6).max_delay(secs(50)).jitter(Jitter::Decorrelated);
    let (retrier, waits) = log_waits(retrier(policy, EveryErrorClassifier));
    let report = retrier.run(async |_| Err::<(), _>("busy")).await;
    assert_eq!(report.summary.attempts, 6);
    let delays: Vec<_> = waits.lock().unwrap().iter().map(|(delay, _)| delay.as_secs()).collect();
    assert_eq!(delays, [3, 9, 27, 50, 50], "three times the previous one with the highest roll");
}

#[tokio::test(start_paused = true)]
async fn delays_below_a_millisecond_are_kept() {
    let policy = doubling().max_attempts(2).initial_delay(Duration::from_micros(300));
    let (retrier, waits) = log_waits(retrier(policy, EveryErrorClassifier));
    let report = retrier.run(async |_| Err::<(), _>("busy")).await;
    assert_eq!(report.summary.attempts, 2);
    assert_eq!(waits.lock().unwrap()[0].0, Duration::from_micros(300));
}

fn budget(ratio: f64) -> Arc<RetryBudget> {
    let config = RetryBudgetConfig { ratio, min_per_second: 0, window: secs(3600) };
    Arc::new(RetryBudget::new(config).unwrap())
}

#[tokio::test(start_paused = true)]
async fn shared_budget_limits_the_retries_of_all_operations() {
    let retrier = retrier(doubling(), EveryErrorClassifier).budget(budget(0.2));
    let (mut attempts, mut exhausted) = (0, 0);
    for _ in 0..100 {
        let report = retrier.run(async |_| Err::<(), _>("down")).await;
        attempts += report.summary.attempts;
        exhausted += u32::from(report.summary.stop == StopReason::BudgetExhausted);
        assert_eq!(report.last, Some(Err("down")));
    }
    assert_eq!(attempts, 120, "100 first tries and 20 % of retries");
    assert!(exhausted >= 80, "{exhausted}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_wait_gives_its_retry_back_to_the_budget() {
    let budget = budget(1.0);
    let retrier = retrier(doubling(), EveryErrorClassifier).budget(Arc::clone(&budget));
    let attempts = AtomicU32::new(0);
    let operation = retrier.run(async |_| {
        attempts.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>("down")
    });
    // Half of the first wait of one second.
    assert!(tokio::time::timeout(Duration::from_millis(500), operation).await.is_err());
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
    let permit = budget.take_retry(Duration::ZERO).expect("the retry was not begun");
    assert!(budget.take_retry(Duration::ZERO).is_none(), "there was one first try");
    drop(permit);
}

/// Sets the flag when it is dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_operation_drops_the_running_attempt() {
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&dropped);
    let task = tokio::spawn(async move {
        let retrier = retrier(doubling(), EveryErrorClassifier);
        let attempt = |_| {
            let flag = DropFlag(Arc::clone(&flag));
            async move {
                pending::<()>().await;
                drop(flag);
                Ok::<(), io::Error>(())
            }
        };
        retrier.run(attempt).await
    });
    tokio::task::yield_now().await;
    assert!(!dropped.load(Ordering::Relaxed));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(dropped.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn observer_sees_every_wait_and_the_end() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    let retrier = retrier(doubling().max_attempts(2), EveryErrorClassifier)
        .observer(move |event| log.lock().unwrap().push(*event));
    let report = retrier.run(async |_| Err::<(), _>("busy")).await;
    let events = events.lock().unwrap();
    assert!(matches!(
        events[0],
        RetryEvent::RetryScheduled { attempt: 1, failure: FailureClass::Transient, delay, .. }
            if delay == secs(1)
    ));
    assert_eq!(events[1..], [RetryEvent::Stopped(report.summary)]);
}

#[tokio::test(start_paused = true)]
async fn system_clock_follows_the_paused_clock_of_tokio() {
    let began = Instant::now();
    let report =
        retry(RetryPolicy::quick(), EveryErrorClassifier, async |_| Err::<(), _>("down")).await;
    assert_eq!(report.summary.attempts, 3);
    let elapsed = began.elapsed();
    assert!((secs(6)..=secs(7) + Duration::from_millis(5)).contains(&elapsed), "{elapsed:?}");
    assert_eq!(report.summary.elapsed, elapsed);
}

/// Counts instead of waiting; also the clock.
#[derive(Debug, Default)]
struct CountingSleeper {
    slept: Mutex<Duration>,
}

impl BlockingSleeper for CountingSleeper {
    fn sleep(&self, delay: Duration) {
        *self.slept.lock().unwrap() += delay;
    }
}

impl Clock for CountingSleeper {
    fn now(&self) -> Timestamp {
        START + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        *self.slept.lock().unwrap()
    }
}

#[test]
fn blocking_operation_is_retried_within_its_deadline() {
    let timer = Arc::new(CountingSleeper::default());
    let policy = doubling().build().unwrap();
    let clock = Arc::<CountingSleeper>::clone(&timer);
    let retrier =
        Retrier::with_clock(policy, EveryErrorClassifier, clock, Arc::new(FixedRoll(0.5)));
    let report = retrier.run_blocking_with(&*timer, |attempt| {
        if attempt.number < 3 { Err("busy") } else { Ok(attempt.number) }
    });
    assert_eq!((report.summary.attempts, report.summary.elapsed), (3, secs(3)));
    assert_eq!(report.into_result(), Ok(3));

    let seen = RefCell::new(Vec::new());
    let report = retrier.deadline(secs(4)).run_blocking_with(&*timer, |attempt| {
        seen.borrow_mut().push(attempt.remaining.unwrap().as_secs());
        Err::<(), _>("busy")
    });
    assert_eq!(report.summary.stop, StopReason::DeadlineReached);
    assert_eq!(report.last, Some(Err("busy")));
    assert_eq!(*seen.borrow(), [4, 3, 1]);
}

#[test]
fn blocking_operation_that_outlasts_the_deadline_is_not_repeated() {
    let timer = Arc::new(CountingSleeper::default());
    let policy = doubling().build().unwrap();
    let clock = Arc::<CountingSleeper>::clone(&timer);
    let retrier =
        Retrier::with_clock(policy, EveryErrorClassifier, clock, Arc::new(FixedRoll(0.5)));
    let report = retrier.deadline(secs(5)).run_blocking_with(&*timer, |_| {
        timer.sleep(secs(60));
        Err::<(), _>("slow")
    });
    assert_eq!((report.summary.attempts, report.summary.elapsed), (1, secs(60)));
    assert_eq!(report.summary.stop, StopReason::DeadlineReached);
    assert_eq!(report.last, Some(Err("slow")));
}

/// Wakes up a minute late.
struct LateSleeper(Arc<CountingSleeper>);

impl BlockingSleeper for LateSleeper {
    fn sleep(&self, delay: Duration) {
        self.0.sleep(delay + secs(60));
    }
}

#[test]
fn late_timer_does_not_start_an_attempt_after_the_deadline() {
    let timer = Arc::new(CountingSleeper::default());
    let policy = doubling().build().unwrap();
    let clock = Arc::<CountingSleeper>::clone(&timer);
    let budget = budget(1.0);
    let report = Retrier::with_clock(policy, EveryErrorClassifier, clock, Arc::new(FixedRoll(0.5)))
        .deadline(secs(30))
        .budget(Arc::clone(&budget))
        .run_blocking_with(&LateSleeper(timer), |_| Err::<(), _>("busy"));
    assert_eq!((report.summary.attempts, report.summary.elapsed), (1, secs(61)));
    assert_eq!(report.summary.stop, StopReason::DeadlineReached);
    assert_eq!(report.last, Some(Err("busy")));
    assert!(budget.take_retry(secs(61)).is_some(), "the retry did not begin");
}

#[test]
fn blocking_retry_uses_the_threads_timer() {
    let policy = RetryPolicy::builder().initial_delay(Duration::from_millis(1));
    let calls = Cell::new(0);
    let report = retry_blocking(policy.build().unwrap(), EveryErrorClassifier, |_| {
        calls.set(calls.get() + 1);
        if calls.get() < 3 { Err("busy") } else { Ok(()) }
    });
    assert!(report.is_success());
    assert_eq!(calls.get(), 3);
    // Lower bounds only: 1 and 2 ms, less 10 %.
    assert!(report.summary.elapsed >= Duration::from_micros(2_700), "{:?}", report.summary);
}
