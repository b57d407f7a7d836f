//! Checks the database: integrity, schema version, size of the write-ahead log, and clock.

use std::time::Duration;

use surehook_core::clock::{ClockSample, StoredClock, unexpected_at_start};
use surehook_engine::system::SystemClock;
use surehook_store::{
    OpenError, SqliteStore,
    sqlite::{FolderInspection, SECRET_KEY_FILE},
};
use surehook_types::time::{Clock as _, Timestamp};

use super::Findings;
use crate::{data_folder, settings::Settings};

/// A larger write-ahead log has not been checkpointed for a while.
const WAL_BYTES_MAX: u64 = 256 << 20;
/// Tolerated difference between the clock and the newest event.
const SKEW_MAX: Duration = Duration::from_secs(60);
/// 2026-01-01: an earlier clock is wrong.
const EARLIEST_TIME: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const MIB: u64 = 1 << 20;

pub(super) fn check(settings: &Settings, now: Timestamp, findings: &mut Findings) {
    let data = settings.data.as_path();
    let inspection = surehook_store::inspect(data);
    match &inspection {
        Ok(inspection) => {
            report(inspection, findings);
            check_secret_key(settings, inspection, findings);
        }
        Err(error @ OpenError::Missing(_)) => {
            findings.warn("store", error.to_string(), "Start `surehook serve`; it creates one.");
        }
        Err(error) => {
            let advice = data_folder::damage_advice(error, data).unwrap_or_else(|| {
                "Restore the last backup into another folder and compare: surehook restore"
                    .to_owned()
            });
            findings.fail("store", error.to_string(), advice);
        }
    }
    let clock = inspection.map(|inspection| inspection.clock).unwrap_or_default();
    check_clock(&clock, &clock_reading(now), findings);
}

fn clock_reading(now: Timestamp) -> ClockSample {
    let (elapsed, is_synchronized) = (SystemClock.elapsed(), SystemClock.is_synchronized());
    ClockSample { now, latest: now, elapsed, machine: SystemClock.machine(), is_synchronized }
}

fn check_clock(stored: &StoredClock, reading: &ClockSample, findings: &mut Findings) {
    let now = reading.now;
    let unexpected = unexpected_at_start(stored, reading).filter(|_| !reading.is_synchronized);
    match stored.newest_event {
        _ if now < EARLIEST_TIME => {
            let advice = "Set the clock: signature checks and retries depend on it.";
            findings.fail("clock", format!("the clock says {now}"), advice);
        }
        Some(at) if at > now + SKEW_MAX => {
            let message = format!("the clock says {now}, but the newest event is from {at}");
            findings.fail("clock", message, "The clock went back. Set it, and check NTP.");
        }
        Some(_) | None => match unexpected {
            Some(expected) => {
                let message = format!("the clock says {now}, but {expected} is expected");
                let advice = "Nothing expires because of the difference. Set the clock, or confirm it: surehook clock confirm";
                findings.warn("clock", message, advice);
            }
            None => findings.ok("clock", now.to_string()),
        },
    }
}

fn check_secret_key(settings: &Settings, inspection: &FolderInspection, findings: &mut Findings) {
    const CHECK: &str = "secret key";
    let configured = match settings.secret_key() {
        Ok(configured) => configured,
        Err(error) => {
            let advice = "Give the key of 32 bytes that the data was written with.";
            findings.fail(CHECK, format!("{error:#}"), advice);
            return;
        }
    };
    let Some(needed) = inspection.needed_key else {
        let advice = "Start `surehook serve`; it encrypts them.";
        findings.warn(CHECK, "secrets are stored in plain text by an older version", advice);
        return;
    };
    if let Err(error) = SqliteStore::open_read_only(&settings.data, configured.as_ref())
        && inspection.schema_version == inspection.known_schema_version
    {
        let advice = "Nothing can be delivered without the key. Take it from where you keep it, or from the machine that made the backup.";
        findings.fail(CHECK, error.to_string(), advice);
    } else if configured.is_none() {
        let data = settings.data.display();
        let message = format!("{data}/{SECRET_KEY_FILE} lies beside the database that it encrypts");
        let advice = format!(
            "Keep the key outside the data folder: surehook secret-key rotate --data {data} --new-key-file FILE, \
             then set secret_key_file."
        );
        findings.recommend(CHECK, message, advice);
    } else {
        findings.ok(CHECK, format!("{needed}, outside the data folder"));
    }
    if inspection.has_plain_remains {
        let message = "old copies of secrets may be left in unused space of the database";
        let advice =
            "Stop the gateway and run `surehook secret-key rotate`; it rewrites the database.";
        findings.warn(CHECK, message, advice);
    }
}

fn report(inspection: &FolderInspection, findings: &mut Findings) {
    let usage = if inspection.is_in_use { "in use by a gateway" } else { "not in use" };
    findings.ok("store", format!("{} MiB, {usage}", inspection.database_bytes / MIB));
    if inspection.is_restore_interrupted {
        let advice = "Run `surehook restore` again.";
        findings.fail("restore", "a restore was interrupted", advice);
    }
    let (version, known) = (inspection.schema_version, inspection.known_schema_version);
    match version.cmp(&known) {
        std::cmp::Ordering::Equal => findings.ok("schema", format!("version {version}")),
        std::cmp::Ordering::Less => {
            let message = format!("version {version}; this program uses {known}");
            findings.warn(
                "schema",
                message,
                "Back it up, then start `surehook serve`; it migrates the schema.",
            );
        }
        std::cmp::Ordering::Greater => {
            let message =
                format!("version {version}; this program supports versions up to {known}");
            findings.fail("schema", message, "Use the newer Surehook version that wrote it.");
        }
    }
    match inspection.faults.first() {
        None => findings.ok("integrity", "quick_check passed"),
        Some(fault) => {
            let advice = "Stop the gateway, copy the folder, and restore the last good backup.";
            findings.fail("integrity", fault.clone(), advice);
        }
    }
    let log = format!("{} MiB", inspection.wal_bytes / MIB);
    if inspection.wal_bytes > WAL_BYTES_MAX {
        let advice = "Look for a long-running read, such as a backup, or a slow disk: both prevent checkpoints.";
        findings.warn("log", log, advice);
    } else {
        findings.ok("log", log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::FindingLevel::{Failed, Ok, Warning};

    #[test]
    fn clock_is_reported_once_and_fails_if_it_is_behind() {
        let at = |seconds: i64| Timestamp::from_millis(EARLIEST_TIME.as_millis() + seconds * 1000);
        let cases = [
            (at(-1), None, Failed),
            (at(-1), Some(at(-5)), Failed),
            (at(5), None, Ok),
            (at(5), Some(at(60)), Ok),
            (at(5), Some(at(600)), Failed),
            (at(86_400), Some(at(5)), Warning),
        ];
        for (now, newest, expected) in cases {
            let mut findings = Findings::default();
            let stored = StoredClock { saved: None, newest_event: newest };
            let reading = ClockSample {
                now,
                latest: now,
                elapsed: Duration::ZERO,
                machine: None,
                is_synchronized: false,
            };
            check_clock(&stored, &reading, &mut findings);
            let levels: Vec<_> = findings.0.iter().map(|finding| finding.level).collect();
            assert_eq!(levels, [expected], "case: {now} {newest:?}");
        }
    }
}
