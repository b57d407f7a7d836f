//! The store traits on PostgreSQL: each method is a step in a transaction.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use surehook_core::{
    access::{ApiToken, StoredLoginLink, TokenHash},
    alert::log::AlertLog,
    callback::{CallbackResult, DueCallback},
    clock::{SavedClock, StoredClock},
    dead_letters::{DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter},
    decision::{EventDecision, NotRoutedReason},
    delivery::{ClaimProof, LaneEpoch, state::DeliveryStatus},
    event::{DedupKeyClaim, DuplicateId, NewEvent, Payload},
    idempotency::{
        ClaimContext, ClaimDetail, ClaimFilter, ClaimRow, ClaimStep, ClaimStepResult, ClaimTotals,
        IdempotencyStore, NamespaceCounts,
    },
    lane::{LaneId, SavedLaneState},
    quarantine::{QuarantineResult, QuarantineStore, QuarantinedRequest},
    refused::{RefusedFilter, RefusedRequest},
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayPreview, ReplayRow, ReplaySpec, ReplayStore, ReplayTransition, SelectionReport,
    },
    requests::{ReceivedRequest, RequestCursor, RequestFilter},
    rollup::{BucketWidth, DestinationRollup, RollupCounts, RollupQuery},
    store::{
        AbandonedClaim, AdminStore, AdmitResult, CancelResult, ClaimBatch, ConfigChange,
        ConfigChangeResult, ConfigVersion, Configuration, CoordinationStore, DatabaseHealth,
        DeliveryDetail, DeliveryFilter, DeliveryRow, DeliveryStore, DuplicateDetail, Duty,
        EventDetail, EventFilter, EventRow, HeldClaim, HistoryFilter, IngestStore,
        InitialTokenResult, JoinRequest, JoinResult, LaneAnswer, LaneRequest, LedDuty, ListPage,
        NewNode, NodeLease, NodesReport, OwnedLane, PageRequest, PruneReport, RecordedDelivery,
        RemoveTokenResult, ReplayResult, SettleResult, Settlement, Signal, SignalBatch,
        SignalPosition, StoreCounts, StoreHealth, StoredAlerts, WaitingCount,
    },
};
use surehook_dedup::ClaimKey;
use surehook_messaging::{
    media::StoredMedia,
    store::{DailySendCount, MessageStore},
};
use surehook_types::{
    ids::{
        DeliveryId, DestinationId, EventId, LaneRequestId, MediaId, NodeId, ReplayId, RequestId,
        SourceId, TokenId,
    },
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::attribute::AttributeFilter;
use tokio::time::timeout;

use super::{
    PostgresStore,
    admit::{self, AdmitRequest},
    claim::{self, ClaimJob},
    connection::PgConnection,
    coordination, database_health,
    pool::Access,
    run_blocking, settle,
    transaction::{self, PgTransaction},
};
use crate::steps::{
    alerts, callbacks, claims, clock, configure, counts, crash_outcomes, dead_letter_groups,
    decisions, deleted_destinations, delivery_bodies, duplicates,
    event_terms::EventTerms,
    history, idempotency, ingest, join_sender, lanes, list, list_events, list_requests,
    login_links, lookups, media, ordering_queue, prune, quarantine, refused, replay,
    replay_jobs::{self, AdvanceStep},
    replay_selection::{self, PreviewScan},
    rollups, sent_messages, tokens,
};

const TOTALS: &str = "
    SELECT name, CAST(sum(value) AS bigint)
      FROM (SELECT name, value FROM totals
             UNION ALL
            SELECT u.name, u.amount
              FROM count_facts f CROSS JOIN LATERAL unnest(f.names, f.amounts) AS u (name, amount)) AS t
     GROUP BY name";

/// How often other processes are asked for signals while a call waits for them.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long a call waits for more signals after it was notified of one.
const GATHER_TIME: Duration = Duration::from_millis(5);

#[async_trait]
impl IngestStore for PostgresStore {
    fn find_committed(
        &self,
        _source: SourceId,
        _claim: &DedupKeyClaim,
        _fingerprint: &[u8; 32],
        _seen_at: Timestamp,
    ) -> Option<EventId> {
        // A delivery of the event may have died on another node, so only the database knows.
        None
    }

    async fn admit(&self, events: Arc<[NewEvent]>) -> Result<Vec<AdmitResult>, StoreError> {
        let terms = |event: &NewEvent| EventTerms::new(event.kind.as_ref(), &event.attributes);
        let terms: Arc<[EventTerms]> = events.iter().map(terms).collect();
        self.check_queue()?;
        if admit::is_plain(&events) {
            let (events, terms) = (Arc::clone(&events), Arc::clone(&terms));
            if let Some(results) = self.admitter.submit(AdmitRequest { events, terms }).await? {
                return Ok(results);
            }
        }
        self.writer.write(move |tx| ingest::insert_events(tx, &events, &terms)).await
    }

    async fn join(&self, request: JoinRequest) -> Result<JoinResult, StoreError> {
        self.writer.write(move |tx| join_sender::join_delivery(tx, &request)).await
    }
}

#[async_trait]
impl DeliveryStore for PostgresStore {
    async fn claim_due(
        &self,
        destination: DestinationId,
        now: Timestamp,
        proof: ClaimProof,
        limit: usize,
    ) -> Result<ClaimBatch, StoreError> {
        let job = ClaimJob { destination, now, proof, limit };
        if let Some(claimed) = self.claimer.submit(job).await? {
            return Ok(claimed);
        }
        self.writer
            .write(move |tx| claims::claim(tx, claims::DUE, destination, now, proof, limit))
            .await
    }

    async fn claim_next(
        &self,
        destination: DestinationId,
        now: Timestamp,
        proof: ClaimProof,
    ) -> Result<ClaimBatch, StoreError> {
        let (next, limit) = (claims::NEXT, claims::NEXT_SCAN_MAX);
        self.writer.write(move |tx| claims::claim(tx, next, destination, now, proof, limit)).await
    }

    async fn find_next_due(
        &self,
        destination: DestinationId,
    ) -> Result<Option<Timestamp>, StoreError> {
        let from = self.claim_cursors.search_start(destination);
        self.read(move |db| claim::next_due(db, destination, from)).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<SettleResult>, StoreError> {
        if let [settlement] = &settlements[..]
            && settle::is_plain(settlement)
            && let Some(result) = self.settler.submit(Arc::new(settlement.clone())).await?
        {
            return Ok(vec![result]);
        }
        let settle_all = move |tx: &mut PgTransaction<'_>| {
            settlements.iter().map(|settlement| claims::settle(tx, settlement)).collect()
        };
        self.writer.write(settle_all).await
    }

    async fn record_crash_outcome(&self, outcome: Settlement) -> Result<SettleResult, StoreError> {
        self.writer.write(move |tx| crash_outcomes::record(tx, &outcome)).await
    }

    async fn release(&self, held: Vec<HeldClaim>, due_at: Timestamp) -> Result<(), StoreError> {
        self.writer.write(move |tx| claims::release(tx, &held, due_at)).await?;
        self.claim_cursors.lower_all(due_at);
        Ok(())
    }

    async fn abandon(&self, claims: Vec<AbandonedClaim>, now: Timestamp) -> Result<(), StoreError> {
        let due_at = claims.iter().map(|claim| claim.due_at).min();
        self.writer.write(move |tx| claims::abandon(tx, &claims, now)).await?;
        if let Some(due_at) = due_at {
            self.claim_cursors.lower_all(due_at);
        }
        Ok(())
    }

    async fn cancel_claimed(
        &self,
        claim: HeldClaim,
        reason: NotRoutedReason,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.writer.write(move |tx| claims::cancel_claimed(tx, claim, &reason, at)).await
    }

    async fn list_due_callbacks(
        &self,
        after: Option<DeliveryId>,
        limit: usize,
    ) -> Result<Vec<DueCallback>, StoreError> {
        self.read(move |db| callbacks::list_due(db, after, limit)).await
    }

    async fn end_callback(
        &self,
        delivery: DeliveryId,
        result: CallbackResult,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| callbacks::end(tx, delivery, result, at)).await
    }

    async fn save_lane(
        &self,
        destination: DestinationId,
        epoch: LaneEpoch,
        state: SavedLaneState,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| lanes::save(tx, destination, epoch, &state)).await
    }

    async fn load_lanes(&self) -> Result<BTreeMap<DestinationId, SavedLaneState>, StoreError> {
        self.read(|db| lanes::load_all(db)).await
    }

    async fn load_clock(&self) -> Result<StoredClock, StoreError> {
        self.read(|db| clock::load(db)).await
    }

    async fn save_clock(&self, clock: SavedClock) -> Result<(), StoreError> {
        self.writer.write(move |tx| clock::save(tx, &clock)).await
    }

    async fn shorten_waits(&self, now: Timestamp, step: Duration) -> Result<usize, StoreError> {
        self.writer.write(move |tx| clock::shorten_waits(tx, now, step)).await
    }
}

