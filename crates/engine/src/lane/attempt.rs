//! One attempt: send, decide_retry, settle.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::Duration,
};

use surehook_core::{
    delivery::{
        AttemptFailure, AttemptOutcome, AttemptProgress, FailureClass, RetryDecision,
        ScheduleReason, decide_retry,
        retry::{SendOutcome, classify, cool_until, recipient_backoff},
    },
    destination::Destination,
    event::Payload,
    ids::EventId,
    lane::circuit::CircuitPermit,
    redact,
    rng::new_id,
    store::{
        AttemptRecord, ClaimedDelivery, NextStep, SentMessage, SettleResult, Settlement, StoreError,
    },
    sync::{SyncResult, is_skipped_response},
    time::Timestamp,
};

use super::{
    Lane, LaneSlot, QueuedDelivery,
    carrier::{NotSentReason, OutboundRequest, interrupted, pack},
    gate::{LaneAttemptResult, LaneGate},
    sending::PostponedDelivery,
};
use crate::{
    destination_client::DestinationClient,
    feed::LiveUpdate,
    sender::SendReport,
    source_secrets::{SourceSecrets, strip},
    transform,
    waiters::WaiterResult,
};

/// What a successful answer may leave behind, in bytes; of a failure all that was read is kept.
const RESPONSE_BYTES_ON_SUCCESS: usize = 1024;

/// How long a result waits before it is written again while the disk is full.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(1);

/// An attempt that has ended.
struct RunningAttempt<'a> {
    claimed: &'a ClaimedDelivery,
    ticket: CircuitPermit,
    started_at: Timestamp,
}

/// Whether a message waits for its turn with its recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecipientPacing {
    Kept,
    /// A person wants to know now.
    Skipped,
}

/// It is not its turn before then.
struct NotBefore(Timestamp);

/// An attempt whose result is still to be written.
pub(super) struct FinishedAttempt {
    pub(super) settlement: Settlement,
    event: EventId,
    slot: LaneSlot,
}

impl Lane {
    /// Makes one attempt. Its result is written in the background, so that the worker is free.
    pub(super) async fn attempt(self: &Arc<Self>, job: QueuedDelivery, ticket: CircuitPermit) {
        let lane = Arc::clone(self);
        match self.make_attempt(job, ticket, RecipientPacing::Kept).await {
            Ok(made) => self.shared.tasks.spawn(lane.settle(made)),
            Err(put_off) => self.shared.tasks.spawn(lane.put_off(put_off)),
        };
    }

    /// Makes one attempt; its result is still to be written. Fails if it is not its turn, and then
    /// nothing was tried.
    pub(super) async fn make_attempt(
        &self,
        job: QueuedDelivery,
        ticket: CircuitPermit,
        turns: RecipientPacing,
    ) -> Result<FinishedAttempt, PostponedDelivery> {
        let QueuedDelivery { claimed, slot } = job;
        let outlet = self.carrier.outlet.load_full();
        let started_at = self.shared.clock.now();
        let on_its_way = OnceLock::new();
        let sent = tokio::select! {
            sent = self.send(&outlet, &claimed, (started_at, turns), &on_its_way) => sent,
            () = self.shared.abort.cancelled() => {
                let report = interrupted(self.shared.clock.now().since(started_at));
                Ok(match on_its_way.get() {
                    Some(lost) => SendReport { outcome: AttemptOutcome::Interpreted(*lost), ..report },
                    None => report,
                })
            }
        };
        let report = match sent {
            Ok(report) => report,
            Err(NotBefore(due_at)) => {
                self.inside().gate.put_off(ticket);
                return Err(PostponedDelivery::new(&claimed, due_at, slot));
            }
        };
        let attempted = RunningAttempt { claimed: &claimed, ticket, started_at };
        let settlement = self.conclude(&outlet.destination, &attempted, report);
        Ok(FinishedAttempt { settlement, event: claimed.event, slot })
    }

