//! The embedded store: one `SQLite` file, one writer thread, a few readers.
//!
//! ```text
//!  admit, settle, claim, …  ──► queue ──► writer thread ──► BEGIN … COMMIT (one fsync) ──► answers
//!  lists, lookups           ──► read-only connections on the blocking pool
//!  recall                   ──► memory: keys of committed events
//! ```
//!
//! Every write, whoever asks for it, waits in one queue and shares a transaction with all that wait
//! beside it (see `writer`). That is what makes an fsync per answer affordable, and it means that no
//! two writers ever meet.

mod admit;
mod arrivals;
mod awaited;
mod backup;
mod blocks;
mod bodies;
mod checkpoint;
mod configure;
mod copies;
mod counts;
mod decide;
mod deleted;
mod deliver;
mod erase;
mod filter;
mod folder;
mod fresh;
mod groups;
mod idempotency;
mod join;
mod lanes;
mod line;
mod list;
mod list_events;
mod look;
mod media;
mod memory;
mod pack;
mod prepared;
mod prune;
mod quarantine;
mod read;
mod refused;
mod replay;
mod replay_jobs;
mod restore;
mod rollups;
mod row;
mod schema;
mod search_bodies;
mod sends;
mod statuses;
mod terms;
mod timing;
mod tokens;
mod wills;
mod writer;

use std::{
    collections::BTreeMap,
    fmt, fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use surehook_core::{
    access::ApiToken,
    attribute::Wanted,
    dead_letters::{DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter},
    decision::EventDecision,
    delivery::Lease,
    delivery::state::DeliveryStatus,
    event::{DuplicateId, NewEvent, Payload},
    idempotency::{
        IdempotencyClaim, IdempotencyKey, IdempotencyStore, IdempotentRequest, StoredResponse,
    },
    ids::{DeliveryId, DestinationId, EventId, RequestId, SourceId, TokenId},
    key::{DedupKey, KeyDigest},
    lane::SavedLaneState,
    quarantine::{QuarantineResult, QuarantineStore, QuarantinedRequest},
    refused::{RefusedFilter, RefusedRequest},
    requests::{ReceivedRequest, RequestCursor, RequestFilter},
    rollup::{RollupCounts, RollupQuery},
    store::{
        AdminStore, AdmitResult, CancelResult, ClaimBatch, ConfigChange, Configuration,
        DailySendCount, DeliveryDetail, DeliveryFilter, DeliveryRow, DeliveryStore,
        DuplicateDetail, EventDetail, EventFilter, EventRow, HeldClaim, IngestStore, JoinRequest,
        JoinResult, ListPage, PageRequest, PruneReport, RemoveTokenResult, ReplayResult,
        SettleResult, Settlement, StoreCounts, StoreError, StoreHealth,
    },
    time::Timestamp,
};

use self::{
    checkpoint::Checkpointer,
    memory::Memory,
    quarantine::Holders,
    read::Readers,
    terms::About,
    writer::{Desk, Tx, Writer},
};

pub use self::{
    backup::{BackupError, Contents, backup, examine},
    look::{Sight, look},
    restore::{RestoreError, Restored, restore},
};

/// The name of the file.
const DATABASE: &str = "surehook.db";

/// How to open an embedded store.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The folder that holds it; made if it is not there.
    pub data: PathBuf,
    /// How many committed keys are remembered in memory.
    pub keys_remembered: usize,
    /// How many requests may wait for a commit before more are refused.
    pub queue_max: usize,
    /// How many new keys gather before they go into their index, and how many terms into theirs;
    /// see `fresh` and `terms`.
    pub fold_keys_at: usize,
}

