//! Requests that were not let in and may not be lost: kept aside, looked at again, released.

use std::sync::Arc;

use surehook_core::{
    event::HeaderBlock,
    ids::{RequestId, SourceId},
    provider::RefusalPolicy,
    quarantine::{
        MANUALLY_RELEASED, QuarantineRelease, QuarantinedRequest, UNAUTHENTICATED_BODY_MAX,
        fingerprint,
    },
    rng::new_id,
    source::Source,
    store::{PageRequest, StoreError},
    time::Timestamp,
    verify::VerifiedRequest,
};

use crate::{
    Engine,
    ingest::{AcceptReason, InboundRequest, IngestError, ReadySource, ReceiveOutcome},
    registry::SourceRuntime,
};

/// Requests that are released in one step of many.
const RELEASED_AT_ONCE: usize = 500;

/// Why a request is not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// There is no such request in quarantine.
    #[error("there is no such request in quarantine")]
    NotFound,
    /// Nothing says how to read it.
    #[error("its source was deleted or cannot be used; mend the source, or discard the request")]
    SourceGone,
    /// What was wrong with it still is.
    #[error("{0}")]
    NotVerified(#[source] IngestError),
    /// The store did not do it.
    #[error("the request could not be stored")]
    Store(#[source] StoreError),
}

/// What became of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkReleaseReport {
    /// Requests that are out.
    pub released: u64,
    /// Events that they became.
    pub events: u64,
    /// Events that had come in another way meanwhile.
    pub duplicates: u64,
    /// Requests that are still not verified and stay.
    pub left: u64,
    /// Where it goes on, if there are more.
    pub next: Option<RequestId>,
}

impl Engine {
    /// What a request that may not come in is told; it is kept first, if its source asks for that.
    pub(crate) async fn refuse(
        &self,
        source: &Source,
        request: &InboundRequest,
        error: IngestError,
        now: Timestamp,
    ) -> IngestError {
        match source.on_refusal {
            RefusalPolicy::Unauthorized => return error,
            RefusalPolicy::Keep if error.has_no_credentials() => return error,
            RefusalPolicy::Keep | RefusalPolicy::Quarantine => {}
        }
        // Anybody can send such a one: it must not cost what may be let in one day.
        if error.has_no_credentials() && request.body.len() > UNAUTHENTICATED_BODY_MAX {
            self.telemetry.not_kept(source.name.as_str(), 1);
            return error;
        }
        let aside = QuarantinedRequest {
            id: new_id(&*self.shared.chance, now),
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
        match self.store.quarantine(aside, self.quarantine_bytes_max).await {
            Ok(kept) => {
                let dropped = kept.pushed_out + u64::from(kept.id.is_none());
                self.telemetry.not_kept(source.name.as_str(), dropped);
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

    /// What is not in quarantine any more once a request is in: itself, or the same one that came
    /// before and was refused. Whoever released that later would deliver it twice.
    pub(crate) fn leaves_quarantine(
        &self,
        source: &Source,
        request: &InboundRequest,
        pass: &AcceptReason,
    ) -> Option<QuarantineRelease> {
        if let Some(id) = pass.releases {
            return Some(QuarantineRelease::Request(id));
        }
        let may_be_there =
            source.on_refusal != RefusalPolicy::Unauthorized && self.store.may_hold(source.id);
        may_be_there.then(|| {
            QuarantineRelease::Same(fingerprint(
                &request.path,
                request.query.as_deref(),
                &request.body,
            ))
        })
    }

    /// Takes a request in that is in quarantine, if it verifies by now; `force` asks for nothing.
    pub async fn release_quarantined(
        self: &Arc<Self>,
        id: RequestId,
        force: bool,
    ) -> Result<ReceiveOutcome, ReleaseError> {
        let found = self.store.quarantined_request(id).await.map_err(ReleaseError::Store)?;
        let aside = found.ok_or(ReleaseError::NotFound)?;
        let ReadySource(entry) = self.source_by_id(aside.source).ok_or(ReleaseError::SourceGone)?;
        let Ok(source) = &entry.source else { return Err(ReleaseError::SourceGone) };
        let mut request = InboundRequest {
            path: aside.path,
            query: aside.query,
            headers: aside.headers.to_map(),
            body: aside.body.unwrap_or_default(),
            remote: aside.remote.into(),
        };
        // Its signature was made when it came, and is as old as it was then.
        let incoming = self.incoming(source, &request);
        let pass = match self.verify(source, &incoming, aside.seen_at).await {
            Ok(verified) => AcceptReason::new(source, verified),
            Err(_) if force => AcceptReason {
                verified: VerifiedRequest { by: MANUALLY_RELEASED, secret_index: 0 },
                verified_by: Some(MANUALLY_RELEASED.into()),
                releases: None,
                is_forced: false,
            },
            Err(error) => return Err(ReleaseError::NotVerified(error)),
        };
        let pass = AcceptReason { releases: Some(id), is_forced: force, ..pass };
        let now = self.shared.clock.now();
        let taken = self.take_in((&entry, source), &mut request, pass, now).await;
        match taken {
            Ok(outcome) => {
                // It may hold nothing, or nothing new: then no event took it along.
                self.store.discard(id).await.map_err(ReleaseError::Store)?;
                Ok(outcome)
            }
            Err(IngestError::Store(error)) => Err(self.why_not(id, error).await),
            Err(IngestError::UnknownSource) => Err(ReleaseError::SourceGone),
            Err(error) => Err(ReleaseError::NotVerified(error)),
        }
    }

    /// Of two who release the same request the second finds it gone.
    async fn why_not(&self, id: RequestId, error: StoreError) -> ReleaseError {
        let is_gone = matches!(self.store.quarantined_request(id).await, Ok(None));
        if is_gone { ReleaseError::NotFound } else { ReleaseError::Store(error) }
    }

    /// Releases what verifies by now, the oldest first; a bounded number of them in one call.
    pub async fn release_verified(
        self: &Arc<Self>,
        source: SourceId,
        after: Option<RequestId>,
    ) -> Result<BulkReleaseReport, ReleaseError> {
        let page = PageRequest { after, limit: RELEASED_AT_ONCE };
        let line = self.store.quarantine_line(source, page).await.map_err(ReleaseError::Store)?;
        let mut many = BulkReleaseReport::default();
        for id in &line {
            match self.release_quarantined(*id, false).await {
                Ok(outcome) => {
                    many.released += 1;
                    let known = outcome.received.iter().filter(|event| event.duplicate).count();
                    many.duplicates += known as u64;
                    many.events += (outcome.received.len() - known) as u64;
                }
                Err(ReleaseError::NotVerified(_)) => many.left += 1,
                Err(ReleaseError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        many.next = line.last().copied().filter(|_| line.len() == RELEASED_AT_ONCE);
        Ok(many)
    }

    /// A source that can be used, whether it takes requests or not.
    pub fn source_by_id(&self, id: SourceId) -> Option<ReadySource> {
        let registry = self.registry.load();
        let is_it =
            |entry: &&Arc<SourceRuntime>| entry.source.as_ref().is_ok_and(|source| source.id == id);
        registry.sources.values().find(is_it).cloned().map(ReadySource)
    }
}
