//! Requests that were not let in and are kept whole, because their sender never sends them again
//! after it was told that they are wrong.
//!
//! They are answered with 503 once they are on the disk. A person looks at them, mends the secret,
//! and releases them: then they go the ordinary way, as if they came now.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{
    event::HeaderBlock,
    ids::{RequestId, SourceId},
    store::{PageRequest, StoreError},
    time::Timestamp,
};

/// Requests of one source that are kept; the oldest makes room.
pub const QUARANTINE_REQUESTS_MAX: u64 = 10_000;
/// The bytes of all requests of one source that are kept, if nothing else is said; what strangers
/// sent makes room first, then the oldest.
pub const QUARANTINE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The largest body that is kept of a request that shows no credential at all.
pub const UNAUTHENTICATED_BODY_MAX: usize = 1024 * 1024;
/// How long one is kept after it came last.
pub const QUARANTINE_RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// What the story of an event says that did not verify and was let in by a person.
pub const MANUALLY_RELEASED: &str = "released by hand";

/// A request as it came, to be kept aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRequest {
    /// Its id.
    pub id: RequestId,
    /// The source it was for.
    pub source: SourceId,
    /// When it came first.
    pub received_at: Timestamp,
    /// When it came last; the headers are those of that time.
    pub seen_at: Timestamp,
    /// How often it came.
    pub times: u64,
    /// Why it was not let in: a stable word.
    pub code: String,
    /// Its method.
    pub method: String,
    /// What follows the source's name in the path.
    pub path: String,
    /// Its query.
    pub query: Option<String>,
    /// Who sent it.
    pub remote: String,
    /// Its headers, all of them.
    pub headers: HeaderBlock,
    /// The length of its body.
    pub body_bytes: u64,
    /// Its body. Lists do not bring it.
    pub body: Option<Bytes>,
}

impl QuarantinedRequest {
    /// Tells the same request that came again from another one. Headers play no part: a sender
    /// that tries again writes the time anew.
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

/// What leaves the quarantine together with an event that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineRelease {
    /// The request that the event comes from. If it is not there any more, nothing is admitted.
    Request(RequestId),
    /// A request of this fingerprint, if there is one: its sender came again and was let in.
    Same([u8; 32]),
}

/// What became of a wish to keep a request aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineResult {
    /// Its id: that of the first time, if it came before. None if it was not kept: it shows no
    /// credential, and would have pushed out what does.
    pub id: Option<RequestId>,
    /// Older ones that made room for it.
    pub pushed_out: u64,
}

/// What the quarantine needs of a store.
#[async_trait]
pub trait QuarantineStore: Send + Sync {
    /// Keeps a request, or notes that it came again. After `Ok` it survives a power cut. All of a
    /// source may have so many bytes of headers and bodies.
    async fn quarantine(
        &self,
        request: QuarantinedRequest,
        bytes_max: u64,
    ) -> Result<QuarantineResult, StoreError>;

    /// Requests in quarantine without their bodies, newest first; of one source or of all.
    async fn list_quarantined(
        &self,
        source: Option<SourceId>,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<QuarantinedRequest>, StoreError>;

    /// The ids of a source's, oldest first: the order in which they are released.
    async fn list_quarantined_ids(
        &self,
        source: SourceId,
        page: PageRequest<RequestId>,
    ) -> Result<Vec<RequestId>, StoreError>;

    /// One with its body.
    async fn find_quarantined(
        &self,
        id: RequestId,
    ) -> Result<Option<QuarantinedRequest>, StoreError>;

    /// Whether a source may have any, as far as memory knows: asked for each request that is let in.
    fn may_have_quarantined(&self, source: SourceId) -> bool;

    /// Throws one away; `false` if it is not there. One whose events are admitted goes with them,
    /// see [`NewEvent::releases`](crate::event::NewEvent::releases).
    async fn discard_quarantined(&self, id: RequestId) -> Result<bool, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_is_the_same_whatever_its_headers_say() {
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
