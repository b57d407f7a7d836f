//! The response of a channel: its class, its scope, and the message id in it.

use std::{borrow::Cow, fmt, time::Duration};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use surehook_retry::{AttemptOutcome, DeadReason, FailureClass, StatusRules, classify};
use surehook_types::redact::MASK;

/// Longest text of a response, in characters.
const TEXT_CHARS_MAX: usize = 200;
/// A run of this many digits is a phone number or a personal id; error codes have fewer.
const MASKED_DIGITS_MIN: usize = 8;
/// Longest backoff computed from the number of attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(3600);

/// A classified response.
///
/// | `class` | `dead_reason` | next step |
/// | --- | --- | --- |
/// | none | none | sent; `sent_id` is the message id of the service |
/// | transient, throttled | none | retry after `backoff` or by the retry policy, at most `attempts_max` in all |
/// | permanent | set | dead |
/// | config | none | the delivery stays pending; what `scope` names stops until the problem is fixed |
/// | ambiguous | `ambiguous` | by [`ResendPolicy`](super::ResendPolicy); dead if sending again is not safe |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelResponse {
    /// `None` is a success.
    pub class: Option<FailureClass>,
    /// Minimum wait; `None` leaves it to the retry policy.
    pub backoff: Option<BackoffRequest>,
    /// Maximum number of attempts in all; `None` leaves it to the retry policy.
    pub attempts_max: Option<u32>,
    /// What else is affected, and is slowed or stopped with this message.
    pub scope: ErrorScope,
    pub dead_reason: Option<DeadReason>,
    /// Message id of the service.
    pub sent_id: Option<String>,
    /// Error code of the service.
    pub code: Option<String>,
    /// Shortened text of the service, without phone numbers.
    pub text: String,
}

/// How long a channel asks to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffRequest {
    Fixed(Duration),
    /// 1, 4, 16, 64 … seconds: four times as long after each attempt.
    PowersOfFour,
}

impl BackoffRequest {
    /// The wait after `attempts` attempts, the latest included.
    pub fn after(self, attempts: u32) -> Duration {
        match self {
            Self::Fixed(wait) => wait,
            Self::PowersOfFour => {
                let seconds = 4_u64.saturating_pow(attempts.saturating_sub(1));
                Duration::from_secs(seconds).min(BACKOFF_MAX)
            }
        }
    }
}

/// What an error affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorScope {
    /// This message only.
    Message,
    /// Messages of our number to this recipient.
    Pair,
    /// This recipient, for every sender.
    Recipient,
    /// Marketing messages to this recipient.
    Marketing,
    /// Messages to this recipient that are not templates.
    Conversation,
    /// All recipients in the same country.
    Country,
    /// This template.
    Template,
    /// This flow.
    Flow,
    /// Our phone number or instance.
    Number,
    /// The business account with all its numbers, or the token.
    Account,
    /// The app, with all its accounts.
    App,
    /// The service as a whole.
    Channel,
}

impl ErrorScope {
    /// Whether every message of the destination is affected.
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
    /// The minimum wait after `attempts` attempts; `None` leaves it to the retry policy.
    pub fn backoff_after(&self, attempts: u32) -> Option<Duration> {
        self.backoff.map(|backoff| backoff.after(attempts))
    }

    /// Why the message is dead after `attempts` attempts; `None` if it is not.
    pub fn dead_reason_after(&self, attempts: u32) -> Option<DeadReason> {
        let is_exhausted = self.attempts_max.is_some_and(|max| attempts >= max);
        self.dead_reason.or(is_exhausted.then_some(DeadReason::MaxRetries))
    }

    /// Whether the destination must be paused until the problem is fixed.
    pub fn should_pause_sender(&self) -> bool {
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
            backoff: None,
            attempts_max: None,
            scope,
            dead_reason: None,
            sent_id: None,
            code: None,
            text: sanitize_text(text),
        }
    }
}

/// Classifies by the HTTP status where the body says nothing: a proxy or the wrong server answered.
///
/// After a success without a message id, or a server error, the message may have been sent.
pub(super) fn classify_status(status: u16, text: &str) -> ChannelResponse {
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
        ChannelResponse::ambiguous("no response after the message was sent")
    } else {
        ChannelResponse::transient(ErrorScope::Channel, "the service could not be reached in time")
    }
}

/// Parses a body as JSON; null if it is not JSON.
pub(super) fn parse_json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

/// Makes a text safe to show: one line, shortened, without phone numbers and without the query of a URL,
/// which may contain a signature.
pub(super) fn sanitize_text(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.split_once('?') {
        Some((address, _)) if address.contains("://") => Cow::Owned(format!("{address}?{MASK}")),
        _ => Cow::Borrowed(word),
    });
    // Bounds the work; masking only shortens the text.
    let line = words.take(TEXT_CHARS_MAX).collect::<Vec<_>>().join(" ");
    let text = mask_numbers(&line);
    if text.chars().nth(TEXT_CHARS_MAX).is_none() {
        return text;
    }
    let mut cut: String = text.chars().take(TEXT_CHARS_MAX - 1).collect();
    cut.push('…');
    cut
}