#[async_trait]
impl CoordinationStore for PostgresStore {
    async fn register_node(&self, node: NewNode) -> Result<NodeLease, StoreError> {
        self.notifications.set_own_node(node.id);
        self.coordinate(move |db| coordination::register(db, &node)).await
    }

    async fn renew_node(&self, node: NodeId) -> Result<Option<NodeLease>, StoreError> {
        self.coordinate(move |db| coordination::renew(db, node)).await
    }

    async fn begin_leaving(&self, node: NodeId) -> Result<(), StoreError> {
        self.coordinate(move |db| coordination::begin_leaving(db, node)).await
    }

    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError> {
        self.coordinate(move |db| coordination::remove(db, node)).await
    }

    async fn acquire_lanes(
        &self,
        node: NodeId,
        lanes: Vec<LaneId>,
    ) -> Result<Vec<OwnedLane>, StoreError> {
        let lanes: Arc<[LaneId]> = lanes.into();
        let wanted = Arc::clone(&lanes);
        // Mostly there is nothing to take.
        let owned = self.coordinate(move |db| coordination::find_owned(db, node, &wanted)).await?;
        match owned {
            Some(owned) => Ok(owned),
            None => {
                let acquire =
                    move |tx: &mut PgTransaction<'_>| coordination::acquire_lanes(tx, node, &lanes);
                self.writer.write(acquire).await
            }
        }
    }

