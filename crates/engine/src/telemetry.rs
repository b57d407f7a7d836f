//! All metrics. Their names are part of the public contract.

use std::{fmt, num::NonZeroU64};

use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use surehook_core::replay::ReplayState;

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
    postponed: Counters,
    pending_age: Gauges,
    by_status: Gauges,
    dead: Gauges,
    replay_jobs: Gauges,
    replay_events: Counters,
    store_bytes: Gauge<i64>,
    wal_bytes: Gauge<i64>,
    disk_free: Gauge<i64>,
    commit_queue: Gauge<i64>,
    body_bytes_held: Gauge<i64>,
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
    pub(crate) no_key: Counter,
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
}

impl Default for Telemetry {
    #[expect(clippy::too_many_lines, reason = "a list of metrics, to be read as one")]
    fn default() -> Self {
        let mut registry = Registry::with_prefix("surehook");
        macro_rules! metric {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
            ($name:literal, $help:literal, $unit:expr, $metric:expr) => {{
                let metric = $metric;
                registry.register_with_unit($name, $help, $unit, metric.clone());
                metric
            }};
        }
        let histograms = || Histograms::new_with_constructor(seconds as fn() -> Histogram);
        let build = metric!("build_info", "The running version", Gauges::default());
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
        Self {
            requests: metric!("requests", "Incoming requests by outcome", Counters::default()),
            request_seconds: metric!(
                "request_duration",
                "Time from the complete request to the response",
                Unit::Seconds,
                histograms()
            ),
            attempts: metric!(
                "delivery_attempts",
                "Delivery attempts by outcome",
                Counters::default()
            ),
            attempt_seconds: metric!(
                "delivery_attempt_duration",
                "Duration of an attempt",
                Unit::Seconds,
                histograms()
            ),
            latency_seconds: metric!(
                "delivery_latency",
                "Time from receipt to a 2xx of the destination",
                Unit::Seconds,
                histograms()
            ),
            dead_added: metric!("dlq_added", "Deliveries that became dead", Counters::default()),
            remote_429: metric!(
                "remote_429",
                "Responses that asked us to slow down",
                Counters::default()
            ),
            no_key: metric!(
                "events_without_key",
                "Events without a dedup key",
                Counters::default()
            ),
            filter_errors: metric!(
                "filter_errors",
                "Route filters and transforms that failed on an event",
                Counters::default()
            ),
            sync_answers: metric!(
                "sync_answers",
                "Responses to senders that waited for the delivery result",
                Counters::default()
            ),
            leases_lost: metric!(
                "leases_lost",
                "Attempt results dropped because the lease had expired",
                Counter::default()
            ),
            quarantine_dropped: metric!(
                "quarantine_dropped",
                "Refused requests that did not fit into the quarantine, or were pushed out of it",
                Counters::default()
            ),
            in_flight: metric!("deliveries_inflight", "Running attempts", Gauges::default()),
            cooling: metric!(
                "destination_cooling",
                "1 while a destination cools down",
                Gauges::default()
            ),
            paused: metric!(
                "destination_paused",
                "1 while a destination is paused",
                Gauges::default()
            ),
            circuit: metric!(
                "circuit_state",
                "0 closed, 1 open, 2 half-open, 3 recovering",
                Gauges::default()
            ),
            circuit_transitions: metric!(
                "circuit_transitions",
                "Circuit state changes by new state",
                Counters::default()
            ),
            no_order_key: metric!(
                "deliveries_without_order_key",
                "Deliveries to an ordered destination without an ordering key",
                Counters::default()
            ),
            sent_today: metric!(
                "messages_sent_today",
                "Messages sent today, in the time zone of the destination",
                Gauges::default()
            ),
            warn_at: metric!(
                "messages_warn_at",
                "Daily warning threshold of messages; 0 means none",
                Gauges::default()
            ),
            postponed: metric!(
                "messages_put_off",
                "Messages postponed because their recipient must not get another one yet",
                Counters::default()
            ),
            pending_age: metric!(
                "oldest_pending_age",
                "Age of the oldest due delivery",
                Unit::Seconds,
                Gauges::default()
            ),
            by_status: metric!("deliveries", "Deliveries by status", Gauges::default()),
            dead: metric!("dlq_events", "Dead letters by reason", Gauges::default()),
            replay_jobs: metric!("replay_jobs", "Replay jobs by state", Gauges::default()),
            replay_events: metric!(
                "replay_events",
                "Events selected by replay jobs, by outcome",
                Counters::default()
            ),
            store_bytes: metric!("store", "Size of the database", Unit::Bytes, Gauge::default()),
            wal_bytes: metric!("wal", "Size of the write-ahead log", Unit::Bytes, Gauge::default()),
            disk_free: metric!(
                "disk_free",
                "Free space on the disk",
                Unit::Bytes,
                Gauge::default()
            ),
            commit_queue: metric!(
                "commit_queue",
                "Write jobs that wait for a commit",
                Gauge::default()
            ),
            body_bytes_held: metric!(
                "bodies_in_memory",
                "Request bodies in memory",
                Unit::Bytes,
                Gauge::default()
            ),
            registry,
        }
    }
}

