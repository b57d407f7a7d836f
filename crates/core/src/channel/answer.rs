//! What the answer of a service means.

use std::{borrow::Cow, time::Duration};

use serde_json::Value;

use crate::{
    delivery::{
        AttemptOutcome, DeadReason, FailureClass,
        retry::{StatusRules, classify},
    },
    redact::MASK,
};

/// The longest text of an answer, in characters.
const TEXT_CHARS_MAX: usize = 200;
/// So many digits in a row are a phone number or an id of a person; codes of errors have fewer.
const DIGITS_HIDDEN: usize = 8;
/// The longest wait that is worked out from the number of attempts.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// What an answer means.
///
/// | `class` | `dead_reason` | what follows |
/// | --- | --- | --- |
/// | none | none | sent: `sent_id` is what the service calls the message |
/// | transient, throttled | none | again, after `wait` or by the policy, at most `tries` in all |
/// | permanent | why | dead |
/// | config | none | the message stays owed; whatever `scope` names stops until somebody has mended it |
/// | ambiguous | `ambiguous` | by [`ResendPolicy`](super::ResendPolicy); dead if nobody may send it again |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelResponse {
    /// What kind of failure it is; `None` is a success.
    pub class: Option<FailureClass>,
    /// How long to wait at least; `None` leaves it to the policy.
    pub wait: Option<BackoffRequest>,
    /// How many attempts in all make sense; `None` leaves it to the policy.
    pub tries: Option<u32>,
    /// What is concerned beside this message, and should be slowed or stopped with it.
    pub scope: ErrorScope,
    /// Why the message is dead, if it is.
    pub dead_reason: Option<DeadReason>,
    /// What the service calls the message.
    pub sent_id: Option<String>,
    /// The code of the service.
    pub code: Option<String>,
    /// What the service said, in short and without phone numbers.
    pub text: String,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffRequest {
    /// Always so long.
    Fixed(Duration),
    /// 1, 4, 16, 64 … seconds: four times as long after each attempt.
    PowersOfFour,
}

impl BackoffRequest {
    /// How long to wait when `attempts` were made, the latest included.
    pub fn after(self, attempts: u32) -> Duration {
        match self {
            Self::Fixed(wait) => wait,
            Self::PowersOfFour => {
                let seconds = 4_u64.saturating_pow(attempts.saturating_sub(1));
                Duration::from_secs(seconds).min(WAIT_MAX)
            }
        }
    }
}

/// What an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorScope {
    /// This message only.
    Message,
    /// What our number sends to this recipient; the others are unaffected.
    Pair,
    /// This recipient, whoever writes to them.
    Recipient,
    /// Marketing to this recipient.
    Marketing,
    /// What we say to this recipient outside of a template.
    Conversation,
    /// All recipients in the same country.
    Country,
    /// This template.
    Template,
    /// This flow.
    Flow,
    /// Our number or instance.
    Number,
    /// The business account with all its numbers, or the token.
    Account,
    /// The app, with all its accounts.
    App,
    /// The service as a whole.
    Channel,
}

impl ErrorScope {
    /// Whether nothing of what a destination sends can be expected to pass.
    pub const fn is_whole_sender(self) -> bool {
        match self {
            Self::Number | Self::Account | Self::App | Self::Channel => true,
            Self::Message
            | Self::Pair
            | Self::Recipient
            | Self::Marketing
            | Self::Conversation
            | Self::Country
            | Self::Template
            | Self::Flow => false,
        }
    }
}

impl ChannelResponse {
    /// How long to wait when `attempts` were made; `None` leaves it to the policy.
    pub fn wait_after(&self, attempts: u32) -> Option<Duration> {
        self.wait.map(|wait| wait.after(attempts))
    }

    /// Why the message is dead when `attempts` were made; `None` if it is not.
    pub fn dead_after(&self, attempts: u32) -> Option<DeadReason> {
        let used_up = self.tries.is_some_and(|tries| attempts >= tries);
        self.dead_reason.or(used_up.then_some(DeadReason::MaxRetries))
    }

    /// Whether the destination must stop until somebody has looked at it. What waits is kept.
    pub fn stops_sender(&self) -> bool {
        self.class == Some(FailureClass::Config) && self.scope.is_whole_sender()
    }

    pub(super) fn sent(sent_id: &str, text: &str) -> Self {
        Self { sent_id: Some(sent_id.to_owned()), ..Self::new(None, ErrorScope::Message, text) }
    }

    pub(super) fn permanent(reason: DeadReason, scope: ErrorScope, text: &str) -> Self {
        Self { dead_reason: Some(reason), ..Self::new(Some(FailureClass::Permanent), scope, text) }
    }

    pub(super) fn transient(scope: ErrorScope, text: &str) -> Self {
        Self::new(Some(FailureClass::Transient), scope, text)
    }

    pub(super) fn config(scope: ErrorScope, text: &str) -> Self {
        Self::new(Some(FailureClass::Config), scope, text)
    }

    pub(super) fn ambiguous(text: &str) -> Self {
        let dead_reason = Some(DeadReason::Ambiguous);
        Self { dead_reason, ..Self::new(Some(FailureClass::Ambiguous), ErrorScope::Message, text) }
    }