    async fn release_lanes(&self, node: NodeId, lanes: Vec<LaneId>) -> Result<(), StoreError> {
        self.coordinate(move |db| coordination::release_lanes(db, node, &lanes)).await
    }

    async fn load_nodes(&self) -> Result<NodesReport, StoreError> {
        self.read(|db| coordination::load_nodes(db)).await
    }

    async fn publish_signals(&self, node: NodeId, signals: Vec<Signal>) -> Result<(), StoreError> {
        if signals.is_empty() {
            return Ok(());
        }
        let channel = self.readers.connector.schema().to_owned();
        let publish =
            move |db: &PgConnection<'_>| coordination::publish(db, &channel, node, &signals);
        run_blocking(&self.coordination, Access::WriteHint, publish).await?;
        // Several nodes of one process.
        self.notifications.published.notify_waiters();
        Ok(())
    }

    async fn poll_signals(
        &self,
        node: NodeId,
        after: Option<SignalPosition>,
        wait: Duration,
    ) -> Result<SignalBatch, StoreError> {
        let until = Instant::now() + wait;
        loop {
            let mut published = std::pin::pin!(self.notifications.published.notified());
            // Enabled before the read: a signal published in between is not missed.
            published.as_mut().enable();
            let batch = self.read(move |db| coordination::read_signals(db, node, after)).await?;
            let left = until.saturating_duration_since(Instant::now());
            if after.is_none() || batch.has_gap || !batch.signals.is_empty() || left.is_zero() {
                return Ok(batch);
            }
            // Without notifications, those of other processes are found by asking again.
            if timeout(left.min(SIGNAL_POLL_INTERVAL), published).await.is_ok() {
                tokio::time::sleep(GATHER_TIME).await;
            }
        }
    }

    async fn add_lane_request(&self, request: LaneRequest) -> Result<(), StoreError> {
        self.coordinate(move |db| coordination::add_request(db, &request)).await
    }

    async fn list_lane_requests(&self, node: NodeId) -> Result<Vec<LaneRequest>, StoreError> {
        self.read(move |db| coordination::list_requests(db, node)).await
    }

    async fn answer_lane_request(
        &self,
        id: LaneRequestId,
        answer: LaneAnswer,
    ) -> Result<(), StoreError> {
        self.coordinate(move |db| coordination::answer_request(db, id, &answer)).await
    }