impl Telemetry {
    pub fn source(&self, name: &str) -> SourceMetrics {
        let outcome = |outcome: &str| {
            vec![
                ("source", name.to_owned()),
                ("outcome", outcome.to_owned()),
                ("reason", String::new()),
            ]
        };
        let source = vec![("source", name.to_owned())];
        SourceMetrics {
            accepted: self.requests.get_or_create_owned(&outcome("accepted")),
            duplicate: self.requests.get_or_create_owned(&outcome("duplicate")),
            no_key: self.no_key.get_or_create_owned(&source),
            filter_errors: self.filter_errors.get_or_create_owned(&source),
            seconds: self.request_seconds.get_or_create_owned(&source),
        }
    }

    /// Counts a refused request. Only names of known sources become labels: senders must not be able to
    /// fill the memory with them.
    pub fn count_refused(&self, source: Option<&str>, reason: &str) {
        let labels = vec![
            ("source", source.unwrap_or("unknown").to_owned()),
            ("outcome", "rejected".to_owned()),
            ("reason", reason.to_owned()),
        ];
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn count_quarantine_dropped(&self, source: &str, count: u64) {
        if count > 0 {
            let labels = vec![("source", source.to_owned())];
            self.quarantine_dropped.get_or_create(&labels).inc_by(count);
        }
    }

    pub fn lane(&self, name: &str) -> LaneMetrics {
        let to = vec![("destination", name.to_owned())];
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
        let labels = vec![("destination", destination.to_owned()), ("reason", reason.to_owned())];
        self.dead_added.get_or_create(&labels).inc();
    }

    pub(crate) fn count_circuit_change(&self, destination: &str, to: &str) {
        let labels = vec![("destination", destination.to_owned()), ("to", to.to_owned())];
        self.circuit_transitions.get_or_create(&labels).inc();
    }

    pub(crate) fn set_sent_today(&self, destination: &str, sent: u64, warn_at: Option<NonZeroU64>) {
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let to = vec![("destination", destination.to_owned())];
        self.sent_today.get_or_create(&to).set(whole(sent));
        self.warn_at.get_or_create(&to).set(warn_at.map_or(0, |threshold| whole(threshold.get())));
    }

    pub(crate) fn count_postponed(&self, destination: &str) {
        self.postponed.get_or_create(&vec![("destination", destination.to_owned())]).inc();
    }

    pub(crate) fn count_sync_answer(&self, source: &str, answer: &str) {
        let labels = vec![("source", source.to_owned()), ("answer", answer.to_owned())];
        self.sync_answers.get_or_create(&labels).inc();
    }

    pub(crate) fn count_lost_lease(&self) {
        self.leases_lost.inc();
    }

    pub(crate) fn count_replay_outcomes<'a>(&self, outcomes: impl Iterator<Item = (&'a str, u64)>) {
        for (outcome, count) in outcomes {
            self.replay_events.get_or_create(&vec![("outcome", outcome.to_owned())]).inc_by(count);
        }
    }

    pub(crate) fn set_replay_jobs(&self, by_state: &[(ReplayState, usize)]) {
        for (state, count) in by_state {
            self.replay_jobs
                .get_or_create(&vec![("state", state.as_str().to_owned())])
                .set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    pub fn set_bodies_in_memory(&self, bytes: usize) {
        self.body_bytes_held.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn record_readings(&self, readings: &StoreReadings) {
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        for (status, count) in &readings.by_status {
            self.by_status
                .get_or_create(&vec![("status", (*status).to_owned())])
                .set(whole(*count));
        }
        for (reason, count) in &readings.dead {
            self.dead.get_or_create(&vec![("reason", (*reason).to_owned())]).set(whole(*count));
        }
        for (destination, age) in &readings.pending_age {
            self.pending_age.get_or_create(&vec![("destination", destination.clone())]).set(*age);
        }
        self.store_bytes.set(whole(readings.store_bytes));
        self.wal_bytes.set(whole(readings.wal_bytes));
        if let Some(free) = readings.disk_free {
            self.disk_free.set(whole(free));
        }
        self.commit_queue.set(i64::try_from(readings.commit_queue).unwrap_or(i64::MAX));
    }

    /// The metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _infallible = encode(&mut text, &self.registry);
        text
    }
}

fn attempt_labels(destination: &str, outcome: &str, code_class: &str) -> Labels {
    vec![
        ("destination", destination.to_owned()),
        ("outcome", outcome.to_owned()),
        ("code_class", code_class.to_owned()),
    ]
}
