//! [`MessageStore`] on `SQLite`.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use rusqlite::Connection;
use surehook_messaging::{
    media::StoredMedia,
    store::{DailySendCount, MessageStore},
};
use surehook_types::{
    ids::{DestinationId, MediaId},
    store_error::StoreError,
    time::Timestamp,
};

use super::SqliteStore;
use crate::{
    sql::SqlError,
    steps::{media, sent_messages},
};

#[async_trait]
impl MessageStore for SqliteStore {
    async fn store_media(&self, upload: StoredMedia) -> Result<(), StoreError> {
        self.writer.write(move |tx| media::insert(tx, &upload)).await
    }

    async fn find_media(&self, id: MediaId) -> Result<Option<StoredMedia>, StoreError> {
        self.readers.read(move |db| media::find(db, id)).await
    }

    async fn use_media(
        &self,
        id: MediaId,
        now: Timestamp,
    ) -> Result<Option<StoredMedia>, StoreError> {
        let find = move |db: &Connection| {
            Ok::<_, SqlError>((media::find(db, id)?, media::is_recorded(db, id, now)?))
        };
        let (upload, is_recorded) = self.readers.read(find).await?;
        if is_recorded || upload.is_none() {
            return Ok(upload);
        }
        // The file may have been removed in between.
        let is_stored = self.writer.write(move |tx| media::record_use(tx, id, now)).await?;
        Ok(upload.filter(|_| is_stored))
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
