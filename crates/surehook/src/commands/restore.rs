//! `surehook restore`: replaces the database with a backup. The gateway must be stopped.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::json;
use surehook_engine::system::SystemClock;
use surehook_store::{OpenError, sqlite::RestoreError};
use surehook_types::time::Clock as _;

use super::backup::{checksum_file, sha256};
use crate::{backend::require_folder, cli::LocalArgs, error::CliError, output};

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Backup file
    file: PathBuf,
    /// Replace an existing database; it is renamed, not deleted
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    local: LocalArgs,
}

/// How a database is restored.
const INSTEAD: &str = "Stop all nodes and use pg_restore, or recover to a point in time: \
                       docs/operations/many-nodes.md.";

pub(super) fn run(args: &RestoreArgs) -> Result<(), CliError> {
    let data = require_folder(&args.local, INSTEAD)?;
    if !args.file.is_file() {
        return Err(CliError::not_found(anyhow!("no such file: {}", args.file.display())));
    }
    check_checksum(&args.file)?;
    let now = SystemClock.now();
    let restored =
        surehook_store::restore(&args.file, &data, args.force, now).map_err(restore_error)?;
    let contents = restored.contents;
    if args.local.json {
        return output::print_line(json!({
            "data": data,
            "events": contents.events,
            "deliveries": contents.deliveries,
            "waiting": contents.waiting,
            "set_aside": restored.previous_moved_to,
        }));
    }
    output::print_line(format!("restored {} events into {}", contents.events, data.display()))?;
    if let Some(folder) = &restored.previous_moved_to {
        output::note(&format!("The previous database was moved to {}", folder.display()));
    }
    output::note(
        "The key of the secrets is not part of a backup: the gateway needs the secret key of the time of \
         the backup (secret.key in the data folder, secret_key_file or SUREHOOK_SECRET_KEY).",
    );
    output::note(&format!(
        "{} deliveries were unfinished when the backup was made, {} of them in progress. They are due \
         when the gateway starts: deliveries made since the backup are repeated with the same \
         webhook-id. Events received since the backup are missing, and so are their keys.",
        contents.waiting, contents.in_flight
    ));
    Ok(())
}

/// Compares the file with its checksum file, if there is one.
fn check_checksum(file: &Path) -> Result<(), CliError> {
    let checksum_file = checksum_file(file);
    if !checksum_file.exists() {
        output::note(&format!(
            "note: {} does not exist, so the checksum was not verified",
            checksum_file.display()
        ));
        return Ok(());
    }
    let text = std::fs::read_to_string(&checksum_file)
        .with_context(|| format!("cannot read {}", checksum_file.display()))?;
    let expected = text.split_whitespace().next().unwrap_or_default();
    if expected.eq_ignore_ascii_case(&sha256(file)?) {
        return Ok(());
    }
    let error =
        anyhow!("{} does not match its checksum in {}", file.display(), checksum_file.display());
    Err(CliError::from(error).hint("The backup is damaged or was changed. Use another one."))
}

fn restore_error(error: RestoreError) -> CliError {
    match error {
        RestoreError::Open(locked @ OpenError::Locked(_)) => {
            CliError::refused(locked).hint("Stop the gateway first, then restore.")
        }
        RestoreError::Occupied(_) => CliError::refused(error)
            .hint("Use another folder with --data, or --force to replace it; the old database is renamed."),
        RestoreError::Open(error) => CliError::settings(error),
        RestoreError::Backup(_) | RestoreError::HasWal(_) | RestoreError::File { .. } => {
            CliError::from(error)
        }
    }
}
