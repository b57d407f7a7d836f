//! One delivery attempt: prepare the request, send it, decide what follows, record the result.
//!
//! `run_attempt` → `attempt` → `send` → `decide` → `update_lane_state` → `settle`
//!
//! A worker of the lane calls `run_attempt` for each claimed delivery. The result is recorded in the
//! background so that the worker is free for the next attempt. The slot is released only when the
//! result is on disk: a slow disk slows the lane down instead of filling the memory. What only messages
//! need (recipient pace, crash outcomes, daily counts) is in `message`.
//!
//! An attempt that finds no free file, socket or memory of the gateway itself does not count: the
//! delivery is postponed for a moment, and its worker pauses instead of postponing one after the other.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Uri};
use surehook_core::{
    decision::NotRoutedReason,
    delivery::state::DeliveryStatus,
    destination::{
        Destination, Transport,
        email::{EmailBody, Mailbox},
        exec::ExecConfig,
        stream::RedisStream,
    },
    event::Payload,
    lane::{AttemptDecision, DeliveryProgress, decide_attempt, gate::LaneAttemptResult},
    one_shot::url_at_origin,
    outbox::OUTBOX,
    store::{AttemptRecord, ClaimedDelivery, NextStep, SettleResult, Settlement},
    sync::{SyncResult, is_skipped_response},
};
use surehook_guard::connect::ConnectError;
use surehook_retry::{AttemptFailure, AttemptOutcome, SendOutcome, circuit::CircuitPermit};
use surehook_types::{ids::EventId, redact, rng::new_id, store_error::StoreError, time::Timestamp};
use surehook_webhooks::verify::SignError;
use tokio::time::{Instant, timeout};

use super::{
    ClaimGuard, Lane, LaneSlot, QueuedDelivery,
    message::{OutboundMessage, RecipientPacing, sent_message},
};
use crate::{
    destination_client::DestinationClient,
    exec,
    feed::{DeliveryChanged, LiveUpdate},
    inbox::InboxDelivery,
    listen::{ListenerDelivery, NoListener},
    otlp::AttemptTrace,
    outbound_headers::{self, OutboundHead},
    routing::{self, RouteFailure},
    sender::SendReport,
    source_secrets::{SourceSecrets, strip},
    waiters::WaiterResult,
};

/// Bytes stored of the response to a successful attempt; of a failure, all that was read is stored.
const RESPONSE_BYTES_ON_SUCCESS: usize = 1024;

/// The pause before a result is written again while the disk is full.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a write of unknown outcome is tried again.
const UNKNOWN_OUTCOME_PAUSE: Duration = Duration::from_millis(200);

/// An attempt under way.
pub(super) struct RunningAttempt {
    pub(super) client: Arc<DestinationClient>,
    pub(super) claimed: ClaimedDelivery,
    pub(super) started_at: Timestamp,
    slot: LaneSlot,
    permit: CircuitPermit,
    /// Only if traces are sent. Boxed: the attempt is moved and copied a lot.
    trace: Option<Box<AttemptTrace>>,
    /// The outcome if nothing more is known of the attempt. Set only while a message that must not be
    /// sent twice is on its way.
    pub(super) crash_outcome: OnceLock<SendOutcome>,
}

