//! The command line: global options, and options shared by several commands. Each command defines its
//! own arguments in `commands`. The doc comments are the help texts and docs/reference/cli.md.

#[cfg(test)]
mod reference;

use std::path::PathBuf;

use clap::{Args, ColorChoice, Parser};

use crate::{
    commands::{Command, serve::ServeArgs},
    database::DatabaseUrl,
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
    /// Read this PostgreSQL database directly instead, without a gateway or token; `env:NAME` takes the URL
    /// from a variable
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) database: Option<DatabaseUrl>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// One page of a list of the gateway.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageArgs {
    /// Maximum number of rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Continue after this cursor (`next_cursor` of the previous page)
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

/// A command on local files, without a running gateway.
#[derive(Clone, Debug, Args)]
pub(crate) struct LocalArgs {
    /// Data folder [default: from the settings]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// PostgreSQL database [default: from the settings]; `env:NAME` takes the URL from a variable
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) database: Option<DatabaseUrl>,
    /// Settings file [default: surehook.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl LocalArgs {
    /// The equivalent arguments of `serve`.
    pub(crate) fn serve_args(&self) -> ServeArgs {
        ServeArgs {
            config: self.config.clone(),
            data: self.data.clone(),
            database: self.database.clone(),
            listen: None,
            use_moved_data: false,
        }
    }
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
