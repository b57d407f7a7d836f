use std::time::Duration;

use surehook_types::time::Timestamp;

use super::{
    AmbiguousPolicy, AttemptFailure, AttemptOutcome, AttemptProgress, DeadReason, FREE_THROTTLES,
    FailureClass, FailureScope, RetryAfter, RetryDecision, RetryPolicy, RetrySpec, RetryTerms,
    ScheduleReason, SendOutcome, StatusRules, decide::COOL_DOWN_MAX, is_destination_misconfigured,
    should_pause_destination,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

#[test]
fn late_throttled_attempt_cools_the_lane_for_a_minute_at_most() {
    let retry = RetrySpec::default().build().unwrap();
    let rules = StatusRules::default();
    let terms = RetryTerms { retry: &retry, rules: &rules };
    let progress = AttemptProgress { attempts: 9, throttled: 0, created_at: NOW };

    let until = cool_until(&answered(429), progress, terms, NOW, 0.99).unwrap();

    assert_eq!(until, NOW + COOL_DOWN_MAX);
}

fn answered(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered { status, retry_after: None }
}

const NO_RULES: &StatusRules = &StatusRules::none();

fn classify(outcome: &AttemptOutcome) -> Option<FailureClass> {
    super::classify(outcome, NO_RULES)
}

/// Classifies and decides, as a lane does.
fn decide_retry(
    outcome: &AttemptOutcome,
    progress: AttemptProgress,
    terms: RetryTerms<'_>,
    now: Timestamp,
    roll: f64,
) -> RetryDecision {
    let class = super::classify(outcome, terms.rules);
    super::decide_retry(outcome, class, progress, terms, now, roll)
}

fn cool_until(
    outcome: &AttemptOutcome,
    progress: AttemptProgress,
    terms: RetryTerms<'_>,
    now: Timestamp,
    roll: f64,
) -> Option<Timestamp> {
    let class = super::classify(outcome, terms.rules);
    super::cool_until(outcome, class, progress, terms, now, roll)
}

fn without_rules(policy: &RetryPolicy) -> RetryTerms<'_> {
    RetryTerms { retry: policy, rules: NO_RULES }
}

fn progress(attempts: u32, throttled: u32) -> AttemptProgress {
    AttemptProgress { attempts, throttled, created_at: NOW }
}

const HOUR: Duration = Duration::from_secs(3600);

fn outcome_of(class: FailureClass) -> SendOutcome {
    SendOutcome { status: Some(200), ..SendOutcome::of(Some(class)) }
}

fn backoff_retry(seconds: u64, class: FailureClass) -> RetryDecision {
    retry_at(ScheduleReason::Backoff, seconds, class)
}

fn retry_at(reason: ScheduleReason, seconds: u64, class: FailureClass) -> RetryDecision {
    RetryDecision::RetryAt { due_at: NOW + Duration::from_secs(seconds), class, reason }
}

fn dead(reason: DeadReason, class: FailureClass) -> RetryDecision {
    RetryDecision::Dead { reason, class }
}

/// Checks the decision after this many attempts, with backoff 1, 2, 4 … seconds and five attempts.
fn assert_decisions(cases: &[(&str, u32, SendOutcome, RetryDecision)]) {
    let policy = r#"{"max_attempts":5,"initial_delay":"1s","base":2,"jitter":0}"#;
    let policy: RetrySpec = serde_json::from_str(policy).unwrap();
    let policy = policy.build().unwrap();
    for (name, attempts, interpreted, expected) in cases {
        let outcome = AttemptOutcome::Interpreted(*interpreted);
        let progress = progress(*attempts, 0);
        let decision = decide_retry(&outcome, progress, without_rules(&policy), NOW, 0.5);
        assert_eq!(decision, *expected, "case: {name}");
        let is_cooled = cool_until(&outcome, progress, without_rules(&policy), NOW, 0.5).is_some();
        let is_whole_lane_throttled = interpreted.class == Some(FailureClass::Throttled)
            && interpreted.scope != FailureScope::ThisDelivery;
        assert_eq!(is_cooled, is_whole_lane_throttled, "case: {name}");
        let is_paused = interpreted.scope == FailureScope::PauseDestination;
        assert_eq!(should_pause_destination(&outcome, NO_RULES), is_paused, "case: {name}");
    }
}

