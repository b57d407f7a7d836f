//! Every metric, in one place. The names are part of the contract.

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
    put_off: Counters,
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

/// The handles of one source, looked up once.
#[derive(Clone, Debug)]
pub struct SourceMetrics {
    pub(crate) accepted: Counter,
    pub(crate) duplicate: Counter,
    pub(crate) no_key: Counter,
    pub(crate) filter_errors: Counter,
    pub(crate) seconds: Histogram,
}

/// The handles of one destination, looked up once.
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

/// What is read from the store now and then.
#[derive(Clone, Debug, Default)]
pub struct StoreReadings {
    /// Deliveries by status.
    pub by_status: Vec<(&'static str, u64)>,
    /// Dead now, by reason.
    pub dead: Vec<(&'static str, u64)>,
    /// Seconds for which the oldest due delivery waits, by destination.
    pub pending_age: Vec<(String, i64)>,
    /// Bytes of the database file.
    pub store_bytes: u64,
    /// Bytes of its log.
    pub wal_bytes: u64,
    /// Bytes free on its disk, where that is known.
    pub disk_free: Option<u64>,
    /// Jobs that wait for a commit.
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
            requests: metric!("requests", "Requests at the door", Counters::default()),
            request_seconds: metric!(
                "request_duration",
                "Time from the whole request to the answer",
                Unit::Seconds,
                histograms()
            ),
            attempts: metric!("delivery_attempts", "Attempts", Counters::default()),
            attempt_seconds: metric!(
                "delivery_attempt_duration",
                "Time one attempt took",
                Unit::Seconds,
                histograms()
            ),
            latency_seconds: metric!(
                "delivery_latency",
                "Time from receipt to a 2xx of the destination",
                Unit::Seconds,
                histograms()
            ),
            dead_added: metric!("dlq_added", "Deliveries given up", Counters::default()),
            remote_429: metric!(
                "remote_429",
                "Answers that asked us to slow down",
                Counters::default()
            ),
            no_key: metric!("events_without_key", "Events that had no key", Counters::default()),
            filter_errors: metric!(
                "filter_errors",
                "Route filters and transforms that failed on an event",
                Counters::default()
            ),
            sync_answers: metric!(
                "sync_answers",
                "What senders were told that waited for a result",
                Counters::default()
            ),
            leases_lost: metric!(
                "leases_lost",
                "Results refused because the claim was lost",
                Counter::default()
            ),
            quarantine_dropped: metric!(
                "quarantine_dropped",
                "Requests that the quarantine had no room for, or no longer",
                Counters::default()
            ),
            in_flight: metric!("deliveries_inflight", "Attempts that run", Gauges::default()),
            cooling: metric!(
                "destination_cooling",
                "1 while a destination asked us to wait",
                Gauges::default()
            ),
            paused: metric!(
                "destination_paused",
                "1 while a destination is paused",
                Gauges::default()
            ),
            circuit: metric!(
                "circuit_state",
                "0 closed, 1 open, 2 half-open, 3 on its ramp",
                Gauges::default()
            ),
            circuit_transitions: metric!(
                "circuit_transitions",
                "Changes of a circuit, by what it became",
                Counters::default()
            ),
            no_order_key: metric!(
                "deliveries_without_order_key",
                "Deliveries that an ordered destination got without an ordering key",
                Counters::default()
            ),
            sent_today: metric!(
                "messages_sent_today",
                "Messages sent on the current day of the destination's calendar",
                Gauges::default()
            ),
            warn_at: metric!(
                "messages_warn_at",
                "Messages in a day that are worth a warning; 0 is none",
                Gauges::default()
            ),
            put_off: metric!(
                "messages_put_off",
                "Times that a message had to wait for its turn with its recipient",
                Counters::default()
            ),
            pending_age: metric!(
                "oldest_pending_age",
                "How long the oldest due delivery waits",
                Unit::Seconds,
                Gauges::default()
            ),
            by_status: metric!("deliveries", "Deliveries by status", Gauges::default()),
            dead: metric!("dlq_events", "Dead letters by reason", Gauges::default()),
            replay_jobs: metric!("replay_jobs", "Replay jobs by state", Gauges::default()),
            replay_events: metric!(
                "replay_events",
                "What became of what replay jobs selected",
                Counters::default()
            ),
            store_bytes: metric!("store", "Size of the database", Unit::Bytes, Gauge::default()),
            wal_bytes: metric!("wal", "Size of the log", Unit::Bytes, Gauge::default()),
            disk_free: metric!("disk_free", "Room on the disk", Unit::Bytes, Gauge::default()),
            commit_queue: metric!("commit_queue", "Jobs that wait for a commit", Gauge::default()),
            body_bytes_held: metric!(
                "bodies_in_memory",
                "Bodies of requests in memory",
                Unit::Bytes,
                Gauge::default()
            ),
            registry,
        }
    }
}

