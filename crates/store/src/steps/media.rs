//! Metadata of media files in the bucket.

use surehook_messaging::{
    media::{StoredMedia, USE_RECORD_INTERVAL, unused_cutoff},
    message::MediaKind,
};
use surehook_types::{
    ids::{EventId, MediaId},
    time::Timestamp,
};

use super::row::{blob, id, text, time};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const REMOVED_PER_SLICE: usize = 200;

// A repeated request has the same id and the same content.
const INSERT: &str = "
    INSERT INTO media (id, bucket, key, kind, mime_type, size, filename, created_at, used_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
    ON CONFLICT (id) DO NOTHING";

pub(crate) fn insert(connection: &impl SqlConnection, upload: &StoredMedia) -> Result<()> {
    connection.run(
        INSERT,
        params![
            blob(upload.id),
            upload.bucket,
            upload.key,
            upload.kind.as_str(),
            upload.mime_type,
            upload.size,
            upload.filename,
            upload.created_at.as_millis(),
        ],
    )?;
    Ok(())
}

/// Whether a use was recorded so recently that one at `now` needs no write.
pub(crate) fn is_recorded(
    connection: &impl SqlConnection,
    media: MediaId,
    now: Timestamp,
) -> Result<bool> {
    let since = (now - USE_RECORD_INTERVAL).as_millis();
    let sql = "SELECT 1 FROM media WHERE id = ?1 AND used_at > ?2";
    connection.exists(sql, params![blob(media), since])
}

// The clock may have gone back.
const RECORD_USE: &str = "
    UPDATE media SET used_at = CASE WHEN used_at > ?2 THEN used_at ELSE ?2 END WHERE id = ?1";

/// Returns whether the file exists.
pub(crate) fn record_use(
    connection: &impl SqlConnection,
    media: MediaId,
    now: Timestamp,
) -> Result<bool> {
    Ok(connection.run(RECORD_USE, params![blob(media), now.as_millis()])? == 1)
}

const OLDEST_EVENT: &str = "SELECT id FROM events ORDER BY id LIMIT 1";

const REMOVE_UNUSED: &str = "
    DELETE FROM media WHERE id IN
        (SELECT id FROM media WHERE used_at < ?1 ORDER BY used_at LIMIT ?2)";

/// Removes a slice of the files that are no longer needed; returns whether there are more.
pub(crate) fn prune(connection: &impl SqlConnection, now: Timestamp) -> Result<bool> {
    let oldest: Option<EventId> = connection.find_one(OLDEST_EVENT, params![], |row| id(row, 0))?;
    let since = unused_cutoff(now, oldest.map(|event| event.created_at()));
    let removed = connection.run(REMOVE_UNUSED, params![since.as_millis(), REMOVED_PER_SLICE])?;
    Ok(removed == REMOVED_PER_SLICE)
}

const FIND: &str = "
    SELECT id, bucket, key, kind, mime_type, size, filename, created_at FROM media WHERE id = ?1";

pub(crate) fn find(connection: &impl SqlConnection, media: MediaId) -> Result<Option<StoredMedia>> {
    connection.find_one(FIND, params![blob(media)], read_upload)
}

fn read_upload(row: &dyn SqlRow) -> Result<StoredMedia> {
    Ok(StoredMedia {
        id: id(row, 0)?,
        bucket: row.get(1)?,
        key: row.get(2)?,
        kind: text(row, 3, MediaKind::parse)?,
        mime_type: row.get(4)?,
        size: row.get(5)?,
        filename: row.get(6)?,
        created_at: time(row, 7)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn slice_scans_no_whole_table() {
        for sql in [REMOVE_UNUSED, OLDEST_EVENT] {
            let steps = query_plan(sql);
            let scans = steps.iter().filter(|step| step.contains("SCAN media"));
            assert_eq!(scans.count(), 0, "{sql}: {steps:?}");
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
        }
    }
}
