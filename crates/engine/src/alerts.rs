//! Raises alerts and posts the messages about them.
//!
//! One node does this for all (`Duty::Alerts`). Every few seconds it reads what the rules need, changes
//! the log of alerts, saves it, and posts what is due to the outbox: a message is an event like any other,
//! with retries, dead letters and a stable id. The ids derive from the notice, so what is posted again
//! after a crash is a duplicate of itself. The rules are in `surehook_core::alert`.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use surehook_core::{
    alert::{
        AlertInputs, AlertRules, DestinationReading, LostNode, SIGNATURE_WINDOW, SendQuota,
        SourceReading, SourceSilence,
        log::{AlertLog, AlertNotice},
        message::AlertMessage,
    },
    destination::DestinationSpec,
    idempotency::IdempotentRequest,
    rollup::{BucketWidth, RollupMetric, RollupQuery, RollupSubject},
    source::{PublicUrl, SourceSpec},
    store::{Configuration, StoredObject},
};
use surehook_types::{
    ids::{DestinationId, SourceId},
    secret::digest_parts,
    store_error::StoreError,
    time::Timestamp,
};
use tokio::sync::Mutex;

use crate::{
    Engine,
    health::LastError,
    ingest::{AcceptedMessage, SendMessageError, SendTarget},
    lane_states::LaneStates,
};

/// How often the rules are looked at.
pub(crate) const WATCH_EVERY: Duration = Duration::from_secs(5);
/// After another node has changed the log.
const AGAIN_SOON: Duration = Duration::from_millis(200);

/// The rules, and what this process remembers for them.
#[derive(Debug)]
pub(crate) struct AlertMonitor {
    pub(crate) rules: AlertRules,
    memory: Mutex<AlertMemory>,
}

#[derive(Debug, Default)]
struct AlertMemory {
    /// The number of signature failures of each source, at several times within the window.
    signature_failures: VecDeque<(Timestamp, HashMap<String, u64>)>,
    /// When each source is known to have got an event.
    last_events: HashMap<SourceId, Timestamp>,
}

impl AlertMonitor {
    pub(crate) fn new(rules: AlertRules) -> Self {
        Self { rules, memory: Mutex::default() }
    }
}

impl AlertMemory {
    /// The failures of each source within the window.
    fn count_signature_failures(
        &mut self,
        now: Timestamp,
        totals: HashMap<String, u64>,
    ) -> HashMap<String, u64> {
        let times = &mut self.signature_failures;
        // The oldest one stays until the next one is old enough to be the beginning of the window.
        while times.get(1).is_some_and(|(at, _)| now.since(*at) >= SIGNATURE_WINDOW) {
            times.pop_front();
        }
        let before = times.front();
        let since = |source: &String, total: u64| {
            // Before the first look, nothing had been counted.
            let before = before.and_then(|(_, totals)| totals.get(source)).copied();
            total.saturating_sub(before.unwrap_or(0))
        };
        let counts = totals.iter().map(|(source, total)| (source.clone(), since(source, *total)));
        let counts = counts.collect();
        times.push_back((now, totals));
        counts
    }
}

/// A destination that gets messages about alerts, and can take them now.
struct ReadyChannel {
    id: DestinationId,
    target: SendTarget,
}

impl Engine {
    /// The settings of the alert rules.
    pub fn alert_rules(&self) -> &AlertRules {
        &self.alerts.rules
    }

    /// One step: evaluates the rules, saves what has changed, and posts what is due.
    pub(crate) async fn watch_alerts(self: &Arc<Self>) -> Result<Option<Duration>, StoreError> {
        // The readings must be those of now, also in the first step after a start.
        self.refresh_health().await?;
        let configuration = self.store.load_configuration().await?;
        let inputs = self.read_alert_inputs(&configuration).await?;
        let channels = self.ready_channels(&configuration).await;
        let mut stored = self.store.load_alerts().await?;
        if stored.log.step(&self.alerts.rules, &inputs, !channels.is_empty()) {
            let saved = self.store.save_alerts(stored.version, stored.log.clone()).await?;
            let Some(version) = saved else { return Ok(Some(AGAIN_SOON)) };
            stored.version = version;
        }
        self.telemetry.set_alerts(&stored.log.active);
        self.post_notices(stored.version, stored.log, &channels).await.map(|()| None)
    }

    /// Posts all notices of the log. One that cannot be posted now is posted in a later step.
    async fn post_notices(
        self: &Arc<Self>,
        mut version: u64,
        mut log: AlertLog,
        channels: &[ReadyChannel],
    ) -> Result<(), StoreError> {
        for notice in log.notices.clone() {
            for channel in channels {
                if let Some(part) = notice.for_channel(channel.id)
                    && let Err(error) = self.post_notice(&part, channel).await
                {
                    tracing::warn!(%error, "could not post a message about alerts; it is retried");
                    return Ok(());
                }
            }
            log.end_notice(notice.number);
            match self.store.save_alerts(version, log.clone()).await? {
                Some(next) => version = next,
                // Another node posts the rest; what it posts again is a duplicate of itself.
                None => return Ok(()),
            }
        }
        Ok(())
    }