    async fn find_lane_answer(&self, id: LaneRequestId) -> Result<Option<LaneAnswer>, StoreError> {
        self.read(move |db| coordination::find_answer(db, id)).await
    }

    async fn lead_duties(
        &self,
        node: NodeId,
        duties: Vec<Duty>,
    ) -> Result<Vec<LedDuty>, StoreError> {
        let duties: Arc<[Duty]> = duties.into();
        let wanted = Arc::clone(&duties);
        let led = self.coordinate(move |db| coordination::find_led(db, node, &wanted)).await?;
        match led {
            Some(led) => Ok(led),
            None => {
                let lead =
                    move |tx: &mut PgTransaction<'_>| coordination::lead_duties(tx, node, &duties);
                self.writer.write(lead).await
            }
        }
    }
}

#[async_trait]
impl QuarantineStore for PostgresStore {
    async fn quarantine(
        &self,
        request: QuarantinedRequest,
        bytes_max: u64,
    ) -> Result<QuarantineResult, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        let step =
            move |tx: &mut PgTransaction<'_>| quarantine::insert(tx, &keys, &request, bytes_max);
        self.write_bounded(step).await
    }

    /// Another node may have just quarantined a request.
    fn may_have_quarantined(&self, _source: SourceId) -> bool {
        true
    }

    async fn list_quarantined(
        &self,
        source: Option<SourceId>,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<QuarantinedRequest>, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        self.read(move |db| quarantine::list(db, &keys, source, page)).await
    }

    async fn list_quarantined_ids(
        &self,
        source: SourceId,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RequestId>, StoreError> {
        self.read(move |db| quarantine::list_oldest_first(db, source, page)).await
    }

    async fn find_quarantined(
        &self,
        id: RequestId,
    ) -> Result<Option<QuarantinedRequest>, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        self.read(move |db| quarantine::find(db, &keys, id)).await
    }

    async fn discard_quarantined(&self, id: RequestId) -> Result<bool, StoreError> {
        self.writer.write(move |tx| quarantine::remove(tx, id)).await
    }
}

