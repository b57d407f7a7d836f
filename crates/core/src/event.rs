//! Events to be stored: the exact request, the dedup key, the deliveries, and status updates.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_retry::FailureClass;
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, RequestId, RouteId, SourceId},
    inflate,
    redact::{self, SecretNames, UnreadableBodyError},
    string_enum,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{Attributes, EventKind},
    key::{DedupKey, KeyDigest, KeyNamespace, KeyOrigin, fingerprint},
    provider::is_signature_header,
};

use crate::{
    callback::Callback, decision::IntakeRecord, delivery::ClaimProof,
    quarantine::QuarantineRelease, store::NextStep,
};

/// A request without its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The path after the source's name, with its leading `/`.
    pub path: String,
    /// Without the question mark.
    pub query: Option<String>,
    pub headers: HeaderBlock,
    /// Address of the sender. Shared by all requests of one connection.
    pub remote: Arc<str>,
}

/// Whether a header belongs to the sender's connection or is meant for the gateway only, so that
/// destinations never get it.
pub fn is_never_forwarded(name: &str) -> bool {
    matches!(
        name,
        "accept-encoding"
            | "authorization"
            | "connection"
            | "content-length"
            | "cookie"
            | "expect"
            | "forwarded"
            | "host"
            | "keep-alive"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "via"
            | "x-real-ip"
    ) || name.starts_with("x-forwarded-")
}

impl RequestHead {
    /// The head for a changed body of the same media type: drops signatures and everything computed
    /// from the original bytes. Keeps `content-encoding` unless the new body contradicts it.
    pub fn for_changed_body(&self, body: &[u8]) -> Self {
        let contradicts_encoding = inflate::has_wrong_encoding_header(&self.headers.to_map(), body);
        self.retain_headers(|name| match name {
            "content-type" => true,
            "content-encoding" => !contradicts_encoding,
            _ => !BODY_HEADERS.contains(&name) && !is_signature_header(name),
        })
    }

    /// The head for a JSON body that replaces the original: drops signatures and all headers about
    /// the original bytes.
    pub fn for_json_body(&self) -> Self {
        let mut headers = HeaderBlock(b"content-type: application/json\r\n".to_vec());
        for (name, value) in self.headers.lines() {
            let describes_body = BODY_HEADERS.iter().any(|other| other.eq_ignore_ascii_case(name));
            if !describes_body && !is_signature_header(name) {
                headers.push(name.as_bytes(), value);
            }
        }
        Self { headers, ..self.clone() }
    }

    /// The head with only the headers for whose names, in lower case, `is_kept` holds.
    fn retain_headers(&self, is_kept: impl Fn(&str) -> bool) -> Self {
        let mut headers = HeaderBlock::default();
        for (name, value) in self.headers.lines() {
            if is_kept(&name.to_ascii_lowercase()) {
                headers.push(name.as_bytes(), value);
            }
        }
        Self { headers, ..self.clone() }
    }
}

/// Headers as raw lines, `name: value\r\n`: keeps order, repetitions and bytes that are not UTF-8,
/// and is still readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderBlock(Vec<u8>);

impl HeaderBlock {
    pub fn from_map(map: &HeaderMap) -> Self {
        let mut block = Self(Vec::with_capacity(map.len() * 64));
        for (name, value) in map {
            block.push(name.as_str().as_bytes(), value.as_bytes());
        }
        block
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }

    /// The same headers, with the mask as the value of those that are secret.
    #[must_use]
    pub fn with_masked(&self, is_secret: impl Fn(&str) -> bool) -> Self {
        let mut masked = Self(Vec::with_capacity(self.0.len()));
        for (name, value) in self.lines() {
            let value = if is_secret(name) { redact::MASK.as_bytes() } else { value };
            masked.push(name.as_bytes(), value);
        }
        masked
    }

    /// From the bytes stored in a database.
    pub fn from_bytes(block: Vec<u8>) -> Self {
        Self(block)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // The HTTP parser allows neither CR nor LF in a value, so the split is exact.
        self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.windows(2).position(|pair| pair == b": ")?;
            Some((std::str::from_utf8(&line[..colon]).ok()?, &line[colon + 2..]))
        })
    }

    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in self.lines() {
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_bytes(value))
            {
                map.append(name, value);
            }
        }
        map
    }
}

/// The request of an event as it is stored and sent to destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    pub head: Arc<RequestHead>,
    /// The exact bytes received.
    pub body: Bytes,
    /// SHA-256 of the body.
    pub fingerprint: [u8; 32],
}

