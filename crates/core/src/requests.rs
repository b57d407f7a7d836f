//! Requests that came to the door, whatever became of them.
//!
//! Nothing is written down for this: what was accepted is there as events, what came again as
//! sightings of duplicates, and of what was refused there is a sample.

use std::{fmt, str::FromStr};

use crate::{
    ids::{EventId, RequestId, SourceId},
    refused::RefusedRequest,
    time::Timestamp,
};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It brought something new.
    Accepted,
    /// It brought an event that had come before.
    Duplicate,
    /// It was not let in.
    Refused,
}

impl RequestOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Duplicate, Self::Refused];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Refused => "refused",
        }
    }

    /// The outcome that a word means.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// Which requests to list.
#[derive(Clone, Debug, Default)]
pub struct RequestFilter {
    /// Only with this outcome.
    pub outcome: Option<RequestOutcome>,
    /// Only for the source of this name; its id, if there is one.
    pub source: Option<(String, Option<SourceId>)>,
    /// Only refused for this reason.
    pub reason: Option<String>,
    /// Not of this source, whose events came another way.
    pub exclude_source: Option<SourceId>,
    /// Only at this time or later.
    pub since: Option<Timestamp>,
    /// Only before this time.
    pub until: Option<Timestamp>,
}

impl RequestFilter {
    /// Whether requests with this outcome can be meant.
    pub fn includes(&self, outcome: RequestOutcome) -> bool {
        let is_meant = self.outcome.is_none_or(|wanted| wanted == outcome);
        is_meant && (self.reason.is_none() || outcome == RequestOutcome::Refused)
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub enum ReceivedRequest {
    /// It brought something new.
    Accepted(AcceptedRequest),
    /// It brought an event that had come before.
    Duplicate(DuplicateRequest),
    /// It was not let in.
    Refused(Box<RefusedRequest>),
}

impl ReceivedRequest {
    /// When it came.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Accepted(accepted) => accepted.at,
            Self::Duplicate(sighted) => sighted.at,
            Self::Refused(refused) => refused.at,
        }
    }
}

/// A request that brought something new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRequest {
    /// Its id.
    pub request: RequestId,
    /// The last of its events that were new.
    pub event: EventId,
    /// How many of its events were new.
    pub events: u64,
    /// Where it came to.
    pub source: SourceId,
    /// When.
    pub at: Timestamp,
    /// The length of the body of that event.
    pub body_bytes: u64,
    /// Its path; `None` when retention has removed it.
    pub path: Option<String>,
    /// Its query.
    pub query: Option<String>,
    /// Who sent it.
    pub remote: Option<String>,
}

/// A sighting of an event that had come before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateRequest {
    /// The number of its row.
    pub number: i64,
    /// The event.
    pub event: EventId,
    /// Where it came to.
    pub source: SourceId,
    /// When it came again.
    pub at: Timestamp,
    /// Whether its body differed.
    pub bytes_differ: bool,
    /// The length of its body, if that is known.
    pub body_bytes: Option<u64>,
}

/// How far one of the lists has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListPosition<I> {
    /// Not at all.
    #[default]
    Nothing,
    /// This one was the last.
    After(I),
    /// To its end.
    End,
}

impl<I: Copy> ListPosition<I> {
    /// The one that was the last; `None` at the beginning. There is nothing to ask at the end.
    pub fn after(self) -> Option<I> {
        match self {
            Self::After(id) => Some(id),
            Self::Nothing | Self::End => None,
        }
    }
}

/// A place in the list of all arrivals: one in each of the three that it is merged of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCursor {
    /// Among the events.
    pub accepted: ListPosition<EventId>,
    /// Among the sightings, by the number of their row.
    pub duplicate: ListPosition<i64>,
    /// Among the refused.
    pub refused: ListPosition<RequestId>,
}

impl RequestCursor {
    /// Whether there is nothing left.
    pub fn is_at_end(&self) -> bool {
        (self.accepted, self.duplicate, self.refused)
            == (ListPosition::End, ListPosition::End, ListPosition::End)
    }
}

impl<I: fmt::Display> fmt::Display for ListPosition<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::After(id) => id.fmt(f),
            Self::End => f.write_str("end"),
        }
    }
}

impl<I: FromStr> FromStr for ListPosition<I> {
    type Err = I::Err;

    fn from_str(text: &str) -> Result<Self, I::Err> {
        match text {
            "" => Ok(Self::Nothing),
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

/// A text that is no place in the list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of the list of requests")]
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
    fn a_cursor_reads_as_it_is_written() {
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
                duplicate: ListPosition::Nothing,
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
    fn a_reason_is_of_what_was_refused() {
        let filter = RequestFilter { reason: Some("stale".into()), ..RequestFilter::default() };
        assert_eq!(
            RequestOutcome::ALL.map(|outcome| filter.includes(outcome)),
            [false, false, true]
        );
    }
}
