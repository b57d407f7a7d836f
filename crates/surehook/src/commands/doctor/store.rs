//! The database: does it open, is it whole, is it of this version, and what time does it have?

use std::{path::Path, time::Duration};

use surehook_core::time::Timestamp;
use surehook_store::{OpenError, sqlite::FolderInspection};

use super::Findings;

/// A log that is larger than this was not copied back for a while.
const LOG_ADVISED: u64 = 256 << 20;
/// A clock may differ from that of an hour ago by this.
const SKEW_MAX: Duration = Duration::from_secs(60);
/// 2026-01-01: before this there was no such program.
const EARLIEST: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const MIB: u64 = 1 << 20;

pub(super) fn look(data: &Path, now: Timestamp, findings: &mut Findings) {
    if now < EARLIEST {
        let advice = "set the clock: signatures with a time and retries depend on it";
        findings.bad("clock", format!("says {now}"), advice);
    }
    match surehook_store::inspect(data) {
        Ok(sight) => report(&sight, now, findings),
        Err(error @ OpenError::Missing(_)) => {
            findings.warn("store", error.to_string(), "start `surehook serve`: it makes one");
        }
        Err(error) => {
            let advice =
                "restore the last backup into another folder and compare: surehook restore";
            findings.bad("store", error.to_string(), advice);
        }
    }
}

fn report(sight: &FolderInspection, now: Timestamp, findings: &mut Findings) {
    let run = if sight.in_use { "a gateway has it open" } else { "no gateway has it open" };
    findings.good("store", format!("{} MiB, {run}", sight.database_bytes / MIB));
    if sight.restore_interrupted {
        let advice = "run `surehook restore` again";
        findings.bad("restore", "a restore was begun and did not end", advice);
    }
    let (found, known) = (sight.schema_version, sight.known_schema_version);
    match found.cmp(&known) {
        std::cmp::Ordering::Equal => findings.good("schema", format!("version {found}")),
        std::cmp::Ordering::Less => {
            let said = format!("version {found}; this program knows {known}");
            findings.warn("schema", said, "back it up, then start `surehook serve`: it migrates");
        }
        std::cmp::Ordering::Greater => {
            let said = format!("version {found}; this program knows only {known}");
            findings.bad("schema", said, "use the newer surehook that wrote it");
        }
    }
    match sight.faults.first() {
        None => findings.good("integrity", "quick_check found nothing"),
        Some(fault) => {
            let advice =
                "stop the gateway, keep a copy of the folder, restore the last good backup";
            findings.bad("integrity", fault.clone(), advice);
        }
    }
    let log = format!("{} MiB", sight.wal_bytes / MIB);
    if sight.wal_bytes > LOG_ADVISED {
        let advice =
            "something reads for long (a backup?), or the disk is too slow to copy it back";
        findings.warn("log", log, advice);
    } else {
        findings.good("log", log);
    }
    match sight.newest_event {
        Some(at) if at > now + SKEW_MAX => {
            let said = format!("says {now}, and the newest event came at {at}");
            findings.bad("clock", said, "the clock has gone back: set it, and see to NTP");
        }
        Some(_) | None => findings.good("clock", now.to_string()),
    }
}
