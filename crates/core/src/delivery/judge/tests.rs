use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

#[test]
fn a_late_attempt_does_not_stop_its_destination_for_days() {
    let retry = crate::delivery::RetrySpec::default().policy().unwrap();
    let rules = StatusRules::default();
    let terms = Terms { retry: &retry, rules: &rules };
    let progress = Progress { attempts: 9, throttled: 0, created_at: NOW };

    let until = cool_until(&answered(429), progress, terms, NOW, 0.99).unwrap();

    assert_eq!(until, NOW + COOL_DOWN_MAX);
}

fn answered(status: u16) -> Outcome {
    Outcome::Answered { status, retry_after: None }
}

const NO_RULES: &StatusRules = &StatusRules::none();

fn classify(outcome: &Outcome) -> Option<Class> {
    super::classify(outcome, NO_RULES)
}

fn by_table(policy: &RetryPolicy) -> Terms<'_> {
    Terms { retry: policy, rules: NO_RULES }
}

fn progress(attempts: u32, throttled: u32) -> Progress {
    Progress { attempts, throttled, created_at: NOW }
}

const HOUR: Duration = Duration::from_secs(3600);

fn of(class: Class) -> Meant {
    Meant { status: Some(200), ..Meant::of(Some(class)) }
}

fn again(seconds: u64, class: Class) -> Verdict {
    again_as(WhyThen::Backoff, seconds, class)
}

fn again_as(why: WhyThen, seconds: u64, class: Class) -> Verdict {
    Verdict::RetryAt { due_at: NOW + Duration::from_secs(seconds), class, why }
}

fn dead(reason: DeadReason, class: Class) -> Verdict {
    Verdict::Dead { reason, class }
}

/// What follows after so many attempts, with 1, 2, 4 … seconds between them and five at most.
fn follows(cases: &[(&str, u32, Meant, Verdict)]) {
    let policy = r#"{"max_attempts":5,"initial_delay":"1s","base":2,"jitter":0}"#;
    let policy: crate::delivery::RetrySpec = serde_json::from_str(policy).unwrap();
    let policy = policy.policy().unwrap();
    for (name, attempts, meant, expected) in cases {
        let outcome = Outcome::Meant(*meant);
        let progress = progress(*attempts, 0);
        let verdict = judge(&outcome, progress, by_table(&policy), NOW, 0.5);
        assert_eq!(verdict, *expected, "case: {name}");
        let cools = cool_until(&outcome, progress, by_table(&policy), NOW, 0.5).is_some();
        assert_eq!(cools, *name == "all slower", "case: {name}");
        let stops = meant.affects == Affects::StopsAll;
        assert_eq!(asks_for_pause(&outcome, NO_RULES), stops, "case: {name}");
    }
}

#[test]
fn what_somebody_says_it_means_comes_before_every_status() {
    use Class::{Permanent, Throttled, Transient};
    use WhyThen::{RetryAfter as Asked, ServiceWait};
    let asked = Some(RetryAfter::Delay(HOUR * 2));
    let (transient, throttled) = (of(Transient), of(Throttled));
    let only_this = Affects::ThisOnly;
    let refused = Meant { reason: Some(DeadReason::PayloadError), ..of(Permanent) };
    let max_retries = dead(DeadReason::MaxRetries, Transient);
    follows(&[
        ("sent", 1, Meant { status: Some(500), ..Meant::of(None) }, Verdict::Succeeded),
        ("again by the policy", 1, transient, again(1, Transient)),
        (
            "later",
            1,
            Meant { wait: Some(HOUR), ..transient },
            again_as(ServiceWait, 3600, Transient),
        ),
        (
            "later still",
            1,
            Meant { wait: Some(HOUR), retry_after: asked, ..transient },
            again_as(Asked, 7200, Transient),
        ),
        ("tries are used up", 2, Meant { tries: Some(2), ..transient }, max_retries),
        ("one is left", 2, Meant { tries: Some(3), ..transient }, again(2, Transient)),
        ("slower", 1, Meant { affects: only_this, ..throttled }, again(1, Throttled)),
        ("all slower", 1, throttled, again(1, Throttled)),
        ("never", 1, refused, dead(DeadReason::PayloadError, Permanent)),
        ("never ever", 1, of(Permanent), dead(DeadReason::Unrecoverable, Permanent)),
    ]);
}

