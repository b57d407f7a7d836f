//! The commands.

mod apply;
mod backup;
mod bench;
mod check;
mod config;
mod destinations;
mod dlq;
mod doctor;
mod duplicates;
mod events;
mod evolution;
mod export;
mod files;
mod quarantine;
mod replay;
mod requests;
mod restore;
mod routes;
mod send;
mod send_test;
pub(crate) mod serve;
mod shell;
mod signature;
mod sources;
mod timing;
mod token;

use crate::{
    cli::{Cli, Command},
    error::CliError,
};

#[expect(clippy::cognitive_complexity, reason = "one line per command")]
pub(crate) async fn run(cli: Cli) -> Result<(), CliError> {
    match cli.command {
        Command::Serve(args) => serve::run(&args).await,
        Command::Apply(args) => apply::run(&args).await,
        Command::Diff(args) => apply::diff(args).await,
        Command::Export(args) => export::run(&args).await,
        Command::Events(command) => events::run(command).await,
        Command::Dlq(command) => dlq::run(command).await,
        Command::Requests(command) => requests::run(command).await,
        Command::Quarantine(command) => quarantine::run(command).await,
        Command::Replay(command) => replay::run(command).await,
        Command::Sources(command) => sources::run(command).await,
        Command::Destinations(command) => destinations::run(command).await,
        Command::Routes(command) => routes::run(command).await,
        Command::Send(args) => send::run(&args).await,
        Command::SendTest(args) => send_test::run(&args).await,
        Command::Verify(args) => signature::verify(&args),
        Command::Sign(args) => signature::sign(&args),
        Command::Evolution(command) => evolution::run(command).await,
        Command::Token(command) => token::run(command).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Backup(args) => backup::run(&args).await,
        Command::Restore(args) => restore::run(&args),
        Command::Config(command) => config::run(&command),
        Command::Completions(args) => shell::print_completions(&args),
        Command::Man(args) => shell::print_man_pages(&args),
        Command::Openapi => shell::print_openapi(),
        Command::Bench(args) => bench::run(args).await,
        Command::BenchLimit { listen } => Ok(surehook_bench::limit_server(listen).await?),
        Command::BenchSink { listen, mode } => Ok(surehook_bench::sink_server(listen, mode).await?),
    }
}
