//! Attempts of messages: composing the request for a channel, interpreting its response, the pace per
//! recipient, the outcome to record before a crash, daily counts and quiet hours.
//!
//! `attempt` calls `send_message` for destinations that send messages; the lane asks `can_send` before
//! it starts an attempt. A message that may not be sent now costs nothing: no attempt, no turn of the
//! rate, no slot. A send hold is computed whenever it is needed and so needs no storage; the number of
//! messages sent today is in the store.

use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use surehook_core::{
    destination::{Destination, TIMEOUT},
    store::{ClaimedDelivery, SentMessage, SettleResult},
};
use surehook_messaging::{
    ChannelResponse, ComposedRequest, Message, MessageSpecError, RecipientKey, RecipientPacer,
    ResendPolicy,
    send_limits::{DailySendCounter, SendHold, SendLimits},
    sender::{MessageSender, send_id},
};
use surehook_retry::{
    AttemptFailure, AttemptOutcome, FailureClass, SendOutcome, StatusRules, classify,
    recipient_backoff,
};
use surehook_types::{store_error::StoreError, time::Timestamp};

use super::{
    Lane, LaneState,
    attempt::{PostponeReason, PostponedUntil, RunningAttempt, UnsentReason},
};
use crate::{
    destination_client::DestinationClient,
    media::MediaFiles,
    sender::{RESPONSE_BYTES_KEPT, SendReport},
};

/// Whether a message waits until its recipient may get another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecipientPacing {
    Respect,
    /// For a probe: an operator wants the result now.
    Ignore,
}

/// A message that is ready to be sent.
#[derive(Debug)]
pub(super) struct OutboundMessage<'c> {
    sender: &'c MessageSender,
    url: Uri,
    composed: ComposedRequest,
    body: Bytes,
    timeout: Duration,
    recipient: RecipientKey,
    /// The number of the attempt.
    attempt: u32,
}

impl<'c> OutboundMessage<'c> {
    /// Reads the message in the body of a delivery and composes the channel's request, with a fresh
    /// link to its media file. Fails if the body is not a message or the channel cannot send it.
    pub(super) async fn compose(
        sender: &'c MessageSender,
        media: &MediaFiles,
        destination: &Destination,
        claimed: &ClaimedDelivery,
        now: Timestamp,
    ) -> Result<Self, SendReport> {
        let unsendable = |detail: String| SendReport::failed(AttemptFailure::Unsendable, detail);
        let mut message = Message::parse(&claimed.payload.body)
            .map_err(|error| unsendable(describe_invalid_message(&error)))?;
        media.resolve_files(&mut message, sender.channel.name(), now).await.map_err(|error| {
            SendReport { detail: Some(error.to_string()), ..SendReport::of(error.outcome()) }
        })?;
        let id = send_id(claimed.event, destination.id);
        let composed = sender
            .channel
            .compose(&sender.account, &message, &id)
            .map_err(|error| unsendable(error.to_string()))?;
        let url = Uri::try_from(composed.url.as_str())
            .map_err(|_| unsendable("the URL of the channel is invalid".to_owned()))?;
        let body = Bytes::from(composed.body.to_string());
        // A timeout shorter than the channel's own leaves it unknown whether the message was sent, so
        // it is used only if the settings ask for it.
        let is_configured = destination.timeout != TIMEOUT;
        let timeout = if is_configured { destination.timeout } else { composed.timeout_min };
        let (recipient, attempt) = (RecipientKey::new(&message.to), claimed.attempts + 1);
        Ok(Self { sender, url, composed, body, timeout, recipient, attempt })
    }

    /// Whether a crash while the message is on its way must not make it be sent again.
    fn needs_crash_outcome(&self) -> bool {
        self.sender.needs_crash_outcome(self.composed.resend)
    }

    async fn send(self, client: &DestinationClient) -> SendReport {
        let Self { sender, url, composed, body, timeout, recipient: _, attempt } = self;
        let report = client.send_for_full_response(&url, composed.headers, body, timeout).await;
        interpret_report(sender, composed.resend, attempt, report)
    }
}

