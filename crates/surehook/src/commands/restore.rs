//! `surehook restore`: a backup in the place of the database of a gateway that does not run.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use surehook_core::time::Clock as _;
use surehook_engine::system::SystemClock;
use surehook_store::{OpenError, sqlite::RestoreError};

use super::backup::{data_folder, sha256, sums_of};
use crate::{cli::RestoreArgs, failure::Failure, output};

pub(super) fn run(args: &RestoreArgs) -> Result<(), Failure> {
    let data = data_folder(&args.place)?;
    if !args.file.is_file() {
        return Err(Failure::not_found(anyhow!("there is no file {}", args.file.display())));
    }
    check_sum(&args.file)?;
    let now = SystemClock.now();
    let restored = surehook_store::restore(&args.file, &data, args.force, now).map_err(refusal)?;
    let contents = restored.contents;
    if args.json {
        return Ok(output::line(
            &json!({
                "data": data,
                "events": contents.events,
                "deliveries": contents.deliveries,
                "waiting": contents.waiting,
                "set_aside": restored.previous_moved_to,
            })
            .to_string(),
        )?);
    }
    output::line(&format!("restored {} events into {}", contents.events, data.display()))?;
    if let Some(aside) = &restored.previous_moved_to {
        output::note(&format!("the database that was there is in {}", aside.display()));
    }
    output::note(&format!(
        "{} deliveries had not ended when the backup was made, {} of them just being tried. They are \
         due when the gateway starts; what was delivered since then is delivered again, with the same \
         webhook-id. What came in since then is not here, nor are its keys.",
        contents.waiting, contents.in_flight
    ));
    Ok(())
}

/// Compares with the checksum beside it, if there is one.
fn check_sum(file: &Path) -> Result<(), Failure> {
    let sums = sums_of(file);
    if !sums.exists() {
        let said =
            format!("note: {} is not there, so the checksum was not compared", sums.display());
        output::note(&said);
        return Ok(());
    }
    let text = std::fs::read_to_string(&sums)
        .with_context(|| format!("cannot read {}", sums.display()))?;
    let expected = text.split_whitespace().next().unwrap_or_default();
    if expected.eq_ignore_ascii_case(&sha256(file)?) {
        return Ok(());
    }
    let error = anyhow!("{} is not the file that {} was made of", file.display(), sums.display());
    Err(Failure::from(error).hint("the backup is damaged or was changed; take another one"))
}

fn refusal(error: RestoreError) -> Failure {
    match error {
        RestoreError::Open(locked @ OpenError::Locked(_)) => {
            Failure::refused(locked).hint("stop the gateway first, then restore")
        }
        RestoreError::Occupied(_) => Failure::refused(error)
            .hint("give another folder with --data, or --force: the old one is then kept aside"),
        RestoreError::Open(error) => Failure::settings(error),
        RestoreError::Backup(_) | RestoreError::HasWal(_) | RestoreError::File { .. } => {
            Failure::from(error)
        }
    }
}
