//! A destination that sends messages: as whom, and what to do when nobody knows what became of one.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    kind::DestinationKind,
    send_limits::{QuietHours, SendLimits, UtcOffset},
};
use crate::{
    channel::{
        AccountSpecError, Channel, ChannelAccount, ChannelResponse, ErrorScope, RecipientPaceRule,
        ResendPolicy,
    },
    delivery::{
        AttemptFailure, FailureClass,
        retry::{AmbiguousPolicy, FailureScope, SendOutcome},
    },
    ids::{DestinationId, EventId},
    secret::{SecretError, SecretRef, digest_parts},
    time::HumanDuration,
};

/// How long a status is waited for, unless it is said.
const STATUS_WITHIN: Duration = Duration::from_secs(600);
/// The longest that a status may be waited for.
const STATUS_WITHIN_MAX: Duration = Duration::from_secs(7 * 86_400);
/// A message that is held up by its template or its flow is tried again after this long at least.
const HELD_UP: Duration = Duration::from_secs(3600);

/// Whom messages are sent as, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountSpec {
    /// The phone number id (whatsapp-cloud) or the name of the instance (evolution-api). Evolution Go
    /// knows it by the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The access token or API key.
    pub token: SecretRef,
}

/// How messages are sent, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendingSpec {
    /// What becomes of a message of which nobody knows whether it arrived, where sending it again could
    /// make it two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_ambiguous: Option<AmbiguousSendPolicy>,
    /// How long a status is waited for then; `10m` unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_within: Option<HumanDuration>,
    /// Somebody is warned when so many were sent in a day; 0 is never. 50 unless it is said for
    /// evolution-go and evolution-api, whose numbers WhatsApp bans when they send much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<u64>,
    /// No more than so many are sent in a day; the rest waits for the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub stop_at: Option<u64>,
    /// Hours of every day in which nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<QuietHours>,
    /// How far the calendar of days and quiet hours is ahead of UTC; `+00:00` unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc_offset: Option<UtcOffset>,
    /// Whether one recipient gets messages no faster than the service allows. So it is for
    /// whatsapp-cloud unless `false` is said; of the others no such rule is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair_pace: Option<bool>,
}

/// What becomes of a message of which nobody knows whether it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AmbiguousSendPolicy {
    /// It waits for a status that says so, and is sent again if none comes. Only where the service says
    /// in its statuses which send they are about: whatsapp-cloud, and there it is the default.
    Wait,
    /// It is sent again by the retry policy, and may arrive twice.
    Retry,
    /// It is dead with the reason `ambiguous`, for a person to decide. The default of evolution-api.
    Park,
}

/// Why messages cannot be sent as it is written.
#[derive(Debug, thiserror::Error)]
pub enum SendingSpecError {
    /// Nobody to send as.
    #[error(
        "`account` is missing; write account = {{ token = \"env:…\" }} with what the service asks for"
    )]
    NoAccount,
    /// The account cannot be used.
    #[error("account: {0}")]
    Account(#[from] AccountSpecError),
    /// The token cannot be looked up.
    #[error("account: {0}")]
    Token(#[from] SecretError),
    /// The service cannot do that.
    #[error(
        "sending: `on_ambiguous = \"wait\"` is for whatsapp-cloud; {0} does not say which send a status is about, write \"retry\" or \"park\""
    )]
    CannotWait(&'static str),
    /// The span is out of its range.
    #[error("sending: `status_within` must be between 1s and 7d")]
    StatusWithin,
    /// Nothing would ever be sent.
    #[error("sending: `stop_at` must be at least 1; to send nothing, pause the destination")]
    StopAt,
    /// There is no pace to keep to.
    #[error(
        "sending: `pair_pace = true` is for whatsapp-cloud; how fast {0} takes messages to one recipient is not known, leave it out"
    )]
    NoPairRule(&'static str),
}

/// A destination that sends messages.
#[derive(Clone, Debug)]
pub struct MessageSender {
    /// Through what.
    pub channel: &'static dyn Channel,
    /// As whom.
    pub account: ChannelAccount,
    /// How much is sent in a day, and when nothing is.
    pub limits: SendLimits,
    /// How fast one recipient gets messages, if that is minded.
    pub recipient_rule: Option<RecipientPaceRule>,
    on_ambiguous: AmbiguousSendPolicy,
    status_within: Duration,
    identity: [u8; 32],
}

