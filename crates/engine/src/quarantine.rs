//! Quarantine: refused requests that must not be lost are stored, and released once they verify.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use surehook_core::{
    event::HeaderBlock,
    quarantine::{
        MANUALLY_RELEASED, QuarantineRelease, QuarantinedRequest, UNAUTHENTICATED_BODY_MAX,
        fingerprint,
    },
    source::Source,
    store::PageRequest,
};
use surehook_guard::address::address_bucket;
use surehook_types::{
    ids::{RequestId, SourceId},
    rng::new_id,
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::provider::RefusalPolicy;

use crate::{
    Engine,
    allowance::{AllowanceRate, AllowanceTable},
    body_memory::BodyReservation,
    ingest::{AcceptReason, InboundRequest, IngestError, ReadySource, ReceiveOutcome},
    registry::SourceRuntime,
};

/// Size of a unit: a request costs one unit of its allowance for each started block of this size.
const UNIT_BYTES: usize = 64 * 1024;
/// Requests with credentials that an address may write to the quarantine of a source.
const ADDRESS_RATE: AllowanceRate =
    AllowanceRate { burst: 500, one_every: Duration::from_millis(20) };
/// Requests with credentials of all addresses.
const SOURCE_RATE: AllowanceRate =
    AllowanceRate { burst: 2000, one_every: Duration::from_millis(5) };
/// Requests without credentials, which anyone can send, of one address.
const UNAUTHENTICATED_ADDRESS_RATE: AllowanceRate =
    AllowanceRate { burst: 20, one_every: Duration::from_secs(2) };
/// Requests without credentials of all addresses.
const UNAUTHENTICATED_SOURCE_RATE: AllowanceRate =
    AllowanceRate { burst: 100, one_every: Duration::from_millis(200) };
/// Bounds on the tables of allowances.
const ADDRESSES_MAX: usize = 10_000;
const SOURCES_MAX: usize = 10_000;

/// Limits the writes caused by requests that fail verification. A request over the limit is answered like
/// the others, but not stored, and counted as dropped.
#[derive(Debug)]
pub(crate) struct QuarantineLimiter {
    addresses: AllowanceTable<(SourceId, IpAddr)>,
    unauthenticated_addresses: AllowanceTable<(SourceId, IpAddr)>,
    sources: AllowanceTable<SourceId>,
    unauthenticated_sources: AllowanceTable<SourceId>,
}

impl Default for QuarantineLimiter {
    fn default() -> Self {
        Self {
            addresses: AllowanceTable::new(ADDRESSES_MAX),
            unauthenticated_addresses: AllowanceTable::new(ADDRESSES_MAX),
            sources: AllowanceTable::new(SOURCES_MAX),
            unauthenticated_sources: AllowanceTable::new(SOURCES_MAX),
        }
    }
}

impl QuarantineLimiter {
    /// Whether a request of this many bytes may be written now.
    fn admit(
        &self,
        source: SourceId,
        address: IpAddr,
        has_credentials: bool,
        bytes: usize,
        now: Timestamp,
    ) -> bool {
        let (addresses, address_rate, sources, source_rate) = if has_credentials {
            (&self.addresses, ADDRESS_RATE, &self.sources, SOURCE_RATE)
        } else {
            let (addresses, sources) =
                (&self.unauthenticated_addresses, &self.unauthenticated_sources);
            (addresses, UNAUTHENTICATED_ADDRESS_RATE, sources, UNAUTHENTICATED_SOURCE_RATE)
        };
        let cost = u32::try_from(bytes.div_ceil(UNIT_BYTES).max(1)).unwrap_or(u32::MAX);
        // The address first: requests over its limit must not use up the allowance of all.
        addresses.take((source, address), address_rate, cost, now)
            && sources.take(source, source_rate, cost, now)
    }
}

/// The address under which limits count the sender of a request.
fn sender_address(remote: &str) -> IpAddr {
    remote.parse().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address_bucket)
}

/// Requests released in one call of `release_verified`.
const RELEASE_BATCH: usize = 500;

