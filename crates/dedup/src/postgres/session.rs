//! A few connections that are opened when they are needed and replaced when they break.
//!
//! Every step is a single statement, so a connection is shared by many callers, whose statements are
//! sent one after the other without waiting for answers. That needs no pool that lends connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::Mutex, task::JoinHandle};
use tokio_postgres::{
    Client, Config, Error, Socket,
    error::SqlState,
    tls::{MakeTlsConnect, TlsConnect},
};

use super::statements::{PreparedSteps, session_script};
use crate::DedupError;

/// Opens connections, whatever the kind of TLS is.
#[async_trait]
pub(super) trait OpenConnection: Send + Sync {
    async fn open(&self, config: &Config) -> Result<OpenedConnection, Error>;
}

/// A client, and the task that reads and writes its socket.
pub(super) struct OpenedConnection {
    client: Client,
    task: JoinHandle<()>,
}

#[async_trait]
impl<T> OpenConnection for T
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    async fn open(&self, config: &Config) -> Result<OpenedConnection, Error> {
        let (client, connection) = config.connect(self.clone()).await?;
        let task = tokio::spawn(async move {
            // The client reports why the connection ended.
            drop(connection.await);
        });
        Ok(OpenedConnection { client, task })
    }
}

/// A connection with its prepared statements.
pub(super) struct PostgresSession {
    pub(super) client: Client,
    pub(super) steps: PreparedSteps,
    task: JoinHandle<()>,
    is_broken: AtomicBool,
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        // A server that hangs would keep the socket open for ever.
        self.task.abort();
    }
}

impl PostgresSession {
    fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.is_broken.load(Ordering::Relaxed)
    }
}

/// The connections of a lock.
pub(super) struct SessionPool {
    config: Config,
    opener: Box<dyn OpenConnection>,
    timeout: Duration,
    slots: Vec<SessionSlot>,
}

/// A place for a connection.
#[derive(Default)]
struct SessionSlot {
    session: Mutex<Option<Arc<PostgresSession>>>,
    /// Callers that wait for an answer on it.
    waiting: AtomicUsize,
}

/// Counts a caller of a slot as long as it lives.
struct SlotUse<'a>(&'a SessionSlot);

impl Drop for SlotUse<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionPool {
    pub(super) fn new(
        config: Config,
        opener: Box<dyn OpenConnection>,
        connections: usize,
        timeout: Duration,
    ) -> Self {
        let slots = (0..connections.max(1)).map(|_| SessionSlot::default()).collect();
        Self { config, opener, timeout, slots }
    }

    /// Runs a script on a connection of its own.
    pub(super) async fn run_setup(&self, script: &str) -> Result<(), DedupError> {
        let run = async {
            let opened = self.opener.open(&self.config).await?;
            let done = opened.client.batch_execute(script).await;
            opened.task.abort();
            done
        };
        self.limit(run).await?.map_err(|error| convert_error(&error))
    }

    async fn limit<T>(&self, work: impl Future<Output = T>) -> Result<T, DedupError> {
        tokio::time::timeout(self.timeout, work).await.map_err(|_| {
            DedupError::Unavailable(format!("PostgreSQL did not answer in {:?}", self.timeout))
        })
    }

    async fn open_session(&self) -> Result<PostgresSession, Error> {
        let OpenedConnection { client, task } = self.opener.open(&self.config).await?;
        // The server gives up before this side does, so that an answer is rarely unknown.
        let statement_timeout = self.timeout.as_millis() * 4 / 5;
        client.batch_execute(&session_script(statement_timeout)).await?;
        let steps = PreparedSteps::prepare(&client).await?;
        Ok(PostgresSession { client, steps, task, is_broken: AtomicBool::new(false) })
    }

    /// The slot with the fewest callers; the first one while there is nothing to do.
    fn least_used(&self) -> SlotUse<'_> {
        let mut best = &self.slots[0];
        for slot in &self.slots[1..] {
            if slot.waiting.load(Ordering::Relaxed) < best.waiting.load(Ordering::Relaxed) {
                best = slot;
            }
        }
        best.waiting.fetch_add(1, Ordering::Relaxed);
        SlotUse(best)
    }

    async fn session(&self, slot: &SessionSlot) -> Result<Arc<PostgresSession>, Error> {
        let mut slot = slot.session.lock().await;
        if let Some(session) = slot.as_ref().filter(|session| session.is_usable()) {
            return Ok(session.clone());
        }
        let session = Arc::new(self.open_session().await?);
        *slot = Some(session.clone());
        Ok(session)
    }

    /// Runs statements on one of the connections.
    pub(super) async fn run<T, F>(
        &self,
        work: impl FnOnce(Arc<PostgresSession>) -> F,
    ) -> Result<T, DedupError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let used = self.least_used();
        let session =
            self.limit(self.session(used.0)).await?.map_err(|error| convert_error(&error))?;
        match self.limit(work(session.clone())).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if is_of_the_connection(&error) {
                    session.is_broken.store(true, Ordering::Relaxed);
                }
                Err(convert_error(&error))
            }
            Err(timeout) => {
                session.is_broken.store(true, Ordering::Relaxed);
                Err(timeout)
            }
        }
    }
}

/// Whether another connection may do better: this one is closed, or leads to a server that has become a
/// standby or shuts down.
fn is_of_the_connection(error: &Error) -> bool {
    let Some(code) = error.code() else { return true };
    *code == SqlState::READ_ONLY_SQL_TRANSACTION || code.code().starts_with("57P")
}

/// Without values: a message of the database may quote a key.
pub(super) fn convert_error(error: &Error) -> DedupError {
    let text = match error.as_db_error() {
        Some(error) => format!("PostgreSQL: {} ({})", error.message(), error.code().code()),
        None => {
            let cause = std::error::Error::source(error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        }
    };
    DedupError::Unavailable(text)
}
