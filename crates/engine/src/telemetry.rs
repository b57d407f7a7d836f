//! All metrics. Their names are part of the public contract.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU64,
    sync::{Arc, Mutex, OnceLock},
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};
use surehook_core::{
    alert::{AlertRule, log::Alert},
    event::DuplicateReason,
    health::HealthStatus,
    idempotency::{ClaimStepResult, ClaimTotals},
    replay::ReplayState,
};
use surehook_dedup::{Claim, ClaimUpdate};

use crate::{body_memory::BodyMemory, ingest::QUARANTINED, lock::lock};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<i64>>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// 0.5 ms to about 65 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 18))
}

/// All metrics of the gateway.
pub struct Telemetry {
    registry: Registry,
    requests: Counters,
    request_seconds: Histograms,
    attempts: Counters,
    attempt_seconds: Histograms,
    latency_seconds: Histograms,
    dead_added: Counters,
    remote_429: Counters,
    no_key: Counters,
    key_conflicts: Counters,
    filter_errors: Counters,
    sync_answers: Counters,
    quarantine_dropped: Counters,
    leases_lost: Counter,
    in_flight: Gauges,
    cooling: Gauges,
    paused: Gauges,
    circuit: Gauges,
    circuit_transitions: Counters,
    no_order_key: Counters,
    sent_today: Gauges,
    warn_at: Gauges,
    alerts: Gauges,
    /// Requests that failed verification, by source.
    signature_failures: Mutex<HashMap<String, u64>>,
    postponed: Counters,
    shortages: Counters,
    pending_age: Gauges,
    health: Gauges,
    waiting: Gauges,
    by_status: Gauges,
    dead: Gauges,
    replay_jobs: Gauges,
    replay_events: Counters,
    store_bytes: Gauge<i64>,
    wal_bytes: Gauge<i64>,
    disk_free: Gauge<i64>,
    commit_queue: Gauge<i64>,
    body_bytes_held: Gauge<i64>,
    /// Read whenever the metrics are rendered.
    body_memory: OnceLock<Arc<BodyMemory>>,
    claims: Counters,
    claim_updates: Counters,
    claims_in_progress: Gauge<i64>,
    claim_keys: Gauges,
    nodes: Gauge<i64>,
    node_lanes: Gauge<i64>,
    handovers: Counter,
    otlp_spans: Counters,
    otlp_requests: Counters,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

/// The metrics of one source, looked up once.
#[derive(Clone, Debug)]
pub struct SourceMetrics {
    pub(crate) accepted: Counter,
    pub(crate) duplicate: Counter,
    pub(crate) same_signed_bytes: Counter,
    pub(crate) no_key: Counter,
    pub(crate) key_conflicts: Counter,
    pub(crate) filter_errors: Counter,
    pub(crate) seconds: Histogram,
}

/// The metrics of one destination, looked up once.
#[derive(Clone, Debug)]
pub struct LaneMetrics {
    pub(crate) succeeded: Counter,
    pub(crate) attempt_seconds: Histogram,
    pub(crate) latency_seconds: Histogram,
    pub(crate) remote_429: Counter,
    pub(crate) in_flight: Gauge<i64>,
    pub(crate) cooling: Gauge<i64>,
    pub(crate) paused: Gauge<i64>,
    pub(crate) circuit: Gauge<i64>,
    pub(crate) no_order_key: Counter,
}

/// Values that are read from the store periodically.
#[derive(Clone, Debug, Default)]
pub struct StoreReadings {
    /// Deliveries by status.
    pub by_status: Vec<(&'static str, u64)>,
    /// Dead deliveries by reason.
    pub dead: Vec<(&'static str, u64)>,
    /// Seconds since the oldest due delivery became due, by destination.
    pub pending_age: Vec<(String, i64)>,
    /// Size of the database file.
    pub store_bytes: u64,
    /// Size of its write-ahead log.
    pub wal_bytes: u64,
    /// Free space on its disk, if known.
    pub disk_free: Option<u64>,
    /// Write jobs that wait for a commit.
    pub commit_queue: usize,
    /// Stored idempotency keys.
    pub claims: ClaimTotals,
}

/// Creates and registers metrics.
struct MetricBuilder(Registry);

impl MetricBuilder {
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    fn add_in<M: Metric + Clone + Default>(&mut self, name: &str, help: &str, unit: Unit) -> M {
        let metric = M::default();
        self.0.register_with_unit(name, help, unit, metric.clone());
        metric
    }

    fn add_durations(&mut self, name: &str, help: &str) -> Histograms {
        let metric = Histograms::new_with_constructor(seconds);
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        let mut metrics = MetricBuilder(Registry::with_prefix("surehook"));
        let build: Gauges = metrics.add("build_info", "The running version");
        build.get_or_create(&labels([("version", env!("CARGO_PKG_VERSION"))])).set(1);
        Self {
            requests: metrics.add("requests", "Incoming requests by outcome"),
            request_seconds: metrics.add_durations(
                "request_duration",
                "Time from the complete request to the response",
            ),
            attempts: metrics.add("delivery_attempts", "Delivery attempts by outcome"),
            attempt_seconds: metrics
                .add_durations("delivery_attempt_duration", "Duration of an attempt"),
            latency_seconds: metrics
                .add_durations("delivery_latency", "Time from receipt to a 2xx of the destination"),
            dead_added: metrics.add("dlq_added", "Deliveries that became dead"),
            remote_429: metrics.add("remote_429", "Responses that asked us to slow down"),
            no_key: metrics.add("events_without_key", "Events without a dedup key"),
            key_conflicts: metrics
                .add("key_conflicts", "Events whose key another event had with another body"),
            filter_errors: metrics
                .add("filter_errors", "Route filters and transforms that failed on an event"),
            sync_answers: metrics
                .add("sync_answers", "Responses to senders that waited for the delivery result"),
            leases_lost: metrics
                .add("leases_lost", "Attempt results dropped because the claim was lost"),
            quarantine_dropped: metrics.add(
                "quarantine_dropped",
                "Refused requests that did not fit into the quarantine, or were pushed out of it",
            ),
            in_flight: metrics.add("deliveries_inflight", "Running attempts"),
            cooling: metrics.add("destination_cooling", "1 while a destination cools down"),
            paused: metrics.add("destination_paused", "1 while a destination is paused"),
            circuit: metrics.add("circuit_state", "0 closed, 1 open, 2 half-open, 3 recovering"),
            circuit_transitions: metrics
                .add("circuit_transitions", "Circuit state changes by new state"),
            no_order_key: metrics.add(
                "deliveries_without_order_key",
                "Deliveries to an ordered destination without an ordering key",
            ),
            sent_today: metrics.add(
                "messages_sent_today",
                "Messages sent today, in the time zone of the destination",
            ),
            warn_at: metrics
                .add("messages_warn_at", "Daily warning threshold of messages; 0 means none"),
            alerts: metrics.add("alerts", "Alerts that fire, by rule"),
            signature_failures: Mutex::default(),
            postponed: metrics.add(
                "messages_put_off",
                "Messages postponed because their recipient must not get another one yet",
            ),
            shortages: metrics.add(
                "resource_shortages",
                "Deliveries postponed because the gateway itself had no free file, socket or memory",
            ),
            pending_age: metrics.add_in(
                "oldest_pending_age",
                "Age of the oldest due delivery",
                Unit::Seconds,
            ),
            health: metrics.add("destination_health", "1 for the current health of a destination"),
            waiting: metrics.add("deliveries_waiting", "Deliveries that wait for their destination"),
            by_status: metrics.add("deliveries", "Deliveries by status"),
            dead: metrics.add("dlq_events", "Dead letters by reason"),
            replay_jobs: metrics.add("replay_jobs", "Replay jobs by state"),
            replay_events: metrics
                .add("replay_events", "Events selected by replay jobs, by outcome"),
            store_bytes: metrics.add_in("store", "Size of the database", Unit::Bytes),
            wal_bytes: metrics.add_in("wal", "Size of the write-ahead log", Unit::Bytes),
            disk_free: metrics.add_in("disk_free", "Free space on the disk", Unit::Bytes),
            commit_queue: metrics.add("commit_queue", "Write jobs that wait for a commit"),
            body_bytes_held: metrics.add_in(
                "bodies_in_memory",
                "Request bodies in memory",
                Unit::Bytes,
            ),
            body_memory: OnceLock::new(),
            claims: metrics.add("idempotency_claims", "Claims of the idempotency service by result"),
            claim_updates: metrics.add(
                "idempotency_updates",
                "Extensions, completions and releases of the idempotency service by result",
            ),
            claims_in_progress: metrics
                .add("idempotency_in_progress", "Keys of the idempotency service under a lease"),
            claim_keys: metrics.add("idempotency_keys", "Stored idempotency keys by user"),
            nodes: metrics.add("nodes", "Processes that use the store"),
            node_lanes: metrics.add("node_lanes", "Lanes that this process owns"),
            handovers: metrics
                .add("lane_handovers", "Lanes that this process has given to other nodes"),
            otlp_spans: metrics.add("otlp_spans", "Finished spans by what became of them"),
            otlp_requests: metrics
                .add("otlp_requests", "Requests to the OpenTelemetry collector by outcome"),
            registry: metrics.0,
        }
    }
}

impl Telemetry {
    pub(crate) fn set_nodes(&self, count: usize) {
        self.nodes.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_node_lanes(&self, count: usize) {
        self.node_lanes.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_handover(&self) {
        self.handovers.inc();
    }

    pub fn source(&self, name: &str) -> SourceMetrics {
        let with_reason =
            |outcome, reason| labels([("source", name), ("outcome", outcome), ("reason", reason)]);
        let outcome = |outcome| with_reason(outcome, "");
        let replayed = DuplicateReason::SameSignedBytes.as_str();
        let source = labels([("source", name)]);
        SourceMetrics {
            accepted: self.requests.get_or_create_owned(&outcome("accepted")),
            duplicate: self.requests.get_or_create_owned(&outcome("duplicate")),
            same_signed_bytes: self
                .requests
                .get_or_create_owned(&with_reason("duplicate", replayed)),
            no_key: self.no_key.get_or_create_owned(&source),
            key_conflicts: self.key_conflicts.get_or_create_owned(&source),
            filter_errors: self.filter_errors.get_or_create_owned(&source),
            seconds: self.request_seconds.get_or_create_owned(&source),
        }
    }

    /// Counts a refused request. Only names of known sources become labels: senders must not be able to
    /// fill the memory with them.
    pub fn count_refused(&self, source: Option<&str>, reason: &str) {
        if let Some(source) = source
            && is_signature_failure(reason)
        {
            *lock(&self.signature_failures).entry(source.to_owned()).or_default() += 1;
        }
        let source = source.unwrap_or("unknown");
        let labels = labels([("source", source), ("outcome", "rejected"), ("reason", reason)]);
        self.requests.get_or_create(&labels).inc();
    }

    /// Requests to each source that failed verification since the start of the process.
    pub(crate) fn signature_failures(&self) -> HashMap<String, u64> {
        lock(&self.signature_failures).clone()
    }

    pub(crate) fn set_alerts(&self, active: &[Alert]) {
        for rule in AlertRule::ALL {
            let count = active.iter().filter(|alert| alert.rule == rule).count();
            self.alerts.get_or_create(&labels([("rule", rule.as_str())])).set(to_i64(count));
        }
    }

    pub(crate) fn count_quarantine_dropped(&self, source: &str, count: u64) {
        if count > 0 {
            self.quarantine_dropped.get_or_create(&labels([("source", source)])).inc_by(count);
        }
    }

    pub fn lane(&self, name: &str) -> LaneMetrics {
        let to = labels([("destination", name)]);
        LaneMetrics {
            succeeded: self.attempts.get_or_create_owned(&attempt_labels(name, "succeeded", "2xx")),
            attempt_seconds: self.attempt_seconds.get_or_create_owned(&to),
            latency_seconds: self.latency_seconds.get_or_create_owned(&to),
            remote_429: self.remote_429.get_or_create_owned(&to),
            in_flight: self.in_flight.get_or_create_owned(&to),
            cooling: self.cooling.get_or_create_owned(&to),
            paused: self.paused.get_or_create_owned(&to),
            circuit: self.circuit.get_or_create_owned(&to),
            no_order_key: self.no_order_key.get_or_create_owned(&to),
        }
    }

    pub(crate) fn count_failed_attempt(&self, destination: &str, class: &str, code_class: &str) {
        self.attempts.get_or_create(&attempt_labels(destination, class, code_class)).inc();
    }

    pub(crate) fn count_dead(&self, destination: &str, reason: &str) {
        let labels = labels([("destination", destination), ("reason", reason)]);
        self.dead_added.get_or_create(&labels).inc();
    }

    pub(crate) fn count_circuit_change(&self, destination: &str, to: &str) {
        let labels = labels([("destination", destination), ("to", to)]);
        self.circuit_transitions.get_or_create(&labels).inc();
    }

    pub(crate) fn set_destination_health(&self, name: &str, health: HealthStatus, waiting: u64) {
        for status in HealthStatus::ALL {
            let labels = health_labels(name, status);
            self.health.get_or_create(&labels).set(i64::from(status == health));
        }
        self.waiting.get_or_create(&labels([("destination", name)])).set(to_i64(waiting));
    }

    /// Removes the health of a destination that was deleted or renamed.
    pub(crate) fn remove_destination_health(&self, name: &str) {
        for status in HealthStatus::ALL {
            self.health.remove(&health_labels(name, status));
        }
        self.waiting.remove(&labels([("destination", name)]));
    }

    pub(crate) fn set_sent_today(&self, destination: &str, sent: u64, warn_at: Option<NonZeroU64>) {
        let to = labels([("destination", destination)]);
        self.sent_today.get_or_create(&to).set(to_i64(sent));
        self.warn_at.get_or_create(&to).set(warn_at.map_or(0, |threshold| to_i64(threshold.get())));
    }

    pub(crate) fn count_postponed(&self, destination: &str) {
        self.postponed.get_or_create(&labels([("destination", destination)])).inc();
    }

    pub(crate) fn count_shortage(&self, destination: &str) {
        self.shortages.get_or_create(&labels([("destination", destination)])).inc();
    }

    pub(crate) fn count_sync_answer(&self, source: &str, answer: &str) {
        let labels = labels([("source", source), ("answer", answer)]);
        self.sync_answers.get_or_create(&labels).inc();
    }

    pub(crate) fn count_lost_claim(&self) {
        self.leases_lost.inc();
    }

    pub(crate) fn count_replay_outcomes<'a>(&self, outcomes: impl Iterator<Item = (&'a str, u64)>) {
        for (outcome, count) in outcomes {
            self.replay_events.get_or_create(&labels([("outcome", outcome)])).inc_by(count);
        }
    }

    pub(crate) fn set_replay_jobs(&self, by_state: &[(ReplayState, usize)]) {
        for (state, count) in by_state {
            let labels = labels([("state", state.as_str())]);
            self.replay_jobs.get_or_create(&labels).set(to_i64(*count));
        }
    }

    pub(crate) fn count_claim_step(&self, action: &str, result: &ClaimStepResult) {
        let claimed = |result| {
            self.claims.get_or_create(&labels([("result", result)])).inc();
        };
        match result {
            ClaimStepResult::Claim(Claim::Claimed(grant)) if grant.is_resumed => claimed("resumed"),
            ClaimStepResult::Claim(Claim::Claimed(_)) => claimed("claimed"),
            ClaimStepResult::Claim(Claim::InProgress { .. }) => claimed("in_progress"),
            ClaimStepResult::Claim(Claim::Completed(_)) => claimed("completed"),
            ClaimStepResult::Claim(Claim::OtherFingerprint) => claimed("fingerprint_mismatch"),
            ClaimStepResult::Full(_) => claimed("full"),
            ClaimStepResult::Update(update) => {
                let result = match update {
                    ClaimUpdate::Applied => "applied",
                    ClaimUpdate::StaleToken => "stale_token",
                };
                let labels = labels([("action", action), ("result", result)]);
                self.claim_updates.get_or_create(&labels).inc();
            }
        }
    }

    /// The memory for request bodies, which is shown from now on.
    pub fn observe_body_memory(&self, memory: &Arc<BodyMemory>) {
        // The server of an engine has one.
        let _first = self.body_memory.set(Arc::clone(memory));
    }

    /// The counter of spans with this outcome: `exported`, `queue_full`, `failed` or `rejected`.
    pub(crate) fn otlp_spans(&self, outcome: &str) -> Counter {
        self.otlp_spans.get_or_create_owned(&labels([("outcome", outcome)]))
    }

    pub(crate) fn count_otlp_spans(&self, outcome: &str, count: u64) {
        if count > 0 {
            self.otlp_spans(outcome).inc_by(count);
        }
    }

    pub(crate) fn count_otlp_request(&self, signal: &str, outcome: &str) {
        let labels = labels([("signal", signal), ("outcome", outcome)]);
        self.otlp_requests.get_or_create(&labels).inc();
    }

    pub fn record_readings(&self, readings: &StoreReadings) {
        for (status, count) in &readings.by_status {
            self.by_status.get_or_create(&labels([("status", status)])).set(to_i64(*count));
        }
        for (reason, count) in &readings.dead {
            self.dead.get_or_create(&labels([("reason", reason)])).set(to_i64(*count));
        }
        for (destination, age) in &readings.pending_age {
            self.pending_age.get_or_create(&labels([("destination", destination)])).set(*age);
        }
        self.store_bytes.set(to_i64(readings.store_bytes));
        self.wal_bytes.set(to_i64(readings.wal_bytes));
        if let Some(free) = readings.disk_free {
            self.disk_free.set(to_i64(free));
        }
        self.commit_queue.set(to_i64(readings.commit_queue));
        self.claims_in_progress.set(to_i64(readings.claims.in_progress));
        for (user, keys) in [("service", readings.claims.keys), ("api", readings.claims.api_keys)] {
            self.claim_keys.get_or_create(&labels([("user", user)])).set(to_i64(keys));
        }
    }

    /// The metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        if let Some(memory) = self.body_memory.get() {
            self.body_bytes_held.set(to_i64(memory.used()));
        }
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _infallible = encode(&mut text, &self.registry);
        text
    }
}

/// Whether a request with this refusal code shows that secret, clock or scheme differ from the sender's.
/// Requests without any credentials do not: everybody can send them.
fn is_signature_failure(code: &str) -> bool {
    matches!(
        code,
        "mismatch"
            | "stale"
            | "malformed"
            | "unknown_address"
            | "untrusted_certificate"
            | QUARANTINED
    )
}

fn health_labels(name: &str, status: HealthStatus) -> Labels {
    labels([("destination", name), ("status", status.as_str())])
}

fn attempt_labels(destination: &str, outcome: &str, code_class: &str) -> Labels {
    labels([("destination", destination), ("outcome", outcome), ("code_class", code_class)])
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name, value.to_owned())).into()
}

fn to_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
