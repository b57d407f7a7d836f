//! `surehook what-if`: predicts what other settings would have done with recorded deliveries.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::Args;
use serde_json::{Map, Value, json};
use surehook_api::{
    ApiTransport as _, calls,
    what_if::{WhatIfReport, WhatIfRequest, WhatIfResult},
};
use surehook_retry::rate::Rate;
use surehook_simulator::{
    PolicySpec,
    plot::{format_seconds, grouped},
};
use surehook_types::time::{HumanDuration, Timestamp};

use super::{
    replay::parse_moment,
    simulate::{as_f64, read_policy, round},
};
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
pub(crate) struct WhatIfArgs {
    /// Destination name or id
    destination: String,
    /// Deliveries created since this time (2026-11-15T08:00:00Z) or within this duration (2h)
    #[arg(long, value_parser = parse_moment, default_value = "7d")]
    since: Timestamp,
    /// Deliveries created before this time, or longer ago than this duration
    #[arg(long, value_parser = parse_moment)]
    until: Option<Timestamp>,
    /// Retry policy: `quick`, `short`, `standard`, or a TOML file with fields of a destination (`retry`,
    /// `rate`, `circuit`, …)
    #[arg(long, value_name = "POLICY", conflicts_with = "compare")]
    retry: Option<String>,
    /// Rate limit of attempts, such as 50/s; `none` for no limit
    #[arg(long, value_parser = parse_rate)]
    rate: Option<Value>,
    /// Circuit breaker: `off`, or `failures=20,open_for=10s,max_open=5m`
    #[arg(long, value_parser = parse_circuit)]
    circuit: Option<Value>,
    /// Concurrent attempts
    #[arg(long)]
    concurrency: Option<u32>,
    /// Timeout of one attempt
    #[arg(long)]
    timeout: Option<HumanDuration>,
    /// Delay before the first attempt
    #[arg(long)]
    delay: Option<HumanDuration>,
    /// Several policies side by side, each with the other options: names or TOML files
    #[arg(long, value_name = "POLICIES", value_delimiter = ',')]
    compare: Vec<String>,
    #[command(flatten)]
    remote: GatewayArgs,
}

fn parse_rate(text: &str) -> Result<Value, String> {
    if text == "none" {
        return Ok(Value::Null);
    }
    text.parse::<Rate>().map(|rate| json!(rate)).map_err(|error| error.to_string())
}

/// The fields are checked by the gateway.
fn parse_circuit(text: &str) -> Result<Value, String> {
    if text == "off" {
        return Ok(json!("off"));
    }
    let fields = text.split(',').map(|field| {
        let (name, value) = field.split_once('=')?;
        let value = value.parse::<u32>().map_or_else(|_| json!(value), |number| json!(number));
        Some((name.trim().to_owned(), value))
    });
    let fields: Option<Map<String, Value>> = fields.collect();
    fields.map(Value::Object).ok_or_else(|| {
        "use `off`, or values such as failures=20,open_for=10s,max_open=5m".to_owned()
    })
}

/// Settings to compare with today's.
struct Candidate {
    name: String,
    change: Map<String, Value>,
}

impl WhatIfArgs {
    fn candidates(&self) -> Result<Vec<Candidate>, CliError> {
        let change = self.changed_settings();
        let mut policies: Vec<&String> = self.compare.iter().chain(&self.retry).collect();
        policies.dedup();
        if policies.is_empty() {
            if change.is_empty() {
                let error = anyhow!("nothing to compare with");
                let hint = "Pass --retry, --rate, --circuit, --concurrency, --timeout or --delay, or --compare quick,short,standard.";
                return Err(CliError::refused(error).hint(hint));
            }
            return Ok(vec![Candidate { name: "changed".to_owned(), change }]);
        }
        let other_settings = change;
        let candidates = policies.into_iter().map(|policy| {
            let PolicySpec { name, fields: mut change } = read_policy(policy)?;
            change.extend(other_settings.clone());
            Ok(Candidate { name, change })
        });
        candidates.collect()
    }

    /// The options other than the retry policy.
    fn changed_settings(&self) -> Map<String, Value> {
        let text = |value: HumanDuration| json!(value);
        let fields = [
            ("rate", self.rate.clone()),
            ("circuit", self.circuit.clone()),
            ("concurrency", self.concurrency.map(Value::from)),
            ("timeout", self.timeout.map(text)),
            ("delay", self.delay.map(text)),
        ];
        let changed =
            fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        changed.collect()
    }
}

pub(super) async fn run(args: &WhatIfArgs) -> Result<(), CliError> {
    let candidates = args.candidates()?;
    let client = ApiClient::new(&args.remote)?;
    let mut reports = Vec::with_capacity(candidates.len());
    for Candidate { name, change } in candidates {
        let request = WhatIfRequest { since: Some(args.since), until: args.until, change };
        let report = client.call(calls::predict_what_if(&args.destination, &request)).await?;
        if args.remote.json {
            let mut line = json!(report);
            line["name"] = json!(name);
            output::print_line(line)?;
        }
        reports.push((name, report));
    }
    if args.remote.json {
        return Ok(());
    }
    print_reports(&args.destination, &reports)
}

