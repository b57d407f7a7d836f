//! Commands that work on this machine, without a gateway.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ServeArgs;

/// Where the data is.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Folder with the data [default: as the settings say]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Settings file [default: surehook.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

impl Place {
    /// What `serve` would be given.
    pub(crate) fn serve_args(&self) -> ServeArgs {
        ServeArgs { config: self.config.clone(), data: self.data.clone(), listen: None }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Ask this gateway too whether it is ready
    #[arg(long, env = "SUREHOOK_SERVER")]
    pub(crate) server: Option<String>,
    /// Token for it
    #[arg(long, env = "SUREHOOK_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Open a connection to each destination (no request is sent)
    #[arg(long)]
    pub(crate) probe: bool,
    /// Print JSON, one finding a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file to write; its checksum goes beside it, into FILE.sha256
    pub(crate) file: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// A file that `backup` made
    pub(crate) file: PathBuf,
    /// Replace the database that is there; it is kept aside
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// The settings as `serve` would have them, secrets masked
    Show {
        /// Say where each comes from
        #[arg(long)]
        origin: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Whether a settings file could be used; looks at nothing else
    Check {
        /// The file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder [default: print the first one]
    pub(crate) folder: Option<PathBuf>,
}
