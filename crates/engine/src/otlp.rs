//! Sends traces and metrics to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! Off unless `[otlp]` names an endpoint. The event path only puts finished spans into a bounded queue,
//! and never waits for it: what does not fit is dropped and counted. Two tasks encode and send, one for
//! traces and one for metrics, so that neither waits for the other.

mod encoding;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Uri, header};
use prometheus_client::metrics::counter::Counter;
use rustls::ClientConfig;
use surehook_core::{
    event::NewEvent,
    otlp::{MetricExportConfig, OtlpConfig},
    store::{AttemptRecord, ClaimedDelivery},
    trace::{EventTrace, Sampler, SpanId},
};
use surehook_guard::address::AddressPolicy;
use surehook_retry::{AttemptFailure, AttemptOutcome};
use surehook_types::{
    ids::NodeId,
    name::Name,
    rng::new_id,
    time::{Clock, Timestamp},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::encoding::{
    AttemptSubject, MetricTimes, SpanRecord, SpanSubject, encode_metrics, encode_resource,
    encode_traces, parse_response,
};
use crate::{
    Engine,
    lane::LaneContext,
    sender::{HttpOutboundRequest, HttpSender, HttpSenderConfig},
    sockets::SocketBudget,
    telemetry::Telemetry,
    tls::{TlsConfigError, client_config_of_file},
};

/// Spans that wait to be sent; about 2 MB.
const QUEUE_MAX: usize = 8192;
/// Spans of one request.
const BATCH_MAX: usize = 512;
/// How long a span waits for others.
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// Tries of one request with spans, and the pause after the first; doubled each time.
const TRIES_MAX: u32 = 4;
const TRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that a collector can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Connections to the collector. They are not taken from those of deliveries.
const SOCKETS_MAX: usize = 8;
/// At the end of the process, what is left may take this long to be sent.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);
/// A failing collector is logged this often.
const LOG_INTERVAL: Duration = Duration::from_secs(300);

/// Where traces and metrics are sent, and how.
#[derive(Debug)]
pub struct OtlpParts {
    config: OtlpConfig,
    /// `None` for the roots of the system.
    tls: Option<Arc<ClientConfig>>,
}

impl OtlpParts {
    /// Reads the file with certificate authorities, if one is configured.
    pub fn load(config: OtlpConfig) -> Result<Self, TlsConfigError> {
        let file = config.ca_file.as_deref();
        let tls = file.map(|file| client_config_of_file(Some(file)).map(Arc::new)).transpose()?;
        Ok(Self { config, tls })
    }
}

/// Takes finished spans. Exists only if traces are sent.
#[derive(Debug)]
pub(crate) struct Tracer {
    sampler: Sampler,
    spans: mpsc::Sender<SpanRecord>,
    queue_full: Counter,
}

/// The context of a running attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptTrace {
    trace: EventTrace,
    span: SpanId,
}

impl AttemptTrace {
    /// Makes the headers of a request those of the attempt.
    pub(crate) fn inject(&self, headers: &mut HeaderMap) {
        self.trace.inject(headers, self.span);
    }

    /// The value of the header, for what has no headers.
    pub(crate) fn traceparent(&self) -> String {
        self.trace.traceparent(self.span)
    }
}

impl Tracer {
    /// Records that an event was received and committed.
    pub(crate) fn record_received(&self, event: &NewEvent, source: &Name, committed_at: Timestamp) {
        let trace = EventTrace::of(event.id, &event.payload.head, self.sampler);
        self.record(&trace, || SpanRecord {
            trace_id: trace.trace_id,
            id: trace.receive_span(),
            parent: trace.remote_parent,
            flags: trace.flags(),
            started_at: event.received_at,
            took: committed_at.since(event.received_at),
            event: event.id,
            subject: SpanSubject::Receive(source.clone()),
        });
    }

    pub(crate) fn begin_attempt(
        &self,
        claimed: &ClaimedDelivery,
        started_at: Timestamp,
    ) -> AttemptTrace {
        let trace = EventTrace::of(claimed.event, &claimed.payload.head, self.sampler);
        AttemptTrace { trace, span: trace.attempt_span(claimed.id, started_at) }
    }

