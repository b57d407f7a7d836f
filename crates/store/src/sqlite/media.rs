//! [`MessageStore`]: metadata of media files in the bucket, and sent messages per day.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use rusqlite::{Connection, Result, Row, params};
use surehook_messaging::{
    media::{StoredMedia, USE_RECORD_INTERVAL, unused_cutoff},
    message::MediaKind,
    store::{DailySendCount, MessageStore},
};
use surehook_types::{
    ids::{DestinationId, EventId, MediaId},
    store_error::StoreError,
    time::Timestamp,
};

use super::{
    SqliteStore,
    prepared::CachedStatements,
    row::{blob, id, text, time},
    sent_messages,
};

const REMOVED_PER_SLICE: usize = 200;

#[async_trait]
impl MessageStore for SqliteStore {
    async fn store_media(&self, upload: StoredMedia) -> Result<(), StoreError> {
        self.writer.write(move |tx| insert(tx, &upload)).await
    }

    async fn find_media(&self, id: MediaId) -> Result<Option<StoredMedia>, StoreError> {
        self.readers.read(move |db| find(db, id)).await
    }

    async fn use_media(
        &self,
        id: MediaId,
        now: Timestamp,
    ) -> Result<Option<StoredMedia>, StoreError> {
        let (upload, is_recorded) =
            self.readers.read(move |db| Ok((find(db, id)?, is_recorded(db, id, now)?))).await?;
        if is_recorded || upload.is_none() {
            return Ok(upload);
        }
        // The file may have been removed in between.
        let is_there = self.writer.write(move |tx| record_use(tx, id, now)).await?;
        Ok(upload.filter(|_| is_there))
    }

    async fn count_sent_on(&self, destination: DestinationId, day: i32) -> Result<u64, StoreError> {
        self.readers.read(move |db| sent_messages::count_sent_on(db, destination, day)).await
    }

    async fn count_sent_by_day(
        &self,
        days: RangeInclusive<i32>,
    ) -> Result<Vec<DailySendCount>, StoreError> {
        self.readers.read(move |db| sent_messages::list_by_day(db, &days)).await
    }
}

// A repeated request has the same id and the same content.
const INSERT: &str = "
    INSERT INTO media (id, bucket, key, kind, mime_type, size, filename, created_at, used_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
    ON CONFLICT (id) DO NOTHING";

fn insert(connection: &Connection, upload: &StoredMedia) -> Result<()> {
    connection.prepare_cached(INSERT)?.execute(params![
        blob(upload.id),
        upload.bucket,
        upload.key,
        upload.kind.as_str(),
        upload.mime_type,
        upload.size,
        upload.filename,
        upload.created_at.as_millis(),
    ])?;
    Ok(())
}

/// Whether a use was recorded so recently that one at `now` needs no write.
fn is_recorded(connection: &Connection, media: MediaId, now: Timestamp) -> Result<bool> {
    let since = (now - USE_RECORD_INTERVAL).as_millis();
    let sql = "SELECT 1 FROM media WHERE id = ?1 AND used_at > ?2";
    connection.prepare_cached(sql)?.exists(params![blob(media), since])
}

// max(): the clock may have gone back.
const RECORD_USE: &str = "UPDATE media SET used_at = max(used_at, ?2) WHERE id = ?1";

/// Returns whether the file exists.
fn record_use(connection: &Connection, media: MediaId, now: Timestamp) -> Result<bool> {
    Ok(connection.run(RECORD_USE, params![blob(media), now.as_millis()])? == 1)
}

const OLDEST_EVENT: &str = "SELECT id FROM events ORDER BY id LIMIT 1";

const REMOVE_UNUSED: &str = "
    DELETE FROM media WHERE id IN
        (SELECT id FROM media WHERE used_at < ?1 ORDER BY used_at LIMIT ?2)";

/// Removes a slice of the files that are no longer needed; returns whether there are more.
pub(super) fn prune(connection: &Connection, now: Timestamp) -> Result<bool> {
    let oldest: Option<EventId> = connection.find_one(OLDEST_EVENT, [], |row| id(row, 0))?;
    let since = unused_cutoff(now, oldest.map(|event| event.at()));
    let removed = connection.run(REMOVE_UNUSED, params![since.as_millis(), REMOVED_PER_SLICE])?;
    Ok(removed == REMOVED_PER_SLICE)
}

const FIND: &str = "
    SELECT id, bucket, key, kind, mime_type, size, filename, created_at FROM media WHERE id = ?1";

fn find(connection: &Connection, media: MediaId) -> Result<Option<StoredMedia>> {
    connection.find_one(FIND, params![blob(media)], read_upload)
}

fn read_upload(row: &Row<'_>) -> Result<StoredMedia> {
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
    use super::{super::schema::query_plan, *};

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