#[async_trait]
impl AdminStore for PostgresStore {
    async fn load_configuration(&self) -> Result<Configuration, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        self.read(move |db| lookups::load_configuration(db, &keys)).await
    }

    async fn load_alerts(&self) -> Result<StoredAlerts, StoreError> {
        self.read(|db| alerts::load(db)).await
    }

    async fn save_alerts(&self, expected: u64, log: AlertLog) -> Result<Option<u64>, StoreError> {
        self.writer.write(move |tx| alerts::save(tx, expected, &log)).await
    }

    async fn load_configuration_version(&self) -> Result<ConfigVersion, StoreError> {
        self.read(|db| lookups::load_configuration_version(db)).await
    }

    async fn change(
        &self,
        changes: Vec<ConfigChange>,
        expected: ConfigVersion,
        now: Timestamp,
    ) -> Result<ConfigChangeResult, StoreError> {
        let keys = Arc::clone(&self.data_keys);
        let change =
            move |tx: &mut PgTransaction<'_>| configure::change(tx, &keys, &changes, expected, now);
        self.writer.write(change).await
    }

    async fn list_events(
        &self,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Result<ListPage<EventRow, EventId>, StoreError> {
        let query = move |db: &PgConnection<'_>| list_events::list_events(db, db, &filter, page);
        self.read(query).await
    }

    async fn list_events_with_each(
        &self,
        filters: Vec<AttributeFilter>,
        limit: usize,
    ) -> Result<Vec<Vec<EventRow>>, StoreError> {
        let query =
            move |db: &PgConnection<'_>| list_events::list_with_each(db, db, &filters, limit);
        self.read(query).await
    }

    async fn find_event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.read(move |db| lookups::find_event(db, id)).await
    }

    async fn find_event_row(&self, id: EventId) -> Result<Option<EventRow>, StoreError> {
        self.read(move |db| lookups::find_event_row(db, id)).await
    }

    async fn find_duplicate(
        &self,
        duplicate: DuplicateId,
    ) -> Result<Option<DuplicateDetail>, StoreError> {
        self.read(move |db| duplicates::find(db, duplicate)).await
    }

    async fn find_body(&self, id: EventId) -> Result<Option<Payload>, StoreError> {
        self.read(move |db| lookups::find_payload(db, id)).await
    }

    async fn list_dead_letter_groups(
        &self,
        filter: DeadLetterGroupFilter,
        page: PageRequest<DeadLetterGroupCursor>,
    ) -> Result<ListPage<DeadLetterGroup, DeadLetterGroupCursor>, StoreError> {
        self.read(move |db| dead_letter_groups::list(db, filter, page)).await
    }

    async fn list_deliveries(
        &self,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<ListPage<DeliveryRow, DeliveryId>, StoreError> {
        self.read(move |db| list::list_deliveries(db, filter, page)).await
    }

    async fn list_deliveries_of(
        &self,
        events: Vec<EventId>,
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        self.read(move |db| list::list_for_events(db, &events)).await
    }

    async fn list_history(
        &self,
        filter: HistoryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Result<Vec<RecordedDelivery>, StoreError> {
        self.read(move |db| history::list_history(db, filter, page)).await
    }

    async fn find_delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        self.read(move |db| lookups::find_delivery(db, id)).await
    }

    async fn find_delivery_body(&self, id: DeliveryId) -> Result<Option<Payload>, StoreError> {
        self.read(move |db| delivery_bodies::find_body(db, id)).await
    }

    async fn record_decision(&self, decision: EventDecision) -> Result<(), StoreError> {
        self.writer.write(move |tx| decisions::insert(tx, &decision)).await
    }

    async fn store_refused(&self, refused: Vec<RefusedRequest>) -> Result<(), StoreError> {
        self.write_bounded(move |tx| refused::insert(tx, &refused)).await
    }

    async fn list_refused(
        &self,
        filter: RefusedFilter,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RefusedRequest>, StoreError> {
        self.read(move |db| refused::list(db, &filter, page)).await
    }

    async fn list_requests(
        &self,
        filter: RequestFilter,
        page: PageRequest<RequestCursor>,
    ) -> Result<ListPage<ReceivedRequest, RequestCursor>, StoreError> {
        self.read(move |db| list_requests::list_requests(db, &filter, page)).await
    }

    async fn find_refused(&self, id: RequestId) -> Result<Option<RefusedRequest>, StoreError> {
        self.read(move |db| refused::find(db, id)).await
    }

    async fn replay(
        &self,
        id: DeliveryId,
        new: DeliveryId,
        now: Timestamp,
    ) -> Result<ReplayResult, StoreError> {
        self.writer.write(move |tx| replay::replay_delivery(tx, id, new, now)).await
    }

    async fn cancel(&self, id: DeliveryId, now: Timestamp) -> Result<CancelResult, StoreError> {
        self.writer.write(move |tx| ordering_queue::cancel(tx, id, now)).await
    }

    async fn cancel_for_deleted_destinations(&self) -> Result<bool, StoreError> {
        self.writer.write(|tx| deleted_destinations::cancel_next_slice(tx)).await
    }

    async fn count_held(&self) -> Result<BTreeMap<DeliveryStatus, u64>, StoreError> {
        self.read(|db| lanes::count_held(db)).await
    }

    async fn count_waiting(
        &self,
        now: Timestamp,
        limit: u64,
    ) -> Result<BTreeMap<DestinationId, WaitingCount>, StoreError> {
        self.read(move |db| lookups::count_waiting(db, now, limit)).await
    }

    async fn list_destination_rollups(
        &self,
        width: BucketWidth,
        since: Timestamp,
    ) -> Result<Vec<DestinationRollup>, StoreError> {
        self.read(move |db| rollups::list_for_destinations(db, width, since)).await
    }

    async fn counts(&self) -> Result<StoreCounts, StoreError> {
        self.read(|db| counts::load_from(db, TOTALS)).await
    }

    async fn find_oldest_due(
        &self,
        now: Timestamp,
    ) -> Result<BTreeMap<DestinationId, Timestamp>, StoreError> {
        self.read(move |db| lookups::find_oldest_due(db, now)).await
    }

    fn health(&self) -> StoreHealth {
        let (queued, unreachable) = (self.queue_len(), self.readers.connector.unreachable());
        StoreHealth { queued, unreachable, ..StoreHealth::default() }
    }

    async fn inspect_database(&self) -> Result<Option<DatabaseHealth>, StoreError> {
        let health = self.read(|db| database_health::inspect(db, false)).await?;
        let clock_offset_ms = self.clock_offset_ms.load(Ordering::Relaxed);
        Ok(Some(DatabaseHealth { clock_offset_ms, ..health }))
    }

    async fn wait_for_failure(&self) -> String {
        // What prevents the work of a database on another machine ends without this process.
        std::future::pending().await
    }

    async fn prune(
        &self,
        events_kept: Duration,
        now: Timestamp,
    ) -> Result<PruneReport, StoreError> {
        self.writer.write(move |tx| prune::prune_slice(tx, events_kept, now)).await
    }

    async fn roll_up(&self) -> Result<bool, StoreError> {
        let roll_up = |tx: &mut PgTransaction<'_>| {
            transaction::merge_counts(tx)?;
            rollups::roll_up(tx)
        };
        self.writer.write(roll_up).await
    }

    async fn list_rollups(
        &self,
        query: RollupQuery,
    ) -> Result<Vec<(Timestamp, RollupCounts)>, StoreError> {
        self.read(move |db| rollups::query_buckets(db, query)).await
    }

    async fn add_token(&self, token: ApiToken) -> Result<bool, StoreError> {
        let add = move |tx: &mut PgTransaction<'_>| {
            coordination::raise_tokens_version(tx)?;
            tokens::add(tx, &token)
        };
        self.writer.write(add).await
    }

    async fn add_initial_token(
        &self,
        token: ApiToken,
        generated: bool,
    ) -> Result<InitialTokenResult, StoreError> {
        let add = move |tx: &mut PgTransaction<'_>| {
            coordination::raise_tokens_version(tx)?;
            tokens::add_initial(tx, &token, generated)
        };
        self.writer.write(add).await
    }

    async fn list_tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        self.read(|db| tokens::list(db)).await
    }

    async fn extend_session(&self, id: TokenId, expires_at: Timestamp) -> Result<(), StoreError> {
        let extend = move |tx: &mut PgTransaction<'_>| {
            coordination::raise_tokens_version(tx)?;
            tokens::extend_session(tx, id, expires_at)
        };
        self.writer.write(extend).await
    }

    async fn add_login_link(
        &self,
        link: StoredLoginLink,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer.write(move |tx| login_links::add(tx, &link, now)).await
    }

    async fn take_login_link(
        &self,
        hash: TokenHash,
        now: Timestamp,
    ) -> Result<Option<StoredLoginLink>, StoreError> {
        self.writer.write(move |tx| login_links::take(tx, &hash, now)).await
    }

    async fn remove_token(
        &self,
        id: TokenId,
        now: Timestamp,
    ) -> Result<RemoveTokenResult, StoreError> {
        let remove = move |tx: &mut PgTransaction<'_>| {
            coordination::raise_tokens_version(tx)?;
            tokens::remove(tx, id, now)
        };
        self.writer.write(remove).await
    }
}

