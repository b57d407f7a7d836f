use std::cell::RefCell;

use proptest::prelude::*;
use serde_json::json;
use surehook_core::{destination::kind::DestinationFamily, store::RecordedAttempt};
use surehook_retry::{AttemptOutcome, DeadReason, FailureClass, StatusRules, classify};
use surehook_types::{ids::DeliveryId, rng::Rng};

use super::*;
use crate::{
    arrivals::{ArrivalPattern, ArrivalSpec},
    behavior::{
        BehaviorSpec, DestinationBehavior, ModelledBehavior, SimulatedRequest, SimulatedResponse,
    },
};

const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// Chance decides about the truth by another seed than about the record.
const TRUTH_SEED: u64 = 99;
const RECORD_SEED: u64 = 7;

/// A modelled destination that records what it answers.
#[derive(Debug)]
struct RecordingBehavior {
    model: ModelledBehavior,
    log: Rc<RefCell<Vec<(SimulatedRequest, SimulatedResponse)>>>,
}

impl DestinationBehavior for RecordingBehavior {
    fn respond(&mut self, request: &SimulatedRequest, rng: &dyn Rng) -> SimulatedResponse {
        let response = self.model.respond(request, rng);
        self.log.borrow_mut().push((*request, response));
        response
    }
}

fn settings(toml: &str) -> Map<String, Value> {
    toml::from_str(toml).unwrap()
}

fn behavior(toml: &str) -> BehaviorSpec {
    toml::from_str(toml).unwrap()
}

fn arrivals(deliveries: u64, over: &str) -> ArrivalSpec {
    ArrivalSpec {
        deliveries,
        over: over.parse().unwrap(),
        pattern: ArrivalPattern::Poisson,
        customers: 1000,
        bursts: Vec::new(),
    }
}

fn delivery_id(number: u64) -> DeliveryId {
    DeliveryId::new(START, u128::from(number + 1) << 48)
}

/// The actual results under a policy.
fn run_for_real(
    arrivals: &ArrivalSpec,
    behavior: &BehaviorSpec,
    fields: &Map<String, Value>,
    seed: u64,
) -> (WhatIfResult, Vec<RecordedDelivery>) {
    let policy = PolicySpec { name: String::new(), fields: fields.clone() };
    let destination = policy.build(&Map::new(), 0).unwrap();
    let log = Rc::new(RefCell::new(Vec::new()));
    let model = behavior.build().unwrap();
    let recording = RecordingBehavior { model, log: Rc::clone(&log) };
    let lane = SimulationLane { name: String::new(), destination, behavior: Box::new(recording) };
    let arrivals: Vec<_> = arrivals.generate(RECORD_SEED, &[1.0]).collect();
    let observation = ObservationSpec {
        timeline: Duration::from_secs(10),
        recoveries: Vec::new(),
        arrivals_end: Duration::from_secs(10),
    };
    let simulation = Simulation::new(vec![lane], seed, HORIZON, observation);
    let report = simulation.run("", arrivals.iter().copied(), &mut |_| {});
    let mut deliveries: Vec<RecordedDelivery> = (0..)
        .zip(&arrivals)
        .map(|(number, arrival)| RecordedDelivery {
            id: delivery_id(number),
            created_at: START + arrival.at,
            status: DeliveryStatus::Pending,
            reason: None,
            ended_at: None,
            replay_of: None,
            order_key: None,
            attempts_made: 0,
            attempts: Vec::new(),
        })
        .collect();
    for (request, response) in log.borrow().iter() {
        let delivery = &mut deliveries[usize::try_from(request.delivery).unwrap()];
        delivery.attempts.push(record(request, response));
        delivery.attempts_made = request.attempt;
        let last = delivery.attempts.last().unwrap();
        delivery.ended_at = Some(last.started_at + last.took);
        (delivery.status, delivery.reason) = match last.class {
            None => (DeliveryStatus::Succeeded, None),
            Some(FailureClass::Permanent) => (DeliveryStatus::Dead, Some(DeadReason::PayloadError)),
            Some(_) => (DeliveryStatus::Dead, Some(DeadReason::MaxRetries)),
        };
    }
    // As the store returns them.
    deliveries.reverse();
    (WhatIfResult::from(report), deliveries)
}