    /// Sends it, after the transform that is still to be run and without what is to be taken out.
    /// `on_its_way` is told when it begins to be on its way and must not be sent again if nothing more
    /// is heard of it: what that would mean. Fails if a message has to wait for its turn with its
    /// recipient.
    async fn send(
        &self,
        outlet: &DestinationClient,
        claimed: &ClaimedDelivery,
        (now, turns): (Timestamp, RecipientPacing),
        on_its_way: &OnceLock<SendOutcome>,
    ) -> Result<SendReport, NotBefore> {
        let secrets = self.shared.secrets.load().of(&claimed.source).clone();
        let secret = &*secrets.headers;
        let way = (outlet, &*self.shared.media);
        let parcel = match self.sent(claimed, &secrets) {
            Ok(Cow::Borrowed(_)) => pack(way, claimed, secret, now).await,
            Ok(Cow::Owned(payload)) => {
                pack(way, &ClaimedDelivery { payload, ..claimed.clone() }, secret, now).await
            }
            Err(why) => Err(NotSentReason(AttemptFailure::Transform, why).into()),
        };
        let parcel = match parcel {
            Ok(parcel) => parcel,
            Err(unsent) => return Ok(unsent),
        };
        let recipient = match &parcel {
            OutboundRequest::OutboundMessage(letter) => Some(letter.recipient),
            OutboundRequest::Request { .. }
            | OutboundRequest::Inbox(_)
            | OutboundRequest::Input(..)
            | OutboundRequest::Entry(..) => None,
        };
        let minded = recipient.filter(|_| turns == RecipientPacing::Kept);
        if let Some(due_at) = minded.and_then(|recipient| self.wait_for_turn(recipient)) {
            return Err(NotBefore(due_at));
        }
        if let OutboundRequest::OutboundMessage(letter) = &parcel
            && letter.needs_crash_outcome()
        {
            let lost = letter.lost(AttemptFailure::Interrupted);
            // Until then an answer could have come, and only then a status is waited for.
            let at = now + letter.deadline();
            if let Err(why) = self.leave_will(outlet, claimed, (now, at), lost).await {
                return Ok(NotSentReason(AttemptFailure::Interrupted, why).into());
            }
            on_its_way.get_or_init(|| lost);
        }
        let report = self.carrier.carry(outlet, parcel).await;
        let asked = recipient_backoff(&report.outcome, self.shared.clock.now());
        if let (Some(recipient), Some(wait)) = (recipient, asked) {
            self.leave_alone(recipient, wait);
        }
        Ok(report)
    }

    /// Writes down what holds if nothing more is heard of this attempt. If that cannot be written, the
    /// message must not go out: after a crash it would go out again.
    async fn leave_will(
        &self,
        outlet: &DestinationClient,
        claimed: &ClaimedDelivery,
        (now, at): (Timestamp, Timestamp),
        lost: SendOutcome,
    ) -> Result<(), String> {
        let detail = "the gateway ended while the message was on its way; nobody knows whether it \
                      arrived";
        let report = SendReport {
            detail: Some(detail.to_owned()),
            ..SendReport::of(AttemptOutcome::Interpreted(lost))
        };
        let roll = self.shared.chance.unit();
        let will = self.settlement(&outlet.destination, (claimed, now), report, (at, roll));
        match self.shared.store.leave_will(will).await {
            Ok(SettleResult::Recorded | SettleResult::Overruled(_)) => Ok(()),
            Ok(SettleResult::LeaseLost) => Err("the delivery was taken over".to_owned()),
            Err(error) => Err(format!("it could not be noted that it goes out: {error}")),
        }
    }

