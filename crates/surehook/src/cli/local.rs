//! Arguments of commands that work on local files, without a running gateway.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ServeArgs;

/// Locates the data folder.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataArgs {
    /// Data folder [default: from the settings]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Settings file [default: surehook.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

impl DataArgs {
    /// The equivalent arguments of `serve`.
    pub(crate) fn serve_args(&self) -> ServeArgs {
        ServeArgs { config: self.config.clone(), data: self.data.clone(), listen: None }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Also check whether this gateway is ready
    #[arg(long, env = "SUREHOOK_SERVER")]
    pub(crate) server: Option<String>,
    /// API token
    #[arg(long, env = "SUREHOOK_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Connect to each destination, without sending a request
    #[arg(long)]
    pub(crate) probe: bool,
    /// Print JSON, one finding per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// File to write; its checksum is written to FILE.sha256
    pub(crate) file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Backup file
    pub(crate) file: PathBuf,
    /// Replace an existing database; it is renamed, not deleted
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the effective settings, secrets masked
    Show {
        /// Show where each value comes from
        #[arg(long)]
        origin: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Check a settings file
    Check {
        /// Settings file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManPageArgs {
    /// Write one page per command into this folder [default: print the main page]
    pub(crate) folder: Option<PathBuf>,
}
