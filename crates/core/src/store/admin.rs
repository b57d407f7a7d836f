//! The store trait of the API and of maintenance.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, RequestId, TokenId},
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::attribute::AttributeFilter;

use super::{
    ConfigChange, ConfigChangeResult, ConfigVersion, Configuration, DeliveryDetail, DeliveryFilter,
    DeliveryRow, DuplicateDetail, EventDetail, EventFilter, EventRow, HistoryFilter, ListPage,
    PageRequest, RecordedDelivery,
};
use crate::{
    access::{ApiToken, StoredLoginLink, TokenHash},
    alert::log::AlertLog,
    dead_letters::{DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter},
    decision::EventDecision,
    delivery::state::DeliveryStatus,
    event::{DuplicateId, Payload},
    refused::{RefusedFilter, RefusedRequest},
    requests::{ReceivedRequest, RequestCursor, RequestFilter},
    rollup::{BucketWidth, DestinationRollup, RollupCounts, RollupQuery},
};

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayResult {
    /// A new delivery was created and is due at once.
    Created { delivery: DeliveryId, destination: DestinationId },
    /// There is no such delivery.
    NotFound,
    /// It has not ended, or its destination was deleted.
    NotReplayable(DeliveryStatus),
    /// Retention has removed the body.
    BodyRemoved,
    /// The event was replayed to that destination less than [`REPLAY_INTERVAL`] ago.
    TooSoon { again_at: Timestamp },
}

/// The result of cancelling a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelResult {
    Done {
        /// The next delivery of the ordering key may be due there now.
        destination: DestinationId,
    },
    NotFound,
    /// It has ended or is in flight.
    NotCancellable(DeliveryStatus),
}

/// Exact counts since the store was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    pub events: u64,
    /// Events without a dedup key.
    pub no_key: u64,
    /// Events whose key another event held with another body.
    pub key_conflicts: u64,
    pub duplicates: u64,
    pub attempts: u64,
    pub retries: u64,
    /// Current number of deliveries by the status of their rows.
    pub by_status: BTreeMap<DeliveryStatus, u64>,
    pub dead: BTreeMap<DeadReason, DeadReasonCount>,
}

impl StoreCounts {
    /// Counts deliveries as `held` that are shown as such; see [`AdminStore::count_held`].
    pub fn move_to_held(&mut self, held: &BTreeMap<DeliveryStatus, u64>) {
        for (status, count) in held {
            let current = self.by_status.entry(*status).or_default();
            *current = current.saturating_sub(*count);
            *self.by_status.entry(DeliveryStatus::Held).or_default() += count;
        }
    }
}

/// Number of dead deliveries for a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadReasonCount {
    /// Since the store was created.
    pub total: u64,
    /// Currently dead.
    pub pending: u64,
}

/// The deliveries that wait for their destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCount {
    /// All of them: due, to be retried later, and held behind others of their ordering key.
    pub waiting: u64,
    /// Those that could be sent now.
    pub due: u64,
}

/// Health of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// The disk was full at the last write.
    pub is_disk_full: bool,
    /// Why the store has failed; the process must end.
    pub failure: Option<String>,
    /// Size of the database file.
    pub store_bytes: u64,
    /// Size of the write-ahead log.
    pub wal_bytes: u64,
    /// Free bytes on its disk; `None` if unknown.
    pub disk_free: Option<u64>,
    /// Operations waiting for the next commit.
    pub queued: usize,
    /// Why the database cannot be used at the moment. The store keeps trying, and the process stays.
    pub unreachable: Option<String>,
}

/// Health of a database server, and of its standbys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseHealth {
    /// Such as `PostgreSQL 15.6`.
    pub version: String,
    pub size_bytes: u64,
    /// Connections of all programs, and how many the server allows.
    pub connections: u64,
    pub connections_max: u64,
    /// How long the oldest open transaction has been open. It keeps removed rows from being cleaned up.
    pub oldest_transaction: Duration,
    /// Transactions that the oldest snapshot is behind: rows removed since then are still stored.
    pub oldest_snapshot_age: u64,
    /// Rows that were removed and not cleaned up yet, and rows that exist.
    pub dead_rows: u64,
    pub live_rows: u64,
    /// Whether a commit waits for a standby: nothing answered is lost when the server is.
    pub waits_for_standby: bool,
    pub standbys: Vec<StandbyHealth>,
    /// The server's time minus that of this process, in milliseconds.
    pub clock_offset_ms: i64,
}

