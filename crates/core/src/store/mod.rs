//! Store traits: what the gateway needs from a database.
//!
//! A method is one transaction with a stated guarantee. Callers never hold a transaction, so none is
//! open during a network call. The conformance suite in `surehook-store` defines what every
//! implementation must do.
//!
//! [`IngestStore`] is for the receive path, [`DeliveryStore`] for lanes, [`CoordinationStore`] says which
//! process owns them. [`AdminStore`] is for the API and maintenance, [`ReplayStore`] for replay jobs,
//! [`IdempotencyStore`] for idempotency keys of API requests, [`QuarantineStore`] for requests that
//! failed verification, [`MessageStore`] for messages.

mod admin;
mod configuration;
mod coordination;
mod deliveries;
mod history;
mod ingest;
mod rows;

use surehook_messaging::store::MessageStore;

pub use self::{
    admin::{
        AdminStore, CancelResult, DatabaseHealth, DeadReasonCount, InitialTokenResult,
        LOGIN_LINKS_MAX, PruneReport, REPLAY_INTERVAL, RemoveTokenResult, ReplayResult,
        StandbyHealth, StoreCounts, StoreHealth, StoredAlerts, WaitingCount,
    },
    configuration::{
        ConfigChange, ConfigChangeResult, ConfigVersion, Configuration, PastConfiguration,
        PastSource, StoredObject,
    },
    coordination::{
        CoordinationStore, Duty, DutyRow, DutyTerm, HANDOVERS_KEPT, HandoverRow,
        LANE_REQUESTS_KEPT, LaneAction, LaneAnswer, LaneOwnerRow, LaneRequest, LedDuty, NewNode,
        NodeLease, NodeRow, NodesReport, OwnedLane, Signal, SignalBatch, SignalPosition,
        TokensVersion,
    },
    deliveries::{
        AbandonedClaim, AttemptRecord, ClaimBatch, ClaimedDelivery, DeliveryStore, HeldClaim,
        NextStep, SentMessage, SettleResult, Settlement,
    },
    history::{HistoryFilter, RecordedAttempt, RecordedDelivery},
    ingest::{AdmitResult, ConfirmedDelivery, DuplicateOf, IngestStore, JoinRequest, JoinResult},
    rows::{
        AttemptRow, DeliveryDetail, DeliveryFilter, DeliveryRow, DuplicateDetail, DuplicateRow,
        EVENT_ATTEMPTS_MAX, EVENT_DUPLICATE_BYTES_MAX, EventDeliveryFilter, EventDetail,
        EventFilter, EventRow, ListPage, PageRequest,
    },
};
use crate::{idempotency::IdempotencyStore, quarantine::QuarantineStore, replay::ReplayStore};

/// A complete store. Only the composition root of the program uses it.
pub trait Store:
    IngestStore
    + DeliveryStore
    + CoordinationStore
    + AdminStore
    + ReplayStore
    + IdempotencyStore
    + QuarantineStore
    + MessageStore
{
}

impl<T> Store for T where
    T: IngestStore
        + DeliveryStore
        + CoordinationStore
        + AdminStore
        + ReplayStore
        + IdempotencyStore
        + QuarantineStore
        + MessageStore
{
}
