//! `surehook simulate`: compares retry policies on a virtual clock, against modelled destinations.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use surehook_retry::rate::Rate;
use surehook_simulator::{
    PolicySpec, Scenario, SimulationReport,
    arrivals::{ArrivalPattern, ArrivalSpec},
    behavior::BehaviorSpec,
    latency::{LatencySpec, LogNormalSpec},
    plot::{format_seconds, grouped, to_svg},
    scenario::PRESETS,
};
use surehook_types::time::HumanDuration;

use super::files;
use crate::{error::CliError, output};

/// Deliveries unless a preset or `--deliveries` says otherwise.
const DELIVERIES: u64 = 100_000;
/// The arrivals per second unless `--arrival-rate` says otherwise.
const ARRIVALS_PER_SECOND: u64 = 10;
/// Default ratio of the p99 response time to the median.
const P99_FACTOR: u32 = 10;
/// The width of the longest bar of a histogram.
const BAR_WIDTH: u64 = 40;
/// A lane that was busier than this made deliveries wait for a free place.
const BUSY_SHARE: f64 = 0.9;

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Known incident to simulate
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(PRESETS.map(|preset| preset.name)))]
    preset: Option<String>,
    /// TOML file with a scenario: arrivals, and destinations with their behavior
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    scenario: Option<PathBuf>,
    /// Policies to compare: `quick`, `short`, `standard`, or TOML files with fields of a destination
    /// (`retry`, `rate`, `circuit`, `concurrency`, `order`, …)
    #[arg(
        long,
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value = "quick,short,standard"
    )]
    compare: Vec<String>,
    /// Number of deliveries [default: 100000, or as in the preset]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=surehook_simulator::arrivals::DELIVERIES_MAX))]
    deliveries: Option<u64>,
    /// Rate at which events arrive, such as `50/s` [default: 10/s, or as in the preset]
    #[arg(long, value_name = "RATE")]
    arrival_rate: Option<Rate>,
    /// Share of the attempts that fail, 0 to 1, of those that do not time out
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    failure_rate: Option<f64>,
    /// Share of the attempts that time out, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    timeout_rate: Option<f64>,
    /// Median response time
    #[arg(long, value_name = "DURATION")]
    latency: Option<HumanDuration>,
    /// 99th percentile of the response times [default: ten times the median]
    #[arg(long, value_name = "DURATION", requires = "latency")]
    latency_p99: Option<HumanDuration>,
    /// Seed of the random numbers; equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a plot of deliveries and load over time to this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON, one object per policy
    #[arg(long)]
    json: bool,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "use a share between 0 and 1, such as 0.3".to_owned())
}

