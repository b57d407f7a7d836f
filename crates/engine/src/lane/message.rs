//! A message on its way to a service, and what the service's answer means.

use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use surehook_core::{
    channel::{
        ChannelResponse, ComposedRequest, Message, MessageSpecError, RecipientKey, ResendPolicy,
    },
    delivery::{
        AttemptFailure, AttemptOutcome, FailureClass,
        retry::{SendOutcome, StatusRules, classify},
    },
    destination::{
        Destination, TIMEOUT,
        sender::{MessageSender, send_id},
    },
    store::ClaimedDelivery,
    time::Timestamp,
};

use super::carrier::NotSentReason;
use crate::{
    destination_client::DestinationClient,
    media::MediaFiles,
    sender::{RESPONSE_BYTES_KEPT, SendReport},
};

/// A message, ready to go.
#[derive(Debug)]
pub(super) struct OutboundMessage<'o> {
    sender: &'o MessageSender,
    url: Uri,
    composed: ComposedRequest,
    body: Bytes,
    deadline: Duration,
    /// Whose turn it takes.
    pub(super) recipient: RecipientKey,
    /// Which attempt it is.
    attempt: u32,
}

impl<'o> OutboundMessage<'o> {
    /// Reads the message in the body of a delivery, with a fresh link to its file. Fails if it is none,
    /// or none that the service could send.
    pub(super) async fn write(
        (sender, media): (&'o MessageSender, &MediaFiles),
        destination: &Destination,
        claimed: &ClaimedDelivery,
        now: Timestamp,
    ) -> Result<Self, SendReport> {
        let unsendable =
            |why: String| SendReport::from(NotSentReason(AttemptFailure::Unsendable, why));
        let mut message =
            Message::parse(&claimed.payload.body).map_err(|error| unsendable(why(&error)))?;
        media.resolve_files(&mut message, sender.channel.name(), now).await.map_err(|no_link| {
            SendReport { detail: Some(no_link.to_string()), ..SendReport::of(no_link.outcome()) }
        })?;
        let id = send_id(claimed.event, destination.id);
        let composed = sender
            .channel
            .compose(&sender.account, &message, &id)
            .map_err(|error| unsendable(error.to_string()))?;
        let url = Uri::try_from(composed.url.as_str())
            .map_err(|_| unsendable("the address of the service cannot be called".to_owned()))?;
        let body = Bytes::from(composed.body.to_string());
        // Who gives up before the service does cannot know what became of the message. It is done only
        // for somebody who asks for it.
        let is_asked = destination.timeout != TIMEOUT;
        let deadline = if is_asked { destination.timeout } else { composed.timeout_min };
        let (recipient, attempt) = (RecipientKey::new(&message.to), claimed.attempts + 1);
        Ok(Self { sender, url, composed, body, deadline, recipient, attempt })
    }

    /// How long an answer is waited for.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Whether a crash while it is on its way must not make it go out again.
    pub(super) fn needs_crash_outcome(&self) -> bool {
        self.sender.needs_crash_outcome(self.composed.resend)
    }

    /// What it means that nothing is known of it.
    pub(super) fn lost(&self, failure: AttemptFailure) -> SendOutcome {
        lost(self.sender, self.composed.resend, self.attempt, failure)
    }

    /// Sends it.
    pub(super) async fn send(self, outlet: &DestinationClient) -> SendReport {
        let Self { sender, url, composed, body, deadline, recipient: _, attempt } = self;
        let report = outlet.ask_for(&url, composed.headers, body, deadline).await;
        read(sender, composed.resend, attempt, report)
    }
}

/// What it means that nothing is known of a message that may have arrived.
fn lost(
    sender: &MessageSender,
    resend: ResendPolicy,
    attempt: u32,
    failure: AttemptFailure,
) -> SendOutcome {
    let answer = sender.channel.timeout_response(true);
    SendOutcome { failure: Some(failure), ..sender.send_outcome(&answer, resend, attempt) }
}

/// What a report means in the words of the service.
fn read(
    sender: &MessageSender,
    resend: ResendPolicy,
    attempt: u32,
    mut report: SendReport,
) -> SendReport {
    let meant = |answer: &ChannelResponse| sender.send_outcome(answer, resend, attempt);
    match report.outcome {
        AttemptOutcome::Answered { status, retry_after } => {
            let answer = sender.channel.parse_response(status, &report.response_body);
            cut(&mut report.response_body);
            let meant = SendOutcome { status: Some(status), retry_after, ..meant(&answer) };
            SendReport {
                outcome: AttemptOutcome::Interpreted(meant),
                detail: answer.class.is_some().then(|| said(&answer)),
                sent_id: answer.sent_id,
                ..report
            }
        }
        AttemptOutcome::Failed(failure) if report.may_have_arrived => {
            cut(&mut report.response_body);
            SendReport {
                outcome: AttemptOutcome::Interpreted(lost(sender, resend, attempt, failure)),
                ..report
            }
        }
        // Wrong settings of the sender: what it is owed waits until somebody has mended them.
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

/// Once an answer was understood, only what people may want to read of it is kept.
fn cut(body: &mut Vec<u8>) {
    body.truncate(RESPONSE_BYTES_KEPT);
    body.shrink_to_fit();
}

/// Why a body is no message. What the parser says may quote what somebody wrote, and is not kept.
fn why(error: &MessageSpecError) -> String {
    if matches!(error, MessageSpecError::Unreadable(_)) {
        return "the body is no message: that is a JSON object with `to` and one of text, image, \
                video, audio, document, sticker, location, contact, reaction, template. Let a \
                `transform` of the route make one"
            .to_owned();
    }
    error.to_string()
}

/// What the service said, with its code, for people.
fn said(answer: &ChannelResponse) -> String {
    match &answer.code {
        Some(code) => format!("{code}: {}", answer.text),
        None => answer.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::{
        delivery::retry::{AmbiguousPolicy, FailureScope},
        destination::{DestinationSpec, Transport},
        ids::DestinationId,
    };

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
    fn a_long_answer_is_understood_and_only_its_start_is_kept() {
        let file = "A".repeat(RESPONSE_BYTES_KEPT);
        let body = serde_json::json!({ "key": { "id": "3EB0A1" }, "message": file }).to_string();
        let answered = AttemptOutcome::Answered { status: 201, retry_after: None };
        let report = SendReport {
            response_body: body.clone().into_bytes(),
            may_have_arrived: true,
            ..SendReport::of(answered)
        };
        let report = read(&sender("evolution-api"), ResendPolicy::Unsafe, 1, report);
        assert_eq!(report.sent_id.as_deref(), Some("3EB0A1"));
        assert_eq!(report.response_body, body.as_bytes()[..RESPONSE_BYTES_KEPT]);
    }

    #[test]
    fn what_cannot_have_arrived_stops_the_sender_and_parks_nothing() {
        for failure in [AttemptFailure::ProxyRefused, AttemptFailure::Tls] {
            let failed = |may_have_arrived| {
                let report = SendReport::of(AttemptOutcome::Failed(failure));
                let report = SendReport { may_have_arrived, ..report };
                let report = read(&sender("evolution-api"), ResendPolicy::Unsafe, 1, report);
                let AttemptOutcome::Interpreted(meant) = report.outcome else {
                    panic!("it was not read")
                };
                meant
            };
            let refused = failed(false);
            assert_eq!(
                (refused.class, refused.affects),
                (Some(FailureClass::Config), FailureScope::StopsAll)
            );
            let lost = failed(true);
            assert_eq!(
                (lost.class, lost.unsure),
                (Some(FailureClass::Ambiguous), AmbiguousPolicy::Park)
            );
        }
    }
}
