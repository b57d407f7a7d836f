//! The embedded store: one `SQLite` file, one writer thread, a few readers.
//!
//! ```text
//!  admit, settle, claim, …  ──► queue ──► writer thread ──► BEGIN … COMMIT (one fsync) ──► answers
//!  lists, lookups           ──► read-only connections on the blocking pool
//!  known duplicates         ──► cache: keys of committed events
//! ```
//!
//! Every write goes through one queue and shares a transaction with the other queued writes (see
//! `writer`). This makes an fsync per answer affordable, and no two writers can conflict.

mod backup;
mod cache;
mod checkpoint;
mod commit_mark;
mod connection;
mod dead_letter_functions;
mod event_index;
mod folder;
mod inspect;
mod key_index;
mod message_store;
mod migrate;
mod nodes;
mod prepared;
mod prune_state;
mod read_pool;
mod recent_keys;
mod repair;
mod replay_store;
mod rescue;
mod reserve;
mod restore;
mod rotation;
mod schema;
mod sealing;
mod search_terms;
mod secret_key;
mod start_check;
mod writer;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode};
use surehook_core::{
    access::{ApiToken, StoredLoginLink, TokenHash},
    alert::log::AlertLog,
    callback::{CallbackResult, DueCallback},
    clock::{SavedClock, StoredClock},
    dead_letters::{DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter},
    decision::{EventDecision, NotRoutedReason},
    delivery::{ClaimProof, LaneEpoch, state::DeliveryStatus},
    event::{DedupKeyClaim, DuplicateId, NewEvent, Payload},
    idempotency::{
        ClaimContext, ClaimDetail, ClaimFilter, ClaimRow, ClaimStep, ClaimStepResult, ClaimTotals,
        IdempotencyStore, NamespaceCounts,
    },
    lane::{LaneId, SavedLaneState},
    quarantine::{QuarantineResult, QuarantineStore, QuarantinedRequest},
    refused::{RefusedFilter, RefusedRequest},
    requests::{ReceivedRequest, RequestCursor, RequestFilter},
    rollup::{BucketWidth, DestinationRollup, RollupCounts, RollupQuery},
    store::{
        AbandonedClaim, AdminStore, AdmitResult, CancelResult, ClaimBatch, ConfigChange,
        ConfigChangeResult, ConfigVersion, Configuration, CoordinationStore, DatabaseHealth,
        DeliveryDetail, DeliveryFilter, DeliveryRow, DeliveryStore, DuplicateDetail, Duty,
        DutyTerm, EventDetail, EventFilter, EventRow, HeldClaim, HistoryFilter, IngestStore,
        InitialTokenResult, JoinRequest, JoinResult, LaneAnswer, LaneRequest, LedDuty, ListPage,
        NewNode, NodeLease, NodesReport, OwnedLane, PageRequest, PruneReport, RecordedDelivery,
        RemoveTokenResult, ReplayResult, SettleResult, Settlement, Signal, SignalBatch,
        SignalPosition, StoreCounts, StoreHealth, StoredAlerts, WaitingCount,
    },
};
use surehook_dedup::ClaimKey;
use surehook_types::{
    ids::{
        DeliveryId, DestinationId, EventId, LaneRequestId, NodeId, RequestId, SourceId, TokenId,
    },
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::attribute::AttributeFilter;

pub(crate) use self::migrate::SqliteSide;
pub use self::{
    backup::{BackupError, DatabaseContents, backup, check_database},
    folder::create_private_file,
    inspect::{FolderInspection, inspect},
    migrate::forget_move,
    repair::{RepairError, RepairReport, repair},
    restore::{RestoreError, RestoreReport, restore},
    rotation::{NewSecretKey, RotationReport, rotate_secret_key},
    secret_key::{SECRET_KEY_FILE, SecretKey, SecretKeyError, SecretKeyId},
    start_check::find_rescued,
};
use self::{
    cache::StoreCache,
    checkpoint::Checkpointer,
    commit_mark::{CommitMark, MarkReading},
    event_index::SqliteEventIndex,
    nodes::LocalNodes,
    read_pool::ReadPool,
    reserve::SpaceReserve,
    writer::{WriteTransaction, Writer, WriterResources},
};
#[cfg(test)]
pub(crate) use self::{connection::SqliteDialect, schema::query_plan};
use crate::{
    sealing::DataKeys,
    sql::SqlError,
    steps::{
        alerts, callbacks, claims, clock, configure, crash_outcomes, dead_letter_groups, decisions,
        deleted_destinations, delivery_bodies, duplicates,
        event_terms::EventTerms,
        history, idempotency, ingest, join_sender, lanes, list, list_events, list_requests,
        login_links, lookups, ordering_queue, prune,
        quarantine::{self, QuarantineSources},
        refused, replay, rollups, row, tokens,
    },
};

const DATABASE: &str = "surehook.db";

/// How to open an embedded store.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The data folder; created if it does not exist.
    pub data: PathBuf,
    /// Number of committed keys in the cache.
    pub keys_remembered: usize,
    /// Number of requests that may wait for a commit before more are refused.
    pub queue_max: usize,
    /// Number of new keys at which they are merged into their index, and the same for search terms but
    /// no more than [`search_terms::MERGE_AT`]; see `recent_keys` and `search_terms`.
    pub merge_keys_at: usize,
    /// The key that secrets are encrypted with; `None` for the file in the data folder, which is
    /// created if it does not exist.
    pub secret_key: Option<SecretKey>,
}

