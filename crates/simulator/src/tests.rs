use std::time::Duration;

use proptest::prelude::*;
use surehook_retry::RetryPolicy;

use crate::{
    PolicySpec, Scenario, SimulationReport,
    arrivals::{ArrivalPattern, ArrivalSpec},
    behavior::BehaviorSpec,
    plot::to_svg,
    scenario::PRESETS,
};

fn scenario(toml: &str) -> Scenario {
    Scenario::from_toml(toml).unwrap()
}

fn run(scenario: &Scenario, policy: &PolicySpec, seed: u64) -> SimulationReport {
    scenario.simulate(policy, seed, &mut |_| {}).unwrap()
}

fn named(name: &str) -> PolicySpec {
    PolicySpec::named(name).unwrap()
}

fn custom(toml: &str) -> PolicySpec {
    PolicySpec::from_toml("own", toml).unwrap()
}

/// Every delivery is counted once.
fn assert_adds_up(report: &SimulationReport) {
    assert_eq!(report.succeeded + report.dead + report.unfinished, report.deliveries);
    let ended: u64 = report.attempts.distribution.iter().map(|count| count.deliveries).sum();
    assert_eq!(ended, report.succeeded + report.dead);
    assert_eq!(report.dead_by_reason.values().sum::<u64>(), report.dead);
}

/// Neither a rate nor the concurrency is a limit: a delivery depends on its own attempts only.
fn unlimited(deliveries: u64, failure_rate: f64, timeout_rate: f64) -> Scenario {
    scenario(&format!(
        r#"
        [arrivals]
        deliveries = {deliveries}
        over = "10h"
        [[destinations]]
        settings = {{ concurrency = 1024, circuit = "off", timeout = "5s" }}
        behavior = {{ failure_rate = {failure_rate}, timeout_rate = {timeout_rate}, latency = {{ min = "10ms", max = "100ms" }} }}
        "#
    ))
}

#[test]
fn same_seed_gives_byte_equal_reports_and_another_seed_does_not() {
    for preset in PRESETS {
        let mut scenario = Scenario::preset(preset.name).unwrap();
        scenario.arrivals.bursts.clear();
        scenario.arrivals.deliveries = 3000;
        let text = |seed| serde_json::to_string(&run(&scenario, &named("short"), seed)).unwrap();
        assert_eq!(text(7), text(7), "{}", preset.name);
        assert_ne!(text(7), text(8), "{}", preset.name);
    }
}

/// With rates f and t an attempt fails with p = t + (1 - t) f, and a delivery takes n attempts with
/// the probability p^(n-1) (1 - p).
#[test]
fn attempts_follow_the_failure_rates_within_the_sampling_error() {
    const DELIVERIES: u32 = 100_000;
    let attempts_of = |name: &str| RetryPolicy::named(name).unwrap().attempts_max();
    // That of the exercise in docs/guides/choose-a-retry-policy.md.
    let exercise =
        custom("retry = { max_attempts = 5, initial_delay = '100ms', base = 2, jitter = 0.1 }");
    for (policy, attempts_max, failure_rate, timeout_rate) in [
        (exercise, 5, 0.5, 0.1),
        (named("quick"), attempts_of("quick"), 0.3, 0.1),
        (named("quick"), attempts_of("quick"), 0.5, 0.1),
        (named("short"), attempts_of("short"), 0.3, 0.05),
    ] {
        let scenario = unlimited(u64::from(DELIVERIES), failure_rate, timeout_rate);
        let report = run(&scenario, &policy, 7);
        assert_adds_up(&report);
        assert_eq!(report.attempts.distribution.len(), usize::try_from(attempts_max).unwrap());
        let policy = &report.name;
        let fails = timeout_rate + (1.0 - timeout_rate) * failure_rate;
        for count in &report.attempts.distribution {
            let reached = fails.powi(i32::try_from(count.attempts).unwrap() - 1);
            let is_last = count.attempts == attempts_max;
            let expected = if is_last { reached } else { reached * (1.0 - fails) };
            let deviation = (expected * (1.0 - expected) / f64::from(DELIVERIES)).sqrt();
            let share = count.deliveries as f64 / f64::from(DELIVERIES);
            assert!(
                (share - expected).abs() < 4.0 * deviation,
                "{policy}: {} attempts: {share} for {expected}",
                count.attempts
            );
        }
        let dead = fails.powi(i32::try_from(attempts_max).unwrap());
        let deviation = (dead * (1.0 - dead) / f64::from(DELIVERIES)).sqrt();
        assert!((1.0 - report.success_rate - dead).abs() < 4.0 * deviation);
        assert_eq!(report.dead_by_reason.keys().collect::<Vec<_>>(), [&"max_retries"]);
    }
}