    /// What is sent, or why nothing is.
    fn sent<'c>(
        &self,
        claimed: &'c ClaimedDelivery,
        said: &SourceSecrets,
    ) -> Result<Cow<'c, Payload>, String> {
        let Some(route) = claimed.transform else { return strip(said, &claimed.payload) };
        let transforms = self.shared.transforms.load();
        let made = transform::run_late(&transforms, route, &claimed.payload).map_err(|why| {
            // It may quote the body, and is shown to whoever may not see its secrets.
            let Payload { head, body, .. } = &claimed.payload;
            redact::mask_values_in_message(&why, &head.headers.to_map(), body, &said.names)
        })?;
        Ok(Cow::Owned(strip(said, &made)?.into_owned()))
    }

    fn conclude(
        &self,
        destination: &Destination,
        attempted: &RunningAttempt<'_>,
        report: SendReport,
    ) -> Settlement {
        let RunningAttempt { claimed, ticket, started_at } = *attempted;
        let at = self.shared.clock.now();
        let class = classify(&report.outcome, &destination.rules);
        let progress = progress(claimed, class);
        let roll = if class.is_some() { self.shared.chance.unit() } else { 0.0 };
        self.count(destination, claimed, &report, at);
        // Whatever becomes of this delivery, the destination has asked for peace.
        if let Some(until) = cool_until(&report.outcome, progress, destination.terms(), at, roll) {
            self.metrics.remote_429.inc();
            self.cool_down(until);
        }
        self.learn(
            destination,
            &LaneAttemptResult {
                ticket,
                delivery: claimed.id,
                outcome: &report.outcome,
                class,
                detail: report.detail.as_deref(),
                at,
                roll,
            },
        );
        let settlement = self.settlement(destination, (claimed, started_at), report, (at, roll));
        if let Some(sent) = &settlement.sent {
            self.count_sent(destination, sent.day);
        }
        if let NextStep::Dead(reason) = settlement.next {
            self.shared.telemetry.buried(destination.name.as_str(), reason.as_str());
        }
        settlement
    }

    /// What is written down of an attempt that ended at that time.
    fn settlement(
        &self,
        destination: &Destination,
        (claimed, started_at): (&ClaimedDelivery, Timestamp),
        report: SendReport,
        (at, roll): (Timestamp, f64),
    ) -> Settlement {
        let class = classify(&report.outcome, &destination.rules);
        let progress = progress(claimed, class);
        let verdict = decide_retry(&report.outcome, progress, destination.terms(), at, roll);
        let verdict = match &destination.lane.order {
            Some(order) if claimed.ordered => {
                order.on_failure.temper(verdict, &destination.retry, at)
            }
            Some(_) | None => verdict,
        };
        let (next, why_then) = match verdict {
            RetryDecision::Succeeded => (NextStep::Succeeded, None),
            RetryDecision::RetryAt { due_at, why, .. } => (NextStep::RetryAt(due_at), Some(why)),
            RetryDecision::Pause { due_at } => {
                (NextStep::RetryAt(due_at), Some(ScheduleReason::Paused))
            }
            RetryDecision::Dead { reason, .. } => (NextStep::Dead(reason), None),
        };
        let sent = sent(destination, &report, class, at);
        // A sender that waits is told what the destination said.
        let awaited = self.shared.waiters.is_awaited(claimed.id);
        let attempt = AttemptRecord {
            id: new_id(&*self.shared.chance, started_at),
            number: progress.attempts,
            started_at,
            took: report.elapsed,
            timing: report.timing,
            status: report.outcome.status(),
            failure: report.outcome.failure(),
            class,
            detail: report.detail,
            response: kept(report.response_body, class.is_none() && !awaited),
        };
        Settlement {
            delivery: claimed.id,
            destination: claimed.destination,
            created_at: claimed.created_at,
            token: claimed.lease.token,
            at,
            attempt,
            next,
            why_then,
            ordered: claimed.ordered,
            sent,
        }
    }

    /// What an attempt says about the destination as a whole.
    fn learn(&self, destination: &Destination, ended: &LaneAttemptResult<'_>) {
        let mut inside = self.inside();
        let full = destination.concurrency;
        let look = |gate: &LaneGate| (gate.circuit.state(), gate.allowed(full));
        let before = look(&inside.gate);
        inside.gate.end(destination, ended);
        let has_changed = before != look(&inside.gate);
        if has_changed {
            self.narrow.store(inside.gate.is_narrow(), std::sync::atomic::Ordering::Release);
        }
        drop(inside);
        if has_changed {
            self.changed.notify_one();
        }
    }

    fn count(
        &self,
        destination: &Destination,
        claimed: &ClaimedDelivery,
        report: &SendReport,
        at: Timestamp,
    ) {
        self.metrics.attempt_seconds.observe(report.elapsed.as_secs_f64());
        match classify(&report.outcome, &destination.rules) {
            None => {
                self.metrics.succeeded.inc();
                self.metrics.latency_seconds.observe(at.since(claimed.received_at).as_secs_f64());
            }
            Some(class) => self.shared.telemetry.attempt_failed(
                destination.name.as_str(),
                class.as_str(),
                code_class(&report.outcome),
            ),
        }
    }

    /// Writes the result; holds on to the slot until that is done.
    pub(super) async fn settle(self: Arc<Self>, made: FinishedAttempt) {
        let FinishedAttempt { settlement, event, slot } = made;
        let (delivery, ordered) = (settlement.delivery, settlement.ordered);
        let (at, attempts) = (settlement.at, settlement.attempt.number);
        let settled = self.record(&settlement).await;
        let next = match settled {
            Ok(SettleResult::Overruled(next)) => next,
            _ => settlement.next,
        };
        self.let_go(delivery);
        if ordered && matches!(next, NextStep::Succeeded | NextStep::Dead(_)) {
            // Somebody may have waited for this one to end. Said before the place is given back: a
            // lane without both would take itself for empty.
            self.wake_lane();
        }
        drop(slot);
        match settled {
            Ok(SettleResult::Recorded | SettleResult::Overruled(_)) => {
                self.shared.feed.publish(at, || {
                    let destination = Some(self.name());
                    LiveUpdate::settled(delivery, event, destination, (next, attempts, at))
                });
                let AttemptRecord { class, response, .. } = settlement.attempt;
                let ending = || WaiterResult::Ended(SyncResult { next, class, response });
                self.shared.waiters.tell(delivery, ending);
                match next {
                    NextStep::RetryAt(due_at) => self.expect_due(due_at),
                    NextStep::Succeeded | NextStep::Dead(_) => {}
                }
            }
            Ok(SettleResult::LeaseLost) => {
                self.shared.telemetry.lease_lost();
                tracing::warn!(%delivery, "a result came too late: the delivery was taken over");
            }
            // The lease runs out and the delivery is tried again: at least once, never lost.
            Err(error) => tracing::warn!(%delivery, %error, "a result could not be recorded"),
        }
    }

    /// Writes the result, and waits for room when the disk is full: what was delivered must not be
    /// delivered again because that could not be written down.
    async fn record(&self, settlement: &Settlement) -> Result<SettleResult, StoreError> {
        loop {
            match self.shared.store.settle(settlement.clone()).await {
                Err(StoreError::Full) if !self.stop.is_cancelled() => {
                    tokio::time::sleep(WAIT_FOR_ROOM).await;
                }
                settled => return settled,
            }
        }
    }

    /// Makes sure that the supervisor looks at the store by then.
    pub(crate) fn expect_due(&self, due_at: Timestamp) {
        let due_at = due_at.as_millis();
        let before = self.next_due.fetch_min(due_at, std::sync::atomic::Ordering::SeqCst);
        if due_at < before {
            self.changed.notify_one();
        }
    }
}

