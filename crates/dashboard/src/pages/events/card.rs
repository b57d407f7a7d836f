//! A delivery as a card: destination, status, attempts and actions.

use std::time::Duration;

use super::api::{AttemptItem, DeliveryDetails, RevealedResponse};
use crate::{
    format::{Badge, format_duration},
    lang::Lang,
    translations::{CommonTexts, EventTexts, FailureTexts},
};

/// Number of visible attempts; older ones are collapsed.
const OPEN_MAX: usize = 3;
const ANSWER_CHARS_MAX: usize = 2000;

pub(super) struct AttemptEntry {
    pub(super) number: u64,
    pub(super) at: String,
    pub(super) badge: Badge,
    pub(super) facts: Vec<String>,
    /// Detail from the API, in English.
    pub(super) detail_text: Option<String>,
    pub(super) answer: String,
}

#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing is shown")]
pub(super) struct DeliveryCard {
    pub(super) id: String,
    /// `None` if the destination was deleted.
    pub(super) destination: Option<String>,
    pub(super) name: String,
    pub(super) badge: Badge,
    pub(super) reason: Option<String>,
    pub(super) due_at: Option<String>,
    pub(super) order_key: Option<String>,
    pub(super) replay_of: Option<String>,
    pub(super) replayed_by: Option<String>,
    pub(super) sent_id: Option<String>,
    pub(super) attempts: u64,
    pub(super) attempts_removed: bool,
    /// Newest first.
    pub(super) open: Vec<AttemptEntry>,
    pub(super) older: Vec<AttemptEntry>,
    pub(super) can_replay: bool,
    pub(super) can_cancel: bool,
    pub(super) has_arrived: bool,
    pub(super) idempotency_key: String,
}

impl DeliveryCard {
    pub(super) fn new(
        detail: DeliveryDetails,
        responses: &[RevealedResponse],
        idempotency_key: String,
        lang: Lang,
    ) -> Self {
        let (t, c, f) = (EventTexts::of(lang), CommonTexts::of(lang), FailureTexts::of(lang));
        let DeliveryDetails { delivery, attempts_removed, attempt_list } = detail;
        let revealed_response = |number: u64| {
            let found = responses.iter().find(|a| a.delivery == delivery.id && a.number == number);
            found.map(|answer| answer.response.shown())
        };
        let mut attempts: Vec<AttemptEntry> = attempt_list
            .into_iter()
            .rev()
            .map(|attempt| attempt_entry(&attempt, revealed_response(attempt.number), t, f, lang))
            .collect();
        let older = attempts.split_off(attempts.len().min(OPEN_MAX));
        let status = delivery.status.as_str();
        Self {
            badge: Badge::status(status, c),
            can_replay: delivery.destination.is_some()
                && matches!(status, "succeeded" | "dead" | "cancelled"),
            can_cancel: matches!(status, "pending" | "scheduled" | "held"),
            has_arrived: status == "succeeded",
            reason: delivery.reason.map(|reason| f.reason(&reason).to_owned()),
            name: delivery.destination.clone().unwrap_or_else(|| t.destination_gone.to_owned()),
            destination: delivery.destination,
            id: delivery.id,
            due_at: delivery.due_at,
            order_key: delivery.order_key,
            replay_of: delivery.replay_of,
            replayed_by: delivery.replayed_by,
            sent_id: delivery.sent_id,
            attempts: delivery.attempts,
            attempts_removed: attempts_removed && delivery.attempts > 0,
            open: attempts,
            older,
            idempotency_key,
        }
    }
}

fn attempt_entry(
    attempt: &AttemptItem,
    revealed: Option<String>,
    t: &EventTexts,
    f: &FailureTexts,
    lang: Lang,
) -> AttemptEntry {
    let answered = match (attempt.status, attempt.failure.as_deref()) {
        (Some(status), _) => format!("HTTP {status}"),
        (None, Some(failure)) => f.failure(failure).to_owned(),
        (None, None) if attempt.class.is_none() => t.delivered.to_owned(),
        (None, None) => t.no_response.to_owned(),
    };
    let (tone, icon) = if attempt.class.is_none() { ("ok", "check") } else { ("bad", "cross") };
    let class = attempt.class.as_deref().map(|class| f.class(class).to_owned());
    let took = format_duration(lang, Duration::from_millis(attempt.took_ms));
    let answer = revealed.unwrap_or_else(|| attempt.response.clone());
    AttemptEntry {
        number: attempt.number,
        at: attempt.started_at.clone(),
        badge: Badge::new(tone, icon, answered),
        facts: class.into_iter().chain([took]).collect(),
        detail_text: attempt.detail.clone().filter(|detail_text| !detail_text.is_empty()),
        answer: answer.chars().take(ANSWER_CHARS_MAX).collect(),
    }
}
