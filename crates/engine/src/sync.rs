//! Letting a sender wait for the result of its event.
//!
//! The event is stored like any other before anybody waits, and its delivery goes its usual way. So
//! whatever happens while the sender waits (it hangs up, the deadline passes, the process is killed)
//! only its answer is lost: its next try is a duplicate, and joins the same delivery.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    decision::{EventDecision, EventDecisionKind},
    delivery::state::DeliveryStatus,
    ids::{DeliveryId, DestinationId, EventId, RequestId},
    store::{DeliveryRow, JoinRequest, JoinResult, StoreError},
    sync::{SyncResponse, SyncResult, SyncTimeoutPolicy},
    time::Timestamp,
};

use crate::{
    Engine,
    waiters::{AttemptWaiter, WaiterResult},
};

/// What a source says about waiting, with its destination found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncConfig {
    pub(crate) destination: DestinationId,
    pub(crate) deadline: Duration,
    pub(crate) on_timeout: SyncTimeoutPolicy,
    /// Whether a duplicate revives what is dead.
    pub(crate) revives: bool,
}

/// A request whose sender waits.
#[derive(Debug)]
pub(crate) struct SyncWait {
    pub(crate) entry: SyncConfig,
    pub(crate) request: RequestId,
    pub(crate) received_at: Timestamp,
    /// When it is too late to wait.
    pub(crate) until: tokio::time::Instant,
    /// The place in the queue of the delivery that the event owes, if it is not a duplicate.
    pub(crate) waiting: Option<AttemptWaiter>,
}

impl Engine {
    /// What the sender of an event is told, once that is known or the deadline has passed.
    pub(crate) async fn answer_sender(
        self: &Arc<Self>,
        asking: SyncWait,
        event: EventId,
        duplicate: bool,
        has_key: bool,
    ) -> Result<SyncResponse, StoreError> {
        let answer = if duplicate {
            self.join(&asking, event).await?
        } else {
            match asking.waiting {
                Some(waiting) => self.wait(asking.entry, asking.until, waiting).await,
                None => not_owed("not_routed"),
            }
        };
        let answer = if has_key { answer } else { answer.without_key() };
        self.note_answer(event, &answer);
        Ok(answer)
    }

    /// Finds out what became of an event that came before, and waits for it if it is under way.
    async fn join(&self, asking: &SyncWait, event: EventId) -> Result<SyncResponse, StoreError> {
        let entry = asking.entry;
        let wish = JoinRequest {
            event,
            destination: entry.destination,
            request: asking.request,
            revive: entry.revives,
            now: asking.received_at,
        };
        let (delivery, attempts) = match self.store.join(wish).await? {
            JoinResult::NotOwed => return Ok(not_owed("not_routed")),
            JoinResult::Forgotten => return Ok(not_owed("no_longer_kept")),
            JoinResult::Cancelled => return Ok(not_owed("cancelled")),
            JoinResult::Ended(ending) => {
                return Ok(self.answer(&WaiterResult::Ended(ending), entry));
            }
            JoinResult::Underway { delivery, attempts, due } => {
                due.into_iter().for_each(|destination| self.wake_lane(destination));
                (delivery, attempts)
            }
        };
        let waiting = self.shared.waiters.watch(delivery);
        // After the watch began: what was recorded before it is found here.
        match self.told_since(delivery, attempts).await? {
            Some(told) => Ok(self.answer(&told, entry)),
            None => Ok(self.wait(entry, asking.until, waiting).await),
        }
    }

    /// What became of a delivery since it had so many attempts.
    async fn told_since(
        &self,
        delivery: DeliveryId,
        attempts: u32,
    ) -> Result<Option<WaiterResult>, StoreError> {
        let Some(mut detail) = self.store.delivery(delivery).await? else { return Ok(None) };
        if let Some(row) = detail.attempts.pop_if(|row| row.attempt.number > attempts) {
            let (class, response) = (row.attempt.class, row.attempt.response);
            return Ok(row
                .next
                .map(|next| WaiterResult::Ended(SyncResult { next, class, response })));
        }
        let DeliveryRow { status, reason, .. } = detail.delivery;
        Ok(match (status, reason) {
            (DeliveryStatus::Cancelled, _) => Some(WaiterResult::Cancelled),
            // Without an attempt.
            (DeliveryStatus::Dead, Some(reason)) => Some(WaiterResult::given_up(reason)),
            _ => None,
        })
    }

    /// Tells those who wait for something that went down with its destination.
    pub(crate) async fn tell_of_deleted(&self, deleted: &[DestinationId]) {
        if deleted.is_empty() {
            return;
        }
        for delivery in self.shared.waiters.awaited() {
            // Who cannot be told now learns it when his time is over.
            if let Ok(Some(detail)) = self.store.delivery(delivery).await
                && deleted.contains(&detail.delivery.destination)
            {
                self.shared.waiters.tell(delivery, || WaiterResult::Cancelled);
            }
        }
    }

    async fn wait(
        &self,
        entry: SyncConfig,
        until: tokio::time::Instant,
        mut waiting: AttemptWaiter,
    ) -> SyncResponse {
        let now = self.shared.clock.now();
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        // A destination that asked for peace beyond the deadline cannot answer before it.
        if let Some(cool) = self.cooling_until(entry.destination).filter(|cool| *cool > now + left)
        {
            return SyncResponse::throttled(cool, now);
        }
        match tokio::time::timeout_at(until, waiting.told()).await {
            Ok(told) => self.answer(&told, entry),
            Err(_) => match (self.cooling_until(entry.destination), entry.on_timeout) {
                (Some(cool), _) => SyncResponse::throttled(cool, self.shared.clock.now()),
                (None, SyncTimeoutPolicy::Retry) => SyncResponse::Retry { reason: "deadline" },
                (None, SyncTimeoutPolicy::Accepted) => SyncResponse::Accepted,
            },
        }
    }

    fn answer(&self, told: &WaiterResult, entry: SyncConfig) -> SyncResponse {
        match told {
            WaiterResult::Ended(ending) => ending.answer(entry.revives, self.shared.clock.now()),
            WaiterResult::Cancelled => not_owed("cancelled"),
        }
    }

    /// Keeps what the sender is told. Nobody waits for that: the story loses a line if the process
    /// is killed before.
    fn note_answer(self: &Arc<Self>, event: EventId, answer: &SyncResponse) {
        let decision = EventDecision {
            event,
            delivery: None,
            at: self.shared.clock.now(),
            kind: EventDecisionKind::Answered,
            detail: answer.detail(),
        };
        let engine = Arc::clone(self);
        self.shared.tasks.spawn(async move {
            if let Err(error) = engine.store.decide(decision).await {
                tracing::warn!(%event, %error, "what a sender was told could not be kept");
            }
        });
    }
}

fn not_owed(reason: &str) -> SyncResponse {
    SyncResponse::Skipped { reason: reason.to_owned(), result: None }
}
