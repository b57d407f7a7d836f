//! What the gateway needs of a store, as whole steps with a stated guarantee.
//!
//! A method is one transaction and one promise. Callers never hold a transaction, so none is open
//! during a network call. Both the embedded store and a server database implement these traits; the
//! conformance suite in `surehook-store` is the definition of "the same".
//!
//! By caller: the door sees [`IngestStore`], the lanes see [`DeliveryStore`], the API and the upkeep
//! see [`AdminStore`], replay jobs see [`ReplayStore`]; [`QuarantineStore`] keeps what was not let in and may not be lost, [`MediaStore`] what is known of files.

mod admin;
mod configuration;
mod deliver;
mod ingest;
mod rows;

pub use self::{
    admin::{
        AdminStore, CancelResult, DailySendCount, DeadReasonCount, PruneReport, REPLAY_INTERVAL,
        RemoveTokenResult, ReplayResult, SENT_DAYS_KEPT, StoreCounts, StoreHealth,
    },
    configuration::{ConfigChange, Configuration, PastConfiguration, PastSource, StoredObject},
    deliver::{
        AttemptRecord, ClaimBatch, ClaimedDelivery, DeliveryStore, HeldClaim, NextStep,
        SentMessage, SettleResult, Settlement,
    },
    ingest::{AdmitResult, ConfirmedDelivery, DuplicateOf, IngestStore, JoinRequest, JoinResult},
    rows::{
        AttemptRow, DeliveryDetail, DeliveryFilter, DeliveryRow, DuplicateDetail, DuplicateRow,
        EVENT_ATTEMPTS_MAX, EVENT_DUPLICATE_BYTES_MAX, EventDeliveryFilter, EventDetail,
        EventFilter, EventRow, ListPage, PageRequest,
    },
};
use crate::{
    idempotency::IdempotencyStore, media::MediaStore, quarantine::QuarantineStore,
    replay::ReplayStore,
};

/// Why a step was not taken, split by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Too much is waiting already. Nothing was written; try again in a moment.
    #[error("the store has more work waiting than it may take on")]
    Overloaded,
    /// There is no room on the disk. Nothing was written; it works again when there is room.
    #[error("the disk that holds the data is full")]
    Full,
    /// It is not known whether the step was committed. The store takes no more work and the
    /// process must end: what is on the disk decides.
    #[error("the store has failed and takes no more work: {0}")]
    Failed(String),
    /// A statement was refused; nothing of this step was written.
    #[error("the store refused the step: {0}")]
    Refused(String),
    /// A row says what cannot be.
    #[error("the store holds something that cannot be: {0}")]
    Corrupt(String),
}

/// A whole store. Only the place that puts the program together holds one.
pub trait Store:
    IngestStore
    + DeliveryStore
    + AdminStore
    + ReplayStore
    + IdempotencyStore
    + QuarantineStore
    + MediaStore
{
}

impl<T> Store for T where
    T: IngestStore
        + DeliveryStore
        + AdminStore
        + ReplayStore
        + IdempotencyStore
        + QuarantineStore
        + MediaStore
{
}
