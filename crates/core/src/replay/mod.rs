//! Replay jobs: redeliver in bulk, with a filter, a rate and a progress report.
//!
//! ```text
//!   selecting ──► running ──► done         the selection is fixed by the state at the creation
//!       ▲            │                     of the job; it has each event once per destination
//!       │          paused ◄── selecting
//!       └────────────┘
//!   selecting, running, paused ──► cancelled
//! ```
//!
//! [`ReplaySpec::check`] validates a job and [`ReplaySpec::may_overlap`] says when two jobs must not run
//! at the same time. [`ReplayState::apply`] defines the transitions of a job.

pub mod progress;
pub mod rate;
pub mod status_pattern;
pub mod store;

use serde::{Deserialize, Serialize};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DestinationId, GroupId, SourceId},
    string_enum,
    time::Timestamp,
};
use surehook_webhooks::attribute::EventKind;

pub use self::{
    progress::{
        ReplayItemOutcome, ReplayProgress, ReplayState, ReplayTransition, SkipReason, distribute,
    },
    rate::{ReplayPacer, ReplayRate},
    status_pattern::StatusPattern,
    store::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayPreview, ReplayRow, ReplayStore, SelectionReport,
    },
};
use crate::delivery::state::DeliveryStatus;

/// Maximum number of items of one job.
pub const REPLAY_ITEMS_MAX: u64 = 1_000_000;
pub const SEARCH_CHARS_MAX: usize = 200;
pub const NOTE_CHARS_MAX: usize = 500;

string_enum! {
    /// What a replay job does.
    pub enum ReplayAction {
        /// Redeliver dead deliveries.
        RetryFailed = "retry_failed",
        /// Deliver events to a destination they have no delivery to.
        SendMissing = "send_missing",
        /// Redeliver dead and succeeded deliveries.
        ForceResend = "force_resend",
    }
}

/// Which deliveries or events a job selects; absent fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayFilter {
    /// Events of this source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceId>,
    /// Events of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<EventKind>,
    /// Deliveries to this destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<DestinationId>,
    /// Deliveries with this status: `dead` or `succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<DeliveryStatus>,
    /// Deliveries dead for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    /// Dead deliveries of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Deliveries whose last attempt failed with this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Deliveries whose last attempt was answered with this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<StatusPattern>,
    /// Events received at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Events received before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Events with exactly this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Text contained in the event's key or in the detail of the last attempt, ignoring ASCII case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
}

impl ReplayFilter {
    /// Whether only dead deliveries can match.
    pub fn requires_dead(&self) -> bool {
        self.reason.is_some() || self.group.is_some()
    }
}

/// The request for a replay job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    #[serde(rename = "verb")]
    pub action: ReplayAction,
    #[serde(default)]
    pub filter: ReplayFilter,
    /// The destination of missing events; only for [`ReplayAction::SendMissing`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<DestinationId>,
    #[serde(default)]
    pub rate: ReplayRate,
    /// Free text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An invalid replay job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaySpecError {
    #[error("send_missing needs `to`, the destination for the events")]
    MissingTo,
    #[error("`to` is only allowed with send_missing; the other verbs use the original destination")]
    UnexpectedTo,
    #[error(
        "send_missing selects events; destination, status, reason, group, class and code do not apply"
    )]
    DeliveryFilterForEvents,
    #[error("retry_failed accepts status dead; force_resend accepts dead or succeeded")]
    Status,
    #[error("reason and group are only allowed with status dead")]
    Reason,
    #[error("`since` must be before `until`")]
    TimeRange,
    #[error(
        "`key` must not be empty, `search` must have 1 to {SEARCH_CHARS_MAX} characters and `note` at most {NOTE_CHARS_MAX}"
    )]
    Text,
}

impl ReplaySpec {
    /// Validates the job.
    pub fn check(&self) -> Result<(), ReplaySpecError> {
        let filter = &self.filter;
        match (self.action, self.to) {
            (ReplayAction::SendMissing, None) => return Err(ReplaySpecError::MissingTo),
            (ReplayAction::RetryFailed | ReplayAction::ForceResend, Some(_)) => {
                return Err(ReplaySpecError::UnexpectedTo);
            }
            (ReplayAction::SendMissing, Some(_))
            | (ReplayAction::RetryFailed | ReplayAction::ForceResend, None) => {}
        }
        let filters_deliveries = filter.destination.is_some()
            || filter.status.is_some()
            || filter.reason.is_some()
            || filter.group.is_some()
            || filter.class.is_some()
            || filter.code.is_some();
        if self.action == ReplayAction::SendMissing && filters_deliveries {
            return Err(ReplaySpecError::DeliveryFilterForEvents);
        }
        if filter.status.is_some_and(|status| !self.statuses().contains(&status)) {
            return Err(ReplaySpecError::Status);
        }
        if filter.status == Some(DeliveryStatus::Succeeded) && filter.requires_dead() {
            return Err(ReplaySpecError::Reason);
        }
        if let (Some(since), Some(until)) = (filter.since, filter.until)
            && since >= until
        {
            return Err(ReplaySpecError::TimeRange);
        }
        let chars = |text: &Option<String>| text.as_ref().map(|text| text.chars().count());
        let key_is_empty = chars(&filter.key) == Some(0);
        let search_is_invalid =
            chars(&filter.search).is_some_and(|count| !(1..=SEARCH_CHARS_MAX).contains(&count));
        let note_is_long = chars(&self.note).is_some_and(|count| count > NOTE_CHARS_MAX);
        if key_is_empty || search_is_invalid || note_is_long {
            return Err(ReplaySpecError::Text);
        }
        Ok(())
    }

    const fn statuses(&self) -> &'static [DeliveryStatus] {
        match self.action {
            ReplayAction::RetryFailed => &[DeliveryStatus::Dead],
            ReplayAction::ForceResend => &[DeliveryStatus::Dead, DeliveryStatus::Succeeded],
            ReplayAction::SendMissing => &[],
        }
    }

    /// Whether the job selects deliveries with this status.
    pub fn selects(&self, status: DeliveryStatus) -> bool {
        let is_selected = self.filter.status.is_none_or(|filter| filter == status);
        let is_selected =
            is_selected && (status == DeliveryStatus::Dead || self.filter.group.is_none());
        is_selected && self.statuses().contains(&status)
    }

    /// Whether both jobs could deliver the same event to the same destination.
    ///
    /// Conservative: only facts that never change keep two jobs apart, which are the destination, the
    /// source, the kind, the key and the time of receipt. Reason, group and class do not, because a
    /// redelivered event may die for another reason and be selected by the other job. A missing event
    /// has no delivery yet, so `send_missing` never overlaps with the other actions.
    pub fn may_overlap(&self, other: &Self) -> bool {
        let (a, b) = (&self.filter, &other.filter);
        let missing = |spec: &Self| spec.action == ReplayAction::SendMissing;
        if missing(self) != missing(other) {
            return false;
        }
        let ends_before = |a: Option<Timestamp>, b: Option<Timestamp>| match (a, b) {
            (Some(until), Some(since)) => until <= since,
            (None, _) | (_, None) => false,
        };
        let are_disjoint = differ(self.to, other.to)
            || differ(a.destination, b.destination)
            || differ(a.source, b.source)
            || differ(a.kind.as_ref(), b.kind.as_ref())
            || differ(a.key.as_ref(), b.key.as_ref())
            || ends_before(a.until, b.since)
            || ends_before(b.until, a.since);
        !are_disjoint
    }
}

/// Whether both are given and differ.
fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
    a.is_some() && b.is_some() && a != b
}

#[cfg(test)]
mod tests;
