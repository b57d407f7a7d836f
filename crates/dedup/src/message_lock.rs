//! The plain lock of `SET key NX EX 86400`, for drop-in use.

use std::time::Duration;

use crate::{Claim, ClaimKey, ClaimRequest, DedupError, DedupLock, LimitError};

/// How long a message is remembered unless set.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Says for each message id once that it is new, over any [`DedupLock`].
///
/// This is what `SET key NX EX 86400` does, and it has the same limits:
///
/// - If the caller **crashes after `acquire`**, the retry of the sender is taken for a duplicate and the
///   message is **lost** for as long as it is remembered.
/// - There is no result for the duplicate, and no way to tell "being processed" from "done".
///
/// It is for code that has such a lock today. New code claims and completes instead, which needs one
/// more call and has neither limit: see [`DedupLock`].
///
/// ```
/// use surehook_dedup::{MemoryDedupLock, MessageDedupLock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), surehook_dedup::DedupError> {
/// let lock = MessageDedupLock::new(MemoryDedupLock::default(), "whatsapp")?;
/// assert!(lock.acquire("wamid.1").await?);
/// assert!(!lock.acquire("wamid.1").await?);
/// assert!(lock.acquire("wamid.2").await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MessageDedupLock<L> {
    lock: L,
    namespace: String,
    remember_for: Duration,
}

impl<L: DedupLock> MessageDedupLock<L> {
    /// Remembers each message for 24 hours in a namespace.
    pub fn new(lock: L, namespace: &str) -> Result<Self, LimitError> {
        ClaimKey::new(namespace, "any")?;
        Ok(Self { lock, namespace: namespace.to_owned(), remember_for: DAY })
    }

    /// Remembers each message for so long, at most [`LEASE_MAX`](crate::claim::LEASE_MAX).
    #[must_use]
    pub fn remember_for(mut self, span: Duration) -> Self {
        self.remember_for = span;
        self
    }

    /// Whether the message is new: `true` exactly once while it is remembered.
    pub async fn acquire(&self, source_id: &str) -> Result<bool, DedupError> {
        let request = ClaimRequest {
            key: ClaimKey::new(&self.namespace, source_id)?,
            fingerprint: None,
            lease: self.remember_for,
            ttl: self.remember_for,
        };
        Ok(matches!(self.lock.claim(request).await?, Claim::Claimed(_)))
    }
}
