//! The health of all destinations, refreshed from the store every two seconds.
//!
//! What counts is what the store has counted: it survives a restart and includes what other nodes did.
//! This process keeps only the buckets that it has read, and since when the status has been the same.
//! The rules are in `surehook_core::health`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use surehook_core::{
    health::{AttemptCounts, AttemptHistory, HealthPolicy, HealthStatus, estimate_drain},
    lane::SavedLaneState,
    rollup::{
        BucketWidth, DestinationRollup, FailureMark, RollupCounts, RollupQuery, RollupSubject,
    },
    store::{AttemptRecord, WaitingCount},
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    store_error::StoreError,
    time::Timestamp,
};
use tokio::sync::Mutex;

use crate::{
    Engine,
    feed::{DestinationChange, DestinationChanged, LiveUpdate},
    registry::Registry,
};

/// How far back a status is followed in fine buckets, for all destinations.
const FINE_SPAN: Duration = Duration::from_secs(3600);
/// How far back it is followed in minutes, for a destination that fails for longer.
const COARSE_SPAN: Duration = Duration::from_secs(86_400);
/// Waiting deliveries are counted up to this number.
pub const WAITING_MAX: u64 = 10_000;

/// The health of a destination.
#[derive(Clone, Debug)]
pub struct DestinationHealth {
    pub status: HealthStatus,
    /// Since when; `None` if it is longer than what is known.
    pub since: Option<Timestamp>,
    /// The attempts that the status is based on.
    pub window: AttemptCounts,
    pub last_error: Option<Arc<LastError>>,
    /// Deliveries that wait, in the store and in the memory of the lane.
    pub waiting: WaitingCount,
    /// Time until those that are due now are sent at the current rate; `None` if nothing is sent.
    pub drain: Option<Duration>,
}

/// The most recent failed attempt of a destination.
#[derive(Clone, Debug)]
pub struct LastError {
    pub at: Timestamp,
    pub event: EventId,
    pub delivery: DeliveryId,
    pub attempt: AttemptRecord,
}

/// What the store said about one destination at the last refresh.
#[derive(Clone, Debug)]
struct DestinationReading {
    /// Since when the attempts alone give the same status.
    since: Option<Timestamp>,
    /// Since when no attempt has succeeded.
    down_since: Option<Timestamp>,
    window: AttemptCounts,
    success_rate: f64,
    waiting: WaitingCount,
    last_error: Option<Arc<LastError>>,
    /// The lane of another node.
    lane_elsewhere: Option<SavedLaneState>,
}

/// What this process has read about one destination.
#[derive(Debug)]
struct TrackedDestination {
    history: AttemptHistory,
    last_failure: Option<FailureMark>,
    /// The failure that was looked up.
    last_error: (Option<FailureMark>, Option<Arc<LastError>>),
    status: Option<HealthStatus>,
    since: Option<Timestamp>,
    down_since: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct TrackedDestinations {
    by_id: HashMap<DestinationId, TrackedDestination>,
    /// What metrics and live updates said last.
    shown: HashMap<DestinationId, ShownHealth>,
}

/// The health that metrics show.
#[derive(Debug, PartialEq, Eq)]
struct ShownHealth {
    name: String,
    status: HealthStatus,
}

/// Reads health from the store.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    pub(crate) policy: HealthPolicy,
    tracked: Mutex<TrackedDestinations>,
    readings: ArcSwap<HashMap<DestinationId, DestinationReading>>,
}

impl HealthMonitor {
    pub(crate) fn new(policy: HealthPolicy) -> Self {
        Self { policy, tracked: Mutex::default(), readings: ArcSwap::default() }
    }
}

impl Engine {
    /// What counts as failing and degraded.
    pub fn health_policy(&self) -> &HealthPolicy {
        &self.health.policy
    }