impl SqliteOptions {
    /// The default limits.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            keys_remembered: 100_000,
            queue_max: 20_000,
            merge_keys_at: recent_keys::MERGE_AT,
            secret_key: None,
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error(
        "the data folder {} cannot be used: {error}; choose another one with --data",
        .0.display(), error = .1
    )]
    Folder(PathBuf, #[source] std::io::Error),
    /// Other users have access, and this process may not change that.
    #[error(
        "{} is accessible to other users (mode {mode:o}) and this process may not change that; \
         run `chmod go= {}` as its owner, or choose a folder of your own with --data",
        path.display(), path.display()
    )]
    NotPrivate { path: PathBuf, mode: u32 },
    /// Another process has the folder open.
    #[error(
        "another surehook process uses the data folder {}; stop it or choose another folder with --data",
        .0.display()
    )]
    Locked(PathBuf),
    /// The file was written by a newer version.
    #[error(
        "the data was written by a newer version (schema {found}, this version supports {known}); use the newer version"
    )]
    Newer { found: usize, known: usize },
    /// The file was written by an older version and is opened read-only, so it cannot be migrated.
    #[error(
        "the data was written by an older version (schema {found}, this version needs {known}); start `surehook serve` once to migrate it"
    )]
    Older { found: usize, known: usize },
    /// The file belongs to another program.
    #[error("{} is not a surehook database", .0.display())]
    Foreign(PathBuf),
    #[error("there is no database at {}", .0.display())]
    Missing(PathBuf),
    /// A restore into the folder was interrupted.
    #[error("a restore into {} was interrupted; run `surehook restore` again", .0.display())]
    RestoreInterrupted(PathBuf),
    /// The folder is the target of a migration that is not complete.
    #[error(
        "a migration into {} is not complete; run `surehook migrate` again, or use another folder",
        .0.display()
    )]
    MigrationUnfinished(PathBuf),
    /// Everything in the folder was moved to another store.
    #[error(
        "the data in {} was moved to {to}; start the gateway there. If that store is lost, or was never used, \
         `surehook serve --use-moved-data` uses the folder again",
        folder.display()
    )]
    Moved { folder: PathBuf, to: String },
    /// The file system does not support a write-ahead log.
    #[error(
        "the file system of {} does not support a write-ahead log; use a local disk",
        .0.display()
    )]
    WalUnsupported(PathBuf),
    /// The linked `SQLite` has a known bug that corrupts data.
    #[error("SQLite {0} has a known bug; 3.51.3 or newer is required")]
    OldSqlite(&'static str),
    /// The database was removed, or only its log is left.
    #[error("the database in {} is missing, although events were stored there", .0.display())]
    DatabaseMissing(PathBuf),
    /// Another database is in its place.
    #[error(
        "{}/{DATABASE} is not the database that this folder had at the last run: it was replaced, or is damaged",
        .0.display()
    )]
    DatabaseReplaced(PathBuf),
    /// The database is older than what was acknowledged.
    #[error(
        "{missing} acknowledged commits are missing from the database in {}: its files are damaged, incomplete or from an older copy",
        folder.display()
    )]
    CommitsMissing { folder: PathBuf, missing: u64 },
    /// No key opens the secrets.
    #[error(
        "the secrets in {} are encrypted with the secret key {needed}, which is missing; put its file \
         there as {SECRET_KEY_FILE}, or name it with secret_key_file or SUREHOOK_SECRET_KEY (it is not part \
         of a backup: take it from the gateway that made it); nothing was changed",
        folder.display()
    )]
    SecretKeyMissing { folder: PathBuf, needed: SecretKeyId },
    /// The given key does not open the secrets.
    #[error(
        "the secrets in {} are encrypted with the secret key {needed}, but the key given is {found}; {}; \
         nothing was changed",
        folder.display(),
        if *in_folder {
            "to use the given key from now on, run `surehook secret-key rotate` with it"
        } else {
            "give the one that the data was written with (a backup needs the key of its time)"
        }
    )]
    SecretKeyWrong {
        folder: PathBuf,
        needed: SecretKeyId,
        found: SecretKeyId,
        /// Whether the right key is in the data folder.
        in_folder: bool,
    },
    #[error("the secret key {} cannot be used: {}", .0.display(), .1)]
    SecretKeyFile(PathBuf, #[source] SecretKeyError),
    #[error("the database is damaged: {0}")]
    Damaged(String),
    #[error("the database cannot be opened: {0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Sqlite(error),
        }
    }
}

