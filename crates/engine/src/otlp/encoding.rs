//! The messages of OTLP 1.x in protobuf, as far as they are sent here, and the reading of its answers.
//!
//! The numbers are those of `opentelemetry/proto`; a test reads what is written here with the published
//! schema. Metrics are converted from the text of `/metrics`, so that both always say the same.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::trace::SpanId;
use surehook_retry::{AttemptFailure, FailureClass};
use surehook_types::{
    ids::{DeliveryId, EventId},
    name::Name,
    time::Timestamp,
};

/// The name of the instrumentation scope.
const SCOPE: &str = "surehook";

/// Numbers of `Span.SpanKind`.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// The number of `Status.STATUS_CODE_ERROR`.
const STATUS_ERROR: u64 = 2;
/// The number of `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;
/// Bits of `Span.flags`: whether the parent is in another process is known, and it is.
const PARENT_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;

/// A finished span, as the event path leaves it. Everything is copied or shared; text is made when the
/// span is encoded.
#[derive(Clone, Debug)]
pub(crate) struct SpanRecord {
    pub(crate) trace_id: [u8; 16],
    pub(crate) id: SpanId,
    pub(crate) parent: Option<SpanId>,
    /// The flags of the trace context.
    pub(crate) flags: u8,
    pub(crate) started_at: Timestamp,
    pub(crate) took: Duration,
    pub(crate) event: EventId,
    pub(crate) subject: SpanSubject,
}

/// What a span is about.
#[derive(Clone, Debug)]
pub(crate) enum SpanSubject {
    /// An event was received from this source.
    Receive(Name),
    Attempt(AttemptSubject),
}

/// The result of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct AttemptSubject {
    pub(crate) delivery: DeliveryId,
    pub(crate) destination: Name,
    /// Counted from 1.
    pub(crate) number: u32,
    pub(crate) status: Option<u16>,
    pub(crate) failure: Option<AttemptFailure>,
    /// `None` for a success.
    pub(crate) class: Option<FailureClass>,
}

/// Writes one protobuf message.
#[derive(Debug, Default)]
struct ProtobufWriter(Vec<u8>);

