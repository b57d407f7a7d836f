//! All commands and their arguments. The doc comments are the help texts and docs/reference/cli.md.

mod event_search;
mod evolution;
mod local;
mod manage;
mod quarantine;
#[cfg(test)]
mod reference;
mod replay;
mod send;
mod signature;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ColorChoice, Parser, Subcommand};
use surehook_bench::{BenchPhase, SinkMode};

pub(crate) use self::replay::{
    ReplayCommand, ReplayCreateArgs, ReplayFilterArgs, ReplayJobArgs, ReplayRunArgs,
};
pub(crate) use self::{
    event_search::{EventAttributeArgs, EventSearchArgs},
    evolution::{
        ConnectArgs, EvolutionCommand, EvolutionProduct, InstanceArgs, ProxyArgs, ProxyCommand,
    },
    local::{
        BackupArgs, CompletionsArgs, ConfigCommand, DataArgs, DoctorArgs, ManPageArgs, RestoreArgs,
    },
    manage::{
        ApplyArgs, ConfigFormat, DiffArgs, ExportArgs, RoutesCommand, SendTestArgs, TokenCommand,
    },
    quarantine::QuarantineCommand,
    send::{MessageContentArgs, SendArgs},
    signature::{RequestArgs, SignArgs, VerifyArgs},
};

/// A webhook gateway: receives, deduplicates, stores and delivers events, with retries and a full
/// history
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Options of every command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// When to use colors; `auto` respects `NO_COLOR` and `CLICOLOR_FORCE`
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// Print only results and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    Serve(ServeArgs),
    /// Apply sources, destinations and routes from a file to a running gateway
    Apply(ApplyArgs),
    /// Preview what `apply` would change; exit code 9 if there are changes
    Diff(DiffArgs),
    /// Print the configuration as a file for `apply`
    Export(ExportArgs),
    /// List and inspect events
    #[command(subcommand)]
    Events(EventsCommand),
    /// List and replay dead letters
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// List incoming requests
    #[command(subcommand)]
    Requests(RequestsCommand),
    /// List, release or discard quarantined requests
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// Replay many deliveries as a background job
    #[command(subcommand)]
    Replay(ReplayCommand),
    /// List sources
    #[command(subcommand)]
    Sources(SourcesCommand),
    /// List, pause, resume and probe destinations
    #[command(subcommand)]
    Destinations(DestinationsCommand),
    /// Test filters and transforms of routes
    #[command(subcommand)]
    Routes(RoutesCommand),
    /// Send a message or a webhook through a destination
    Send(Box<SendArgs>),
    /// Send signed, realistic test events to a source
    SendTest(SendTestArgs),
    /// Check whether a request would be accepted, and what would be stored
    Verify(VerifyArgs),
    /// Print the signature headers that a provider would send for a body
    Sign(SignArgs),
    /// Manage instances of Evolution Go and Evolution API
    #[command(subcommand)]
    Evolution(EvolutionCommand),
    /// Manage API tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Diagnose problems with settings, data folder and destinations; exit code 8 if there are any
    Doctor(DoctorArgs),
    /// Back up the database to a file, even while the gateway runs
    Backup(BackupArgs),
    /// Restore the database from a backup; the gateway must be stopped
    Restore(RestoreArgs),
    /// Show and check settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a shell completion script
    Completions(CompletionsArgs),
    /// Print or write manual pages
    Man(ManPageArgs),
    /// Print the OpenAPI 3.1 document of the API
    Openapi,
    /// Benchmark this machine: a bare server, and the gateway
    Bench(BenchArgs),
    /// Bare server used by the benchmark
    #[command(hide = true)]
    BenchLimit {
        #[arg(long)]
        listen: SocketAddr,
    },
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

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Settings file [default: surehook.toml, if it exists]
    #[arg(long, env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder [default: data]
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long)]
    pub(crate) listen: Option<SocketAddr>,
}