/// Headers that describe the exact bytes of a body and are wrong for any other body.
const BODY_HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "content-length",
    "content-md5",
    "content-digest",
    "digest",
];

impl Payload {
    /// The same request with the secrets in body and headers masked. Fails if the body cannot be
    /// searched reliably.
    pub fn without_secrets(&self, names: &SecretNames) -> Result<Self, UnreadableBodyError> {
        let stripped = redact::strip_secrets(&self.head.headers.to_map(), &self.body, names)?;
        let has_changed = stripped.fields > 0;
        let head = self.head.retain_headers(|name| match name {
            "content-type" => true,
            "content-encoding" => !stripped.is_unpacked,
            _ => {
                let describes_body = BODY_HEADERS.contains(&name) || is_signature_header(name);
                !(has_changed && describes_body || names.is_secret_parameter(name))
            }
        });
        let body = match stripped.body {
            Cow::Borrowed(_) => self.body.clone(),
            Cow::Owned(body) => Bytes::from(body),
        };
        Ok(Self { head: Arc::new(head), fingerprint: fingerprint(&body), body })
    }

    /// The same request with the output of a transform, which is always JSON, as its body.
    pub fn with_transformed_body(&self, body: Bytes) -> Self {
        Self { head: Arc::new(self.head.for_json_body()), fingerprint: fingerprint(&body), body }
    }
}

string_enum! {
    /// How a request with a known dedup key but another body is treated.
    pub enum ConflictPolicy {
        /// A new event with a key conflict.
        Accept = "accept",
        /// A duplicate; its body is stored with the original.
        Duplicate = "duplicate",
    }
}

/// A dedup key to be claimed for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupKeyClaim {
    pub key: DedupKey,
    pub namespace: KeyNamespace,
    pub origin: KeyOrigin,
    /// Another event with this key is a duplicate until then.
    pub expires_at: Timestamp,
    /// The time at which expiry is judged: an event whose key another event holds, not expired by then,
    /// is a duplicate. The time of receipt, or an earlier one while the clock is in doubt.
    pub as_of: Timestamp,
    /// `None` if the key stands for the whole request, so that its body is not compared.
    pub on_conflict: Option<ConflictPolicy>,
}

impl DedupKeyClaim {
    pub fn digest(&self, source: SourceId) -> KeyDigest {
        KeyDigest::in_namespace(source, self.namespace, &self.key)
    }
}

/// The signed content of a request, claimed besides the dedup key: received again under another key, it
/// is a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedBytesClaim {
    pub digest: KeyDigest,
    pub window: KeyWindow,
}

/// The time for which a key is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyWindow {
    pub expires_at: Timestamp,
    /// See [`DedupKeyClaim::as_of`].
    pub as_of: Timestamp,
}

string_enum! {
    /// Why an event is a duplicate.
    #[derive(Default)]
    pub enum DuplicateReason {
        /// It has the dedup key of the original.
        #[default]
        SameKey = "same_key",
        /// It has the signed content of the original under another key.
        SameSignedBytes = "same_signed_bytes",
    }
}

/// One of the stored duplicates of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateId {
    pub event: EventId,
    /// Number of the duplicate within its event, from 1.
    pub n: u32,
}

/// An event to be stored, with its deliveries.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub id: EventId,
    pub request_id: RequestId,
    pub source: SourceId,
    pub received_at: Timestamp,
    /// Without a key and signed bytes it is never a duplicate.
    pub key: Option<DedupKeyClaim>,
    pub signed_bytes: Option<SignedBytesClaim>,
    /// The key that versions without [`KeyNamespace`]s gave the event, if it is another one. It is looked
    /// up among the keys that they stored, with the same body only, and not claimed.
    pub earlier_key: Option<DedupKey>,
    /// The fingerprint that is compared with other bodies under its key; that of the bytes if `None`.
    pub compared_fingerprint: Option<[u8; 32]>,
    /// Whether a known key with another body makes the request refused, instead of a duplicate or a new
    /// event: one of the two bodies is forged.
    pub refuses_other_body: bool,
    /// The provider's event type, if known.
    pub kind: Option<EventKind>,
    /// Searchable attributes.
    pub attributes: Attributes,
    pub payload: Payload,
    pub deliveries: Vec<NewDelivery>,
    /// Whether this event, if it is a duplicate, redelivers its original whose deliveries are all dead.
    pub revive_dead: bool,
    pub intake: IntakeRecord,
    /// The duplicate that a user decided to deliver anyway as this event. Each duplicate becomes an
    /// event once. Nothing is admitted if the duplicate is no longer stored.
    pub from_duplicate: Option<DuplicateId>,
    /// The quarantined request to remove in the same transaction.
    pub releases: Option<QuarantineRelease>,
    /// A status of a message we sent; applied in the same transaction if the event is admitted.
    pub status_update: Option<StatusUpdate>,
    /// Bodies of the deliveries whose route has a transform, or a filter that failed.
    pub bodies: Vec<NewDeliveryBody>,
}

