//! `surehook bench`: this very binary, measured.

use std::net::SocketAddr;

use surehook_bench::{Options, Phase, SinkMode};

use crate::{
    cli::{BenchArgs, BenchPhase},
    failure::Failure,
    output,
};

pub(super) async fn run(args: BenchArgs) -> Result<(), Failure> {
    let mut options = Options::new(std::env::current_exe()?);
    options.seconds = args.seconds;
    options.rounds = args.rounds;
    options.connections = args.connections;
    options.body_bytes = args.body_bytes;
    options.backlog_events = args.backlog_events;
    options.json = args.json;
    options.folder = args.folder;
    options.only = args.only.map(|phase| match phase {
        BenchPhase::Limit => Phase::Limit,
        BenchPhase::In => Phase::In,
        BenchPhase::Duplicates => Phase::Duplicates,
        BenchPhase::Delivered => Phase::Delivered,
        BenchPhase::Backlog => Phase::Backlog,
        BenchPhase::Isolation => Phase::Isolation,
    });
    let json = args.json;
    let report = surehook_bench::run(options).await?;
    let text = if json { serde_json::to_string(&report)? } else { report.to_string() };
    Ok(output::line(&text)?)
}

pub(super) async fn sink(listen: SocketAddr, hang: bool) -> Result<(), Failure> {
    let mode = if hang { SinkMode::Hang } else { SinkMode::Answer };
    Ok(surehook_bench::sink_server(listen, mode).await?)
}