#[async_trait]
impl IdempotencyStore for PostgresStore {
    async fn run_claim_steps(
        &self,
        steps: Vec<ClaimStep>,
        context: ClaimContext,
    ) -> Result<Vec<ClaimStepResult>, StoreError> {
        let is_growth = steps.iter().any(idempotency::is_growth);
        let step = move |tx: &mut PgTransaction<'_>| idempotency::run_steps(tx, &steps, &context);
        match is_growth {
            true => self.write_bounded(step).await,
            false => self.writer.write(step).await,
        }
    }

    async fn list_claims(
        &self,
        filter: ClaimFilter,
        page: PageRequest<ClaimKey>,
        as_of: Timestamp,
    ) -> Result<Vec<ClaimRow>, StoreError> {
        self.read(move |db| idempotency::list(db, &filter, &page, as_of)).await
    }

    async fn find_claim(
        &self,
        key: ClaimKey,
        as_of: Timestamp,
    ) -> Result<Option<ClaimDetail>, StoreError> {
        self.read(move |db| idempotency::find(db, &key, as_of)).await
    }

    async fn count_claims(&self, as_of: Timestamp) -> Result<Vec<NamespaceCounts>, StoreError> {
        self.read(move |db| idempotency::count(db, as_of)).await
    }

    async fn count_all_claims(&self, as_of: Timestamp) -> Result<ClaimTotals, StoreError> {
        self.read(move |db| idempotency::count_all(db, as_of)).await
    }