impl From<SqlError> for OpenError {
    fn from(error: SqlError) -> Self {
        rusqlite::Error::from(error).into()
    }
}

impl OpenError {
    /// Whether the data itself is damaged or incomplete, so that only the original files, a backup or
    /// [`repair()`] help.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::DatabaseMissing(_)
                | Self::DatabaseReplaced(_)
                | Self::CommitsMissing { .. }
                | Self::Damaged(_)
        )
    }

    /// The error for a schema version other than the known one.
    fn wrong_version(found: usize, known: usize) -> Self {
        if found > known { Self::Newer { found, known } } else { Self::Older { found, known } }
    }
}

/// The embedded store.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: ReadPool,
    cache: Arc<StoreCache>,
    quarantine_sources: Arc<QuarantineSources>,
    data_keys: Arc<DataKeys>,
    nodes: LocalNodes,
    file: PathBuf,
}

impl SqliteStore {
    /// Opens the store, migrates its schema, and releases the claims of the previous process: the lock
    /// on the folder proves that no other process holds them.
    pub fn open(options: &SqliteOptions, now: Timestamp) -> Result<Self, OpenError> {
        let lock = folder::lock(&options.data)?;
        if folder::is_restore_interrupted(&options.data) {
            return Err(OpenError::RestoreInterrupted(options.data.clone()));
        }
        // Before anything is written: on a full disk the start needs the reserved space.
        let reserve = SpaceReserve::open(&options.data);
        let file = options.data.join(DATABASE);
        let mark = start_check::check_files(&options.data)?;
        folder::make_database_private(&file)?;
        let connection = start_check::open_checked(&options.data, mark)?;
        migrate::check_marks(&connection, &options.data)?;
        // Before the schema is migrated: with a wrong key nothing is changed.
        folder::make_keys_private(&options.data)?;
        let configured = options.secret_key.as_ref();
        let secret_key = sealing::find_secret_key(&connection, &options.data, configured)?;
        let mut connection = schema::prepare_writer(connection, &file)?;
        let data_keys = Arc::new(DataKeys::open(&mut connection, &secret_key, now)?);
        if configured.is_none() {
            // Completes a rotation that was interrupted.
            secret_key::promote(&options.data, secret_key.id())?;
        }
        let mark = open_mark(&connection, &options.data, mark)?;
        let cache = Arc::new(StoreCache::new(options.keys_remembered));
        let quarantine_sources = Arc::new(QuarantineSources::default());
        quarantine_sources.reload(&connection)?;
        let mark_file = mark.as_ref().map(CommitMark::file);
        let checkpointer = Checkpointer::start(&file, &mut connection, mark_file)?;
        let writer = Writer::start(
            WriterResources {
                connection,
                checkpointer,
                mark,
                file: file.clone(),
                merge_at: options.merge_keys_at,
                reserve,
                folder_key: configured.is_none().then_some(secret_key),
                lock,
            },
            Arc::clone(&cache),
            options.queue_max,
            now,
        )?;
        let readers = ReadPool::new(&file);
        let nodes = LocalNodes::new(now);
        Ok(Self { writer, readers, cache, quarantine_sources, data_keys, nodes, file })
    }