impl Lane {
    /// Sends a message, unless its recipient must not get another one yet.
    pub(super) async fn send_message(
        &self,
        attempt: &RunningAttempt,
        message: OutboundMessage<'_>,
        pacing: RecipientPacing,
    ) -> Result<SendReport, UnsentReason> {
        let recipient = message.recipient;
        if pacing == RecipientPacing::Respect
            && let Some(until) = self.take_recipient_turn(recipient)
        {
            let reason = PostponeReason::RecipientPace;
            return Err(UnsentReason::Postponed(PostponedUntil { until, reason }));
        }
        if message.needs_crash_outcome()
            && let Err(detail) = self.record_crash_outcome(attempt, &message).await
        {
            return Ok(SendReport::failed(AttemptFailure::Interrupted, detail));
        }
        let report = message.send(&attempt.client).await;
        if let Some(wait) = recipient_backoff(&report.outcome, self.shared.clock.now()) {
            self.back_off_recipient(recipient, wait);
        }
        Ok(report)
    }

    /// Records the outcome that holds if the process crashes during the attempt. If that cannot be
    /// written the message must not be sent: after a crash it would be sent again.
    async fn record_crash_outcome(
        &self,
        attempt: &RunningAttempt,
        message: &OutboundMessage<'_>,
    ) -> Result<(), String> {
        let OutboundMessage { sender, composed, .. } = message;
        let unknown =
            unknown_outcome(sender, composed.resend, message.attempt, AttemptFailure::Interrupted);
        let detail = "the gateway stopped while the message was being sent; it may have arrived";
        let report = SendReport {
            detail: Some(detail.to_owned()),
            ..SendReport::of(AttemptOutcome::Interpreted(unknown))
        };
        // A response could have arrived until the timeout; only after it is a status awaited.
        let at = attempt.started_at + message.timeout;
        let decision = self.decide(attempt, &report.outcome, at);
        let settlement = self.build_settlement(attempt, report, &decision);
        let record = || self.shared.store.record_crash_outcome(settlement.clone());
        match self.write_until_known(record).await {
            Ok(SettleResult::Recorded | SettleResult::Overruled(_)) => {
                attempt.crash_outcome.get_or_init(|| unknown);
                Ok(())
            }
            Ok(SettleResult::ClaimLost) => Err("the claim on the delivery was lost".to_owned()),
            Err(error) => Err(format!("could not record that the message is sent: {error}")),
        }
    }
}

/// The outcome of a message that may have been sent.
fn unknown_outcome(
    sender: &MessageSender,
    resend: ResendPolicy,
    attempt: u32,
    failure: AttemptFailure,
) -> SendOutcome {
    let response = sender.channel.timeout_response(true);
    SendOutcome { failure: Some(failure), ..sender.send_outcome(&response, resend, attempt) }
}

/// Translates a report into the channel's terms.
fn interpret_report(
    sender: &MessageSender,
    resend: ResendPolicy,
    attempt: u32,
    mut report: SendReport,
) -> SendReport {
    match report.outcome {
        AttemptOutcome::Answered { status, retry_after } => {
            let response = sender.channel.parse_response(status, &report.response_body);
            shorten(&mut report.response_body);
            let outcome = sender.send_outcome(&response, resend, attempt);
            SendReport {
                outcome: AttemptOutcome::Interpreted(SendOutcome {
                    status: Some(status),
                    retry_after,
                    ..outcome
                }),
                detail: response.class.is_some().then(|| describe_response(&response)),
                sent_id: response.sent_id,
                ..report
            }
        }
        AttemptOutcome::Failed(failure) if report.may_have_arrived => {
            shorten(&mut report.response_body);
            let outcome =
                AttemptOutcome::Interpreted(unknown_outcome(sender, resend, attempt, failure));
            SendReport { outcome, ..report }
        }
        // The sender is misconfigured: its messages wait until the settings are fixed.
        AttemptOutcome::Failed(failure)
            if classify(&report.outcome, &StatusRules::none()) == Some(FailureClass::Config) =>
        {
            SendReport {
                outcome: AttemptOutcome::Interpreted(MessageSender::unreachable_outcome(failure)),
                ..report
            }
        }
        AttemptOutcome::Failed(_) | AttemptOutcome::Interpreted(_) => report,
    }
}

/// Once the answer is interpreted, only the part that people read is kept.
fn shorten(body: &mut Vec<u8>) {
    body.truncate(RESPONSE_BYTES_KEPT);
    body.shrink_to_fit();
}

