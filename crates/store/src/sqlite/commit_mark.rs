//! The commit mark: a small file beside the database with the number of the last commit.
//!
//! SQLite ends the log at the first damaged frame. All commits behind it are gone, and so is a log
//! or a database that was removed, without an error. So each commit stores its number in its own
//! transaction, and afterwards in the mark. A database with a lower number than its mark has lost
//! acknowledged commits; the store is not opened on it.
//!
//! The mark is written only after the commit is synced, so it is never ahead of the database. After
//! a crash of the process it is exact; after a power failure it may be about a second behind, which
//! does not keep the store from opening. Numbers are compared within an epoch: a restored, repaired or copied database
//! begins a new one.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rusqlite::{Connection, Result};
use surehook_webhooks::key::fingerprint;

use super::{backup::rename_durably, folder::create_private_file};

pub(super) const COMMIT_MARK: &str = "commit-mark";

const MAGIC: [u8; 8] = *b"srhkmark";
/// Magic, version, epoch, number, state and checksum, each of eight bytes.
const SLOT_BYTES: usize = 48;
const CHECKED_BYTES: usize = SLOT_BYTES - 8;
/// Each slot has its own disk block, so that a torn write damages one of them.
const SLOT_DISTANCE: u64 = 4096;

/// How far the commits of a database go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitPosition {
    pub(super) epoch: i64,
    pub(super) number: i64,
}

/// The content of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkContent {
    pub(super) position: CommitPosition,
    /// Whether the store was closed in order.
    pub(super) is_closed: bool,
    /// Increases with every write; its parity is the slot.
    version: u64,
}

/// A mark as found at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkReading {
    Missing,
    /// The file exists, but both slots are damaged.
    Unreadable,
    Valid(MarkContent),
}

impl MarkReading {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let bytes = match fs::read(folder.join(COMMIT_MARK)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            Err(error) => return Err(error),
        };
        let slots = [0, SLOT_DISTANCE].into_iter().filter_map(|offset| {
            let from = usize::try_from(offset).ok()?;
            decode(bytes.get(from..from + SLOT_BYTES)?)
        });
        Ok(slots.max_by_key(|content| content.version).map_or(Self::Unreadable, Self::Valid))
    }

    pub(super) fn content(self) -> Option<MarkContent> {
        match self {
            Self::Valid(content) => Some(content),
            Self::Missing | Self::Unreadable => None,
        }
    }
}

fn encode(content: MarkContent) -> [u8; SLOT_BYTES] {
    let fields = [
        MAGIC,
        content.version.to_le_bytes(),
        content.position.epoch.to_le_bytes(),
        content.position.number.to_le_bytes(),
        u64::from(content.is_closed).to_le_bytes(),
    ];
    let mut slot = [0; SLOT_BYTES];
    slot[..CHECKED_BYTES].copy_from_slice(fields.as_flattened());
    let checksum = fingerprint(&slot[..CHECKED_BYTES]);
    slot[CHECKED_BYTES..].copy_from_slice(&checksum[..8]);
    slot
}

fn decode(slot: &[u8]) -> Option<MarkContent> {
    let (fields, []) = slot.as_chunks::<8>() else { return None };
    let [magic, version, epoch, number, is_closed, checksum] = fields else { return None };
    if *magic != MAGIC || fingerprint(&slot[..CHECKED_BYTES])[..8] != checksum[..] {
        return None;
    }
    Some(MarkContent {
        position: CommitPosition {
            epoch: i64::from_le_bytes(*epoch),
            number: i64::from_le_bytes(*number),
        },
        is_closed: u64::from_le_bytes(*is_closed) == 1,
        version: u64::from_le_bytes(*version),
    })
}

/// The file of a mark, shared with the thread that syncs it.
#[derive(Debug)]
pub(super) struct MarkFile {
    file: File,
    is_unsynced: AtomicBool,
}

