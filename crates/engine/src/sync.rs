//! Synchronous responses: a sender that waits for the delivery result of its event.
//!
//! The event is stored like any other before the wait begins, and its delivery takes the usual path.
//! So whatever happens during the wait (the sender disconnects, the deadline passes, the process is
//! killed), only the response is lost: the sender's next request is a duplicate, and joins the same
//! delivery.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    decision::{EventDecision, EventDecisionKind},
    delivery::state::DeliveryStatus,
    store::{DeliveryRow, JoinRequest, JoinResult, Signal},
    sync::{SyncResponse, SyncResult, SyncTimeoutPolicy},
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, RequestId},
    store_error::StoreError,
    time::Timestamp,
};

use crate::{
    Engine,
    ingest::ReceivedEvent,
    waiters::{AttemptWaiter, WaiterResult},
};

/// The `sync` settings of a source, with the destination resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncConfig {
    pub(crate) destination: DestinationId,
    pub(crate) deadline: Duration,
    pub(crate) on_timeout: SyncTimeoutPolicy,
    /// Whether a duplicate revives a dead delivery.
    pub(crate) revives: bool,
}

/// A sender that waits for the result of one event.
#[derive(Debug)]
pub(crate) struct SyncWait {
    pub(crate) config: SyncConfig,
    pub(crate) request: RequestId,
    pub(crate) received_at: Timestamp,
    /// The deadline of the response.
    pub(crate) until: tokio::time::Instant,
    /// Watches the planned delivery; `None` if the event is not routed to the destination.
    pub(crate) waiter: Option<AttemptWaiter>,
}

/// An attempt that a sender waits for.
struct AwaitedAttempt {
    waiter: AttemptWaiter,
    /// The attempts that were recorded before it.
    after: u32,
}

/// The pauses between two looks for a result that another node records.
const STORE_POLL_MIN: Duration = Duration::from_millis(50);
const STORE_POLL_MAX: Duration = Duration::from_secs(1);

impl Engine {
    /// The response to the sender of an event, once the result is known or the deadline has passed.
    pub(crate) async fn answer_waiting_sender(
        self: &Arc<Self>,
        wait: SyncWait,
        received: &ReceivedEvent,
    ) -> Result<SyncResponse, StoreError> {
        let event = received.event;
        let response = if received.duplicate {
            self.join_delivery(&wait, event).await?
        } else {
            match wait.waiter {
                Some(waiter) => {
                    let awaited = AwaitedAttempt { waiter, after: 0 };
                    self.wait_for_attempt(wait.config, wait.until, awaited).await
                }
                None => skipped("not_routed"),
            }
        };
        let response =
            if received.key.is_some() { response } else { response.for_sender_without_key() };
        self.record_response(event, &response);
        Ok(response)
    }

    /// The result of an event that was received before; waits for it if its delivery is under way.
    async fn join_delivery(
        &self,
        wait: &SyncWait,
        event: EventId,
    ) -> Result<SyncResponse, StoreError> {
        let config = wait.config;
        let request = JoinRequest {
            event,
            destination: config.destination,
            request: wait.request,
            revive: config.revives,
            now: wait.received_at,
        };
        let (delivery, attempts) = match self.store.join(request).await? {
            JoinResult::NoDelivery => return Ok(skipped("not_routed")),
            JoinResult::Expired => return Ok(skipped("no_longer_kept")),
            JoinResult::Cancelled => return Ok(skipped("cancelled")),
            JoinResult::Ended(ending) => {
                return Ok(self.build_answer(&WaiterResult::Ended(ending), config));
            }
            JoinResult::InProgress { delivery, attempts, due } => {
                due.into_iter().for_each(|destination| self.wake_lane(destination));
                (delivery, attempts)
            }
        };
        let waiter = self.shared.waiters.watch(delivery);
        // Read after the watch began, so that no result falls between the two.
        match self.find_result_after(delivery, attempts).await? {
            Some(result) => Ok(self.build_answer(&result, config)),
            None => {
                let awaited = AwaitedAttempt { waiter, after: attempts };
                Ok(self.wait_for_attempt(config, wait.until, awaited).await)
            }
        }
    }