    /// Writes what is queued, copies the log into the database and closes it. Afterwards the database
    /// is complete without its log. Every later write is refused.
    pub async fn close(&self) {
        self.writer.close().await;
    }

    /// Limits the size of the file, so that tests can simulate a full disk. The file never shrinks: a
    /// limit below its size means that it cannot grow.
    #[cfg(feature = "conformance")]
    pub async fn limit_pages(&self, pages_max: u32) -> Result<(), StoreError> {
        let limit = format!("PRAGMA max_page_count = {pages_max}");
        self.writer.write(move |tx| tx.connection.query_row(&limit, [], |_| Ok(()))).await
    }
}

/// Opens the commit mark of a checked database. On a full disk the store works without one.
fn open_mark(
    connection: &Connection,
    folder: &Path,
    reading: MarkReading,
) -> Result<Option<CommitMark>, OpenError> {
    let unprotected = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "could not create the commit mark; lost commits are not detected until the next start");
        Ok(None)
    };
    if reading == MarkReading::Unreadable {
        tracing::warn!("the commit mark was damaged and is created again");
    }
    if commit_mark::read_position(connection)?.is_none()
        && let Err(error) = commit_mark::begin_epoch(connection)
    {
        return unprotected(&error);
    }
    let Some(position) = commit_mark::read_position(connection)? else { return Ok(None) };
    match CommitMark::open(folder, reading, position) {
        Ok(mark) => Ok(Some(mark)),
        Err(error) => unprotected(&error),
    }
}

#[async_trait]
impl IngestStore for SqliteStore {
    fn find_committed(
        &self,
        source: SourceId,
        claim: &DedupKeyClaim,
        fingerprint: &[u8; 32],
        seen_at: Timestamp,
    ) -> Option<EventId> {
        let key = claim.digest(source);
        let original = self.cache.find_committed(source, key, fingerprint, seen_at)?;
        self.writer.wake_for_sightings();
        Some(original)
    }

    async fn admit(&self, events: Arc<[NewEvent]>) -> Result<Vec<AdmitResult>, StoreError> {
        let terms = |event: &NewEvent| EventTerms::new(event.kind.as_ref(), &event.attributes);
        let terms: Vec<EventTerms> = events.iter().map(terms).collect();
        self.writer.write_bounded(move |tx| ingest::insert_events(tx, &events, &terms)).await
    }

    async fn join(&self, request: JoinRequest) -> Result<JoinResult, StoreError> {
        self.writer.write(move |tx| join_sender::join_delivery(tx, &request)).await
    }
}

#[async_trait]
impl DeliveryStore for SqliteStore {
    async fn claim_due(
        &self,
        destination: DestinationId,
        now: Timestamp,
        proof: ClaimProof,
        limit: usize,
    ) -> Result<ClaimBatch, StoreError> {
        self.writer
            .write(move |tx| claims::claim(tx, claims::DUE, destination, now, proof, limit))
            .await
    }

    async fn claim_next(
        &self,
        destination: DestinationId,
        now: Timestamp,
        proof: ClaimProof,
    ) -> Result<ClaimBatch, StoreError> {
        let (next, limit) = (claims::NEXT, claims::NEXT_SCAN_MAX);
        self.writer.write(move |tx| claims::claim(tx, next, destination, now, proof, limit)).await
    }

    async fn find_next_due(
        &self,
        destination: DestinationId,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(move |db| claims::next_due(db, destination)).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<SettleResult>, StoreError> {
        let settle_all = move |tx: &mut WriteTransaction<'_, '_>| {
            settlements.iter().map(|settlement| claims::settle(tx, settlement)).collect()
        };
        self.writer.write(settle_all).await
    }

    async fn record_crash_outcome(&self, outcome: Settlement) -> Result<SettleResult, StoreError> {
        self.writer.write(move |tx| crash_outcomes::record(tx, &outcome)).await
    }

    async fn release(&self, held: Vec<HeldClaim>, due_at: Timestamp) -> Result<(), StoreError> {
        self.writer.write(move |tx| claims::release(tx, &held, due_at)).await
    }

    async fn abandon(&self, claims: Vec<AbandonedClaim>, now: Timestamp) -> Result<(), StoreError> {
        self.writer.write(move |tx| claims::abandon(tx, &claims, now)).await
    }

    async fn cancel_claimed(
        &self,
        claim: HeldClaim,
        reason: NotRoutedReason,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.writer.write(move |tx| claims::cancel_claimed(tx, claim, &reason, at)).await
    }

    async fn list_due_callbacks(
        &self,
        after: Option<DeliveryId>,
        limit: usize,
    ) -> Result<Vec<DueCallback>, StoreError> {
        self.readers.read(move |db| callbacks::list_due(db, after, limit)).await
    }

    async fn end_callback(
        &self,
        delivery: DeliveryId,
        result: CallbackResult,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| callbacks::end(tx, delivery, result, at)).await
    }

