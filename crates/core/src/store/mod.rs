//! Store traits: what the gateway needs of a database.
//!
//! A method is one transaction with a stated guarantee. Callers never hold a transaction, so none is
//! open during a network call. The conformance suite in `surehook-store` defines what every
//! implementation must do.
//!
//! By caller: the receive path uses [`IngestStore`], lanes [`DeliveryStore`], the API and maintenance
//! [`AdminStore`], replay jobs [`ReplayStore`], verification failures [`QuarantineStore`], media files
//! [`MediaStore`].

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

/// Why a store operation failed, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Too much work is queued. Nothing was written; retry in a moment.
    #[error("the store is overloaded; retry in a moment")]
    Overloaded,
    /// Nothing was written. Works again when there is disk space.
    #[error("the data disk is full")]
    Full,
    /// It is unknown whether the transaction was committed. The store accepts no more work and the
    /// process must end: after a restart the disk decides.
    #[error("the store has failed and accepts no more work: {0}")]
    Failed(String),
    /// A statement was rejected; nothing was written.
    #[error("the store rejected the operation: {0}")]
    Refused(String),
    /// A row has an impossible value.
    #[error("the store contains invalid data: {0}")]
    Corrupt(String),
}

/// A complete store. Only the composition root of the program uses it.
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
