//! An event and the request that brought it, byte for byte.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    attribute::{Attributes, EventKind},
    decision::IntakeRecord,
    delivery::FailureClass,
    delivery::Lease,
    ids::{DeliveryId, DestinationId, EventId, RequestId, RouteId, SourceId},
    inflate,
    key::{DedupKey, fingerprint},
    provider::is_signature_header,
    quarantine::QuarantineRelease,
    redact::{self, SecretNames, UnreadableBodyError},
    store::NextStep,
    time::Timestamp,
};

/// All of a request but its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// What follows the source's name in the path, `/` included.
    pub path: String,
    /// The query without the question mark.
    pub query: Option<String>,
    /// The headers in the order in which they came, as a block of `name: value` lines.
    pub headers: HeaderBlock,
    /// Who sent it. Shared by all that came over one connection.
    pub remote: Arc<str>,
}

/// Whether a header belongs to the connection of whoever sent it, or was meant for us alone: it does
/// not travel on.
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
    /// The same for other bytes of the same sort: no signature stays, and nothing that was worked out
    /// from the bytes that came. How they are packed stays, unless these are not.
    pub fn for_changed_body(&self, body: &[u8]) -> Self {
        let is_belied = inflate::has_wrong_encoding_header(&self.headers.to_map(), body);
        let mut headers = HeaderBlock::default();
        for (name, value) in self.headers.lines() {
            let lower = name.to_ascii_lowercase();
            let of_the_bytes = OF_THE_BYTES.contains(&lower.as_str())
                && lower != "content-type"
                && (lower != "content-encoding" || is_belied);
            if !of_the_bytes && !is_signature_header(&lower) {
                headers.push(name.as_bytes(), value);
            }
        }
        Self { headers, ..self.clone() }
    }

    /// The same for another body, which is JSON: nothing stays that speaks of the bytes that came,
    /// and no signature over them.
    pub fn for_json_body(&self) -> Self {
        let mut headers = HeaderBlock(b"content-type: application/json\r\n".to_vec());
        for (name, value) in self.headers.lines() {
            let of_the_bytes = OF_THE_BYTES.iter().any(|other| other.eq_ignore_ascii_case(name));
            if !of_the_bytes && !is_signature_header(name) {
                headers.push(name.as_bytes(), value);
            }
        }
        Self { headers, ..self.clone() }
    }
}

/// Headers as raw lines, `name: value\r\n`: the one form that keeps order, repeats and bytes that
/// are not text, and that can still be read with the bare eye.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderBlock(Vec<u8>);

impl HeaderBlock {
    /// Writes the lines down.
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

    /// As it is kept in a database.
    pub fn from_bytes(block: Vec<u8>) -> Self {
        Self(block)
    }

    /// The raw lines.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Names and values, in order.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // A value holds neither CR nor LF (the HTTP parser sees to that), so the split is exact.
        self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.windows(2).position(|pair| pair == b": ")?;
            Some((std::str::from_utf8(&line[..colon]).ok()?, &line[colon + 2..]))
        })
    }

    /// The same as a map.
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

/// What is stored of an event and sent to destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// How it came.
    pub head: Arc<RequestHead>,
    /// What came, exactly.
    pub body: Bytes,
    /// The SHA-256 of the body.
    pub fingerprint: [u8; 32],
}

/// Headers that say something about the bytes of a body, and nothing about another one.
const OF_THE_BYTES: [&str; 6] = [
    "content-type",
    "content-encoding",
    "content-length",
    "content-md5",
    "content-digest",
    "digest",
];

impl Payload {
    /// The same request without the secrets in its body and its headers. Fails if nobody can say for
    /// sure what they are.
    pub fn without_secrets(&self, names: &SecretNames) -> Result<Self, UnreadableBodyError> {
        let sent = redact::strip_secrets(&self.head.headers.to_map(), &self.body, names)?;
        let has_changed = sent.fields > 0;
        let stays = |name: &str| match name.to_ascii_lowercase().as_str() {
            "content-type" => true,
            "content-encoding" => !sent.unpacked,
            other => {
                let of_the_bytes = OF_THE_BYTES.contains(&other) || is_signature_header(other);
                !(has_changed && of_the_bytes || names.is_secret_parameter(other))
            }
        };
        let mut headers = HeaderBlock::default();
        for (name, value) in self.head.headers.lines().filter(|(name, _)| stays(name)) {
            headers.push(name.as_bytes(), value);
        }
        let head = Arc::new(RequestHead { headers, ..(*self.head).clone() });
        let body = match sent.body {
            Cow::Borrowed(_) => self.body.clone(),
            Cow::Owned(body) => Bytes::from(body),
        };
        Ok(Self { head, fingerprint: fingerprint(&body), body })
    }

