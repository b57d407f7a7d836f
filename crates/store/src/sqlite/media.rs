//! What is known of the files that lie in the bucket; see `surehook_core::media`.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use surehook_core::{
    ids::MediaId,
    media::{MediaStore, Upload},
    service::message::MediaKind,
    store::StoreError,
};

use super::{
    SqliteStore,
    row::{blob, corrupt, id, time},
    writer::Tx,
};

#[async_trait]
impl MediaStore for SqliteStore {
    async fn keep_upload(&self, upload: Upload) -> Result<(), StoreError> {
        self.writer.write(move |tx| keep(tx, &upload)).await
    }

    async fn upload(&self, id: MediaId) -> Result<Option<Upload>, StoreError> {
        self.readers.read(move |connection| find(connection, id)).await
    }
}

// A wish that is carried out again has the same id and says the same.
const KEEP: &str = "
    INSERT INTO media (id, bucket, key, kind, mime_type, size, filename, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (id) DO NOTHING";

fn keep(tx: &mut Tx<'_, '_>, upload: &Upload) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(KEEP)?.execute(params![
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

const FIND: &str = "
    SELECT id, bucket, key, kind, mime_type, size, filename, created_at FROM media WHERE id = ?1";

fn find(connection: &Connection, wanted: MediaId) -> rusqlite::Result<Option<Upload>> {
    connection.prepare_cached(FIND)?.query_row(params![blob(wanted)], upload).optional()
}

fn upload(row: &Row<'_>) -> rusqlite::Result<Upload> {
    let kind: String = row.get(3)?;
    Ok(Upload {
        id: id(row, 0)?,
        bucket: row.get(1)?,
        key: row.get(2)?,
        kind: MediaKind::from_word(&kind).ok_or_else(|| corrupt(3, &kind))?,
        mime_type: row.get(4)?,
        size: row.get(5)?,
        filename: row.get(6)?,
        created_at: time(row, 7)?,
    })
}