/// Masks long runs of digits, including the separators inside a phone number.
fn mask_numbers(text: &str) -> String {
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
        out.push_str(if digits >= MASKED_DIGITS_MIN { MASK } else { number });
        rest = &run[number.len()..];
    }
    out.push_str(rest);
    out
}

/// Extracts the message id from a successful response. `path` holds field names and list indexes.
///
/// Works on a truncated body too: a service may echo the whole file that was sent, more than we read. The
/// id comes near the beginning, and missing it would report a delivered message as lost.
pub(super) fn extract_sent_id(status: u16, body: &[u8], path: &[&str]) -> Option<String> {
    (200..300).contains(&status).then(|| extract_text(body, path)).flatten()
}

/// The text at a path, also in a truncated body.
pub(super) fn extract_text(body: &[u8], path: &[&str]) -> Option<String> {
    let mut text = None;
    let mut json = serde_json::Deserializer::from_slice(body);
    // Fails at the end of a truncated body; a text found before that counts.
    PathVisitor { path, text: &mut text }.deserialize(&mut json).ok();
    text.filter(|text| !text.is_empty())
}

/// Visits a JSON value and stores the text at a path.
struct PathVisitor<'a> {
    path: &'a [&'a str],
    text: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for PathVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

/// A value of any other type is an error: it cannot contain the id.
impl<'de> Visitor<'de> for PathVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the path to a message id")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.path.is_empty() {
            *self.text = Some(text.to_owned());
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            match self.path.split_first() {
                Some((first, path)) if *first == name => {
                    fields.next_value_seed(PathVisitor { path, text: &mut *self.text })?;
                }
                Some(_) | None => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let target = self.path.split_first();
        let target = target.and_then(|(index, path)| Some((index.parse::<usize>().ok()?, path)));
        for index in 0_usize.. {
            let item = match target {
                Some((target, path)) if target == index => {
                    items.next_element_seed(PathVisitor { path, text: &mut *self.text })?
                }
                Some(_) | None => items.next_element::<IgnoredAny>()?.map(drop),
            };
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_text_is_shortened_and_phone_numbers_are_masked() {
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
            assert_eq!(sanitize_text(text), expected, "case: {text}");
        }
        assert_eq!(sanitize_text(&long).chars().count(), TEXT_CHARS_MAX);
        assert!(sanitize_text(&long).ends_with('…'));
    }

    #[test]
    fn backoff_grows_up_to_one_hour() {
        let backoffs: Vec<u64> = [0, 1, 2, 3, 4, 5, 6, 7, 99]
            .map(|n| BackoffRequest::PowersOfFour.after(n).as_secs())
            .to_vec();
        assert_eq!(backoffs, [1, 1, 4, 16, 64, 256, 1024, 3600, 3600]);
        assert_eq!(BackoffRequest::Fixed(BACKOFF_MAX).after(7), BACKOFF_MAX);
    }

    #[test]
    fn exhausted_attempts_make_message_dead() {
        let response = ChannelResponse {
            attempts_max: Some(2),
            ..ChannelResponse::transient(ErrorScope::Message, "")
        };
        assert_eq!([1, 2, 3].map(|n| response.dead_reason_after(n).is_some()), [false, true, true]);
        assert_eq!(response.dead_reason_after(2), Some(DeadReason::MaxRetries));
        let dead = ChannelResponse::permanent(DeadReason::Unrecoverable, ErrorScope::Recipient, "");
        assert_eq!(dead.dead_reason_after(1), Some(DeadReason::Unrecoverable));
    }

    #[test]
    fn sent_id_is_extracted_only_at_its_path() {
        let path: &[&str] = &["messages", "0", "id"];
        let cases = [
            (200, r#"{"messages":[{"id":"a"}]}"#, Some("a")),
            (
                201,
                r#" { "id":"x", "messages": [ {"n":1,"id":"a\u0041"}, {"id":"b"} ] } "#,
                Some("aA"),
            ),
            (200, r#"{"messages":[{"id":"a"},{"#, Some("a")),
            (200, r#"{"messages":[{"id":"a""#, Some("a")),
            (200, r#"{"messages":[{"id":"a"#, None),
            (200, r#"{"messages":[{"id":""}]}"#, None),
            (200, r#"{"messages":[{"id":7}]}"#, None),
            (200, r#"{"messages":[{"id":null}]}"#, None),
            (200, r#"{"messages":[{"id":{"id":"a"}}]}"#, None),
            (200, r#"{"messages":[{"no":{"id":"a"}},{"id":"b"}]}"#, None),
            (200, r#"{"messages":{"0":{"id":"a"}}}"#, Some("a")),
            (200, r#"{"messages":["a"]}"#, None),
            (200, r#"{"data":"AAAA"#, None),
            (400, r#"{"messages":[{"id":"a"}]}"#, None),
            (200, "<html>", None),
            (200, "", None),
        ];
        for (status, body, expected) in cases {
            let found = extract_sent_id(status, body.as_bytes(), path);
            assert_eq!(found.as_deref(), expected, "case: {status} {body}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(extract_sent_id(200, deep.as_bytes(), path), None);
    }
}