/// The delay after the first attempt that lacked our own resources; doubled up to three times.
const SHORTAGE_DELAY: Duration = Duration::from_secs(1);
const SHORTAGE_DOUBLINGS_MAX: u32 = 3;
/// A shortage affects many deliveries; it is logged this often.
const SHORTAGE_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Nothing was sent and the attempt does not count: the delivery has to wait until this time.
pub(super) struct PostponedUntil {
    pub(super) until: Timestamp,
    pub(super) reason: PostponeReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostponeReason {
    /// The recipient of a message must not get another one yet.
    RecipientPace,
    /// The gateway itself has no free file, socket or memory.
    NoResources,
    /// The listener is gone, or the lane ends.
    NoListener,
}

/// Why nothing was sent, other than a failure.
pub(super) enum UnsentReason {
    Postponed(PostponedUntil),
    /// The route, which failed when the event was received, works now and does not take the event.
    NotRouted(NotRoutedReason),
}

/// A claimed delivery of which nothing was sent.
pub(super) struct UnsentDelivery {
    guard: ClaimGuard,
    event: EventId,
    attempts: u32,
    reason: UnsentReason,
    slot: LaneSlot,
}

impl UnsentDelivery {
    /// How long the worker waits before it takes the next delivery, which would lack the same.
    fn worker_pause(&self, now: Timestamp) -> Duration {
        match &self.reason {
            UnsentReason::Postponed(PostponedUntil {
                until,
                reason: PostponeReason::NoResources,
            }) => until.since(now),
            UnsentReason::Postponed(_) | UnsentReason::NotRouted(_) => Duration::ZERO,
        }
    }
}

/// Why there is no request to send.
enum PrepareError {
    /// The report of the attempt.
    Failed(Box<SendReport>),
    NotRouted(NotRoutedReason),
}

impl From<SendReport> for PrepareError {
    fn from(report: SendReport) -> Self {
        Self::Failed(Box::new(report))
    }
}

/// A request that is ready to be sent.
enum OutboundRequest<'c> {
    Webhook { url: Cow<'c, Uri>, headers: HeaderMap, body: Bytes },
    Inbox(InboxDelivery),
    Message(Box<OutboundMessage<'c>>),
    Program(&'c ExecConfig, Box<ClaimedDelivery>),
    StreamEntry(&'c RedisStream, Box<ClaimedDelivery>),
    Listener(Box<ListenerDelivery>),
    Mail(&'c Mailbox, String),
}

/// An attempt that has ended and whose result is not recorded yet.
pub(super) struct FinishedAttempt {
    pub(super) settlement: Settlement,
    guard: ClaimGuard,
    event: EventId,
    /// The event was sent through the API.
    is_message: bool,
    slot: LaneSlot,
}

impl Lane {
    /// Makes one attempt and records its result in the background.
    pub(super) async fn run_attempt(
        self: &Arc<Self>,
        queued: QueuedDelivery,
        permit: CircuitPermit,
    ) {
        let lane = Arc::clone(self);
        match self.attempt(queued, permit, RecipientPacing::Respect).await {
            Ok(finished) => {
                // Boxed: the runtime copies the future of a task several times, and this one is large.
                self.shared.tasks.spawn(Box::pin(lane.settle(finished)));
            }
            Err(unsent) => {
                let pause = unsent.worker_pause(self.shared.clock.now());
                self.shared.tasks.spawn(lane.end_unsent(unsent));
                if !pause.is_zero() {
                    let _stopped = timeout(pause, self.stop.cancelled()).await;
                }
            }
        }
    }

    /// Makes one attempt; the caller records the result. Fails if nothing was to be sent, or not yet.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        queued: QueuedDelivery,
        permit: CircuitPermit,
        pacing: RecipientPacing,
    ) -> Result<FinishedAttempt, UnsentDelivery> {
        let guard = ClaimGuard::new(self, &queued.claimed);
        let started_at = self.shared.clock.now();
        let tracer = self.shared.tracer.as_ref();
        let attempt = RunningAttempt {
            client: self.client.load_full(),
            trace: tracer.map(|tracer| Box::new(tracer.begin_attempt(&queued.claimed, started_at))),
            claimed: queued.claimed,
            started_at,
            slot: queued.slot,
            permit,
            crash_outcome: OnceLock::new(),
        };
        let sent = tokio::select! {
            sent = self.send(&attempt, pacing) => sent,
            () = self.shared.abort.cancelled() => {
                Ok(attempt.interrupted(self.shared.clock.now()))
            }
        };
        let sent =
            sent.and_then(|report| self.check_resources(report).map_err(UnsentReason::Postponed));
        let report = match sent {
            Ok(report) => report,
            Err(reason) => {
                self.lock().scheduler.gate.abandon_attempt(permit);
                let RunningAttempt { claimed, slot, .. } = attempt;
                let (event, attempts) = (claimed.event, claimed.attempts);
                return Err(UnsentDelivery { guard, event, attempts, reason, slot });
            }
        };
        let decision = self.decide(&attempt, &report.outcome, self.shared.clock.now());
        self.count_attempt(&attempt, &report, &decision);
        self.update_lane_state(&attempt, &report, &decision);
        let settlement = self.build_settlement(&attempt, report, &decision);
        self.record_span(&attempt, &settlement.attempt);
        if let Some(sent) = &settlement.sent {
            self.count_sent(&attempt.client.destination, sent.day);
        }
        let is_message = attempt.claimed.source.as_str() == OUTBOX;
        let (event, slot) = (attempt.claimed.event, attempt.slot);
        Ok(FinishedAttempt { settlement, guard, event, is_message, slot })
    }

    fn record_span(&self, attempt: &RunningAttempt, record: &AttemptRecord) {
        if let (Some(tracer), Some(trace)) = (&self.shared.tracer, &attempt.trace) {
            let destination = &attempt.client.destination.name;
            tracer.record_attempt(trace, &attempt.claimed, destination, record);
        }
    }

    /// Passes the report on, unless the attempt failed for lack of our own resources.
    fn check_resources(&self, report: SendReport) -> Result<SendReport, PostponedUntil> {
        if report.outcome != AttemptOutcome::Failed(AttemptFailure::NoResources) {
            if self.shortages.load(Ordering::Relaxed) > 0 {
                self.shortages.store(0, Ordering::Relaxed);
            }
            return Ok(report);
        }
        let now = self.shared.clock.now();
        let doublings = self.shortages.fetch_add(1, Ordering::Relaxed).min(SHORTAGE_DOUBLINGS_MAX);
        let delay = SHORTAGE_DELAY * 2_u32.pow(doublings);
        let until = now + delay.mul_f64(0.5 + self.shared.rng.next_f64());
        self.shared.telemetry.count_shortage(&self.name());
        let logged_at =
            Timestamp::from_millis(self.shared.shortage_logged_at.load(Ordering::Relaxed));
        if now.since(logged_at) >= SHORTAGE_LOG_INTERVAL {
            self.shared.shortage_logged_at.store(now.as_millis(), Ordering::Relaxed);
            let detail = report.detail.unwrap_or_default();
            tracing::warn!(
                destination = self.name(),
                detail,
                "deliveries are postponed for lack of resources of the gateway; raise its limit of open files (LimitNOFILE, ulimit -n)"
            );
        }
        Err(PostponedUntil { until, reason: PostponeReason::NoResources })
    }

    async fn send(
        &self,
        attempt: &RunningAttempt,
        pacing: RecipientPacing,
    ) -> Result<SendReport, UnsentReason> {
        let RunningAttempt { client, .. } = attempt;
        let request = match self.prepare_request(attempt).await {
            Ok(request) => request,
            Err(PrepareError::Failed(report)) => return Ok(*report),
            Err(PrepareError::NotRouted(reason)) => return Err(UnsentReason::NotRouted(reason)),
        };
        let started = Instant::now();
        Ok(match request {
            OutboundRequest::Webhook { url, headers, body } => {
                client.send(&url, headers, body).await
            }
            OutboundRequest::Message(message) => {
                return self.send_message(attempt, *message, pacing).await;
            }
            OutboundRequest::Program(exec, claimed) => {
                // Pipes for input and output, and two ends of each while the program starts.
                let Ok(_files) = self.shared.http.sockets.take(4) else {
                    let detail = ConnectError::NoResources.to_string();
                    return Ok(SendReport::failed(AttemptFailure::NoResources, detail));
                };
                let Destination { name, timeout, .. } = &*client.destination;
                let programs = &self.shared.programs.load_full();
                let trace = attempt.trace.as_deref();
                let result =
                    exec::run(exec, programs, name.as_str(), &claimed, trace, *timeout).await;
                result.into_report(started.elapsed())
            }
            OutboundRequest::StreamEntry(stream, claimed) => {
                client.add_to_stream(stream, &claimed).await.into_report(started.elapsed())
            }
            OutboundRequest::Listener(delivery) => {
                let answered = self.listeners.deliver(*delivery, &self.stop).await;
                return answered.map_err(|NoListener| {
                    let (until, reason) = (self.shared.clock.now(), PostponeReason::NoListener);
                    UnsentReason::Postponed(PostponedUntil { until, reason })
                });
            }
            OutboundRequest::Mail(mailbox, mail) => {
                Box::pin(client.send_mail(mailbox, &mail)).await.into_report(started.elapsed())
            }
            OutboundRequest::Inbox(delivery) => {
                self.shared.inbox.store(delivery);
                SendReport::of(AttemptOutcome::Answered { status: 200, retry_after: None })
            }
        })
    }

    /// Builds the request. If that fails, nothing is sent.
    async fn prepare_request<'c>(
        &self,
        attempt: &'c RunningAttempt,
    ) -> Result<OutboundRequest<'c>, PrepareError> {
        let secrets = self.shared.secrets.load().of(&attempt.claimed.source).clone();
        let payload = self.prepare_payload(&attempt.claimed, &secrets)?;
        let claimed = match payload {
            Cow::Borrowed(_) => Cow::Borrowed(&attempt.claimed),
            Cow::Owned(payload) => {
                Cow::Owned(ClaimedDelivery { payload, ..attempt.claimed.clone() })
            }
        };
        let now = attempt.started_at;
        let destination = &*attempt.client.destination;
        let trace = attempt.trace.as_deref();
        let head = || outbound_headers::build(destination, &claimed, &secrets.headers, trace, now);
        let unsignable =
            |error: SignError| SendReport::failed(AttemptFailure::Unsignable, error.to_string());
        let body = claimed.payload.body.clone();
        Ok(match &destination.transport {
            Transport::Http(url) => {
                let OutboundHead { headers, signed_url } = head().map_err(unsignable)?;
                let url = signed_url.map_or(Cow::Borrowed(url), Cow::Owned);
                OutboundRequest::Webhook { url, headers, body }
            }
            Transport::Origin(origin) => {
                let url = one_shot_url(origin, &claimed)?;
                let OutboundHead { headers, signed_url } = head().map_err(unsignable)?;
                let url = Cow::Owned(signed_url.unwrap_or(url));
                OutboundRequest::Webhook { url, headers, body }
            }
            Transport::Inbox => {
                let headers = head().map_err(unsignable)?.headers;
                let event = claimed.event;
                OutboundRequest::Inbox(InboxDelivery { at: now, event, headers, body })
            }
            Transport::Channel(sender) => {
                let media = &self.shared.media;
                let message =
                    OutboundMessage::compose(sender, media, destination, &claimed, now).await?;
                OutboundRequest::Message(Box::new(message))
            }
            Transport::Listen(_) => OutboundRequest::Listener(Box::new(ListenerDelivery {
                id: claimed.id,
                event: claimed.event,
                source: claimed.source.clone(),
                attempt: claimed.attempts + 1,
                received_at: claimed.received_at,
                headers: head().map_err(unsignable)?.headers,
                body,
                timeout: destination.timeout,
            })),
            Transport::Exec(exec) => OutboundRequest::Program(exec, Box::new(claimed.into_owned())),
            Transport::RedisStream(stream) => {
                OutboundRequest::StreamEntry(stream, Box::new(claimed.into_owned()))
            }
            Transport::Email(mailbox) => {
                let mail = EmailBody::parse(&body).map_err(|error| {
                    SendReport::failed(AttemptFailure::Unsendable, error.to_string())
                })?;
                OutboundRequest::Mail(mailbox, mail.compose(mailbox, claimed.event, now))
            }
        })
    }

    /// The payload to send: without the source's secrets, and after the route, if that failed when the
    /// event was received and has to be applied now.
    fn prepare_payload<'c>(
        &self,
        claimed: &'c ClaimedDelivery,
        secrets: &SourceSecrets,
    ) -> Result<Cow<'c, Payload>, PrepareError> {
        let strip_error = |detail| SendReport::failed(AttemptFailure::Transform, detail);
        let Some(pending) = &claimed.pending_route else {
            return Ok(strip(secrets, &claimed.payload).map_err(strip_error)?);
        };
        let routes = self.shared.routes.load();
        let ClaimedDelivery { payload, source, .. } = claimed;
        let applied =
            routing::apply_failed_route(&routes, pending, payload, source, &secrets.headers);
        let prepared = match applied {
            Ok(prepared) => prepared,
            Err(RouteFailure::NotRouted(reason)) => return Err(PrepareError::NotRouted(reason)),
            Err(RouteFailure::Failed(failure, detail)) => {
                // The text may quote the body, and is shown to people who may not see its secrets.
                let headers = payload.head.headers.to_map();
                let (body, names) = (&payload.body, &secrets.names);
                let detail = redact::mask_values_in_message(&detail, &headers, body, names);
                return Err(SendReport::failed(failure, detail).into());
            }
        };
        Ok(Cow::Owned(strip(secrets, &prepared).map_err(strip_error)?.into_owned()))
    }