impl ProtobufWriter {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn uint(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    fn fixed32(&mut self, field: u32, value: u32) {
        self.key(field, 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// A `KeyValue` with a text.
    fn attribute(&mut self, field: u32, key: &str, value: &str) {
        self.message(field, |pair| {
            pair.text(1, key);
            pair.message(2, |any| any.text(1, value));
        });
    }

    /// A `KeyValue` with a number.
    fn number_attribute(&mut self, field: u32, key: &str, value: u64) {
        self.message(field, |pair| {
            pair.text(1, key);
            pair.message(2, |any| any.uint(3, value));
        });
    }

    fn scope(&mut self, field: u32) {
        self.message(field, |scope| {
            scope.text(1, SCOPE);
            scope.text(2, env!("CARGO_PKG_VERSION"));
        });
    }
}

/// The attributes of this process as a `Resource`.
pub(crate) fn encode_resource(attributes: &BTreeMap<String, String>) -> Vec<u8> {
    let mut resource = ProtobufWriter::default();
    for (key, value) in attributes {
        resource.attribute(1, key, value);
    }
    resource.0
}

/// Nanoseconds since 1970; 0 before.
fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(0).saturating_mul(1_000_000)
}

/// An `ExportTraceServiceRequest`.
pub(crate) fn encode_traces(resource: &[u8], spans: &[SpanRecord]) -> Vec<u8> {
    let mut request = ProtobufWriter::default();
    request.message(1, |resource_spans| {
        resource_spans.bytes(1, resource);
        resource_spans.message(2, |scope_spans| {
            scope_spans.scope(1);
            for span in spans {
                scope_spans.message(2, |message| span.encode(message));
            }
        });
    });
    request.0
}

impl SpanRecord {
    fn encode(&self, span: &mut ProtobufWriter) {
        let start = nanos(self.started_at);
        let took = u64::try_from(self.took.as_nanos()).unwrap_or(u64::MAX);
        span.bytes(1, &self.trace_id);
        span.bytes(2, &self.id);
        if let Some(parent) = &self.parent {
            span.bytes(4, parent);
        }
        span.fixed64(7, start);
        span.fixed64(8, start.saturating_add(took));
        span.attribute(9, "surehook.event.id", &self.event.to_string());
        let parent_flags = match &self.subject {
            SpanSubject::Receive(source) => {
                span.text(5, &format!("receive {source}"));
                span.uint(6, SERVER);
                span.attribute(9, "surehook.source", source.as_str());
                PARENT_KNOWN | if self.parent.is_some() { PARENT_IS_REMOTE } else { 0 }
            }
            SpanSubject::Attempt(attempt) => {
                attempt.encode(span);
                PARENT_KNOWN
            }
        };
        span.fixed32(16, parent_flags | u32::from(self.flags));
    }
}

impl AttemptSubject {
    fn encode(&self, span: &mut ProtobufWriter) {
        let Self { delivery, destination, number, status, failure, class } = self;
        span.text(5, &format!("deliver {destination}"));
        span.uint(6, CLIENT);
        span.attribute(9, "surehook.destination", destination.as_str());
        span.attribute(9, "surehook.delivery.id", &delivery.to_string());
        span.number_attribute(9, "surehook.attempt", u64::from(*number));
        if let Some(status) = status {
            span.number_attribute(9, "http.response.status_code", u64::from(*status));
        }
        let Some(class) = class else { return };
        // The detail stays here: it may quote the answer of the destination.
        let error = match (failure, status) {
            (Some(failure), _) => failure.as_str().to_owned(),
            (None, Some(status)) => status.to_string(),
            (None, None) => class.as_str().to_owned(),
        };
        span.attribute(9, "error.type", &error);
        span.attribute(9, "surehook.failure.class", class.as_str());
        span.message(15, |message| {
            message.text(2, class.as_str());
            message.uint(3, STATUS_ERROR);
        });
    }
}

/// The time span that metrics are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricTimes {
    /// When counters began at zero.
    pub(crate) started_at: Timestamp,
    pub(crate) now: Timestamp,
}

/// An `ExportMetricsServiceRequest` with the metrics of `text`, which is what `/metrics` has.
pub(crate) fn encode_metrics(resource: &[u8], text: &str, times: MetricTimes) -> Vec<u8> {
    let mut request = ProtobufWriter::default();
    request.message(1, |resource_metrics| {
        resource_metrics.bytes(1, resource);
        resource_metrics.message(2, |scope_metrics| {
            scope_metrics.scope(1);
            for family in parse_families(text) {
                if !family.is_empty() {
                    scope_metrics.message(2, |metric| family.encode(metric, times));
                }
            }
        });
    });
    request.0
}

/// A metric with its samples, as read from the text.
#[derive(Debug, Default)]
struct MetricFamily<'t> {
    name: &'t str,
    kind: &'t str,
    unit: &'t str,
    help: &'t str,
    points: Vec<MetricSample<'t>>,
    histograms: Vec<HistogramPoint>,
}

/// One line of the text: `name{label="value",…} number`.
#[derive(Debug)]
struct MetricSample<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: &'t str,
}

/// The buckets of a histogram with one set of labels.
#[derive(Debug)]
struct HistogramPoint {
    labels: Vec<(String, String)>,
    bounds: Vec<f64>,
    /// As Prometheus has them: each bucket includes those below it.
    cumulative: Vec<u64>,
    sum: f64,
}

fn parse_families(text: &str) -> Vec<MetricFamily<'_>> {
    let mut families: Vec<MetricFamily<'_>> = Vec::new();
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            if let (Some(family), Some(sample)) = (families.last_mut(), MetricSample::parse(line)) {
                family.add(sample);
            }
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (what, name, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
        let Some(name) = name else { continue };
        if families.last().is_none_or(|family| family.name != name) {
            families.push(MetricFamily { name, ..MetricFamily::default() });
        }
        let Some(family) = families.last_mut() else { continue };
        match what {
            Some("TYPE") => family.kind = rest,
            Some("HELP") => family.help = rest,
            Some("UNIT") => family.unit = to_ucum(rest),
            Some(_) | None => {}
        }
    }
    families
}

/// The unit in the notation of OpenTelemetry.
fn to_ucum(unit: &str) -> &str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        other => other,
    }
}

