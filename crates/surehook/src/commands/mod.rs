//! The commands, one file each.

mod apply;
mod bench;
mod destinations;
mod dlq;
mod events;
mod replay;
mod requests;
mod serve;

use crate::{
    cli::{Cli, Command},
    failure::Failure,
    output,
};

/// Does what was asked.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(&args).await,
        Command::Apply(args) => apply::run(&args).await,
        Command::Events(command) => events::run(command).await,
        Command::Dlq(command) => dlq::run(command).await,
        Command::Requests(command) => requests::run(command).await,
        Command::Replay(command) => replay::run(command).await,
        Command::Destinations(command) => destinations::run(command).await,
        Command::Openapi => Ok(output::line(surehook_http::openapi_document().trim_end())?),
        Command::Bench(args) => bench::run(args).await,
        Command::BenchLimit { listen } => Ok(surehook_bench::limit_server(listen).await?),
        Command::BenchSink { listen, mode } => Ok(surehook_bench::sink_server(listen, mode).await?),
    }
}