    async fn save_lane(
        &self,
        destination: DestinationId,
        epoch: LaneEpoch,
        state: SavedLaneState,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| lanes::save(tx, destination, epoch, &state)).await
    }

    async fn load_lanes(&self) -> Result<BTreeMap<DestinationId, SavedLaneState>, StoreError> {
        self.readers.read(lanes::load_all).await
    }

    async fn load_clock(&self) -> Result<StoredClock, StoreError> {
        self.readers.read(clock::load).await
    }

    async fn save_clock(&self, clock: SavedClock) -> Result<(), StoreError> {
        self.writer.write(move |tx| clock::save(tx, &clock)).await
    }

    async fn shorten_waits(&self, now: Timestamp, step: Duration) -> Result<usize, StoreError> {
        self.writer.write(move |tx| clock::shorten_waits(tx, now, step)).await
    }
}

/// The lock on the folder proves that no other process uses the store: leases do not end, and all lanes
/// have the epoch that began when it was opened.
#[async_trait]
impl CoordinationStore for SqliteStore {
    async fn register_node(&self, node: NewNode) -> Result<NodeLease, StoreError> {
        self.nodes.register(node);
        Ok(NodeLease::Unlimited)
    }

    async fn renew_node(&self, node: NodeId) -> Result<Option<NodeLease>, StoreError> {
        Ok(self.nodes.renew(node).then_some(NodeLease::Unlimited))
    }

    async fn begin_leaving(&self, node: NodeId) -> Result<(), StoreError> {
        self.nodes.begin_leaving(node);
        Ok(())
    }

    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError> {
        self.nodes.remove(node);
        Ok(())
    }

    async fn acquire_lanes(
        &self,
        node: NodeId,
        lanes: Vec<LaneId>,
    ) -> Result<Vec<OwnedLane>, StoreError> {
        Ok(self.nodes.acquire_lanes(node, lanes, self.writer.epoch()))
    }

    async fn release_lanes(&self, node: NodeId, lanes: Vec<LaneId>) -> Result<(), StoreError> {
        self.nodes.release_lanes(node, &lanes);
        Ok(())
    }

    async fn lead_duties(
        &self,
        node: NodeId,
        duties: Vec<Duty>,
    ) -> Result<Vec<LedDuty>, StoreError> {
        Ok(self.nodes.lead_duties(node, duties, DutyTerm(self.writer.epoch().0)))
    }

    async fn load_nodes(&self) -> Result<NodesReport, StoreError> {
        Ok(self.nodes.report(self.writer.epoch()))
    }

    async fn publish_signals(&self, node: NodeId, signals: Vec<Signal>) -> Result<(), StoreError> {
        self.nodes.publish(node, signals);
        Ok(())
    }

    async fn poll_signals(
        &self,
        node: NodeId,
        after: Option<SignalPosition>,
        wait: Duration,
    ) -> Result<SignalBatch, StoreError> {
        let batch = self.nodes.poll(node, after, wait).await;
        let configuration = self.load_configuration_version().await?;
        Ok(SignalBatch { configuration, ..batch })
    }

    async fn add_lane_request(&self, request: LaneRequest) -> Result<(), StoreError> {
        self.nodes.add_request(request);
        Ok(())
    }

    async fn list_lane_requests(&self, node: NodeId) -> Result<Vec<LaneRequest>, StoreError> {
        Ok(self.nodes.list_requests(node))
    }

    async fn answer_lane_request(
        &self,
        id: LaneRequestId,
        answer: LaneAnswer,
    ) -> Result<(), StoreError> {
        self.nodes.answer_request(id, answer);
        Ok(())
    }