#[test]
fn interpreted_outcome_overrides_the_http_status() {
    use FailureClass::{Permanent, Throttled, Transient};
    use ScheduleReason::{RetryAfter as Asked, ServiceWait};
    let asked = Some(RetryAfter::Delay(HOUR * 2));
    let (transient, throttled) = (outcome_of(Transient), outcome_of(Throttled));
    let only_this = FailureScope::ThisDelivery;
    let refused = SendOutcome { reason: Some(DeadReason::PayloadError), ..outcome_of(Permanent) };
    let max_retries = dead(DeadReason::MaxRetries, Transient);
    assert_decisions(&[
        (
            "sent",
            1,
            SendOutcome { status: Some(500), ..SendOutcome::of(None) },
            RetryDecision::Succeeded,
        ),
        ("retried by the policy", 1, transient, backoff_retry(1, Transient)),
        (
            "wait of the service",
            1,
            SendOutcome { wait: Some(HOUR), ..transient },
            retry_at(ServiceWait, 3600, Transient),
        ),
        (
            "Retry-After longer than the wait",
            1,
            SendOutcome { wait: Some(HOUR), retry_after: asked, ..transient },
            retry_at(Asked, 7200, Transient),
        ),
        ("no attempt is left", 2, SendOutcome { tries: Some(2), ..transient }, max_retries),
        (
            "one attempt is left",
            2,
            SendOutcome { tries: Some(3), ..transient },
            backoff_retry(2, Transient),
        ),
        (
            "this delivery is throttled",
            1,
            SendOutcome { scope: only_this, ..throttled },
            backoff_retry(1, Throttled),
        ),
        ("all deliveries are throttled", 1, throttled, backoff_retry(1, Throttled)),
        ("permanent with a reason", 1, refused, dead(DeadReason::PayloadError, Permanent)),
        (
            "permanent without a reason",
            1,
            outcome_of(Permanent),
            dead(DeadReason::Unrecoverable, Permanent),
        ),
    ]);
}

#[test]
fn config_failure_stays_pending_and_ambiguous_outcome_follows_its_policy() {
    use FailureClass::{Ambiguous, Config};
    let (config, ambiguous) = (outcome_of(Config), outcome_of(Ambiguous));
    let pauses = SendOutcome { scope: FailureScope::PauseDestination, ..config };
    let held_alone = SendOutcome { scope: FailureScope::ThisDelivery, wait: Some(HOUR), ..config };
    let wrong = SendOutcome { reason: Some(DeadReason::InvalidEndpoint), ..config };
    let waits = SendOutcome { on_ambiguous: AmbiguousPolicy::RetryAfterWait(HOUR), ..ambiguous };
    let parked = SendOutcome { on_ambiguous: AmbiguousPolicy::Park, ..ambiguous };
    let pause = RetryDecision::Pause { due_at: NOW + Duration::from_secs(16) };
    let given_up = dead(DeadReason::Ambiguous, Ambiguous);
    assert_decisions(&[
        ("destination is paused after any number of attempts", 5, pauses, pause),
        (
            "only this delivery waits",
            5,
            held_alone,
            retry_at(ScheduleReason::ServiceWait, 3600, Config),
        ),
        ("dead with a reason", 1, wrong, dead(DeadReason::InvalidEndpoint, Config)),
        ("ambiguous and safe to resend", 1, ambiguous, backoff_retry(1, Ambiguous)),
        (
            "ambiguous and waiting for a status",
            1,
            waits,
            retry_at(ScheduleReason::StatusAwaited, 3600, Ambiguous),
        ),
        ("ambiguous at the last attempt", 5, waits, given_up),
        ("ambiguous and parked", 1, parked, given_up),
    ]);
    assert!(is_destination_misconfigured(&AttemptOutcome::Interpreted(pauses), Some(Config)));
    assert!(!is_destination_misconfigured(&AttemptOutcome::Interpreted(held_alone), Some(Config)));
}

