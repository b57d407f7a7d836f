//! The error of every store trait.

use crate::ids::EventId;

/// Why a store operation failed, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Too much work is queued. Nothing was written; retry in a moment.
    #[error("the store is overloaded; retry in a moment")]
    Overloaded,
    /// The database cannot be reached, or did not answer in time. Nothing was written; works again when it
    /// does.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// Nothing was written. Works again when there is disk space.
    #[error("the data disk is full")]
    Full,
    /// It is unknown whether the transaction was committed. The store accepts no more work and the
    /// process must end: after a restart the disk decides.
    #[error("the store has failed and accepts no more work: {0}")]
    Failed(String),
    /// It is unknown whether the transaction was committed, and the store still works. The caller may try
    /// again what can be repeated; a request is answered 503, and its sender repeats it.
    ///
    /// A database on another machine returns this when the connection is lost during a commit. The
    /// embedded store never does: after a commit of unknown outcome it has [failed](Self::Failed).
    #[error("it is unknown whether the store committed the operation: {0}")]
    Unknown(String),
    /// A statement was rejected; nothing was written.
    #[error("the store rejected the operation: {0}")]
    Refused(String),
    /// The stored body of an event does not match its SHA-256.
    #[error("the stored body of {0} is damaged")]
    BodyDamaged(EventId),
    /// A row has an impossible value.
    #[error("the store contains invalid data: {0}")]
    Corrupt(String),
}
