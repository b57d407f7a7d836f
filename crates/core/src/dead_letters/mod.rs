//! Dead letters by their cause: which of them died of the same thing.
//!
//! A [`DeathCause`] is what tells one cause from another: the class, the status or the failure, and the
//! *shape* of the message, which is what was said without what differs each time. Thousands that died
//! of one thing have one cause, and with their destination make one group. Its id is a digest of all
//! that, so that it is the same after a restart and in every copy of the data.

mod answer;
#[cfg(test)]
mod tests;
mod words;

use uuid::Uuid;

use self::{
    answer::ErrorMessage,
    words::{normalised, shortened},
};
use crate::{
    delivery::{AttemptFailure, DeadReason, FailureClass},
    ids::{DeliveryId, DestinationId, EventId, GroupId, SourceId},
    key::fingerprint,
    redact::{self, SecretNames},
    store::AttemptRecord,
    time::Timestamp,
};

/// The longest shape.
pub const SHAPE_CHARS_MAX: usize = 120;
/// Bytes of an answer that are kept as the sample of a group.
pub const SAMPLE_BYTES_MAX: usize = 4096;

/// What a delivery died of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeathCause {
    /// What kind of failure it was; `None` if nobody knows any more.
    pub class: Option<FailureClass>,
    /// The status of the last answer, if there was one.
    pub code: Option<u16>,
    /// Why there was none.
    pub failure: Option<AttemptFailure>,
    /// What was said, without what differs each time.
    pub shape: String,
}

impl DeathCause {
    /// That of an attempt that was the last.
    pub fn from_attempt(attempt: &AttemptRecord) -> Self {
        let AttemptRecord { status, failure, class, detail, response, .. } = attempt;
        let shape = shape(*status, *failure, detail.as_deref(), response);
        Self { class: *class, code: *status, failure: *failure, shape }
    }

    /// A status that came later said that it failed.
    pub fn from_status(reason: DeadReason) -> Self {
        Self::without_answer(
            Some(FailureClass::Permanent),
            format!("a status said so: {}", reason.as_str()),
        )
    }

    /// There is nothing left that could be sent.
    pub fn from_damaged_body() -> Self {
        Self::without_answer(
            Some(FailureClass::Permanent),
            "the stored body is missing or damaged".to_owned(),
        )
    }

    /// Nothing is known of its last attempt any more.
    pub fn without_attempts(reason: DeadReason) -> Self {
        Self::without_answer(None, format!("no attempt is kept: {}", reason.as_str()))
    }

    fn without_answer(class: Option<FailureClass>, shape: String) -> Self {
        Self { class, code: None, failure: None, shape }
    }

    /// The group of those that died of this on their way to `destination`.
    pub fn group_id(&self, destination: DestinationId) -> GroupId {
        let code = self.code.map(|code| code.to_string());
        let parts = [
            self.class.map_or("", FailureClass::as_str),
            code.as_deref().unwrap_or_default(),
            self.failure.map_or("", AttemptFailure::as_str),
            &self.shape,
        ];
        // No part has the sign between them in it.
        let mut all = destination.uuid().into_bytes().to_vec();
        all.extend_from_slice(parts.join("\0").as_bytes());
        let mut bits = [0; 16];
        bits.copy_from_slice(&fingerprint(&all)[..16]);
        GroupId::from_uuid(Uuid::from_bytes(bits))
    }
}

/// The shape of a failure: its status or its word, and what was said about it.
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
    let said = said(detail, response);
    // "502: 502 Bad Gateway" says it twice.
    let said = said.strip_prefix("# ").filter(|_| status.is_some()).unwrap_or(&said);
    match said.is_empty() {
        true => head,
        false => shortened(&format!("{head}: {said}"), SHAPE_CHARS_MAX),
    }
}

fn said(detail: Option<&str>, response: &[u8]) -> String {
    // A shape is kept as long as anybody died of it, and shown to whoever may look.
    let response = &response[..response.len().min(answer::ANSWER_BYTES_MAX)];
    let masked = redact::mask_text(response, &SecretNames::default());
    let detail = detail.map(|detail| normalised(detail, SHAPE_CHARS_MAX)).unwrap_or_default();
    let answer = match answer::read(&masked.body) {
        ErrorMessage::Fields(texts) => {
            let texts: Vec<String> = texts
                .into_iter()
                .map(
                    |(is_code, text)| {
                        if is_code { text } else { normalised(&text, SHAPE_CHARS_MAX) }
                    },
                )
                .collect();
            // The fields are what a detail was made of, where there is one.
            return texts.join("; ");
        }
        ErrorMessage::Names(names) if names.is_empty() => String::new(),
        ErrorMessage::Names(names) => {
            let mut names: Vec<String> =
                names.iter().map(|name| normalised(name, SHAPE_CHARS_MAX)).collect();
            names.dedup();
            format!("{{{}}}", names.join(", "))
        }
        ErrorMessage::Text(text) => normalised(&text, SHAPE_CHARS_MAX),
    };
    match (detail.is_empty(), answer.is_empty()) {
        (false, false) => format!("{detail}; {answer}"),
        (false, true) => detail,
        (true, _) => answer,
    }
}

/// Which groups to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadLetterGroupFilter {
    /// Only to this destination.
    pub destination: Option<DestinationId>,
    /// Only with an event of this source among its newest [`GROUP_SCAN_MAX`].
    pub source: Option<SourceId>,
    /// Only this one.
    pub id: Option<GroupId>,
}

/// How many deliveries of a group are looked at for one of a source.
pub const GROUP_SCAN_MAX: usize = 100;

/// A place in a list of groups, which is in the order of when one died last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterGroupCursor {
    /// When that was.
    pub last_seen: Timestamp,
    /// Which group.
    pub id: GroupId,
}

/// All that are dead now of one cause, on their way to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterGroup {
    /// Its id.
    pub id: GroupId,
    /// To where.
    pub destination: DestinationId,
    /// Of what.
    pub cause: DeathCause,
    /// Why the one that died last was given up.
    pub reason: DeadReason,
    /// How many are dead now; exact.
    pub count: u64,
    /// When the first of them died, since the group was last empty.
    pub first_seen: Timestamp,
    /// When one of them died last.
    pub last_seen: Timestamp,
    /// Of those that are dead now the delivery that was made last, and its event.
    pub newest: (DeliveryId, EventId),
    /// What its last attempt was told: the detail, and the beginning of the answer. Nothing when
    /// retention has removed it.
    pub sample: (Option<String>, Vec<u8>),
}
