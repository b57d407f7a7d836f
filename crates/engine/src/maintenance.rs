//! What must be done now and then: leases, retention, roll-ups, readings for the metrics.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    idempotency,
    ids::DestinationId,
    store::{HeldClaim, StoreError},
    time::Timestamp,
};

use crate::{Engine, lane::LEASE, telemetry::StoreReadings};

/// How often leases are looked at: well within the time after which one runs out.
const LEASES_EVERY: Duration = Duration::from_secs(10);
const READINGS_EVERY: Duration = Duration::from_secs(2);
/// A delivery that has been due for so long is pointed out to its lane.
const OVERDUE: Duration = Duration::from_secs(2);
/// The wait between two slices of retention: while they find much, while there is more to look
/// at, and when there is none.
const PRUNE_HURRY: Duration = Duration::from_millis(10);
const PRUNE_PAUSE: Duration = Duration::from_millis(50);
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// Where something is kept for a short time only, this share of it; but not more often than that.
const PRUNE_SHARE: u32 = 10;
const PRUNE_EVERY_MIN: Duration = Duration::from_secs(1);
/// Also at once when a destination is deleted; this is for what an earlier run did not finish.
const CANCEL_EVERY: Duration = Duration::from_secs(10);
const ROLL_UP_EVERY: Duration = Duration::from_secs(5);
const FORGET_KEYS_EVERY: Duration = Duration::from_secs(3600);

/// Starts all duties; they end when the engine stops.
pub(crate) fn start(engine: &Arc<Engine>) {
    let tasks = &engine.shared.tasks;
    tasks.spawn(repeat(Arc::clone(engine), LEASES_EVERY, |engine| Box::pin(engine.tend_leases())));
    tasks.spawn(repeat(Arc::clone(engine), READINGS_EVERY, |engine| {
        Box::pin(async move { engine.refresh_metrics().await.map(|()| None) })
    }));
    tasks.spawn(repeat(Arc::clone(engine), PRUNE_EVERY, |engine| Box::pin(engine.prune())));
    tasks.spawn(repeat(Arc::clone(engine), PRUNE_EVERY, |engine| Box::pin(engine.prune_replays())));
    let hurry = |more: bool| more.then_some(PRUNE_HURRY);
    tasks.spawn(repeat(Arc::clone(engine), CANCEL_EVERY, move |engine| {
        Box::pin(async move { engine.store.cancel_for_deleted().await.map(hurry) })
    }));
    tasks.spawn(repeat(Arc::clone(engine), ROLL_UP_EVERY, move |engine| {
        Box::pin(async move { engine.store.roll_up().await.map(hurry) })
    }));
    tasks.spawn(repeat(Arc::clone(engine), FORGET_KEYS_EVERY, |engine| {
        Box::pin(engine.forget_keys())
    }));
}

type MaintenanceTask<'a> =
    std::pin::Pin<Box<dyn Future<Output = Result<Option<Duration>, StoreError>> + Send + 'a>>;

/// Does a duty again and again, and after each change of the configuration. It may ask to be called
/// sooner than usual.
async fn repeat(
    engine: Arc<Engine>,
    every: Duration,
    duty: impl for<'a> Fn(&'a Engine) -> MaintenanceTask<'a> + Send,
) {
    loop {
        let wait = match duty(&engine).await {
            Ok(sooner) => sooner.unwrap_or(every),
            Err(error) => {
                tracing::warn!(%error, "upkeep failed; it is tried again");
                every
            }
        };
        tokio::select! {
            () = engine.shared.stop.cancelled() => return,
            // What was just configured may ask for a shorter time than the one that is waited for.
            () = engine.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

impl Engine {
    /// Renews the claims that are held for long, then frees those that nobody renewed.
    async fn tend_leases(&self) -> Result<Option<Duration>, StoreError> {
        let now = self.shared.clock.now();
        let held: Vec<HeldClaim> =
            self.registry.load().lanes.values().flat_map(|lane| lane.aging(now)).collect();
        if !held.is_empty() {
            self.store.renew(held, now + LEASE).await?;
        }
        for destination in self.store.release_expired(now).await? {
            tracing::warn!(%destination, "deliveries whose lease ran out are due again");
            self.wake_lane(destination);
        }
        Ok(None)
    }

    async fn prune(&self) -> Result<Option<Duration>, StoreError> {
        let events = self.event_retention;
        let pruned = self.store.prune(events, self.shared.clock.now()).await?;
        let found = pruned.events + pruned.bodies + pruned.attempts;
        Ok(Some(match (pruned.more, found) {
            (true, 0) => PRUNE_PAUSE,
            (true, _) => PRUNE_HURRY,
            (false, _) => self.prune_every(),
        }))
    }

    /// What is kept for a minute must not be a minute late.
    fn prune_every(&self) -> Duration {
        let registry = self.registry.load();
        let sources = registry.sources.values().filter_map(|entry| entry.source.as_ref().ok());
        let shortest = sources
            .filter_map(|source| source.retention.shortest())
            .fold(self.event_retention, Duration::min);
        (shortest / PRUNE_SHARE).clamp(PRUNE_EVERY_MIN, PRUNE_EVERY)
    }

    /// Forgets answers that were kept long enough with their keys.
    async fn forget_keys(&self) -> Result<Option<Duration>, StoreError> {
        let before = self.shared.clock.now() - idempotency::KEY_RETENTION;
        let forgotten = self.store.forget_keys(before).await?;
        Ok((forgotten > 0).then_some(PRUNE_PAUSE))
    }

    /// Reads what only the store knows into the metrics and the readiness.
    pub async fn refresh_metrics(&self) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let oldest = self.store.oldest_due(now).await?;
        let counts = self.store.counts();
        let health = self.store.health();
        let registry = self.registry.load();
        let age = |at: &Timestamp| i64::try_from(now.since(*at).as_secs()).unwrap_or(i64::MAX);
        let name = |id: &DestinationId| registry.lanes.get(id).map(|lane| lane.name());
        let pending_age = registry
            .lanes
            .iter()
            .map(|(id, lane)| (lane.name(), oldest.get(id).map_or(0, age)))
            .collect();
        self.telemetry.record_readings(&StoreReadings {
            by_status: counts.by_status.iter().map(|(s, n)| (s.as_str(), *n)).collect(),
            dead: counts.dead.iter().map(|(r, n)| (r.as_str(), n.pending)).collect(),
            pending_age,
            store_bytes: health.store_bytes,
            wal_bytes: health.wal_bytes,
            disk_free: health.disk_free,
            commit_queue: health.queued,
        });
        // Somebody committed something and was cut off before he could say so: it is found here.
        for (destination, at) in &oldest {
            if now.since(*at) > OVERDUE {
                self.wake_lane(*destination);
            }
        }
        // A delivery that is long due while its lane stands idle means that the lane is stuck.
        let stuck = oldest
            .iter()
            .filter(|(id, _)| registry.lanes.get(id).is_some_and(|lane| lane.has_room()))
            .filter(|(_, at)| now.since(**at) > self.stuck_after)
            .find_map(|(id, _)| name(id));
        self.stuck.store(stuck.map(Arc::new));
        Ok(())
    }
}