    /// The health of a destination: its lane as it is now, its attempts as of the last refresh.
    pub fn destination_health(&self, id: DestinationId) -> DestinationHealth {
        let readings = self.health.readings.load();
        let reading = readings.get(&id);
        let registry = self.registry.load();
        let mut waiting = reading.map(|reading| reading.waiting).unwrap_or_default();
        let lanes = registry.lanes_of(id).iter();
        let queued = lanes.map(|lane| lane.queued() as u64).sum::<u64>();
        waiting.waiting += queued;
        waiting.due += queued;
        let lane = match registry.first_lane(id) {
            Some(lane) => Some(lane.current_state()),
            None => reading.and_then(|reading| reading.lane_elsewhere.clone()),
        };
        let window = reading.map(|reading| reading.window).unwrap_or_default();
        let status = self.health.policy.assess(lane.as_ref(), window);
        let since = match status {
            HealthStatus::Misconfigured => None,
            HealthStatus::Paused => lane.as_ref().and_then(|lane| Some(lane.paused.as_ref()?.at)),
            HealthStatus::CircuitOpen => reading.and_then(|reading| reading.down_since),
            HealthStatus::Failing
            | HealthStatus::Degraded
            | HealthStatus::NoTraffic
            | HealthStatus::Healthy => reading.and_then(|reading| reading.since),
        };
        let is_sending = lane.as_ref().is_some_and(|lane| !lane.is_holding());
        let success_rate = reading.map_or(0.0, |reading| reading.success_rate);
        let drain = (is_sending && waiting.due > 0)
            .then(|| estimate_drain(waiting.due, success_rate))
            .flatten();
        let last_error = reading.and_then(|reading| reading.last_error.clone());
        DestinationHealth { status, since, window, last_error, waiting, drain }
    }

    /// Reads the health of all destinations, and sets their metrics.
    pub(crate) async fn refresh_health(&self) -> Result<(), StoreError> {
        let mut tracked = self.health.tracked.lock().await;
        let tracked = &mut *tracked;
        let (now, window) = (self.shared.clock.now(), self.health.policy.window);
        // Later counts of older buckets would not count any more.
        let is_first = tracked.by_id.is_empty();
        let span = if is_first { window + FINE_SPAN } else { window };
        let fine = BucketWidth::TenSeconds;
        let rollups = self.store.list_destination_rollups(fine, fine.start(now - span)).await?;
        let waiting = self.store.count_waiting(now, WAITING_MAX).await?;
        let registry = self.registry.load_full();
        tracked.by_id.retain(|id, _| registry.destinations.contains_key(id));
        for id in registry.destinations.keys() {
            let known_since = now - window - FINE_SPAN;
            let tracked = tracked.by_id.entry(*id);
            tracked.or_insert_with(|| TrackedDestination::new(known_since));
        }
        tracked.add(rollups);
        if is_first {
            // The last error may be older than the fine buckets.
            let since = BucketWidth::Hour.start(now - COARSE_SPAN);
            let hours = self.store.list_destination_rollups(BucketWidth::Hour, since).await?;
            tracked.note_failures(&hours);
        }
        let mut lanes_elsewhere = match registry.has_all_first_lanes() {
            true => BTreeMap::new(),
            false => self.store.load_lanes().await?,
        };
        let mut readings = HashMap::with_capacity(tracked.by_id.len());
        for (id, destination) in &mut tracked.by_id {
            destination.history.forget_before(now - window - FINE_SPAN);
            self.follow_status(*id, destination, now).await?;
            self.look_up_last_error(destination).await?;
            let lane_elsewhere = (registry.first_lane(*id).is_none())
                .then(|| lanes_elsewhere.remove(id).unwrap_or_default());
            let reading = DestinationReading {
                since: destination.since,
                down_since: destination.down_since,
                window: destination.history.window(now, window),
                success_rate: destination.history.success_rate(now),
                waiting: waiting.get(id).copied().unwrap_or_default(),
                last_error: destination.last_error.1.clone(),
                lane_elsewhere,
            };
            readings.insert(*id, reading);
        }
        self.health.readings.store(Arc::new(readings));
        self.show_health(&registry, &mut tracked.shown, now);
        Ok(())
    }

    /// Updates the status by the attempts, and since when it has been so.
    async fn follow_status(
        &self,
        id: DestinationId,
        tracked: &mut TrackedDestination,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let policy = &self.health.policy;
        let status = policy
            .assess(Some(&SavedLaneState::default()), tracked.history.window(now, policy.window));
        let is_known = tracked.status == Some(status);
        if !is_known {
            tracked.since = tracked.history.status_since(now, policy);
        }
        // Without a success in the history, it is down for longer.
        if tracked.history.has_success() {
            tracked.down_since = tracked.history.down_since();
        }
        let (is_failing, is_degraded) =
            (status == HealthStatus::Failing, status == HealthStatus::Degraded);
        let lacks_since = tracked.since.is_none() && (is_failing || is_degraded);
        let lacks_down_since = tracked.down_since.is_none() && is_failing;
        if !is_known && (lacks_since || lacks_down_since) {
            let history = self.load_coarse_history(id, now).await?;
            tracked.since = tracked.since.or_else(|| history.status_since(now, policy));
            let down_since = || history.down_since().or_else(|| history.first_failure());
            tracked.down_since = tracked.down_since.or_else(down_since);
        }
        tracked.status = Some(status);
        Ok(())
    }