    /// Decides what follows from the outcome of an attempt that ended at `at`.
    pub(super) fn decide(
        &self,
        attempt: &RunningAttempt,
        outcome: &AttemptOutcome,
        at: Timestamp,
    ) -> AttemptDecision {
        let RunningAttempt { client, claimed, .. } = attempt;
        let before = DeliveryProgress {
            attempts: claimed.attempts,
            throttled: claimed.throttled,
            // If the wall clock has jumped ahead, the jump does not count as age of the delivery.
            created_at: claimed.created_at + at.since(self.shared.guard.expiry_time(at)),
            ordered: claimed.ordered,
        };
        decide_attempt(&client.destination, outcome, before, at, || self.shared.rng.next_f64())
    }

    fn count_attempt(
        &self,
        attempt: &RunningAttempt,
        report: &SendReport,
        decision: &AttemptDecision,
    ) {
        let name = attempt.client.destination.name.as_str();
        self.metrics.attempt_seconds.observe(report.elapsed.as_secs_f64());
        match decision.class {
            None => {
                let latency = decision.at.since(attempt.claimed.received_at);
                self.metrics.succeeded.inc();
                self.metrics.latency_seconds.observe(latency.as_secs_f64());
            }
            Some(class) => {
                let code_class = code_class(&report.outcome);
                self.shared.telemetry.count_failed_attempt(name, class.as_str(), code_class);
            }
        }
        if let NextStep::Dead(reason) = decision.next {
            self.shared.telemetry.count_dead(name, reason.as_str());
        }
    }

