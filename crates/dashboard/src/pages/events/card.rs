//! A delivery as a card: destination, status, attempts and actions.

use std::time::Duration;

use surehook_api::{
    deliveries::{AttemptResponse, DeliveryResponse, DeliveryWithAttempts},
    events::RevealedAttemptResponse,
};
use surehook_core::delivery::state::DeliveryStatus;
use surehook_types::time::Timestamp;

use crate::{
    format::{Badge, format_duration},
    lang::Lang,
    translations::{CommonTexts, EventTexts, FailureTexts},
};

/// Number of visible attempts; older ones are collapsed.
const OPEN_MAX: usize = 3;
const ANSWER_CHARS_MAX: usize = 2000;

pub(in crate::pages) struct AttemptEntry {
    pub(in crate::pages) number: u32,
    pub(in crate::pages) at: Timestamp,
    pub(in crate::pages) badge: Badge,
    pub(in crate::pages) facts: Vec<String>,
    /// Detail from the API, in English.
    pub(in crate::pages) detail_text: Option<String>,
    pub(in crate::pages) response: String,
}

pub(in crate::pages) struct DeliveryCard {
    pub(in crate::pages) delivery: DeliveryResponse,
    pub(in crate::pages) name: String,
    pub(in crate::pages) badge: Badge,
    pub(in crate::pages) reason: Option<&'static str>,
    pub(in crate::pages) attempts_removed: bool,
    /// Newest first.
    pub(in crate::pages) open: Vec<AttemptEntry>,
    pub(in crate::pages) older: Vec<AttemptEntry>,
    pub(in crate::pages) idempotency_key: String,
}

impl DeliveryCard {
    pub(in crate::pages) fn new(
        detail: DeliveryWithAttempts,
        responses: &[RevealedAttemptResponse],
        idempotency_key: String,
        lang: Lang,
    ) -> Self {
        let (t, c, f) = (EventTexts::of(lang), CommonTexts::of(lang), FailureTexts::of(lang));
        let DeliveryWithAttempts { delivery, attempts_removed, attempt_list } = detail;
        let revealed_response = |number: u32| {
            let found = responses.iter().find(|a| a.delivery == delivery.id && a.number == number);
            found.map(|response| response.response.to_text())
        };
        let mut attempts: Vec<AttemptEntry> = attempt_list
            .iter()
            .rev()
            .map(|attempt| attempt_entry(attempt, revealed_response(attempt.number), t, f, lang))
            .collect();
        let older = attempts.split_off(attempts.len().min(OPEN_MAX));
        Self {
            badge: Badge::status(delivery.status, c),
            reason: delivery.reason.map(|reason| f.reason(reason.as_str())),
            name: delivery.destination.clone().unwrap_or_else(|| t.destination_gone.to_owned()),
            attempts_removed: attempts_removed && delivery.attempts > 0,
            delivery,
            open: attempts,
            older,
            idempotency_key,
        }
    }

    pub(in crate::pages) fn can_replay(&self) -> bool {
        use DeliveryStatus::{Cancelled, Dead, Succeeded};
        self.delivery.destination.is_some()
            && matches!(self.delivery.status, Succeeded | Dead | Cancelled)
    }

    pub(in crate::pages) fn can_cancel(&self) -> bool {
        use DeliveryStatus::{Held, Pending, Scheduled};
        matches!(self.delivery.status, Pending | Scheduled | Held)
    }

    pub(in crate::pages) fn has_arrived(&self) -> bool {
        self.delivery.status == DeliveryStatus::Succeeded
    }
}

fn attempt_entry(
    attempt: &AttemptResponse,
    revealed: Option<String>,
    t: &EventTexts,
    f: &FailureTexts,
    lang: Lang,
) -> AttemptEntry {
    let outcome = match (attempt.status, attempt.failure) {
        (Some(status), _) => format!("HTTP {status}"),
        (None, Some(failure)) => f.failure(failure.as_str()).to_owned(),
        (None, None) if attempt.class.is_none() => t.delivered.to_owned(),
        (None, None) => t.no_response.to_owned(),
    };
    let (tone, icon) = if attempt.class.is_none() { ("ok", "check") } else { ("bad", "cross") };
    let class = attempt.class.map(|class| f.class(class.as_str()).to_owned());
    let took = format_duration(lang, Duration::from_millis(attempt.duration_ms));
    let response = revealed.unwrap_or_else(|| attempt.response.clone());
    AttemptEntry {
        number: attempt.number,
        at: attempt.started_at,
        badge: Badge::new(tone, icon, outcome),
        facts: class.into_iter().chain([took]).collect(),
        detail_text: attempt.detail.clone().filter(|detail_text| !detail_text.is_empty()),
        response: response.chars().take(ANSWER_CHARS_MAX).collect(),
    }
}
