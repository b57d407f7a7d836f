//! Quarantine: requests that failed verification and are stored completely, because their sender
//! would not send them again after a 4xx.
//!
//! They are answered with 503 once they are durable. After the secret is fixed a user releases them,
//! and they are processed as if they had just arrived.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use surehook_types::{
    ids::{RequestId, SourceId},
    store_error::StoreError,
    time::Timestamp,
};

use crate::{event::HeaderBlock, store::PageRequest};

/// Maximum number of quarantined requests per source.
pub const QUARANTINE_REQUESTS_MAX: u64 = 10_000;
/// Default limit of the bytes of all quarantined requests of a source.
pub const QUARANTINE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// One part in this many of a source's quarantine is the share of one address. While the quarantine is
/// full, an address beyond its share loses its oldest requests to others; within it, it loses none.
pub const QUARANTINE_SHARES: u64 = 8;
/// The largest body of a request without any credential that is quarantined.
pub const UNAUTHENTICATED_BODY_MAX: usize = 64 * 1024;
/// How long a request is kept after it was last received.
pub const QUARANTINE_RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// Stored as `verified_by` of an event that did not verify and was released by a user.
pub const MANUALLY_RELEASED: &str = "released by hand";

/// A quarantined request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRequest {
    pub id: RequestId,
    pub source: SourceId,
    /// When it was first received.
    pub received_at: Timestamp,
    /// When it was last received; the headers are of that time.
    pub seen_at: Timestamp,
    /// How often it was received.
    pub times: u64,
    /// Why it was refused: a stable code.
    pub code: String,
    pub method: String,
    /// The path after the source's name.
    pub path: String,
    pub query: Option<String>,
    /// Address of the sender.
    pub remote: String,
    pub headers: HeaderBlock,
    pub body_bytes: u64,
    /// Not loaded in lists.
    pub body: Option<Bytes>,
}

impl QuarantinedRequest {
    /// Identifies repetitions of the same request. Headers are left out: a sender that retries
    /// updates the timestamp.
    pub fn fingerprint(&self) -> [u8; 32] {
        let body = self.body.as_deref().unwrap_or_default();
        fingerprint(&self.path, self.query.as_deref(), body)
    }
}

/// See [`QuarantinedRequest::fingerprint`].
pub fn fingerprint(path: &str, query: Option<&str>, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [path, query.unwrap_or_default()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(body);
    hash.finalize().into()
}

/// The quarantined request to remove when an event is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineRelease {
    /// The request that the event comes from. If it is gone, nothing is admitted.
    Request(RequestId),
    /// A request with this fingerprint, if any: its sender retried and was accepted.
    Same([u8; 32]),
}

/// The result of quarantining a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineResult {
    /// The id, that of the first time if it was received before. `None` if it was not kept: it would
    /// have displaced a request of another address within its share, or one with credentials although
    /// it has none.
    pub id: Option<RequestId>,
    /// Number of older requests dropped for it.
    pub evicted: u64,
}

/// The store operations of the quarantine.
#[async_trait]
pub trait QuarantineStore: Send + Sync {
    /// Stores a request, or counts a repetition. Durable after `Ok`. `bytes_max` limits what is
    /// stored of all requests of the source: their bodies and, encrypted, their heads. In a full
    /// quarantine a new request displaces, in this order: one without credentials, if it has some; the
    /// oldest of an address beyond its share; the oldest of its own address; itself.
    async fn quarantine(
        &self,
        request: QuarantinedRequest,
        bytes_max: u64,
    ) -> Result<QuarantineResult, StoreError>;

    /// Quarantined requests without bodies, newest first; of one source or of all.
    async fn list_quarantined(
        &self,
        source: Option<SourceId>,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<QuarantinedRequest>, StoreError>;

    /// The ids of a source's requests, oldest first: the order of release.
    async fn list_quarantined_ids(
        &self,
        source: SourceId,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RequestId>, StoreError>;

    /// A request with its body.
    async fn find_quarantined(
        &self,
        id: RequestId,
    ) -> Result<Option<QuarantinedRequest>, StoreError>;

    /// Whether the source may have quarantined requests. Answered from memory, because every
    /// accepted request asks. `true` is always correct: a store that other processes use answers that.
    fn may_have_quarantined(&self, source: SourceId) -> bool;

    /// Deletes a request; `false` if there is none. Admitting its events deletes it too, see
    /// [`NewEvent::releases`](crate::event::NewEvent::releases).
    async fn discard_quarantined(&self, id: RequestId) -> Result<bool, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_ignores_headers_and_covers_path_query_and_body() {
        let request = |path: &str, query: Option<&str>, headers: &[u8], body: &'static [u8]| {
            QuarantinedRequest {
                id: RequestId::new(Timestamp::default(), 1),
                source: SourceId::new(Timestamp::default(), 2),
                received_at: Timestamp::default(),
                seen_at: Timestamp::default(),
                times: 1,
                code: "mismatch".to_owned(),
                method: "POST".to_owned(),
                path: path.to_owned(),
                query: query.map(str::to_owned),
                remote: String::new(),
                headers: HeaderBlock::from_bytes(headers.to_vec()),
                body_bytes: body.len() as u64,
                body: Some(Bytes::from_static(body)),
            }
            .fingerprint()
        };
        let first = request("/a", Some("b"), b"x: 1\r\n", b"c");
        assert_eq!(first, request("/a", Some("b"), b"x: 2\r\n", b"c"));
        for other in [
            request("/ab", None, b"", b"c"),
            request("/a", Some("bc"), b"", b""),
            request("/a", Some("b"), b"", b"d"),
        ] {
            assert_ne!(first, other);
        }
    }
}