#[test]
fn what_somebody_must_mend_stays_owed_and_what_nobody_knows_is_not_hurried() {
    use Class::{Ambiguous, Config};
    let (config, ambiguous) = (of(Config), of(Ambiguous));
    let stops = Meant { affects: Affects::StopsAll, ..config };
    let held_up = Meant { affects: Affects::ThisOnly, wait: Some(HOUR), ..config };
    let wrong = Meant { reason: Some(DeadReason::InvalidEndpoint), ..config };
    let waits = Meant { unsure: Unsure::AfterWait(HOUR), ..ambiguous };
    let parked = Meant { unsure: Unsure::Park, ..ambiguous };
    let pause = Verdict::Pause { due_at: NOW + Duration::from_secs(16) };
    let given_up = dead(DeadReason::Ambiguous, Ambiguous);
    follows(&[
        ("all stop, however often it was tried", 5, stops, pause),
        ("only this is held up", 5, held_up, again_as(WhyThen::ServiceWait, 3600, Config)),
        ("wrong for good", 1, wrong, dead(DeadReason::InvalidEndpoint, Config)),
        ("unsure, and safe", 1, ambiguous, again(1, Ambiguous)),
        (
            "unsure, and a word may come",
            1,
            waits,
            again_as(WhyThen::StatusAwaited, 3600, Ambiguous),
        ),
        ("unsure for the last time", 5, waits, given_up),
        ("unsure, and for a person to decide", 1, parked, given_up),
    ]);
    assert!(accuses_settings(&Outcome::Meant(stops), Some(Config)));
    assert!(!accuses_settings(&Outcome::Meant(held_up), Some(Config)));
}

#[test]
fn what_somebody_must_mend_does_not_die_of_its_age() {
    let policy = r#"{"max_attempts":5,"max_age":"10s","jitter":0}"#;
    let policy: crate::delivery::RetrySpec = serde_json::from_str(policy).unwrap();
    let policy = policy.policy().unwrap();
    let old = Progress { created_at: Timestamp::from_millis(1), ..progress(1, 0) };
    let stops = Meant { affects: Affects::StopsAll, ..of(Class::Config) };
    let held_up = Meant { affects: Affects::ThisOnly, ..of(Class::Config) };
    let verdict = |meant| judge(&Outcome::Meant(meant), old, by_table(&policy), NOW, 0.5);
    assert!(matches!(verdict(stops), Verdict::Pause { .. }));
    assert!(matches!(verdict(held_up), Verdict::RetryAt { .. }));
    assert_eq!(verdict(of(Class::Transient)), dead(DeadReason::Expired, Class::Transient));
}

#[test]
fn every_answer_has_its_class() {
    let cases = [
        (200, None),
        (204, None),
        (299, None),
        (100, Some(Class::Transient)),
        (301, Some(Class::Config)),
        (302, Some(Class::Transient)),
        (308, Some(Class::Config)),
        (400, Some(Class::Permanent)),
        (401, Some(Class::Config)),
        (403, Some(Class::Config)),
        (404, Some(Class::Config)),
        (408, Some(Class::Transient)),
        (409, Some(Class::Permanent)),
        (410, Some(Class::Config)),
        (422, Some(Class::Permanent)),
        (425, Some(Class::Transient)),
        (429, Some(Class::Throttled)),
        (500, Some(Class::Transient)),
        (503, Some(Class::Transient)),
        (600, Some(Class::Transient)),
        (999, Some(Class::Transient)),
    ];
    for (status, class) in cases {
        assert_eq!(classify(&answered(status)), class, "case: {status}");
    }
    let busy = Outcome::Answered {
        status: 503,
        retry_after: Some(RetryAfter::Delay(Duration::from_secs(1))),
    };
    assert_eq!(classify(&busy), Some(Class::Throttled));
    assert_eq!(classify(&Outcome::Failed(Failure::Blocked)), Some(Class::Config));
    assert_eq!(classify(&Outcome::Failed(Failure::Dns)), Some(Class::Transient));
}