/// Why a request is not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("there is no such request in quarantine")]
    NotFound,
    #[error("its source was deleted or is misconfigured; fix the source, or discard the request")]
    SourceGone,
    /// It still does not verify.
    #[error("{0}")]
    NotVerified(#[source] IngestError),
    #[error("the request could not be stored")]
    Store(#[source] StoreError),
}

/// The result of releasing all requests that verify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkReleaseReport {
    /// Released requests.
    pub released: u64,
    /// New events.
    pub events: u64,
    /// Events that had been received in another request meanwhile.
    pub duplicates: u64,
    /// Requests that still do not verify and stay in quarantine.
    pub left: u64,
    /// Continue after this one, if there are more.
    pub next: Option<RequestId>,
}

impl Engine {
    /// The answer to a refused request, after storing it in quarantine if its source asks for that.
    pub(crate) async fn refuse(
        &self,
        source: &Source,
        request: &InboundRequest,
        error: IngestError,
        now: Timestamp,
    ) -> IngestError {
        match source.on_refusal {
            RefusalPolicy::Unauthorized => return error,
            RefusalPolicy::Keep if error.is_unauthenticated() => return error,
            RefusalPolicy::Keep | RefusalPolicy::Quarantine => {}
        }
        let is_unauthenticated = error.is_unauthenticated();
        let stored = self.quarantine(source, request, error.code(), is_unauthenticated, now).await;
        match (stored, source.on_refusal) {
            (Ok(true), RefusalPolicy::Quarantine) => IngestError::Quarantined(Box::new(error)),
            (
                Ok(_),
                RefusalPolicy::Quarantine | RefusalPolicy::Keep | RefusalPolicy::Unauthorized,
            ) => error,
            (Err(error), _) => IngestError::Store(error),
        }
    }

    /// Keeps a request that brings a secret, for a person to read it. Anyone can send one, so it counts as a
    /// request without credentials. `false` if a limit does not allow it.
    pub(crate) async fn keep_handshake(
        &self,
        source: &Source,
        request: &InboundRequest,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        // The store counts requests with this code as those of strangers.
        let code = "missing_signature";
        self.quarantine(source, request, code, true, now).await
    }

    /// Stores a request in quarantine. `false` if a limit does not allow it.
    async fn quarantine(
        &self,
        source: &Source,
        request: &InboundRequest,
        code: &str,
        is_unauthenticated: bool,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let bytes = request.body.len();
        // Anyone can send such requests: they must cost little.
        if is_unauthenticated && bytes > UNAUTHENTICATED_BODY_MAX
            || !self.quarantine_limiter.admit(
                source.id,
                sender_address(&request.remote),
                !is_unauthenticated,
                bytes,
                now,
            )
        {
            self.telemetry.count_quarantine_dropped(source.name.as_str(), 1);
            return Ok(false);
        }
        let quarantined = QuarantinedRequest {
            id: new_id(&*self.shared.rng, now),
            source: source.id,
            received_at: now,
            seen_at: now,
            times: 1,
            code: code.to_owned(),
            method: "POST".to_owned(),
            path: request.path.clone(),
            query: request.query.clone(),
            remote: request.remote.to_string(),
            headers: HeaderBlock::from_map(&request.headers),
            body_bytes: request.body.len() as u64,
            body: Some(request.body.clone()),
        };
        let result = self.store.quarantine(quarantined, self.quarantine_bytes_max).await?;
        let dropped = result.evicted + u64::from(result.id.is_none());
        self.telemetry.count_quarantine_dropped(source.name.as_str(), dropped);
        Ok(result.id.is_some())
    }

    /// The quarantined request that an accepted one replaces: itself, or an equal one that was refused
    /// before. Otherwise a later release would deliver it twice.
    pub(crate) fn find_quarantined(
        &self,
        source: &Source,
        request: &InboundRequest,
        reason: &AcceptReason,
    ) -> Option<QuarantineRelease> {
        if let Some(id) = reason.releases {
            return Some(QuarantineRelease::Request(id));
        }
        let may_exist = source.on_refusal != RefusalPolicy::Unauthorized
            && self.store.may_have_quarantined(source.id);
        may_exist.then(|| {
            QuarantineRelease::Same(fingerprint(
                &request.path,
                request.query.as_deref(),
                &request.body,
            ))
        })
    }

