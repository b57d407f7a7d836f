//! Collects jobs of different callers, so that they share a transaction.
//!
//! While all workers are busy, jobs pile up; the next free worker takes all of them. So a single caller
//! waits for nothing, and many callers cost few round trips and commits.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use surehook_types::store_error::StoreError;
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc, oneshot},
    task::JoinHandle,
};

/// A job with the place for its answer. Dropping it without an answer fails its caller.
pub(super) struct QueuedJob<J, T> {
    pub(super) job: J,
    answer: oneshot::Sender<Result<T, StoreError>>,
    _waiting: WaitingCount,
}

impl<J, T> QueuedJob<J, T> {
    pub(super) fn answer(self, result: Result<T, StoreError>) {
        // The caller may have stopped waiting; its work is committed all the same.
        let _receiver_dropped = self.answer.send(result);
    }
}

/// Counts a job as long as it waits for its answer.
struct WaitingCount(Arc<AtomicUsize>);

impl Drop for WaitingCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Hands jobs to the workers. They end when it is dropped or closed, after all jobs are done.
pub(super) struct Committer<J, T> {
    queue: Mutex<Option<mpsc::UnboundedSender<QueuedJob<J, T>>>>,
    waiting: Arc<AtomicUsize>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl<J, T> fmt::Debug for Committer<J, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

impl<J, T> Committer<J, T> {
    /// Jobs that wait for their answers.
    pub(super) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl<J: Send + 'static, T: Send + 'static> Committer<J, T> {
    /// Starts workers that run at most `batch_max` jobs at a time, on the blocking pool.
    pub(super) fn start(
        workers: usize,
        batch_max: usize,
        run_batch: impl Fn(Vec<QueuedJob<J, T>>) + Send + Sync + 'static,
    ) -> Self {
        let (queue, jobs) = mpsc::unbounded_channel();
        let (jobs, run_batch) = (Arc::new(AsyncMutex::new(jobs)), Arc::new(run_batch));
        let start = |_| {
            let (jobs, run_batch) = (Arc::clone(&jobs), Arc::clone(&run_batch));
            tokio::spawn(async move {
                loop {
                    let mut batch = Vec::new();
                    if jobs.lock().await.recv_many(&mut batch, batch_max).await == 0 {
                        return;
                    }
                    let run_batch = Arc::clone(&run_batch);
                    // A panic fails the callers of the batch, who get no answer.
                    let _panicked = tokio::task::spawn_blocking(move || run_batch(batch)).await;
                }
            })
        };
        let workers = Mutex::new((0..workers).map(start).collect());
        Self { queue: Mutex::new(Some(queue)), waiting: Arc::default(), workers }
    }

    /// Queues a job and waits for its answer.
    pub(super) async fn submit(&self, job: J) -> Result<T, StoreError> {
        let (answer, receiver) = oneshot::channel();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = WaitingCount(Arc::clone(&self.waiting));
        let queued = QueuedJob { job, answer, _waiting: waiting };
        let is_sent = match &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(queue) => queue.send(queued).is_ok(),
            None => false,
        };
        if !is_sent {
            return Err(StoreError::Failed("the store is closed".to_owned()));
        }
        let lost = |_| Err(StoreError::Unknown("the work on it was interrupted".to_owned()));
        receiver.await.unwrap_or_else(lost)
    }

    /// Refuses further jobs, and waits until all queued ones are done.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let workers =
            std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            let _panicked = worker.await;
        }
    }
}
