//! Errors of data folders, with the ways out.

use std::path::Path;

use surehook_store::{OpenError, sqlite::find_rescued};

use crate::error::CliError;

pub(crate) fn open_error(error: OpenError) -> CliError {
    if matches!(error, OpenError::Missing(_)) {
        return CliError::not_found(error).hint("Pass the data folder of a gateway with --data.");
    }
    CliError::settings(error)
}

/// The error of a folder that cannot be opened for writing, with the ways out if it is damaged.
pub(crate) fn damage_error(error: OpenError, data: &Path) -> CliError {
    let hint = damage_advice(&error, data);
    let error = CliError::settings(error);
    match hint {
        Some(hint) => error.hint(&hint),
        None => error,
    }
}

/// What to do about a damaged folder; `None` for other errors.
pub(crate) fn damage_advice(error: &OpenError, data: &Path) -> Option<String> {
    if !error.is_damage() {
        return None;
    }
    let rescued = find_rescued(data);
    let data = data.display();
    Some(match rescued {
        Some(rescued) => format!(
            "Everything acknowledged was saved: surehook restore {} --data {data} --force",
            rescued.display()
        ),
        None => format!(
            "Put the original files back, restore a backup (surehook restore FILE --data {data} --force), \
             or accept the loss (surehook doctor --repair --data {data}). Nothing was changed."
        ),
    })
}