#[test]
fn pending_config_failure_does_not_expire() {
    let policy = r#"{"max_attempts":5,"max_age":"10s","jitter":0}"#;
    let policy: RetrySpec = serde_json::from_str(policy).unwrap();
    let policy = policy.build().unwrap();
    let old = AttemptProgress { created_at: Timestamp::from_millis(1), ..progress(1, 0) };
    let pauses =
        SendOutcome { scope: FailureScope::PauseDestination, ..outcome_of(FailureClass::Config) };
    let held_alone =
        SendOutcome { scope: FailureScope::ThisDelivery, ..outcome_of(FailureClass::Config) };
    let decision = |interpreted| {
        decide_retry(
            &AttemptOutcome::Interpreted(interpreted),
            old,
            without_rules(&policy),
            NOW,
            0.5,
        )
    };
    assert!(matches!(decision(pauses), RetryDecision::Pause { .. }));
    assert!(matches!(decision(held_alone), RetryDecision::RetryAt { .. }));
    assert_eq!(
        decision(outcome_of(FailureClass::Transient)),
        dead(DeadReason::Expired, FailureClass::Transient)
    );
}

#[test]
fn every_status_has_its_failure_class() {
    let cases = [
        (200, None),
        (204, None),
        (299, None),
        (100, Some(FailureClass::Transient)),
        (301, Some(FailureClass::Config)),
        (302, Some(FailureClass::Transient)),
        (308, Some(FailureClass::Config)),
        (400, Some(FailureClass::Permanent)),
        (401, Some(FailureClass::Config)),
        (403, Some(FailureClass::Config)),
        (404, Some(FailureClass::Config)),
        (408, Some(FailureClass::Transient)),
        (409, Some(FailureClass::Permanent)),
        (410, Some(FailureClass::Config)),
        (422, Some(FailureClass::Permanent)),
        (425, Some(FailureClass::Transient)),
        (429, Some(FailureClass::Throttled)),
        (500, Some(FailureClass::Transient)),
        (503, Some(FailureClass::Transient)),
        (600, Some(FailureClass::Transient)),
        (999, Some(FailureClass::Transient)),
    ];
    for (status, class) in cases {
        assert_eq!(classify(&answered(status)), class, "case: {status}");
    }
    let busy = AttemptOutcome::Answered {
        status: 503,
        retry_after: Some(RetryAfter::Delay(Duration::from_secs(1))),
    };
    assert_eq!(classify(&busy), Some(FailureClass::Throttled));
    assert_eq!(
        classify(&AttemptOutcome::Failed(AttemptFailure::Blocked)),
        Some(FailureClass::Config)
    );
    assert_eq!(
        classify(&AttemptOutcome::Failed(AttemptFailure::Dns)),
        Some(FailureClass::Transient)
    );
}

#[test]
fn permanent_failure_is_given_up_at_once_with_its_reason() {
    let cases = [
        (answered(400), DeadReason::PayloadError),
        (answered(422), DeadReason::PayloadError),
        (answered(409), DeadReason::Unrecoverable),
        (answered(404), DeadReason::InvalidEndpoint),
        (answered(410), DeadReason::InvalidEndpoint),
        (AttemptOutcome::Failed(AttemptFailure::Tls), DeadReason::InvalidEndpoint),
        (AttemptOutcome::Failed(AttemptFailure::Blocked), DeadReason::InvalidEndpoint),
    ];
    for (outcome, expected) in cases {
        let decision = decide_retry(
            &outcome,
            progress(1, 0),
            without_rules(&RetryPolicy::standard()),
            NOW,
            0.5,
        );
        let RetryDecision::Dead { reason, .. } = decision else {
            panic!("{outcome:?} gave {decision:?}")
        };
        assert_eq!(reason, expected, "{outcome:?}");
    }
}