    /// The same request with the outcome of a transform in place of its body. Whatever the body was
    /// before, it is JSON now.
    pub fn with_transformed_body(&self, body: Bytes) -> Self {
        Self { head: Arc::new(self.head.for_json_body()), fingerprint: fingerprint(&body), body }
    }
}

/// A key and how long it is to be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupKeyClaim {
    /// The key.
    pub key: DedupKey,
    /// Until when a second one is a duplicate.
    pub expires_at: Timestamp,
}

/// One of the duplicates that are kept of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateId {
    /// The event.
    pub event: EventId,
    /// Its number, from 1.
    pub n: u32,
}

/// An event that asks to be admitted, with the deliveries it owes.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its id, if it is admitted.
    pub id: EventId,
    /// The request it came with.
    pub request_id: RequestId,
    /// Its source.
    pub source: SourceId,
    /// When it came.
    pub received_at: Timestamp,
    /// What makes it the same as another; `None` means that it is never a duplicate.
    pub key: Option<DedupKeyClaim>,
    /// What sort of thing happened, if the source can tell.
    pub kind: Option<EventKind>,
    /// What it can be found by.
    pub attributes: Attributes,
    /// What came.
    pub payload: Payload,
    /// Where it has to go.
    pub deliveries: Vec<NewDelivery>,
    /// Whether it revives the original if it is a duplicate and all of that is dead.
    pub revive_dead: bool,
    /// What was decided on the way in.
    pub intake: IntakeRecord,
    /// The duplicate that it is made of, because a person says that it is none. A duplicate becomes
    /// an event once. If it is not kept any more, nothing is admitted.
    pub from_duplicate: Option<DuplicateId>,
    /// What leaves the quarantine in the same step.
    pub releases: Option<QuarantineRelease>,
    /// What it says of something that we sent; heard in the same step, if it is admitted.
    pub status_update: Option<StatusUpdate>,
    /// What is sent in place of the body, for those deliveries whose route transforms it.
    pub bodies: Vec<NewDeliveryBody>,
}

/// What a status says of a message that we sent.
///
/// It is about the newest delivery of `event` to `destination`. One that has been tried and waits is
/// moved by it; one that is being tried hears of it when the attempt has ended, see
/// [`DeliveryStore::settle`](crate::store::DeliveryStore::settle), also if nothing was recorded of
/// that; one that has ended, or was never tried, is left alone. So is every one if the service's name
/// for the message is known to be that of an earlier delivery.
///
/// That the service has the message is heard by two more: one that is dead because nobody knew
/// whether it arrived, and one that was never tried and took over from such a one, unless what that
/// sent is known by another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// The event that the message is.
    pub event: EventId,
    /// Where it went.
    pub destination: DestinationId,
    /// When we were told.
    pub at: Timestamp,
    /// What the service calls the message.
    pub sent_id: Option<String>,
    /// What it says.
    pub status: ProviderStatus,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderStatus {
    /// The service has it.
    Sent,
    /// It failed, and this follows.
    Failed(NextStep),
}

impl ProviderStatus {
    /// What follows for a delivery that waits.
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Sent => NextStep::Succeeded,
            Self::Failed(next) => next,
        }
    }

    /// What follows an attempt during which this was said. What the attempt itself was told holds
    /// against a failure. That the service has the message holds against all: if this attempt was
    /// refused, an earlier one has arrived, and a person who sent it again would send it twice.
    pub fn apply_to_attempt(self, class: Option<FailureClass>, next: NextStep) -> NextStep {
        match (self, class) {
            (Self::Sent, _) | (Self::Failed(_), Some(FailureClass::Ambiguous)) => self.next_step(),
            (Self::Failed(_), _) => next,
        }
    }
}

/// The body of one delivery, where it is not that of its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeliveryBody {
    /// Whose it is.
    pub delivery: DeliveryId,
    /// The route whose transform made it.
    pub route: RouteId,
    /// What is sent; `None` if the transform failed. Then it is tried again at each attempt, and
    /// the original is not sent in its place.
    pub body: Option<Bytes>,
}

