//! The store on PostgreSQL, which several processes share.
//!
//! ```text
//!  steps that write  ──► queue of this process ──► one transaction, alone by an advisory lock ──► answers
//!  lists, lookups    ──► a few connections, each read from one snapshot
//! ```
//!
//! Nothing that another process could change is decided from memory. A process that is lost loses
//! nothing that was answered: the database is the only state.

mod admit;
mod claim;
mod claim_rules;
mod committer;
mod connection;
mod coordination;
mod database_health;
mod error;
mod event_index;
mod inspection;
mod migrate;
mod notifications;
mod pool;
mod rotation;
mod schema;
mod settle;
mod store;
mod transaction;
mod writer;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use surehook_core::store::Settlement;
use surehook_types::{
    store_error::StoreError,
    time::{Clock, Timestamp},
};
use tokio::runtime::Handle;
use tokio_postgres::Config;

use self::{
    admit::{AdmitDecision, AdmitRequest, AdmitState},
    claim::{ClaimCursors, ClaimJob, ClaimWorkerState, DueClaimResult},
    committer::Committer,
    connection::PgConnection,
    notifications::Notifications,
    pool::{Access, Connector, Pool},
    settle::SettleDecision,
    transaction::PgTransaction,
    writer::StepWriter,
};
pub(crate) use self::{error::PostgresFailure, migrate::PostgresSide};
pub use self::{
    inspection::{ClockOffset, DatabaseInspection, ServerInspection, inspect_database},
    rotation::rotate_database_key,
};
use crate::{
    sealing::{DataKeys, KEY_ID_BYTES, WrappedDataKey},
    sql::{self, SqlConnection, SqlError, params},
    sqlite::{SecretKey, SecretKeyId},
};

/// Connections for lists and lookups.
const READERS: usize = 3;
/// Connections that store events, and those that record attempts. One transaction is executed while
/// another one is committed.
const ADMITTERS: usize = 2;
const SETTLERS: usize = 2;
/// Connections that claim due deliveries.
const CLAIMERS: usize = 1;

/// How to open a store on PostgreSQL.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host/database`, with several hosts and `target_session_attrs=read-write`
    /// if there are standbys.
    pub url: String,
    /// The project: its tables are in the schema `surehook_<project>`.
    pub project: String,
    /// TLS to the server; `sslmode=require` in the URL refuses servers without.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The key that secrets are encrypted with, the same for all processes.
    pub secret_key: SecretKey,
    /// Number of requests that may wait for a commit before more are refused.
    pub queue_max: usize,
    /// How long the server may work on a statement.
    pub statement_timeout: Duration,
    /// Whether connections keep prepared statements. A pooler that gives each transaction another
    /// connection may not allow them.
    pub prepared_statements: bool,
    /// Refuses a server that confirms commits before a standby has them.
    pub require_synchronous_standby: bool,
    /// Accepts a server that may lose commits, for tests.
    pub accept_unsafe_server: bool,
}

impl PostgresOptions {
    /// The default limits, for the project `default`.
    pub fn new(url: impl Into<String>, secret_key: SecretKey) -> Self {
        Self {
            url: url.into(),
            project: "default".to_owned(),
            tls: None,
            secret_key,
            queue_max: 20_000,
            statement_timeout: Duration::from_secs(5),
            prepared_statements: true,
            require_synchronous_standby: false,
            accept_unsafe_server: false,
        }
    }
}

/// Without the URL, which may contain a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions").field("project", &self.project).finish_non_exhaustive()
    }
}