    async fn find_lane_answer(&self, id: LaneRequestId) -> Result<Option<LaneAnswer>, StoreError> {
        Ok(self.nodes.find_answer(id))
    }
}

#[async_trait]
impl QuarantineStore for SqliteStore {
    async fn quarantine(
        &self,
        request: QuarantinedRequest,
        bytes_max: u64,
    ) -> Result<QuarantineResult, StoreError> {
        let quarantine_sources = Arc::clone(&self.quarantine_sources);
        let keys = Arc::clone(&self.data_keys);
        let step = move |tx: &mut WriteTransaction<'_, '_>| {
            quarantine_sources.add(request.source);
            quarantine::insert(tx, &keys, &request, bytes_max)
        };
        self.writer.write_bounded(step).await
    }

    fn may_have_quarantined(&self, source: SourceId) -> bool {
        self.quarantine_sources.contains(source)
    }

    async fn list_quarantined(
        &self,
        source: Option<SourceId>,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<QuarantinedRequest>, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        self.readers.read(move |db| quarantine::list(db, &keys, source, page)).await
    }

    async fn list_quarantined_ids(
        &self,
        source: SourceId,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RequestId>, StoreError> {
        self.readers.read(move |db| quarantine::list_oldest_first(db, source, page)).await
    }

    async fn find_quarantined(
        &self,
        id: RequestId,
    ) -> Result<Option<QuarantinedRequest>, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        self.readers.read(move |db| quarantine::find(db, &keys, id)).await
    }

    async fn discard_quarantined(&self, id: RequestId) -> Result<bool, StoreError> {
        self.writer.write(move |tx| quarantine::remove(tx, id)).await
    }
}

