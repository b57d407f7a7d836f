use proptest::prelude::*;

use super::*;
use crate::{StatusRules, classify};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const FULL: u32 = 8;

fn policy(failures: u32) -> CircuitPolicy {
    let (open_for, open_max) = (Duration::from_secs(10), Duration::from_secs(60));
    CircuitPolicy { failures, open_for, open_max }
}

fn run(circuit: &mut Circuit, signal: HealthSignal, now: Timestamp) {
    let permit = circuit.start_attempt();
    end(circuit, permit, signal, now);
}

fn end(circuit: &mut Circuit, permit: CircuitPermit, signal: HealthSignal, now: Timestamp) {
    circuit.finish_attempt(AttemptEnd { permit, signal, now, roll: 0.5 }, FULL, &policy(3));
}

fn opened() -> Circuit {
    let mut circuit = Circuit::new(CircuitState::Closed, NOW);
    (0..3).for_each(|_| run(&mut circuit, HealthSignal::Down, NOW));
    circuit
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn only_consecutive_failures_open_the_circuit() {
    let mut circuit = Circuit::new(CircuitState::Closed, NOW);
    for signal in [
        HealthSignal::Down,
        HealthSignal::Down,
        HealthSignal::Alive,
        HealthSignal::Down,
        HealthSignal::Unknown,
        HealthSignal::Down,
    ] {
        run(&mut circuit, signal, NOW);
    }
    assert_eq!(circuit.state(), CircuitState::Closed);
    run(&mut circuit, HealthSignal::Down, NOW);
    assert_eq!(circuit.state(), CircuitState::Open { until: NOW + secs(10), openings: 1 });
    assert!(!circuit.can_start(0, FULL));
}

#[test]
fn single_probe_decides_in_half_open() {
    let mut circuit = opened();
    circuit.advance(NOW + secs(9));
    assert!(!circuit.can_start(0, FULL));
    let later = NOW + secs(10);
    circuit.advance(later);
    // Attempts still running from before do not block it.
    assert!(circuit.can_start(5, FULL));
    let probe = circuit.start_attempt();
    assert!(!circuit.can_start(0, FULL));
    end(&mut circuit, probe, HealthSignal::Down, later);
    assert_eq!(circuit.state(), CircuitState::Open { until: later + secs(20), openings: 2 });
}

#[test]
fn open_time_doubles_up_to_its_maximum_with_jitter() {
    let waits = [(1, 10), (2, 20), (3, 40), (4, 60), (50, 60)];
    for (openings, expected) in waits {
        assert_eq!(policy(3).open_for(openings, 0.5), secs(expected), "case: {openings}");
    }
    assert_eq!(policy(3).open_for(1, 0.0), secs(9));
    assert!(policy(3).open_for(1, 0.999) < secs(11));
}

#[test]
fn attempt_from_an_earlier_phase_is_ignored() {
    let mut circuit = Circuit::new(CircuitState::Closed, NOW);
    let early = circuit.start_attempt();
    (0..3).for_each(|_| run(&mut circuit, HealthSignal::Down, NOW));
    circuit.advance(NOW + secs(10));
    let probe = circuit.start_attempt();
    for signal in [HealthSignal::Alive, HealthSignal::Down] {
        end(&mut circuit, early, signal, NOW);
        assert_eq!(circuit.state(), CircuitState::HalfOpen { openings: 1 });
    }
    end(&mut circuit, probe, HealthSignal::Alive, NOW);
    assert_eq!(circuit.state(), CircuitState::Ramp { openings: 1 });
}

#[test]
fn ramp_doubles_with_successes_and_time() {
    let mut circuit = opened();
    let mut now = NOW + secs(10);
    circuit.advance(now);
    run(&mut circuit, HealthSignal::Alive, now);
    for (step, allowed) in [1, 2, 4].into_iter().enumerate() {
        // The step keeps its minimum duration, however many succeed.
        (0..20).for_each(|_| run(&mut circuit, HealthSignal::Alive, now));
        assert_eq!(circuit.concurrency_limit(FULL), allowed, "step {step}");
        assert!(!circuit.can_start(allowed, FULL));
        now = now + STEP_MIN;
        run(&mut circuit, HealthSignal::Alive, now);
    }
    assert_eq!(circuit.state(), CircuitState::Closed);
}

#[test]
fn failing_ramp_opens_the_circuit_for_longer() {
    let mut circuit = opened();
    let later = NOW + secs(10);
    circuit.advance(later);
    run(&mut circuit, HealthSignal::Alive, later);
    run(&mut circuit, HealthSignal::Down, later);
    assert_eq!(circuit.state(), CircuitState::Open { until: later + secs(20), openings: 2 });
}

#[test]
fn failed_manual_probe_does_not_extend_the_open_time() {
    let mut circuit = opened();
    let probe = circuit.start_manual_probe();
    end(&mut circuit, probe, HealthSignal::Down, NOW);
    assert_eq!(circuit.state(), CircuitState::Open { until: NOW + secs(10), openings: 1 });
    let probe = circuit.start_manual_probe();
    end(&mut circuit, probe, HealthSignal::Alive, NOW);
    assert_eq!(circuit.state().as_str(), "ramp");
}

#[test]
fn abandoned_probe_is_repeated() {
    let mut circuit = Circuit::new(CircuitState::HalfOpen { openings: 1 }, NOW);
    run(&mut circuit, HealthSignal::Unknown, NOW);
    assert!(circuit.can_start(0, FULL));
}

#[test]
fn refusal_counts_as_alive_and_throttling_as_unknown() {
    let answered = |status| AttemptOutcome::Answered { status, retry_after: None };
    let cases = [
        (answered(200), HealthSignal::Alive),
        (answered(400), HealthSignal::Alive),
        (answered(404), HealthSignal::Alive),
        (answered(500), HealthSignal::Down),
        (answered(429), HealthSignal::Unknown),
        (AttemptOutcome::Failed(AttemptFailure::Timeout), HealthSignal::Down),
        (AttemptOutcome::Failed(AttemptFailure::Refused), HealthSignal::Down),
        (AttemptOutcome::Failed(AttemptFailure::Blocked), HealthSignal::Alive),
        (AttemptOutcome::Failed(AttemptFailure::Interrupted), HealthSignal::Unknown),
        (AttemptOutcome::Failed(AttemptFailure::Transform), HealthSignal::Unknown),
    ];
    for (outcome, signal) in cases {
        let class = classify(&outcome, &StatusRules::default());
        assert_eq!(HealthSignal::from_outcome(&outcome, class), signal, "case: {outcome:?}");
    }
}

#[test]
fn invalid_circuit_settings_are_rejected() {
    let cases = [
        (r#""off""#, true),
        (r#""on""#, false),
        ("{}", true),
        (r#"{"failures":0}"#, false),
        (r#"{"failures":1,"open_for":"100ms","max_open":"1s"}"#, true),
        (r#"{"open_for":"10m"}"#, true),
        (r#"{"open_for":"2m","max_open":"1m"}"#, false),
        (r#"{"open_for":"1ms"}"#, false),
        (r#"{"max_open":"2d"}"#, false),
    ];
    for (text, is_fine) in cases {
        let spec: CircuitSpec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.build().is_ok(), is_fine, "case: {text}");
    }
    assert_eq!(CircuitSpec::Word("off".to_owned()).build(), Ok(None));
}

proptest! {
    /// An open circuit starts nothing, a half-open one has one attempt at a time, and the ramp stays
    /// within its step.
    #[test]
    fn circuit_never_exceeds_its_concurrency_limit(steps in prop::collection::vec((0..4_u8, 0..3_u64), 1..200)) {
        let mut circuit = Circuit::new(CircuitState::Closed, NOW);
        let mut now = NOW;
        let mut running: Vec<CircuitPermit> = Vec::new();
        for (what, pause) in steps {
            now = now + secs(pause * 4);
            circuit.advance(now);
            let many = u32::try_from(running.len()).unwrap();
            if what == 0 || running.is_empty() {
                if circuit.can_start(many, FULL) {
                    let state = circuit.state();
                    prop_assert_ne!(state.as_str(), "open");
                    if !matches!(state, CircuitState::HalfOpen { .. }) {
                        prop_assert!(many < circuit.concurrency_limit(FULL));
                    }
                    let permit = circuit.start_attempt();
                    if state.as_str() == "half_open" {
                        prop_assert!(!running.contains(&permit), "two probes");
                    }
                    running.push(permit);
                }
            } else {
                let signal = [HealthSignal::Alive, HealthSignal::Down, HealthSignal::Unknown][usize::from(what - 1)];
                end(&mut circuit, running.remove(0), signal, now);
            }
        }
    }
}
