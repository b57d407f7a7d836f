//! Stores a sample of the refused requests, at a bounded cost.
//!
//! A flood of bad requests must cost the store next to nothing: a few samples are taken of each source
//! and reason at once, and then one per second; fewer of one address, so that it leaves room for
//! others. They wait in a short queue, and one task writes them in batches a few times per second. Other
//! requests are only counted by the metrics.

use std::{net::IpAddr, time::Duration};

use surehook_core::refused::RefusedRequest;
use surehook_types::time::Timestamp;
use tokio::sync::mpsc;

use crate::{
    Engine,
    allowance::{AllowanceRate, AllowanceTable},
};

/// Samples per source and reason.
const KIND_RATE: AllowanceRate = AllowanceRate { burst: 40, one_every: Duration::from_secs(1) };
/// Samples per source, reason and address.
const ADDRESS_RATE: AllowanceRate = AllowanceRate { burst: 20, one_every: Duration::from_secs(5) };
/// Samples in the queue.
const QUEUE_MAX: usize = 256;
/// Samples written in one transaction.
const BATCH_MAX: usize = 64;
/// The pause between two transactions.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Bound on the table of allowances. Sources and reasons are known names, so it is never reached.
const KINDS_MAX: usize = 10_000;
/// Bound on the table of addresses. While as many addresses are active, others are not sampled.
const ADDRESSES_MAX: usize = 10_000;

/// The source and the reason of a refused request.
type SampleKind = (Option<String>, &'static str);

/// The rate limit and the queue of the sample.
#[derive(Debug)]
pub(crate) struct RefusedSampler {
    queue: mpsc::Sender<RefusedRequest>,
    kinds: AllowanceTable<SampleKind>,
    addresses: AllowanceTable<(SampleKind, IpAddr)>,
}

impl RefusedSampler {
    pub(crate) fn new() -> (Self, mpsc::Receiver<RefusedRequest>) {
        let (queue, receiver) = mpsc::channel(QUEUE_MAX);
        let kinds = AllowanceTable::new(KINDS_MAX);
        let addresses = AllowanceTable::new(ADDRESSES_MAX);
        (Self { queue, kinds, addresses }, receiver)
    }

    /// Adds a request to the sample if the rates permit it; `request` is only called then.
    fn offer(
        &self,
        source: Option<&str>,
        code: &'static str,
        address: IpAddr,
        now: Timestamp,
        request: impl FnOnce() -> RefusedRequest,
    ) {
        let kind = (source.map(str::to_owned), code);
        // The address first: a flood of one address must not use up the allowance of all.
        if self.addresses.take((kind.clone(), address), ADDRESS_RATE, 1, now)
            && self.kinds.take(kind, KIND_RATE, 1, now)
        {
            // A full queue means that there are enough samples.
            let _only_counted = self.queue.try_send(request());
        }
    }
}

impl Engine {
    /// Offers a refused request for the sample. Limits count its sender under `address`.
    pub fn sample_refused(
        &self,
        source: Option<&str>,
        code: &'static str,
        address: IpAddr,
        request: impl FnOnce() -> RefusedRequest,
    ) {
        self.refused_sampler.offer(source, code, address, self.shared.clock.now(), request);
    }

    /// Writes samples until the engine stops.
    pub(crate) async fn write_refused_samples(&self, mut queue: mpsc::Receiver<RefusedRequest>) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                count = queue.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
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

    const FLOODING: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn flood_of_one_reason_is_sampled_and_leaves_room_for_others() {
        let (sampler, mut queue) = RefusedSampler::new();
        for _ in 0..10_000 {
            sampler.offer(Some("shop"), "mismatch", FLOODING, NOW, request);
        }
        assert_eq!(drain_count(&mut queue), ADDRESS_RATE.burst as usize);
        sampler.offer(Some("shop"), "stale", FLOODING, NOW, request);
        sampler.offer(None, "mismatch", FLOODING, NOW, request);
        assert_eq!(drain_count(&mut queue), 2);
        for _ in 0..100 {
            let later = NOW + 3 * ADDRESS_RATE.one_every;
            sampler.offer(Some("shop"), "mismatch", FLOODING, later, request);
        }
        assert_eq!(drain_count(&mut queue), 3);
    }

    #[test]
    fn flood_of_one_address_leaves_room_for_other_addresses() {
        let (sampler, mut queue) = RefusedSampler::new();
        for _ in 0..10_000 {
            sampler.offer(Some("shop"), "mismatch", FLOODING, NOW, request);
        }
        drain_count(&mut queue);
        sampler.offer(Some("shop"), "mismatch", OTHER, NOW, request);
        assert_eq!(drain_count(&mut queue), 1);
    }

    #[test]
    fn flood_of_many_addresses_is_sampled() {
        let (sampler, mut queue) = RefusedSampler::new();
        for number in 0..200_u8 {
            let address = IpAddr::from([198, 51, 100, number]);
            sampler.offer(Some("shop"), "mismatch", address, NOW, request);
        }
        assert_eq!(drain_count(&mut queue), KIND_RATE.burst as usize);
    }

    #[test]
    fn full_queue_drops_further_samples() {
        let (sampler, mut queue) = RefusedSampler::new();
        for number in 0..2 * QUEUE_MAX {
            sampler.offer(Some(&format!("source-{number}")), "mismatch", OTHER, NOW, request);
        }
        assert_eq!(drain_count(&mut queue), QUEUE_MAX);
    }
}