#[test]
fn delivery_is_dead_after_the_last_attempt_of_the_policy() {
    let policy = RetryPolicy::quick();
    let outcome = answered(500);
    assert!(matches!(
        decide_retry(&outcome, progress(2, 0), without_rules(&policy), NOW, 0.0),
        RetryDecision::RetryAt { .. }
    ));
    assert_eq!(
        decide_retry(&outcome, progress(3, 0), without_rules(&policy), NOW, 0.0),
        RetryDecision::Dead { reason: DeadReason::MaxRetries, class: FailureClass::Transient }
    );
}

#[test]
fn throttled_attempts_are_free_up_to_the_limit() {
    let policy = RetryPolicy::quick();
    let later = answered(429);
    assert!(matches!(
        decide_retry(&later, progress(40, 40), without_rules(&policy), NOW, 0.0),
        RetryDecision::RetryAt { .. }
    ));
    let at_bound = FREE_THROTTLES + policy.attempts_max();
    assert!(matches!(
        decide_retry(&later, progress(at_bound, at_bound), without_rules(&policy), NOW, 0.0),
        RetryDecision::Dead { reason: DeadReason::MaxRetries, .. }
    ));
}

#[test]
fn retry_after_cools_the_lane_within_its_bounds() {
    let cases = [
        ("two seconds", RetryAfter::Delay(Duration::from_secs(2)), 2),
        ("zero is rounded up", RetryAfter::Delay(Duration::ZERO), 1),
        ("ten years are cut", RetryAfter::Delay(Duration::from_secs(315_360_000)), 86_400),
        ("a date", RetryAfter::At(NOW + Duration::from_secs(90)), 90),
        ("a date in the past", RetryAfter::At(Timestamp::from_millis(0)), 1),
    ];
    for (name, retry_after, secs) in cases {
        let outcome = AttemptOutcome::Answered { status: 429, retry_after: Some(retry_after) };
        let policy = RetryPolicy::quick();
        let cooled = NOW + Duration::from_secs(secs);
        let decision = decide_retry(&outcome, progress(1, 1), without_rules(&policy), NOW, 0.0);
        let RetryDecision::RetryAt { due_at, .. } = decision else {
            panic!("{name}: {decision:?}")
        };
        assert!(due_at >= cooled, "case: {name}");
        let until = cool_until(&outcome, progress(1, 1), without_rules(&policy), NOW, 0.0);
        assert_eq!(until, Some(cooled), "case: {name}");
    }
    assert_eq!(
        cool_until(&answered(500), progress(1, 0), without_rules(&RetryPolicy::quick()), NOW, 0.0),
        None
    );
}

#[test]
fn lane_cools_down_also_when_the_delivery_is_given_up() {
    let retry_after = Some(RetryAfter::Delay(Duration::from_secs(60)));
    let outcome = AttemptOutcome::Answered { status: 429, retry_after };
    let impatient = r#"{"max_attempts":9,"max_age":"10s"}"#;
    let policy = serde_json::from_str::<RetrySpec>(impatient).unwrap().build().unwrap();
    assert!(matches!(
        decide_retry(&outcome, progress(1, 1), without_rules(&policy), NOW, 0.0),
        RetryDecision::Dead { reason: DeadReason::Expired, .. }
    ));
    let until = cool_until(&outcome, progress(1, 1), without_rules(&policy), NOW, 0.0);
    assert_eq!(until, Some(NOW + Duration::from_secs(60)));
}

#[test]
fn interrupted_attempt_is_due_at_once() {
    let decision = decide_retry(
        &AttemptOutcome::Failed(AttemptFailure::Interrupted),
        progress(99, 0),
        without_rules(&RetryPolicy::quick()),
        NOW,
        0.5,
    );
    assert_eq!(decision, retry_at(ScheduleReason::Interrupted, 0, FailureClass::Transient));
}