    async fn post_notice(
        self: &Arc<Self>,
        notice: &AlertNotice,
        channel: &ReadyChannel,
    ) -> Result<(), SendMessageError> {
        let base = self.public_url.as_ref().map(PublicUrl::as_str);
        let message = AlertMessage::of_notice(notice, base);
        let seed = format!("alert/{}/{}/{}", notice.number, notice.at, channel.id);
        self.post_alert_message(&message, &channel.target, notice.at, &seed).await.map(drop)
    }

    /// Posts a message to a channel. With the same time and seed again, nothing more is sent.
    async fn post_alert_message(
        self: &Arc<Self>,
        message: &AlertMessage,
        target: &SendTarget,
        at: Timestamp,
        seed: &str,
    ) -> Result<Vec<AcceptedMessage>, SendMessageError> {
        let Some(channel) = &target.destination().alerts else {
            return Err(SendMessageError::NoAlertChannel(target.destination().name.to_string()));
        };
        // A kind and headers of our own are always valid.
        let posts = message.posts(channel).unwrap_or_default();
        let mut accepted = Vec::with_capacity(posts.len());
        for (number, post) in posts.into_iter().enumerate() {
            let mut bits = [0; 16];
            let digest = digest_parts([seed.as_bytes(), &number.to_le_bytes()]);
            bits.copy_from_slice(&digest[..16]);
            let request = IdempotentRequest { at, seed: bits };
            let sent = self.send_message(target.clone(), post, request, Duration::ZERO, None);
            accepted.push(sent.await?);
        }
        Ok(accepted)
    }

    /// Posts a test message to a channel, by name or id. The same request again sends nothing more.
    pub async fn send_test_alert(
        self: &Arc<Self>,
        channel: &str,
        request: IdempotentRequest,
    ) -> Result<Vec<AcceptedMessage>, SendMessageError> {
        let target = self.find_send_target(channel).await?;
        let base = self.public_url.as_ref().map(PublicUrl::as_str);
        let name = target.destination().name.to_string();
        let message = AlertMessage::test(&name, request.at, base);
        let seed = format!("test/{:x?}", request.seed);
        self.post_alert_message(&message, &target, request.at, &seed).await
    }

