//! `surehook doctor --repair`: accepts the loss in a damaged data folder.

use serde_json::json;
use surehook_engine::system::SystemClock;
use surehook_store::{OpenError, sqlite::RepairError};
use surehook_types::time::Clock as _;

use crate::{backend::require_folder, cli::LocalArgs, error::CliError, output};

const INSTEAD: &str = "Restore a backup of the database: docs/operations/many-nodes.md.";

pub(super) fn run(args: &LocalArgs) -> Result<(), CliError> {
    let data = require_folder(args, INSTEAD)?;
    if !data.is_dir() {
        let error = anyhow::anyhow!("{} does not exist", data.display());
        return Err(CliError::not_found(error).hint("Pass the data folder with --data."));
    }
    let repaired = surehook_store::repair(&data, SystemClock.now())
        .map_err(|error| repair_error(error, &data.display().to_string()))?;
    let Some(report) = repaired else {
        if args.json {
            return output::print_line(json!({ "repaired": false }));
        }
        return output::print_line("nothing to repair: the database is complete");
    };
    if args.json {
        return output::print_line(json!({
            "repaired": true,
            "fault": report.fault,
            "missing_commits": report.missing_commits,
            "set_aside": report.damaged_moved_to,
            "empty": report.is_empty,
        }));
    }
    let missing = match report.missing_commits {
        Some(0) => "no commit is missing".to_owned(),
        Some(missing) => format!("{missing} commits are missing and lost"),
        None => "it is unknown how many commits are missing".to_owned(),
    };
    output::print_line(format!("repaired {}: {missing}", data.display()))?;
    output::note(&format!("It was: {}", report.fault));
    output::note(&format!("The damaged files are in {}", report.damaged_moved_to.display()));
    if report.is_empty {
        output::note("The next start begins with an empty database.");
    } else if report.missing_commits != Some(0) {
        output::note(
            "A commit holds one or more requests. Ask the providers to send again what is missing, \
             and expect deliveries made after the damage to be repeated.",
        );
    }
    Ok(())
}

fn repair_error(error: RepairError, data: &str) -> CliError {
    let restore = format!("Restore a backup: surehook restore FILE --data {data} --force");
    match error {
        RepairError::Open(locked @ OpenError::Locked(_)) => {
            CliError::refused(locked).hint("Stop the gateway first, then repair.")
        }
        RepairError::HasRescued(rescued) => {
            let hint =
                format!("Restore it: surehook restore {} --data {data} --force", rescued.display());
            CliError::refused(RepairError::HasRescued(rescued)).hint(&hint)
        }
        RepairError::Unrepairable(_) => CliError::from(error).hint(&format!(
            "{restore}. Without a backup, move the folder away and start with an empty one."
        )),
        RepairError::Open(error) => CliError::settings(error),
        RepairError::Restore(_) | RepairError::Copy { .. } => CliError::from(error),
    }
}
