//! Trace contexts (W3C Trace Context) of events, and which traces are exported.
//!
//! An event belongs to the trace that its sender named in `traceparent`; without one, the id of the event
//! is the id of the trace. Everything derives from the event and the stored head of its request, so a
//! retry, a replay, a restart and another node continue the same trace, and nothing more is stored.

use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_types::{
    ids::{DeliveryId, EventId},
    secret::digest_parts,
    string_enum,
    time::Timestamp,
};

use crate::event::RequestHead;

/// The header with the context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with what vendors add to the context; it means nothing without a valid `traceparent`.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The flag of a trace that is exported.
const SAMPLED_FLAG: u8 = 1;
/// The flag of a trace whose id is random; it is passed on as it is.
const RANDOM_FLAG: u8 = 2;

/// The id of a span.
pub type SpanId = [u8; 8];

/// The context that a sender named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RemoteContext {
    trace_id: [u8; 16],
    span: SpanId,
    flags: u8,
}

impl RemoteContext {
    /// `None` if the header is not valid.
    fn parse(value: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(value).ok()?.split('-');
        let (version, trace_id, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // Later versions may have more parts.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let [_version] = decode_hex(version)?;
        let (trace_id, span) = (decode_hex(trace_id)?, decode_hex(span)?);
        let [flags] = decode_hex(flags)?;
        (trace_id != [0; 16] && span != [0; 8]).then_some(Self { trace_id, span, flags })
    }

    /// `None` also if there are several: none of them can be trusted.
    fn parse_only<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> Option<Self> {
        let first = values.next()?;
        values.next().is_none().then(|| Self::parse(first)).flatten()
    }

    fn is_sampled(&self) -> bool {
        self.flags & SAMPLED_FLAG != 0
    }
}

/// Decodes lower-case hexadecimal digits, without an allocation.
fn decode_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    HEXLOWER.decode_mut(text.as_bytes(), &mut bytes).ok()?;
    Some(bytes)
}

/// The trace of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTrace {
    pub trace_id: [u8; 16],
    /// The span of the sender.
    pub remote_parent: Option<SpanId>,
    /// Whether spans are exported.
    pub is_sampled: bool,
    has_random_id: bool,
    event: EventId,
}

impl EventTrace {
    pub fn of(event: EventId, head: &RequestHead, sampler: Sampler) -> Self {
        let lines = head.headers.lines().filter(|(name, _)| *name == TRACEPARENT.as_str());
        let remote = RemoteContext::parse_only(lines.map(|(_, value)| value));
        let trace_id = remote.map_or(*event.uuid().as_bytes(), |remote| remote.trace_id);
        Self {
            trace_id,
            remote_parent: remote.map(|remote| remote.span),
            is_sampled: sampler.samples(trace_id, remote.map(|remote| remote.is_sampled())),
            has_random_id: remote.is_some_and(|remote| remote.flags & RANDOM_FLAG != 0),
            event,
        }
    }

    /// The span of receiving the event, the parent of all its attempts.
    pub fn receive_span(&self) -> SpanId {
        self.derive_span(&[])
    }

    /// The span of an attempt. A delivery makes one attempt at a time.
    pub fn attempt_span(&self, delivery: DeliveryId, started_at: Timestamp) -> SpanId {
        self.derive_span(&[delivery.uuid().as_bytes(), &started_at.as_millis().to_le_bytes()])
    }

    fn derive_span(&self, parts: &[&[u8]]) -> SpanId {
        let event = self.event.uuid();
        let digest =
            digest_parts(std::iter::once(&event.as_bytes()[..]).chain(parts.iter().copied()));
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        // An id of zeros is not valid.
        id[7] |= 1;
        id
    }

    /// The flags of the context.
    pub fn flags(&self) -> u8 {
        let random = if self.has_random_id { RANDOM_FLAG } else { 0 };
        random | u8::from(self.is_sampled)
    }

    /// The header for a request that is made within this span.
    pub fn traceparent(&self, span: SpanId) -> String {
        let (trace, span) = (HEXLOWER.encode(&self.trace_id), HEXLOWER.encode(&span));
        format!("00-{trace}-{span}-{:02x}", self.flags())
    }