impl SqliteOptions {
    /// The usual bounds.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            keys_remembered: 100_000,
            queue_max: 20_000,
            fold_keys_at: fresh::FOLD_AT,
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder cannot be used.
    Folder(PathBuf, std::io::Error),
    /// Another process has it open.
    Locked(PathBuf),
    /// The file was written by a newer version.
    Newer { found: i64, known: i64 },
    /// The file was written by an older version, and is only to be looked at.
    Older { found: i64, known: i64 },
    /// The file is some other program's.
    Foreign(PathBuf),
    /// There is no such file.
    Missing(PathBuf),
    /// A restore was begun in the folder and did not end.
    HalfRestored(PathBuf),
    /// The file system cannot hold a write-ahead log.
    NoLog(PathBuf),
    /// The `SQLite` inside is too old to be trusted.
    OldSqlite(&'static str),
    /// `SQLite` says no.
    Sqlite(rusqlite::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path, error) => write!(
                f,
                "the data folder {} cannot be used: {error}; give another one with --data",
                path.display()
            ),
            Self::Locked(path) => write!(
                f,
                "another surehook is running on the data folder {}; stop it or give another folder with --data",
                path.display()
            ),
            Self::Newer { found, known } => write!(
                f,
                "the data was written by a newer version (schema {found}, this one knows {known}); use that version"
            ),
            Self::Older { found, known } => write!(
                f,
                "the data was written by an older version (schema {found}, this one knows {known}); start `surehook serve` on it once"
            ),
            Self::Foreign(path) => {
                write!(f, "{} is not a surehook database", path.display())
            }
            Self::Missing(path) => write!(f, "there is no database at {}", path.display()),
            Self::HalfRestored(path) => write!(
                f,
                "a restore into {} was begun and did not end; run `surehook restore` again",
                path.display()
            ),
            Self::NoLog(path) => write!(
                f,
                "SQLite cannot keep a write-ahead log beside {}; use a local disk",
                path.display()
            ),
            Self::OldSqlite(version) => {
                write!(f, "SQLite {version} has a known fault; 3.51.3 or newer is needed")
            }
            Self::Sqlite(error) => write!(f, "the database cannot be opened: {error}"),
        }
    }
}

impl OpenError {
    /// Says of a schema that is not the known one how it differs.
    fn version(found: usize, known: usize) -> Self {
        let number = |version: usize| i64::try_from(version).unwrap_or(i64::MAX);
        let (found, known) = (number(found), number(known));
        if found > known { Self::Newer { found, known } } else { Self::Older { found, known } }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(_, error) => Some(error),
            Self::Sqlite(error) => Some(error),
            Self::Locked(_)
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::Foreign(_)
            | Self::Missing(_)
            | Self::HalfRestored(_)
            | Self::NoLog(_)
            | Self::OldSqlite(_) => None,
        }
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The embedded store.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    memory: Arc<Memory>,
    /// Who has requests in quarantine.
    holders: Arc<Holders>,
    file: PathBuf,
}

impl SqliteStore {
    /// Opens the store, brings its schema up to date, and makes due again what a process that died
    /// had in its hands: the lock on the folder proves that nobody else holds it.
    pub fn open(options: &SqliteOptions, now: Timestamp) -> Result<Self, OpenError> {
        let lock = folder::lock(&options.data)?;
        if folder::is_half_restored(&options.data) {
            return Err(OpenError::HalfRestored(options.data.clone()));
        }
        let file = options.data.join(DATABASE);
        let mut connection = schema::open_writer(&file)?;
        let memory = Arc::new(Memory::new(options.keys_remembered));
        let holders = Arc::new(Holders::default());
        holders.renew(&connection)?;
        let checkpointer = Checkpointer::start(&file, &mut connection)?;
        let writer = Writer::start(
            Desk {
                connection,
                checkpointer,
                file: file.clone(),
                fold_at: options.fold_keys_at,
                lock,
            },
            Arc::clone(&memory),
            options.queue_max,
            now,
        )?;
        let readers = Readers::new(&file);
        Ok(Self { writer, readers, memory, holders, file })
    }

    /// Lets the file grow to this many pages and no further, so that tests can meet a full disk.
    /// It is never cut: fewer pages than there are means "no more".
    #[cfg(feature = "conformance")]
    pub async fn limit_pages(&self, pages_max: u32) -> Result<(), StoreError> {
        let limit = format!("PRAGMA max_page_count = {pages_max}");
        self.writer.write(move |tx| tx.connection.query_row(&limit, [], |_| Ok(()))).await
    }
}