/// A standby of a database server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandbyHealth {
    pub name: String,
    /// Such as `streaming`.
    pub state: String,
    pub is_synchronous: bool,
    /// Bytes of the log that it has not written yet.
    pub lag_bytes: u64,
}

/// The number of rows that one slice of pruning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Events, with their bodies, deliveries and attempts.
    pub events: usize,
    /// Bodies of events that stay.
    pub bodies: usize,
    /// Attempts of deliveries that stay.
    pub attempts: usize,
    /// Expired dedup keys.
    pub keys: usize,
    /// Whether there may be more to remove.
    pub more: bool,
}

/// The log of alerts, with the version that a change of it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredAlerts {
    /// 0 before the log was saved for the first time.
    pub version: u64,
    pub log: AlertLog,
}

/// The store operations of the API and of maintenance.
#[async_trait]
pub trait AdminStore: Send + Sync {
    /// The configuration as of one moment, with its version.
    async fn load_configuration(&self) -> Result<Configuration, StoreError>;

    /// The current version of the configuration; cheap.
    async fn load_configuration_version(&self) -> Result<ConfigVersion, StoreError>;

    /// Applies all changes in order, or none: only if the configuration still has the `expected` version,
    /// for which they were planned. Of two changes for the same version one is applied. Without changes
    /// the version stays.
    async fn change(
        &self,
        changes: Vec<ConfigChange>,
        expected: ConfigVersion,
        now: Timestamp,
    ) -> Result<ConfigChangeResult, StoreError>;

