//! The store trait of messaging: media files and the number of messages sent per day.
//!
//! A webhook delivery needs none of it.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use surehook_types::{
    ids::{DestinationId, MediaId},
    store_error::StoreError,
    time::Timestamp,
};

use crate::media::StoredMedia;

/// Days for which daily send counts are stored.
pub const SENT_DAYS_KEPT: i32 = 400;

/// Number of messages sent on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailySendCount {
    pub destination: DestinationId,
    /// In days since 1970, in the destination's time zone.
    pub day: i32,
    pub sent: u64,
}

#[async_trait]
pub trait MessageStore: Send + Sync {
    /// Stores the metadata of a file. Durable after `Ok`. Storing the same id again changes nothing.
    async fn store_media(&self, media: StoredMedia) -> Result<(), StoreError>;

    async fn find_media(&self, id: MediaId) -> Result<Option<StoredMedia>, StoreError>;

    /// Finds a file that is about to be sent and records the use at `now`. `AdminStore::prune` deletes only
    /// files whose last use is before [`unused_cutoff`](crate::media::unused_cutoff). Durable after `Ok`.
    async fn use_media(
        &self,
        id: MediaId,
        now: Timestamp,
    ) -> Result<Option<StoredMedia>, StoreError>;

    /// Number of messages sent to `destination` on a day, in days since 1970 in its time zone.
    async fn count_sent_on(&self, destination: DestinationId, day: i32) -> Result<u64, StoreError>;

    /// Messages sent per day and destination; days without any are left out.
    async fn count_sent_by_day(
        &self,
        days: RangeInclusive<i32>,
    ) -> Result<Vec<DailySendCount>, StoreError>;
}