pub(super) fn run(args: &SimulateArgs) -> Result<(), CliError> {
    let scenario = args.scenario().map_err(CliError::refused)?;
    let policies: Vec<PolicySpec> =
        args.compare.iter().map(|policy| read_policy(policy)).collect::<Result<_, _>>()?;
    let mut reports = Vec::with_capacity(policies.len());
    for policy in &policies {
        let bar = progress_bar(args, &scenario, policy)?;
        let report = scenario.simulate(policy, args.seed, &mut |ended| bar.set_position(ended));
        bar.finish_and_clear();
        reports.push(report.map_err(CliError::refused)?);
    }
    if let Some(file) = &args.plot {
        std::fs::write(file, to_svg(&scenario, &args.title(), &reports))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if args.json {
        return reports.iter().try_for_each(|report| output::print_line(json!(report)));
    }
    print_reports(&scenario, &reports)?;
    if let Some(file) = &args.plot {
        output::note(&format!("Plot written to {}", file.display()));
    }
    Ok(())
}

impl SimulateArgs {
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut scenario = match (&self.preset, &self.scenario) {
            (Some(name), _) => Scenario::preset(name)?,
            (None, Some(file)) => {
                let text = files::read_text(file)?;
                Scenario::from_toml(&text).with_context(|| format!("in {}", file.display()))?
            }
            (None, None) => steady_scenario(self.deliveries.unwrap_or(DELIVERIES)),
        };
        let is_steady = self.preset.is_none() && self.scenario.is_none();
        let arrivals = &mut scenario.arrivals;
        if let Some(deliveries) = self.deliveries {
            // The incidents stay where they are: there are more events at the same times.
            for burst in &mut arrivals.bursts {
                burst.deliveries = scale(burst.deliveries, deliveries, arrivals.deliveries);
            }
            arrivals.deliveries = deliveries;
        }
        match self.arrival_rate {
            Some(rate) if is_steady => {
                let over = rate.interval().as_secs_f64() * as_f64(arrivals.deliveries);
                arrivals.over = whole_millis(over);
            }
            Some(rate) => {
                let count = arrivals.over.0.as_secs_f64() / rate.interval().as_secs_f64();
                anyhow::ensure!(
                    self.deliveries.is_none(),
                    "the scenario says how long events arrive; pass --deliveries or --arrival-rate, not both"
                );
                let deliveries = round(count);
                for burst in &mut arrivals.bursts {
                    burst.deliveries = scale(burst.deliveries, deliveries, arrivals.deliveries);
                }
                arrivals.deliveries = deliveries;
            }
            None => {}
        }
        for destination in &mut scenario.destinations {
            let behavior = &mut destination.behavior;
            behavior.failure_rate = self.failure_rate.unwrap_or(behavior.failure_rate);
            behavior.timeout_rate = self.timeout_rate.unwrap_or(behavior.timeout_rate);
            if let Some(p50) = self.latency {
                let p99 = self.latency_p99.unwrap_or(HumanDuration(p50.0 * P99_FACTOR));
                behavior.latency = LatencySpec::LogNormal(LogNormalSpec { p50, p99 });
            }
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// The title of the plot.
    fn title(&self) -> String {
        match (&self.preset, &self.scenario) {
            (Some(preset), _) => format!("Retry policies: {preset}"),
            (None, Some(file)) => {
                let name = file.file_stem().unwrap_or(file.as_os_str());
                format!("Retry policies: {}", name.display())
            }
            (None, None) => format!(
                "Retry policies: {:.0} % failures, {:.0} % time-outs",
                100.0 * self.failure_rate.unwrap_or_default(),
                100.0 * self.timeout_rate.unwrap_or_default()
            ),
        }
    }
}

fn steady_scenario(deliveries: u64) -> Scenario {
    let arrivals = ArrivalSpec {
        deliveries,
        over: HumanDuration(Duration::from_millis(deliveries * 1000 / ARRIVALS_PER_SECOND)),
        pattern: ArrivalPattern::Poisson,
        customers: 1000,
        bursts: Vec::new(),
    };
    Scenario::steady(arrivals, BehaviorSpec::default())
}

/// A named policy, or a file with fields of a destination.
pub(super) fn read_policy(text: &str) -> Result<PolicySpec, CliError> {
    let file = Path::new(text);
    if file.extension().is_none() {
        let hint = "For your own policy, pass a file such as own.toml.";
        return PolicySpec::named(text).map_err(|error| CliError::refused(error).hint(hint));
    }
    let name = file.file_stem().unwrap_or(file.as_os_str()).display().to_string();
    let policy = PolicySpec::from_toml(&name, &files::read_text(file)?);
    let policy = policy.with_context(|| format!("in {}", file.display()));
    policy.map_err(CliError::refused)
}

fn progress_bar(
    args: &SimulateArgs,
    scenario: &Scenario,
    policy: &PolicySpec,
) -> Result<ProgressBar, CliError> {
    if args.json || !output::shows_progress() {
        return Ok(ProgressBar::hidden());
    }
    let template = "{msg} [{wide_bar}] {pos}/{len} {percent}% {eta}";
    let bar = ProgressBar::new(scenario.arrivals.deliveries);
    bar.set_style(ProgressStyle::with_template(template)?.progress_chars("=> "));
    bar.set_message(policy.name.clone());
    Ok(bar)
}

fn print_reports(scenario: &Scenario, reports: &[SimulationReport]) -> Result<(), CliError> {
    if !scenario.about.is_empty() {
        output::print_line(format!("{}\n", scenario.about))?;
    }
    let arrivals = &scenario.arrivals;
    let count = grouped(arrivals.deliveries);
    let span = format_seconds(arrivals.over.0.as_secs_f64());
    output::print_line(format!("{count} deliveries within {span}\n"))?;
    print_comparison(reports)?;
    for report in reports {
        print_histogram(report)?;
    }
    for report in reports.iter().filter(|report| report.load.busy_share > BUSY_SHARE) {
        output::note(&format!(
            "\n{}: {:.0} % of the lane's places were in use while events arrived, so deliveries waited for a free one. \
             Raise `concurrency` or lower `timeout`.",
            report.name,
            100.0 * report.load.busy_share
        ));
    }
    Ok(())
}

/// A column per policy, or the other way round: a row per policy is easier to read with few columns.
fn print_comparison(reports: &[SimulationReport]) -> Result<(), CliError> {
    type Cell = fn(&SimulationReport) -> String;
    let rows: [(&str, Cell); 16] = [
        ("succeeded", |r| format!("{} ({:.3} %)", grouped(r.succeeded), percent(r.succeeded, r))),
        ("dead", |r| format!("{}{}", grouped(r.dead), reasons(r))),
        ("unfinished", |r| grouped(r.unfinished + r.unreached)),
        ("attempts", |r| grouped(r.attempts.total)),
        ("attempts per delivery", |r| format!("{:.3}", r.attempts.mean)),
        ("delivered after, mean", |r| format_seconds(r.delivery_seconds.mean)),
        ("p50", |r| format_seconds(r.delivery_seconds.p50)),
        ("p95", |r| format_seconds(r.delivery_seconds.p95)),
        ("p99", |r| format_seconds(r.delivery_seconds.p99)),
        ("max", |r| format_seconds(r.delivery_seconds.max)),
        ("peak load", |r| format!("{}/s", r.load.peak_per_second)),
        ("peak after an incident", |r| {
            r.load
                .recovery_peak_per_second
                .map_or_else(|| "-".to_owned(), |peak| format!("{peak}/s"))
        }),
        ("possible duplicates", |r| grouped(r.possible_duplicates)),
        ("circuit open", |r| held(r.circuit.held_seconds, r.circuit.opened)),
        ("cool-down", |r| span(r.cool_down_seconds)),
        ("lane busy", |r| format!("{:.0} %", 100.0 * r.load.busy_share)),
    ];
    let titles = std::iter::once("").chain(reports.iter().map(|report| report.name.as_str()));
    let keys: Vec<String> = (0..=reports.len()).map(|column| column.to_string()).collect();
    let columns: Vec<(&str, &str)> = titles.zip(keys.iter().map(String::as_str)).collect();
    let rows: Vec<Value> = rows
        .iter()
        .map(|(name, cell)| {
            let cells = std::iter::once((*name).to_owned()).chain(reports.iter().map(cell));
            keys.iter().cloned().zip(cells.map(Value::from)).collect()
        })
        .collect();
    output::print_table(&columns, &rows)
}

fn reasons(report: &SimulationReport) -> String {
    let reasons: Vec<String> = report
        .dead_by_reason
        .iter()
        .map(|(reason, count)| format!("{reason} {}", grouped(*count)))
        .collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) }
}