impl<'t> MetricSample<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
        let mut labels = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            while !rest.starts_with('}') {
                let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
                let (value, after) = split_quoted(after)?;
                labels.push((label, value));
                rest = after;
            }
            rest = &rest[1..];
        }
        let value = rest.trim().split(' ').next()?;
        Some(Self { name, labels, value })
    }

    fn take_label(&mut self, name: &str) -> Option<String> {
        let position = self.labels.iter().position(|(label, _)| *label == name)?;
        Some(self.labels.remove(position).1)
    }
}

/// A value up to its closing quote, and what follows.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((position, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[position + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

impl<'t> MetricFamily<'t> {
    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.histograms.is_empty()
    }

    fn add(&mut self, mut sample: MetricSample<'t>) {
        if self.kind != "histogram" {
            self.points.push(sample);
            return;
        }
        let bound = sample.take_label("le");
        let labels: Vec<(String, String)> =
            sample.labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        // The lines of one set of labels follow one another.
        if self.histograms.last().is_none_or(|point| point.labels != labels) {
            let (bounds, cumulative) = (Vec::new(), Vec::new());
            self.histograms.push(HistogramPoint { labels, bounds, cumulative, sum: 0.0 });
        }
        let Some(point) = self.histograms.last_mut() else { return };
        match (sample.name.strip_prefix(self.name), bound) {
            (Some("_sum"), None) => point.sum = sample.value.parse().unwrap_or_default(),
            (Some("_bucket"), Some(bound)) => {
                point.bounds.extend(bound.parse::<f64>().ok().filter(|bound| bound.is_finite()));
                point.cumulative.push(sample.value.parse().unwrap_or_default());
            }
            // `_count` is the last bucket.
            (_, _) => {}
        }
    }

    fn encode(&self, metric: &mut ProtobufWriter, times: MetricTimes) {
        metric.text(1, self.name);
        metric.text(2, self.help);
        metric.text(3, self.unit);
        match self.kind {
            "counter" => metric.message(7, |sum| {
                for point in &self.points {
                    sum.message(1, |message| {
                        point.encode(message, Some(times.started_at), times.now);
                    });
                }
                sum.uint(2, CUMULATIVE);
                sum.uint(3, 1);
            }),
            "histogram" => metric.message(9, |histogram| {
                for point in &self.histograms {
                    histogram.message(1, |message| point.encode(message, times));
                }
                histogram.uint(2, CUMULATIVE);
            }),
            _ => metric.message(5, |gauge| {
                for point in &self.points {
                    gauge.message(1, |message| point.encode(message, None, times.now));
                }
            }),
        }
    }
}

impl MetricSample<'_> {
    /// A `NumberDataPoint`.
    fn encode(&self, point: &mut ProtobufWriter, started_at: Option<Timestamp>, now: Timestamp) {
        for (name, value) in &self.labels {
            point.attribute(7, name, value);
        }
        if let Some(started_at) = started_at {
            point.fixed64(2, nanos(started_at));
        }
        point.fixed64(3, nanos(now));
        match self.value.parse::<i64>() {
            Ok(value) => point.fixed64(6, value.cast_unsigned()),
            Err(_) => point.double(4, self.value.parse().unwrap_or(f64::NAN)),
        }
    }
}

impl HistogramPoint {
    /// A `HistogramDataPoint`.
    fn encode(&self, point: &mut ProtobufWriter, times: MetricTimes) {
        for (name, value) in &self.labels {
            point.attribute(9, name, value);
        }
        point.fixed64(2, nanos(times.started_at));
        point.fixed64(3, nanos(times.now));
        point.fixed64(4, self.cumulative.last().copied().unwrap_or_default());
        point.double(5, self.sum);
        let mut counts = Vec::with_capacity(8 * self.cumulative.len());
        let mut below = 0;
        for total in &self.cumulative {
            counts.extend_from_slice(&total.saturating_sub(below).to_le_bytes());
            below = *total;
        }
        point.bytes(6, &counts);
        let bounds: Vec<u8> =
            self.bounds.iter().flat_map(|bound| bound.to_bits().to_le_bytes()).collect();
        point.bytes(7, &bounds);
    }
}

/// What a collector did not accept of a request that it answered with success.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialSuccess {
    /// Spans or data points.
    pub(crate) rejected: u64,
}

