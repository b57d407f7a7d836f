//! One attempt: send, judge, settle.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    chance::new_id,
    delivery::{
        Failure, Outcome, Progress, Verdict, judge,
        judge::{classify, cool_until},
    },
    destination::{Destination, Reach},
    ids::EventId,
    store::{Attempt, Claimed, Next, Settled, Settlement, StoreError},
    time::Timestamp,
};

use super::{Job, Lane, Shared, Slot};
use crate::{
    feed::News,
    inbox::{Arrival, Inbox},
    outbound,
    sender::{HttpSender, OutboundRequest, SendReport},
};

/// What a successful answer may leave behind, in bytes; of a failure all that was read is kept.
const RESPONSE_BYTES_ON_SUCCESS: usize = 1024;

/// How long a result waits before it is written again while the disk is full.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(1);

/// The ways out of a lane.
#[derive(Debug)]
pub(super) struct Carrier {
    http: HttpSender,
    inbox: Arc<Inbox>,
}

impl Carrier {
    pub(super) fn new(shared: &Shared) -> Self {
        Self { http: HttpSender::new(shared.http.clone()), inbox: Arc::clone(&shared.inbox) }
    }

    async fn carry(
        &self,
        destination: &Destination,
        claimed: &Claimed,
        now: Timestamp,
    ) -> SendReport {
        let headers = outbound::headers(destination, claimed, now);
        let body = claimed.payload.body.clone();
        match &destination.reach {
            Reach::Http(url) => {
                let request = OutboundRequest { url: url.clone(), headers, body };
                self.http.send(request, destination.timeout).await
            }
            Reach::Inbox => {
                self.inbox.take(Arrival { at: now, event: claimed.event, headers, body });
                SendReport {
                    outcome: Outcome::Answered { status: 200, retry_after: None },
                    elapsed: Duration::ZERO,
                    response_body: Vec::new(),
                    detail: None,
                }
            }
        }
    }
}

impl Lane {
    /// Makes one attempt. Its result is written in the background, so that the worker is free.
    pub(super) async fn attempt(self: &Arc<Self>, job: Job) {
        let Job { claimed, slot } = job;
        let destination = self.destination.load_full();
        let started_at = self.shared.clock.now();
        let report = tokio::select! {
            report = self.carrier.carry(&destination, &claimed, started_at) => report,
            () = self.shared.abort.cancelled() => interrupted(self.shared.clock.now().since(started_at)),
        };
        let settlement = self.conclude(&destination, &claimed, started_at, report);
        self.shared.tasks.spawn(Arc::clone(self).settle(settlement, claimed.event, slot));
    }

    fn conclude(
        &self,
        destination: &Destination,
        claimed: &Claimed,
        started_at: Timestamp,
        report: SendReport,
    ) -> Settlement {
        let at = self.shared.clock.now();
        let class = classify(&report.outcome);
        let throttled = class == Some(surehook_core::delivery::Class::Throttled);
        let progress = Progress {
            attempts: claimed.attempts + 1,
            throttled: claimed.throttled + u32::from(throttled),
            created_at: claimed.created_at,
        };
        let roll = if class.is_some() { self.shared.chance.unit() } else { 0.0 };
        self.count(destination, claimed, &report, at);
        // Whatever becomes of this delivery, the destination has asked for peace.
        if let Some(until) = cool_until(&report.outcome, progress, &destination.retry, at, roll) {
            self.metrics.remote_429.inc();
            self.cool_down(until);
        }
        let next = match judge(&report.outcome, progress, &destination.retry, at, roll) {
            Verdict::Succeeded => Next::Succeeded,
            Verdict::RetryAt { due_at, .. } => Next::RetryAt(due_at),
            Verdict::Dead { reason, .. } => {
                self.shared.telemetry.buried(destination.name.as_str(), reason.as_str());
                Next::Dead(reason)
            }
        };
        let attempt = Attempt {
            id: new_id(&*self.shared.chance, started_at),
            number: progress.attempts,
            started_at,
            took: report.elapsed,
            status: status(&report.outcome),
            failure: failure(&report.outcome),
            class,
            detail: report.detail,
            response: kept(report.response_body, class.is_none()),
        };
        let token = claimed.lease.token;
        Settlement { delivery: claimed.id, token, at, attempt, next }
    }

    fn count(
        &self,
        destination: &Destination,
        claimed: &Claimed,
        report: &SendReport,
        at: Timestamp,
    ) {
        self.metrics.attempt_seconds.observe(report.elapsed.as_secs_f64());
        match classify(&report.outcome) {
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
    async fn settle(self: Arc<Self>, settlement: Settlement, event: EventId, slot: Slot) {
        let (delivery, next) = (settlement.delivery, settlement.next);
        let (at, attempts) = (settlement.at, settlement.attempt.number);
        let settled = self.record(settlement).await;
        self.let_go(delivery);
        drop(slot);
        match settled {
            Ok(Settled::Recorded) => {
                self.shared.feed.publish(at, || {
                    let destination = Some(self.name());
                    News::settled(delivery, event, destination, (next, attempts, at))
                });
                if let Next::RetryAt(due_at) = next {
                    self.expect_due(due_at);
                }
            }
            Ok(Settled::LeaseLost) => {
                self.shared.telemetry.lease_lost();
                tracing::warn!(%delivery, "a result came too late: the delivery was taken over");
            }
            // The lease runs out and the delivery is tried again: at least once, never lost.
            Err(error) => tracing::warn!(%delivery, %error, "a result could not be recorded"),
        }
    }

    /// Writes the result, and waits for room when the disk is full: what was delivered must not be
    /// delivered again because that could not be written down.
    async fn record(&self, settlement: Settlement) -> Result<Settled, StoreError> {
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
    fn expect_due(&self, due_at: Timestamp) {
        let due_at = due_at.as_millis();
        let before = self.next_due.fetch_min(due_at, std::sync::atomic::Ordering::SeqCst);
        if due_at < before {
            self.changed.notify_one();
        }
    }
}

fn interrupted(elapsed: Duration) -> SendReport {
    SendReport {
        outcome: Outcome::Failed(Failure::Interrupted),
        elapsed,
        response_body: Vec::new(),
        detail: Some("the gateway was shut down before an answer came".to_owned()),
    }
}

fn status(outcome: &Outcome) -> Option<u16> {
    match outcome {
        Outcome::Answered { status, .. } => Some(*status),
        Outcome::Failed(_) => None,
    }
}

fn failure(outcome: &Outcome) -> Option<Failure> {
    match outcome {
        Outcome::Answered { .. } => None,
        Outcome::Failed(failure) => Some(*failure),
    }
}

/// `4xx`, `5xx`, or what went wrong instead.
fn code_class(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Answered { status, .. } => match status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            5 => "5xx",
            _ => "other",
        },
        Outcome::Failed(failure) => failure.as_str(),
    }
}

fn kept(mut response: Vec<u8>, succeeded: bool) -> Vec<u8> {
    if succeeded {
        response.truncate(RESPONSE_BYTES_ON_SUCCESS);
    }
    response
}
