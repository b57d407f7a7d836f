//! The sender of a messaging destination: its account, and what to do after an ambiguous send.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_retry::{AmbiguousPolicy, AttemptFailure, FailureClass, FailureScope, SendOutcome};
use surehook_types::{
    ids::{DestinationId, EventId},
    secret::{Env, SecretError, SecretRef, digest_parts},
    time::HumanDuration,
};

use super::send_limits::{QuietHours, SendLimits, UtcOffset};
use crate::{
    AccountSpecError, Channel, ChannelAccount, ChannelResponse, ErrorScope, RecipientPaceRule,
    ResendPolicy,
};

/// Default wait for a status update.
const DEFAULT_STATUS_WITHIN: Duration = Duration::from_secs(600);
/// Longest wait for a status update.
const STATUS_WITHIN_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Minimum retry delay of a message whose template or flow is blocked.
const BLOCKED_CONTENT_DELAY: Duration = Duration::from_secs(3600);

/// The account settings of a messaging destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountSpec {
    /// Phone number id (whatsapp-cloud) or instance name (evolution-api). Not needed for evolution-go,
    /// whose token identifies the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Access token or API key.
    pub token: SecretRef,
}

/// The sending settings of a messaging destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendingSpec {
    /// What to do with a message whose outcome is unknown, if sending it again could deliver it twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_ambiguous: Option<AmbiguousSendPolicy>,
    /// How long to wait for a status update in that case; default `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_within: Option<HumanDuration>,
    /// Daily number of messages that triggers a warning; 0 disables it. Default 50 for evolution-go and
    /// evolution-api, whose numbers WhatsApp bans when they send too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<u64>,
    /// Daily limit of messages; the rest is sent on the next day.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub stop_at: Option<u64>,
    /// When nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<QuietHours>,
    /// UTC offset instead of a time zone; default `+00:00`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc_offset: Option<UtcOffset>,
    /// IANA time zone of the sending day and of quiet hours, such as `America/Sao_Paulo`. Follows
    /// daylight-saving changes. Set either this or `utc_offset`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Keeps to the rate limit per recipient of the service. Default `true` for whatsapp-cloud; the other
    /// services have no known limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair_pace: Option<bool>,
}

/// What to do with a message whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AmbiguousSendPolicy {
    /// Wait for a status update, and send again if none arrives. Only for whatsapp-cloud, whose status
    /// updates carry the send id; the default there.
    Wait,
    /// Send again by the retry policy. The recipient may get it twice.
    Retry,
    /// Mark it dead with the reason `ambiguous`, for a person to decide. The default of evolution-api.
    Park,
}

/// Why the account or sending settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum SendingSpecError {
    #[error(
        "`account` is missing; set account = {{ token = \"env:…\" }} and the sender that the service needs"
    )]
    NoAccount,
    #[error("account: {0}")]
    Account(#[from] AccountSpecError),
    #[error("account: {0}")]
    Token(#[from] SecretError),
    #[error(
        "sending: `on_ambiguous = \"wait\"` is only for whatsapp-cloud; status updates of {0} carry no send id, use \"retry\" or \"park\""
    )]
    CannotWait(&'static str),
    #[error("sending: `status_within` must be between 1s and 7d")]
    StatusWithin,
    #[error("sending: `stop_at` must be at least 1; to send nothing, pause the destination")]
    StopAt,
    #[error(
        "sending: unknown time zone `{0}`; use an IANA name such as America/Sao_Paulo, or set `utc_offset`"
    )]
    TimeZone(String),
    #[error("sending: `time_zone` and `utc_offset` are both set; remove one of them")]
    TwoTimeZones,
    #[error(
        "sending: `pair_pace = true` is only for whatsapp-cloud; {0} has no known limit per recipient, remove it"
    )]
    NoRecipientRule(&'static str),
}