/// Why a body is not a message. The parser's own text may quote the content, and is not stored.
fn describe_invalid_message(error: &MessageSpecError) -> String {
    if matches!(error, MessageSpecError::Unreadable(_)) {
        return "the body is not a message: a message is a JSON object with `to` and one of text, \
                image, video, audio, document, sticker, location, contact, reaction, template. Use a \
                `transform` in the route to build one"
            .to_owned();
    }
    error.to_string()
}

fn describe_response(response: &ChannelResponse) -> String {
    match &response.code {
        Some(code) => format!("{code}: {}", response.text),
        None => response.text.clone(),
    }
}

/// The record of a message that was sent, or may have been; `None` for other destinations.
pub(super) fn sent_message(
    destination: &Destination,
    report: &SendReport,
    class: Option<FailureClass>,
    at: Timestamp,
) -> Option<SentMessage> {
    let sender = destination.sender()?;
    let may_be_sent = matches!(class, None | Some(FailureClass::Ambiguous));
    may_be_sent.then(|| SentMessage { id: report.sent_id.clone(), day: sender.limits.day(at) })
}

/// The state of a lane that sends messages.
#[derive(Debug)]
pub(super) struct MessageSendState {
    /// `None` until it was read from the store.
    today: Option<DailySendCounter>,
    recipients: RecipientPacer,
}

impl MessageSendState {
    pub(super) fn new(destination: &Destination) -> Self {
        let rule = destination.sender().and_then(|sender| sender.recipient_rule);
        Self { today: None, recipients: RecipientPacer::new(rule) }
    }

    /// An earlier owner of the lane may just have sent something to any recipient.
    pub(super) fn assume_all_were_sent_to(&mut self, now: Duration) {
        self.recipients.assume_all_were_sent_to(now);
    }

    pub(super) fn update(&mut self, old: &Destination, new: &Destination, now: Timestamp) {
        let rule = new.sender().and_then(|sender| sender.recipient_rule);
        if old.transport != new.transport {
            // Another number: the pace of the old one says nothing about it.
            self.recipients = RecipientPacer::new(rule);
        }
        self.recipients.set_rule(rule);
        let day = |destination: &Destination| destination.sender().map(|s| s.limits.day(now));
        if day(old) != day(new) {
            self.today = None;
        }
    }

    /// How many were sent today, if that is known.
    fn sent_today(&self, limits: &SendLimits, now: Timestamp) -> Option<u64> {
        self.today.and_then(|today| today.count_on(limits.day(now)))
    }

    fn hold(&self, limits: &SendLimits, now: Timestamp) -> Option<(Timestamp, SendHold)> {
        limits.hold(now, self.sent_today(limits, now).unwrap_or_default())
    }

    /// Whether one more may be sent while `running` are under way.
    fn can_send(&self, limits: &SendLimits, running: u32, now: Timestamp) -> bool {
        let is_allowed = |sent: u64| {
            limits.hold(now, sent).is_none() && limits.remaining(sent) > u64::from(running)
        };
        self.sent_today(limits, now).is_some_and(is_allowed)
    }
}

impl Lane {
    /// Whether daily limit and quiet hours allow one more attempt; if the lane sends no messages, whether
    /// there is a listener or none is needed.
    pub(super) fn can_send(&self, state: &LaneState) -> bool {
        let destination = self.destination.load();
        let Some(MessageSender { limits, .. }) = destination.sender() else {
            return !self.lacks_listener();
        };
        state.messages.can_send(limits, state.scheduler.running(), self.shared.clock.now())
    }

    /// Until when nothing is sent, and why.
    pub(super) fn send_hold(&self, state: &LaneState) -> Option<(Timestamp, SendHold)> {
        let destination = self.destination.load();
        let limits = &destination.sender()?.limits;
        state.messages.hold(limits, self.shared.clock.now())
    }

    pub(crate) fn current_send_hold(&self) -> Option<(Timestamp, SendHold)> {
        self.send_hold(&self.lock())
    }

    /// Reads from the store how many messages were sent today, if that is not known, and updates the
    /// metrics.
    pub(super) async fn load_sent_today(&self) -> Result<(), StoreError> {
        let destination = self.destination.load_full();
        let Some(MessageSender { limits, .. }) = destination.sender() else { return Ok(()) };
        let now = self.shared.clock.now();
        let sent_today = self.lock().messages.sent_today(limits, now);
        let sent = match sent_today {
            Some(sent) => sent,
            None => {
                let day = limits.day(now);
                let sent = self.shared.messages.count_sent_on(self.id.destination, day).await?;
                self.lock().messages.today = Some(DailySendCounter::new(day, sent, limits));
                sent
            }
        };
        self.publish_sent_today(&destination, limits, sent);
        Ok(())
    }

