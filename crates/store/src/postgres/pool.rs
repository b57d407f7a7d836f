//! Connections: opened when they are needed, used by one transaction at a time, and replaced when they
//! break.

use std::{
    cell::Cell,
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use surehook_dedup::postgres::RustlsConnector;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc::UnboundedSender},
    task::JoinHandle,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Error, IsolationLevel, NoTls, SimpleQueryMessage, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

use super::{
    connection::{PgConnection, StatementCache},
    error::{FailureKind, PostgresFailure, TransactionError},
};
use crate::{sql::SqlError, steps::lookups::CONFIGURATION_VERSION};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const UNANSWERED: &str = "PostgreSQL did not answer a new connection in time";
/// How long a transaction waits for a connection that others use.
const POOL_TIMEOUT: Duration = Duration::from_secs(1);
/// An answer is awaited for longer than the server may take, so that the server gives up first.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// Opens connections, with or without TLS.
#[async_trait]
trait OpenConnection: Send + Sync {
    /// Notifications that the connection receives are passed on.
    async fn open(
        &self,
        config: &Config,
        notified: Option<NotificationSender>,
    ) -> Result<(Client, JoinHandle<()>), Error>;
}

/// Where the payloads of notifications go.
pub(super) type NotificationSender = UnboundedSender<String>;

#[async_trait]
impl<T> OpenConnection for T
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    async fn open(
        &self,
        config: &Config,
        notified: Option<NotificationSender>,
    ) -> Result<(Client, JoinHandle<()>), Error> {
        let (client, mut connection) = config.connect(self.clone()).await?;
        let task = tokio::spawn(async move {
            // The client reports why the connection ended.
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let (AsyncMessage::Notification(received), Some(sender)) = (message, &notified) {
                    // The receiver is gone when the process stops.
                    drop(sender.send(received.payload().to_owned()));
                }
            }
        });
        Ok((client, task))
    }
}

/// How connections of a store are made, and what is set on them.
pub(super) struct Connector {
    config: Config,
    opener: Box<dyn OpenConnection>,
    schema: String,
    statement_timeout: Duration,
    pub(super) prepares: bool,
    /// No transaction may write.
    reads_only: bool,
    /// Set in each transaction that writes, if the role or database has less.
    pub(super) raises_synchronous_commit: bool,
    /// Why the last connection could not be opened.
    unreachable: Mutex<Option<String>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Connector {
    pub(super) fn new(
        mut config: Config,
        tls: Option<Arc<rustls::ClientConfig>>,
        schema: String,
        statement_timeout: Duration,
        prepares: bool,
        reads_only: bool,
    ) -> Self {
        config.connect_timeout(CONNECT_TIMEOUT);
        if config.get_application_name().is_none() {
            config.application_name("surehook");
        }
        let opener: Box<dyn OpenConnection> = match tls {
            Some(tls) => Box::new(RustlsConnector::new(tls)),
            None => Box::new(NoTls),
        };
        let raises_synchronous_commit = false;
        let unreachable = Mutex::default();
        Self {
            config,
            opener,
            schema,
            statement_timeout,
            prepares,
            reads_only,
            raises_synchronous_commit,
            unreachable,
        }
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// The settings of a session, or of each transaction where a pooler gives each another connection.
    ///
    /// Plans are made for each execution: one that was cached while the tables were empty would be used as
    /// long as the connection lives. They join by index lookups alone, as SQLite does, for which all statements
    /// are written: until a table has been analyzed, its rows are estimated too high, and reading all of them
    /// would seem cheaper. With little memory, `EXISTS` for many rows is not answered by reading the other table
    /// once either, unless that is small. Rows are thus locked in the order in which a batch gives them.
    fn settings(&self, scope: &str) -> String {
        let timeout = self.statement_timeout.as_millis();
        let read_only = match (self.reads_only, scope) {
            (false, _) => "",
            (true, "LOCAL") => "SET LOCAL transaction_read_only = on;",
            (true, _) => "SET SESSION default_transaction_read_only = on;",
        };
        format!(
            "SET {scope} search_path = \"{}\"; SET {scope} statement_timeout = {timeout};
             SET {scope} idle_in_transaction_session_timeout = {timeout};
             SET {scope} plan_cache_mode = force_custom_plan; SET {scope} enable_seqscan = off;
             SET {scope} enable_hashjoin = off; SET {scope} enable_mergejoin = off;
             SET {scope} work_mem = '1MB'; SET {scope} jit = off;
             {read_only}",
            self.schema
        )
    }

    /// Why the server cannot be reached at the moment.
    pub(super) fn unreachable(&self) -> Option<String> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn open(&self) -> Result<PooledClient, PostgresFailure> {
        self.open_with(None).await
    }

    /// Opens a connection that receives the notifications of the channel of this schema.
    pub(super) async fn listen(
        &self,
        notified: NotificationSender,
    ) -> Result<PooledClient, PostgresFailure> {
        let listener = self.open_with(Some(notified)).await?;
        let listen = format!("LISTEN \"{}\"", self.schema);
        match tokio::time::timeout(CONNECT_TIMEOUT, listener.client.batch_execute(&listen)).await {
            Ok(listening) => listening.map(|()| listener).map_err(PostgresFailure::from),
            Err(_) => Err(PostgresFailure::new(FailureKind::Connection, UNANSWERED)),
        }
    }

    async fn open_with(
        &self,
        notified: Option<NotificationSender>,
    ) -> Result<PooledClient, PostgresFailure> {
        let opened = self.try_open(notified).await;
        let failure = opened.as_ref().err().map(ToString::to_string);
        let mut unreachable = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*unreachable, &failure) {
            (None, Some(reason)) => tracing::warn!(reason, "the database cannot be reached"),
            (Some(_), None) => tracing::info!("the database can be reached again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        *unreachable = failure;
        drop(unreachable);
        opened
    }

    async fn try_open(
        &self,
        notified: Option<NotificationSender>,
    ) -> Result<PooledClient, PostgresFailure> {
        let open = async {
            let (client, task) = self.opener.open(&self.config, notified).await?;
            if self.prepares {
                client.batch_execute(&self.settings("SESSION")).await?;
            }
            Ok::<_, Error>(PooledClient {
                client,
                statements: StatementCache::default(),
                is_broken: Cell::new(false),
                task,
            })
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, open).await {
            Ok(opened) => Ok(opened?),
            Err(_) => {
                let text = "PostgreSQL did not accept a connection in time";
                Err(PostgresFailure::new(FailureKind::Connection, text))
            }
        }
    }
}

/// A connection with its prepared statements.
pub(super) struct PooledClient {
    pub(super) client: Client,
    statements: StatementCache,
    is_broken: Cell<bool>,
    task: JoinHandle<()>,
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        // A server that hangs would keep the socket open for ever.
        self.task.abort();
    }
}

impl PooledClient {
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.is_broken.get()
    }
}

/// A number of connections for one kind of work.
#[derive(Clone)]
pub(super) struct Pool {
    pub(super) connector: Arc<Connector>,
    keeps_plans: bool,
    idle: Arc<Mutex<Vec<PooledClient>>>,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("free", &self.permits.available_permits())
            .finish_non_exhaustive()
    }
}

