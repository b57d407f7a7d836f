//! Checks the database: integrity, schema version, log size and clock.

use std::{path::Path, time::Duration};

use surehook_store::{OpenError, sqlite::FolderInspection};
use surehook_types::time::Timestamp;

use super::Findings;

/// A larger log was not checkpointed for a while.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Tolerated difference between the clock and the newest event.
const SKEW_MAX: Duration = Duration::from_secs(60);
/// 2026-01-01: an earlier clock is wrong.
const EARLIEST_TIME: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const MIB: u64 = 1 << 20;

pub(super) fn check(data: &Path, now: Timestamp, findings: &mut Findings) {
    if now < EARLIEST_TIME {
        let advice = "Set the clock: signature checks and retries depend on it.";
        findings.fail("clock", format!("the clock says {now}"), advice);
    }
    match surehook_store::inspect(data) {
        Ok(sight) => report(&sight, now, findings),
        Err(error @ OpenError::Missing(_)) => {
            findings.warn("store", error.to_string(), "Start `surehook serve`; it creates one.");
        }
        Err(error) => {
            let advice =
                "Restore the last backup into another folder and compare: surehook restore";
            findings.fail("store", error.to_string(), advice);
        }
    }
}

fn report(sight: &FolderInspection, now: Timestamp, findings: &mut Findings) {
    let run = if sight.in_use { "in use by a gateway" } else { "not in use" };
    findings.ok("store", format!("{} MiB, {run}", sight.database_bytes / MIB));
    if sight.restore_interrupted {
        let advice = "Run `surehook restore` again.";
        findings.fail("restore", "a restore was interrupted", advice);
    }
    let (found, known) = (sight.schema_version, sight.known_schema_version);
    match found.cmp(&known) {
        std::cmp::Ordering::Equal => findings.ok("schema", format!("version {found}")),
        std::cmp::Ordering::Less => {
            let message = format!("version {found}; this program uses {known}");
            findings.warn(
                "schema",
                message,
                "Back it up, then start `surehook serve`; it migrates the schema.",
            );
        }
        std::cmp::Ordering::Greater => {
            let message = format!("version {found}; this program supports only {known}");
            findings.fail("schema", message, "Use the newer Surehook version that wrote it.");
        }
    }
    match sight.faults.first() {
        None => findings.ok("integrity", "quick_check passed"),
        Some(fault) => {
            let advice = "Stop the gateway, copy the folder, and restore the last good backup.";
            findings.fail("integrity", fault.clone(), advice);
        }
    }
    let log = format!("{} MiB", sight.wal_bytes / MIB);
    if sight.wal_bytes > LOG_BYTES_MAX {
        let advice = "A long read (a backup?) or a slow disk prevents checkpoints.";
        findings.warn("log", log, advice);
    } else {
        findings.ok("log", log);
    }
    match sight.newest_event {
        Some(at) if at > now + SKEW_MAX => {
            let message = format!("the clock says {now}, but the newest event is from {at}");
            findings.fail("clock", message, "The clock went back. Set it, and check NTP.");
        }
        Some(_) | None => findings.ok("clock", now.to_string()),
    }
}
