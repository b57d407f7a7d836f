//! Commands that configure a gateway, and who may use it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use surehook_core::lane::Rate;
use surehook_core::{access::Role, time::HumanDuration};

use super::Remote;

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct ApplyArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Delete what the file does not name. What a deleted destination is still owed is cancelled
    #[arg(long)]
    pub(crate) prune: bool,
    /// Say what would change, and change nothing; exit code 9 if there is something
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct DiffArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Count what the file does not name as to be deleted
    #[arg(long)]
    pub(crate) prune: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// How a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Toml,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// How it is written
    #[arg(long, default_value = "toml")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and show it, once
    #[command(mut_arg("data", |data| data.hide(true)))]
    Create {
        /// What it may do: `viewer` looks, `operator` replays and pauses as well, `admin` everything
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// What it is for
        #[arg(long)]
        name: Option<String>,
        /// After which time it opens nothing, such as `30d` [default: never]
        #[arg(long, value_name = "SPAN")]
        expires: Option<HumanDuration>,
        #[command(flatten)]
        remote: Remote,
    },
    /// All tokens, without what is sent
    #[command(mut_arg("data", |data| data.hide(true)))]
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Make a link that signs in to the dashboard, once
    #[command(mut_arg("data", |data| data.hide(true)))]
    Link {
        #[command(flatten)]
        remote: Remote,
    },
    /// Take tokens away, at once
    #[command(mut_arg("data", |data| data.hide(true)))]
    Revoke {
        /// The tokens' ids (`tok_…`)
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct SendTestArgs {
    /// A source's name, or a provider's: then the source of it, if there is only one
    #[arg(value_name = "SOURCE|PRESET")]
    pub(crate) what: String,
    /// The source, where several are of the provider
    #[arg(long, value_name = "SOURCE")]
    pub(crate) to: Option<String>,
    /// Only events of this kind [default: one of each]
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Name the kinds and send nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Send this file instead of an event made up; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// How many events of each kind
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// No faster than this, such as 50/s
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
    /// Make the same ids and bodies as every other run with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Send each twice, to see the second one taken for a duplicate
    #[arg(long)]
    pub(crate) dup: bool,
    /// Spoil the signatures, to see them refused
    #[arg(long)]
    pub(crate) bad_sig: bool,
    /// The source's secret, to sign with; not needed where the source has `env:NAME` and NAME is
    /// set here too
    #[arg(long, env = "SUREHOOK_SECRET", hide_env_values = true)]
    pub(crate) secret: Option<String>,
    #[command(flatten)]
    pub(crate) remote: Remote,
}
