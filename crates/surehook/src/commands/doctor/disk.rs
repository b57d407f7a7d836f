//! The data folder: is it there, is it ours alone, is there room, how long does a sync take?

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use super::Findings;

/// Less room than this is told; less than a tenth of it is bad.
const FREE_ADVISED: u64 = 1 << 30;
/// A sync that takes longer than this makes every answer slow.
const SYNC_ADVISED: Duration = Duration::from_millis(50);
/// How often the sync is measured; the middle one counts.
const SYNCS: usize = 9;
const MIB: u64 = 1 << 20;

/// Says whether there is a folder to look further into.
pub(super) fn look(data: &Path, findings: &mut Findings) -> bool {
    let shown = data.display();
    if !data.is_dir() {
        let advice = "start `surehook serve`, or name the folder with --data";
        findings.warn("folder", format!("{shown} is not there"), advice);
        return false;
    }
    permissions(data, findings);
    room(data, findings);
    sync(data, findings);
    true
}

fn permissions(data: &Path, findings: &mut Findings) {
    use std::os::unix::fs::PermissionsExt as _;

    let shown = data.display();
    match fs::metadata(data) {
        Ok(meta) if meta.permissions().mode() & 0o077 == 0 => {
            findings.good("folder", format!("{shown} is its owner's alone"));
        }
        Ok(meta) => {
            let mode = meta.permissions().mode() & 0o777;
            let advice = format!("chmod 700 {shown}");
            findings.warn("folder", format!("{shown} is open to others (mode {mode:o})"), advice);
        }
        Err(error) => {
            let advice = "run this as the user that the gateway runs as";
            findings.bad("folder", format!("{shown}: {error}"), advice);
        }
    }
}

fn room(data: &Path, findings: &mut Findings) {
    let disk = match rustix::fs::statvfs(data) {
        Ok(disk) => disk,
        Err(error) => {
            return findings.warn("disk", format!("cannot be asked: {error}"), "look with df");
        }
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let said = format!("{} MiB free", free / MIB);
    let advice = "make room, or shorten `retention`; a full disk means 503 for every sender";
    if free < FREE_ADVISED / 10 {
        findings.bad("disk", said, advice);
    } else if free < FREE_ADVISED {
        findings.warn("disk", said, advice);
    } else {
        findings.good("disk", said);
    }
}

fn sync(data: &Path, findings: &mut Findings) {
    let probe = data.join(format!(".doctor-{}", std::process::id()));
    let measured = measure(&probe);
    // What could not be made is not there to be removed.
    let _gone = fs::remove_file(&probe);
    match measured {
        Ok(took) if took <= SYNC_ADVISED => {
            findings.good("fsync", format!("{:.1} ms", took.as_secs_f64() * 1e3));
        }
        Ok(took) => {
            let advice = "every answer waits for one; put the data on a faster or less busy disk";
            findings.warn("fsync", format!("{:.1} ms", took.as_secs_f64() * 1e3), advice);
        }
        Err(error) => {
            let advice = "the gateway must be able to write here; check owner and mode";
            findings.bad("fsync", format!("cannot write into {}: {error}", data.display()), advice);
        }
    }
}

fn measure(probe: &Path) -> std::io::Result<Duration> {
    let mut file = File::create(probe)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let begun = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}
