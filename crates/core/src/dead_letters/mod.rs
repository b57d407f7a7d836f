//! Dead letters grouped by cause.
//!
//! A [`DeadLetterCause`] is the failure class, the HTTP status or failure, and the *shape* of the error:
//! the status or failure, and the message without the parts that differ each time, such as ids and
//! times. Dead letters with one cause and destination are one group. Its id is a digest of these, so
//! that it is stable across restarts and copies of the data.

mod error_message;
mod normalize;
#[cfg(test)]
mod tests;

use surehook_retry::{AttemptFailure, DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, GroupId, SourceId},
    redact::{self, SecretNames},
    time::Timestamp,
};
use surehook_webhooks::key::fingerprint;
use uuid::Uuid;

use self::{
    error_message::ErrorMessage,
    normalize::{NUMBER, normalize_message, truncate},
};
use crate::store::AttemptRecord;

pub const SHAPE_CHARS_MAX: usize = 120;
/// Bytes of a response stored as the sample of a group.
pub const SAMPLE_BYTES_MAX: usize = 4096;

/// Why a delivery is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterCause {
    /// `None` if it is no longer known.
    pub class: Option<FailureClass>,
    /// Of the last response.
    pub http_status: Option<u16>,
    pub failure: Option<AttemptFailure>,
    /// The result of [`shape`], or a fixed text where the last attempt is not the cause.
    pub shape: String,
}

impl DeadLetterCause {
    /// The cause given by the last attempt.
    pub fn from_attempt(attempt: &AttemptRecord) -> Self {
        let AttemptRecord { status, failure, class, detail, response, .. } = attempt;
        let shape = shape(*status, *failure, detail.as_deref(), response);
        Self { class: *class, http_status: *status, failure: *failure, shape }
    }

    /// A later status update reported the failure.
    pub fn from_status_update(reason: DeadReason) -> Self {
        let shape = format!("a status said so: {}", reason.as_str());
        Self::without_response(Some(FailureClass::Permanent), shape)
    }

    /// The stored body is missing or damaged.
    pub fn from_damaged_body() -> Self {
        let shape = "the stored body is missing or damaged".to_owned();
        Self::without_response(Some(FailureClass::Permanent), shape)
    }

    /// The last attempt is no longer stored.
    pub fn from_removed_attempts(reason: DeadReason) -> Self {
        Self::without_response(None, format!("no attempt is kept: {}", reason.as_str()))
    }

    fn without_response(class: Option<FailureClass>, shape: String) -> Self {
        Self { class, http_status: None, failure: None, shape }
    }

    /// The group of dead letters to `destination` with this cause.
    pub fn group_id(&self, destination: DestinationId) -> GroupId {
        let http_status = self.http_status.map(|status| status.to_string());
        let parts = [
            self.class.map_or("", FailureClass::as_str),
            http_status.as_deref().unwrap_or_default(),
            self.failure.map_or("", AttemptFailure::as_str),
            &self.shape,
        ];
        // No part contains the separator.
        let mut all = destination.uuid().into_bytes().to_vec();
        all.extend_from_slice(parts.join("\0").as_bytes());
        let mut bits = [0; 16];
        bits.copy_from_slice(&fingerprint(&all)[..16]);
        GroupId::from_uuid(Uuid::from_bytes(bits))
    }
}

/// The shape of an error: the status or failure, then the normalized message if there is one.
pub fn shape(
    status: Option<u16>,
    failure: Option<AttemptFailure>,
    detail: Option<&str>,
    response: &[u8],
) -> String {
    let head = match (failure, status) {
        (Some(failure), _) => failure.as_str().to_owned(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "unknown".to_owned(),
    };
    let message = message(detail, response);
    // Many messages begin with the status, as "502 Bad Gateway", normalized to "# Bad Gateway". The
    // shape begins with the status already.
    let without_number = message.strip_prefix(NUMBER).and_then(|rest| rest.strip_prefix(' '));
    let message = without_number.filter(|_| status.is_some()).unwrap_or(&message);
    match message.is_empty() {
        true => head,
        false => truncate(&format!("{head}: {message}")),
    }
}

/// The normalized message of a failed attempt, from its detail and the response; may be empty.
fn message(detail: Option<&str>, response: &[u8]) -> String {
    // A shape outlives the response and every user may see it, so secrets are masked first.
    let response = &response[..response.len().min(error_message::RESPONSE_BYTES_MAX)];
    let masked = redact::mask_text(response, &SecretNames::default());
    let detail = detail.map(normalize_message).unwrap_or_default();
    let response_message = match error_message::parse(&masked.body) {
        ErrorMessage::Fields(texts) => {
            let normalized = texts.into_iter().map(|(is_code, text)| match is_code {
                true => text,
                false => normalize_message(&text),
            });
            // Without the detail: it was made of the same fields and would repeat them.
            return normalized.collect::<Vec<_>>().join("; ");
        }
        ErrorMessage::Names(names) if names.is_empty() => String::new(),
        ErrorMessage::Names(names) => {
            let mut names: Vec<_> = names.iter().map(|name| normalize_message(name)).collect();
            names.dedup();
            format!("{{{}}}", names.join(", "))
        }
        ErrorMessage::Text(text) => normalize_message(&text),
    };
    match (detail.is_empty(), response_message.is_empty()) {
        (false, false) => format!("{detail}; {response_message}"),
        (false, true) => detail,
        (true, _) => response_message,
    }
}

/// Which groups to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadLetterGroupFilter {
    pub destination: Option<DestinationId>,
    /// Only groups with an event of this source among their newest [`GROUP_SCAN_MAX`].
    pub source: Option<SourceId>,
    /// Only this group.
    pub id: Option<GroupId>,
}

/// Deliveries of a group that are searched for an event of a source.
pub const GROUP_SCAN_MAX: usize = 100;

/// A position in the list of groups, which is sorted by the last death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterGroupCursor {
    pub last_seen: Timestamp,
    pub id: GroupId,
}

/// The current dead letters of one destination with one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterGroup {
    pub id: GroupId,
    pub destination: DestinationId,
    pub cause: DeadLetterCause,
    /// Reason of the latest dead letter.
    pub reason: DeadReason,
    /// Current number of dead letters; exact.
    pub count: u64,
    /// First death since the group was last empty.
    pub first_seen: Timestamp,
    /// Latest death.
    pub last_seen: Timestamp,
    pub newest_delivery: DeliveryId,
    pub newest_event: EventId,
    /// Detail of the last attempt of the newest delivery. `None` also when retention has removed it.
    pub sample_detail: Option<String>,
    /// Beginning of the response to that attempt. Empty also when retention has removed it.
    pub sample_response: Vec<u8>,
}