    /// Applies what the attempt says about the destination as a whole: cool-down, circuit, pause.
    fn update_lane_state(
        &self,
        attempt: &RunningAttempt,
        report: &SendReport,
        decision: &AttemptDecision,
    ) {
        let result = LaneAttemptResult {
            permit: attempt.permit,
            delivery: attempt.claimed.id,
            outcome: &report.outcome,
            detail: report.detail.as_deref(),
            decision,
        };
        let mut state = self.lock();
        let has_changed = state.scheduler.end_attempt(&attempt.client.destination, &result);
        if has_changed {
            self.set_limited(&state.scheduler.gate);
        }
        drop(state);
        if let Some(until) = decision.cool_until {
            self.metrics.remote_429.inc();
            match self.id.shard.is_whole() {
                true => _ = self.metrics.cooling.set(1),
                false => self.shared.shard_news.add_cool_down(self.id, until),
            }
        }
        if has_changed || decision.cool_until.is_some() {
            self.changed.notify_one();
        }
    }

    /// The settlement to record for an attempt.
    pub(super) fn build_settlement(
        &self,
        attempt: &RunningAttempt,
        report: SendReport,
        decision: &AttemptDecision,
    ) -> Settlement {
        let RunningAttempt { client, claimed, started_at, .. } = attempt;
        let AttemptDecision { at, class, progress, next, schedule_reason, .. } = *decision;
        let sent = sent_message(&client.destination, &report, class, at);
        // A waiting sender gets the whole response.
        let is_awaited = self.shared.waiters.is_awaited(claimed.id);
        Settlement {
            delivery: claimed.id,
            destination: claimed.destination,
            created_at: claimed.created_at,
            proof: claimed.proof,
            at,
            attempt: AttemptRecord {
                id: new_id(&*self.shared.rng, *started_at),
                number: progress.attempts,
                started_at: *started_at,
                took: report.elapsed,
                timing: report.timing,
                status: report.outcome.status(),
                failure: report.outcome.failure(),
                class,
                detail: report.detail,
                response: match class {
                    None if !is_awaited => shorten_response(report.response_body),
                    None | Some(_) => report.response_body,
                },
            },
            next,
            schedule_reason,
            ordered: claimed.ordered,
            sent,
        }
    }