#[async_trait]
impl IngestStore for SqliteStore {
    fn recall(
        &self,
        source: SourceId,
        key: &DedupKey,
        fingerprint: &[u8; 32],
        seen_at: Timestamp,
    ) -> Option<EventId> {
        let key = KeyDigest::of(source, key);
        let original = self.memory.recall(source, key, fingerprint, seen_at)?;
        self.writer.wake_for_sightings();
        Some(original)
    }

    async fn admit(&self, events: Arc<[NewEvent]>) -> Result<Vec<AdmitResult>, StoreError> {
        let about = |event: &NewEvent| About::of(event.kind.as_ref(), &event.attributes);
        let about: Vec<About> = events.iter().map(about).collect();
        self.writer.admit(move |tx| admit::admit(tx, &events, &about)).await
    }

    async fn join(&self, wish: JoinRequest) -> Result<JoinResult, StoreError> {
        self.writer.write(move |tx| join::join(tx, &wish)).await
    }
}

#[async_trait]
impl DeliveryStore for SqliteStore {
    async fn claim_due(
        &self,
        destination: DestinationId,
        now: Timestamp,
        lease: Lease,
        limit: usize,
    ) -> Result<ClaimBatch, StoreError> {
        self.writer.write(move |tx| deliver::claim_due(tx, destination, now, lease, limit)).await
    }

    async fn claim_next(
        &self,
        destination: DestinationId,
        now: Timestamp,
        lease: Lease,
    ) -> Result<ClaimBatch, StoreError> {
        self.writer.write(move |tx| deliver::claim_next(tx, destination, now, lease)).await
    }

    async fn next_due(&self, destination: DestinationId) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(move |connection| deliver::next_due(connection, destination)).await
    }

    async fn settle(&self, settlement: Settlement) -> Result<SettleResult, StoreError> {
        self.writer.write(move |tx| deliver::settle(tx, &settlement)).await
    }

    async fn leave_will(&self, will: Settlement) -> Result<SettleResult, StoreError> {
        self.writer.write(move |tx| wills::leave(tx, &will)).await
    }

    async fn sent_on(&self, destination: DestinationId, day: i32) -> Result<u64, StoreError> {
        self.readers.read(move |connection| sends::sent_on(connection, destination, day)).await
    }

    async fn renew(&self, held: Vec<HeldClaim>, until: Timestamp) -> Result<(), StoreError> {
        self.writer.write(move |tx| deliver::renew(tx, &held, until)).await
    }

    async fn release(&self, held: Vec<HeldClaim>, due_at: Timestamp) -> Result<(), StoreError> {
        self.writer.write(move |tx| deliver::release(tx, &held, due_at)).await
    }

    async fn release_expired(&self, now: Timestamp) -> Result<Vec<DestinationId>, StoreError> {
        self.writer.write(move |tx| deliver::release_expired(tx, now)).await
    }

    async fn save_lane(
        &self,
        destination: DestinationId,
        state: SavedLaneState,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| lanes::save(tx, destination, &state)).await
    }

    async fn lanes(&self) -> Result<BTreeMap<DestinationId, SavedLaneState>, StoreError> {
        self.readers.read(lanes::lanes).await
    }
}

#[async_trait]
impl QuarantineStore for SqliteStore {
    async fn quarantine(
        &self,
        request: QuarantinedRequest,
        bytes_max: u64,
    ) -> Result<QuarantineResult, StoreError> {
        let holders = Arc::clone(&self.holders);
        let step = move |tx: &mut Tx<'_, '_>| {
            holders.add(request.source);
            quarantine::keep(tx, &request, bytes_max)
        };
        self.writer.admit(step).await
    }

    fn may_hold(&self, source: SourceId) -> bool {
        self.holders.has(source)
    }

