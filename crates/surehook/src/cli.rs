//! Every command and flag.

mod evolution;
mod local;
mod look;
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
use surehook_core::attribute::AttributeName;

pub(crate) use self::replay::{CreateArgs, FilterArgs, JobArgs, ReplayCommand, RunArgs};
pub(crate) use self::{
    evolution::{ConnectArgs, EvolutionCommand, InstanceArgs, Product, ProxyArgs, ProxyCommand},
    local::{BackupArgs, CompletionsArgs, ConfigCommand, DoctorArgs, ManArgs, Place, RestoreArgs},
    look::{FoundArgs, RoutesCommand},
    manage::{ApplyArgs, DiffArgs, ExportArgs, Format, SendTestArgs, TokenCommand},
    quarantine::QuarantineCommand,
    send::{ContentArgs, SendArgs},
    signature::{RequestArgs, SignArgs, VerifyArgs},
};

/// A webhook gateway: every event arrives, none runs twice by our fault, and nothing disappears
/// without a row that says why.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) look: Look,
}

/// How every command prints.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Look {
    /// When to use colours; `NO_COLOR` and `CLICOLOR_FORCE` count while this is `auto`
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// Print what was asked for and errors, nothing else
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    Serve(ServeArgs),
    /// Create and update the sources, destinations and routes of a file in a running gateway
    Apply(ApplyArgs),
    /// Say what `apply` would change; exit code 9 if there is something
    Diff(DiffArgs),
    /// Print the sources, destinations and routes as a file that `apply` takes
    Export(ExportArgs),
    /// Look at events
    #[command(subcommand)]
    Events(EventsCommand),
    /// Look at dead letters and replay them
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Look at what came to the door
    #[command(subcommand)]
    Requests(RequestsCommand),
    /// Look at requests that did not verify and are kept, and release them
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// Deliver again in bulk, as jobs
    #[command(subcommand)]
    Replay(ReplayCommand),
    /// Look at sources
    #[command(subcommand)]
    Sources(SourcesCommand),
    /// Look at destinations, pause and resume them
    #[command(subcommand)]
    Destinations(DestinationsCommand),
    /// Try what routes do
    #[command(subcommand)]
    Routes(RoutesCommand),
    /// Send a message or a webhook through a destination
    Send(Box<SendArgs>),
    /// Send signed, realistic test events to a source of a running gateway
    SendTest(SendTestArgs),
    /// Say whether a request would be let in, or why not, and what would become of it
    Verify(VerifyArgs),
    /// Print the headers that a provider would sign a body with
    Sign(SignArgs),
    /// Look after the instances of Evolution Go and Evolution API that messages are sent through
    #[command(subcommand)]
    Evolution(EvolutionCommand),
    /// Give people and programs access to the API
    #[command(subcommand)]
    Token(TokenCommand),
    /// Look for what is wrong or soon will be; exit code 8 if there is something
    Doctor(DoctorArgs),
    /// Copy the whole database into one file, also while the gateway runs
    Backup(BackupArgs),
    /// Put a backup in the place of the database of a gateway that does not run
    Restore(RestoreArgs),
    /// Look at the settings of `serve`
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print what makes a shell complete this command
    Completions(CompletionsArgs),
    /// Print or write manual pages
    Man(ManArgs),
    /// Print the description of the API (OpenAPI 3.1)
    Openapi,
    /// Measure this machine: a bare server, and the gateway against it
    Bench(BenchArgs),
    /// The bare server that the benchmark measures against
    #[command(hide = true)]
    BenchLimit {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// The destination that the benchmark delivers to
    #[command(hide = true)]
    BenchSink {
        #[arg(long)]
        listen: SocketAddr,
        /// What it does with an event: `answer` or `hang`
        #[arg(long, default_value = "answer")]
        mode: SinkMode,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Settings file [default: surehook.toml, if it is there]
    #[arg(long, env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Folder for the data [default: data]
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long)]
    pub(crate) listen: Option<SocketAddr>,
}

