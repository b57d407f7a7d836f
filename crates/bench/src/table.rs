//! The report as text: numbers in columns, and whether each target was met.

use crate::attack::AttackReport;
use crate::backlog::BacklogReport;
use crate::dashboard::DashboardReport;
use crate::database::{DatabaseRates, DatabaseReport};
use crate::growth::{GrowthRates, GrowthReport};
use crate::idempotency::IdempotencyReport;
use crate::isolation::IsolationReport;
use crate::latency::LatencySummary;
use crate::rate_limit::RateLimitReport;
use crate::replay::ReplayReport;
use crate::report::{
    BenchReport, BenchResults, DeliveredPhaseReport, FIRST_ATTEMPT_P99_TARGET_US, PhaseReport,
};
use crate::scenario::ScenarioReport;
use crate::whatsapp::WhatsAppReport;

const UNKNOWN: &str = "-";
/// Lower shares are normal background activity.
const OTHER_PROCESSES_SHARE_SHOWN: f64 = 0.03;

pub(crate) fn render(report: &BenchReport) -> String {
    let results = match &report.results {
        BenchResults::Phases(phases) => render_phases(phases),
        BenchResults::Backlog(backlog) => render_backlog(backlog),
        BenchResults::Isolation(isolation) => render_isolation(isolation),
        BenchResults::Replay(replay) => render_replay(replay),
        BenchResults::RateLimit(rate_limit) => render_rate_limit(rate_limit),
        BenchResults::WhatsApp(whatsapp) => render_whatsapp(whatsapp),
        BenchResults::Dashboard(dashboard) => render_dashboard(dashboard),
        BenchResults::Attack(attack) => render_attack(attack),
        BenchResults::Idempotency(report) => render_idempotency(report),
        BenchResults::Growth(growth) => render_growth(growth),
        BenchResults::Database(report) => render_database(report),
    };
    format!("{}\n{results}", render_heading(report))
}

fn render_heading(report: &BenchReport) -> String {
    let BenchReport { machine, settings, results } = report;
    let mut text = format!(
        "{} cores ({}), data on {}\nbodies of {} bytes",
        machine.cores,
        machine.processor.as_deref().unwrap_or("unknown processor"),
        machine.filesystem.as_deref().unwrap_or("an unknown file system"),
        settings.body_bytes,
    );
    // Only the settings that were used are shown.
    if !matches!(
        results,
        BenchResults::Isolation(_)
            | BenchResults::Replay(_)
            | BenchResults::Attack(_)
            | BenchResults::Database(_)
    ) {
        text.push_str(&format!(", {} connections", settings.connections));
    }
    if !matches!(results, BenchResults::Backlog(_) | BenchResults::Dashboard(_)) {
        text.push_str(&format!(
            ", medians of {} rounds of {} s",
            settings.rounds, settings.seconds
        ));
    }
    text.push('\n');
    if machine.filesystem.as_deref() == Some("tmpfs") {
        text.push_str(
            "Warning: the data is on tmpfs (in memory), so no commit waited for a disk.\n",
        );
    }
    if let Some(share) =
        machine.other_processes_cpu_share.filter(|share| *share >= OTHER_PROCESSES_SHARE_SHOWN)
    {
        text.push_str(&format!(
            "Warning: other programs used {:.0} % of the CPU, so the numbers are too low.\n",
            share * 100.0
        ));
    }
    text
}

fn render_phases(phases: &[PhaseReport]) -> String {
    let delivery = phases.iter().filter_map(|phase| phase.delivery.as_ref()).map(render_delivery);
    let parts: Vec<String> = std::iter::once(render_rates(phases)).chain(delivery).collect();
    parts.join("\n")
}