#[async_trait]
impl AdminStore for SqliteStore {
    async fn load_configuration(&self) -> Result<Configuration, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        self.readers.read(move |db| lookups::load_configuration(db, &keys)).await
    }

    async fn load_alerts(&self) -> Result<StoredAlerts, StoreError> {
        self.readers.read(alerts::load).await
    }

    async fn save_alerts(&self, expected: u64, log: AlertLog) -> Result<Option<u64>, StoreError> {
        self.writer.write(move |tx| alerts::save(tx, expected, &log)).await
    }

    async fn load_configuration_version(&self) -> Result<ConfigVersion, StoreError> {
        self.readers.read(lookups::load_configuration_version).await
    }

    async fn change(
        &self,
        changes: Vec<ConfigChange>,
        expected: ConfigVersion,
        now: Timestamp,
    ) -> Result<ConfigChangeResult, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        let change = move |tx: &mut WriteTransaction<'_, '_>| {
            configure::change(tx, &keys, &changes, expected, now)
        };
        self.writer.write(change).await
    }

    async fn list_events(
        &self,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Result<ListPage<EventRow, EventId>, StoreError> {
        let recent_keys = self.cache.recent_keys();
        let query = move |db: &Connection| {
            let index = SqliteEventIndex { connection: db, recent_keys: recent_keys.as_ref() };
            list_events::list_events(db, &index, &filter, page)
        };
        self.readers.read(query).await
    }

    async fn list_events_with_each(
        &self,
        filters: Vec<AttributeFilter>,
        limit: usize,
    ) -> Result<Vec<Vec<EventRow>>, StoreError> {
        let query = move |db: &Connection| {
            let index = SqliteEventIndex { connection: db, recent_keys: None };
            list_events::list_with_each(db, &index, &filters, limit)
        };
        self.readers.read(query).await
    }

    async fn find_event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.readers.read(move |db| lookups::find_event(db, id)).await
    }

    async fn find_event_row(&self, id: EventId) -> Result<Option<EventRow>, StoreError> {
        self.readers.read(move |db| lookups::find_event_row(db, id)).await
    }

    async fn find_duplicate(
        &self,
        duplicate: DuplicateId,
    ) -> Result<Option<DuplicateDetail>, StoreError> {
        self.readers.read(move |db| duplicates::find(db, duplicate)).await
    }

    async fn find_body(&self, id: EventId) -> Result<Option<Payload>, StoreError> {
        self.readers.read(move |db| lookups::find_payload(db, id)).await
    }

    async fn list_dead_letter_groups(
        &self,
        filter: DeadLetterGroupFilter,
        page: PageRequest<DeadLetterGroupCursor>,
    ) -> Result<ListPage<DeadLetterGroup, DeadLetterGroupCursor>, StoreError> {
        self.readers.read(move |db| dead_letter_groups::list(db, filter, page)).await
    }

    async fn list_deliveries(
        &self,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<ListPage<DeliveryRow, DeliveryId>, StoreError> {
        self.readers.read(move |db| list::list_deliveries(db, filter, page)).await
    }

    async fn list_deliveries_of(
        &self,
        events: Vec<EventId>,
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        self.readers.read(move |db| list::list_for_events(db, &events)).await
    }

    async fn list_history(
        &self,
        filter: HistoryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<Vec<RecordedDelivery>, StoreError> {
        self.readers.read(move |db| history::list_history(db, filter, page)).await
    }

    async fn find_delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        self.readers.read(move |db| lookups::find_delivery(db, id)).await
    }

    async fn find_delivery_body(&self, id: DeliveryId) -> Result<Option<Payload>, StoreError> {
        self.readers.read(move |db| delivery_bodies::find_body(db, id)).await
    }

    async fn record_decision(&self, decision: EventDecision) -> Result<(), StoreError> {
        self.writer.write(move |tx| decisions::insert(tx, &decision)).await
    }

    async fn store_refused(&self, refused: Vec<RefusedRequest>) -> Result<(), StoreError> {
        self.writer.write_bounded(move |tx| refused::insert(tx, &refused)).await
    }

    async fn list_refused(
        &self,
        filter: RefusedFilter,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RefusedRequest>, StoreError> {
        self.readers.read(move |db| refused::list(db, &filter, page)).await
    }

    async fn list_requests(
        &self,
        filter: RequestFilter,
        page: PageRequest<RequestCursor>,
    ) -> Result<ListPage<ReceivedRequest, RequestCursor>, StoreError> {
        self.readers.read(move |db| list_requests::list_requests(db, &filter, page)).await
    }

    async fn find_refused(&self, id: RequestId) -> Result<Option<RefusedRequest>, StoreError> {
        self.readers.read(move |db| refused::find(db, id)).await
    }

    async fn replay(
        &self,
        id: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
    ) -> Result<ReplayResult, StoreError> {
        self.writer.write(move |tx| replay::replay_delivery(tx, id, new, now)).await
    }

    async fn cancel(&self, id: DeliveryId, now: Timestamp) -> Result<CancelResult, StoreError> {
        self.writer.write(move |tx| ordering_queue::cancel(tx, id, now)).await
    }

    async fn cancel_for_deleted_destinations(&self) -> Result<bool, StoreError> {
        self.writer.write(|tx| deleted_destinations::cancel_next_slice(tx)).await
    }

    async fn count_held(&self) -> Result<BTreeMap<DeliveryStatus, u64>, StoreError> {
        self.readers.read(lanes::count_held).await
    }

    async fn counts(&self) -> Result<StoreCounts, StoreError> {
        Ok(self.cache.counts())
    }

    async fn find_oldest_due(
        &self,
        now: Timestamp,
    ) -> Result<BTreeMap<DestinationId, Timestamp>, StoreError> {
        self.readers.read(move |db| lookups::find_oldest_due(db, now)).await
    }

    async fn count_waiting(
        &self,
        now: Timestamp,
        limit: u64,
    ) -> Result<BTreeMap<DestinationId, WaitingCount>, StoreError> {
        self.readers.read(move |db| lookups::count_waiting(db, now, limit)).await
    }

    fn health(&self) -> StoreHealth {
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
        let writer = self.writer.health();
        StoreHealth {
            is_disk_full: writer.is_disk_full,
            failure: writer.failure,
            store_bytes: bytes(&self.file),
            wal_bytes: bytes(&self.file.with_extension("db-wal")),
            disk_free: rustix::fs::statvfs(&self.file)
                .ok()
                .map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
            queued: self.writer.queue_len(),
            unreachable: None,
        }
    }

    async fn inspect_database(&self) -> Result<Option<DatabaseHealth>, StoreError> {
        Ok(None)
    }

    async fn wait_for_failure(&self) -> String {
        self.writer.wait_for_failure().await
    }

    async fn prune(
        &self,
        events_kept: Duration,
        now: Timestamp,
    ) -> Result<PruneReport, StoreError> {
        let quarantine_sources = Arc::clone(&self.quarantine_sources);
        let step = move |tx: &mut WriteTransaction<'_, '_>| {
            let pruned = prune::prune_slice(tx, events_kept, now)?;
            quarantine_sources.reload(tx.connection)?;
            Ok::<_, SqlError>(pruned)
        };
        self.writer.write(step).await
    }

    async fn roll_up(&self) -> Result<bool, StoreError> {
        self.writer.write(|tx| rollups::roll_up(tx)).await
    }

    async fn list_rollups(
        &self,
        query: RollupQuery,
    ) -> Result<Vec<(Timestamp, RollupCounts)>, StoreError> {
        self.readers.read(move |db| rollups::query_buckets(db, query)).await
    }

    async fn list_destination_rollups(
        &self,
        width: BucketWidth,
        since: Timestamp,
    ) -> Result<Vec<DestinationRollup>, StoreError> {
        self.readers.read(move |db| rollups::list_for_destinations(db, width, since)).await
    }

    async fn add_token(&self, token: ApiToken) -> Result<bool, StoreError> {
        let is_added = self.writer.write(move |tx| tokens::add(tx, &token)).await?;
        self.nodes.count_token_change();
        Ok(is_added)
    }

    async fn add_initial_token(
        &self,
        token: ApiToken,
        generated: bool,
    ) -> Result<InitialTokenResult, StoreError> {
        let result =
            self.writer.write(move |tx| tokens::add_initial(tx, &token, generated)).await?;
        self.nodes.count_token_change();
        Ok(result)
    }

    async fn list_tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        self.readers.read(tokens::list).await
    }

    async fn extend_session(&self, id: TokenId, expires_at: Timestamp) -> Result<(), StoreError> {
        self.writer.write(move |tx| tokens::extend_session(tx, id, expires_at)).await?;
        self.nodes.count_token_change();
        Ok(())
    }

    async fn add_login_link(
        &self,
        link: StoredLoginLink,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| login_links::add(tx, &link, now)).await
    }

    async fn take_login_link(
        &self,
        hash: TokenHash,
        now: Timestamp,
    ) -> Result<Option<StoredLoginLink>, StoreError> {
        self.writer.write(move |tx| login_links::take(tx, &hash, now)).await
    }

    async fn remove_token(
        &self,
        id: TokenId,
        now: Timestamp,
    ) -> Result<RemoveTokenResult, StoreError> {
        let removed = self.writer.write(move |tx| tokens::remove(tx, id, now)).await?;
        self.nodes.count_token_change();
        Ok(removed)
    }
}

