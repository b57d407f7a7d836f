//! `surehook backup`: the whole database in one file, also while the gateway runs.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read as _, Write as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use surehook_store::sqlite::{BackupError, DatabaseContents};

use crate::{
    cli::{BackupArgs, Place},
    failure::Failure,
    folder, output,
    settings::Settings,
};

/// Where the data of this machine's gateway is.
pub(super) fn data_folder(place: &Place) -> Result<PathBuf, Failure> {
    if let Some(data) = &place.data {
        return Ok(data.clone());
    }
    Ok(Settings::load(&place.serve_args()).map_err(Failure::settings)?.data)
}

pub(super) async fn run(args: &BackupArgs) -> Result<(), Failure> {
    let data = data_folder(&args.place)?;
    if args.file.exists() && !args.force {
        let error = anyhow!("{} is there already", args.file.display());
        return Err(Failure::refused(error).hint("give another name, or --force to replace it"));
    }
    keep_off(&data, &args.file)?;
    let part = named(&args.file, ".new");
    let contents = copy(data, part.clone()).await?;
    let sum = sha256(&part)?;
    let sums = sums_of(&args.file);
    // In this order: whenever it ends, a file has its own checksum or none.
    if sums.exists() {
        std::fs::remove_file(&sums)?;
    }
    std::fs::rename(&part, &args.file)?;
    write_sum(&sums, &sum, &args.file)?;
    if args.json {
        return Ok(output::line(
            &json!({
                "file": args.file,
                "sha256": sum,
                "bytes": std::fs::metadata(&args.file)?.len(),
                "events": contents.events,
                "deliveries": contents.deliveries,
                "waiting": contents.waiting,
            })
            .to_string(),
        )?);
    }
    output::line(&format!("{}  {}", sum, args.file.display()))?;
    output::note(&format!(
        "{} events, {} deliveries, of which {} have not ended; checked, and its checksum is in {}",
        contents.events,
        contents.deliveries,
        contents.waiting,
        sums.display()
    ));
    Ok(())
}

/// A copy under the name of the original would take its place, and its log would be taken for the
/// copy's.
fn keep_off(data: &Path, file: &Path) -> Result<(), Failure> {
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    let is_inside = folder.is_ok_and(|folder| data.canonicalize().is_ok_and(|data| data == folder));
    let is_ours =
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("surehook.db"));
    if is_inside && is_ours {
        let error = anyhow!("{} is a name that the gateway uses itself", file.display());
        return Err(Failure::refused(error).hint("give another name, best on another disk"));
    }
    Ok(())
}

/// Copies on a thread of its own, so that a signal is heard meanwhile.
async fn copy(data: PathBuf, to: PathBuf) -> Result<DatabaseContents, Failure> {
    let stopped = Arc::new(AtomicBool::new(false));
    let bar = bar();
    let work = {
        let (stopped, bar) = (Arc::clone(&stopped), bar.clone());
        move || {
            surehook_store::backup(&data, &to, &mut |done, total| {
                bar.set_length(total);
                bar.set_position(done);
                let stop = stopped.load(Ordering::Relaxed);
                if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        }
    };
    let mut work = tokio::task::spawn_blocking(work);
    let made = tokio::select! {
        made = &mut work => made,
        _ = tokio::signal::ctrl_c() => {
            stopped.store(true, Ordering::Relaxed);
            work.await
        }
    };
    bar.finish_and_clear();
    made?.map_err(|error| match error {
        BackupError::Stopped => Failure::interrupted(error),
        BackupError::Open(error) => folder::refusal(error),
        BackupError::Sqlite(_)
        | BackupError::File { .. }
        | BackupError::Damaged { .. }
        | BackupError::ContentsDiffer(..) => Failure::from(error),
    })
}

fn bar() -> ProgressBar {
    if !output::shows_progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent}% of the pages, {eta} left");
    // The template is a constant; a bar without it would only be plainer.
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The file with the checksum of another.
pub(super) fn sums_of(file: &Path) -> PathBuf {
    named(file, ".sha256")
}

/// The same name with something after it.
fn named(file: &Path, end: &str) -> PathBuf {
    let mut name: OsString = file.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The SHA-256 of a file, in hexadecimal.
pub(super) fn sha256(file: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot read {}", file.display());
    let mut open = File::open(file).with_context(named)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        let read = open.read(&mut chunk).with_context(named)?;
        if read == 0 {
            return Ok(data_encoding::HEXLOWER.encode(&hash.finalize()));
        }
        hash.update(&chunk[..read]);
    }
}

/// Written as `sha256sum --check` reads it. Under its name only when it is whole: half a checksum
/// would make a good backup look damaged.
fn write_sum(sums: &Path, sum: &str, of: &Path) -> anyhow::Result<()> {
    let name = of.file_name().unwrap_or_default().to_string_lossy();
    let part = named(sums, ".part");
    let mut file =
        File::create(&part).with_context(|| format!("cannot write {}", sums.display()))?;
    writeln!(file, "{sum}  {name}")?;
    file.sync_all()?;
    std::fs::rename(&part, sums)?;
    Ok(())
}
