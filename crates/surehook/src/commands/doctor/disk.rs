//! Checks the data folder: existence, permissions, free space and fsync time.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use super::Findings;

/// Less free space is a warning; less than a tenth of it is a failure.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// A slower fsync slows down every response.
const SYNC_TIME_MAX: Duration = Duration::from_millis(50);
/// Number of measurements; the median counts.
const SYNC_SAMPLES: usize = 9;
const MIB: u64 = 1 << 20;

/// Returns whether the folder exists.
pub(super) fn check(data: &Path, findings: &mut Findings) -> bool {
    let folder = data.display();
    if !data.is_dir() {
        let advice = "Start `surehook serve`, or set the folder with --data.";
        findings.warn("folder", format!("{folder} does not exist"), advice);
        return false;
    }
    check_permissions(data, findings);
    check_free_space(data, findings);
    check_sync(data, findings);
    true
}

fn check_permissions(data: &Path, findings: &mut Findings) {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = data.display();
    match fs::metadata(data) {
        Ok(meta) if meta.permissions().mode() & 0o077 == 0 => {
            findings.ok("folder", format!("{folder} is private"));
        }
        Ok(meta) => {
            let mode = meta.permissions().mode() & 0o777;
            let advice = format!("chmod 700 {folder}");
            findings.warn(
                "folder",
                format!("{folder} is accessible to other users (mode {mode:o})"),
                advice,
            );
        }
        Err(error) => {
            let advice = "Run this as the user of the gateway.";
            findings.fail("folder", format!("{folder}: {error}"), advice);
        }
    }
}

fn check_free_space(data: &Path, findings: &mut Findings) {
    let disk = match rustix::fs::statvfs(data) {
        Ok(disk) => disk,
        Err(error) => {
            return findings.warn(
                "disk",
                format!("cannot read free space: {error}"),
                "Check with df.",
            );
        }
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let message = format!("{} MiB free", free / MIB);
    let advice = "Free some space, or shorten `retention`. With a full disk every sender gets 503.";
    if free < FREE_BYTES_MIN / 10 {
        findings.fail("disk", message, advice);
    } else if free < FREE_BYTES_MIN {
        findings.warn("disk", message, advice);
    } else {
        findings.ok("disk", message);
    }
}

fn check_sync(data: &Path, findings: &mut Findings) {
    let probe = data.join(format!(".doctor-{}", std::process::id()));
    let measured = measure_sync(&probe);
    // Fails only if the file was never created.
    let _removed = fs::remove_file(&probe);
    match measured {
        Ok(took) if took <= SYNC_TIME_MAX => {
            findings.ok("fsync", format!("{:.1} ms", took.as_secs_f64() * 1e3));
        }
        Ok(took) => {
            let advice = "Every response waits for an fsync. Use a faster or less busy disk.";
            findings.warn("fsync", format!("{:.1} ms", took.as_secs_f64() * 1e3), advice);
        }
        Err(error) => {
            let advice = "The gateway must be able to write here. Check owner and mode.";
            findings.fail(
                "fsync",
                format!("cannot write into {}: {error}", data.display()),
                advice,
            );
        }
    }
}

fn measure_sync(probe: &Path) -> std::io::Result<Duration> {
    let mut file = File::create(probe)?;
    let mut times = Vec::with_capacity(SYNC_SAMPLES);
    for _ in 0..SYNC_SAMPLES {
        let started = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[SYNC_SAMPLES / 2])
}