impl MarkFile {
    /// Syncs what was written since the last call. Not part of a commit: a mark that is behind
    /// after a power failure does not keep the store from opening.
    pub(super) fn sync(&self) {
        if self.is_unsynced.swap(false, Ordering::Relaxed)
            && let Err(error) = self.file.sync_data()
        {
            tracing::warn!(%error, "could not sync the commit mark");
        }
    }
}

/// The mark as the writer holds it.
#[derive(Debug)]
pub(super) struct CommitMark {
    file: Arc<MarkFile>,
    content: MarkContent,
    has_failed: bool,
}

impl CommitMark {
    /// Opens the mark for a database that was checked against `reading`. A mark that is missing,
    /// damaged or of another epoch is created.
    pub(super) fn open(
        folder: &Path,
        reading: MarkReading,
        position: CommitPosition,
    ) -> io::Result<Self> {
        let version = match reading.content() {
            Some(found) if found.position.epoch == position.epoch => found.version + 1,
            _ => 0,
        };
        let content = MarkContent { position, is_closed: false, version };
        if version == 0 {
            create(folder, content)?;
        }
        let file = File::options().write(true).open(folder.join(COMMIT_MARK))?;
        let file = Arc::new(MarkFile { file, is_unsynced: AtomicBool::new(false) });
        let mut mark = Self { file, content, has_failed: false };
        if version > 0 {
            mark.write();
            mark.file.sync();
        }
        Ok(mark)
    }

    pub(super) fn file(&self) -> Arc<MarkFile> {
        Arc::clone(&self.file)
    }

    /// The number of the next commit.
    pub(super) fn next_number(&self) -> i64 {
        self.content.position.number + 1
    }

    /// Records that the commit with [`Self::next_number`] is synced.
    pub(super) fn advance(&mut self) {
        self.content.position.number += 1;
        self.content.version += 1;
        self.write();
    }

    /// Records that the store is closed in order.
    pub(super) fn close(&mut self) {
        self.content.is_closed = true;
        self.content.version += 1;
        self.write();
        self.file.sync();
    }

    fn write(&mut self) {
        let offset = self.content.version % 2 * SLOT_DISTANCE;
        match self.file.file.write_all_at(&encode(self.content), offset) {
            Ok(()) => self.file.is_unsynced.store(true, Ordering::Relaxed),
            // The commit itself is safe. A mark that is behind only detects less.
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(%error, "could not write the commit mark");
            }
            Err(_) => {}
        }
    }
}

/// Creates the file with room for both slots, so that later writes need no space.
fn create(folder: &Path, content: MarkContent) -> io::Result<()> {
    let part = folder.join("commit-mark.new");
    let mut bytes = vec![0; usize::try_from(2 * SLOT_DISTANCE).unwrap_or_default()];
    bytes[..SLOT_BYTES].copy_from_slice(&encode(content));
    let mut file = create_private_file(&part)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    rename_durably(&part, &folder.join(COMMIT_MARK))
}

/// In the table that nearly every commit changes anyway, so that the number costs no page of its own.
pub(super) const STORE_NUMBER: &str = "UPDATE counters SET value = ?1 WHERE name = 'commit_number'";

const READ_POSITION: &str = "
    SELECT e.value, n.value FROM counters e, counters n
     WHERE e.name = 'commit_epoch' AND n.name = 'commit_number'";

/// Reads the position of a database; an older version has stored none.
pub(super) fn read_position(connection: &Connection) -> Result<Option<CommitPosition>> {
    if !connection.table_exists(None, "counters")? {
        return Ok(None);
    }
    let mut statement = connection.prepare(READ_POSITION)?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(CommitPosition { epoch: row.get(0)?, number: row.get(1)? }))
}

/// Begins a new epoch, in which numbers are not compared with those of other copies.
pub(super) fn begin_epoch(connection: &Connection) -> Result<()> {
    connection.execute_batch(
        "INSERT INTO counters (name, value)
         VALUES ('commit_epoch', random() & 9223372036854775807), ('commit_number', 0)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )
}
