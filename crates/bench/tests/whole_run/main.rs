//! Whole benchmark runs against a stand-in for the gateway.
//!
//! [`surehook_bench::run`] starts the given program as gateway, limit server and sink. Here that
//! program is this test itself, so nothing has to be built first and an error of the benchmark is not
//! mistaken for one of the gateway.
//!
//! `cargo test --release -p surehook-bench --test whole_run -- measure [OPTIONS]` prints a real
//! measurement of the limit server and of the stand-in, which stores nothing.

#![expect(clippy::print_stdout, reason = "a test with its own `main` prints its results")]

mod stand_in;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser as _, ValueEnum as _};
use surehook_bench::{BenchOptions, BenchPhase, BenchReport, BenchResults, PhaseReport, SinkMode};

fn main() -> ExitCode {
    match run_command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run_command() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).with_context(|| format!("{name} is missing"))
    };
    let listen = || anyhow::Ok(value("--listen")?.parse::<SocketAddr>()?);
    match arguments.first().map(String::as_str) {
        Some("serve") => stand_in::serve(listen()?, value("--config")?.as_ref()).await,
        Some("bench-limit") => surehook_bench::run_limit_server(listen()?).await,
        Some("bench-sink") => {
            let mode = SinkMode::from_str(value("--mode")?, false).map_err(anyhow::Error::msg)?;
            surehook_bench::run_sink(listen()?, mode).await
        }
        Some("measure") => {
            let options = BenchOptions::try_parse_from(&arguments)?;
            println!("{}", surehook_bench::run(options).await?.to_table());
            Ok(())
        }
        // A test runner lists the tests; this program is a single one.
        Some("--list") => Ok(()),
        Some(_) | None => check_all().await,
    }
}

async fn check_all() -> Result<()> {
    all_rates_are_measured_in_one_run().await.context("all rates")?;
    single_rate_is_measured_with_the_limit().await.context("one rate")?;
    gateway_that_accepts_duplicates_fails_the_run()
        .await
        .context("gateway that accepts duplicates")?;
    backlog_is_measured_across_a_kill().await.context("backlog")?;
    isolation_compares_two_scenarios().await.context("isolation")?;
    replay_compares_live_traffic_with_and_without_a_job().await.context("replay")?;
    rate_limit_is_compared_with_the_delivered_rate().await.context("rate limit")?;
    growth_compares_a_filled_store_with_an_empty_one().await.context("growth")?;
    println!("whole_run: 8 passed");
    Ok(())
}

fn short_options() -> BenchOptions {
    BenchOptions { seconds: 1, rounds: 1, connections: 8, ..BenchOptions::default() }
}

fn phase_reports(report: &BenchReport) -> Result<&[PhaseReport]> {
    let BenchResults::Phases(phases) = &report.results else { bail!("no rates: {report:?}") };
    Ok(phases)
}

fn measured_phases(report: &BenchReport) -> Result<Vec<BenchPhase>> {
    Ok(phase_reports(report)?.iter().map(|phase| phase.phase).collect())
}

async fn all_rates_are_measured_in_one_run() -> Result<()> {
    let report = surehook_bench::run(BenchOptions { rounds: 2, ..short_options() }).await?;
    ensure!(
        measured_phases(&report)?
            == [
                BenchPhase::Limit,
                BenchPhase::Receive,
                BenchPhase::Duplicates,
                BenchPhase::Delivered
            ]
    );
    let phases = phase_reports(&report)?;
    for phase in phases {
        ensure!(phase.per_second > 0.0 && phase.per_second_rounds.len() == 2, "{phase:?}");
        ensure!(phase.share_of_limit.is_some() == (phase.phase != BenchPhase::Limit), "{phase:?}");
        ensure!(phase.rss_peak_bytes.is_some() && phase.cpu_us_per_event.is_some(), "{phase:?}");
    }
    let delivery = phases[3].delivery.as_ref().context("no deliveries")?;
    ensure!(
        delivery.first_attempt_latency.p50_us > 0 && delivery.duplicate_arrivals == 0,
        "{delivery:?}"
    );

    let table = report.to_table();
    for word in ["limit", "duplicates", "delivered", "met", "half load", "cores"] {
        ensure!(table.contains(word), "`{word}` is missing in\n{table}");
    }
    Ok(())
}

async fn single_rate_is_measured_with_the_limit() -> Result<()> {
    let options = BenchOptions { only: Some(BenchPhase::Receive), ..short_options() };
    let report = surehook_bench::run(options).await?;
    ensure!(measured_phases(&report)? == [BenchPhase::Limit, BenchPhase::Receive]);
    let json: serde_json::Value = serde_json::from_str(&report.to_json())?;
    let receive = &json["phases"][1];
    ensure!(receive["phase"] == "receive" && receive["share_of_limit"].is_f64(), "{json}");
    ensure!(json.get("backlog").is_none(), "{json}");
    Ok(())
}

