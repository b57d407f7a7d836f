//! The values of the trait: keys, tokens, requests and answers, with their limits.

use std::{fmt, str::FromStr, time::Duration};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use surehook_types::time::Timestamp;

use crate::{DedupError, LimitError};

/// Largest namespace of a key, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 100;
/// Largest name of a key, in bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// Largest stored result, in bytes.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Shortest lease.
pub const LEASE_MIN: Duration = Duration::from_millis(10);
/// Longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest time for which a key is remembered.
pub const TTL_MAX: Duration = Duration::from_secs(400 * 24 * 3600);
/// Maximum number of items of one [`claim_many`](crate::DedupLock::claim_many) or
/// [`complete_many`](crate::DedupLock::complete_many).
pub const BATCH_MAX: usize = 100;

/// A key: a name within a namespace. Equal names in two namespaces are different keys.
///
/// ```
/// use surehook_dedup::ClaimKey;
///
/// let key = ClaimKey::new("whatsapp", "wamid.HBgMNTUxMTk5")?;
/// assert_eq!(key.to_string(), "whatsapp/wamid.HBgMNTUxMTk5");
/// assert!(ClaimKey::new("whatsapp", "").is_err());
/// # Ok::<(), surehook_dedup::LimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    namespace: Box<str>,
    name: Box<str>,
}

impl ClaimKey {
    /// A namespace has 1 to [`NAMESPACE_BYTES_MAX`] ASCII letters, digits and `. _ : -`. A name has 1
    /// to [`NAME_BYTES_MAX`] bytes of UTF-8 without control characters.
    pub fn new(namespace: &str, name: &str) -> Result<Self, LimitError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        if !(1..=NAMESPACE_BYTES_MAX).contains(&namespace.len()) || !namespace.bytes().all(is_plain)
        {
            return Err(LimitError::Namespace);
        }
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(LimitError::Name);
        }
        Ok(Self { namespace: namespace.into(), name: name.into() })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// `namespace/name`. A namespace contains no slash, so two keys never look the same.
impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Proves that a caller holds a claim: 16 random bytes, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimToken([u8; 16]);

impl ClaimToken {
    /// A token from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the token.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// The first bytes only: a token is the right to complete a claim and does not belong in logs.
impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimToken({}…)", HEXLOWER.encode(&self.0[..2]))
    }
}

impl FromStr for ClaimToken {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| LimitError::Token)?;
        bytes.try_into().map(Self).map_err(|_| LimitError::Token)
    }
}

/// SHA-256 of what makes a request: two requests with one key and two fingerprints are a mistake of
/// the caller ([`Claim::OtherFingerprint`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of the parts of a request, in order. The length of each part counts: `["ab",
    /// "c"]` and `["a", "bc"]` differ.
    ///
    /// ```
    /// use surehook_dedup::Fingerprint;
    ///
    /// let first = Fingerprint::of(&[b"POST", b"/orders", b"{\"id\":1}"]);
    /// assert_ne!(first, Fingerprint::of(&[b"POST", b"/orders", b"{\"id\":2}"]));
    /// ```
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// A fingerprint that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the fingerprint.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Asks for a key, see [`DedupLock::claim`](crate::DedupLock::claim).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The key to claim.
    pub key: ClaimKey,
    /// Identifies the content of the request; compared if both this and the earlier claim have one.
    pub fingerprint: Option<Fingerprint>,
    /// How long the caller may work before others may take over; [`LEASE_MIN`] to [`LEASE_MAX`].
    pub lease: Duration,
    /// How long the claim is remembered if it is never completed; from the lease to [`TTL_MAX`].
    pub ttl: Duration,
}

impl ClaimRequest {
    /// Checks lease and ttl. Every backend calls this first.
    pub fn check(&self) -> Result<(), DedupError> {
        check_lease(self.lease)?;
        check_ttl(self.ttl)?;
        if self.ttl < self.lease { Err(LimitError::TtlBelowLease.into()) } else { Ok(()) }
    }
}