/// Sends the messages of a destination.
#[derive(Clone, Debug)]
pub struct MessageSender {
    pub channel: &'static dyn Channel,
    pub account: ChannelAccount,
    pub limits: SendLimits,
    /// Pacing per recipient, if enabled.
    pub recipient_rule: Option<RecipientPaceRule>,
    on_ambiguous: AmbiguousSendPolicy,
    status_within: Duration,
    identity: [u8; 32],
}

/// Two senders are equal if they use the same account of the same server.
impl PartialEq for MessageSender {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for MessageSender {}

impl MessageSender {
    /// Checks the settings and resolves the token through `env`.
    pub fn build(
        channel: &'static dyn Channel,
        url: &str,
        account: Option<&AccountSpec>,
        sending: &SendingSpec,
        env: Env<'_>,
    ) -> Result<Self, SendingSpecError> {
        let spec = account.ok_or(SendingSpecError::NoAccount)?;
        let token = spec.token.resolve(env)?;
        let url = Some(url).filter(|url| !url.is_empty());
        let sender = spec.sender.as_deref();
        let parts = [
            channel.name().as_bytes(),
            url.unwrap_or_default().as_bytes(),
            sender.unwrap_or_default().as_bytes(),
            token.expose(),
        ];
        let identity = digest_parts(parts);
        let account = channel.build_account(url, sender, token)?;
        let can_wait = channel.has_send_id_in_statuses();
        let default = if can_wait { AmbiguousSendPolicy::Wait } else { AmbiguousSendPolicy::Park };
        let on_ambiguous = sending.on_ambiguous.unwrap_or(default);
        if on_ambiguous == AmbiguousSendPolicy::Wait && !can_wait {
            return Err(SendingSpecError::CannotWait(channel.name()));
        }
        let status_within =
            sending.status_within.map_or(DEFAULT_STATUS_WITHIN, |duration| duration.0);
        if !(Duration::from_secs(1)..=STATUS_WITHIN_MAX).contains(&status_within) {
            return Err(SendingSpecError::StatusWithin);
        }
        let recipient_rule = channel.pacing().per_recipient;
        if sending.pair_pace == Some(true) && recipient_rule.is_none() {
            return Err(SendingSpecError::NoRecipientRule(channel.name()));
        }
        Ok(Self {
            channel,
            account,
            limits: SendLimits::new(channel, sending)?,
            recipient_rule: recipient_rule.filter(|_| sending.pair_pace != Some(false)),
            on_ambiguous,
            status_within,
            identity,
        })
    }

    /// The outcome of attempt number `attempts`, from the response and the resend policy of the request.
    pub fn send_outcome(
        &self,
        response: &ChannelResponse,
        resend: ResendPolicy,
        attempts: u32,
    ) -> SendOutcome {
        let mut wait = response.backoff_after(attempts);
        let is_whole_sender = response.scope.is_whole_sender();
        let scope = match response.class {
            Some(FailureClass::Config) if is_whole_sender => FailureScope::PauseDestination,
            Some(FailureClass::Throttled) if is_whole_sender => FailureScope::CoolDownDestination,
            Some(FailureClass::Throttled) if response.scope == ErrorScope::Pair => {
                FailureScope::ThisRecipient
            }
            Some(FailureClass::Config | FailureClass::Throttled | FailureClass::Permanent) => {
                FailureScope::ThisDelivery
            }
            Some(FailureClass::Transient | FailureClass::Ambiguous) | None => FailureScope::ByClass,
        };
        if response.class == Some(FailureClass::Config) && !is_whole_sender {
            wait = Some(wait.unwrap_or_default().max(BLOCKED_CONTENT_DELAY));
        }
        SendOutcome {
            status: None,
            failure: None,
            class: response.class,
            wait,
            retry_after: None,
            tries: response.attempts_max,
            reason: response
                .dead_reason
                .filter(|_| response.class == Some(FailureClass::Permanent)),
            scope,
            on_ambiguous: self.ambiguous_policy(resend),
        }
    }

