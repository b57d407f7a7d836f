//! `surehook`: one binary that receives, stores and delivers webhooks.

mod backend;
mod cli;
mod client;
mod commands;
mod data_folder;
mod database;
mod error;
mod file_limit;
mod logging;
mod output;
mod reload;
mod settings;
mod systemd;

use std::process::ExitCode;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::{cli::Cli, error::CliError};

fn main() -> ExitCode {
    surehook_allocator::map_large_blocks();
    let cli = Cli::parse();
    output::configure(cli.output);
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CliError::from)
        .and_then(|runtime| {
            let result = runtime.block_on(async {
                survive_file_size_limit();
                commands::run(cli).await
            });
            // A blocked thread, such as a DNS lookup, must not delay the exit.
            runtime.shutdown_background();
            result
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// A write beyond the limit on the size of a file (`ulimit -f`) raises SIGXFSZ, which ends the process.
/// With a handler the write fails instead, and is reported as any other failed write.
fn survive_file_size_limit() {
    let file_size = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays installed after the stream is dropped. Without it, only the limit itself is
    // handled worse.
    let _installed = signal(file_size);
}