impl Telemetry {
    /// The handles of a source.
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

    /// Counts a request that was refused. Only names of known sources become labels: a stranger
    /// must not be able to fill the memory with them.
    pub fn count_refused(&self, source: Option<&str>, reason: &str) {
        let labels = vec![
            ("source", source.unwrap_or("unknown").to_owned()),
            ("outcome", "rejected".to_owned()),
            ("reason", reason.to_owned()),
        ];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts requests that there was no room for in quarantine, or no longer.
    pub(crate) fn not_kept(&self, source: &str, many: u64) {
        if many > 0 {
            let labels = vec![("source", source.to_owned())];
            self.quarantine_dropped.get_or_create(&labels).inc_by(many);
        }
    }

    /// The handles of a destination.
    pub fn lane(&self, name: &str) -> LaneMetrics {
        let to = vec![("destination", name.to_owned())];
        LaneMetrics {
            succeeded: self.attempts.get_or_create_owned(&attempt(name, "succeeded", "2xx")),
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

    /// Counts an attempt that failed.
    pub(crate) fn attempt_failed(&self, destination: &str, class: &str, code_class: &str) {
        self.attempts.get_or_create(&attempt(destination, class, code_class)).inc();
    }

    pub(crate) fn buried(&self, destination: &str, reason: &str) {
        let labels = vec![("destination", destination.to_owned()), ("reason", reason.to_owned())];
        self.dead_added.get_or_create(&labels).inc();
    }

    /// Counts a change of a circuit.
    pub(crate) fn circuit_moved(&self, destination: &str, to: &str) {
        let labels = vec![("destination", destination.to_owned()), ("to", to.to_owned())];
        self.circuit_transitions.get_or_create(&labels).inc();
    }

    /// What a number has sent today, and from when on that is worth a warning.
    pub(crate) fn sent_today(&self, destination: &str, sent: u64, warn_at: Option<NonZeroU64>) {
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let to = vec![("destination", destination.to_owned())];
        self.sent_today.get_or_create(&to).set(whole(sent));
        self.warn_at.get_or_create(&to).set(warn_at.map_or(0, |many| whole(many.get())));
    }

    /// Counts a message that had to wait for its turn with its recipient.
    pub(crate) fn put_off(&self, destination: &str) {
        self.put_off.get_or_create(&vec![("destination", destination.to_owned())]).inc();
    }

    pub(crate) fn sync_answered(&self, source: &str, answer: &str) {
        let labels = vec![("source", source.to_owned()), ("answer", answer.to_owned())];
        self.sync_answers.get_or_create(&labels).inc();
    }

    pub(crate) fn lease_lost(&self) {
        self.leases_lost.inc();
    }

    /// Counts what became of what replay jobs selected.
    pub(crate) fn replayed<'a>(&self, outcomes: impl Iterator<Item = (&'a str, u64)>) {
        for (outcome, many) in outcomes {
            self.replay_events.get_or_create(&vec![("outcome", outcome.to_owned())]).inc_by(many);
        }
    }

    /// How many replay jobs are in each state.
    pub(crate) fn replay_jobs(&self, by_state: &[(ReplayState, usize)]) {
        for (state, many) in by_state {
            self.replay_jobs
                .get_or_create(&vec![("state", state.as_str().to_owned())])
                .set(i64::try_from(*many).unwrap_or(i64::MAX));
        }
    }

    /// Bytes of request bodies that are in memory now.
    pub fn set_bodies_in_memory(&self, bytes: usize) {
        self.body_bytes_held.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Takes over what was read from the store.
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

    /// The text that Prometheus reads.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _infallible = encode(&mut text, &self.registry);
        text
    }
}

fn attempt(destination: &str, outcome: &str, code_class: &str) -> Labels {
    vec![
        ("destination", destination.to_owned()),
        ("outcome", outcome.to_owned()),
        ("code_class", code_class.to_owned()),
    ]
}