    /// Counts a message that was sent, or may have been. Called while the attempt still counts as
    /// running, so that the message is never missing from both counts.
    pub(super) fn count_sent(&self, destination: &Destination, day: i32) {
        let Some(MessageSender { limits, .. }) = destination.sender() else { return };
        let mut state = self.lock();
        let Some(today) = &mut state.messages.today else { return };
        let warned = today.count(day, limits);
        let sent = today.count_on(day).unwrap_or_default();
        drop(state);
        self.publish_sent_today(destination, limits, sent);
        if let Some(sent) = warned {
            let destination = destination.name.as_str();
            let warn_at = limits.warn_at.map_or(0, std::num::NonZeroU64::get);
            tracing::warn!(
                destination,
                sent,
                warn_at,
                "daily warning threshold reached; a number that sends too many messages may be banned"
            );
        }
    }

    fn publish_sent_today(&self, destination: &Destination, limits: &SendLimits, sent: u64) {
        self.shared.telemetry.set_sent_today(destination.name.as_str(), sent, limits.warn_at);
    }

    /// Takes the recipient's next turn; or returns when to try again, if it is too early for it.
    fn take_recipient_turn(&self, recipient: RecipientKey) -> Option<Timestamp> {
        let wait = self.lock().messages.recipients.reserve(recipient, self.started.elapsed());
        // Rounded up: a message that is a moment too early would be postponed again.
        let until = || self.shared.clock.now() + wait + Duration::from_millis(1);
        (!wait.is_zero()).then(until)
    }

    /// The channel asked us to send nothing to this recipient for a while.
    fn back_off_recipient(&self, recipient: RecipientKey, wait: Duration) {
        self.lock().messages.recipients.hold(recipient, wait, self.started.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::destination::{DestinationSpec, Transport};
    use surehook_retry::{AmbiguousPolicy, FailureScope};
    use surehook_types::ids::DestinationId;

    use super::*;

    fn sender(kind: &str) -> Box<MessageSender> {
        let spec = serde_json::json!({
            "name": "shop", "kind": kind, "url": "https://service.test/",
            "account": { "sender": "1", "token": "t" },
        });
        let spec: DestinationSpec = serde_json::from_value(spec).unwrap();
        let id = DestinationId::new(Timestamp::from_millis(1), 1);
        let Transport::Channel(sender) = spec.build(id, &|_| None).unwrap().transport else {
            panic!("{kind} sends no messages")
        };
        sender
    }

    #[test]
    fn long_response_is_parsed_completely_and_stored_truncated() {
        let file = "A".repeat(RESPONSE_BYTES_KEPT);
        let body = serde_json::json!({ "key": { "id": "3EB0A1" }, "message": file }).to_string();
        let outcome = AttemptOutcome::Answered { status: 201, retry_after: None };
        let report = SendReport {
            response_body: body.clone().into_bytes(),
            may_have_arrived: true,
            ..SendReport::of(outcome)
        };
        let report = interpret_report(&sender("evolution-api"), ResendPolicy::Unsafe, 1, report);
        assert_eq!(report.sent_id.as_deref(), Some("3EB0A1"));
        assert_eq!(report.response_body, body.as_bytes()[..RESPONSE_BYTES_KEPT]);
    }

    #[test]
    fn failure_before_sending_pauses_the_sender_instead_of_parking_the_message() {
        for failure in [AttemptFailure::ProxyRefused, AttemptFailure::Tls] {
            let failed = |may_have_arrived| {
                let report = SendReport::of(AttemptOutcome::Failed(failure));
                let report = SendReport { may_have_arrived, ..report };
                let report =
                    interpret_report(&sender("evolution-api"), ResendPolicy::Unsafe, 1, report);
                let AttemptOutcome::Interpreted(outcome) = report.outcome else {
                    panic!("the report was not interpreted")
                };
                outcome
            };
            let refused = failed(false);
            assert_eq!(
                (refused.class, refused.scope),
                (Some(FailureClass::Config), FailureScope::PauseDestination)
            );
            let unknown = failed(true);
            assert_eq!(
                (unknown.class, unknown.on_ambiguous),
                (Some(FailureClass::Ambiguous), AmbiguousPolicy::Park)
            );
        }
    }
}