fn print_reports(destination: &str, reports: &[(String, WhatIfReport)]) -> Result<(), CliError> {
    let Some((_, first)) = reports.first() else { return Ok(()) };
    output::print_line(format!(
        "{} deliveries to {} from {} to {}\n",
        grouped(first.recorded.deliveries),
        output::escape_control(destination),
        first.since,
        first.until
    ))?;
    print_comparison(first, reports)?;
    for (name, report) in reports {
        print_confidence(name, report)?;
    }
    Ok(())
}

/// A row per number: what was recorded, today's settings simulated, and each candidate with its
/// difference from them.
fn print_comparison(
    first: &WhatIfReport,
    reports: &[(String, WhatIfReport)],
) -> Result<(), CliError> {
    type Row<'f> = (&'static str, fn(&WhatIfResult) -> f64, &'f dyn Fn(f64) -> String);
    let count = |number: f64| grouped(round(number));
    let minutes = |number: f64| format_seconds(number * 60.0);
    let rows: [Row<'_>; 9] = [
        ("succeeded", |r| as_f64(r.succeeded), &count),
        ("dead letters", |r| as_f64(r.dead), &count),
        ("unfinished", |r| as_f64(r.unfinished), &count),
        ("attempts", |r| as_f64(r.attempts), &count),
        ("possible duplicates", |r| as_f64(r.possible_duplicates), &count),
        ("delivered after, p50", |r| r.delay.p50_seconds, &format_seconds),
        ("p95", |r| r.delay.p95_seconds, &format_seconds),
        ("p99", |r| r.delay.p99_seconds, &format_seconds),
        ("sum of delays", |r| r.delay.total_minutes, &minutes),
    ];
    let titles = ["", "recorded", "today, simulated"].into_iter();
    let titles = titles.chain(reports.iter().map(|(name, _)| name.as_str()));
    let keys: Vec<String> = (0..reports.len() + 3).map(|column| column.to_string()).collect();
    let columns: Vec<(&str, &str)> = titles.zip(keys.iter().map(String::as_str)).collect();
    let rows = rows.iter().map(|(name, number, format)| {
        let base = number(&first.baseline);
        let mut cells = vec![(*name).to_owned(), format(number(&first.recorded)), format(base)];
        cells.extend(reports.iter().map(|(_, report)| {
            let predicted = number(&report.predicted);
            let difference = predicted - base;
            let sign = if difference < 0.0 { '−' } else { '+' };
            match format(difference.abs()) {
                same if difference == 0.0 || same == "0" => format(predicted),
                change => format!("{} ({sign}{change})", format(predicted)),
            }
        }));
        keys.iter().cloned().zip(cells.into_iter().map(Value::from)).collect()
    });
    let mut rows: Vec<Value> = rows.collect();
    rows.insert(2, reasons_row(&keys, first, reports));
    output::print_table(&columns, &rows)
}

fn reasons_row(keys: &[String], first: &WhatIfReport, reports: &[(String, WhatIfReport)]) -> Value {
    let describe = |result: &WhatIfResult| {
        let reasons = result.dead_by_reason.iter();
        let reasons = reasons.map(|(reason, count)| format!("{reason} {}", grouped(*count)));
        let text = reasons.collect::<Vec<_>>().join(", ");
        if text.is_empty() { "-".to_owned() } else { text }
    };
    let results = [&first.recorded, &first.baseline].into_iter();
    let results = results.chain(reports.iter().map(|(_, report)| &report.predicted));
    let cells = std::iter::once("  by reason".to_owned()).chain(results.map(describe));
    keys.iter().cloned().zip(cells.map(Value::from)).collect()
}

fn print_confidence(name: &str, report: &WhatIfReport) -> Result<(), CliError> {
    let WhatIfReport { confidence, range, .. } = report;
    let mut text = format!(
        "\n{name}: confidence {}. {:.1} % of the attempts ended as recorded, {:.1} % are guessed.",
        confidence.level.as_str(),
        100.0 * confidence.recorded_share,
        100.0 * confidence.guessed_share
    );
    if range.dead_min != range.dead_max {
        let _ = write!(
            text,
            "\nBy chance, between {} and {} dead letters.",
            grouped(range.dead_min),
            grouped(range.dead_max)
        );
    }
    if !confidence.notes.is_empty() {
        text.push_str("\nWhat the record cannot know:");
    }
    for note in &confidence.notes {
        let _ = write!(text, "\n- {}", output::escape_control(&note.text));
    }
    output::print_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circuit_is_parsed_as_off_or_by_its_fields() {
        assert_eq!(parse_circuit("off"), Ok(json!("off")));
        let fields = json!({ "failures": 5, "open_for": "30s" });
        assert_eq!(parse_circuit("failures=5,open_for=30s"), Ok(fields));
        assert!(parse_circuit("5").is_err());
    }

    #[test]
    fn rate_is_parsed_and_none_removes_it() {
        assert_eq!(parse_rate("none"), Ok(Value::Null));
        assert_eq!(parse_rate("50/s"), Ok(json!("50/s")));
        assert!(parse_rate("fast").is_err());
    }
}