/// A connection in use; it goes back to its pool.
pub(super) struct BorrowedClient {
    client: Option<PooledClient>,
    idle: Arc<Mutex<Vec<PooledClient>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for BorrowedClient {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(PooledClient::is_usable) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}

/// What a transaction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads from one snapshot.
    Read,
    /// Writes rows that no other transaction decides from, while none writes alone; keeps the tables `due`
    /// and `in_flight` itself.
    Write,
    /// Writes rows that only the steps about nodes use.
    WriteUnlocked,
    /// The same for what may be lost in a crash, so the commit waits for no disk.
    WriteHint,
    /// Writes while no other transaction of the project does, on any node.
    WriteAlone,
}

/// First part of the number of the advisory lock of a schema: "sure".
const LOCK_CLASS: i32 = 0x7375_7265;

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, connections: usize) -> Self {
        let permits = Arc::new(Semaphore::new(connections.max(1)));
        Self { connector, keeps_plans: false, idle: Arc::default(), permits }
    }

    /// A pool for batches. Their few statements take as long to plan as to execute, so plans are kept.
    pub(super) fn for_batches(connector: Arc<Connector>, connections: usize) -> Self {
        Self { keeps_plans: true, ..Self::new(connector, connections) }
    }

    async fn open(&self) -> Result<PooledClient, PostgresFailure> {
        let client = self.connector.open().await?;
        if self.connector.prepares && self.keeps_plans {
            let set =
                client.client.batch_execute("SET SESSION plan_cache_mode = force_generic_plan");
            let set = tokio::time::timeout(CONNECT_TIMEOUT, set);
            set.await.map_err(|_| PostgresFailure::new(FailureKind::Connection, UNANSWERED))??;
        }
        Ok(client)
    }

    pub(super) async fn borrow(&self) -> Result<BorrowedClient, PostgresFailure> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(POOL_TIMEOUT, permit).await else {
            let text = "all connections to PostgreSQL are in use";
            return Err(PostgresFailure::new(FailureKind::Timeout, text));
        };
        let pooled = loop {
            let popped = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match popped {
                Some(client) if !client.is_usable() => {}
                other => break other,
            }
        };
        let client = match pooled {
            Some(client) => client,
            None => self.open().await?,
        };
        let idle = Arc::clone(&self.idle);
        Ok(BorrowedClient { client: Some(client), idle, _permit: permit })
    }

    /// Closes the idle connections; others are closed when they are returned.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Statements that begin a transaction.
    pub(super) fn prologue(&self, access: Access) -> String {
        let connector = &self.connector;
        let settings = match connector.prepares {
            true => String::new(),
            false => connector.settings("LOCAL"),
        };
        let commit = match access {
            Access::WriteHint => "SET LOCAL synchronous_commit = off;",
            Access::Write | Access::WriteUnlocked | Access::WriteAlone
                if connector.raises_synchronous_commit =>
            {
                "SET LOCAL synchronous_commit = on;"
            }
            Access::Read | Access::Write | Access::WriteUnlocked | Access::WriteAlone => "",
        };
        let schema = &connector.schema;
        // The version is read by a statement of its own, whose snapshot is taken after the wait for the lock.
        let lock = match access {
            Access::Read | Access::WriteUnlocked | Access::WriteHint => String::new(),
            Access::Write => {
                format!(
                    "SELECT pg_advisory_xact_lock_shared({LOCK_CLASS}, hashtext('{schema}')),
                            set_config('surehook.batch', 'on', TRUE); {CONFIGURATION_VERSION};"
                )
            }
            Access::WriteAlone => {
                format!("SELECT pg_advisory_xact_lock({LOCK_CLASS}, hashtext('{schema}'));")
            }
        };
        format!("{settings}{commit}{lock}")
    }

    /// Runs `work` in a transaction and commits it. Called on the blocking pool.
    pub(super) fn transact<T>(
        &self,
        handle: &Handle,
        access: Access,
        work: impl FnOnce(PgConnection<'_>) -> Result<T, SqlError>,
    ) -> Result<T, TransactionError> {
        let mut borrowed = handle.block_on(self.borrow()).map_err(SqlError::Postgres)?;
        let Some(PooledClient { client, statements, is_broken, .. }) = &mut borrowed.client else {
            return Err(TransactionError::NotCommitted(SqlError::RowMissing));
        };
        let timeout = self.connector.statement_timeout + ANSWER_MARGIN;
        let begin = async {
            let builder = client.build_transaction();
            match access {
                Access::Read => {
                    builder.isolation_level(IsolationLevel::RepeatableRead).read_only(true).start()
                }
                Access::Write | Access::WriteUnlocked | Access::WriteHint | Access::WriteAlone => {
                    builder.isolation_level(IsolationLevel::ReadCommitted).start()
                }
            }
            .await
        };
        let begun = handle.block_on(async { tokio::time::timeout(timeout, begin).await });
        let transaction = match begun {
            Ok(Ok(transaction)) => transaction,
            Ok(Err(error)) => {
                is_broken.set(true);
                return Err(SqlError::from(error).into());
            }
            Err(_) => {
                is_broken.set(true);
                let failure = PostgresFailure::new(FailureKind::Connection, "no answer to BEGIN");
                return Err(SqlError::Postgres(failure).into());
            }
        };
        let mut connection = PgConnection {
            transaction: &transaction,
            statements: &*statements,
            handle,
            prepares: self.connector.prepares,
            configuration_version: 0,
            timeout,
            is_broken: &*is_broken,
        };
        let prologue = self.prologue(access);
        if !prologue.is_empty() {
            let answers = connection.wait(transaction.simple_query(&prologue))?;
            for answer in &answers {
                if let SimpleQueryMessage::Row(row) = answer
                    && access == Access::Write
                {
                    let version = row.get(0).and_then(|version| version.parse().ok());
                    connection.configuration_version = version.unwrap_or_default();
                }
            }
        }
        let value = work(connection)?;
        let committed =
            handle.block_on(async { tokio::time::timeout(timeout, transaction.commit()).await });
        match committed {
            Ok(Ok(())) => Ok(value),
            Ok(Err(error)) => {
                is_broken.set(true);
                Err(TransactionError::of_commit(error))
            }
            Err(_) => {
                is_broken.set(true);
                let text = "the connection to PostgreSQL was silent during a commit";
                Err(TransactionError::Unknown(PostgresFailure::new(FailureKind::Connection, text)))
            }
        }
    }
}