    async fn prune_claims(&self, as_of: Timestamp) -> Result<usize, StoreError> {
        self.writer.write(move |tx| idempotency::prune(tx, as_of)).await
    }
}

#[async_trait]
impl MessageStore for PostgresStore {
    async fn store_media(&self, upload: StoredMedia) -> Result<(), StoreError> {
        self.writer.write(move |tx| media::insert(tx, &upload)).await
    }

    async fn find_media(&self, id: MediaId) -> Result<Option<StoredMedia>, StoreError> {
        self.read(move |db| media::find(db, id)).await
    }

    async fn use_media(
        &self,
        id: MediaId,
        now: Timestamp,
    ) -> Result<Option<StoredMedia>, StoreError> {
        let find = move |db: &PgConnection<'_>| {
            Ok((media::find(db, id)?, media::is_recorded(db, id, now)?))
        };
        let (upload, is_recorded) = self.read(find).await?;
        if is_recorded || upload.is_none() {
            return Ok(upload);
        }
        // The file may have been removed in between.
        let is_there = self.writer.write(move |tx| media::record_use(tx, id, now)).await?;
        Ok(upload.filter(|_| is_there))
    }

    async fn count_sent_on(&self, destination: DestinationId, day: i32) -> Result<u64, StoreError> {
        self.read(move |db| sent_messages::count_sent_on(db, destination, day)).await
    }

    async fn count_sent_by_day(
        &self,
        days: RangeInclusive<i32>,
    ) -> Result<Vec<DailySendCount>, StoreError> {
        self.read(move |db| sent_messages::list_by_day(db, &days)).await
    }
}

#[async_trait]
impl ReplayStore for PostgresStore {
    async fn create_replay(&self, job: NewReplay) -> Result<CreateReplayResult, StoreError> {
        self.writer.write(move |tx| replay_jobs::create_job(tx, &job)).await
    }

    async fn preview_replay(
        &self,
        spec: ReplaySpec,
        now: Timestamp,
        depth: PreviewDepth,
    ) -> Result<ReplayPreview, StoreError> {
        let mut scan = PreviewScan::new(spec, now, depth);
        while !scan.is_finished() {
            scan = self.read(move |connection| scan.scan_once(connection)).await?;
        }
        Ok(scan.preview)
    }

    async fn select_replay(&self, id: ReplayId) -> Result<SelectionReport, StoreError> {
        // A reader scans, so that the writer only inserts the result.
        let found =
            self.read(move |connection| replay_selection::scan_next(connection, id)).await?;
        let Some(slice) = found else { return Ok(SelectionReport::NotFound) };
        self.writer.write(move |tx| replay_selection::insert_slice(tx, &slice)).await
    }

    async fn advance_replay(
        &self,
        id: ReplayId,
        limit: usize,
        open_max: u64,
        now: Timestamp,
    ) -> Result<Option<AdvanceReport>, StoreError> {
        let step = AdvanceStep { id, limit, open_max, now };
        let scan = self.read(move |connection| replay_jobs::scan_items(connection, step)).await?;
        match scan {
            None => Ok(None),
            Some(scan) if !scan.has_changes() => Ok(Some(scan.unchanged)),
            Some(scan) => {
                self.writer.write(move |tx| replay_jobs::apply_step(tx, step, &scan)).await
            }
        }
    }

    async fn change_replay(
        &self,
        id: ReplayId,
        input: ReplayTransition,
        now: Timestamp,
    ) -> Result<ChangeReplayResult, StoreError> {
        self.writer.write(move |tx| replay_jobs::change_state(tx, id, input, now)).await
    }

    async fn find_replay(&self, id: ReplayId) -> Result<Option<ReplayRow>, StoreError> {
        self.read(move |connection| replay_jobs::find_replay(connection, id)).await
    }

    async fn list_replays(
        &self,
        page: PageRequest<ReplayId>,
    ) -> Result<Vec<ReplayRow>, StoreError> {
        self.read(move |connection| replay_jobs::list_replays(connection, page)).await
    }

    async fn list_unfinished_replays(&self) -> Result<Vec<ReplayId>, StoreError> {
        self.read(|db| replay_jobs::list_unfinished(db)).await
    }

    async fn prune_replays(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.writer.write(move |tx| replay_jobs::prune_finished(tx, before)).await
    }
}
