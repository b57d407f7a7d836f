//! Errors, split by what the caller does next.

use crate::claim::{
    BATCH_MAX, LEASE_MAX, LEASE_MIN, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, RESULT_BYTES_MAX, TTL_MAX,
};

/// A call that cannot work. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// See [`ClaimKey::new`](crate::ClaimKey::new).
    #[error(
        "invalid namespace of a key; use 1 to {NAMESPACE_BYTES_MAX} ASCII letters, digits and . _ : -"
    )]
    Namespace,
    /// See [`ClaimKey::new`](crate::ClaimKey::new).
    #[error("invalid key; use 1 to {NAME_BYTES_MAX} bytes of UTF-8 without control characters")]
    Name,
    /// A token that no claim ever returned.
    #[error("invalid token; send the 32 hexadecimal digits that the claim returned")]
    Token,
    /// The lease is out of range.
    #[error("lease must be between {} ms and {} days", LEASE_MIN.as_millis(), LEASE_MAX.as_secs() / 86_400)]
    Lease,
    /// The ttl is out of range.
    #[error("ttl must be between {} ms and {} days", LEASE_MIN.as_millis(), TTL_MAX.as_secs() / 86_400)]
    Ttl,
    /// The claim would be forgotten while it is held.
    #[error("ttl must not be shorter than the lease")]
    TtlBelowLease,
    /// The result is too large.
    #[error(
        "result has {0} bytes and at most {RESULT_BYTES_MAX} can be stored; store a reference to it instead"
    )]
    Result(usize),
    /// The batch has too many items.
    #[error("batch has {0} items and at most {BATCH_MAX} are allowed; split it")]
    Batch(usize),
}

/// Why a call to a backend failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DedupError {
    /// The call is wrong: change it. Nothing was changed.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The backend holds as much as it may: try again later, or allow it more. Nothing was changed.
    #[error("the dedup store is full ({limit}); retry later or raise the limit")]
    Full {
        /// Which limit was reached, with its value.
        limit: String,
    },
    /// The backend failed or could not be reached. Whether the call took effect is **unknown**: try
    /// again. A claim that took effect unseen ends with its lease.
    #[error("the dedup store is unavailable: {0}; retry later")]
    Unavailable(String),
    /// The backend holds something that this version cannot read.
    #[error("the dedup store holds an unreadable record: {0}")]
    Corrupt(String),
}