    /// Records the result and publishes it. Holds the slot until the result is on disk.
    pub(super) async fn settle(self: Arc<Self>, finished: FinishedAttempt) {
        let FinishedAttempt { settlement, guard, event, is_message, slot } = finished;
        let (delivery, ordered) = (settlement.delivery, settlement.ordered);
        let (at, attempts) = (settlement.at, settlement.attempt.number);
        let settled = self.write_settlement(&settlement).await;
        let next = match settled {
            Ok(SettleResult::Overruled(next)) => next,
            _ => settlement.next,
        };
        match settled {
            Ok(_) => guard.end(),
            // The delivery is attempted again: at least once, never lost.
            Err(_) => drop(guard),
        }
        if is_message && matches!(next, NextStep::Succeeded | NextStep::Dead(_)) {
            // A callback may have become due.
            self.shared.callbacks_due.notify_one();
        }
        if ordered && matches!(next, NextStep::Succeeded | NextStep::Dead(_)) {
            // The next delivery of its ordering queue may be due now. This must come before the slot is
            // dropped: a lane with no known backlog and no slot in use considers its backlog drained.
            self.wake();
        }
        drop(slot);
        match settled {
            Ok(SettleResult::Recorded | SettleResult::Overruled(_)) => {
                self.shared.feed.publish(at, || {
                    let destination = Some(self.name());
                    LiveUpdate::settled(delivery, event, destination, next, attempts, at)
                });
                let AttemptRecord { class, response, .. } = settlement.attempt;
                let result = || WaiterResult::Ended(SyncResult { next, class, response });
                self.shared.notify_waiters(delivery, result);
                match next {
                    NextStep::RetryAt(due_at) => self.expect_due(due_at),
                    NextStep::Succeeded | NextStep::Dead(_) => {}
                }
            }
            Ok(SettleResult::ClaimLost) => {
                self.shared.telemetry.count_lost_claim();
                tracing::warn!(%delivery, "an attempt ended after its claim was lost; its result was dropped");
            }
            Err(error) => {
                tracing::warn!(%delivery, %error, "could not record the result of an attempt");
            }
        }
    }