fn held(seconds: f64, times: u64) -> String {
    if times == 0 { "-".to_owned() } else { format!("{} in {times} ×", format_seconds(seconds)) }
}

fn span(seconds: f64) -> String {
    if seconds == 0.0 { "-".to_owned() } else { format_seconds(seconds) }
}

/// How many deliveries took how many attempts.
fn print_histogram(report: &SimulationReport) -> Result<(), CliError> {
    output::print_line(format!("\n{}: deliveries by number of attempts", report.name))?;
    let most = report.attempts.distribution.iter().map(|count| count.deliveries).max();
    let most = most.unwrap_or_default().max(1);
    for count in report.attempts.distribution.iter().filter(|count| count.deliveries > 0) {
        let bar =
            "█".repeat(usize::try_from(scale(BAR_WIDTH, count.deliveries, most)).unwrap_or(0));
        let bar = if bar.is_empty() { "▏".to_owned() } else { bar };
        output::print_line(format!(
            "{:>4}  {bar:<40}  {:>11}  {:>7.3} %",
            count.attempts,
            grouped(count.deliveries),
            percent(count.deliveries, report)
        ))?;
    }
    Ok(())
}

fn percent(count: u64, report: &SimulationReport) -> f64 {
    100.0 * as_f64(count) / as_f64(report.deliveries.max(1))
}

/// `number × part / whole`.
fn scale(number: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and the cast saturates"
)]
pub(super) fn round(count: f64) -> u64 {
    count.round() as u64
}

fn whole_millis(seconds: f64) -> HumanDuration {
    HumanDuration(Duration::from_millis(round(seconds * 1000.0).max(1)))
}
