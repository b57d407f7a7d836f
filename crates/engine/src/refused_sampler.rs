//! Keeps a sample of the requests that were refused, without letting them become a burden.
//!
//! A flood of bad requests must cost the store next to nothing: for each source and reason a few go
//! through at once and then one in a second; those wait in a short queue, and one task writes what
//! has gathered a few times in a second. Whatever does not fit is only counted, by the metrics.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use surehook_core::{refused::RefusedRequest, time::Timestamp};
use tokio::sync::mpsc;

use crate::Engine;

/// Samples of one source and reason that may follow each other at once.
const BURST: u32 = 20;
/// After that, one in this time.
const ONE_EVERY: Duration = Duration::from_secs(1);
/// Samples that wait to be written.
const WAITING_MAX: usize = 256;
/// Samples written in one step.
const BATCH_MAX: usize = 64;
/// The wait between two steps.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Sources and reasons that are told apart. Both are known words, so there are never so many.
const KINDS_MAX: usize = 10_000;

/// The way into the sample.
#[derive(Debug)]
pub(crate) struct RefusedSampler {
    queue: mpsc::Sender<RefusedRequest>,
    allowances: Mutex<HashMap<(Option<String>, &'static str), SampleAllowance>>,
}

/// How many more of one kind are taken.
#[derive(Clone, Copy, Debug)]
struct SampleAllowance {
    left: u32,
    since: Timestamp,
}

impl SampleAllowance {
    fn take(&mut self, now: Timestamp) -> bool {
        let gained = now.since(self.since).as_millis() / ONE_EVERY.as_millis();
        if gained > 0 {
            self.left = self.left.saturating_add(u32::try_from(gained).unwrap_or(BURST)).min(BURST);
            self.since = now;
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }
}

impl RefusedSampler {
    pub(crate) fn new() -> (Self, mpsc::Receiver<RefusedRequest>) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        (Self { queue, allowances: Mutex::default() }, waiting)
    }

    /// Offers a request for the sample; it is put together only if it has a chance.
    fn offer(
        &self,
        source: Option<&str>,
        code: &'static str,
        now: Timestamp,
        request: impl FnOnce() -> RefusedRequest,
    ) {
        let mut allowances = self.allowances.lock().unwrap_or_else(PoisonError::into_inner);
        if allowances.len() >= KINDS_MAX {
            allowances.clear();
        }
        let allowance = allowances
            .entry((source.map(str::to_owned), code))
            .or_insert(SampleAllowance { left: BURST, since: now });
        let taken = allowance.take(now);
        drop(allowances);
        if taken {
            // A full queue means that there are samples enough.
            let _only_counted = self.queue.try_send(request());
        }
    }
}

impl Engine {
    /// Offers a request that was refused for the sample of such.
    pub fn sample_refused(
        &self,
        source: Option<&str>,
        code: &'static str,
        request: impl FnOnce() -> RefusedRequest,
    ) {
        self.refusals.offer(source, code, self.shared.clock.now(), request);
    }

    /// Writes samples until the engine stops.
    pub(crate) async fn write_refusals(&self, mut waiting: mpsc::Receiver<RefusedRequest>) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                many = waiting.recv_many(&mut batch, BATCH_MAX) => if many == 0 { return },
                () = self.shared.stop.cancelled() => return,
            }
            if let Err(error) = self.store.keep_refused(std::mem::take(&mut batch)).await {
                tracing::warn!(%error, "refused requests could not be kept; they were counted");
            }
            tokio::select! {
                () = tokio::time::sleep(WRITE_EVERY) => {}
                () = self.shared.stop.cancelled() => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn request() -> RefusedRequest {
        RefusedRequest {
            id: surehook_core::ids::RequestId::new(NOW, 1),
            source: None,
            at: NOW,
            code: "mismatch".to_owned(),
            status: 401,
            method: "POST".to_owned(),
            path: "/in/x".to_owned(),
            query: None,
            remote: String::new(),
            headers: surehook_core::event::HeaderBlock::default(),
            body_bytes: None,
            body: None,
        }
    }

    fn waiting(queue: &mut mpsc::Receiver<RefusedRequest>) -> usize {
        std::iter::from_fn(|| queue.try_recv().ok()).count()
    }

    #[test]
    fn a_flood_of_one_kind_leaves_a_few_and_room_for_others() {
        let (refusals, mut queue) = RefusedSampler::new();
        for _ in 0..10_000 {
            refusals.offer(Some("shop"), "mismatch", NOW, request);
        }
        assert_eq!(waiting(&mut queue), BURST as usize);
        refusals.offer(Some("shop"), "stale", NOW, request);
        refusals.offer(None, "mismatch", NOW, request);
        assert_eq!(waiting(&mut queue), 2);
        for _ in 0..100 {
            refusals.offer(Some("shop"), "mismatch", NOW + 3 * ONE_EVERY, request);
        }
        assert_eq!(waiting(&mut queue), 3);
    }

    #[test]
    fn a_queue_that_is_full_turns_the_rest_away() {
        let (refusals, mut queue) = RefusedSampler::new();
        for number in 0..2 * WAITING_MAX {
            refusals.offer(Some(&format!("source-{number}")), "mismatch", NOW, request);
        }
        assert_eq!(waiting(&mut queue), WAITING_MAX);
    }
}