fn render_rates(phases: &[PhaseReport]) -> String {
    let head = [
        "phase",
        "per second",
        "min - max",
        "share of limit",
        "target",
        "p50",
        "p99",
        "max",
        "peak memory",
        "CPU per event",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(phases.iter().map(|phase| {
        [
            phase.phase.to_string(),
            thousands(phase.per_second),
            range(&phase.per_second_rounds),
            phase.share_of_limit.map_or_else(String::new, |share| format!("{share:.2}")),
            phase
                .share_of_limit
                .zip(phase.share_of_limit_target)
                .map_or_else(String::new, |(share, target)| {
                    format!("{} {target:.2}", met(share >= target))
                }),
            duration(phase.latency.p50_us as f64),
            duration(phase.latency.p99_us as f64),
            duration(phase.latency.max_us as f64),
            bytes(phase.rss_peak_bytes),
            phase.cpu_us_per_event.map_or_else(|| UNKNOWN.to_owned(), duration),
        ]
    }));
    columns(&rows)
}

fn render_database(report: &DatabaseReport) -> String {
    let head = ["phase", "connections", "embedded", "PostgreSQL", "share", "target"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(report.rates.iter().map(|rates| {
        [
            rates.phase.to_string(),
            rates.connections.to_string(),
            thousands(rates.embedded_per_second),
            thousands(rates.database_per_second),
            format!("{:.2}", rates.share_of_embedded),
            rates.share_target.map_or_else(String::new, |target| {
                format!("{} {target:.2}", met(rates.share_of_embedded >= target))
            }),
        ]
    }));
    let mut text = columns(&rows);
    let several: Vec<&DatabaseRates> =
        report.rates.iter().filter(|rates| rates.nodes_per_second.is_some()).collect();
    if !several.is_empty() {
        let head = ["phase", "connections", "one node", "all nodes", "share", "target"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(several.iter().map(|rates| {
            let share = rates.nodes_share_of_one.unwrap_or_default();
            let target = report.nodes_share_target;
            [
                rates.phase.to_string(),
                rates.connections.to_string(),
                thousands(rates.database_per_second),
                thousands(rates.nodes_per_second.unwrap_or_default()),
                format!("{share:.2}"),
                format!("{} {target:.2}", met(share >= target)),
            ]
        }));
        text.push_str(&format!("\n{} nodes\n{}", report.nodes, columns(&rows)));
    }
    let target = report.half_load_p99_target_us;
    for rates in &report.rates {
        let [Some(embedded), Some(database)] =
            [rates.embedded_half_load_p99_us, rates.database_half_load_p99_us]
        else {
            continue;
        };
        text.push_str(&format!(
            "first attempt at half load, {} connections: p99 {} embedded, {} PostgreSQL  {} {}\n",
            rates.connections,
            duration(embedded as f64),
            duration(database as f64),
            met(database <= target),
            duration(target as f64),
        ));
    }
    text
}

fn render_delivery(report: &DeliveredPhaseReport) -> String {
    let met = met(report.half_load_first_attempt_latency.p99_us <= FIRST_ATTEMPT_P99_TARGET_US);
    let rows = [
        [
            "time to first attempt".to_owned(),
            "p50".to_owned(),
            "p99".to_owned(),
            "max".to_owned(),
            String::new(),
        ],
        latency_row("at full load".to_owned(), &report.first_attempt_latency, String::new()),
        latency_row(
            format!("at half load ({}/s)", thousands(report.half_load_per_second)),
            &report.half_load_first_attempt_latency,
            format!("{met} p99 {}", duration(FIRST_ATTEMPT_P99_TARGET_US as f64)),
        ),
    ];
    format!(
        "{}queue drained {} after the last response; {} repeated deliveries\n",
        columns(&rows),
        duration(report.drain_ms * 1e3),
        thousands(report.duplicate_arrivals as f64),
    )
}

fn render_backlog(report: &BacklogReport) -> String {
    let row = |name: &str, value: String| [name.to_owned(), value];
    columns(&[
        row(
            "backlog",
            format!("{} events in {:.1} s", thousands(report.events as f64), report.seconds),
        ),
        row("rate, first 10 %", format!("{}/s", thousands(report.first_tenth_per_second))),
        row("rate, last 10 %", format!("{}/s", thousands(report.last_tenth_per_second))),
        row("memory before load", bytes(report.rss_before_bytes)),
        row("memory after load", bytes(report.rss_after_bytes)),
        row("peak memory", bytes(report.rss_peak_bytes)),
        row("data folder", bytes(Some(report.data_bytes))),
        row("restart after kill -9", duration(report.ready_after_kill_ms * 1e3)),
        row("memory after restart", bytes(report.rss_after_kill_bytes)),
    ])
}

fn render_isolation(report: &IsolationReport) -> String {
    let head = format!(
        "{} healthy destinations, {:.0}/s each",
        report.healthy_destinations, report.per_second_each
    );
    let scenarios =
        [("baseline", &report.baseline), ("with a hanging destination", &report.with_hanging)];
    render_comparison(head, scenarios, report.p99_ratio, report.p99_ratio_target)
}

fn render_replay(report: &ReplayReport) -> String {
    let head = format!(
        "live traffic {:.0}/s, replay job {}/s, same destination",
        report.live_per_second, report.job_per_second
    );
    let scenarios = [("baseline", &report.baseline), ("with a replay job", &report.with_job)];
    render_comparison(head, scenarios, report.p99_ratio, report.p99_ratio_target)
}

fn render_rate_limit(report: &RateLimitReport) -> String {
    let RateLimitReport { limit_per_second, deliveries_per_second, tolerance, .. } = report;
    let share = report.share_of_rate_limit;
    format!(
        "rate limit {limit_per_second:.0}/s, backlog delivered at {deliveries_per_second:.1}/s ({})\n\
         rate / limit: {share:.3} (target within {tolerance:.2} of 1: {})\n",
        range(&report.deliveries_per_second_rounds),
        met((share - 1.0).abs() <= *tolerance),
    )
}

fn render_idempotency(report: &IdempotencyReport) -> String {
    let row = |name: &str, rate: f64, rounds: &[f64], target: Option<f64>| {
        let target = target.map_or_else(
            || UNKNOWN.to_owned(),
            |target| format!("{}: {}", thousands(target), met(rate >= target)),
        );
        [name.to_owned(), thousands(rate), range(rounds), target]
    };
    let mut rows = vec![
        ["one key per call", "per second", "min - max", "target"].map(ToOwned::to_owned),
        row(
            "claim and complete",
            report.pairs_per_second,
            &report.pairs_per_second_rounds,
            Some(report.pairs_per_second_target),
        ),
        row(
            "duplicates",
            report.duplicates_per_second,
            &report.duplicates_per_second_rounds,
            Some(report.duplicates_per_second_target),
        ),
        row(
            "claim and complete, batches of 100",
            report.batch_keys_per_second,
            &report.batch_keys_per_second_rounds,
            None,
        ),
    ];
    if let Some(redis) = report.redis_per_second {
        rows.push(row(
            "Redis SET NX EX, not on disk",
            redis,
            &report.redis_per_second_rounds,
            None,
        ));
    }
    let LatencySummary { p50_us, p99_us, max_us } = report.half_load_latency;
    let redis = match report.redis_per_second {
        Some(_) => "",
        None => "Redis was not measured: there is no redis-server in the search path\n",
    };
    format!(
        "{}one call at half load ({} pairs/s): p50 {}, p99 {} (target {}: {}), max {}\n{redis}",
        columns(&rows),
        thousands(report.half_load_pairs_per_second),
        duration(p50_us as f64),
        duration(p99_us as f64),
        duration(report.half_load_p99_target_us as f64),
        met(p99_us <= report.half_load_p99_target_us),
        duration(max_us as f64),
    )
}

fn render_whatsapp(report: &WhatsAppReport) -> String {
    let row =
        |name: &str, rate: f64, rounds: &[f64]| [name.to_owned(), thousands(rate), range(rounds)];
    let head = ["same signed messages", "per second", "min - max"].map(ToOwned::to_owned);
    let rows = [
        head,
        row("generic", report.generic_per_second, &report.generic_per_second_rounds),
        row("whatsapp-cloud", report.whatsapp_per_second, &report.whatsapp_per_second_rounds),
    ];
    let WhatsAppReport { ratio, ratio_target, .. } = report;
    format!(
        "{}whatsapp-cloud / generic: {ratio:.2} (target {ratio_target:.2}: {})\n",
        columns(&rows),
        met(ratio >= ratio_target),
    )
}

fn render_dashboard(report: &DashboardReport) -> String {
    let DashboardReport { p95_target_us, live_per_second, live_per_second_target, .. } = report;
    let head = ["page, time to first byte", "p50", "p95", "max", ""];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(report.pages.iter().map(|page| {
        let [p50, p95, max] =
            [page.p50_us, page.p95_us, page.max_us].map(|value_us| duration(value_us as f64));
        let verdict = match page.status {
            200 => met(page.p95_us <= *p95_target_us).to_owned(),
            other => format!("HTTP {other}"),
        };
        [page.page.clone(), p50, p95, max, verdict]
    }));
    format!(
        "{}{} stored events ({}), {} requests per page\n\
         target: p95 of every page at most {}: {}\n\
         live traffic meanwhile: {}/s (p50 {}, p99 {}; target {}/s: {})\n",
        columns(&rows),
        thousands(report.events as f64),
        bytes(Some(report.data_bytes)),
        report.samples,
        duration(*p95_target_us as f64),
        met(report.pages_met()),
        thousands(*live_per_second),
        duration(report.live_latency.p50_us as f64),
        duration(report.live_latency.p99_us as f64),
        thousands(*live_per_second_target),
        met(report.live_met()),
    )
}

fn render_attack(report: &AttackReport) -> String {
    let AttackReport { goodput_ratio, goodput_ratio_target, .. } = report;
    let head = ["genuine senders", "accepted/s", "min - max", "failed", "p50", "p99", "max"];
    let scenarios = [("baseline", &report.baseline), ("with an attack", &report.with_attack)];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(scenarios.map(|(name, goodput)| {
        let LatencySummary { p50_us, p99_us, max_us } = goodput.latency;
        [
            name.to_owned(),
            format!("{:.1}", goodput.per_second),
            range(&goodput.per_second_rounds),
            thousands((goodput.small_failed + goodput.large_failed) as f64),
            duration(p50_us as f64),
            duration(p99_us as f64),
            duration(max_us as f64),
        ]
    }));
    format!(
        "attack: {} slow sockets, {} declared bodies, {} senders of compressed bodies; {} connections\n\
         {}accepted / baseline: {goodput_ratio:.3} (target {goodput_ratio_target:.2}: {})\n\
         peak memory: {} (target at most {}: {})\n",
        thousands(report.slow_sockets as f64),
        thousands(report.declared_sockets as f64),
        report.gzip_connections,
        thousands(report.attack_connections as f64),
        columns(&rows),
        met(report.goodput_met()),
        bytes(report.rss_peak_bytes),
        bytes(Some(report.rss_peak_bytes_max)),
        met(report.memory_met()),
    )
}

fn render_growth(report: &GrowthReport) -> String {
    let GrowthReport { ratio_target, .. } = report;
    let head = ["rate", "empty store", "min - max", "filled store", "min - max", "ratio", "target"];
    let row = |name: &str, rates: &GrowthRates| {
        [
            name.to_owned(),
            format!("{}/s", thousands(rates.empty_per_second)),
            range(&rates.empty_per_second_rounds),
            format!("{}/s", thousands(rates.filled_per_second)),
            range(&rates.filled_per_second_rounds),
            format!("{:.3}", rates.ratio),
            format!("{} {ratio_target:.2}", met(rates.ratio >= *ratio_target)),
        ]
    };
    let rows = [
        head.map(str::to_owned),
        row("in", &report.receive),
        row("in and delivered", &report.delivered),
    ];
    format!(
        "filled store: {} events, half of them delivered; {}\n\
         {}peak memory with the filled store: {} (target at most {}: {}), with the empty one {}\n\
         (anonymous memory; resident, with pages of the program and files: {})\n",
        thousands(report.stored_events as f64),
        bytes(Some(report.data_bytes)),
        columns(&rows),
        bytes(report.anonymous_peak_bytes),
        bytes(Some(report.anonymous_peak_bytes_max)),
        met(report.memory_met()),
        bytes(report.empty_anonymous_peak_bytes),
        bytes(report.rss_peak_bytes),
    )
}

fn render_comparison(
    head: String,
    scenarios: [(&str, &ScenarioReport); 2],
    ratio: f64,
    target: f64,
) -> String {
    let [baseline, disturbed] = scenarios.map(|(name, scenario)| {
        let events = format!("{} events", thousands(scenario.events as f64));
        latency_row(name.to_owned(), &scenario.latency, events)
    });
    let head = [head, "p50".to_owned(), "p99".to_owned(), "max".to_owned(), String::new()];
    format!(
        "{}p99 / baseline p99: {ratio:.2} (target at most {target:.2}: {})\n",
        columns(&[head, baseline, disturbed]),
        met(ratio <= target),
    )
}

fn latency_row(name: String, latency: &LatencySummary, note: String) -> [String; 5] {
    let [p50, p99, max] =
        [latency.p50_us, latency.p99_us, latency.max_us].map(|value_us| duration(value_us as f64));
    [name, p50, p99, max, note]
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

/// Rows as lines: the first column is left-aligned, the others are right-aligned.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The slowest and the fastest round.
fn range(rounds: &[f64]) -> String {
    let low = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rounds.iter().copied().fold(0.0, f64::max);
    format!("{} - {}", thousands(low), thousands(high))
}

/// `12345.6` as `12,346`.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds in a readable unit.
fn duration(value_us: f64) -> String {
    if value_us < 100.0 {
        format!("{value_us:.1} µs")
    } else if value_us < 1e3 {
        format!("{value_us:.0} µs")
    } else if value_us < 1e6 {
        format!("{:.1} ms", value_us / 1e3)
    } else {
        format!("{:.2} s", value_us / 1e6)
    }
}

fn bytes(value: Option<u64>) -> String {
    const MEBIBYTE: f64 = 1_048_576.0;
    value.map_or_else(|| UNKNOWN.to_owned(), |bytes| format!("{:.1} MiB", bytes as f64 / MEBIBYTE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        let texts = [0.0, 999.4, 1000.0, 12_345.6, 1_234_567.0].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "12,346", "1,234,567"]);
        let texts = [9.96, 450.0, 1_500.0, 2_345_678.0].map(duration);
        assert_eq!(texts, ["10.0 µs", "450 µs", "1.5 ms", "2.35 s"]);
        assert_eq!(bytes(Some(1_572_864)), "1.5 MiB");
        assert_eq!(range(&[2.0, 1.0, 3000.0]), "1 - 3,000");
    }

    #[test]
    fn columns_are_aligned_without_trailing_space() {
        let rows = [["phase", "p50", ""], ["in", "1.0 ms", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "phase     p50\nin     1.0 ms\n");
    }
}
