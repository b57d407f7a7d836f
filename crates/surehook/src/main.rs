//! `surehook`: one binary that receives webhooks, keeps them, and delivers them.

mod cli;
mod client;
mod commands;
mod failure;
mod folder;
mod logging;
mod output;
mod settings;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{cli::Cli, failure::Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    output::look(cli.look);
    let ran = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::from)
        .and_then(|runtime| {
            let ran = runtime.block_on(commands::run(cli));
            // What still blocks (a name that does not resolve) must not hold up the end.
            runtime.shutdown_background();
            ran
        });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