fn record(request: &SimulatedRequest, response: &SimulatedResponse) -> RecordedAttempt {
    let retry_after = if let AttemptOutcome::Answered { retry_after, .. } = response.outcome {
        retry_after.map(|wait| wait.delay_from(START))
    } else {
        None
    };
    RecordedAttempt {
        started_at: START + request.at,
        took: response.took,
        status: response.outcome.status(),
        failure: response.outcome.failure(),
        class: classify(&response.outcome, &StatusRules::default()),
        retry_after,
    }
}

fn input(deliveries: Vec<RecordedDelivery>, settings: Map<String, Value>) -> WhatIfInput {
    WhatIfInput {
        deliveries,
        since: START,
        until: START + HORIZON,
        is_cut: false,
        settings,
        changed_at: Timestamp::default(),
        family: DestinationFamily::Webhook,
        now: START,
    }
}

fn kinds(report: &WhatIfReport) -> Vec<WhatIfNoteKind> {
    report.confidence.notes.iter().map(|note| note.kind).collect()
}

fn assert_near(found: u64, expected: u64, share: f64, what: &str) {
    let difference = as_f64(found.abs_diff(expected));
    // Two runs of the same policy differ by chance, too.
    let chance = 3.0 * (2.0 * as_f64(found.max(expected).max(1))).sqrt();
    let allowed = (share * as_f64(expected)).max(chance);
    assert!(difference <= allowed, "{what}: {found} for {expected}");
}

/// An outage of two minutes, a flaky phase of three, and quiet between them.
const OUTAGE_AND_FLAKY_PHASE: &str = r#"
    failure_rate = 0.005
    latency = { p50 = "40ms", p99 = "300ms" }
    [[incidents]]
    from = "2m"
    lasts = "2m"
    failure_rate = 1.0
    failure = 503
    [[incidents]]
    from = "8m"
    lasts = "3m"
    failure_rate = 0.5
"#;
const QUICK: &str = "retry = 'quick'\ncircuit = 'off'\ntimeout = '5s'";

#[test]
fn recorded_policy_is_reproduced_closely() {
    for policy in [QUICK, "retry = 'short'\ntimeout = '5s'", "retry = 'standard'\nrate = '20/s'"] {
        let settings = settings(policy);
        let (real, deliveries) = run_for_real(
            &arrivals(12_000, "20m"),
            &behavior(OUTAGE_AND_FLAKY_PHASE),
            &settings,
            RECORD_SEED,
        );
        let report = predict(input(deliveries, settings), &Map::new()).unwrap();
        assert_eq!(report.baseline, report.predicted);
        assert_eq!(report.difference, WhatIfDifference::default());
        let WhatIfResult { dead, attempts, succeeded, deliveries, .. } = report.recorded;
        assert_eq!((dead, attempts, succeeded), (real.dead, real.attempts, real.succeeded));
        assert_eq!(report.baseline.deliveries, deliveries);
        assert_near(report.baseline.dead, dead, 0.03, policy);
        assert_near(report.baseline.attempts, attempts, 0.02, policy);
        assert!(!kinds(&report).contains(&WhatIfNoteKind::ModelDeviates), "{report:?}");
    }
}

#[test]
fn other_policies_are_predicted_within_ten_percent() {
    let arrivals = arrivals(12_000, "20m");
    let behavior = behavior(OUTAGE_AND_FLAKY_PHASE);
    let recorded = [
        ("quick", settings(QUICK)),
        ("quick with circuit", settings("retry = 'quick'\ntimeout = '5s'")),
        ("short", settings("retry = 'short'\ncircuit = 'off'\ntimeout = '5s'")),
    ];
    let changes = [
        ("short", json!({ "retry": "short" })),
        ("once", json!({ "retry": { "max_attempts": 1 } })),
        ("six", json!({ "retry": { "max_attempts": 6, "initial_delay": "3s" } })),
        ("circuit", json!({ "circuit": { "failures": 20, "open_for": "5s" } })),
        ("rate", json!({ "rate": "15/s", "retry": "quick" })),
        ("standard", json!({ "retry": "standard" })),
    ];
    for (from, settings) in recorded {
        let (_, deliveries) = run_for_real(&arrivals, &behavior, &settings, RECORD_SEED);
        for (to, change) in &changes {
            let change = change.as_object().unwrap();
            let fields = change_settings(&settings, change);
            let (truth, _) = run_for_real(&arrivals, &behavior, &fields, TRUTH_SEED);
            let report = predict(input(deliveries.clone(), settings.clone()), change).unwrap();
            let predicted = &report.predicted;
            let what = format!("{from} to {to}");
            assert_near(predicted.dead, truth.dead, 0.1, &format!("{what}: dead letters"));
            assert_near(predicted.attempts, truth.attempts, 0.1, &format!("{what}: attempts"));
        }
    }
}