    pub(crate) fn record_attempt(
        &self,
        context: &AttemptTrace,
        claimed: &ClaimedDelivery,
        destination: &Name,
        attempt: &AttemptRecord,
    ) {
        let AttemptTrace { trace, span } = context;
        self.record(trace, || SpanRecord {
            trace_id: trace.trace_id,
            id: *span,
            parent: Some(trace.receive_span()),
            flags: trace.flags(),
            started_at: attempt.started_at,
            took: attempt.took,
            event: claimed.event,
            subject: SpanSubject::Attempt(AttemptSubject {
                delivery: claimed.id,
                destination: destination.clone(),
                number: attempt.number,
                status: attempt.status,
                failure: attempt.failure,
                class: attempt.class,
            }),
        });
    }

    fn record(&self, trace: &EventTrace, build: impl FnOnce() -> SpanRecord) {
        if trace.is_sampled && self.spans.try_send(build()).is_err() {
            self.queue_full.inc();
        }
    }
}

/// What is to be sent by tasks that have not started.
pub(crate) struct OtlpExport {
    parts: OtlpParts,
    /// The finished spans, if traces are sent.
    spans: Option<mpsc::Receiver<SpanRecord>>,
}

impl OtlpExport {
    /// The export, and where the event path leaves its spans.
    pub(crate) fn new(parts: OtlpParts, telemetry: &Telemetry) -> (Self, Option<Tracer>) {
        let Some(traces) = &parts.config.traces else {
            return (Self { parts, spans: None }, None);
        };
        let (sender, spans) = mpsc::channel(QUEUE_MAX);
        let (sampler, queue_full) = (traces.sampler, telemetry.otlp_spans("queue_full"));
        let tracer = Tracer { sampler, spans: sender, queue_full };
        (Self { parts, spans: Some(spans) }, Some(tracer))
    }

    /// Starts to send.
    pub(crate) fn start(self, engine: &Arc<Engine>) {
        let Self { parts: OtlpParts { config, tls }, spans } = self;
        let tasks = &engine.otlp;
        let client = |url: &Uri, signal| {
            let sender = build_sender(&engine.shared, tls.clone());
            OtlpClient {
                sender,
                url: url.clone(),
                headers: build_headers(&config.headers),
                timeout: config.timeout,
                telemetry: Arc::clone(&engine.telemetry),
                clock: Arc::clone(&engine.shared.clock),
                signal,
                finish: tasks.finish.clone(),
                failure_logged_at: None,
            }
        };
        let attributes = describe_process(&config.resource, &engine.shared);
        let resource = encode_resource(&attributes);
        if let (Some(traces), Some(spans)) = (&config.traces, spans) {
            let client = client(&traces.url, "traces");
            tasks.tracker.spawn(export_spans(client, resource.clone(), spans));
        }
        if let Some(metrics) = config.metrics {
            let client = client(&metrics.url, "metrics");
            tasks.tracker.spawn(export_metrics(client, resource, metrics));
        }
    }
}

/// The attributes of this process: those of the settings, and what they do not say.
fn describe_process(
    configured: &BTreeMap<String, String>,
    shared: &LaneContext,
) -> BTreeMap<String, String> {
    // Beside a database, the id by which other nodes know this one.
    let instance: NodeId = match shared.node.is_alone() {
        true => new_id(&*shared.rng, shared.clock.now()),
        false => shared.node.id(),
    };
    let mut attributes = BTreeMap::from([
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id".to_owned(), instance.uuid().to_string()),
        ("host.name".to_owned(), shared.node.name().to_owned()),
    ]);
    attributes.extend(configured.clone());
    attributes
}

/// The operator chose the collector in the settings of the server; the address policy is for destinations.
fn build_sender(shared: &LaneContext, tls: Option<Arc<ClientConfig>>) -> HttpSender {
    let everywhere = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|network| network.parse().ok());
    let config = shared.http.clone();
    HttpSender::new(HttpSenderConfig {
        policy: Arc::new(AddressPolicy::new(everywhere.collect())),
        tls: tls.unwrap_or(config.tls),
        sockets: SocketBudget::new(SOCKETS_MAX),
        pool_idle_max: 1,
        ..config
    })
}

