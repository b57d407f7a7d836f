//! Arguments of commands that configure a gateway: apply, diff, export, tokens, routes, test events.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use surehook_core::access::Role;
use surehook_retry::rate::Rate;
use surehook_types::time::HumanDuration;

use super::GatewayArgs;

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct ApplyArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Delete resources that the file does not contain; pending deliveries of deleted destinations are
    /// cancelled
    #[arg(long)]
    pub(crate) prune: bool,
    /// Only show what would change; exit code 9 if there are changes
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct DiffArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Include deletions of resources that the file does not contain
    #[arg(long)]
    pub(crate) prune: bool,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigFormat {
    Toml,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Output format
    #[arg(long, default_value = "toml")]
    pub(crate) format: ConfigFormat,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; it is shown only once
    #[command(mut_arg("data", |data| data.hide(true)))]
    Create {
        /// Role: `viewer` reads, `operator` also replays and pauses, `admin` does everything
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Name of the token
        #[arg(long)]
        name: Option<String>,
        /// Token lifetime, such as `30d` [default: unlimited]
        #[arg(long, value_name = "SPAN")]
        expires: Option<HumanDuration>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// List tokens
    #[command(mut_arg("data", |data| data.hide(true)))]
    List {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Create a one-time login link for the dashboard
    #[command(mut_arg("data", |data| data.hide(true)))]
    Link {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Revoke tokens immediately
    #[command(mut_arg("data", |data| data.hide(true)))]
    Revoke {
        /// Token ids (`tok_…`)
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct SendTestArgs {
    /// Source name, or a provider with exactly one source
    #[arg(value_name = "SOURCE|PRESET")]
    pub(crate) source_or_preset: String,
    /// Source, if the provider has several
    #[arg(long, value_name = "SOURCE")]
    pub(crate) to: Option<String>,
    /// Event kind [default: one of each]
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// List the available kinds and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// Send this file as the body; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// Number of events per kind
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// Rate limit, such as 50/s
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
    /// Seed for reproducible ids and bodies
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Send each event twice, to test deduplication
    #[arg(long)]
    pub(crate) dup: bool,
    /// Send invalid signatures, to test that they are refused
    #[arg(long)]
    pub(crate) bad_sig: bool,
    /// Secret of the source, for signing; not needed if the source uses `env:NAME` and NAME is set
    /// here
    #[arg(long, env = "SUREHOOK_SECRET", hide_env_values = true)]
    pub(crate) secret: Option<String>,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RoutesCommand {
    /// Test a filter and a transform on an event; changes and sends nothing
    #[command(mut_arg("data", |data| data.hide(true)))]
    Try {
        /// Filter in jq
        #[arg(long, required_unless_present = "transform")]
        filter: Option<String>,
        /// Transform in jq
        #[arg(long)]
        transform: Option<String>,
        /// Event whose body is used
        #[arg(long, value_name = "ID", conflicts_with = "body")]
        event: Option<String>,
        /// File to use as the body instead; `-` reads standard input
        #[arg(long, value_name = "FILE", required_unless_present = "event")]
        body: Option<PathBuf>,
        /// Use the event's body with its secrets (role operator)
        #[arg(long, requires = "event")]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}