#[test]
fn longer_policy_saves_what_died_in_a_recorded_outage() {
    let settings = settings(QUICK);
    let outage = r#"incidents = [{ from = "5m", lasts = "2m", failure_rate = 1.0 }]"#;
    let (_, deliveries) =
        run_for_real(&arrivals(6000, "20m"), &behavior(outage), &settings, RECORD_SEED);
    let change = json!({ "retry": { "max_attempts": 8, "initial_delay": "2s" } });
    let report = predict(input(deliveries, settings), change.as_object().unwrap()).unwrap();
    assert!(report.recorded.dead > 500, "{:?}", report.recorded);
    assert_eq!(report.predicted.dead, 0, "{report:?}");
    assert_eq!(report.difference.dead, -report.baseline.dead.cast_signed());
    assert_eq!(report.difference.succeeded, report.baseline.dead.cast_signed());
    assert!(report.difference.attempts > 0);
    assert!(report.difference.delay_minutes > 0.0);
    assert_eq!(report.confidence.level, ConfidenceLevel::High, "{:?}", report.confidence);
}

#[test]
fn permanent_failures_stay_permanent() {
    let settings = settings(QUICK);
    let poisoned = behavior("poisoned_customers = 20\npoison = 422\nfailure_rate = 0.1");
    let (_, deliveries) = run_for_real(&arrivals(10_000, "10m"), &poisoned, &settings, RECORD_SEED);
    let change = json!({ "retry": "standard", "rate": "30/s" });
    let report = predict(input(deliveries, settings), change.as_object().unwrap()).unwrap();
    let refused = |result: &WhatIfResult| result.dead_by_reason["payload_error"];
    assert!(refused(&report.recorded) > 150, "{:?}", report.recorded);
    assert_eq!(refused(&report.predicted), refused(&report.recorded));
    // One in a thousand that failed three times might always fail; all others are saved.
    assert!(report.predicted.dead - refused(&report.predicted) < 8, "{report:?}");
}

#[test]
fn delivery_that_fails_alone_is_not_saved_by_more_attempts() {
    let settings = settings("retry = 'short'\ntimeout = '5s'");
    let poisoned = behavior("poisoned_customers = 20\npoison = 500\nfailure_rate = 0.02");
    let (real, deliveries) =
        run_for_real(&arrivals(10_000, "10m"), &poisoned, &settings, RECORD_SEED);
    let change = json!({ "retry": { "max_attempts": 9, "initial_delay": "1s" } });
    let report = predict(input(deliveries, settings), change.as_object().unwrap()).unwrap();
    assert_near(report.predicted.dead, real.dead, 0.02, "dead letters");
    assert!(kinds(&report).contains(&WhatIfNoteKind::FailingAlone));
}