fn build_headers(configured: &HeaderMap) -> HeaderMap {
    let mut headers = configured.clone();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    let agent = HeaderValue::from_static(concat!("surehook/", env!("CARGO_PKG_VERSION")));
    headers.entry(header::USER_AGENT).or_insert(agent);
    headers
}

/// The tasks that send. They outlive deliveries, so that the last ones are exported too.
#[derive(Debug, Default)]
pub(crate) struct OtlpTasks {
    finish: CancellationToken,
    tracker: TaskTracker,
}

impl OtlpTasks {
    /// Sends what is left and ends the tasks, within [`FLUSH_LIMIT`].
    pub(crate) async fn finish(&self) {
        self.finish.cancel();
        self.tracker.close();
        let _late = timeout(FLUSH_LIMIT, self.tracker.wait()).await;
    }
}

/// Sends spans in batches until the process ends.
async fn export_spans(
    mut client: OtlpClient,
    resource: Vec<u8>,
    mut spans: mpsc::Receiver<SpanRecord>,
) {
    let finish = client.finish.clone();
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while !finish.is_cancelled() {
        tokio::select! {
            () = finish.cancelled() => break,
            received = spans.recv_many(&mut batch, BATCH_MAX) => if received == 0 { return },
        }
        tokio::select! {
            () = fill_batch(&mut batch, &mut spans) => {}
            () = tokio::time::sleep(BATCH_WAIT) => {}
            () = finish.cancelled() => {}
        }
        client.send_spans(&resource, &mut batch).await;
    }
    while let Ok(span) = spans.try_recv() {
        batch.push(span);
        if batch.len() == BATCH_MAX {
            client.send_spans(&resource, &mut batch).await;
        }
    }
    client.send_spans(&resource, &mut batch).await;
}

async fn fill_batch(batch: &mut Vec<SpanRecord>, spans: &mut mpsc::Receiver<SpanRecord>) {
    while batch.len() < BATCH_MAX {
        match spans.recv().await {
            Some(span) => batch.push(span),
            None => return,
        }
    }
}

/// Sends all metrics periodically, and once more when the process ends.
async fn export_metrics(mut client: OtlpClient, resource: Vec<u8>, config: MetricExportConfig) {
    let finish = client.finish.clone();
    let started_at = client.clock.now();
    loop {
        let _finished = timeout(config.interval, finish.cancelled()).await;
        let times = MetricTimes { started_at, now: client.clock.now() };
        let body = encode_metrics(&resource, &client.telemetry.render(), times);
        // Not repeated: the next ones include them.
        let _exported = client.export(body.into(), 1).await;
        if finish.is_cancelled() {
            return;
        }
    }
}

/// Sends the requests of one signal.
struct OtlpClient {
    sender: HttpSender,
    url: Uri,
    headers: HeaderMap,
    timeout: Duration,
    telemetry: Arc<Telemetry>,
    clock: Arc<dyn Clock>,
    /// `traces` or `metrics`.
    signal: &'static str,
    finish: CancellationToken,
    /// Set while the collector fails.
    failure_logged_at: Option<Instant>,
}

impl fmt::Debug for OtlpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpClient").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The answer to one request.
enum ExportResult {
    /// The collector refused this many spans or data points.
    Accepted(u64),
    /// Worth another try, not before this pause.
    Retryable(Option<Duration>),
    Refused,
}

impl OtlpClient {
    /// Sends the batch and empties it. What the collector does not take is dropped and counted.
    async fn send_spans(&mut self, resource: &[u8], batch: &mut Vec<SpanRecord>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        let body = encode_traces(resource, batch);
        batch.clear();
        match self.export(body.into(), TRIES_MAX).await {
            Some(rejected) => {
                let rejected = rejected.min(count);
                self.telemetry.count_otlp_spans("rejected", rejected);
                self.telemetry.count_otlp_spans("exported", count - rejected);
            }
            None => self.telemetry.count_otlp_spans("failed", count),
        }
    }