/// How far a delivery has come with this attempt.
fn progress(claimed: &ClaimedDelivery, class: Option<FailureClass>) -> AttemptProgress {
    AttemptProgress {
        attempts: claimed.attempts + 1,
        throttled: claimed.throttled + u32::from(class == Some(FailureClass::Throttled)),
        created_at: claimed.created_at,
    }
}

/// That a message was sent, or may have been.
fn sent(
    destination: &Destination,
    report: &SendReport,
    class: Option<FailureClass>,
    at: Timestamp,
) -> Option<SentMessage> {
    let sender = destination.sender()?;
    let may_be_sent = matches!(class, None | Some(FailureClass::Ambiguous));
    may_be_sent.then(|| SentMessage { id: report.sent_id.clone(), day: sender.limits.day(at) })
}

/// `4xx`, `5xx`, or what went wrong instead.
fn code_class(outcome: &AttemptOutcome) -> &'static str {
    match (outcome.status().map(|status| status / 100), outcome.failure()) {
        (Some(1), _) => "1xx",
        (Some(2), _) => "2xx",
        (Some(3), _) => "3xx",
        (Some(4), _) => "4xx",
        (Some(5), _) => "5xx",
        (None, Some(failure)) => failure.as_str(),
        (Some(_), _) | (None, None) => "other",
    }
}

fn kept(mut response: Vec<u8>, in_short: bool) -> Vec<u8> {
    // A sender that comes later would take half of "skipped" for a success.
    if in_short && response.len() > RESPONSE_BYTES_ON_SUCCESS && !is_skipped_response(&response) {
        response.truncate(RESPONSE_BYTES_ON_SUCCESS);
    }
    response
}