/// Why a store on PostgreSQL could not be opened. No message contains the URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    #[error("the URL of the database is invalid; write postgres://user:password@host/database")]
    Url,
    #[error(
        "\"{0}\" is no name of a project: up to 40 lower-case letters, digits and underscores, the first a letter"
    )]
    Project(String),
    #[error("the database cannot be used: {0}")]
    Database(String),
    #[error("PostgreSQL {0} is too old; version 15 or newer is required")]
    OldServer(i32),
    #[error(
        "the server is a standby; name all hosts in the URL and add target_session_attrs=read-write"
    )]
    Standby,
    #[error("the database has the encoding {0}; create it with ENCODING 'UTF8'")]
    Encoding(String),
    #[error("the server has {0} = off and would lose events in a power failure; set it to on")]
    UnsafeServer(&'static str),
    #[error(
        "the server has no synchronous standby (synchronous_standby_names is empty), which \
         require_synchronous_standby asks for"
    )]
    NoSynchronousStandby,
    #[error(
        "the data was written by a newer version (schema {found}, this version supports {known}); use the newer version"
    )]
    Newer { found: usize, known: usize },
    #[error(
        "the data was written by an older version (schema {found}, this version needs {known}); start `surehook serve` once, which migrates it"
    )]
    Older { found: usize, known: usize },
    #[error("another transaction has locked the tables that must be migrated")]
    Locked,
    #[error("the database has no data of a gateway (schema {0} does not exist)")]
    Missing(String),
    #[error("{0} nodes use the database; stop them first")]
    InUse(i64),
    #[error(
        "a migration into the database is not complete; run `surehook migrate` again, or use another project"
    )]
    MigrationUnfinished,
    #[error(
        "the data in the database was moved to {0}; start the gateway there. If that store is lost, or was \
         never used, `surehook serve --use-moved-data` uses the database again"
    )]
    Moved(String),
    #[error(
        "the secrets in the database are encrypted with the secret key {needed}, but the key given is {found}; \
         give all nodes the same key"
    )]
    SecretKeyWrong { needed: SecretKeyId, found: SecretKeyId },
}

impl From<PostgresFailure> for PostgresOpenError {
    fn from(failure: PostgresFailure) -> Self {
        Self::Database(failure.to_string())
    }
}

/// The store on PostgreSQL. It works in the tokio runtime in which it was opened.
#[derive(Debug)]
pub struct PostgresStore {
    writer: StepWriter,
    admitter: Committer<AdmitRequest, AdmitDecision>,
    settler: Committer<Arc<Settlement>, SettleDecision>,
    claimer: Committer<ClaimJob, DueClaimResult>,
    claim_cursors: Arc<ClaimCursors>,
    readers: Pool,
    coordination: Pool,
    data_keys: Arc<DataKeys>,
    notifications: Notifications,
    /// See [`PostgresOptions::queue_max`].
    queue_max: usize,
    /// How much the server's clock was ahead when it was last measured.
    clock_offset_ms: AtomicI64,
}

fn schema_name(project: &str) -> Result<String, PostgresOpenError> {
    let is_valid = project.len() <= 40
        && project.starts_with(|first: char| first.is_ascii_lowercase())
        && project.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    match is_valid {
        true => Ok(format!("surehook_{project}")),
        false => Err(PostgresOpenError::Project(project.to_owned())),
    }
}

/// Removes the tables of a project whose name begins with `bench_`.
pub async fn remove_benchmark(options: &PostgresOptions) -> Result<(), PostgresOpenError> {
    if !options.project.starts_with("bench_") {
        return Err(PostgresOpenError::Project(options.project.clone()));
    }
    let connector = new_connector(options, false)?;
    let remove =
        format!("SET statement_timeout = 0; DROP SCHEMA \"{}\" CASCADE", connector.schema());
    let connection = connector.open().await?;
    connection.client.batch_execute(&remove).await.map_err(PostgresFailure::from)?;
    Ok(())
}

fn new_connector(
    options: &PostgresOptions,
    reads_only: bool,
) -> Result<Connector, PostgresOpenError> {
    let config: Config = options.url.parse().map_err(|_| PostgresOpenError::Url)?;
    Ok(Connector::new(
        config,
        options.tls.clone(),
        schema_name(&options.project)?,
        options.statement_timeout,
        options.prepared_statements,
        reads_only,
    ))
}

/// Forgets that a project was moved, because its owner insists to use it.
pub async fn forget_database_move(options: &PostgresOptions) -> Result<(), PostgresOpenError> {
    let connector = new_connector(options, false)?;
    let first = connector.open().await?;
    match schema::check_version(&first.client, connector.schema()).await {
        Err(PostgresOpenError::Missing(_)) => return Ok(()),
        checked => checked?,
    }
    drop(first);
    let pool = Pool::new(Arc::new(connector), 1);
    let forgotten = run_blocking(&pool, Access::WriteAlone, migrate::forget_move).await;
    forgotten.map_err(|error| PostgresOpenError::Database(error.to_string()))
}

