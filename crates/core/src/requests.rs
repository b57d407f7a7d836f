//! The list of all incoming requests: accepted, duplicate and refused.
//!
//! Nothing is stored for this list. It is merged from the events, the duplicates and the
//! sample of refused requests.

use std::{fmt, str::FromStr};

use surehook_types::{
    ids::{EventId, RequestId, SourceId},
    string_enum,
    time::Timestamp,
};

use crate::{event::DuplicateReason, refused::RefusedRequest};

string_enum! {
    pub enum RequestOutcome {
        /// At least one of its events was new.
        Accepted = "accepted",
        /// All of its events had been received before.
        Duplicate = "duplicate",
        Refused = "refused",
    }
}

/// Which requests to list.
#[derive(Clone, Debug, Default)]
pub struct RequestFilter {
    /// Only with this outcome.
    pub outcome: Option<RequestOutcome>,
    /// Only for the source of this name, with its id if it exists.
    pub source: Option<(String, Option<SourceId>)>,
    /// Only refused with this reason code.
    pub reason: Option<String>,
    /// Leaves this source out: the outbox, whose events are not incoming requests.
    pub exclude_source: Option<SourceId>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl RequestFilter {
    /// Whether requests with this outcome can match.
    pub fn includes(&self, outcome: RequestOutcome) -> bool {
        let matches_outcome = self.outcome.is_none_or(|selected| selected == outcome);
        matches_outcome && (self.reason.is_none() || outcome == RequestOutcome::Refused)
    }
}

/// A row of the list.
#[derive(Clone, Debug)]
pub enum ReceivedRequest {
    Accepted(AcceptedRequest),
    Duplicate(DuplicateRequest),
    Refused(Box<RefusedRequest>),
}

impl ReceivedRequest {
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Accepted(accepted) => accepted.at,
            Self::Duplicate(sighted) => sighted.at,
            Self::Refused(refused) => refused.at,
        }
    }
}

/// A request with at least one new event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRequest {
    pub request: RequestId,
    /// The last of its new events.
    pub event: EventId,
    /// Number of new events.
    pub events: u64,
    pub source: SourceId,
    pub at: Timestamp,
    /// Body length of `event`.
    pub body_bytes: u64,
    /// `None` when retention has removed it.
    pub path: Option<String>,
    pub query: Option<String>,
    /// Address of the sender.
    pub remote: Option<String>,
}

/// A received duplicate of a known event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateRequest {
    /// Row number, the cursor of the list of duplicates.
    pub number: i64,
    pub event: EventId,
    pub source: SourceId,
    pub at: Timestamp,
    /// Whether its body differs from the original.
    pub bytes_differ: bool,
    pub body_bytes: Option<u64>,
    pub reason: DuplicateReason,
}

/// How far one of the merged lists has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListPosition<I> {
    #[default]
    Start,
    /// This row was the last one read.
    After(I),
    End,
}

impl<I: Copy> ListPosition<I> {
    /// The last row read, if any. At the end there is nothing more to query.
    pub fn after(self) -> Option<I> {
        match self {
            Self::After(id) => Some(id),
            Self::Start | Self::End => None,
        }
    }
}

/// A position in the list of all requests: one position in each of the three merged lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCursor {
    pub accepted: ListPosition<EventId>,
    pub duplicate: ListPosition<i64>,
    pub refused: ListPosition<RequestId>,
}

impl RequestCursor {
    pub fn is_at_end(&self) -> bool {
        (self.accepted, self.duplicate, self.refused)
            == (ListPosition::End, ListPosition::End, ListPosition::End)
    }
}

impl<I: fmt::Display> fmt::Display for ListPosition<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => Ok(()),
            Self::After(id) => id.fmt(f),
            Self::End => f.write_str("end"),
        }
    }
}

impl<I: FromStr> FromStr for ListPosition<I> {
    type Err = I::Err;

    fn from_str(text: &str) -> Result<Self, I::Err> {
        match text {
            "" => Ok(Self::Start),
            "end" => Ok(Self::End),
            id => id.parse().map(Self::After),
        }
    }
}

impl fmt::Display for RequestCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.accepted, self.duplicate, self.refused)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid cursor for the list of requests")]
pub struct ParseCursorError;

impl FromStr for RequestCursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let mut parts = text.split('.');
        let mut part = || parts.next().ok_or(ParseCursorError);
        let (accepted, duplicate, refused) = (part()?, part()?, part()?);
        if parts.next().is_some() {
            return Err(ParseCursorError);
        }
        Ok(Self {
            accepted: accepted.parse().map_err(|_| ParseCursorError)?,
            duplicate: duplicate.parse().map_err(|_| ParseCursorError)?,
            refused: refused.parse().map_err(|_| ParseCursorError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips_through_text() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        for cursor in [
            RequestCursor::default(),
            RequestCursor {
                accepted: ListPosition::After(EventId::new(at, 1)),
                duplicate: ListPosition::After(7),
                refused: ListPosition::End,
            },
            RequestCursor {
                accepted: ListPosition::End,
                duplicate: ListPosition::Start,
                refused: ListPosition::After(RequestId::new(at, 2)),
            },
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for wrong in ["", "a.1.", "..x", "end.end", "....", "evt_1..", ".x."] {
            assert_eq!(wrong.parse::<RequestCursor>(), Err(ParseCursorError), "case: {wrong}");
        }
    }

    #[test]
    fn filter_with_reason_matches_refused_requests_only() {
        let filter = RequestFilter { reason: Some("stale".into()), ..RequestFilter::default() };
        assert_eq!(
            RequestOutcome::ALL.map(|outcome| filter.includes(outcome)),
            [false, false, true]
        );
    }
}
