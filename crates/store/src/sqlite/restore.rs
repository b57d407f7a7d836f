//! Puts a backup in the place of a database, so that a kill at any line leaves either the old one,
//! or the new one, or a folder that says of itself that it is neither.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use surehook_core::time::Timestamp;

use super::{
    DATABASE, OpenError,
    backup::{BackupError, Contents, create_private, examine, put_in_place},
    folder::{self, HALF_RESTORED},
    schema::MIGRATIONS,
};

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    /// What the folder holds now.
    pub contents: Contents,
    /// Where the database that was there is now.
    pub set_aside: Option<PathBuf>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder or the file cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The backup cannot be read, or not be written.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// There is a database already.
    #[error("{} holds a database already", .0.display())]
    Occupied(PathBuf),
    /// It is the database of a gateway, not a backup of it.
    #[error(
        "{} has a log beside it and is not whole without; make a copy with `surehook backup --data` of its folder",
        .0.display()
    )]
    HasLog(PathBuf),
    /// A file could not be written or moved.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The files that make up a database. The log goes with it: beside another one it would be taken
/// for that one's, and its pages written over good ones.
const FILES: [&str; 3] = [DATABASE, "surehook.db-wal", "surehook.db-shm"];

/// Puts the backup `from` into the folder `data`. With `replace` a database that is there is moved
/// into a folder beside it; without, it is an error.
pub fn restore(
    from: &Path,
    data: &Path,
    replace: bool,
    now: Timestamp,
) -> Result<Restored, RestoreError> {
    // A copy of the file alone would leave behind what is in its log.
    let log = PathBuf::from(format!("{}-wal", from.display()));
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(RestoreError::HasLog(from.to_owned()));
    }
    let contents = examine(from)?;
    if contents.schema > MIGRATIONS.len() {
        return Err(OpenError::version(contents.schema, MIGRATIONS.len()).into());
    }
    let _lock = folder::lock(data)?;
    let begun = begun(data);
    let is_there = FILES.iter().any(|name| data.join(name).exists());
    // Whoever began to replace it has said that it may be replaced.
    if is_there && !replace && begun.is_none() {
        return Err(RestoreError::Occupied(data.to_owned()));
    }
    let part = data.join("surehook.db.restoring");
    let copied = copy(from, &part).and_then(|()| Ok(examine(&part)?));
    match copied {
        Ok(found) if found == contents => {}
        Ok(found) => {
            let differs = BackupError::Differs(Box::new(found), Box::new(contents));
            return Err(clean(&part, differs.into()));
        }
        Err(error) => return Err(clean(&part, error)),
    }
    let aside = begun.or_else(|| is_there.then(|| format!("{ASIDE}{}", now.as_millis())));
    swap(data, &part, aside.as_deref())
        .map_err(|source| RestoreError::File { path: data.to_owned(), source })?;
    Ok(Restored { contents, set_aside: aside.map(|aside| data.join(aside)) })
}

/// How the folder begins into which a database is moved.
const ASIDE: &str = "replaced-";

/// Where an earlier restore that did not end was moving the database, if it had come so far as to
/// say it.
fn begun(data: &Path) -> Option<String> {
    let aside = fs::read_to_string(data.join(HALF_RESTORED)).ok()?;
    let number = aside.strip_prefix(ASIDE)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(aside)
}

fn clean(part: &Path, error: RestoreError) -> RestoreError {
    // The first error is the one to tell.
    let _gone = fs::remove_file(part);
    error
}

fn copy(from: &Path, to: &Path) -> Result<(), RestoreError> {
    let copied = || {
        let mut source = File::open(from)?;
        let mut target = create_private(to)?;
        io::copy(&mut source, &mut target)?;
        target.sync_all()
    };
    copied().map_err(|source| RestoreError::File { path: to.to_owned(), source })
}

/// The mark is there from before the old files move until the new one stands: a gateway that is
/// started in between would find no database, and begin an empty one. It says where they move, so
/// that the next restore moves the rest there: a log without its database is worth nothing.
fn swap(data: &Path, part: &Path, aside: Option<&str>) -> io::Result<()> {
    let mark = data.join(HALF_RESTORED);
    let goes_on = begun(data).is_some();
    if !goes_on {
        let mut mark = File::create(&mark)?;
        mark.write_all(aside.unwrap_or_default().as_bytes())?;
        mark.sync_all()?;
        folder::sync(data)?;
    }
    if let Some(aside) = aside {
        set_aside(data, &data.join(aside), goes_on)?;
    }
    put_in_place(part, &data.join(DATABASE))?;
    fs::remove_file(&mark)?;
    folder::sync(data)
}

/// Moves the old files; or, if an earlier restore `goes_on`, what is left of them.
fn set_aside(data: &Path, aside: &Path, goes_on: bool) -> io::Result<()> {
    // A folder that is not of this restore is not touched.
    if !goes_on || !aside.is_dir() {
        fs::create_dir(aside)?;
    }
    // The database moves first and the new one comes last: with both there, all has moved, and what
    // is here is the earlier restore's.
    let is_moved = aside.join(DATABASE).exists() && data.join(DATABASE).exists();
    for name in FILES {
        let file = data.join(name);
        let gone =
            if is_moved { fs::remove_file(&file) } else { fs::rename(&file, aside.join(name)) };
        match gone {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            gone => gone?,
        }
    }
    folder::sync(aside)
}