impl PostgresStore {
    /// Connects, checks the server, and migrates the schema.
    pub async fn open(
        options: &PostgresOptions,
        now: Timestamp,
    ) -> Result<Self, PostgresOpenError> {
        let mut connector = new_connector(options, false)?;
        let mut first = connector.open().await?;
        let settings = schema::check_server(
            &first.client,
            options.require_synchronous_standby,
            options.accept_unsafe_server,
        )
        .await?;
        connector.raises_synchronous_commit = settings.raises_synchronous_commit;
        schema::migrate(&mut first.client, connector.schema()).await?;
        drop(first);
        let connector = Arc::new(connector);
        let writers = Pool::new(Arc::clone(&connector), 1);
        let created_at = Some(now);
        let data_keys = open_data_keys(&writers, options.secret_key.clone(), created_at).await?;
        match run_blocking(&writers, Access::Read, migrate::check_marks).await {
            Ok(None) => {}
            Ok(Some(refusal)) => return Err(refusal),
            Err(error) => return Err(PostgresOpenError::Database(error.to_string())),
        }
        let mut store = Self::start(Arc::clone(&connector), writers, data_keys, options.queue_max);
        // A pooler that gives each transaction another connection passes no notifications on.
        if options.prepared_statements {
            store.notifications.listen(connector);
        }
        Ok(store)
    }

    /// Opens what a gateway has written, for reading alone: the server refuses every write. The server may
    /// be a standby.
    pub async fn open_read_only(options: &PostgresOptions) -> Result<Self, PostgresOpenError> {
        let connector = new_connector(options, true)?;
        let first = connector.open().await?;
        schema::check_version(&first.client, connector.schema()).await?;
        drop(first);
        let connector = Arc::new(connector);
        let readers = Pool::new(Arc::clone(&connector), 1);
        let data_keys = open_data_keys(&readers, options.secret_key.clone(), None).await?;
        Ok(Self::start(connector, readers, data_keys, options.queue_max))
    }

    fn start(
        connector: Arc<Connector>,
        writers: Pool,
        data_keys: DataKeys,
        queue_max: usize,
    ) -> Self {
        let readers = Pool::new(Arc::clone(&connector), READERS);
        let coordination = Pool::new(Arc::clone(&connector), 1);
        let writer = StepWriter::start(writers);
        let state =
            |connections| AdmitState::new(Pool::for_batches(Arc::clone(&connector), connections));
        let (admitting, settling) = (state(ADMITTERS), state(SETTLERS));
        let admitter = Committer::start(ADMITTERS, admit::BATCH_MAX, move |requests| {
            admit::run_batch(&admitting, requests);
        });
        let settler = Committer::start(SETTLERS, settle::BATCH_MAX, move |settlements| {
            settle::run_batch(&settling, settlements);
        });
        let claim_cursors = Arc::<ClaimCursors>::default();
        let claiming = Pool::for_batches(Arc::clone(&connector), CLAIMERS);
        let claiming = ClaimWorkerState::new(claiming, Arc::clone(&claim_cursors));
        let claimer = Committer::start(CLAIMERS, claim::BATCH_MAX, move |jobs| {
            claim::run_batch(&claiming, jobs);
        });
        let data_keys = Arc::new(data_keys);
        Self {
            writer,
            admitter,
            settler,
            claimer,
            claim_cursors,
            readers,
            coordination,
            data_keys,
            notifications: Notifications::default(),
            queue_max,
            clock_offset_ms: AtomicI64::new(0),
        }
    }

    /// Writes what is queued, and closes all connections. Every later write is refused.
    pub async fn close(&self) {
        self.admitter.close().await;
        self.settler.close().await;
        self.claimer.close().await;
        self.writer.close().await;
        self.notifications.close();
        for pool in [&self.writer.state.pool, &self.readers, &self.coordination] {
            pool.close();
        }
    }

    /// Fails if too much work is queued.
    fn check_queue(&self) -> Result<(), StoreError> {
        match self.queue_len() < self.queue_max {
            true => Ok(()),
            false => Err(StoreError::Overloaded),
        }
    }

    fn queue_len(&self) -> usize {
        self.admitter.len() + self.settler.len() + self.claimer.len() + self.writer.queue_len()
    }

    /// Runs a step that stores something new, unless too much work is queued.
    async fn write_bounded<T, F>(&self, step: F) -> Result<T, StoreError>
    where
        F: FnMut(&mut PgTransaction<'_>) -> sql::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.check_queue()?;
        self.writer.write(step).await
    }

