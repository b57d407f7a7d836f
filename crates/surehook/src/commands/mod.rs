//! The commands, one module each: its arguments and what it does.

mod alerts;
mod apply;
mod backup;
mod check;
mod clock;
mod config;
mod demo;
mod destinations;
mod dlq;
mod doctor;
mod duplicates;
mod events;
mod evolution;
mod export;
mod files;
mod generated_documents;
mod healthcheck;
mod idempotency;
mod init;
mod list;
mod listen;
mod mcp;
mod migrate;
mod nodes;
mod quarantine;
mod reload;
mod replay;
mod requests;
mod restore;
mod routes;
mod secret_key;
mod send;
mod send_test;
pub(crate) mod serve;
mod signature;
mod simulate;
mod sources;
mod timing;
mod token;
mod what_if;

use std::net::SocketAddr;

use anyhow::anyhow;
use clap::Subcommand;
use surehook_bench::{BenchOptions, SinkMode};
use surehook_store::postgres::remove_benchmark;

use self::serve::ServeArgs;
use crate::{
    backend::{database_error, postgres_options},
    cli::Cli,
    error::CliError,
    output,
    settings::Settings,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    Serve(ServeArgs),
    /// Write a commented settings file for a provider
    Init(init::InitArgs),
    /// Run a gateway with realistic traffic, an outage and duplicates, to look at
    Demo(demo::DemoArgs),
    /// Apply sources, destinations and routes from a file to a running gateway
    Apply(apply::ApplyArgs),
    /// Preview what `apply` would change; exit code 9 if there are changes
    Diff(apply::DiffArgs),
    /// Apply the settings file of a running gateway again, as SIGHUP does
    Reload(reload::ReloadArgs),
    /// Print the configuration as a file for `apply`
    Export(export::ExportArgs),
    /// List and inspect events
    #[command(subcommand)]
    Events(events::EventsCommand),
    /// List and replay dead letters
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// List incoming requests
    #[command(subcommand)]
    Requests(requests::RequestsCommand),
    /// List, release or discard quarantined requests
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// List, inspect and release keys of the idempotency service
    #[command(subcommand)]
    Idempotency(idempotency::IdempotencyCommand),
    /// Replay many deliveries as a background job
    #[command(subcommand)]
    Replay(replay::ReplayCommand),
    /// List sources
    #[command(subcommand)]
    Sources(sources::SourcesCommand),
    /// List, pause, resume and probe destinations
    #[command(subcommand)]
    Destinations(destinations::DestinationsCommand),
    /// Test filters and transforms of routes
    #[command(subcommand)]
    Routes(routes::RoutesCommand),
    /// Send a message or a webhook through a destination
    Send(Box<send::SendArgs>),
    /// Send signed, realistic test events to a source
    SendTest(send_test::SendTestArgs),
    /// Check whether a request would be accepted, and what would be stored
    Verify(signature::VerifyArgs),
    /// Print the signature headers that a provider would send for a body
    Sign(signature::SignArgs),
    /// Forward events of a gateway to a program on this machine, and report its answers
    Listen(Box<listen::ListenArgs>),
    /// Let an AI assistant ask the gateway: an MCP server on standard input and output
    Mcp(mcp::McpArgs),
    /// Manage instances of Evolution Go and Evolution API
    #[command(subcommand)]
    Evolution(evolution::EvolutionCommand),
    /// Manage API tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Show whether the gateway trusts its clock, or confirm it
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// List alerts, and test alert channels
    #[command(subcommand)]
    Alerts(alerts::AlertsCommand),
    /// List the nodes that use the store, with what they own
    Nodes(nodes::NodesArgs),
    /// Diagnose problems with settings, data folder or database, and destinations; exit code 8 if there are any
    Doctor(doctor::DoctorArgs),
    /// Check whether the gateway on this machine takes requests; for containers
    Healthcheck(healthcheck::HealthcheckArgs),
    /// Back up the database to a file, even while the gateway runs
    Backup(backup::BackupArgs),
    /// Restore the database from a backup; the gateway must be stopped
    Restore(restore::RestoreArgs),
    /// Move everything from a data folder to PostgreSQL, or back
    Migrate(migrate::MigrateArgs),
    /// Create or rotate the key that secrets in the database are encrypted with
    #[command(subcommand)]
    SecretKey(secret_key::SecretKeyCommand),
    /// Show and check settings
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a shell completion script
    Completions(generated_documents::CompletionsArgs),
    /// Print or write manual pages
    Man(generated_documents::ManPageArgs),
    /// Print the OpenAPI 3.1 document of the API
    Openapi,
    /// Compare retry policies on a virtual clock, against modelled destinations
    Simulate(simulate::SimulateArgs),
    /// Predict what other settings would have done with a destination's recorded deliveries
    WhatIf(Box<what_if::WhatIfArgs>),
    /// Benchmark this machine: a bare server, and the gateway
    Bench(BenchOptions),
    /// Bare server used by the benchmark
    #[command(hide = true)]
    BenchLimit {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Removes the tables of a benchmark
    #[command(hide = true)]
    BenchCleanup,
    /// Destination used by the benchmark
    #[command(hide = true)]
    BenchSink {
        #[arg(long)]
        listen: SocketAddr,
        /// Response to an event: `answer` or `hang`
        #[arg(long, default_value = "answer")]
        mode: SinkMode,
    },
}

#[expect(clippy::cognitive_complexity, reason = "one line per command")]
pub(crate) async fn run(cli: Cli) -> Result<(), CliError> {
    match cli.command {
        Command::Serve(args) => serve::run(&args).await,
        Command::Init(args) => init::run(&args),
        Command::Demo(args) => demo::run(&args).await,
        Command::Apply(args) => apply::run(&args).await,
        Command::Diff(args) => apply::diff(args).await,
        Command::Reload(args) => reload::run(&args).await,
        Command::Export(args) => export::run(&args).await,
        Command::Events(command) => events::run(command).await,
        Command::Dlq(command) => dlq::run(command).await,
        Command::Requests(command) => requests::run(command).await,
        Command::Quarantine(command) => quarantine::run(command).await,
        Command::Idempotency(command) => idempotency::run(command).await,
        Command::Replay(command) => replay::run(command).await,
        Command::Sources(command) => sources::run(command).await,
        Command::Destinations(command) => destinations::run(command).await,
        Command::Routes(command) => routes::run(command).await,
        Command::Send(args) => send::run(&args).await,
        Command::SendTest(args) => send_test::run(&args).await,
        Command::Verify(args) => signature::verify(&args),
        Command::Sign(args) => signature::sign(&args),
        Command::Listen(args) => listen::run(&args).await,
        Command::Mcp(args) => mcp::run(&args).await,
        Command::Evolution(command) => evolution::run(command).await,
        Command::Token(command) => token::run(command).await,
        Command::Clock(command) => clock::run(command).await,
        Command::Alerts(command) => alerts::run(command).await,
        Command::Nodes(args) => nodes::run(&args).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Healthcheck(args) => healthcheck::run(&args).await,
        Command::Backup(args) => backup::run(&args).await,
        Command::Restore(args) => restore::run(&args),
        Command::Migrate(args) => migrate::run(&args).await,
        Command::SecretKey(command) => secret_key::run(&command).await,
        Command::Config(command) => config::run(&command).await,
        Command::Completions(args) => generated_documents::print_completions(&args),
        Command::Man(args) => generated_documents::print_man_pages(&args),
        Command::Openapi => generated_documents::print_openapi(),
        Command::Simulate(args) => simulate::run(&args),
        Command::WhatIf(args) => what_if::run(&args).await,
        Command::Bench(args) => bench(args).await,
        Command::BenchCleanup => clean_up_bench().await,
        Command::BenchLimit { listen } => Ok(surehook_bench::run_limit_server(listen).await?),
        Command::BenchSink { listen, mode } => Ok(surehook_bench::run_sink(listen, mode).await?),
    }
}

async fn bench(options: BenchOptions) -> Result<(), CliError> {
    let as_json = options.json;
    let report = surehook_bench::run(options).await?;
    output::print_line(if as_json { report.to_json() } else { report.to_table() })
}

async fn clean_up_bench() -> Result<(), CliError> {
    let settings = Settings::load(&ServeArgs::default()).map_err(CliError::settings)?;
    let database =
        settings.database.as_ref().ok_or_else(|| CliError::settings(anyhow!("no database")))?;
    let options = postgres_options(&settings, database)?;
    remove_benchmark(&options).await.map_err(database_error)
}

/// Runs `act` for each id. A failure does not keep the others from being tried; the first one is
/// reported at the end, after `message`.
async fn for_each_id(
    ids: &[String],
    message: &str,
    act: impl AsyncFn(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut failed = None;
    for id in ids {
        match act(id).await {
            Ok(()) => {}
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => failed = failed.or(Some((id, failure))),
        }
    }
    match failed {
        None => Ok(()),
        Some((id, failure)) => Err(CliError::partial(anyhow!("{message}; {id}: {failure}"))),
    }
}