/// The same sender is the same account at the same place.
impl PartialEq for MessageSender {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for MessageSender {}

impl MessageSender {
    /// Checks what is written.
    pub fn build(
        kind: DestinationKind,
        channel: &'static dyn Channel,
        (url, account, sending): (&str, Option<&AccountSpec>, &SendingSpec),
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SendingSpecError> {
        let spec = account.ok_or(SendingSpecError::NoAccount)?;
        let token = spec.token.resolve(env)?;
        let url = Some(url).filter(|url| !url.is_empty());
        let sender = spec.sender.as_deref();
        let parts = [
            kind.as_str().as_bytes(),
            url.unwrap_or_default().as_bytes(),
            sender.unwrap_or_default().as_bytes(),
            token.expose(),
        ];
        let identity = digest_parts(parts);
        let account = channel.build_account(url, sender, token)?;
        let can_wait = channel.has_send_id_in_statuses();
        let usual = if can_wait { AmbiguousSendPolicy::Wait } else { AmbiguousSendPolicy::Park };
        let on_ambiguous = sending.on_ambiguous.unwrap_or(usual);
        if on_ambiguous == AmbiguousSendPolicy::Wait && !can_wait {
            return Err(SendingSpecError::CannotWait(channel.name()));
        }
        let status_within = sending.status_within.map_or(STATUS_WITHIN, |span| span.0);
        if !(Duration::from_secs(1)..=STATUS_WITHIN_MAX).contains(&status_within) {
            return Err(SendingSpecError::StatusWithin);
        }
        let recipient_rule = channel.pacing().pair;
        if sending.pair_pace == Some(true) && recipient_rule.is_none() {
            return Err(SendingSpecError::NoPairRule(channel.name()));
        }
        Ok(Self {
            channel,
            account,
            limits: SendLimits::new(kind, sending)?,
            recipient_rule: recipient_rule.filter(|_| sending.pair_pace != Some(false)),
            on_ambiguous,
            status_within,
            identity,
        })
    }

    /// What follows from an answer to attempt number `attempts`. `resend` is what the request said
    /// about itself.
    pub fn send_outcome(
        &self,
        answer: &ChannelResponse,
        resend: ResendPolicy,
        attempts: u32,
    ) -> SendOutcome {
        let mut wait = answer.wait_after(attempts);
        let whole = answer.scope.is_whole_sender();
        let affects = match answer.class {
            Some(FailureClass::Config) if whole => FailureScope::PauseDestination,
            Some(FailureClass::Throttled) if whole => FailureScope::CoolDownDestination,
            Some(FailureClass::Throttled) if answer.scope == ErrorScope::Pair => {
                FailureScope::ThisRecipient
            }
            Some(FailureClass::Config | FailureClass::Throttled | FailureClass::Permanent) => {
                FailureScope::ThisDelivery
            }
            Some(FailureClass::Transient | FailureClass::Ambiguous) | None => FailureScope::ByClass,
        };
        if answer.class == Some(FailureClass::Config) && !whole {
            wait = Some(wait.unwrap_or_default().max(HELD_UP));
        }
        SendOutcome {
            status: None,
            failure: None,
            class: answer.class,
            wait,
            retry_after: None,
            tries: answer.tries,
            reason: answer.dead_reason.filter(|_| answer.class == Some(FailureClass::Permanent)),
            scope: affects,
            on_ambiguous: self.unsure(resend),
        }
    }

    /// What follows from a failure that certainly did not hand the message over, and where somebody
    /// must mend something: the message stays owed.
    pub fn unreachable_outcome(failure: AttemptFailure) -> SendOutcome {
        SendOutcome {
            failure: Some(failure),
            scope: FailureScope::PauseDestination,
            ..SendOutcome::of(Some(FailureClass::Config))
        }
    }

    fn unsure(&self, resend: ResendPolicy) -> AmbiguousPolicy {
        match (resend, self.on_ambiguous) {
            (ResendPolicy::SameId | ResendPolicy::Harmless, _)
            | (_, AmbiguousSendPolicy::Retry) => AmbiguousPolicy::Retry,
            (ResendPolicy::WaitForStatus, AmbiguousSendPolicy::Wait) => {
                AmbiguousPolicy::RetryAfterWait(self.status_within)
            }
            (ResendPolicy::WaitForStatus, AmbiguousSendPolicy::Park)
            | (ResendPolicy::Unsafe, AmbiguousSendPolicy::Wait | AmbiguousSendPolicy::Park) => {
                AmbiguousPolicy::Park
            }
        }
    }

    /// Whether something must be on the disk before a request goes out, so that a crash does not send
    /// it again.
    pub fn needs_crash_outcome(&self, resend: ResendPolicy) -> bool {
        self.unsure(resend) != AmbiguousPolicy::Retry
    }
}

/// What one send is called at a service: the same over all attempts and replays.
pub fn send_id(event: EventId, destination: DestinationId) -> String {
    format!("{event}.{destination}")
}

/// Which send it is, if it is one of ours.
pub fn parse_send_id(text: &str) -> Option<(EventId, DestinationId)> {
    let (event, destination) = text.split_once('.')?;
    Some((event.parse().ok()?, destination.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delivery::DeadReason, time::Timestamp};

    fn sender(kind: &str, more: &str) -> Result<MessageSender, SendingSpecError> {
        let kind: DestinationKind = serde_json::from_value(serde_json::json!(kind)).unwrap();
        let account = AccountSpec { sender: Some("1".to_owned()), token: "t".parse().unwrap() };
        let sending: SendingSpec = serde_json::from_str(more).unwrap();
        let written = ("https://a.test", Some(&account), &sending);
        MessageSender::build(kind, kind.channel().unwrap(), written, &|_| None)
    }

    #[test]
    fn what_nobody_knows_is_handled_as_the_service_allows() {
        use ResendPolicy::{Harmless, SameId, Unsafe, WaitForStatus};
        let minutes = |n: u64| AmbiguousPolicy::RetryAfterWait(Duration::from_secs(60 * n));
        let cases = [
            ("evolution-go", "{}", SameId, AmbiguousPolicy::Retry),
            ("evolution-go", r#"{"on_ambiguous":"park"}"#, SameId, AmbiguousPolicy::Retry),
            ("evolution-go", "{}", Harmless, AmbiguousPolicy::Retry),
            ("whatsapp-cloud", "{}", WaitForStatus, minutes(10)),
            ("whatsapp-cloud", r#"{"status_within":"2m"}"#, WaitForStatus, minutes(2)),
            ("whatsapp-cloud", r#"{"on_ambiguous":"park"}"#, WaitForStatus, AmbiguousPolicy::Park),
            (
                "whatsapp-cloud",
                r#"{"on_ambiguous":"retry"}"#,
                WaitForStatus,
                AmbiguousPolicy::Retry,
            ),
            ("whatsapp-cloud", "{}", Harmless, AmbiguousPolicy::Retry),
            ("evolution-api", "{}", Unsafe, AmbiguousPolicy::Park),
            ("evolution-api", r#"{"on_ambiguous":"retry"}"#, Unsafe, AmbiguousPolicy::Retry),
        ];
        for (kind, more, resend, expected) in cases {
            let sender = sender(kind, more).unwrap();
            assert_eq!(sender.unsure(resend), expected, "case: {kind} {more} {resend:?}");
            assert_eq!(sender.needs_crash_outcome(resend), expected != AmbiguousPolicy::Retry);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let cases = [
            ("evolution-api", r#"{"on_ambiguous":"wait"}"#, "is for whatsapp-cloud"),
            ("whatsapp-cloud", r#"{"status_within":"8d"}"#, "between 1s and 7d"),
            ("whatsapp-cloud", r#"{"stop_at":0}"#, "at least 1"),
            ("evolution-go", r#"{"pair_pace":true}"#, "how fast evolution-go"),
        ];
        for (kind, more, expected) in cases {
            let error = sender(kind, more).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_recipient_is_paced_where_the_service_has_a_rule() {
        let cases = [
            ("whatsapp-cloud", "{}", true),
            ("whatsapp-cloud", r#"{"pair_pace":true}"#, true),
            ("whatsapp-cloud", r#"{"pair_pace":false}"#, false),
            ("evolution-go", "{}", false),
            ("evolution-api", r#"{"pair_pace":false}"#, false),
        ];
        for (kind, more, expected) in cases {
            let rule = sender(kind, more).unwrap().recipient_rule;
            assert_eq!(rule.is_some(), expected, "case: {kind} {more}");
        }
    }

    #[test]
    fn an_answer_affects_what_its_scope_names() {
        let cases = [
            (FailureClass::Config, ErrorScope::Account, FailureScope::PauseDestination),
            (FailureClass::Config, ErrorScope::Template, FailureScope::ThisDelivery),
            (FailureClass::Throttled, ErrorScope::Number, FailureScope::CoolDownDestination),
            (FailureClass::Throttled, ErrorScope::Pair, FailureScope::ThisRecipient),
            (FailureClass::Permanent, ErrorScope::Pair, FailureScope::ThisDelivery),
            (FailureClass::Transient, ErrorScope::Number, FailureScope::ByClass),
        ];
        let sender = sender("whatsapp-cloud", "{}").unwrap();
        for (class, scope, expected) in cases {
            let answer = ChannelResponse {
                class: Some(class),
                wait: None,
                tries: None,
                scope,
                dead_reason: None,
                sent_id: None,
                code: None,
                text: String::new(),
            };
            let meant = sender.send_outcome(&answer, ResendPolicy::WaitForStatus, 1);
            assert_eq!(meant.scope, expected, "case: {class:?} {scope:?}");
            assert_eq!(meant.reason, None::<DeadReason>);
        }
    }

    #[test]
    fn a_send_is_recognised_by_its_id() {
        let (event, destination) = (
            EventId::new(Timestamp::from_millis(5), 7),
            DestinationId::new(Timestamp::from_millis(6), 8),
        );
        let id = send_id(event, destination);
        assert_eq!(parse_send_id(&id), Some((event, destination)));
        for other in ["", ".", "order-5", &id[1..], &format!("{destination}.{event}")] {
            assert_eq!(parse_send_id(other), None, "case: {other}");
        }
    }
}