    /// The outcome of a configuration failure before anything was sent: the delivery stays pending.
    pub fn unreachable_outcome(failure: AttemptFailure) -> SendOutcome {
        SendOutcome {
            failure: Some(failure),
            scope: FailureScope::PauseDestination,
            ..SendOutcome::of(Some(FailureClass::Config))
        }
    }

    fn ambiguous_policy(&self, resend: ResendPolicy) -> AmbiguousPolicy {
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

    /// Whether the outcome for a crash must be stored before sending, so that a crash does not send the
    /// message twice.
    pub fn needs_crash_outcome(&self, resend: ResendPolicy) -> bool {
        self.ambiguous_policy(resend) != AmbiguousPolicy::Retry
    }
}

/// The id of a send, the same for all attempts and replays.
pub fn send_id(event: EventId, destination: DestinationId) -> String {
    format!("{event}.{destination}")
}

/// Parses the id of one of our sends.
pub fn parse_send_id(text: &str) -> Option<(EventId, DestinationId)> {
    let (event, destination) = text.split_once('.')?;
    Some((event.parse().ok()?, destination.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use surehook_retry::DeadReason;
    use surehook_types::time::Timestamp;

    use super::*;

    fn sender(kind: &str, settings: &str) -> Result<MessageSender, SendingSpecError> {
        let account = AccountSpec { sender: Some("1".to_owned()), token: "t".parse().unwrap() };
        let sending: SendingSpec = serde_json::from_str(settings).unwrap();
        let channel = crate::find_channel(kind).unwrap();
        MessageSender::build(channel, "https://a.test", Some(&account), &sending, &|_| None)
    }

    #[test]
    fn ambiguous_send_is_handled_by_channel_and_settings() {
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
        for (kind, settings, resend, expected) in cases {
            let sender = sender(kind, settings).unwrap();
            assert_eq!(
                sender.ambiguous_policy(resend),
                expected,
                "case: {kind} {settings} {resend:?}"
            );
            assert_eq!(sender.needs_crash_outcome(resend), expected != AmbiguousPolicy::Retry);
        }
    }

    #[test]
    fn invalid_sending_settings_are_rejected() {
        let cases = [
            ("evolution-api", r#"{"on_ambiguous":"wait"}"#, "only for whatsapp-cloud"),
            ("whatsapp-cloud", r#"{"status_within":"8d"}"#, "between 1s and 7d"),
            ("whatsapp-cloud", r#"{"stop_at":0}"#, "at least 1"),
            ("evolution-go", r#"{"pair_pace":true}"#, "evolution-go has no known limit"),
        ];
        for (kind, settings, expected) in cases {
            let error = sender(kind, settings).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn recipient_is_paced_where_channel_has_a_rule() {
        let cases = [
            ("whatsapp-cloud", "{}", true),
            ("whatsapp-cloud", r#"{"pair_pace":true}"#, true),
            ("whatsapp-cloud", r#"{"pair_pace":false}"#, false),
            ("evolution-go", "{}", false),
            ("evolution-api", r#"{"pair_pace":false}"#, false),
        ];
        for (kind, settings, expected) in cases {
            let rule = sender(kind, settings).unwrap().recipient_rule;
            assert_eq!(rule.is_some(), expected, "case: {kind} {settings}");
        }
    }

    #[test]
    fn response_affects_what_its_scope_names() {
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
            let response = ChannelResponse {
                class: Some(class),
                backoff: None,
                attempts_max: None,
                scope,
                dead_reason: None,
                sent_id: None,
                code: None,
                text: String::new(),
            };
            let outcome = sender.send_outcome(&response, ResendPolicy::WaitForStatus, 1);
            assert_eq!(outcome.scope, expected, "case: {class:?} {scope:?}");
            assert_eq!(outcome.reason, None::<DeadReason>);
        }
    }

    #[test]
    fn send_id_is_parsed_back() {
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