    /// Newest first.
    async fn list_events(
        &self,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Result<ListPage<EventRow, EventId>, StoreError>;

    /// For each attribute the newest matching events, at most `limit` each. The same as one call of
    /// [`Self::list_events`] per attribute, at about the cost of one.
    async fn list_events_with_each(
        &self,
        filters: Vec<AttributeFilter>,
        limit: usize,
    ) -> Result<Vec<Vec<EventRow>>, StoreError>;

    async fn find_event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError>;

    /// The row of an event without delivery counts.
    async fn find_event_row(&self, id: EventId) -> Result<Option<EventRow>, StoreError>;

    /// A stored duplicate of an event.
    async fn find_duplicate(&self, id: DuplicateId) -> Result<Option<DuplicateDetail>, StoreError>;

    /// The exact body of an event; `None` if there is no event or its body was removed.
    async fn find_body(&self, id: EventId) -> Result<Option<Payload>, StoreError>;

    /// Newest first.
    async fn list_deliveries(
        &self,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<ListPage<DeliveryRow, DeliveryId>, StoreError>;

    /// All deliveries of these events, oldest first.
    async fn list_deliveries_of(
        &self,
        events: Vec<EventId>,
    ) -> Result<Vec<DeliveryRow>, StoreError>;

    async fn find_delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError>;

    /// The deliveries that a destination had in a time span, newest first, with their attempts and
    /// without bodies. A page has as many rows as are left, at most `limit`; the next one continues after
    /// the last row.
    async fn list_history(
        &self,
        filter: HistoryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<Vec<RecordedDelivery>, StoreError>;

    /// Non-empty groups of dead letters, the most recently grown first.
    ///
    /// Counts are exact: they change in the same transaction as the deliveries.
    async fn list_dead_letter_groups(
        &self,
        filter: DeadLetterGroupFilter,
        page: PageRequest<DeadLetterGroupCursor>,
    ) -> Result<ListPage<DeadLetterGroup, DeadLetterGroupCursor>, StoreError>;

    /// The payload of a delivery; `None` if there is no delivery, its body was removed, or its route's
    /// transform has not produced one yet.
    async fn find_delivery_body(&self, id: DeliveryId) -> Result<Option<Payload>, StoreError>;

    /// Stores a decision; a bounded number per event and kind.
    async fn record_decision(&self, decision: EventDecision) -> Result<(), StoreError>;

    /// Stores refused requests, replacing the oldest of the source and reason beyond
    /// [`SAMPLES_MAX`](crate::refused::SAMPLES_MAX).
    async fn store_refused(&self, refused: Vec<RefusedRequest>) -> Result<(), StoreError>;

    /// Newest first.
    async fn list_refused(
        &self,
        filter: RefusedFilter,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RefusedRequest>, StoreError>;

    /// All incoming requests, newest first. Duplicates are in the order in which they were
    /// written, which may differ slightly.
    async fn list_requests(
        &self,
        filter: RequestFilter,
        page: PageRequest<RequestCursor>,
    ) -> Result<ListPage<ReceivedRequest, RequestCursor>, StoreError>;

    async fn find_refused(&self, id: RequestId) -> Result<Option<RefusedRequest>, StoreError>;

    /// Creates a new delivery of the same event to the same destination and marks `id` as replayed.
    ///
    /// Compare-and-set: of two at the same time one is `Created`, the other `TooSoon` or
    /// `NotReplayable`. A replay is never a duplicate. The same call again, with the same `new`, is
    /// `Created` again and changes nothing.
    async fn replay(
        &self,
        id: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
    ) -> Result<ReplayResult, StoreError>;

    /// Cancels a waiting delivery (`pending`, `scheduled` or `held`). The next one of its ordering key
    /// becomes due in the same transaction.
    async fn cancel(&self, id: DeliveryId, now: Timestamp) -> Result<CancelResult, StoreError>;

    /// Cancels one bounded slice of the waiting deliveries of deleted destinations; returns whether
    /// there may be more.
    ///
    /// [`Self::change`] cancels a first slice itself. Until they are cancelled, the remaining
    /// deliveries cannot be claimed.
    async fn cancel_for_deleted_destinations(&self) -> Result<bool, StoreError>;

    /// Counts of all nodes, as of a recent commit.
    async fn counts(&self) -> Result<StoreCounts, StoreError>;

    /// Number of deliveries, by the status of their rows, that are shown as `held` because their
    /// destination is paused or its circuit is open.
    async fn count_held(&self) -> Result<BTreeMap<DeliveryStatus, u64>, StoreError>;

    /// The oldest due time of each destination with deliveries due at `now`.
    async fn find_oldest_due(
        &self,
        now: Timestamp,
    ) -> Result<BTreeMap<DestinationId, Timestamp>, StoreError>;

    /// The deliveries in the store that wait for each destination; each number is counted up to `limit`
    /// of each way to wait. What a lane has in memory is not included.
    async fn count_waiting(
        &self,
        now: Timestamp,
        limit: u64,
    ) -> Result<BTreeMap<DestinationId, WaitingCount>, StoreError>;

    /// Health of the store, as far as this process knows it without asking.
    fn health(&self) -> StoreHealth;

    /// Health of the database server; `None` if the store has none.
    async fn inspect_database(&self) -> Result<Option<DatabaseHealth>, StoreError>;

    /// Completes when the store has failed, with the reason.
    async fn wait_for_failure(&self) -> String;

    /// Removes one bounded slice of expired data: events, bodies and attempts by the `retention` of their
    /// source (see [`RetentionPolicy::expired_parts`]), with `event_retention` as the default for events;
    /// expired keys; old buckets of [`Self::list_rollups`]; days of [`MessageStore::count_sent_by_day`] older than
    /// [`SENT_DAYS_KEPT`]; and records of [unused](surehook_messaging::media::unused_cutoff) files.
    ///
    /// - Nothing of an event with an unfinished delivery is removed.
    /// - A deleted source keeps its last retention settings.
    /// - An event that was unfinished when it expired is checked again after a tenth of its age, at the
    ///   latest a day later.
    ///
    /// [`MessageStore::count_sent_by_day`]: surehook_messaging::store::MessageStore::count_sent_by_day
    /// [`SENT_DAYS_KEPT`]: surehook_messaging::store::SENT_DAYS_KEPT
    /// [`RetentionPolicy::expired_parts`]: crate::retention::RetentionPolicy::expired_parts
    async fn prune(
        &self,
        event_retention: Duration,
        now: Timestamp,
    ) -> Result<PruneReport, StoreError>;

    /// Merges a bounded slice of new counts into the buckets of [`Self::list_rollups`]; returns whether there
    /// is more. Queries give the same result before and after.
    async fn roll_up(&self) -> Result<bool, StoreError>;

    /// Counts per bucket, oldest first; empty buckets are left out.
    ///
    /// Exact: counted in the transaction of what is counted, and unaffected by [`Self::prune`] until the
    /// bucket itself expires.
    async fn list_rollups(
        &self,
        query: RollupQuery,
    ) -> Result<Vec<(Timestamp, RollupCounts)>, StoreError>;

    /// The counts of each destination per bucket of this width, from the first bucket that starts at
    /// `since` or later; empty buckets and deleted destinations are left out. Exact, like
    /// [`Self::list_rollups`], with one read for all destinations.
    async fn list_destination_rollups(
        &self,
        width: BucketWidth,
        since: Timestamp,
    ) -> Result<Vec<DestinationRollup>, StoreError>;

    /// The log of alerts.
    async fn load_alerts(&self) -> Result<StoredAlerts, StoreError>;

    /// Replaces the log of alerts if it still has the `expected` version, and returns the new one. Of two
    /// changes of one version one is saved; durable after `Ok`.
    async fn save_alerts(&self, expected: u64, log: AlertLog) -> Result<Option<u64>, StoreError>;

    /// Stores an API token or session. An existing one with the same hash gets its role and expiry.
    ///
    /// A session is stored only if its token still exists; returns whether it was stored.
    async fn add_token(&self, token: ApiToken) -> Result<bool, StoreError>;

    /// Stores the admin token of a start. One that was `generated` is stored only while no admin token is
    /// valid: of several processes that start together, one has the first token.
    async fn add_initial_token(
        &self,
        token: ApiToken,
        generated: bool,
    ) -> Result<InitialTokenResult, StoreError>;

    /// All tokens, oldest first, expired ones included.
    async fn list_tokens(&self) -> Result<Vec<ApiToken>, StoreError>;

    /// Moves the expiry of a session. One that was removed meanwhile stays removed.
    async fn extend_session(&self, id: TokenId, expires_at: Timestamp) -> Result<(), StoreError>;

    /// Stores a one-time login link. Removes expired links, and the oldest beyond [`LOGIN_LINKS_MAX`].
    async fn add_login_link(&self, link: StoredLoginLink, now: Timestamp)
    -> Result<(), StoreError>;

    /// Removes a login link and returns it, so that it works only once. One that has expired, or whose
    /// token was removed, is not found.
    async fn take_login_link(
        &self,
        hash: TokenHash,
        now: Timestamp,
    ) -> Result<Option<StoredLoginLink>, StoreError>;

    /// Removes a token, its sessions and its login links, unless it is the last valid admin token.
    async fn remove_token(
        &self,
        id: TokenId,
        now: Timestamp,
    ) -> Result<RemoveTokenResult, StoreError>;
}

/// The result of storing the admin token of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialTokenResult {
    /// There was no token before.
    First,
    Stored,
    /// An admin token is valid already.
    NotNeeded,
}

/// The result of removing a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveTokenResult {
    Removed,
    NotFound,
    /// The last admin token that has not expired is not removed.
    LastAdmin,
}

/// Unused login links that are kept.
pub const LOGIN_LINKS_MAX: usize = 100;

/// Minimum time between two replays of a delivery.
pub const REPLAY_INTERVAL: Duration = Duration::from_secs(60);