    async fn load_coarse_history(
        &self,
        id: DestinationId,
        now: Timestamp,
    ) -> Result<AttemptHistory, StoreError> {
        let (width, since) = (BucketWidth::Minute, now - COARSE_SPAN);
        let subject = RollupSubject::Destination(Some(id));
        let until = now + Duration::from_secs(width.secs());
        let query = RollupQuery { subject, width, since: width.start(since), until };
        let mut history = AttemptHistory::new(width, since);
        for (start, counts) in self.store.list_rollups(query).await? {
            history.set(start, AttemptCounts::from(&counts));
        }
        Ok(history)
    }

    async fn look_up_last_error(&self, tracked: &mut TrackedDestination) -> Result<(), StoreError> {
        if tracked.last_failure == tracked.last_error.0 {
            return Ok(());
        }
        let Some(mark) = tracked.last_failure else { return Ok(()) };
        let found = self.store.find_delivery(mark.delivery).await?;
        // Retention may have removed it.
        let last_error = found.and_then(|detail| {
            let mut attempts = detail.attempts.into_iter().map(|row| row.attempt);
            let attempt = attempts.find(|attempt| attempt.number == mark.attempt)?;
            let (at, event, delivery) = (mark.at, detail.delivery.event, mark.delivery);
            Some(Arc::new(LastError { at, event, delivery, attempt }))
        });
        tracked.last_error = (Some(mark), last_error);
        Ok(())
    }

    /// Sets the metrics of all destinations and removes those of destinations that are gone. Publishes
    /// changes of the status.
    fn show_health(
        &self,
        registry: &Registry,
        shown: &mut HashMap<DestinationId, ShownHealth>,
        at: Timestamp,
    ) {
        let mut next = HashMap::with_capacity(registry.names.len());
        for (id, name) in &registry.names {
            let health = self.destination_health(*id);
            self.telemetry.set_destination_health(name, health.status, health.waiting.waiting);
            next.insert(*id, ShownHealth { name: name.clone(), status: health.status });
        }
        for (id, before) in &*shown {
            match next.get(id) {
                Some(now) if now.name == before.name => {
                    if now.status != before.status {
                        self.publish_health_change(*id, now, at);
                    }
                }
                Some(_) | None => self.telemetry.remove_destination_health(&before.name),
            }
        }
        *shown = next;
    }

    fn publish_health_change(&self, id: DestinationId, shown: &ShownHealth, at: Timestamp) {
        let (destination, health) = (shown.name.as_str(), shown.status.as_str());
        match shown.status {
            HealthStatus::Failing | HealthStatus::Degraded => {
                tracing::warn!(destination, health, "the health of a destination changed");
            }
            HealthStatus::Misconfigured
            | HealthStatus::Paused
            | HealthStatus::CircuitOpen
            | HealthStatus::NoTraffic
            | HealthStatus::Healthy => {
                tracing::info!(destination, health, "the health of a destination changed");
            }
        }
        self.shared.feed.publish(at, || {
            LiveUpdate::DestinationChanged(DestinationChanged {
                id,
                name: Some(shown.name.clone()),
                change: DestinationChange::Health,
                at,
            })
        });
    }
}

impl TrackedDestinations {
    fn add(&mut self, rollups: Vec<DestinationRollup>) {
        self.note_failures(&rollups);
        for DestinationRollup { destination, start, counts } in rollups {
            if let Some(tracked) = self.by_id.get_mut(&destination) {
                tracked.history.set(start, AttemptCounts::from(&counts));
            }
        }
    }

    fn note_failures(&mut self, rollups: &[DestinationRollup]) {
        for DestinationRollup { destination, counts, .. } in rollups {
            let RollupCounts { last_failure, .. } = counts;
            if let Some(tracked) = self.by_id.get_mut(destination) {
                tracked.last_failure = tracked.last_failure.max(*last_failure);
            }
        }
    }
}

impl TrackedDestination {
    fn new(known_since: Timestamp) -> Self {
        Self {
            history: AttemptHistory::new(BucketWidth::TenSeconds, known_since),
            last_failure: None,
            last_error: (None, None),
            status: None,
            since: None,
            down_since: None,
        }
    }
}
