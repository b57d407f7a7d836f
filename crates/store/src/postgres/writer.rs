//! Steps that write, one transaction after the other.
//!
//! Waiting jobs share a transaction, as those of the SQLite writer do. It excludes all other transactions
//! that write, of this node and of others, by an advisory lock that ends with it: the rules of the steps
//! rely on one writer. If a job's statement fails, each job runs again in a transaction of its own.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use surehook_types::store_error::StoreError;
use tokio::runtime::Handle;

use super::{
    committer::{Committer, QueuedJob},
    connection::PgConnection,
    error::TransactionError,
    pool::{Access, Pool},
    transaction::PgTransaction,
};
use crate::{sql::SqlError, steps::prune::PruneProgress};

/// Jobs in one transaction. While it runs, no other one writes.
const BATCH_MAX: usize = 64;
/// How often a transaction is tried that a conflict or a lost connection prevented.
const TRIES_MAX: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

type StepValue = Box<dyn Any + Send>;
type Step = Box<dyn FnMut(&mut PgTransaction<'_>) -> Result<StepValue, SqlError> + Send>;
type QueuedStep = QueuedJob<Step, StepValue>;

/// What the transactions of one store have in common.
pub(super) struct StepWriterState {
    pub(super) pool: Pool,
    handle: Handle,
    progress: Mutex<PruneProgress>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle to the writer.
pub(super) struct StepWriter {
    pub(super) state: Arc<StepWriterState>,
    steps: Committer<Step, StepValue>,
}

impl fmt::Debug for StepWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepWriter").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl StepWriter {
    pub(super) fn start(pool: Pool) -> Self {
        let state = Arc::new(StepWriterState {
            pool,
            handle: Handle::current(),
            progress: Mutex::default(),
        });
        let of_worker = Arc::clone(&state);
        let steps = Committer::start(1, BATCH_MAX, move |steps| write_batch(&of_worker, steps));
        Self { state, steps }
    }

    /// Runs `step` in the next transaction; returns once that is committed. The step runs again if the
    /// transaction could not be committed.
    pub(super) async fn write<T, F>(&self, mut step: F) -> Result<T, StoreError>
    where
        F: FnMut(&mut PgTransaction<'_>) -> Result<T, SqlError> + Send + 'static,
        T: Send + 'static,
    {
        let step: Step = Box::new(move |tx| Ok(Box::new(step(tx)?) as StepValue));
        let value = self.steps.submit(step).await?;
        let wrong_type =
            |_| StoreError::Refused("the write step returned another value".to_owned());
        value.downcast::<T>().map(|value| *value).map_err(wrong_type)
    }

    pub(super) fn queue_len(&self) -> usize {
        self.steps.len()
    }

    pub(super) async fn close(&self) {
        self.steps.close().await;
    }
}

fn write_batch(state: &StepWriterState, mut steps: Vec<QueuedStep>) {
    match try_until_decided(|| run_transaction(state, &mut steps)) {
        Ok(values) => {
            for (step, value) in steps.into_iter().zip(values) {
                step.answer(Ok(value));
            }
        }
        // One of many failed: each runs again alone.
        Err(error) if error.is_of_a_statement() && steps.len() > 1 => {
            for step in steps {
                write_batch(state, vec![step]);
            }
        }
        Err(error) => {
            let error = StoreError::from(error);
            for step in steps {
                step.answer(Err(error.clone()));
            }
        }
    }
}

/// Runs a transaction, and again if a conflict or a lost connection prevented its commit.
pub(super) fn try_until_decided<T>(
    mut transaction: impl FnMut() -> Result<T, TransactionError>,
) -> Result<T, TransactionError> {
    let mut tries = 1;
    loop {
        match transaction() {
            Err(error) if error.can_be_tried_again() && tries < TRIES_MAX => {
                std::thread::sleep(RETRY_PAUSE * tries);
                tries += 1;
            }
            done => return done,
        }
    }
}

fn run_transaction(
    state: &StepWriterState,
    steps: &mut [QueuedStep],
) -> Result<Vec<StepValue>, TransactionError> {
    let progress = *lock(&state.progress);
    let work = |connection: PgConnection<'_>| {
        let mut tx = PgTransaction::new(connection, progress);
        let values: Result<Vec<_>, SqlError> =
            steps.iter_mut().map(|step| (step.job)(&mut tx)).collect();
        let values = values?;
        let progress = tx.finish()?;
        Ok((values, progress))
    };
    let (values, progress) = state.pool.transact(&state.handle, Access::WriteAlone, work)?;
    *lock(&state.progress) = progress;
    Ok(values)
}
