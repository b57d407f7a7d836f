//! Quarantine: refused requests that must not be lost are stored, and released once they verify.

use std::sync::Arc;

use surehook_core::{
    event::HeaderBlock,
    quarantine::{
        MANUALLY_RELEASED, QuarantineRelease, QuarantinedRequest, UNAUTHENTICATED_BODY_MAX,
        fingerprint,
    },
    source::Source,
    store::PageRequest,
};
use surehook_types::{
    ids::{RequestId, SourceId},
    rng::new_id,
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::provider::RefusalPolicy;

use crate::{
    Engine,
    ingest::{AcceptReason, InboundRequest, IngestError, ReadySource, ReceiveOutcome},
    registry::SourceRuntime,
};

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
    /// Requests.
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
        // Anyone can send such a request: it must not push out requests that may verify later.
        if error.is_unauthenticated() && request.body.len() > UNAUTHENTICATED_BODY_MAX {
            self.telemetry.count_quarantine_dropped(source.name.as_str(), 1);
            return error;
        }
        let quarantined = QuarantinedRequest {
            id: new_id(&*self.shared.rng, now),
            source: source.id,
            received_at: now,
            seen_at: now,
            times: 1,
            code: error.code().to_owned(),
            method: "POST".to_owned(),
            path: request.path.clone(),
            query: request.query.clone(),
            remote: request.remote.to_string(),
            headers: HeaderBlock::from_map(&request.headers),
            body_bytes: request.body.len() as u64,
            body: Some(request.body.clone()),
        };
        match self.store.quarantine(quarantined, self.quarantine_bytes_max).await {
            Ok(kept) => {
                let dropped = kept.pushed_out + u64::from(kept.id.is_none());
                self.telemetry.count_quarantine_dropped(source.name.as_str(), dropped);
                match source.on_refusal {
                    RefusalPolicy::Quarantine if kept.id.is_some() => {
                        IngestError::Quarantined(Box::new(error))
                    }
                    RefusalPolicy::Quarantine
                    | RefusalPolicy::Keep
                    | RefusalPolicy::Unauthorized => error,
                }
            }
            Err(error) => IngestError::Store(error),
        }
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
