//! The report as text: numbers in columns, and beside them whether the target was met.

use crate::backlog::BacklogReport;
use crate::dashboard::DashboardReport;
use crate::isolation::{IsolationReport, ScenarioReport};
use crate::latency::LatencySummary;
use crate::replay::ReplayReport;
use crate::report::{BenchReport, DeliveredPhaseReport, FIRST_ATTEMPT_P99_TARGET_US, PhaseReport};
use crate::whatsapp::WhatsAppReport;

const UNKNOWN: &str = "-";
/// Below this the system's own housekeeping explains it.
const OTHERS_SHARE_NOTED: f64 = 0.03;

pub(crate) fn render(report: &BenchReport) -> String {
    let mut parts = vec![heading(report)];
    if !report.phases.is_empty() {
        parts.push(rates(&report.phases));
    }
    parts.extend(report.phases.iter().filter_map(|phase| phase.delivery.as_ref()).map(delivery));
    parts.extend(report.backlog.as_ref().map(backlog));
    parts.extend(report.isolation.as_ref().map(isolation));
    parts.extend(report.replay.as_ref().map(replay));
    parts.extend(report.whatsapp.as_ref().map(whatsapp));
    parts.extend(report.dashboard.as_ref().map(dashboard));
    parts.join("\n")
}

fn heading(report: &BenchReport) -> String {
    let BenchReport { machine, settings, .. } = report;
    let mut text = format!(
        "{} cores ({}), data on {}\nbodies of {} bytes",
        machine.cores,
        machine.processor.as_deref().unwrap_or("unknown processor"),
        machine.filesystem.as_deref().unwrap_or("an unknown file system"),
        settings.body_bytes,
    );
    // Each setting is told only where it was used.
    if report.isolation.is_none() && report.replay.is_none() {
        text.push_str(&format!(", {} connections", settings.connections));
    }
    if report.backlog.is_none() && report.dashboard.is_none() {
        text.push_str(&format!(", {} rounds of {} s; medians", settings.rounds, settings.seconds));
    }
    text.push('\n');
    if machine.filesystem.as_deref() == Some("tmpfs") {
        text.push_str("The data is in memory: no commit waited for a disk.\n");
    }
    if let Some(share) = machine.others_cpu_share.filter(|share| *share >= OTHERS_SHARE_NOTED) {
        text.push_str(&format!(
            "Other programs took {:.0} % of the machine: the numbers are worse than they should be.\n",
            share * 100.0
        ));
    }
    text
}