    /// Makes the headers of a request those of this span, in place of the sender's.
    pub fn inject(&self, headers: &mut HeaderMap, span: SpanId) {
        if let Ok(value) = HeaderValue::try_from(self.traceparent(span)) {
            headers.insert(TRACEPARENT, value);
        }
        if self.remote_parent.is_none() {
            headers.remove(TRACESTATE);
        }
    }
}

/// Adds the context of a request to the headers of the event that it creates, unless they have one. One
/// that is not valid is not added.
pub fn copy_trace_context(request: &HeaderMap, event: &mut HeaderMap) {
    let values = request.get_all(TRACEPARENT).iter().map(HeaderValue::as_bytes);
    if event.contains_key(TRACEPARENT) || RemoteContext::parse_only(values).is_none() {
        return;
    }
    for name in [TRACEPARENT, TRACESTATE] {
        for value in request.get_all(&name) {
            event.append(name.clone(), value.clone());
        }
    }
}

string_enum! {
    /// Which traces are exported. The names are those of OpenTelemetry.
    #[derive(Default)]
    pub enum SamplerKind {
        /// All.
        AlwaysOn = "always_on",
        /// None.
        AlwaysOff = "always_off",
        /// The share `sample_ratio`.
        TraceIdRatio = "traceidratio",
        /// As the sender decided; without a context of the sender, all.
        #[default]
        ParentBasedAlwaysOn = "parentbased_always_on",
        /// As the sender decided; without a context of the sender, none.
        ParentBasedAlwaysOff = "parentbased_always_off",
        /// As the sender decided; without a context of the sender, the share `sample_ratio`.
        ParentBasedTraceIdRatio = "parentbased_traceidratio",
    }
}

/// Decides by the id of a trace alone, so that all nodes, now and later, decide the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    kind: SamplerKind,
    /// Of the last 56 bits of an id, as a number: traces below it are not exported.
    threshold: u64,
}

/// The bits of a trace id that are random in every id, also in one that is a version-7 UUID.
const RANDOM_BITS: u32 = 56;

