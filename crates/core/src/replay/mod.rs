//! Delivering again in bulk: a job with a filter, a rate of its own, and a report that adds up.
//!
//! ```text
//!   selecting ──► running ──► done         what is selected is fixed by what was true when the
//!       ▲            │                     job was made; each event is in it once for each
//!       │          paused ◄── selecting    destination
//!       └────────────┘
//!   selecting, running, paused ──► cancelled
//! ```
//!
//! - [`ReplaySpec`] is what a person asks for; [`ReplaySpec::check`] refuses what makes no sense and
//!   [`ReplaySpec::may_overlap`] says when two jobs must not run side by side.
//! - [`state`] is the law of a job's moves, [`progress`] what its numbers mean, [`rate`] how fast it
//!   goes.
//! - [`store`] is what the rest needs of a database.

pub mod progress;
pub mod rate;
pub mod state;
pub mod status_pattern;
pub mod store;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    progress::{ReplayItemOutcome, ReplayProgress, SkipReason, distribute},
    rate::{ReplayPacer, ReplayRate},
    state::{ReplayState, ReplayTransition},
    status_pattern::StatusPattern,
    store::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayPreview, ReplayRow, ReplayStore, SelectionReport,
    },
};
use crate::{
    attribute::EventKind,
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    ids::{DestinationId, GroupId, SourceId},
    time::Timestamp,
};

/// A job takes no more than this many; the rest needs another job.
pub const REPLAY_ITEMS_MAX: u64 = 1_000_000;
/// The longest text that is searched for.
pub const SEARCH_CHARS_MAX: usize = 200;
/// The longest note.
pub const NOTE_CHARS_MAX: usize = 500;

/// What a job does with what it selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayAction {
    /// Dead deliveries are delivered again.
    RetryFailed,
    /// Events that were never owed to a destination are delivered to it.
    SendMissing,
    /// Deliveries that have ended are delivered again, those that succeeded too.
    ForceResend,
}

impl ReplayAction {
    /// Every verb.
    pub const ALL: [Self; 3] = [Self::RetryFailed, Self::SendMissing, Self::ForceResend];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryFailed => "retry_failed",
            Self::SendMissing => "send_missing",
            Self::ForceResend => "force_resend",
        }
    }

    /// The verb that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == word)
    }
}

/// Which deliveries, or events, a job selects. What is absent does not matter.
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
    /// Deliveries that died of this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    /// Deliveries that are dead and in this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Deliveries whose last attempt failed in this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Deliveries whose last attempt was answered with this.
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
    /// This text, in any case of ASCII letters, is part of the event's key or of the detail of the
    /// last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
}

impl ReplayFilter {
    /// Whether it asks for something that only dead deliveries have.
    pub fn is_of_the_dead(&self) -> bool {
        self.reason.is_some() || self.group.is_some()
    }
}

/// What a person asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    /// What to do.
    pub verb: ReplayAction,
    /// With what.
    #[serde(default)]
    pub filter: ReplayFilter,
    /// Where missing events go; goes with [`ReplayAction::SendMissing`] alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<DestinationId>,
    /// How fast.
    #[serde(default)]
    pub rate: ReplayRate,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A job that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaySpecError {
    /// Missing events need a destination.
    #[error("send_missing needs `to`: the destination that the events are sent to")]
    ToIsMissing,
    /// Only missing events are sent somewhere else.
    #[error("`to` goes with send_missing; the other verbs deliver to where it went before")]
    ToIsTooMuch,
    /// What was never delivered has no status.
    #[error(
        "send_missing selects events: destination, status, reason, group, class and code do not apply"
    )]
    NotOfEvents,
    /// A status that this verb never takes.
    #[error("retry_failed takes status dead; force_resend takes dead or succeeded")]
    Status,
    /// What succeeded has no reason.
    #[error("a reason or a group goes with status dead")]
    Reason,
    /// No time is between them.
    #[error("`since` must be before `until`")]
    Span,
    /// An empty or very long text.
    #[error(
        "`key` must not be empty, `search` has 1 to {SEARCH_CHARS_MAX} characters, `note` at most {NOTE_CHARS_MAX}"
    )]
    Text,
}

