//! `surehook bench`: benchmarks this binary.

use surehook_bench::BenchOptions;

use crate::{cli::BenchArgs, error::CliError, output};

pub(super) async fn run(args: BenchArgs) -> Result<(), CliError> {
    let mut options = BenchOptions::new(std::env::current_exe()?);
    options.seconds = args.seconds;
    options.rounds = args.rounds;
    options.connections = args.connections;
    options.body_bytes = args.body_bytes;
    options.backlog_events = args.backlog_events;
    options.dashboard_events = args.dashboard_events;
    options.page_samples = args.page_samples;
    options.json = args.json;
    options.folder = args.folder;
    options.only = args.only;
    let report = surehook_bench::run(options).await?;
    Ok(output::print_line(&report.to_string())?)
}