/// The gateway that a command talks to.
#[derive(Clone, Debug, Args)]
pub(crate) struct GatewayArgs {
    /// URL of the gateway
    #[arg(long, env = "SUREHOOK_SERVER", default_value = "http://127.0.0.1:8080")]
    pub(crate) server: String,
    /// API token
    #[arg(long, env = "SUREHOOK_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Read this data folder directly instead, without a gateway or token
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// One page of a list.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageArgs {
    /// Maximum number of rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Continue after this cursor (`next_cursor` of the previous page)
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// List events, newest first
    List {
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        /// Filter by current deduplication key; at most one event per source
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        attributes: EventAttributeArgs,
        #[command(flatten)]
        search: Box<EventSearchArgs>,
        #[command(flatten)]
        paging: PageArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Show an event with its deliveries and timeline
    Show {
        /// Event id
        id: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Print the body of an event or delivery, secrets masked
    Body {
        /// Event or delivery id
        id: String,
        /// Print the exact bytes, including secrets (role operator)
        #[arg(long)]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// List the duplicates of an event, or compare one with the event
    Duplicates {
        /// Event id
        id: String,
        /// Number of the duplicate to compare
        n: Option<u32>,
        /// Compare the exact bytes, including secrets (role operator)
        #[arg(long, requires = "n")]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Deliver a duplicate anyway, as a new event; works once per duplicate
    #[command(mut_arg("data", |data| data.hide(true)))]
    DeliverAnyway {
        /// Id of the original event
        id: String,
        /// Number of the duplicate, from `events duplicates`
        n: u32,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Follow new events until interrupted
    #[command(mut_arg("data", |data| data.hide(true)))]
    Tail {
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List dead letters, newest first
    List {
        /// Filter by destination
        #[arg(long)]
        destination: Option<String>,
        /// Filter by reason
        #[arg(long)]
        reason: Option<String>,
        /// Filter by event kind
        #[arg(long)]
        kind: Option<String>,
        /// Filter by dead letter group
        #[arg(long)]
        group: Option<String>,
        #[command(flatten)]
        paging: PageArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// List groups of dead letters by cause, most recent first
    Groups {
        /// Filter by destination
        #[arg(long)]
        destination: Option<String>,
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        paging: PageArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Show a delivery with its attempts
    Show {
        /// Delivery id
        id: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Count dead letters by reason
    Stats {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Replay dead letters: by id, or all that match a filter as a job
    #[command(mut_arg("data", |data| data.hide(true)))]
    Replay {
        /// Delivery ids; without ids, all dead letters that match the filter
        ids: Vec<String>,
        #[command(flatten)]
        filter: ReplayFilterArgs,
        #[command(flatten)]
        run: ReplayRunArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestsCommand {
    /// List accepted, duplicate and refused requests, newest first
    List {
        /// Filter by outcome: accepted, duplicate or refused
        #[arg(long)]
        outcome: Option<String>,
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        /// Filter by reason of refusal
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        paging: PageArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SourcesCommand {
    /// List sources and whether they verify signatures
    List {
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationsCommand {
    /// List destinations and their health
    List {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Pause deliveries to a destination
    #[command(mut_arg("data", |data| data.hide(true)))]
    Pause {
        /// Destination name or id
        name: String,
        /// Reason (visible to your team)
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Resume deliveries to a destination
    #[command(mut_arg("data", |data| data.hide(true)))]
    Resume {
        /// Destination name or id
        name: String,
        /// Rate limit for the backlog, such as 100/s
        #[arg(long)]
        rate: Option<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Attempt the next due delivery now, even if the destination is paused or its circuit is open
    #[command(mut_arg("data", |data| data.hide(true)))]
    Probe {
        /// Destination name or id
        name: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Duration of each phase of each round, in seconds
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Number of rounds; the median is reported
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Sending connections
    #[arg(long, default_value_t = 256)]
    pub(crate) connections: usize,
    /// Size of each body, in bytes
    #[arg(long, default_value_t = 1024)]
    pub(crate) body_bytes: usize,
    /// Run only this phase: limit, in, duplicates, delivered, backlog, isolation, replay, whatsapp, dashboard
    #[arg(long)]
    pub(crate) only: Option<BenchPhase>,
    /// Events in the backlog phase
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) backlog_events: u64,
    /// Events stored for the dashboard phase
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) dashboard_events: u64,
    /// How often the dashboard phase opens each page
    #[arg(long, default_value_t = 100)]
    pub(crate) page_samples: u64,
    /// Data folder of the gateway under test [default: a temporary folder]
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_definitions_are_valid() {
        Cli::command().debug_assert();
    }
}
