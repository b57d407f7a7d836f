//! Stores a sample of the refused requests, at a bounded cost.
//!
//! A flood of bad requests must cost the store next to nothing: for each source and reason a few pass
//! at once, and then one per second. They wait in a short queue, and one task writes them in batches a
//! few times per second. The rest is only counted by the metrics.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use surehook_core::refused::RefusedRequest;
use surehook_types::time::Timestamp;
use tokio::sync::mpsc;

use crate::{Engine, lock::lock};

/// Samples per source and reason that may follow each other at once.
const BURST: u32 = 20;
/// After that, one per this time.
const ONE_EVERY: Duration = Duration::from_secs(1);
/// Samples in the queue.
const WAITING_MAX: usize = 256;
/// Samples written in one transaction.
const BATCH_MAX: usize = 64;
/// The pause between two transactions.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Bound on the table of allowances. Sources and reasons are known names, so it is never reached.
const KINDS_MAX: usize = 10_000;

/// The rate limit and the queue of the sample.
#[derive(Debug)]
pub(crate) struct RefusedSampler {
    queue: mpsc::Sender<RefusedRequest>,
    allowances: Mutex<HashMap<(Option<String>, &'static str), SampleAllowance>>,
}

/// How many more samples of one source and reason are taken.
#[derive(Clone, Copy, Debug)]
struct SampleAllowance {
    left: u32,
    since: Timestamp,
}

impl SampleAllowance {
    fn take(&mut self, now: Timestamp) -> bool {
        // The clock may have gone back.
        self.since = self.since.min(now);
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

    /// Offers a request for the sample; `request` is only evaluated if it is taken.
    fn offer(
        &self,
        source: Option<&str>,
        code: &'static str,
        now: Timestamp,
        request: impl FnOnce() -> RefusedRequest,
    ) {
        let mut allowances = lock(&self.allowances);
        if allowances.len() >= KINDS_MAX {
            allowances.clear();
        }
        let allowance = allowances
            .entry((source.map(str::to_owned), code))
            .or_insert(SampleAllowance { left: BURST, since: now });
        let taken = allowance.take(now);
        drop(allowances);
        if taken {
            // A full queue means that there are enough samples.
            let _only_counted = self.queue.try_send(request());
        }
    }
}

impl Engine {
    /// Offers a refused request for the sample.
    pub fn sample_refused(
        &self,
        source: Option<&str>,
        code: &'static str,
        request: impl FnOnce() -> RefusedRequest,
    ) {
        self.refused_sampler.offer(source, code, self.shared.clock.now(), request);
    }

    /// Writes samples until the engine stops.
    pub(crate) async fn write_refused_samples(&self, mut waiting: mpsc::Receiver<RefusedRequest>) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                many = waiting.recv_many(&mut batch, BATCH_MAX) => if many == 0 { return },
                () = self.shared.stop.cancelled() => return,
            }
            if let Err(error) = self.store.store_refused(std::mem::take(&mut batch)).await {
                tracing::warn!(%error, "could not store refused requests; they are only counted");
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
            id: surehook_types::ids::RequestId::new(NOW, 1),
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

    fn drain_count(queue: &mut mpsc::Receiver<RefusedRequest>) -> usize {
        std::iter::from_fn(|| queue.try_recv().ok()).count()
    }

    #[test]
    fn flood_of_one_reason_is_sampled_and_leaves_room_for_others() {
        let (sampler, mut queue) = RefusedSampler::new();
        for _ in 0..10_000 {
            sampler.offer(Some("shop"), "mismatch", NOW, request);
        }
        assert_eq!(drain_count(&mut queue), BURST as usize);
        sampler.offer(Some("shop"), "stale", NOW, request);
        sampler.offer(None, "mismatch", NOW, request);
        assert_eq!(drain_count(&mut queue), 2);
        for _ in 0..100 {
            sampler.offer(Some("shop"), "mismatch", NOW + 3 * ONE_EVERY, request);
        }
        assert_eq!(drain_count(&mut queue), 3);
    }

    #[test]
    fn full_queue_drops_further_samples() {
        let (sampler, mut queue) = RefusedSampler::new();
        for number in 0..2 * WAITING_MAX {
            sampler.offer(Some(&format!("source-{number}")), "mismatch", NOW, request);
        }
        assert_eq!(drain_count(&mut queue), WAITING_MAX);
    }
}