#[test]
fn shorter_timeout_is_known_and_a_longer_one_is_not() {
    let settings = settings("retry = 'quick'\ntimeout = '2s'\ncircuit = 'off'");
    let slow = behavior(r#"latency = { min = "0ms", max = "4s" }"#);
    let (_, deliveries) = run_for_real(&arrivals(4000, "20m"), &slow, &settings, RECORD_SEED);
    let predict = |change: Value| {
        predict(input(deliveries.clone(), settings.clone()), change.as_object().unwrap()).unwrap()
    };
    let shorter = predict(json!({ "timeout": "1s" }));
    // Three of four attempts last longer than a second: 42 % of the deliveries fail three times.
    let share = as_f64(shorter.predicted.dead) / 4000.0;
    assert!((0.36..0.48).contains(&share), "{share}");
    assert!(shorter.difference.possible_duplicates > 0);
    let longer = predict(json!({ "timeout": "5s" }));
    assert_near(longer.predicted.dead, longer.baseline.dead, 0.02, "dead letters");
    assert!(kinds(&longer).contains(&WhatIfNoteKind::LongerTimeout));
    assert!(!kinds(&shorter).contains(&WhatIfNoteKind::LongerTimeout));
}

#[test]
fn attempts_after_the_record_are_guesses() {
    let settings = settings("retry = 'quick'\ncircuit = 'off'");
    // It never comes back.
    let down = r#"incidents = [{ from = "5m", lasts = "10d", failure_rate = 1.0 }]"#;
    let (_, deliveries) =
        run_for_real(&arrivals(2000, "10m"), &behavior(down), &settings, RECORD_SEED);
    let change = json!({ "retry": { "max_attempts": 10, "initial_delay": "10m" } });
    let report = predict(input(deliveries, settings), change.as_object().unwrap()).unwrap();
    assert_eq!(report.confidence.level, ConfidenceLevel::Low);
    assert!(report.confidence.guessed_share > 0.5, "{:?}", report.confidence);
    let kinds = kinds(&report);
    for kind in [WhatIfNoteKind::AfterEnd, WhatIfNoteKind::Guessed, WhatIfNoteKind::Load] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
}

#[test]
fn pause_in_the_record_holds_deliveries_under_any_policy() {
    let settings = settings(QUICK);
    let (_, mut deliveries) =
        run_for_real(&arrivals(7200, "2h"), &behavior(""), &settings, RECORD_SEED);
    let (paused, resumed) = (START + Duration::from_secs(3600), START + Duration::from_secs(5400));
    for delivery in &mut deliveries {
        let attempt = &mut delivery.attempts[0];
        if attempt.started_at > paused && attempt.started_at < resumed {
            attempt.started_at = resumed;
            delivery.ended_at = Some(resumed + attempt.took);
        }
    }
    let change = json!({ "retry": "short" });
    let report = predict(input(deliveries, settings), change.as_object().unwrap()).unwrap();
    assert!(kinds(&report).contains(&WhatIfNoteKind::Held));
    let (recorded, predicted) = (report.recorded.delay, report.predicted.delay);
    assert!(recorded.total_minutes > 20_000.0, "{recorded:?}");
    let ratio = predicted.total_minutes / recorded.total_minutes;
    assert!((0.99..1.01).contains(&ratio), "{predicted:?} for {recorded:?}");
}

#[test]
fn automatic_pause_ends_with_the_next_recorded_attempt() {
    let settings = settings("retry = 'quick'");
    // The address is wrong for ten minutes; someone resumes the destination after each pause.
    let wrong = behavior(
        r#"incidents = [{ from = "5m", lasts = "10m", failure_rate = 1.0, failure = 404 }]"#,
    );
    let never_paused = change_settings(
        &settings,
        json!({ "pause_after_config_failures": 0 }).as_object().unwrap(),
    );
    let (real, deliveries) =
        run_for_real(&arrivals(1800, "30m"), &wrong, &never_paused, RECORD_SEED);
    let report = predict(input(deliveries, settings), &Map::new()).unwrap();
    assert_eq!(report.predicted.unfinished, 0);
    assert_near(report.predicted.dead, real.dead, 0.05, "dead letters");
}

#[test]
fn replays_and_cancelled_deliveries_are_not_counted_and_a_replay_shows_what_is_possible() {
    let settings = settings(QUICK);
    let attempt = |second: u64, status: u16, class| RecordedAttempt {
        started_at: START + Duration::from_secs(second),
        took: Duration::from_millis(20),
        status: Some(status),
        failure: None,
        class,
        retry_after: None,
    };
    let delivery = |number: u64, second: u64| RecordedDelivery {
        id: delivery_id(number),
        created_at: START + Duration::from_secs(second),
        status: DeliveryStatus::Succeeded,
        reason: None,
        ended_at: Some(START + Duration::from_secs(second)),
        replay_of: None,
        order_key: None,
        attempts_made: 1,
        attempts: vec![attempt(second, 200, None)],
    };
    let mut all: Vec<RecordedDelivery> = (0..100).map(|number| delivery(number, number)).collect();
    let failed = Some(FailureClass::Transient);
    all[50].attempts = [50, 53, 57].map(|second| attempt(second, 500, failed)).to_vec();
    all[50].attempts_made = 3;
    (all[50].status, all[50].reason) = (DeliveryStatus::Replayed, Some(DeadReason::MaxRetries));
    all[60].status = DeliveryStatus::Cancelled;
    all[60].attempts.clear();
    let without_replay = predict(
        input(all.clone(), settings.clone()),
        json!({ "retry": "standard" }).as_object().unwrap(),
    )
    .unwrap();
    assert_eq!(without_replay.recorded.deliveries, 99);
    assert_eq!((without_replay.recorded.dead, without_replay.predicted.dead), (1, 1));

    all.push(RecordedDelivery { replay_of: Some(delivery_id(50)), ..delivery(200, 90) });
    let report =
        predict(input(all, settings), json!({ "retry": "standard" }).as_object().unwrap()).unwrap();
    assert_eq!(report.recorded, without_replay.recorded);
    // It was not the delivery's fault.
    assert_eq!(report.predicted.dead, 0);
    let kinds = kinds(&report);
    assert!(kinds.contains(&WhatIfNoteKind::Replays) && kinds.contains(&WhatIfNoteKind::Cancelled));
}

#[test]
fn history_without_attempts_is_refused_and_partly_removed_attempts_are_named() {
    let settings = settings(QUICK);
    let none = predict(input(Vec::new(), settings.clone()), &Map::new());
    assert!(matches!(none, Err(WhatIfError::NoHistory)));
    let (_, mut deliveries) =
        run_for_real(&arrivals(100, "1m"), &behavior(""), &settings, RECORD_SEED);
    for delivery in deliveries.iter_mut().take(40) {
        delivery.attempts.clear();
    }
    let report = predict(input(deliveries.clone(), settings.clone()), &Map::new()).unwrap();
    assert!(kinds(&report).contains(&WhatIfNoteKind::WithoutAttempts));
    assert_eq!(report.predicted.succeeded, 100);
    deliveries.iter_mut().for_each(|delivery| delivery.attempts.clear());
    let none = predict(input(deliveries, settings), &Map::new());
    assert!(matches!(none, Err(WhatIfError::NoHistory)));
}

#[test]
fn change_without_effect_or_out_of_range_is_refused() {
    let settings = settings(QUICK);
    let (_, deliveries) = run_for_real(&arrivals(10, "1m"), &behavior(""), &settings, RECORD_SEED);
    for (change, expected) in [
        (json!({ "url": "https://other.example" }), "`url` has no effect"),
        (json!({ "retry": "slow" }), "retry"),
        (json!({ "concurrency": 0 }), "concurrency must be between 1 and 1024"),
    ] {
        let change = change.as_object().unwrap();
        let error = predict(input(deliveries.clone(), settings.clone()), change).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    // What is null is removed.
    let change = json!({ "rate": null, "delay": null });
    assert!(predict(input(deliveries, settings), change.as_object().unwrap()).is_ok());
}

#[test]
fn recorded_duplicates_and_timeouts_are_counted_as_in_a_simulation() {
    let settings = settings("retry = 'short'\ntimeout = '1s'\ncircuit = 'off'");
    let slow = behavior("timeout_rate = 0.2");
    let (real, deliveries) = run_for_real(&arrivals(3000, "10m"), &slow, &settings, RECORD_SEED);
    let report = predict(input(deliveries, settings), &Map::new()).unwrap();
    assert_eq!(report.recorded.possible_duplicates, real.possible_duplicates);
    assert!(
        report.recorded.delay.total_minutes - real.delay.total_minutes
            < 0.02 * real.delay.total_minutes
    );
    assert!(real.possible_duplicates > 500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever was recorded, every delivery is predicted once, and the recorded policy is reproduced.
    #[test]
    fn every_history_is_reproduced_and_adds_up(
        seed in any::<u64>(),
        failure_rate in 0.0..0.9,
        timeout_rate in 0.0..0.3,
        outage in 0_u64..240,
        recorded in prop::sample::select(vec!["quick", "short", "standard"]),
        predicted in prop::sample::select(vec!["quick", "short", "standard"]),
    ) {
        let toml = format!(
            "failure_rate = {failure_rate}\ntimeout_rate = {timeout_rate}
             incidents = [{{ from = '200s', lasts = '{outage}s', failure_rate = 1.0 }}]"
        );
        let settings = settings(&format!("retry = '{recorded}'\ncircuit = 'off'\nconcurrency = 512"));
        let (real, deliveries) =
            run_for_real(&arrivals(1500, "10m"), &behavior(&toml), &settings, seed);
        let change = json!({ "retry": predicted });
        let report = predict(input(deliveries, settings), change.as_object().unwrap()).unwrap();
        for result in [&report.recorded, &report.baseline, &report.predicted] {
            prop_assert_eq!(result.deliveries, 1500);
            prop_assert_eq!(result.succeeded + result.dead + result.unfinished, 1500);
            prop_assert_eq!(result.dead_by_reason.values().sum::<u64>(), result.dead);
        }
        assert_near(report.baseline.attempts, real.attempts, 0.05, "attempts");
        assert_near(report.baseline.dead, real.dead, 0.1, "dead letters");
        let confidence = &report.confidence;
        prop_assert!(confidence.recorded_share + confidence.guessed_share <= 1.001);
    }
}