/// The stand-in accepts duplicates if its program has this name.
async fn gateway_that_accepts_duplicates_fails_the_run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let exe = folder.path().join(stand_in::ACCEPTS_DUPLICATES);
    std::os::unix::fs::symlink(std::env::current_exe()?, &exe)?;
    let only = Some(BenchPhase::Duplicates);
    let options = BenchOptions { exe: Some(exe), only, ..short_options() };
    let error = surehook_bench::run(options).await.err().context("the run did not fail")?;
    let error = format!("{error:#}");
    for word in ["`duplicates` failed", "expected 200 Duplicate", "stand-in listens on"] {
        ensure!(error.contains(word), "`{word}` is missing in\n{error}");
    }
    Ok(())
}

async fn backlog_is_measured_across_a_kill() -> Result<()> {
    let options =
        BenchOptions { only: Some(BenchPhase::Backlog), backlog_events: 2_000, ..short_options() };
    let report = surehook_bench::run(options).await?;
    let BenchResults::Backlog(backlog) = &report.results else { bail!("no backlog: {report:?}") };
    ensure!(backlog.events == 2_000 && backlog.last_tenth_per_second > 0.0, "{backlog:?}");
    ensure!(backlog.ready_after_kill_ms > 0.0, "{backlog:?}");
    ensure!(report.to_table().contains("kill -9"), "{}", report.to_table());
    Ok(())
}

async fn isolation_compares_two_scenarios() -> Result<()> {
    let options = BenchOptions { only: Some(BenchPhase::Isolation), ..short_options() };
    let report = surehook_bench::run(options).await?;
    let BenchResults::Isolation(isolation) = &report.results else { bail!("{report:?}") };
    ensure!(isolation.baseline.events > 0 && isolation.with_hanging.events > 0, "{isolation:?}");
    ensure!(isolation.p99_ratio > 0.0, "{isolation:?}");
    ensure!(report.to_table().contains("with a hanging destination"), "{}", report.to_table());
    Ok(())
}

async fn replay_compares_live_traffic_with_and_without_a_job() -> Result<()> {
    let options = BenchOptions { only: Some(BenchPhase::Replay), ..short_options() };
    let report = surehook_bench::run(options).await?;
    let BenchResults::Replay(replay) = &report.results else { bail!("{report:?}") };
    ensure!(replay.baseline.events > 0 && replay.with_job.events > 0, "{replay:?}");
    ensure!(replay.p99_ratio > 0.0, "{replay:?}");
    ensure!(report.to_table().contains("with a replay job"), "{}", report.to_table());
    Ok(())
}

/// The stand-in has no rate limit, so only the form of the result is checked.
async fn rate_limit_is_compared_with_the_delivered_rate() -> Result<()> {
    let options = BenchOptions { only: Some(BenchPhase::RateLimit), ..short_options() };
    let report = surehook_bench::run(options).await?;
    let BenchResults::RateLimit(rate_limit) = &report.results else { bail!("{report:?}") };
    ensure!(
        rate_limit.share_of_rate_limit > 1.0 && rate_limit.deliveries_per_second_rounds.len() == 1,
        "{rate_limit:?}"
    );
    ensure!(report.to_table().contains("rate / limit"), "{}", report.to_table());
    ensure!(report.to_json().contains("\"rate_limit\""), "{}", report.to_json());
    Ok(())
}

async fn growth_compares_a_filled_store_with_an_empty_one() -> Result<()> {
    let store = tempfile::tempdir()?;
    let filled_store = Some(store.path().join("store"));
    let only = Some(BenchPhase::Growth);
    let options =
        BenchOptions { only, stored_events: 1_001, filled_store, rounds: 2, ..short_options() };
    let report = surehook_bench::run(options.clone()).await?;
    let BenchResults::Growth(growth) = &report.results else { bail!("{report:?}") };
    ensure!(growth.stored_events == 1_001 && growth.anonymous_peak_bytes.is_some(), "{growth:?}");
    for rates in [&growth.receive, &growth.delivered] {
        let rounds = [&rates.empty_per_second_rounds, &rates.filled_per_second_rounds];
        ensure!(rates.ratio > 0.0 && rounds.iter().all(|rounds| rounds.len() == 2), "{growth:?}");
    }
    ensure!(report.to_table().contains("in and delivered"), "{}", report.to_table());
    ensure!(report.to_json().contains("\"growth\""), "{}", report.to_json());

    // The store is kept: a run that wants fewer events does not fill it again.
    let report = surehook_bench::run(BenchOptions { stored_events: 10, ..options }).await?;
    let BenchResults::Growth(growth) = &report.results else { bail!("{report:?}") };
    ensure!(growth.stored_events == 1_001, "{growth:?}");
    Ok(())
}