/// Completes a claim, see [`DedupLock::complete`](crate::DedupLock::complete).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionRequest {
    /// The claimed key.
    pub key: ClaimKey,
    /// The token of the claim.
    pub token: ClaimToken,
    /// The result that later duplicates get; at most [`RESULT_BYTES_MAX`] bytes.
    pub result: Bytes,
    /// How long the result is remembered; [`LEASE_MIN`] to [`TTL_MAX`].
    pub ttl: Duration,
}

impl CompletionRequest {
    /// Checks result and ttl. Every backend calls this first.
    pub fn check(&self) -> Result<(), DedupError> {
        if self.result.len() > RESULT_BYTES_MAX {
            return Err(LimitError::Result(self.result.len()).into());
        }
        check_ttl(self.ttl)
    }
}

/// Checks the lease of a claim or an extension.
pub fn check_lease(lease: Duration) -> Result<(), DedupError> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) { Ok(()) } else { Err(LimitError::Lease.into()) }
}

fn check_ttl(ttl: Duration) -> Result<(), DedupError> {
    if (LEASE_MIN..=TTL_MAX).contains(&ttl) { Ok(()) } else { Err(LimitError::Ttl.into()) }
}

/// The answer to a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Claim {
    /// The key is yours: do the work, then complete or release.
    Claimed(ClaimGrant),
    /// Another caller works on it.
    InProgress {
        /// When its lease ends, unless it is extended; at least 1 ms.
        retry_after: Duration,
    },
    /// The work is done, and this is its result.
    Completed(CompletedClaim),
    /// The key was used for a request with another fingerprint, which is in progress, was abandoned
    /// or is completed.
    OtherFingerprint,
}

/// A claim that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimGrant {
    /// Needed to extend, complete and release.
    pub token: ClaimToken,
    /// Grows with every grant of this key: hand it to what you write to, and let it refuse a
    /// smaller one than it has seen.
    pub fence: u64,
    /// Stays the same when the key is claimed again because a lease ran out.
    pub operation: ClaimOperation,
    /// Whether an earlier holder of this operation let its lease run out: its work may be half done.
    pub is_resumed: bool,
}

/// One piece of work, the same over all attempts at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimOperation {
    /// 16 random bytes.
    pub id: [u8; 16],
    /// When it was claimed first.
    pub started_at: Timestamp,
}

impl ClaimOperation {
    /// An id for something that the work creates: the same for every attempt, so it is created once.
    ///
    /// ```
    /// use surehook_dedup::{ClaimOperation, Timestamp};
    ///
    /// let first = ClaimOperation { id: [7; 16], started_at: Timestamp::from_millis(0) };
    /// assert_eq!(first.derive_id("order"), first.derive_id("order"));
    /// assert_ne!(first.derive_id("order"), first.derive_id("invoice"));
    /// ```
    pub fn derive_id(&self, label: &str) -> [u8; 16] {
        let digest: [u8; 32] = Fingerprint::of(&[&self.id, label.as_bytes()]).0;
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        id
    }
}

/// A claim whose work is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedClaim {
    /// The result that the holder stored.
    pub result: Bytes,
    /// The fence of the grant that completed it.
    pub fence: u64,
    /// The operation that completed it.
    pub operation: ClaimOperation,
    /// When it was completed.
    pub completed_at: Timestamp,
    /// How much longer it is remembered.
    pub expires_in: Duration,
}

/// The answer to extend, complete and release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ClaimUpdate {
    /// The token was current, and the change is made.
    Applied,
    /// The claim is no longer yours: its lease ran out and it was claimed again, it was released or
    /// completed, or it is forgotten. Nothing was changed. Undo or drop your work, or rely on the
    /// fence having stopped it.
    StaleToken,
}

impl ClaimUpdate {
    /// Whether the change was made.
    pub fn is_applied(self) -> bool {
        self == Self::Applied
    }
}