#[test]
fn delivery_times_are_those_of_the_policy() {
    let policy =
        custom(r#"retry = { max_attempts = 3, initial_delay = "10s", base = 2, jitter = 0 }"#);
    let mut scenario = unlimited(20_000, 0.5, 0.0);
    scenario.destinations[0].behavior.latency = serde_json::from_str(r#""50ms""#).unwrap();
    let times = run(&scenario, &policy, 3).delivery_seconds;
    // Half succeed at once, a quarter after 10 s, an eighth after 30 s.
    assert!((0.05..0.06).contains(&times.p50), "{times:?}");
    assert!((30.14..30.2).contains(&times.p95), "{times:?}");
    assert!((30.14..30.2).contains(&times.max), "{times:?}");
}

#[test]
fn circuit_opens_during_an_outage_and_the_backlog_is_delivered_without_a_burst() {
    let scenario = Scenario::preset("outage").unwrap();
    let report = run(&scenario, &named("standard"), 7);
    assert_adds_up(&report);
    assert!(report.success_rate > 0.999, "{}", report.success_rate);
    assert!(report.circuit.opened > 5, "{:?}", report.circuit);
    assert!(report.circuit.held_seconds > 3000.0, "{:?}", report.circuit);
    let without_circuit = run(&scenario, &custom("retry = 'standard'\ncircuit = 'off'"), 7);
    assert_eq!(without_circuit.circuit.opened, 0);
    assert!(without_circuit.attempts.total > report.attempts.total);
    // A policy that gives up within seconds survives an hour only because deliveries are held.
    let quick = run(&scenario, &named("quick"), 7);
    let quick_without = run(&scenario, &custom("retry = 'quick'\ncircuit = 'off'"), 7);
    assert!(quick_without.dead > 3 * quick.dead, "{} and {}", quick_without.dead, quick.dead);
    // What it loses, it loses to the 503s of the destination that has just restarted.
    let limited = run(&scenario, &custom("retry = 'quick'\nrate = '50/s'"), 7);
    assert!(10 * limited.dead < quick.dead, "{} and {}", limited.dead, quick.dead);
}

#[test]
fn throttled_lane_cools_down_and_loses_nothing() {
    let scenario = Scenario::preset("429-storm").unwrap();
    let report = run(&scenario, &named("short"), 7);
    assert_adds_up(&report);
    assert!(report.cool_down_seconds > 600.0, "{}", report.cool_down_seconds);
    assert!(report.attempts.by_result["throttled"] > 50);
    assert!(report.success_rate > 0.999, "{report:?}");
}

#[test]
fn poisoned_customers_are_the_dead_letters() {
    let scenario = Scenario::preset("poisoned-customer").unwrap();
    let report = run(&scenario, &named("short"), 7);
    let share = report.dead as f64 / report.deliveries as f64;
    assert!((0.008..0.012).contains(&share), "{share}");
}

#[test]
fn ordered_deliveries_of_a_poisoned_customer_wait_for_each_other() {
    let mut scenario = Scenario::preset("poisoned-customer").unwrap();
    scenario.arrivals.deliveries = 5000;
    scenario.horizon = "1d".parse().unwrap();
    let blocking = custom("retry = 'quick'\norder = { key = '/customer' }");
    let report = run(&scenario, &blocking, 7);
    assert_adds_up(&report);
    assert_eq!(report.dead, 0);
    assert!(report.unfinished > 20, "{}", report.unfinished);
    let giving_up = custom("retry = 'quick'\norder = { key = '/customer', on_failure = 'dead' }");
    let report = run(&scenario, &giving_up, 7);
    assert_eq!(report.unfinished, 0);
    assert!(report.dead > 20);
}

#[test]
fn rate_limit_is_never_exceeded() {
    let report = run(&unlimited(50_000, 0.2, 0.0), &custom("rate = '5/s burst 2'"), 7);
    assert!(report.load.peak_per_second <= 7, "{:?}", report.load);
    assert_adds_up(&report);
}

#[test]
fn concurrency_limits_attempts_that_hang() {
    let scenario = scenario(
        r#"
        [arrivals]
        deliveries = 1000
        over = "100s"
        [[destinations]]
        settings = { concurrency = 2, circuit = "off", timeout = "1s" }
        behavior = { timeout_rate = 1.0 }
        "#,
    );
    let report = run(&scenario, &named("quick"), 7);
    // 3000 attempts of a second each, two at a time.
    assert!((1500.0..1510.0).contains(&report.simulated_seconds), "{}", report.simulated_seconds);
    assert_eq!((report.dead, report.possible_duplicates), (1000, 2000));
    assert!(report.load.busy_share > 0.98, "{:?}", report.load);
}

#[test]
fn misconfigured_destination_is_paused_and_holds_the_rest() {
    let scenario = scenario(
        r#"
        [arrivals]
        deliveries = 1000
        over = "100s"
        [[destinations]]
        behavior = { failure_rate = 1.0, failure = 404, latency = "10ms" }
        "#,
    );
    let report = run(&scenario, &named("quick"), 7);
    assert_adds_up(&report);
    assert!(report.dead < 20 && report.unfinished > 980, "{report:?}");
    assert!(report.paused_seconds > 90.0);
}

#[test]
fn destinations_are_isolated_from_each_other() {
    let scenario = scenario(
        r#"
        [arrivals]
        deliveries = 20000
        over = "1h"
        [[destinations]]
        name = "good"
        weight = 3
        behavior = { latency = "20ms" }
        [[destinations]]
        name = "hanging"
        behavior = { timeout_rate = 1.0 }
        "#,
    );
    let report = run(&scenario, &named("quick"), 7);
    assert_adds_up(&report);
    let [good, hanging] = &report.destinations[..] else { panic!("two destinations") };
    assert_eq!((good.success_rate, hanging.success_rate), (1.0, 0.0));
    assert!(good.delivery_seconds.max < 0.1, "{:?}", good.delivery_seconds);
    let share = good.deliveries as f64 / report.deliveries as f64;
    assert!((0.73..0.77).contains(&share), "{share}");
}

#[test]
fn invalid_scenarios_and_policies_are_refused_with_their_reason() {
    let arrivals = "[arrivals]\ndeliveries = 10\nover = \"1m\"\n";
    let cases = [
        (
            "[[destinations]]\nbehavior = { failure_rate = 1.5 }",
            "failure_rate must be between 0 and 1",
        ),
        (
            "[[destinations]]\nbehavior = { timeout_rate = -0.1 }",
            "timeout_rate must be between 0 and 1",
        ),
        ("[[destinations]]\nbehavior = { failure = 42 }", "HTTP status 42 does not exist"),
        ("[[destinations]]\nweight = 0", "positive weight"),
        ("[[destinations]]\nbehavior = { latency = { p50 = \"2s\", p99 = \"1s\" } }", "p99"),
        ("[[destinations]]\nbehavior = { incidents = [{ from = \"1m\" }] }", "`from` and `lasts`"),
        ("unknown = 1", "unknown field"),
    ];
    for (text, expected) in cases {
        let toml = if text.starts_with('[') {
            format!("{arrivals}{text}")
        } else {
            format!("{text}\n{arrivals}")
        };
        let error = Scenario::from_toml(&toml).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let cases = [
        ("url = 'https://a.example'", "`url` has no effect"),
        ("retry = { max_attempts = 0 }", "max_attempts"),
        ("retry = 'slow'", "unknown retry policy"),
        ("concurrency = 5000", "concurrency must be between 1 and 1024"),
        ("rate = 'fast'", "invalid rate"),
    ];
    for (toml, expected) in cases {
        let error = PolicySpec::from_toml("own", toml).unwrap_err().to_string();
        assert!(error.contains(expected), "{toml}: {error}");
    }
    assert!(Scenario::preset("flood").unwrap_err().to_string().contains("429-storm"));
    assert!(PolicySpec::named("slow").unwrap_err().to_string().contains("quick, short"));
}

#[test]
fn plot_is_well_formed_and_names_every_policy() {
    let scenario = Scenario::preset("flapping-tunnel").unwrap();
    let reports = [run(&scenario, &named("quick"), 7), run(&scenario, &named("short"), 7)];
    let svg = to_svg(&scenario, "A \"tunnel\" & <more>", &reports);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("A &quot;tunnel&quot; &amp; &lt;more>"));
    for name in ["quick", "short"] {
        assert!(svg.contains(&format!(">{name}</tspan>")), "{name}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the destination does, every delivery ends, within the attempts of its policy.
    #[test]
    fn every_delivery_ends_within_the_attempts_of_its_policy(
        seed in any::<u64>(),
        failure_rate in 0.0..1.0,
        timeout_rate in 0.0..1.0,
        policy in prop::sample::select(RetryPolicy::NAMES.to_vec()),
        concurrency in 1_u32..64,
        has_circuit in any::<bool>(),
        customers in 1_u32..50,
    ) {
        let arrivals = ArrivalSpec {
            deliveries: 300,
            over: "60s".parse().unwrap(),
            pattern: ArrivalPattern::Poisson,
            customers,
            bursts: Vec::new(),
        };
        let behavior = BehaviorSpec { failure_rate, timeout_rate, ..BehaviorSpec::default() };
        let scenario = Scenario::steady(arrivals, behavior);
        let circuit = if has_circuit { "{}" } else { "'off'" };
        let fields = format!("retry = '{policy}'\nconcurrency = {concurrency}\ncircuit = {circuit}");
        let report = run(&scenario, &custom(&fields), seed);
        assert_adds_up(&report);
        prop_assert_eq!(report.unfinished, 0);
        prop_assert_eq!(report.deliveries, 300);
        let most_attempts = report.attempts.distribution.last().unwrap().attempts;
        prop_assert!(most_attempts <= RetryPolicy::named(policy).unwrap().attempts_max());
        prop_assert!(report.load.peak_per_second <= 1000 * u64::from(concurrency));
    }
}

#[test]
fn simulation_ends_with_its_last_delivery() {
    let mut scenario = unlimited(200, 0.9, 0.0);
    scenario.arrivals.over = "30d".parse().unwrap();
    let report = run(&scenario, &named("standard"), 7);
    assert!(report.simulated_seconds > Duration::from_secs(29 * 86_400).as_secs_f64());
    assert!(report.simulated_seconds < Duration::from_secs(40 * 86_400).as_secs_f64());
}
