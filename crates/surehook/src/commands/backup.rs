//! `surehook backup`: copies the database to a file, even while the gateway runs.

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
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use surehook_store::sqlite::{BackupError, DatabaseContents, create_private_file};

use crate::{backend::require_folder, cli::LocalArgs, data_folder, error::CliError, output};

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// File to write; its checksum is written to FILE.sha256
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    local: LocalArgs,
}

/// How a database is backed up.
const INSTEAD: &str =
    "Use pg_dump, or base backups with archived logs: docs/operations/many-nodes.md.";

pub(super) async fn run(args: &BackupArgs) -> Result<(), CliError> {
    let data = require_folder(&args.local, INSTEAD)?;
    if args.file.exists() && !args.force {
        let error = anyhow!("{} already exists", args.file.display());
        return Err(CliError::refused(error).hint("Use another name, or --force to overwrite it."));
    }
    check_target(&data, &args.file)?;
    let part = with_suffix(&args.file, ".new");
    let contents = copy(data, part.clone()).await?;
    let sum = sha256(&part)?;
    let checksum_file = checksum_file(&args.file);
    // In this order, so that after a crash a file has its own checksum or none.
    if checksum_file.exists() {
        std::fs::remove_file(&checksum_file)?;
    }
    std::fs::rename(&part, &args.file)?;
    write_checksum(&checksum_file, &sum, &args.file)?;
    if args.local.json {
        return output::print_line(json!({
            "file": args.file,
            "sha256": sum,
            "bytes": std::fs::metadata(&args.file)?.len(),
            "events": contents.events,
            "deliveries": contents.deliveries,
            "waiting": contents.waiting,
        }));
    }
    output::print_line(format!("{sum}  {}", args.file.display()))?;
    output::note(&format!(
        "{} events, {} deliveries, {} of them unfinished. Backup verified; checksum in {}",
        contents.events,
        contents.deliveries,
        contents.waiting,
        checksum_file.display()
    ));
    output::note(
        "Keep the secret key too, elsewhere: secrets in a backup cannot be read without it.",
    );
    Ok(())
}

/// Refuses file names of the live database: the copy would replace it and be combined with its log.
fn check_target(data: &Path, file: &Path) -> Result<(), CliError> {
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    let is_inside = folder.is_ok_and(|folder| data.canonicalize().is_ok_and(|data| data == folder));
    let is_ours =
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("surehook.db"));
    if is_inside && is_ours {
        let error = anyhow!("{} is a file name of the gateway itself", file.display());
        return Err(CliError::refused(error).hint("Use another name, preferably on another disk."));
    }
    Ok(())
}

/// Copies on another thread, so that Ctrl-C is handled meanwhile.
async fn copy(data: PathBuf, to: PathBuf) -> Result<DatabaseContents, CliError> {
    let stopped = Arc::new(AtomicBool::new(false));
    let bar = progress_bar();
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
    let result = tokio::select! {
        result = &mut work => result,
        _ = tokio::signal::ctrl_c() => {
            stopped.store(true, Ordering::Relaxed);
            work.await
        }
    };
    bar.finish_and_clear();
    result?.map_err(|error| match error {
        BackupError::Stopped => CliError::interrupted(error),
        BackupError::Open(error) => data_folder::open_error(error),
        BackupError::Sqlite(_)
        | BackupError::File { .. }
        | BackupError::Damaged { .. }
        | BackupError::ContentsDiffer(..) => CliError::from(error),
    })
}

fn progress_bar() -> ProgressBar {
    if !output::shows_progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent}% of pages, {eta} left");
    // The template is a constant and always valid.
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The checksum file of a backup.
pub(super) fn checksum_file(file: &Path) -> PathBuf {
    with_suffix(file, ".sha256")
}

fn with_suffix(file: &Path, end: &str) -> PathBuf {
    let mut name: OsString = file.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The SHA-256 of a file, in hexadecimal.
pub(super) fn sha256(file: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot read {}", file.display());
    let mut open = File::open(file).with_context(context)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        let read = open.read(&mut chunk).with_context(context)?;
        if read == 0 {
            return Ok(data_encoding::HEXLOWER.encode(&hash.finalize()));
        }
        hash.update(&chunk[..read]);
    }
}

/// Writes the format of `sha256sum --check`. Renamed into place only when complete: half a checksum would
/// make a good backup look damaged.
fn write_checksum(checksum_file: &Path, sum: &str, backup: &Path) -> anyhow::Result<()> {
    let name = backup.file_name().unwrap_or_default().to_string_lossy();
    let part = with_suffix(checksum_file, ".part");
    let mut file = create_private_file(&part)
        .with_context(|| format!("cannot write {}", checksum_file.display()))?;
    writeln!(file, "{sum}  {name}")?;
    file.sync_all()?;
    std::fs::rename(&part, checksum_file)?;
    Ok(())
}
