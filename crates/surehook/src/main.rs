//! `surehook`: one binary that receives, stores and delivers webhooks.

mod cli;
mod client;
mod commands;
mod data_folder;
mod error;
mod logging;
mod output;
mod settings;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{cli::Cli, error::CliError};

fn main() -> ExitCode {
    let cli = Cli::parse();
    output::configure(cli.output);
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CliError::from)
        .and_then(|runtime| {
            let result = runtime.block_on(commands::run(cli));
            // A blocked thread, such as a DNS lookup, must not delay the exit.
            runtime.shutdown_background();
            result
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