    /// Releases the claim on a postponed delivery, or cancels one that is not routed any more. If that
    /// fails, the claim is released in the background.
    pub(super) async fn end_unsent(self: Arc<Self>, unsent: UnsentDelivery) {
        let UnsentDelivery { guard, event, attempts, reason, slot } = unsent;
        let claim = guard.claim;
        let delivery = claim.delivery;
        let ended = match &reason {
            UnsentReason::Postponed(PostponedUntil { until, reason }) => {
                if *reason == PostponeReason::RecipientPace {
                    self.shared.telemetry.count_postponed(&self.name());
                }
                self.write_until_known(|| self.shared.store.release(vec![claim], *until)).await
            }
            UnsentReason::NotRouted(reason) => {
                let at = self.shared.clock.now();
                let cancel = || self.shared.store.cancel_claimed(claim, reason.clone(), at);
                self.write_until_known(cancel).await.map(drop)
            }
        };
        match ended {
            Ok(()) => guard.end(),
            Err(_) => drop(guard),
        }
        drop(slot);
        match (ended, reason) {
            (Ok(()), UnsentReason::Postponed(postponed)) => self.expect_due(postponed.until),
            (Ok(()), UnsentReason::NotRouted(_)) => {
                let at = self.shared.clock.now();
                self.shared.feed.publish(at, || {
                    LiveUpdate::DeliveryChanged(DeliveryChanged {
                        id: delivery,
                        event,
                        destination: Some(self.name()),
                        status: DeliveryStatus::Cancelled,
                        reason: None,
                        attempts,
                        due_at: None,
                        at,
                    })
                });
                self.shared.notify_waiters(delivery, || WaiterResult::Cancelled);
            }
            (Err(error), _) => {
                tracing::warn!(%delivery, %error, "could not return a delivery to the store");
            }
        }
    }

