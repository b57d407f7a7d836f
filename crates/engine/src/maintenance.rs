//! Periodic tasks: retention, roll-ups, replay jobs, metrics read from the store.
//!
//! A task that changes the store for all nodes is a duty, which only its leader does.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use surehook_core::store::Duty;
use surehook_types::{ids::DestinationId, store_error::StoreError, time::Timestamp};

use crate::{
    Engine, alerts,
    clock_guard::WATCH_EVERY,
    lane::{self, Lane},
    telemetry::StoreReadings,
};

const METRICS_EVERY: Duration = Duration::from_secs(2);
/// The lane of a delivery that has been due for this long is woken.
const OVERDUE: Duration = Duration::from_secs(2);
/// The pause between two slices of pruning: while they find much, while there is more to scan, and when
/// there is none.
const PRUNE_BUSY_PAUSE: Duration = Duration::from_millis(10);
const PRUNE_PAUSE: Duration = Duration::from_millis(50);
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// With a short retention, pruning runs this often per retention time, but no more often than the minimum.
const PRUNES_PER_RETENTION: u32 = 10;
const PRUNE_EVERY_MIN: Duration = Duration::from_secs(1);
/// Also at once when a destination is deleted; the timer finishes what an earlier run left.
const CANCEL_EVERY: Duration = Duration::from_secs(10);
const ROLL_UP_EVERY: Duration = Duration::from_secs(5);
const PRUNE_KEYS_EVERY: Duration = Duration::from_secs(60);
/// A job that another node created, or that was created with an unknown outcome, is started after this
/// long at the latest.
const REPLAYS_EVERY: Duration = Duration::from_secs(5);

const REMOVE_UNATTENDED_EVERY: Duration = Duration::from_secs(60);

/// Starts all periodic tasks; they end when the engine stops.
pub(crate) fn start(engine: &Arc<Engine>) {
    let soon_if_more = |more: bool| more.then_some(PRUNE_BUSY_PAUSE);
    spawn(engine, None, WATCH_EVERY, |engine| Box::pin(engine.watch_clock()));
    spawn(engine, None, METRICS_EVERY, |engine| {
        Box::pin(async move { engine.refresh_metrics().await.map(|()| None) })
    });
    spawn(engine, Some(Duty::Alerts), alerts::WATCH_EVERY, |engine| {
        Box::pin(engine.watch_alerts())
    });
    spawn(engine, Some(Duty::Prune), PRUNE_EVERY, |engine| Box::pin(engine.prune()));
    spawn(engine, Some(Duty::Prune), PRUNE_EVERY, |engine| Box::pin(engine.prune_replays()));
    spawn(engine, Some(Duty::CancelDeleted), CANCEL_EVERY, move |engine| {
        Box::pin(
            async move { engine.store.cancel_for_deleted_destinations().await.map(soon_if_more) },
        )
    });
    spawn(engine, Some(Duty::RollUp), ROLL_UP_EVERY, move |engine| {
        Box::pin(async move { engine.store.roll_up().await.map(soon_if_more) })
    });
    spawn(engine, Some(Duty::Prune), PRUNE_KEYS_EVERY, |engine| {
        Box::pin(engine.prune_idempotency_keys())
    });
    spawn(engine, Some(Duty::ReplayJobs), REPLAYS_EVERY, |engine| {
        Box::pin(async move { engine.resume_replays().await.map(|()| None) })
    });
    // The owner of each lane knows its listeners.
    spawn(engine, None, REMOVE_UNATTENDED_EVERY, |engine| {
        Box::pin(async move {
            let next = engine.remove_unattended_destinations().await;
            Ok(next.map(|next| next.min(REMOVE_UNATTENDED_EVERY)))
        })
    });
}

type TaskFuture<'a> = BoxFuture<'a, Result<Option<Duration>, StoreError>>;

fn spawn(
    engine: &Arc<Engine>,
    duty: Option<Duty>,
    interval: Duration,
    task: impl for<'a> Fn(&'a Arc<Engine>) -> TaskFuture<'a> + Send + 'static,
) {
    engine.shared.tasks.spawn(repeat(Arc::clone(engine), duty, interval, task));
}