impl NewEvent {
    /// The fingerprint that is compared with other bodies under its key.
    pub fn compared_fingerprint(&self) -> &[u8; 32] {
        self.compared_fingerprint.as_ref().unwrap_or(&self.payload.fingerprint)
    }
}

/// A provider's status of a message that we sent.
///
/// It applies to the newest delivery of `event` to `destination`:
///
/// - Attempted and waiting: moved at once.
/// - In flight: applied when the attempt ends, even if the attempt was never recorded; see
///   [`DeliveryStore::settle`](crate::store::DeliveryStore::settle).
/// - Ended or never attempted: unchanged. Also unchanged if `sent_id` is known to belong to an
///   earlier delivery.
///
/// [`ProviderStatus::Sent`] also applies to a delivery that is dead with an ambiguous outcome, and to
/// one that was never attempted and replaces such a delivery, unless the earlier message is known by
/// another id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// The event of the message.
    pub event: EventId,
    pub destination: DestinationId,
    /// When the status was received.
    pub at: Timestamp,
    /// The provider's id of the message.
    pub sent_id: Option<String>,
    pub status: ProviderStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderStatus {
    /// The provider has the message.
    Sent,
    /// The message failed; the delivery continues with this step.
    Failed(NextStep),
}

impl ProviderStatus {
    /// The next step of a waiting delivery.
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Sent => NextStep::Succeeded,
            Self::Failed(next) => next,
        }
    }

    /// The next step after an attempt during which this status arrived. The attempt's own result wins
    /// over a reported failure unless it was ambiguous. A reported success always wins: if this
    /// attempt was refused, an earlier one arrived, and a retry would send the message twice.
    pub fn apply_to_attempt(self, class: Option<FailureClass>, next: NextStep) -> NextStep {
        match (self, class) {
            (Self::Sent, _) | (Self::Failed(_), Some(FailureClass::Ambiguous)) => self.next_step(),
            (Self::Failed(_), _) => next,
        }
    }
}

/// The body of a delivery that differs from the body of its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeliveryBody {
    pub delivery: DeliveryId,
    /// The route with the transform or the failed filter.
    pub route: RouteId,
    /// `None` if the filter or the transform failed. It then runs again at each attempt; the original
    /// body is never sent instead.
    pub body: Option<Bytes>,
    /// The filter failed, and the transform, if any, was not run.
    pub filter_failed: bool,
}

/// A route that failed on an event when the event was received. It is applied again at each attempt, as
/// it is configured then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRoute {
    pub id: RouteId,
    /// The filter runs, too: it failed, so it is unknown whether the route takes the event.
    pub runs_filter: bool,
    /// The kind of the event.
    pub kind: Option<EventKind>,
}