    async fn ready_channels(&self, configuration: &Configuration) -> Vec<ReadyChannel> {
        let mut channels = Vec::new();
        let is_channel =
            |stored: &&StoredObject<DestinationId, DestinationSpec>| stored.spec.alerts.is_some();
        for stored in configuration.destinations.iter().filter(is_channel) {
            match self.find_send_target(&stored.id.to_string()).await {
                Ok(target) if target.destination().alerts.is_some() => {
                    channels.push(ReadyChannel { id: stored.id, target });
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "an alert channel cannot be used");
                }
            }
        }
        channels
    }

    async fn read_alert_inputs(
        &self,
        configuration: &Configuration,
    ) -> Result<AlertInputs, StoreError> {
        let now = self.shared.clock.now();
        let lanes = self.load_lane_states(configuration).await?;
        let oldest = self.store.find_oldest_due(now).await?;
        let mut destinations = Vec::with_capacity(configuration.destinations.len());
        for stored in &configuration.destinations {
            let overdue = oldest.get(&stored.id).map(|at| now.since(*at));
            destinations.push(self.read_destination(stored, &lanes, overdue, now).await?);
        }
        let dead = self.store.counts().await?.dead;
        Ok(AlertInputs {
            now,
            window: self.health.policy.window,
            destinations,
            sources: self.read_sources(configuration, now).await?,
            dead_letters: dead.values().map(|count| count.pending).sum(),
            disk_free: self.store.health().disk_free,
            lost_nodes: self.find_lost_nodes().await?,
        })
    }

    async fn read_destination(
        &self,
        stored: &StoredObject<DestinationId, DestinationSpec>,
        lanes: &LaneStates,
        overdue: Option<Duration>,
        now: Timestamp,
    ) -> Result<DestinationReading, StoreError> {
        let StoredObject { id, spec, .. } = stored;
        let health = self.destination_health(*id);
        let pause = lanes.find(*id).and_then(|lane| lane.paused).filter(|pause| pause.automatic);
        let mut quota = None;
        if let Some(limits) = spec.limits()
            && (limits.stop_at.is_some() || limits.warn_at.is_some())
        {
            let sent = self.store.count_sent_on(*id, limits.day(now)).await?;
            let limit = match limits.should_warn(sent) {
                true => limits.warn_at,
                false => limits.stop_at,
            };
            quota = limit.map(|limit| SendQuota { sent, limit: limit.get() });
        }
        Ok(DestinationReading {
            id: *id,
            name: spec.name.to_string(),
            status: health.status,
            paused_by_gateway: pause.map(|pause| pause.reason.unwrap_or_default()),
            attempts: health.window,
            waiting: health.waiting.waiting,
            overdue,
            last_error: health.last_error.as_deref().map(describe_error),
            quota,
            is_channel: spec.alerts.is_some(),
        })
    }

    async fn read_sources(
        &self,
        configuration: &Configuration,
        now: Timestamp,
    ) -> Result<Vec<SourceReading>, StoreError> {
        let mut memory = self.alerts.memory.lock().await;
        let totals = self.telemetry.signature_failures();
        let failures = memory.count_signature_failures(now, totals);
        let mut readings = Vec::with_capacity(configuration.sources.len());
        for stored in configuration.sources.iter().filter(|stored| stored.spec.enabled) {
            let silence = self.read_silence(stored, &mut memory, now).await?;
            let name = stored.spec.name.to_string();
            let signature_failures = failures.get(&name).copied().unwrap_or(0);
            readings.push(SourceReading { id: stored.id, name, silence, signature_failures });
        }
        memory.last_events.retain(|id, _| readings.iter().any(|reading| reading.id == *id));
        Ok(readings)
    }

    /// For how long a source that must not be silent has had no event, to the minute.
    async fn read_silence(
        &self,
        stored: &StoredObject<SourceId, SourceSpec>,
        memory: &mut AlertMemory,
        now: Timestamp,
    ) -> Result<Option<SourceSilence>, StoreError> {
        let Some(allowed) = stored.spec.silent_after.map(|span| span.0) else { return Ok(None) };
        let last = memory.last_events.entry(stored.id).or_insert(stored.created_at);
        let width = BucketWidth::Minute;
        let step = Duration::from_secs(width.secs());
        let query = RollupQuery {
            subject: RollupSubject::Source(Some(stored.id)),
            width,
            since: width.start((now - allowed - step).max(*last)),
            until: now + step,
        };
        let buckets = self.store.list_rollups(query).await?;
        let newest = buckets.iter().rev().find(|(_, counts)| {
            [RollupMetric::Accepted, RollupMetric::Duplicates]
                .iter()
                .any(|metric| counts.get(*metric) > 0)
        });
        if let Some((start, _)) = newest {
            // Somewhere in that minute; the end of it never alarms too early.
            *last = (*last).max((*start + step).min(now));
        }
        Ok(Some(SourceSilence { allowed, lasted: now.since(*last) }))
    }

    /// Nodes whose lease has ended, unless a node of the same name has started since.
    async fn find_lost_nodes(&self) -> Result<Vec<LostNode>, StoreError> {
        if self.shared.node.is_alone() {
            return Ok(Vec::new());
        }
        let report = self.store.load_nodes().await?;
        let lost = report.nodes.iter().filter(|node| !node.is_alive && !node.is_leaving);
        let is_replaced = |name: &str, lost_at: Timestamp| {
            let mut alive = report.nodes.iter().filter(|node| node.is_alive);
            alive.any(|node| node.name == name && node.started_at >= lost_at)
        };
        Ok(lost
            .filter(|node| !is_replaced(&node.name, node.renewed_at))
            .map(|node| LostNode {
                id: node.id,
                name: node.name.clone(),
                silent_for: report.as_of.since(node.renewed_at),
            })
            .collect())
    }
}

fn describe_error(error: &LastError) -> String {
    let attempt = &error.attempt;
    let what = match (attempt.status, attempt.failure) {
        (Some(status), _) => format!("HTTP {status}"),
        (None, Some(failure)) => failure.as_str().to_owned(),
        (None, None) => "failed".to_owned(),
    };
    match &attempt.detail {
        Some(detail) => format!("{what}: {detail}"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_failures_are_counted_within_the_window() {
        let mut memory = AlertMemory::default();
        let start = Timestamp::from_millis(1_800_000_000_000);
        let mut count = |seconds, total| {
            let totals = HashMap::from([("stripe".to_owned(), total)]);
            let now = start + Duration::from_secs(seconds);
            memory.count_signature_failures(now, totals)["stripe"]
        };
        // What was counted before the first look may be old, but was counted by this process.
        assert_eq!(count(0, 3), 3);
        assert_eq!(count(5, 10), 7);
        assert_eq!(count(300, 12), 9);
        assert_eq!(count(310, 12), 2);
        assert_eq!(count(900, 12), 0);
        assert!(memory.signature_failures.len() <= 3);
    }
}