    /// How many spans or data points the collector refused; `None` if it took nothing.
    async fn export(&mut self, body: Bytes, tries: u32) -> Option<u64> {
        for number in 1..=tries {
            match self.send(body.clone()).await {
                ExportResult::Accepted(rejected) => return Some(rejected),
                ExportResult::Retryable(pause) if number < tries => {
                    let own = TRY_PAUSE * 2_u32.pow(number - 1);
                    let pause = pause.map_or(own, |pause| pause.min(RETRY_AFTER_MAX));
                    if timeout(pause, self.finish.cancelled()).await.is_ok() {
                        return None;
                    }
                }
                ExportResult::Retryable(_) | ExportResult::Refused => return None,
            }
        }
        None
    }

    async fn send(&mut self, body: Bytes) -> ExportResult {
        let (url, headers) = (self.url.clone(), self.headers.clone());
        let request = HttpOutboundRequest { url, headers, body };
        let report = self.sender.send(request, self.timeout).await;
        let (status, failure) = (report.outcome.status(), report.outcome.failure());
        let result = match report.outcome {
            AttemptOutcome::Answered { status: 200..=299, .. } => {
                ExportResult::Accepted(parse_response(&report.response_body).rejected)
            }
            AttemptOutcome::Answered { status: 429 | 502..=504, retry_after } => {
                let now = self.clock.now();
                ExportResult::Retryable(retry_after.map(|after| after.delay_from(now)))
            }
            AttemptOutcome::Failed(_) => ExportResult::Retryable(None),
            AttemptOutcome::Answered { .. } | AttemptOutcome::Interpreted(_) => {
                ExportResult::Refused
            }
        };
        let signal = self.signal;
        match &result {
            ExportResult::Accepted(rejected) => {
                self.telemetry.count_otlp_request(signal, "succeeded");
                if *rejected > 0 {
                    tracing::debug!(signal, rejected, "the OTLP collector rejected a part");
                }
                if self.failure_logged_at.take().is_some() {
                    tracing::info!(signal, "the OTLP collector accepts telemetry again");
                }
            }
            ExportResult::Retryable(_) | ExportResult::Refused => {
                self.telemetry.count_otlp_request(signal, "failed");
                if self.failure_logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    self.failure_logged_at = Some(Instant::now());
                    let failure = failure.map(AttemptFailure::as_str);
                    tracing::warn!(
                        signal,
                        status,
                        failure,
                        "the OTLP collector does not accept telemetry; deliveries are not affected"
                    );
                }
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::{otlp::OtlpSpec, store::ClaimedDelivery};

    use super::*;
    use crate::testing::claimed_delivery;

    const NOW: Timestamp = Timestamp::from_millis(1_614_265_330_000);

    fn record(tracer: &Tracer, claimed: &ClaimedDelivery) {
        let attempt = AttemptRecord {
            id: surehook_types::ids::AttemptId::new(NOW, 1),
            number: 1,
            started_at: NOW,
            took: Duration::from_millis(3),
            timing: surehook_guard::timing::AttemptTiming::default(),
            status: Some(200),
            failure: None,
            class: None,
            detail: None,
            response: Vec::new(),
        };
        let context = tracer.begin_attempt(claimed, NOW);
        tracer.record_attempt(&context, claimed, &Name::from_static("crm"), &attempt);
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let spec = OtlpSpec { endpoint: Some("http://c:4318".to_owned()), ..OtlpSpec::default() };
        let parts = OtlpParts::load(spec.build(&|_| None).unwrap().unwrap()).unwrap();
        let telemetry = Telemetry::default();
        let (export, tracer) = OtlpExport::new(parts, &telemetry);
        let (mut spans, tracer) = (export.spans.unwrap(), tracer.unwrap());
        let sampled = claimed_delivery(&[], b"{}", NOW);
        let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let unsampled = claimed_delivery(&[("traceparent", context)], b"{}", NOW);

        for _ in 0..QUEUE_MAX + 3 {
            record(&tracer, &sampled);
            record(&tracer, &unsampled);
        }

        assert_eq!(telemetry.otlp_spans("queue_full").get(), 3);
        let mut queued = Vec::new();
        while let Ok(span) = spans.try_recv() {
            queued.push(span);
        }
        assert_eq!(queued.len(), QUEUE_MAX);
        assert!(queued.iter().all(|span| span.trace_id == *sampled.event.uuid().as_bytes()));
    }
}