    async fn quarantined(
        &self,
        source: Option<SourceId>,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<QuarantinedRequest>, StoreError> {
        self.readers.read(move |connection| quarantine::list(connection, source, page)).await
    }

    async fn quarantine_line(
        &self,
        source: SourceId,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RequestId>, StoreError> {
        self.readers.read(move |connection| quarantine::line(connection, source, page)).await
    }

    async fn quarantined_request(
        &self,
        id: RequestId,
    ) -> Result<Option<QuarantinedRequest>, StoreError> {
        self.readers.read(move |connection| quarantine::find(connection, id)).await
    }

    async fn discard(&self, id: RequestId) -> Result<bool, StoreError> {
        self.writer.write(move |tx| quarantine::take_out(tx, id)).await
    }
}

#[async_trait]
impl AdminStore for SqliteStore {
    async fn configuration(&self) -> Result<Configuration, StoreError> {
        self.readers.read(read::configuration).await
    }

    async fn change(&self, changes: Vec<ConfigChange>, now: Timestamp) -> Result<(), StoreError> {
        self.writer.write(move |tx| configure::change(tx, &changes, now)).await
    }

    async fn events(
        &self,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Result<ListPage<EventRow, EventId>, StoreError> {
        let fresh = self.memory.fresh();
        self.readers
            .read(move |connection| list_events::events(connection, fresh.as_ref(), &filter, page))
            .await
    }

    async fn events_with_each(
        &self,
        wanted: Vec<Wanted>,
        limit: usize,
    ) -> Result<Vec<Vec<EventRow>>, StoreError> {
        self.readers
            .read(move |connection| list_events::with_each(connection, &wanted, limit))
            .await
    }

    async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.readers.read(move |connection| read::event(connection, id)).await
    }

    async fn event_row(&self, id: EventId) -> Result<Option<EventRow>, StoreError> {
        self.readers.read(move |connection| read::event_row(connection, id)).await
    }

    async fn duplicate(&self, copy: DuplicateId) -> Result<Option<DuplicateDetail>, StoreError> {
        self.readers.read(move |connection| copies::find(connection, copy)).await
    }

    async fn body(&self, id: EventId) -> Result<Option<Payload>, StoreError> {
        self.readers.read(move |connection| read::body(connection, id)).await
    }

    async fn dead_groups(
        &self,
        filter: DeadLetterGroupFilter,
        page: PageRequest<DeadLetterGroupCursor>,
    ) -> Result<ListPage<DeadLetterGroup, DeadLetterGroupCursor>, StoreError> {
        self.readers.read(move |connection| groups::list(connection, filter, page)).await
    }

    async fn deliveries(
        &self,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<ListPage<DeliveryRow, DeliveryId>, StoreError> {
        self.readers.read(move |connection| list::deliveries(connection, filter, page)).await
    }

    async fn deliveries_of(&self, events: Vec<EventId>) -> Result<Vec<DeliveryRow>, StoreError> {
        self.readers.read(move |connection| list::deliveries_of(connection, &events)).await
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        self.readers.read(move |connection| read::delivery(connection, id)).await
    }

    async fn delivery_body(&self, id: DeliveryId) -> Result<Option<Payload>, StoreError> {
        self.readers.read(move |connection| bodies::body(connection, id)).await
    }

    async fn decide(&self, decision: EventDecision) -> Result<(), StoreError> {
        self.writer.write(move |tx| decide::note(tx.connection, &decision)).await
    }

    async fn keep_refused(&self, refused: Vec<RefusedRequest>) -> Result<(), StoreError> {
        self.writer.write(move |tx| refused::keep(tx, &refused)).await
    }

    async fn refused(
        &self,
        filter: RefusedFilter,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RefusedRequest>, StoreError> {
        self.readers.read(move |connection| refused::list(connection, &filter, page)).await
    }

    async fn arrivals(
        &self,
        filter: RequestFilter,
        page: PageRequest<RequestCursor>,
    ) -> Result<ListPage<ReceivedRequest, RequestCursor>, StoreError> {
        self.readers.read(move |connection| arrivals::list(connection, &filter, page)).await
    }

    async fn refused_request(&self, id: RequestId) -> Result<Option<RefusedRequest>, StoreError> {
        self.readers.read(move |connection| refused::find(connection, id)).await
    }

    async fn replay(
        &self,
        id: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
    ) -> Result<ReplayResult, StoreError> {
        self.writer.write(move |tx| replay::replay(tx, id, new, now)).await
    }

    async fn cancel(&self, id: DeliveryId, now: Timestamp) -> Result<CancelResult, StoreError> {
        self.writer.write(move |tx| line::cancel(tx, id, now)).await
    }

    async fn cancel_for_deleted(&self) -> Result<bool, StoreError> {
        self.writer.write(deleted::go_on).await
    }

    async fn held_back(&self) -> Result<BTreeMap<DeliveryStatus, u64>, StoreError> {
        self.readers.read(lanes::held_back).await
    }

    fn counts(&self) -> StoreCounts {
        self.memory.counts()
    }

    async fn oldest_due(
        &self,
        now: Timestamp,
    ) -> Result<BTreeMap<DestinationId, Timestamp>, StoreError> {
        self.readers.read(move |connection| read::oldest_due(connection, now)).await
    }

    async fn sent_by_day(
        &self,
        days: RangeInclusive<i32>,
    ) -> Result<Vec<DailySendCount>, StoreError> {
        self.readers.read(move |connection| sends::by_day(connection, &days)).await
    }

    fn health(&self) -> StoreHealth {
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
        let (full, failed) = self.writer.condition();
        StoreHealth {
            full,
            failed,
            store_bytes: bytes(&self.file),
            wal_bytes: bytes(&self.file.with_extension("db-wal")),
            disk_free: rustix::fs::statvfs(&self.file)
                .ok()
                .map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
            queued: self.writer.queued(),
        }
    }

    async fn failure(&self) -> String {
        self.writer.failure().await
    }

    async fn prune(
        &self,
        events_kept: Duration,
        now: Timestamp,
    ) -> Result<PruneReport, StoreError> {
        let holders = Arc::clone(&self.holders);
        let step = move |tx: &mut Tx<'_, '_>| {
            let pruned = prune::prune(tx, events_kept, now)?;
            holders.renew(tx.connection)?;
            Ok(pruned)
        };
        self.writer.write(step).await
    }

    async fn roll_up(&self) -> Result<bool, StoreError> {
        self.writer.write(rollups::roll_up).await
    }

    async fn rollups(
        &self,
        query: RollupQuery,
    ) -> Result<Vec<(Timestamp, RollupCounts)>, StoreError> {
        self.readers.read(move |connection| rollups::rollups(connection, query)).await
    }

    async fn add_token(&self, token: ApiToken) -> Result<bool, StoreError> {
        self.writer.write(move |tx| tokens::add(tx, &token)).await
    }

    async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        self.readers.read(tokens::all).await
    }

    async fn remove_token(
        &self,
        id: TokenId,
        now: Timestamp,
    ) -> Result<RemoveTokenResult, StoreError> {
        self.writer.write(move |tx| tokens::remove(tx, id, now)).await
    }
}

#[async_trait]
impl IdempotencyStore for SqliteStore {
    async fn claim_key(
        &self,
        key: IdempotencyKey,
        request: [u8; 32],
        wish: IdempotentRequest,
    ) -> Result<IdempotencyClaim, StoreError> {
        self.writer.write(move |tx| idempotency::claim(tx, &key, &request, wish)).await
    }

    async fn keep_answer(
        &self,
        key: IdempotencyKey,
        answer: StoredResponse,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| idempotency::keep(tx, &key, &answer)).await
    }

    async fn give_key_back(&self, key: IdempotencyKey) -> Result<(), StoreError> {
        self.writer.write(move |tx| idempotency::give_back(tx, &key)).await
    }

    async fn forget_keys(&self, before: Timestamp) -> Result<usize, StoreError> {
        self.writer.write(move |tx| idempotency::forget(tx, before)).await
    }
}
