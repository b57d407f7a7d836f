//! Work that completes even if its caller is cancelled.
//!
//! A sender that hangs up drops the future of its request at any point. Between the commit and the
//! hand-over to the lanes that would leave deliveries claimed but not queued.
//! So the work is polled in place, at no cost, and moves to a task of its own only if it is dropped
//! before it is done.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that moves to a background task when it is dropped before it is done.
pub(crate) struct RunToCompletion<T: Send + 'static> {
    work: Option<Work<T>>,
    tasks: TaskTracker,
}

impl<T: Send + 'static> RunToCompletion<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static, tasks: &TaskTracker) -> Self {
        Self { work: Some(Box::pin(work)), tasks: tasks.clone() }
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let outcome = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(outcome)
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        // Without a runtime the process is ending; the next start finds the deliveries.
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
            self.tasks.spawn_on(work, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn dropped_work_completes_in_the_background() {
        let tasks = TaskTracker::new();
        let (commit, committed) = oneshot::channel::<()>();
        let (hand_over, handed_over) = oneshot::channel::<()>();
        let work = async move {
            committed.await.unwrap();
            hand_over.send(()).unwrap();
        };
        let mut waiting = Box::pin(RunToCompletion::new(work, &tasks));
        tokio::select! {
            biased;
            () = &mut waiting => panic!("the work did not wait for the commit"),
            () = std::future::ready(()) => {}
        }

        drop(waiting);
        commit.send(()).unwrap();

        handed_over.await.unwrap();
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn awaited_work_runs_in_place() {
        let tasks = TaskTracker::new();
        assert_eq!(RunToCompletion::new(async { 7 }, &tasks).await, 7);
        assert_eq!(tasks.len(), 0);
    }
}