#[test]
fn what_cannot_work_is_buried_at_once_with_its_reason() {
    let cases = [
        (answered(400), DeadReason::PayloadError),
        (answered(422), DeadReason::PayloadError),
        (answered(409), DeadReason::Unrecoverable),
        (answered(404), DeadReason::InvalidEndpoint),
        (answered(410), DeadReason::InvalidEndpoint),
        (Outcome::Failed(Failure::Tls), DeadReason::InvalidEndpoint),
        (Outcome::Failed(Failure::Blocked), DeadReason::InvalidEndpoint),
    ];
    for (outcome, expected) in cases {
        let verdict = judge(&outcome, progress(1, 0), by_table(&RetryPolicy::standard()), NOW, 0.5);
        let Verdict::Dead { reason, .. } = verdict else { panic!("{outcome:?} gave {verdict:?}") };
        assert_eq!(reason, expected, "{outcome:?}");
    }
}

#[test]
fn the_last_attempt_of_the_policy_is_the_last() {
    let policy = RetryPolicy::quick();
    let outcome = answered(500);
    assert!(matches!(
        judge(&outcome, progress(2, 0), by_table(&policy), NOW, 0.0),
        Verdict::RetryAt { .. }
    ));
    assert_eq!(
        judge(&outcome, progress(3, 0), by_table(&policy), NOW, 0.0),
        Verdict::Dead { reason: DeadReason::MaxRetries, class: Class::Transient }
    );
}

#[test]
fn throttled_attempts_are_free_up_to_a_bound() {
    let policy = RetryPolicy::quick();
    let later = answered(429);
    assert!(matches!(
        judge(&later, progress(40, 40), by_table(&policy), NOW, 0.0),
        Verdict::RetryAt { .. }
    ));
    let at_bound = FREE_THROTTLES + policy.attempts_max();
    assert!(matches!(
        judge(&later, progress(at_bound, at_bound), by_table(&policy), NOW, 0.0),
        Verdict::Dead { reason: DeadReason::MaxRetries, .. }
    ));
}

#[test]
fn retry_after_cools_the_lane_within_bounds() {
    let cases = [
        ("two seconds", RetryAfter::Delay(Duration::from_secs(2)), 2),
        ("zero is rounded up", RetryAfter::Delay(Duration::ZERO), 1),
        ("ten years are cut", RetryAfter::Delay(Duration::from_secs(315_360_000)), 86_400),
        ("a date", RetryAfter::At(NOW + Duration::from_secs(90)), 90),
        ("a date in the past", RetryAfter::At(Timestamp::from_millis(0)), 1),
    ];
    for (name, retry_after, secs) in cases {
        let outcome = Outcome::Answered { status: 429, retry_after: Some(retry_after) };
        let policy = RetryPolicy::quick();
        let cooled = NOW + Duration::from_secs(secs);
        let verdict = judge(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0);
        let Verdict::RetryAt { due_at, .. } = verdict else { panic!("{name}: {verdict:?}") };
        assert!(due_at >= cooled, "case: {name}");
        let until = cool_until(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0);
        assert_eq!(until, Some(cooled), "case: {name}");
    }
    assert_eq!(
        cool_until(&answered(500), progress(1, 0), by_table(&RetryPolicy::quick()), NOW, 0.0),
        None
    );
}

#[test]
fn the_lane_cools_also_when_the_delivery_is_given_up() {
    let retry_after = Some(RetryAfter::Delay(Duration::from_secs(60)));
    let outcome = Outcome::Answered { status: 429, retry_after };
    let impatient = r#"{"max_attempts":9,"max_age":"10s"}"#;
    let policy =
        serde_json::from_str::<crate::delivery::RetrySpec>(impatient).unwrap().policy().unwrap();
    assert!(matches!(
        judge(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0),
        Verdict::Dead { reason: DeadReason::Expired, .. }
    ));
    let until = cool_until(&outcome, progress(1, 1), by_table(&policy), NOW, 0.0);
    assert_eq!(until, Some(NOW + Duration::from_secs(60)));
}

#[test]
fn an_interrupted_attempt_is_due_at_once() {
    let verdict = judge(
        &Outcome::Failed(Failure::Interrupted),
        progress(99, 0),
        by_table(&RetryPolicy::quick()),
        NOW,
        0.5,
    );
    assert_eq!(verdict, again_as(WhyThen::Interrupted, 0, Class::Transient));
}