    /// The result of a delivery in the store, if it has changed since it had this many attempts.
    async fn find_result_after(
        &self,
        delivery: DeliveryId,
        attempts: u32,
    ) -> Result<Option<WaiterResult>, StoreError> {
        let Some(mut detail) = self.store.find_delivery(delivery).await? else { return Ok(None) };
        if let Some(row) = detail.attempts.pop_if(|row| row.attempt.number > attempts) {
            let (class, response) = (row.attempt.class, row.attempt.response);
            return Ok(row
                .next
                .map(|next| WaiterResult::Ended(SyncResult { next, class, response })));
        }
        let DeliveryRow { status, reason, .. } = detail.delivery;
        Ok(match (status, reason) {
            (DeliveryStatus::Cancelled, _) => Some(WaiterResult::Cancelled),
            // Dead without an attempt.
            (DeliveryStatus::Dead, Some(reason)) => Some(WaiterResult::dead(reason)),
            _ => None,
        })
    }

    /// Ends the waits for deliveries that were cancelled with their destination.
    pub(crate) async fn cancel_waits_for(&self, deleted: &[DestinationId]) {
        if deleted.is_empty() {
            return;
        }
        for delivery in self.shared.waiters.awaited() {
            // If the store cannot be read, the sender gets its answer at the deadline.
            if let Ok(Some(detail)) = self.store.find_delivery(delivery).await
                && deleted.contains(&detail.delivery.destination)
            {
                self.shared.notify_waiters(delivery, || WaiterResult::Cancelled);
            }
        }
    }

    async fn wait_for_attempt(
        &self,
        config: SyncConfig,
        until: tokio::time::Instant,
        awaited: AwaitedAttempt,
    ) -> SyncResponse {
        let now = self.shared.clock.now();
        let remaining = until.saturating_duration_since(tokio::time::Instant::now());
        // A destination that cools down beyond the deadline cannot answer before it.
        let cooling_until = self.find_cool_down(config.destination).await;
        if let Some(cooling_until) = cooling_until.filter(|until| *until > now + remaining) {
            return SyncResponse::throttled(cooling_until, now);
        }
        match tokio::time::timeout_at(until, self.find_result(awaited)).await {
            Ok(result) => self.build_answer(&result, config),
            Err(_) => match (self.find_cool_down(config.destination).await, config.on_timeout) {
                (Some(cooling_until), _) => {
                    SyncResponse::throttled(cooling_until, self.shared.clock.now())
                }
                (None, SyncTimeoutPolicy::Retry) => SyncResponse::Retry { reason: "deadline" },
                (None, SyncTimeoutPolicy::Accepted) => SyncResponse::Accepted,
            },
        }
    }

    /// The result of an attempt, wherever it is made.
    async fn find_result(&self, mut awaited: AwaitedAttempt) -> WaiterResult {
        if self.shared.node.is_alone() {
            return awaited.waiter.result().await;
        }
        let delivery = awaited.waiter.delivery();
        let mut pause = STORE_POLL_MIN;
        loop {
            // Repeated, because the lane may have another owner now.
            self.shared.signals.publish(Signal::DeliveryAwaited(delivery));
            let changed = awaited.waiter.store_changed();
            tokio::select! {
                result = awaited.waiter.result() => return result,
                () = changed => {}
                () = tokio::time::sleep(pause) => {}
            }
            // If the store cannot be read, the sender gets its answer at the deadline.
            if let Ok(Some(result)) = self.find_result_after(delivery, awaited.after).await {
                return result;
            }
            pause = (pause * 2).min(STORE_POLL_MAX);
        }
    }

    fn build_answer(&self, result: &WaiterResult, config: SyncConfig) -> SyncResponse {
        match result {
            WaiterResult::Ended(ending) => {
                ending.to_response(config.revives, self.shared.clock.now())
            }
            WaiterResult::Cancelled => skipped("cancelled"),
        }
    }

    /// Records the response for the event's timeline, in the background: the timeline misses one entry
    /// if the process is killed before.
    fn record_response(self: &Arc<Self>, event: EventId, response: &SyncResponse) {
        let decision = EventDecision {
            event,
            delivery: None,
            at: self.shared.clock.now(),
            kind: EventDecisionKind::Answered,
            detail: response.detail(),
        };
        let engine = Arc::clone(self);
        self.shared.tasks.spawn(async move {
            if let Err(error) = engine.store.record_decision(decision).await {
                tracing::warn!(%event, %error, "could not record the response to a waiting sender");
            }
        });
    }
}

fn skipped(reason: &str) -> SyncResponse {
    SyncResponse::Skipped { reason: reason.to_owned(), result: None }
}
