//! Combines claims or completions of different callers in one statement, so that they share a commit.
//!
//! While all workers are busy, steps pile up; the next free worker takes all of them, up to a limit. So a single caller
//! waits for nothing, and many callers cost few commits.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};

use crate::{DedupError, claim::BATCH_MAX};

/// Steps that may wait; further callers wait to be queued.
const QUEUE_MAX: usize = 4096;

/// A step of one caller.
struct QueuedStep<R, T> {
    request: R,
    answer: oneshot::Sender<Result<T, DedupError>>,
}

/// Queues steps for the workers. The workers end when the last clone is dropped.
pub(super) struct StepCombiner<R, T>(mpsc::Sender<QueuedStep<R, T>>);

impl<R, T> Clone for StepCombiner<R, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

fn runtime_stopped() -> DedupError {
    DedupError::Unavailable("the runtime that opened the lock has stopped".to_owned())
}

impl<R: Send + 'static, T: Send + 'static> StepCombiner<R, T> {
    /// Starts workers that answer whole batches with `run_batch`.
    pub(super) fn start<F>(
        workers: usize,
        run_batch: impl Fn(Vec<R>) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Vec<Result<T, DedupError>>> + Send,
    {
        let (sender, receiver) = mpsc::channel::<QueuedStep<R, T>>(QUEUE_MAX);
        let queue = Arc::new(Mutex::new(receiver));
        for _ in 0..workers.max(1) {
            let (queue, run_batch) = (queue.clone(), run_batch.clone());
            tokio::spawn(async move {
                loop {
                    let mut steps = Vec::new();
                    if queue.lock().await.recv_many(&mut steps, BATCH_MAX).await == 0 {
                        break;
                    }
                    let (requests, callers): (Vec<_>, Vec<_>) =
                        steps.into_iter().map(|step| (step.request, step.answer)).unzip();
                    for (caller, answer) in callers.into_iter().zip(run_batch(requests).await) {
                        // The caller may have gone away.
                        drop(caller.send(answer));
                    }
                }
            });
        }
        Self(sender)
    }

    /// Queues a request and waits for its answer.
    pub(super) async fn submit(&self, request: R) -> Result<T, DedupError> {
        let (answer, receiver) = oneshot::channel();
        self.0.send(QueuedStep { request, answer }).await.map_err(|_| runtime_stopped())?;
        receiver.await.map_err(|_| runtime_stopped())?
    }
}
