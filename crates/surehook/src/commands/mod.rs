//! The commands, one file each.

mod apply;
mod bench;
mod dlq;
mod events;
mod serve;

use crate::{
    cli::{Cli, Command},
    failure::Failure,
};

/// Does what was asked.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(&args).await,
        Command::Apply(args) => apply::run(&args).await,
        Command::Events(command) => events::run(command).await,
        Command::Dlq(command) => dlq::run(command).await,
        Command::Bench(args) => bench::run(args).await,
        Command::BenchLimit { listen } => Ok(surehook_bench::limit_server(listen).await?),
        Command::BenchSink { listen, hang } => bench::sink(listen, hang).await,
    }
}