#[async_trait]
impl IdempotencyStore for SqliteStore {
    async fn run_claim_steps(
        &self,
        steps: Vec<ClaimStep>,
        context: ClaimContext,
    ) -> Result<Vec<ClaimStepResult>, StoreError> {
        let is_growth = steps.iter().any(idempotency::is_growth);
        let step =
            move |tx: &mut WriteTransaction<'_, '_>| idempotency::run_steps(tx, &steps, &context);
        match is_growth {
            true => self.writer.write_bounded(step).await,
            false => self.writer.write(step).await,
        }
    }

    async fn list_claims(
        &self,
        filter: ClaimFilter,
        page: PageRequest<ClaimKey>,
        as_of: Timestamp,
    ) -> Result<Vec<ClaimRow>, StoreError> {
        self.readers.read(move |db| idempotency::list(db, &filter, &page, as_of)).await
    }

    async fn find_claim(
        &self,
        key: ClaimKey,
        as_of: Timestamp,
    ) -> Result<Option<ClaimDetail>, StoreError> {
        self.readers.read(move |db| idempotency::find(db, &key, as_of)).await
    }

    async fn count_claims(&self, as_of: Timestamp) -> Result<Vec<NamespaceCounts>, StoreError> {
        self.readers.read(move |db| idempotency::count(db, as_of)).await
    }

    async fn count_all_claims(&self, as_of: Timestamp) -> Result<ClaimTotals, StoreError> {
        self.readers.read(move |db| idempotency::count_all(db, as_of)).await
    }

    async fn prune_claims(&self, as_of: Timestamp) -> Result<usize, StoreError> {
        self.writer.write(move |tx| idempotency::prune(tx, as_of)).await
    }
}