    /// Accepts a quarantined request if it verifies now; with `force` in any case.
    pub async fn release_quarantined(
        self: &Arc<Self>,
        id: RequestId,
        force: bool,
    ) -> Result<ReceiveOutcome, ReleaseError> {
        let quarantined = self.store.find_quarantined(id).await.map_err(ReleaseError::Store)?;
        let quarantined = quarantined.ok_or(ReleaseError::NotFound)?;
        let ReadySource(entry) =
            self.source_by_id(quarantined.source).ok_or(ReleaseError::SourceGone)?;
        let Ok(source) = &entry.source else { return Err(ReleaseError::SourceGone) };
        let mut request = InboundRequest {
            path: quarantined.path,
            query: quarantined.query,
            headers: quarantined.headers.to_map(),
            body: quarantined.body.unwrap_or_default(),
            remote: quarantined.remote.into(),
            memory: BodyReservation::default(),
        };
        // Verified as of the time it was received: its signature is as old as it was then.
        let incoming = self.incoming(source, &request);
        let reason = match self.verify(source, &incoming, quarantined.seen_at).await {
            Ok(verified) => AcceptReason::new(source, verified),
            Err(_) if force => AcceptReason::without_signature(MANUALLY_RELEASED),
            Err(error) => return Err(ReleaseError::NotVerified(error)),
        };
        let reason = AcceptReason { releases: Some(id), is_forced: force, ..reason };
        let now = self.shared.clock.now();
        match self.accept(&entry, source, &mut request, reason, now).await {
            Ok(outcome) => {
                // A request without new events is not removed by the commit of one.
                self.store.discard_quarantined(id).await.map_err(ReleaseError::Store)?;
                Ok(outcome)
            }
            Err(IngestError::Store(error)) => Err(self.release_error(id, error).await),
            Err(IngestError::UnknownSource) => Err(ReleaseError::SourceGone),
            Err(error) => Err(ReleaseError::NotVerified(error)),
        }
    }

    /// A failed commit may mean that the same request was released concurrently.
    async fn release_error(&self, id: RequestId, error: StoreError) -> ReleaseError {
        let is_gone = matches!(self.store.find_quarantined(id).await, Ok(None));
        if is_gone { ReleaseError::NotFound } else { ReleaseError::Store(error) }
    }

    /// Releases the requests that verify now, oldest first; a bounded number in one call.
    pub async fn release_verified(
        self: &Arc<Self>,
        source: SourceId,
        after: Option<RequestId>,
    ) -> Result<BulkReleaseReport, ReleaseError> {
        let page = PageRequest { after, limit: RELEASE_BATCH };
        let ids =
            self.store.list_quarantined_ids(source, page).await.map_err(ReleaseError::Store)?;
        let mut report = BulkReleaseReport::default();
        for id in &ids {
            match self.release_quarantined(*id, false).await {
                Ok(outcome) => {
                    report.released += 1;
                    let duplicates =
                        outcome.received.iter().filter(|event| event.duplicate).count();
                    report.duplicates += duplicates as u64;
                    report.events += (outcome.received.len() - duplicates) as u64;
                }
                Err(ReleaseError::NotVerified(_)) => report.left += 1,
                Err(ReleaseError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        report.next = ids.last().copied().filter(|_| ids.len() == RELEASE_BATCH);
        Ok(report)
    }

    /// A source that is not misconfigured, enabled or not.
    pub fn source_by_id(&self, id: SourceId) -> Option<ReadySource> {
        let registry = self.registry.load();
        let has_id =
            |entry: &&Arc<SourceRuntime>| entry.source.as_ref().is_ok_and(|source| source.id == id);
        registry.sources.values().find(has_id).cloned().map(ReadySource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn flood_of_one_address_is_limited_and_leaves_room_for_others() {
        let limiter = QuarantineLimiter::default();
        let source = SourceId::new(NOW, 1);
        for (has_credentials, burst) in [(false, 20), (true, 500)] {
            let admit = |from, bytes| limiter.admit(source, from, has_credentials, bytes, NOW);
            assert_eq!((0..9_999).filter(|_| admit(address(1), 100)).count(), burst);
            assert!(admit(address(2), 100));
        }
    }

    #[test]
    fn large_requests_cost_more() {
        let limiter = QuarantineLimiter::default();
        let source = SourceId::new(NOW, 1);
        let admit = || limiter.admit(source, address(1), true, 1 << 20, NOW);
        assert_eq!((0..999).filter(|_| admit()).count(), 500 / 16);
    }

    #[test]
    fn sender_is_counted_by_network() {
        assert_eq!(sender_address("2001:db8::1"), sender_address("2001:db8::2"));
        assert_ne!(sender_address("192.0.2.1"), sender_address("192.0.2.2"));
        assert_eq!(sender_address("unknown"), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    }
}