impl ReplaySpec {
    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), ReplaySpecError> {
        let filter = &self.filter;
        match (self.verb, self.to) {
            (ReplayAction::SendMissing, None) => return Err(ReplaySpecError::ToIsMissing),
            (ReplayAction::RetryFailed | ReplayAction::ForceResend, Some(_)) => {
                return Err(ReplaySpecError::ToIsTooMuch);
            }
            (ReplayAction::SendMissing, Some(_))
            | (ReplayAction::RetryFailed | ReplayAction::ForceResend, None) => {}
        }
        let of_deliveries = filter.destination.is_some()
            || filter.status.is_some()
            || filter.reason.is_some()
            || filter.group.is_some()
            || filter.class.is_some()
            || filter.code.is_some();
        if self.verb == ReplayAction::SendMissing && of_deliveries {
            return Err(ReplaySpecError::NotOfEvents);
        }
        if filter.status.is_some_and(|status| !self.statuses().contains(&status)) {
            return Err(ReplaySpecError::Status);
        }
        if filter.status == Some(DeliveryStatus::Succeeded) && filter.is_of_the_dead() {
            return Err(ReplaySpecError::Reason);
        }
        if let (Some(since), Some(until)) = (filter.since, filter.until)
            && since >= until
        {
            return Err(ReplaySpecError::Span);
        }
        let chars = |text: &Option<String>| text.as_ref().map(|text| text.chars().count());
        let key_is_empty = chars(&filter.key) == Some(0);
        let search_is_odd =
            chars(&filter.search).is_some_and(|many| !(1..=SEARCH_CHARS_MAX).contains(&many));
        let note_is_long = chars(&self.note).is_some_and(|many| many > NOTE_CHARS_MAX);
        if key_is_empty || search_is_odd || note_is_long {
            return Err(ReplaySpecError::Text);
        }
        Ok(())
    }

    /// The statuses that the verb takes.
    const fn statuses(&self) -> &'static [DeliveryStatus] {
        match self.verb {
            ReplayAction::RetryFailed => &[DeliveryStatus::Dead],
            ReplayAction::ForceResend => &[DeliveryStatus::Dead, DeliveryStatus::Succeeded],
            ReplayAction::SendMissing => &[],
        }
    }

    /// Whether the job takes deliveries with this status.
    pub fn takes(&self, status: DeliveryStatus) -> bool {
        let wanted = self.filter.status.is_none_or(|wanted| wanted == status);
        let wanted = wanted && (status == DeliveryStatus::Dead || self.filter.group.is_none());
        wanted && self.statuses().contains(&status)
    }

    /// Whether both jobs could deliver the same event to the same destination.
    ///
    /// Conservative: two jobs are apart only by facts that never change, which are the destination,
    /// the source, the kind, the key and the time of receipt. A reason, a group or a class tells nothing, because what
    /// one job delivers again may die of something else and be selected by the other. What is
    /// missing somewhere is nobody's delivery yet, so the verbs of deliveries never meet it.
    pub fn may_overlap(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.filter, &other.filter);
        let missing = |spec: &Self| spec.verb == ReplayAction::SendMissing;
        if missing(self) != missing(other) {
            return false;
        }
        let ends_before = |a: Option<Timestamp>, b: Option<Timestamp>| match (a, b) {
            (Some(until), Some(since)) => until <= since,
            (None, _) | (_, None) => false,
        };
        let apart = differ(self.to, other.to)
            || differ(mine.destination, theirs.destination)
            || differ(mine.source, theirs.source)
            || differ(mine.kind.as_ref(), theirs.kind.as_ref())
            || differ(mine.key.as_ref(), theirs.key.as_ref())
            || ends_before(mine.until, theirs.since)
            || ends_before(theirs.until, mine.since);
        !apart
    }
}

/// Whether both are given and are not the same.
fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
    a.is_some() && b.is_some() && a != b
}

#[cfg(test)]
mod tests;