impl Sampler {
    /// `ratio` is between 0 and 1.
    pub fn new(kind: SamplerKind, ratio: f64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
        let ids = (1_u64 << RANDOM_BITS) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 2^56, and what is beyond is cut off"
        )]
        let threshold = ((1.0 - ratio) * ids) as u64;
        Self { kind, threshold }
    }

    /// `parent` is the decision of the sender, if there is one.
    fn samples(&self, trace_id: [u8; 16], parent: Option<bool>) -> bool {
        match (self.kind, parent) {
            (SamplerKind::AlwaysOn, _) | (SamplerKind::ParentBasedAlwaysOn, None) => true,
            (SamplerKind::AlwaysOff, _) | (SamplerKind::ParentBasedAlwaysOff, None) => false,
            (SamplerKind::TraceIdRatio, _) | (SamplerKind::ParentBasedTraceIdRatio, None) => {
                let mut tail = [0; 8];
                tail[1..].copy_from_slice(&trace_id[9..]);
                u64::from_be_bytes(tail) >= self.threshold
            }
            (
                SamplerKind::ParentBasedAlwaysOn
                | SamplerKind::ParentBasedAlwaysOff
                | SamplerKind::ParentBasedTraceIdRatio,
                Some(decision),
            ) => decision,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::HeaderBlock;

    const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const ALL: SamplerKind = SamplerKind::ParentBasedAlwaysOn;

    fn event(random: u128) -> EventId {
        EventId::new(Timestamp::from_millis(1), random)
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(TRACEPARENT, value.parse().unwrap());
        }
        map
    }

    fn trace(values: &[&str], kind: SamplerKind) -> EventTrace {
        let headers = HeaderBlock::from_map(&headers(values));
        let head = RequestHead { headers, ..RequestHead::default() };
        EventTrace::of(event(7 << 64), &head, Sampler::new(kind, 1.0))
    }

    #[test]
    fn attempt_continues_the_trace_of_the_sender_with_a_span_of_its_own() {
        let trace = trace(&[SENT], ALL);
        let delivery = DeliveryId::new(Timestamp::from_millis(1), 9 << 64);
        let other = DeliveryId::new(Timestamp::from_millis(1), 10 << 64);
        let spans = [
            trace.receive_span(),
            trace.attempt_span(delivery, Timestamp::from_millis(5)),
            trace.attempt_span(delivery, Timestamp::from_millis(6)),
            trace.attempt_span(other, Timestamp::from_millis(5)),
        ];
        for (number, span) in spans.iter().enumerate() {
            assert!(!spans[..number].contains(span), "{spans:?}");
            let header = trace.traceparent(*span);
            assert!(header.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{header}");
            let parsed = RemoteContext::parse(header.as_bytes()).unwrap();
            assert_eq!((parsed.trace_id, parsed.span, parsed.flags), (trace.trace_id, *span, 1));
        }
    }

    #[test]
    fn invalid_context_begins_a_trace_with_the_id_of_the_event() {
        let own = trace(&[], ALL);
        assert_eq!(own.trace_id, *event(7 << 64).uuid().as_bytes());
        assert_eq!((own.remote_parent, own.is_sampled), (None, true));
        for invalid in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(trace(&[invalid], ALL), own, "case: {invalid}");
        }
        assert_eq!(trace(&[SENT, SENT], ALL), own, "which of both is unknown");
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert!(trace(&[later], ALL).remote_parent.is_some());
    }

    #[test]
    fn injected_context_replaces_the_senders_and_drops_a_state_without_a_parent() {
        for (sent, has_state) in [(SENT, true), ("nonsense", false)] {
            let trace = trace(&[sent], ALL);
            let mut map = headers(&[sent]);
            map.insert(TRACESTATE, HeaderValue::from_static("a=b"));

            trace.inject(&mut map, [1; 8]);

            assert_eq!(map.get_all(TRACEPARENT).iter().count(), 1);
            assert_eq!(map[TRACEPARENT], trace.traceparent([1; 8]));
            assert_eq!(map.contains_key(TRACESTATE), has_state, "case: {sent}");
        }
    }

    #[test]
    fn sender_decides_only_with_a_parent_based_sampler() {
        let unsampled = SENT.replace("-01", "-00");
        let random = SENT.replace("-01", "-03");
        for (kind, sent, flags) in [
            (SamplerKind::AlwaysOn, unsampled.as_str(), 1),
            (SamplerKind::AlwaysOff, SENT, 0),
            (SamplerKind::TraceIdRatio, &unsampled, 1),
            (SamplerKind::ParentBasedAlwaysOn, &unsampled, 0),
            (SamplerKind::ParentBasedAlwaysOff, SENT, 1),
            (SamplerKind::ParentBasedTraceIdRatio, &unsampled, 0),
            (SamplerKind::ParentBasedAlwaysOn, &random, 3),
            (SamplerKind::AlwaysOff, &random, 2),
        ] {
            let trace = trace(&[sent], kind);
            assert_eq!(trace.flags(), flags, "case: {kind:?} {sent}");
            assert_eq!(trace.is_sampled, flags & 1 == 1);
        }
        assert!(!trace(&[], SamplerKind::ParentBasedAlwaysOff).is_sampled);
    }

    #[test]
    fn ratio_holds_for_the_ids_of_events() {
        let head = RequestHead::default();
        for (ratio, expected) in [(0.0, 0..=0), (0.25, 200..=300), (1.0, 1000..=1000)] {
            let sampler = Sampler::new(SamplerKind::ParentBasedTraceIdRatio, ratio);
            let sampled = (0..1000_u128).filter(|number| {
                // The digits of a number that is spread over all values.
                let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                EventTrace::of(event(random), &head, sampler).is_sampled
            });
            let sampled = sampled.count();
            assert!(expected.contains(&sampled), "{ratio}: {sampled}");
        }
    }

    #[test]
    fn valid_context_of_a_request_is_copied_once() {
        let mut request = headers(&[SENT]);
        request.insert(TRACESTATE, HeaderValue::from_static("a=b"));
        let mut event = HeaderMap::new();
        copy_trace_context(&request, &mut event);
        copy_trace_context(&request, &mut event);
        assert_eq!(event, request);

        let mut given = headers(&["00-11111111111111111111111111111111-2222222222222222-01"]);
        let before = given.clone();
        copy_trace_context(&request, &mut given);
        assert_eq!(given, before, "the event names its own context");

        let mut event = HeaderMap::new();
        copy_trace_context(&headers(&["nonsense"]), &mut event);
        assert!(event.is_empty());
    }
}