/// A delivery to be created together with its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    pub id: DeliveryId,
    pub destination: DestinationId,
    /// Claimed by a lane from the start; `None` leaves it pending.
    pub claim: Option<ClaimProof>,
    /// Delay of the first attempt after the event was received. Not together with `claim`.
    pub delay: Duration,
    /// Deliveries to one destination with the same ordering key are attempted one at a time.
    pub order_key: Option<DedupKey>,
    /// Where the end of the delivery is reported.
    pub callback: Option<Arc<Callback>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_during_attempt_resolves_ambiguity_and_success_always_wins() {
        use surehook_retry::DeadReason;
        let (retry, later) =
            (NextStep::RetryAt(Timestamp::from_millis(1)), Timestamp::from_millis(2));
        let (parked, refused) =
            (NextStep::Dead(DeadReason::Ambiguous), NextStep::Dead(DeadReason::Unrecoverable));
        let failed = ProviderStatus::Failed(refused);
        let postponed = ProviderStatus::Failed(NextStep::RetryAt(later));
        let (unknown, throttled) = (Some(FailureClass::Ambiguous), Some(FailureClass::Throttled));
        let cases = [
            (ProviderStatus::Sent, unknown, retry, NextStep::Succeeded),
            (ProviderStatus::Sent, unknown, parked, NextStep::Succeeded),
            (ProviderStatus::Sent, throttled, retry, NextStep::Succeeded),
            (ProviderStatus::Sent, Some(FailureClass::Permanent), refused, NextStep::Succeeded),
            (failed, unknown, retry, refused),
            (failed, throttled, retry, retry),
            (failed, None, NextStep::Succeeded, NextStep::Succeeded),
            (postponed, unknown, parked, NextStep::RetryAt(later)),
        ];
        for (status, class, next, expected) in cases {
            assert_eq!(
                status.apply_to_attempt(class, next),
                expected,
                "{status:?} {class:?} {next:?}"
            );
        }
    }

    #[test]
    fn transformed_body_is_sent_as_json() {
        let block = b"Content-Type: text/xml\r\nx-a: 1\r\ncontent-encoding: gzip\r\ndigest: x\r\n";
        let head = RequestHead {
            headers: HeaderBlock::from_bytes(block.to_vec()),
            path: "/p".to_owned(),
            ..RequestHead::default()
        };
        let body = Bytes::from_static(b"<a/>");
        let original = Payload { head: Arc::new(head), fingerprint: fingerprint(&body), body };

        let sent = original.with_transformed_body(Bytes::from_static(b"{}"));

        let lines: Vec<_> = sent.head.headers.lines().collect();
        assert_eq!(lines, [("content-type", &b"application/json"[..]), ("x-a", b"1")]);
        assert_eq!((&*sent.body, sent.fingerprint), (&b"{}"[..], fingerprint(b"{}")));
        assert_eq!(sent.head.path, "/p");
    }

    #[test]
    fn changed_body_loses_signature_and_digest_headers() {
        let block = b"Content-Type: text/xml\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\
            Digest: x\r\nStripe-Signature: s\r\nx-a: 1\r\n";
        let headers = HeaderBlock::from_bytes(block.to_vec());
        let head = RequestHead { headers, path: "/p".to_owned(), ..RequestHead::default() };

        // An empty gzip stream.
        let packed =
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00";
        let with_encoding = b"Content-Type: text/xml\r\nContent-Encoding: gzip\r\nx-a: 1\r\n";
        let without_encoding = b"Content-Type: text/xml\r\nx-a: 1\r\n";
        for (body, expected) in [(&packed[..], &with_encoding[..]), (b"<a/>", without_encoding)] {
            let other = head.for_changed_body(body);
            assert_eq!((other.headers.as_bytes(), &*other.path), (expected, "/p"));
        }
    }

    #[test]
    fn payload_without_secrets_has_none_in_body_or_headers() {
        let payload = |headers: &str, body: &'static [u8]| {
            let headers = HeaderBlock::from_bytes(headers.replace('|', "\r\n").into_bytes());
            let head = Arc::new(RequestHead { headers, ..RequestHead::default() });
            let body = Bytes::from_static(body);
            Payload { head, fingerprint: fingerprint(&body), body }
        };
        let mut names = SecretNames::builtin();
        names.add_header("x-gate");
        let lines = "Content-Type: application/json|digest: d|Stripe-Signature: s|apikey: k|X-Gate: g|x-a: 1|";
        let strip = |body| payload(lines, body).without_secrets(&names).unwrap();

        let changed = strip(b"{\"apikey\":\"k\"}");
        assert_eq!(changed.body, "{\"apikey\":\"•••\"}");
        assert_eq!(changed.fingerprint, fingerprint(&changed.body));
        let headers = changed.head.headers.as_bytes();
        assert_eq!(headers, b"Content-Type: application/json\r\nx-a: 1\r\n");

        let same = strip(b"{ \"a\": 1 }");
        assert_eq!(same.body, "{ \"a\": 1 }");
        let headers = same.head.headers.as_bytes();
        assert_eq!(
            headers,
            b"Content-Type: application/json\r\ndigest: d\r\nStripe-Signature: s\r\nx-a: 1\r\n"
        );

        assert_eq!(
            payload(lines, b"<a/>").without_secrets(&names),
            Err(UnreadableBodyError::Unknown)
        );
        let packed = payload("content-encoding: br|", b"{}");
        assert_eq!(packed.without_secrets(&names), Err(UnreadableBodyError::Packed));
    }

    #[test]
    fn header_block_keeps_repetitions_and_non_utf8_bytes() {
        let mut map = HeaderMap::new();
        map.append("x-a", HeaderValue::from_bytes(b"caf\xc3\xa9 \xff: x").unwrap());
        map.append("x-b", HeaderValue::from_static("1"));
        map.append("x-b", HeaderValue::from_static(""));

        let block = HeaderBlock::from_map(&map);

        assert_eq!(HeaderBlock::from_bytes(block.as_bytes().to_vec()).to_map(), map);
        assert_eq!(block.lines().count(), 3);
    }
}
