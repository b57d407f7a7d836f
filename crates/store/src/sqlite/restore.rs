//! Puts a backup in the place of a database, so that a kill at any line leaves either the old one,
//! or the new one, or a folder that says of itself that it is neither.

use std::{
    fs::{self, File},
    io,
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
    let is_there = FILES.iter().any(|name| data.join(name).exists());
    if is_there && !replace {
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
    let set_aside = is_there.then(|| data.join(format!("replaced-{}", now.as_millis())));
    swap(data, &part, set_aside.as_deref())
        .map_err(|source| RestoreError::File { path: data.to_owned(), source })?;
    Ok(Restored { contents, set_aside })
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
/// started in between would find no database, and begin an empty one.
fn swap(data: &Path, part: &Path, set_aside: Option<&Path>) -> io::Result<()> {
    let mark = data.join(HALF_RESTORED);
    File::create(&mark)?.sync_all()?;
    folder::sync(data)?;
    if let Some(aside) = set_aside {
        fs::create_dir(aside)?;
        for name in FILES {
            match fs::rename(data.join(name), aside.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        folder::sync(aside)?;
    }
    put_in_place(part, &data.join(DATABASE))?;
    fs::remove_file(&mark)?;
    folder::sync(data)
}