/// Runs a task periodically, and after each change of the configuration; a duty only while this process
/// leads it. The task may ask to run again sooner than `interval`.
async fn repeat(
    engine: Arc<Engine>,
    duty: Option<Duty>,
    interval: Duration,
    task: impl for<'a> Fn(&'a Arc<Engine>) -> TaskFuture<'a> + Send,
) {
    loop {
        let result = match duty {
            Some(duty) if !engine.shared.node.leads(duty) => Ok(None),
            Some(_) | None => task(&engine).await,
        };
        let wait = match result {
            Ok(sooner) => sooner.unwrap_or(interval),
            Err(error) => {
                tracing::warn!(%error, "a maintenance task failed; it is retried");
                interval
            }
        };
        tokio::select! {
            () = engine.shared.stop.cancelled() => return,
            // The new configuration may need a shorter interval than the current wait.
            () = engine.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

impl Engine {
    async fn prune(&self) -> Result<Option<Duration>, StoreError> {
        let pruned = self.store.prune(self.event_retention(), self.expiry_time()).await?;
        let removed = pruned.events + pruned.bodies + pruned.attempts;
        Ok(Some(match (pruned.more, removed) {
            (true, 0) => PRUNE_PAUSE,
            (true, _) => PRUNE_BUSY_PAUSE,
            (false, _) => self.prune_interval(),
        }))
    }

    /// Events kept for a minute must not be removed a minute late.
    fn prune_interval(&self) -> Duration {
        let registry = self.registry.load();
        let sources = registry.sources.values().filter_map(|entry| entry.source.as_ref().ok());
        let shortest = sources
            .filter_map(|source| source.retention.shortest_duration())
            .fold(self.event_retention(), Duration::min);
        (shortest / PRUNES_PER_RETENTION).clamp(PRUNE_EVERY_MIN, PRUNE_EVERY)
    }

    /// Removes expired idempotency keys with their results.
    async fn prune_idempotency_keys(&self) -> Result<Option<Duration>, StoreError> {
        let pruned = self.store.prune_claims(self.expiry_time()).await?;
        Ok((pruned > 0).then_some(PRUNE_PAUSE))
    }

    /// Updates the metrics and the readiness that depend on the store.
    pub async fn refresh_metrics(&self) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let oldest = self.store.find_oldest_due(now).await?;
        let counts = self.store.counts().await?;
        let health = self.store.health();
        let claims = self.store.count_all_claims(self.expiry_time()).await?;
        let registry = self.registry.load();
        let age = |at: &Timestamp| i64::try_from(now.since(*at).as_secs()).unwrap_or(i64::MAX);
        let first = |id: &DestinationId| registry.lanes_of(*id).first();
        let name = |id: &DestinationId| first(id).map(|lane| lane.name());
        // Deliveries that wait for a listener are not late.
        let oldest_of = |id: &DestinationId, lane: &Lane| {
            oldest.get(id).filter(|_| !lane.lacks_listener()).map_or(0, age)
        };
        let pending_age = registry.lanes.keys().filter_map(|id| {
            let lane = first(id)?;
            Some((lane.name(), oldest_of(id, lane)))
        });
        let pending_age = pending_age.collect();
        self.telemetry.record_readings(&StoreReadings {
            by_status: counts.by_status.iter().map(|(s, n)| (s.as_str(), *n)).collect(),
            dead: counts.dead.iter().map(|(r, n)| (r.as_str(), n.pending)).collect(),
            pending_age,
            store_bytes: health.store_bytes,
            wal_bytes: health.wal_bytes,
            disk_free: health.disk_free,
            commit_queue: health.queued,
            claims,
        });
        // Finds deliveries whose lane was not woken, because the process died after the commit.
        for (destination, at) in &oldest {
            if now.since(*at) > OVERDUE {
                registry.lanes_of(*destination).iter().for_each(|lane| lane.wake());
            }
        }
        for lanes in registry.lanes.values().filter(|lanes| !lanes[0].id().shard.is_whole()) {
            lane::show_shards(lanes);
        }
        // An idle lane with a delivery that has been due for long is stuck.
        let stuck_after = self.settings.load().stuck_after;
        let stuck = oldest
            .iter()
            .filter(|(id, _)| registry.lanes_of(**id).iter().any(|lane| lane.is_ready_and_idle()))
            .filter(|(_, at)| now.since(**at) > stuck_after)
            .find_map(|(id, _)| name(id));
        self.stuck.store(stuck.map(Arc::new));
        self.refresh_health().await
    }
}