    pub(super) fn new(class: Option<FailureClass>, scope: ErrorScope, text: &str) -> Self {
        Self {
            class,
            wait: None,
            tries: None,
            scope,
            dead_reason: None,
            sent_id: None,
            code: None,
            text: short(text),
        }
    }
}

/// What the status says where the service itself says nothing: a proxy answered, or the wrong server.
///
/// A success without the id of a message and a server that broke down leave it open whether the
/// message went out.
pub(super) fn by_status(status: u16, text: &str) -> ChannelResponse {
    let text = match text {
        "" => format!("status {status}"),
        text => format!("status {status}: {text}"),
    };
    let outcome = AttemptOutcome::Answered { status, retry_after: None };
    match classify(&outcome, &StatusRules::none()) {
        None => ChannelResponse::ambiguous(&text),
        Some(_) if status >= 500 => ChannelResponse::ambiguous(&text),
        Some(FailureClass::Permanent) => {
            ChannelResponse::permanent(DeadReason::PayloadError, ErrorScope::Message, &text)
        }
        Some(FailureClass::Config) => ChannelResponse::config(ErrorScope::Account, &text),
        Some(class @ FailureClass::Throttled) => {
            ChannelResponse::new(Some(class), ErrorScope::Number, &text)
        }
        Some(class @ (FailureClass::Transient | FailureClass::Ambiguous)) => {
            ChannelResponse::new(Some(class), ErrorScope::Channel, &text)
        }
    }
}

pub(super) fn timeout_response(body_was_sent: bool) -> ChannelResponse {
    if body_was_sent {
        ChannelResponse::ambiguous("no answer came after the message was handed over")
    } else {
        ChannelResponse::transient(ErrorScope::Channel, "the service could not be reached in time")
    }
}

/// A body as JSON; null if it is none.
pub(super) fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

/// A text for people: without phone numbers, without what follows the `?` of an address (which may be
/// a signature), on one line, and not long.
pub(super) fn short(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.split_once('?') {
        Some((address, _)) if address.contains("://") => Cow::Owned(format!("{address}?{MASK}")),
        _ => Cow::Borrowed(word),
    });
    // Enough for what is kept, whatever is hidden of it.
    let line = words.take(TEXT_CHARS_MAX).collect::<Vec<_>>().join(" ");
    let text = without_numbers(&line);
    if text.chars().nth(TEXT_CHARS_MAX).is_none() {
        return text;
    }
    let mut cut: String = text.chars().take(TEXT_CHARS_MAX - 1).collect();
    cut.push('…');
    cut
}

/// Masks runs of digits, also with what is written between the digits of a phone number.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit() || c == '+') {
        let (before, run) = rest.split_at(start);
        out.push_str(before);
        let is_part = |c: char| c.is_ascii_digit() || "+()-. ".contains(c);
        let end = run.find(|c: char| !is_part(c)).unwrap_or(run.len());
        let trimmed = run[..end].trim_end_matches(|c: char| !c.is_ascii_digit());
        let number = if trimmed.is_empty() { &run[..1] } else { trimmed };
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        out.push_str(if digits >= DIGITS_HIDDEN { MASK } else { number });
        rest = &run[number.len()..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_short_and_holds_no_number() {
        let long = "word ".repeat(100);
        let cases = [
            ("number 5511987654321 is not registered", "number ••• is not registered"),
            ("number +55 (11) 98765-4321.", "number •••."),
            ("5511987654321@s.whatsapp.net", "•••@s.whatsapp.net"),
            ("(#131056) pair rate limit, 24 hours", "(#131056) pair rate limit, 24 hours"),
            ("1 + 1 = 2", "1 + 1 = 2"),
            ("BR.1502576394655843 +", "BR.••• +"),
            (
                "Get \"https://r2.test/a.pdf?X-Amz-Signature=abc\": EOF",
                "Get \"https://r2.test/a.pdf?••• EOF",
            ),
            ("two\n  lines\t", "two lines"),
            ("what? nothing", "what? nothing"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(short(text), expected, "case: {text}");
        }
        assert_eq!(short(&long).chars().count(), TEXT_CHARS_MAX);
        assert!(short(&long).ends_with('…'));
    }

    #[test]
    fn waits_grow_up_to_an_hour() {
        let waits: Vec<u64> = [0, 1, 2, 3, 4, 5, 6, 7, 99]
            .map(|n| BackoffRequest::PowersOfFour.after(n).as_secs())
            .to_vec();
        assert_eq!(waits, [1, 1, 4, 16, 64, 256, 1024, 3600, 3600]);
        assert_eq!(BackoffRequest::Fixed(WAIT_MAX).after(7), WAIT_MAX);
    }

    #[test]
    fn tries_that_are_used_up_are_the_end() {
        let answer = ChannelResponse {
            tries: Some(2),
            ..ChannelResponse::transient(ErrorScope::Message, "")
        };
        assert_eq!([1, 2, 3].map(|n| answer.dead_after(n).is_some()), [false, true, true]);
        assert_eq!(answer.dead_after(2), Some(DeadReason::MaxRetries));
        let dead = ChannelResponse::permanent(DeadReason::Unrecoverable, ErrorScope::Recipient, "");
        assert_eq!(dead.dead_after(1), Some(DeadReason::Unrecoverable));
    }
}