/// Reads an `ExportTraceServiceResponse` or an `ExportMetricsServiceResponse`. What cannot be read counts
/// as complete success: some collectors answer with text.
pub(crate) fn parse_response(body: &[u8]) -> PartialSuccess {
    let mut found = PartialSuccess::default();
    for_each_field(body, |field, value| {
        if let (1, ProtobufValue::Bytes(partial)) = (field, value) {
            for_each_field(partial, |field, value| {
                if let (1, ProtobufValue::Number(rejected)) = (field, value) {
                    found.rejected = rejected;
                }
            });
        }
    });
    found
}

enum ProtobufValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// Visits the fields of a message, up to the first that is malformed.
fn for_each_field<'b>(mut rest: &'b [u8], mut visit: impl FnMut(u64, ProtobufValue<'b>)) {
    while let Some(key) = take_varint(&mut rest) {
        let value = match key & 7 {
            0 => take_varint(&mut rest).map(ProtobufValue::Number),
            1 => rest.split_off(..8).map(ProtobufValue::Bytes),
            2 => take_varint(&mut rest)
                .and_then(|length| usize::try_from(length).ok())
                .and_then(|length| rest.split_off(..length))
                .map(ProtobufValue::Bytes),
            5 => rest.split_off(..4).map(ProtobufValue::Bytes),
            _ => None,
        };
        let Some(value) = value else { return };
        visit(key >> 3, value);
    }
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn metrics_are_read_with_labels_and_buckets() {
        let telemetry = Telemetry::default();
        telemetry.count_refused(Some("a\"b\\c}\n"), "mismatch");
        let lane = telemetry.lane("crm");
        let other = telemetry.lane("other");
        for seconds in [0.0001, 0.004, 900.0] {
            lane.attempt_seconds.observe(seconds);
        }
        other.attempt_seconds.observe(1.0);
        lane.in_flight.set(-3);
        let text = telemetry.render();

        let families = parse_families(&text);

        let find = |name: &str| {
            let mut all = families.iter();
            all.find(|family| family.name == name).unwrap_or_else(|| panic!("{name}: {text}"))
        };
        let requests = find("surehook_requests");
        assert_eq!(requests.kind, "counter");
        let refused = &requests.points[0];
        assert_eq!(refused.value, "1");
        assert!(refused.labels.contains(&("source", "a\"b\\c}\n".to_owned())), "{refused:?}");
        let running = find("surehook_deliveries_inflight");
        let values: Vec<&str> = running.points.iter().map(|point| point.value).collect();
        assert!(running.kind == "gauge" && values.contains(&"-3"), "{running:?}");
        let durations = find("surehook_delivery_attempt_duration_seconds");
        assert_eq!((durations.kind, durations.unit), ("histogram", "s"));
        assert_eq!(durations.histograms.len(), 2);
        let crm = [("destination".to_owned(), "crm".to_owned())];
        let point = durations.histograms.iter().find(|point| point.labels == crm).unwrap();
        assert_eq!(point.cumulative.len(), point.bounds.len() + 1);
        assert_eq!((point.cumulative[0], *point.cumulative.last().unwrap()), (1, 3));
        assert!((point.sum - 900.0041).abs() < 1e-9, "{point:?}");
        // Nothing of the text is left out but families without a sample.
        let samples: usize = text.lines().filter(|line| !line.starts_with('#')).count();
        let read: usize = families
            .iter()
            .map(|family| {
                let lines = |point: &HistogramPoint| point.cumulative.len() + 2;
                family.points.len() + family.histograms.iter().map(lines).sum::<usize>()
            })
            .sum();
        assert_eq!(read, samples);
    }

    #[test]
    fn rejected_items_are_read_from_every_answer() {
        let answer = |write: fn(&mut ProtobufWriter)| {
            let mut message = ProtobufWriter::default();
            write(&mut message);
            message.0
        };
        let partial = answer(|message| {
            message.uint(7, 1);
            message.fixed64(9, 1);
            message.fixed32(10, 1);
            message.message(1, |partial| {
                partial.text(2, "too old");
                partial.uint(1, 300);
            });
        });
        assert_eq!(parse_response(&partial), PartialSuccess { rejected: 300 });
        let warning = answer(|message| message.message(1, |partial| partial.text(2, "slow down")));
        for body in [&warning[..], b"", b"OK", b"{}", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert_eq!(parse_response(body), PartialSuccess::default(), "case: {body:?}");
        }
        for length in 0..partial.len() {
            // Cut anywhere: nothing panics.
            parse_response(&partial[..length]);
        }
    }
}