fn rates(phases: &[PhaseReport]) -> String {
    let head = [
        "phase",
        "per second",
        "low - high",
        "of limit",
        "target",
        "p50",
        "p99",
        "max",
        "memory",
        "CPU/event",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(phases.iter().map(|phase| {
        [
            phase.phase.to_string(),
            thousands(phase.per_second),
            range(&phase.per_second_rounds),
            phase.of_limit.map_or_else(String::new, |share| format!("{share:.2}")),
            phase.of_limit.zip(phase.of_limit_target).map_or_else(
                String::new,
                |(share, target)| {
                    format!("{} {target:.2}", if share >= target { "met" } else { "MISSED" })
                },
            ),
            duration(phase.latency.p50_us as f64),
            duration(phase.latency.p99_us as f64),
            duration(phase.latency.max_us as f64),
            bytes(phase.rss_peak_bytes),
            phase.cpu_us_per_event.map_or_else(|| UNKNOWN.to_owned(), duration),
        ]
    }));
    columns(&rows)
}

fn delivery(report: &DeliveredPhaseReport) -> String {
    let met = met(report.half_load_first_attempt.p99_us <= FIRST_ATTEMPT_P99_TARGET_US);
    let rows = [
        [
            "from sending to first attempt".to_owned(),
            "p50".to_owned(),
            "p99".to_owned(),
            "max".to_owned(),
            String::new(),
        ],
        latency_row("at full load".to_owned(), &report.first_attempt, String::new()),
        latency_row(
            format!("at half load ({}/s)", thousands(report.half_load_per_second)),
            &report.half_load_first_attempt,
            format!("{met} p99 {}", duration(FIRST_ATTEMPT_P99_TARGET_US as f64)),
        ),
    ];
    format!(
        "{}drained {} after the last answer; {} arrived more than once\n",
        columns(&rows),
        duration(report.drain_ms * 1e3),
        thousands(report.repeated as f64),
    )
}

fn backlog(report: &BacklogReport) -> String {
    let row = |name: &str, value: String| [name.to_owned(), value];
    columns(&[
        row(
            "backlog",
            format!("{} events in {:.1} s", thousands(report.events as f64), report.seconds),
        ),
        row("rate, first tenth", format!("{}/s", thousands(report.start_per_second))),
        row("rate, last tenth", format!("{}/s", thousands(report.end_per_second))),
        row("memory before", bytes(report.rss_first_bytes)),
        row("memory after", bytes(report.rss_last_bytes)),
        row("memory at most", bytes(report.rss_peak_bytes)),
        row("data folder", bytes(Some(report.data_bytes))),
        row("ready after kill -9", duration(report.ready_after_kill_ms * 1e3)),
        row("memory then", bytes(report.rss_after_kill_bytes)),
    ])
}

fn isolation(report: &IsolationReport) -> String {
    let head = format!(
        "{} healthy destinations, {:.0}/s each",
        report.healthy_destinations, report.per_second_each
    );
    let arms = [("alone", &report.alone), ("beside a hanging one", &report.beside_hanging)];
    two_arms(head, arms, report.p99_ratio, report.p99_ratio_target)
}

fn replay(report: &ReplayReport) -> String {
    let head = format!(
        "live traffic, {:.0}/s; the job {}/s to the same destination",
        report.live_per_second, report.job_per_second
    );
    let arms = [("alone", &report.alone), ("beside a replay job", &report.beside_job)];
    two_arms(head, arms, report.p99_ratio, report.p99_ratio_target)
}

fn whatsapp(report: &WhatsAppReport) -> String {
    let row = |name: &str, rate: f64, rounds: &[f64]| {
        let low = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rounds.iter().copied().fold(0.0, f64::max);
        [name.to_owned(), thousands(rate), format!("{} - {}", thousands(low), thousands(high))]
    };
    let head = ["the same signed messages", "per second", "low - high"].map(ToOwned::to_owned);
    let rows = [
        head,
        row("generic", report.generic_per_second, &report.generic_per_second_rounds),
        row("whatsapp-cloud", report.whatsapp_per_second, &report.whatsapp_per_second_rounds),
    ];
    let WhatsAppReport { ratio, ratio_target, .. } = report;
    format!(
        "{}whatsapp-cloud / generic: {ratio:.2}, {} {ratio_target:.2}\n",
        columns(&rows),
        met(ratio >= ratio_target),
    )
}

fn dashboard(report: &DashboardReport) -> String {
    let DashboardReport { p95_target_us, live_per_second, live_per_second_wanted, .. } = report;
    let head = ["time to the first byte of a page", "p50", "p95", "max", ""];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(report.pages.iter().map(|page| {
        let [p50, p95, max] =
            [page.p50_us, page.p95_us, page.max_us].map(|value_us| duration(value_us as f64));
        let verdict = match page.status {
            200 => met(page.p95_us <= *p95_target_us).to_owned(),
            other => format!("answered {other}"),
        };
        [page.page.clone(), p50, p95, max, verdict]
    }));
    format!(
        "{}{} events in the store ({}), each page {} times\n\
         p95 of every page at most {}: {}\n\
         {}/s came in meanwhile (p50 {}, p99 {}), {} {}/s\n",
        columns(&rows),
        thousands(report.events as f64),
        bytes(Some(report.data_bytes)),
        report.samples,
        duration(*p95_target_us as f64),
        met(report.pages_met()),
        thousands(*live_per_second),
        duration(report.live_latency.p50_us as f64),
        duration(report.live_latency.p99_us as f64),
        met(report.live_met()),
        thousands(*live_per_second_wanted),
    )
}

fn two_arms(head: String, arms: [(&str, &ScenarioReport); 2], ratio: f64, target: f64) -> String {
    let [alone, beside] = arms.map(|(name, arm)| {
        let events = format!("{} events", thousands(arm.events as f64));
        latency_row(name.to_owned(), &arm.latency, events)
    });
    let head = [head, "p50".to_owned(), "p99".to_owned(), "max".to_owned(), String::new()];
    format!(
        "{}p99 beside / alone: {ratio:.2}, {} {target:.2}\n",
        columns(&[head, alone, beside]),
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

/// Rows as lines: the first column flush left, the others flush right.
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

/// Microseconds in the unit in which they are read.
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
        let told = [0.0, 999.4, 1000.0, 12_345.6, 1_234_567.0].map(thousands);
        assert_eq!(told, ["0", "999", "1,000", "12,346", "1,234,567"]);
        let told = [9.96, 450.0, 1_500.0, 2_345_678.0].map(duration);
        assert_eq!(told, ["10.0 µs", "450 µs", "1.5 ms", "2.35 s"]);
        assert_eq!(bytes(Some(1_572_864)), "1.5 MiB");
        assert_eq!(range(&[2.0, 1.0, 3000.0]), "1 - 3,000");
    }

    #[test]
    fn columns_are_aligned_without_trailing_space() {
        let rows = [["phase", "p50", ""], ["in", "1.0 ms", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "phase     p50\nin     1.0 ms\n");
    }
}