    /// Writes the result, and waits while the disk is full: a delivery that succeeded must not be sent
    /// again because that could not be written.
    async fn write_settlement(&self, settlement: &Settlement) -> Result<SettleResult, StoreError> {
        loop {
            let settle = || self.shared.store.settle(vec![settlement.clone()]);
            match self.write_until_known(settle).await {
                Err(StoreError::Full) if !self.stop.is_cancelled() => {
                    tokio::time::sleep(DISK_FULL_PAUSE).await;
                }
                settled => {
                    let missing = || StoreError::Refused("the settlement has no result".to_owned());
                    return settled?.pop().ok_or_else(missing);
                }
            }
        }
    }

    /// Repeats a write that has the same effect twice as once, until the store answers and its outcome is
    /// known, or the running attempts are cut off.
    pub(super) async fn write_until_known<T, W: Future<Output = Result<T, StoreError>>>(
        &self,
        write: impl Fn() -> W,
    ) -> Result<T, StoreError> {
        loop {
            match write().await {
                Err(StoreError::Unknown(_) | StoreError::Unavailable(_))
                    if !self.shared.abort.is_cancelled() =>
                {
                    let _cut_off =
                        timeout(UNKNOWN_OUTCOME_PAUSE, self.shared.abort.cancelled()).await;
                }
                written => return written,
            }
        }
    }
}

impl RunningAttempt {
    /// The report of an attempt that the shutdown cut off.
    fn interrupted(&self, now: Timestamp) -> SendReport {
        let outcome = match self.crash_outcome.get() {
            Some(unknown) => AttemptOutcome::Interpreted(*unknown),
            None => AttemptOutcome::Failed(AttemptFailure::Interrupted),
        };
        SendReport {
            elapsed: now.since(self.started_at),
            detail: Some("the gateway was shut down before a response arrived".to_owned()),
            ..SendReport::of(outcome)
        }
    }
}

/// The URL that a message names at an origin. Only a message may: the path of a received request was
/// chosen by its sender.
fn one_shot_url(origin: &Uri, claimed: &ClaimedDelivery) -> Result<Uri, PrepareError> {
    let is_message = claimed.source.as_str() == OUTBOX;
    let url = is_message.then(|| url_at_origin(origin, &claimed.payload.head)).flatten();
    url.ok_or_else(|| {
        let detail = "the event names no URL, and a destination of kind origin delivers only messages that were sent with a URL";
        SendReport::failed(AttemptFailure::Unsendable, detail.to_owned()).into()
    })
}

/// The metrics label: `4xx`, `5xx`, or the failure.
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

/// Shortens the response of a success. One that says "skipped" stays whole: a sender that joins the
/// delivery later would read half of it as a success.
fn shorten_response(mut response: Vec<u8>) -> Vec<u8> {
    if response.len() > RESPONSE_BYTES_ON_SUCCESS && !is_skipped_response(&response) {
        response.truncate(RESPONSE_BYTES_ON_SUCCESS);
    }
    response
}