/// A delivery to be created together with its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub destination: DestinationId,
    /// Taken by a lane from the start; `None` leaves it pending in the store.
    pub claim: Option<Lease>,
    /// Its first attempt comes no earlier than this long after its event. Goes without a claim.
    pub delay: Duration,
    /// Of those to the same destination with the same ordering key, one at a time is tried.
    pub order_key: Option<DedupKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_decides_what_nobody_knows_and_stops_what_has_arrived() {
        use crate::delivery::DeadReason;
        let (again, later) =
            (NextStep::RetryAt(Timestamp::from_millis(1)), Timestamp::from_millis(2));
        let (parked, refused) =
            (NextStep::Dead(DeadReason::Ambiguous), NextStep::Dead(DeadReason::Unrecoverable));
        let failed = ProviderStatus::Failed(refused);
        let put_off = ProviderStatus::Failed(NextStep::RetryAt(later));
        let (unknown, throttled) = (Some(FailureClass::Ambiguous), Some(FailureClass::Throttled));
        let cases = [
            (ProviderStatus::Sent, unknown, again, NextStep::Succeeded),
            (ProviderStatus::Sent, unknown, parked, NextStep::Succeeded),
            (ProviderStatus::Sent, throttled, again, NextStep::Succeeded),
            (ProviderStatus::Sent, Some(FailureClass::Permanent), refused, NextStep::Succeeded),
            (failed, unknown, again, refused),
            (failed, throttled, again, again),
            (failed, None, NextStep::Succeeded, NextStep::Succeeded),
            (put_off, unknown, parked, NextStep::RetryAt(later)),
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
    fn a_transformed_body_is_json_whatever_came() {
        let block = b"Content-Type: text/xml\r\nx-a: 1\r\ncontent-encoding: gzip\r\ndigest: x\r\n";
        let head = RequestHead {
            headers: HeaderBlock::from_bytes(block.to_vec()),
            path: "/p".to_owned(),
            ..RequestHead::default()
        };
        let body = Bytes::from_static(b"<a/>");
        let came = Payload { head: Arc::new(head), fingerprint: fingerprint(&body), body };

        let sent = came.with_transformed_body(Bytes::from_static(b"{}"));

        let lines: Vec<_> = sent.head.headers.lines().collect();
        assert_eq!(lines, [("content-type", &b"application/json"[..]), ("x-a", b"1")]);
        assert_eq!((&*sent.body, sent.fingerprint), (&b"{}"[..], fingerprint(b"{}")));
        assert_eq!(sent.head.path, "/p");
    }

    #[test]
    fn other_bytes_have_no_signature_and_no_digest_of_the_first() {
        let block = b"Content-Type: text/xml\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\
            Digest: x\r\nStripe-Signature: s\r\nx-a: 1\r\n";
        let headers = HeaderBlock::from_bytes(block.to_vec());
        let head = RequestHead { headers, path: "/p".to_owned(), ..RequestHead::default() };

        // The empty text, packed.
        let packed =
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00";
        let kept = b"Content-Type: text/xml\r\nContent-Encoding: gzip\r\nx-a: 1\r\n";
        let dropped = b"Content-Type: text/xml\r\nx-a: 1\r\n";
        for (body, expected) in [(&packed[..], &kept[..]), (b"<a/>", dropped)] {
            let other = head.for_changed_body(body);
            assert_eq!((other.headers.as_bytes(), &*other.path), (expected, "/p"));
        }
    }

    #[test]
    fn a_stripped_request_has_no_secret_in_body_or_headers() {
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
        let kept = changed.head.headers.as_bytes();
        assert_eq!(kept, b"Content-Type: application/json\r\nx-a: 1\r\n");

        let same = strip(b"{ \"a\": 1 }");
        assert_eq!(same.body, "{ \"a\": 1 }");
        let kept = same.head.headers.as_bytes();
        assert_eq!(
            kept,
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
    fn headers_keep_repeats_and_bytes_that_are_not_text() {
        let mut map = HeaderMap::new();
        map.append("x-a", HeaderValue::from_bytes(b"caf\xc3\xa9 \xff: x").unwrap());
        map.append("x-b", HeaderValue::from_static("1"));
        map.append("x-b", HeaderValue::from_static(""));

        let block = HeaderBlock::from_map(&map);

        assert_eq!(HeaderBlock::from_bytes(block.as_bytes().to_vec()).to_map(), map);
        assert_eq!(block.lines().count(), 3);
    }
}