/// Which gateway a command talks to.
#[derive(Clone, Debug, Args)]
pub(crate) struct Remote {
    /// Address of the gateway
    #[arg(long, env = "SUREHOOK_SERVER", default_value = "http://127.0.0.1:8080")]
    pub(crate) server: String,
    /// Token for it
    #[arg(long, env = "SUREHOOK_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Look straight into this data folder instead, without a gateway and without a token
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which part of a list.
#[derive(Clone, Debug, Args)]
pub(crate) struct Paging {
    /// At most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Go on after this one (the `next_cursor` of the page before)
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// The newest events
    List {
        /// Only of this source
        #[arg(long)]
        source: Option<String>,
        /// Only those that have this dedup key now: one of each source at most
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        about: AboutArgs,
        #[command(flatten)]
        found: Box<FoundArgs>,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        remote: Remote,
    },
    /// One event with its deliveries
    Show {
        /// The event's id
        id: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// The body of an event, or of a delivery, with its secrets masked
    Body {
        /// The event's id, or the delivery's
        id: String,
        /// Every byte as it is stored, secrets too (role operator)
        #[arg(long)]
        exact: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// When an event came again, or what differs in one of these duplicates
    Duplicates {
        /// The event's id
        id: String,
        /// The duplicate's number: tell what differs in it
        n: Option<u32>,
        /// Compare every byte as it is stored, secrets too (role operator)
        #[arg(long, requires = "n")]
        exact: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Deliver a duplicate that is none, as an event of its own; once for each
    #[command(mut_arg("data", |data| data.hide(true)))]
    DeliverAnyway {
        /// The id of the event that it was taken for
        id: String,
        /// The duplicate's number, as `events duplicates` shows it
        n: u32,
        #[command(flatten)]
        remote: Remote,
    },
    /// Events as they come in, until interrupted
    #[command(mut_arg("data", |data| data.hide(true)))]
    Tail {
        /// Only of this source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
}

/// What an event is about.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AboutArgs {
    /// Only of this kind, such as message
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only from or to this phone, in any form
    #[arg(long)]
    pub(crate) phone: Option<String>,
    /// Only with this attribute, such as `message_id=wamid.A`; may be given for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attribute: Vec<(&'static str, String)>,
}

impl AboutArgs {
    /// As the API takes it.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, Option<&str>)> {
        let some = self.attribute.iter().map(|(name, value)| (*name, Some(value.as_str())));
        let named = [("kind", self.kind.as_deref()), ("phone", self.phone.as_deref())];
        named.into_iter().chain(some).collect()
    }
}

fn attribute(text: &str) -> Result<(&'static str, String), String> {
    let known = || AttributeName::ALL.map(AttributeName::as_str).join(", ");
    let pair = text.split_once('=');
    let (word, value) = pair.ok_or("expected a name, = and a value, such as message_id=wamid.A")?;
    let name =
        AttributeName::parse(word).ok_or_else(|| format!("the name is one of {}", known()))?;
    Ok((name.as_str(), value.to_owned()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// The newest dead letters
    List {
        /// Only to this destination
        #[arg(long)]
        destination: Option<String>,
        /// Only for this reason
        #[arg(long)]
        reason: Option<String>,
        /// Only of events of this kind
        #[arg(long)]
        kind: Option<String>,
        /// Only of this group
        #[arg(long)]
        group: Option<String>,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        remote: Remote,
    },
    /// By what they died of, the group that grew last first
    Groups {
        /// Only to this destination
        #[arg(long)]
        destination: Option<String>,
        /// Only with events of this source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        remote: Remote,
    },
    /// One delivery with all its attempts
    Show {
        /// The delivery's id
        id: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// How many died, by reason
    Stats {
        #[command(flatten)]
        remote: Remote,
    },
    /// Deliver again: these, or all that match as a job
    #[command(mut_arg("data", |data| data.hide(true)))]
    Replay {
        /// The deliveries' ids; without any, a job for all dead letters that match
        ids: Vec<String>,
        #[command(flatten)]
        filter: FilterArgs,
        #[command(flatten)]
        run: RunArgs,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestsCommand {
    /// Requests, newest first: accepted ones, duplicates, and a sample of the refused
    List {
        /// Only accepted, duplicate or refused ones
        #[arg(long)]
        outcome: Option<String>,
        /// Only for this source
        #[arg(long)]
        source: Option<String>,
        /// Only refused for this reason
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SourcesCommand {
    /// All sources, and whether what comes in is verified
    List {
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationsCommand {
    /// All destinations and how they do
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Deliver nothing more until it is resumed
    #[command(mut_arg("data", |data| data.hide(true)))]
    Pause {
        /// The destination's name or id
        name: String,
        /// Why, for others to read
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Go on with what waits
    #[command(mut_arg("data", |data| data.hide(true)))]
    Resume {
        /// The destination's name or id
        name: String,
        /// No faster than this until what waits now is delivered, such as 100/s
        #[arg(long)]
        rate: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Try the delivery that is due first, also while it is paused or its circuit is open
    #[command(mut_arg("data", |data| data.hide(true)))]
    Probe {
        /// The destination's name or id
        name: String,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Seconds for each phase of each round
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Connections that send
    #[arg(long, default_value_t = 256)]
    pub(crate) connections: usize,
    /// Size of each body
    #[arg(long, default_value_t = 1024)]
    pub(crate) body_bytes: usize,
    /// Only this one: limit, in, duplicates, delivered, backlog, isolation, replay, whatsapp, dashboard
    #[arg(long)]
    pub(crate) only: Option<BenchPhase>,
    /// Events in the backlog phase
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) backlog_events: u64,
    /// Events in the store of the dashboard phase
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) dashboard_events: u64,
    /// How often the dashboard phase opens each page
    #[arg(long, default_value_t = 100)]
    pub(crate) page_samples: u64,
    /// Where the gateway under test keeps its data [default: a temporary folder]
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
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }
}