    /// Runs a query on the blocking pool, in a transaction with one snapshot.
    async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        F: FnOnce(&PgConnection<'_>) -> sql::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        run_blocking(&self.readers, Access::Read, query).await
    }
}

impl PostgresStore {
    /// Measures how much the server's clock is ahead of `clock`.
    pub async fn measure_clock_offset(
        &self,
        clock: Arc<dyn Clock>,
    ) -> Result<ClockOffset, StoreError> {
        let measure =
            move |connection: &PgConnection<'_>| inspection::measure_clock(connection, &*clock);
        let offset = run_blocking(&self.coordination, Access::Read, measure).await?;
        self.clock_offset_ms.store(offset.millis, Ordering::Relaxed);
        Ok(offset)
    }

    /// Runs a step about nodes on a connection of its own: a lease is renewed however busy the others are.
    async fn coordinate<T, F>(&self, step: F) -> Result<T, StoreError>
    where
        F: FnOnce(&PgConnection<'_>) -> sql::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        run_blocking(&self.coordination, Access::WriteUnlocked, step).await
    }
}

/// Runs `work` in a transaction on the blocking pool.
async fn run_blocking<T, F>(pool: &Pool, access: Access, work: F) -> Result<T, StoreError>
where
    F: FnOnce(&PgConnection<'_>) -> sql::Result<T> + Send + 'static,
    T: Send + 'static,
{
    let (pool, handle) = (pool.clone(), Handle::current());
    let work = move || pool.transact(&handle, access, |connection| work(&connection));
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(StoreError::from),
        Err(panicked) => Err(StoreError::Refused(panicked.to_string())),
    }
}

const DATA_KEY: &str = "SELECT id, wrapped, wrapped_by FROM data_keys";
const INSERT_DATA_KEY: &str = "
    INSERT INTO data_keys (id, wrapped, wrapped_by, created_at) VALUES (?1, ?2, ?3, ?4)";

/// Reads the data key of the project. Without one, creates it at the time `created_at`, if that is given.
async fn open_data_keys(
    pool: &Pool,
    secret_key: SecretKey,
    created_at: Option<Timestamp>,
) -> Result<DataKeys, PostgresOpenError> {
    let found = secret_key.id();
    let open = move |connection: &PgConnection<'_>| {
        let stored = match (read_data_key(connection)?, created_at) {
            (Some(stored), _) => stored,
            (None, Some(now)) => return store_data_key(connection, &secret_key, now).map(Ok),
            (None, None) => return Err(SqlError::RowMissing),
        };
        if stored.by != secret_key.id() {
            return Ok(Err(stored.by));
        }
        unwrap_data_key(&secret_key, &stored).map(Ok)
    };
    let access = if created_at.is_some() { Access::WriteAlone } else { Access::Read };
    match run_blocking(pool, access, open).await {
        Ok(Ok(keys)) => Ok(keys),
        Ok(Err(needed)) => Err(PostgresOpenError::SecretKeyWrong { needed, found }),
        Err(error) => Err(PostgresOpenError::Database(error.to_string())),
    }
}

fn read_data_key(connection: &PgConnection<'_>) -> sql::Result<Option<WrappedDataKey>> {
    connection.find_one(DATA_KEY, params![], |row| {
        let id: [u8; KEY_ID_BYTES] = row.get(0)?;
        let by = SecretKeyId::from_bytes(row.get(2)?);
        Ok(WrappedDataKey { id, wrapped: row.get(1)?, by })
    })
}

fn unwrap_data_key(secret_key: &SecretKey, stored: &WrappedDataKey) -> sql::Result<DataKeys> {
    let damaged = || SqlError::Unstorable("the data key is damaged".to_owned());
    DataKeys::unwrap(secret_key, stored)?.ok_or_else(damaged)
}

/// Creates a random data key and stores it, encrypted with the secret key.
fn store_data_key(
    connection: &PgConnection<'_>,
    secret_key: &SecretKey,
    now: Timestamp,
) -> sql::Result<DataKeys> {
    let (keys, WrappedDataKey { id, wrapped, by }) = DataKeys::generate(secret_key)?;
    connection.run(INSERT_DATA_KEY, params![id, wrapped, by.to_bytes(), now.as_millis()])?;
    Ok(keys)
}
