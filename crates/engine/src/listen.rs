//! Listeners: programs such as `surehook listen` that ask for the deliveries of a destination and report
//! the answers.
//!
//! An attempt calls [`Listeners::deliver`], which offers the request to the listeners of the lane and
//! waits for the answer. A listener calls [`Engine::listen`] again and again: each call reports answers,
//! says what the listener is still working on, and waits for more.
//!
//! What must hold:
//! - An attempt that gets no answer because its listener is gone, or the lane moves or stops, is not
//!   recorded: the delivery is due again under the same id. Only an answer, or a listener that is there
//!   and does not answer in time, ends an attempt.
//! - What was handed out in a response that the listener did not get is handed out again: it is not
//!   among what the next call says the listener works on.
//! - Listeners are known only to the process that owns the lane. Another node names that one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{destination::Transport, store::ConfigChange};
use surehook_retry::{AttemptFailure, AttemptOutcome};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    name::Name,
    time::Timestamp,
};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    ConfigChangeError, Engine, LaneError, lane::Lane, lock::lock, sender::SendReport,
    variables::ConfigOrigin,
};

/// How long a listener counts as present after its last call has ended.
const PRESENCE: Duration = Duration::from_secs(10);
/// Listeners of one destination.
const LISTENERS_MAX: usize = 32;
/// Bytes of bodies in one response, unless a single one is larger.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The request of an attempt, as it is handed to a listener.
#[derive(Clone, Debug)]
pub struct ListenerDelivery {
    pub id: DeliveryId,
    pub event: EventId,
    pub source: Name,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    pub received_at: Timestamp,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// How long the listener has to answer.
    pub timeout: Duration,
}

/// What a listener reports of a delivery.
#[derive(Clone, Debug)]
pub struct ListenerAnswer {
    pub delivery: DeliveryId,
    pub outcome: AttemptOutcome,
    pub elapsed: Duration,
    pub detail: Option<String>,
    pub response_body: Vec<u8>,
}

/// A call of a listener.
#[derive(Clone, Debug)]
pub struct ListenCall {
    /// A name that the listener has chosen for itself.
    pub listener: String,
    /// Deliveries to return at most; with 0, the call only reports answers.
    pub max: usize,
    /// How long to wait for a delivery.
    pub wait: Duration,
    /// Deliveries that the listener has and has not answered.
    pub holding: Vec<DeliveryId>,
    pub answers: Vec<ListenerAnswer>,
    /// It does not call again: what it has is due again.
    pub is_leaving: bool,
}

/// The result of a listener's call.
#[derive(Clone, Debug, Default)]
pub struct ListenResult {
    pub deliveries: Vec<ListenerDelivery>,
    /// Answers that ended an attempt.
    pub accepted: Vec<DeliveryId>,
    /// Answers that no attempt waits for: it timed out, or the gateway was restarted meanwhile.
    pub unknown: Vec<DeliveryId>,
}

/// The listeners of one lane.
#[derive(Debug)]
pub(crate) struct Listeners {
    state: Mutex<ListenersState>,
    /// Something was offered, handed out or withdrawn, or a listener came or left.
    changed: Notify,
}

#[derive(Debug)]
struct ListenersState {
    present: HashMap<String, Presence>,
    offers: HashMap<DeliveryId, Offer>,
    /// Offers that no listener has yet.
    waiting: VecDeque<DeliveryId>,
    calls: u64,
    unattended_since: Instant,
}

#[derive(Debug)]
struct Presence {
    /// Calls under way.
    calls: u32,
    seen: Instant,
    /// The newest call that asks for deliveries; an older one ends.
    newest_call: u64,
}

#[derive(Debug)]
struct Offer {
    delivery: ListenerDelivery,
    answer: oneshot::Sender<SendReport>,
    /// The listener that has it, and since when.
    taken: Option<(String, Instant)>,
}

/// Why an attempt ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoListener;

impl Default for Listeners {
    fn default() -> Self {
        let state = ListenersState {
            present: HashMap::new(),
            offers: HashMap::new(),
            waiting: VecDeque::new(),
            calls: 0,
            unattended_since: Instant::now(),
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl ListenersState {
    /// Forgets listeners that have not called for a while.
    fn forget_absent(&mut self, now: Instant) {
        let had_any = !self.present.is_empty();
        self.present.retain(|_, one| one.calls > 0 || now < one.seen + PRESENCE);
        if had_any && self.present.is_empty() {
            self.unattended_since = now;
        }
    }

    fn is_present(&self, listener: &str) -> bool {
        self.present.contains_key(listener)
    }

    /// Makes what this listener has and does not know of available again.
    fn take_back(&mut self, listener: &str, holding: &[DeliveryId]) {
        for (id, offer) in &mut self.offers {
            let has_it = offer.taken.as_ref().is_some_and(|(name, _)| name == listener);
            if has_it && !holding.contains(id) {
                offer.taken = None;
                self.waiting.push_front(*id);
            }
        }
    }

    fn hand_out(&mut self, listener: &str, max: usize, now: Instant) -> Vec<ListenerDelivery> {
        let (mut deliveries, mut bytes) = (Vec::new(), 0);
        while deliveries.len() < max {
            let Some(id) = self.waiting.pop_front() else { break };
            let Some(offer) = self.offers.get_mut(&id) else { continue };
            bytes += offer.delivery.body.len();
            if bytes > RESPONSE_BYTES_MAX && !deliveries.is_empty() {
                self.waiting.push_front(id);
                break;
            }
            offer.taken = Some((listener.to_owned(), now));
            deliveries.push(offer.delivery.clone());
        }
        deliveries
    }
}

/// Withdraws the offer of an attempt that ends, however it ends.
struct OfferGuard<'a> {
    listeners: &'a Listeners,
    delivery: DeliveryId,
}

impl Drop for OfferGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.listeners.state);
        state.offers.remove(&self.delivery);
        state.waiting.retain(|id| *id != self.delivery);
    }
}

/// Counts a call while it runs. A call also ends when its listener disconnects.
struct CallGuard<'a> {
    listeners: &'a Listeners,
    listener: &'a str,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.listeners.state);
        if let Some(present) = state.present.get_mut(self.listener) {
            present.calls -= 1;
            present.seen = Instant::now();
        }
        drop(state);
        // Attempts and the supervisor look again when it counts as absent.
        self.listeners.changed.notify_waiters();
    }
}

impl Listeners {
    /// How many listeners are present.
    pub(crate) fn count(&self) -> usize {
        let mut state = lock(&self.state);
        state.forget_absent(Instant::now());
        state.present.len()
    }

    /// For how long there has been no listener; zero if there is one.
    fn unattended_for(&self) -> Duration {
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.forget_absent(now);
        if state.present.is_empty() { now - state.unattended_since } else { Duration::ZERO }
    }

    /// Offers a request to the listeners and waits for the answer.
    pub(crate) async fn deliver(
        &self,
        delivery: ListenerDelivery,
        stop: &CancellationToken,
    ) -> Result<SendReport, NoListener> {
        let (id, timeout) = (delivery.id, delivery.timeout);
        let (answer, mut answered) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            state.offers.insert(id, Offer { delivery, answer, taken: None });
            state.waiting.push_back(id);
        }
        let _guard = OfferGuard { listeners: self, delivery: id };
        self.changed.notify_waiters();
        loop {
            // Created before the state is read: a change in between is not missed.
            let changed = self.changed.notified();
            let now = Instant::now();
            if let Ok(report) = answered.try_recv() {
                return Ok(report);
            }
            let next = match self.check_offer(id, timeout, now) {
                OfferState::Absent => return Err(NoListener),
                OfferState::TimedOut => {
                    let detail = format!("no answer from the listener within {timeout:?}");
                    let report = SendReport::failed(AttemptFailure::Timeout, detail);
                    return Ok(SendReport { elapsed: timeout, ..report });
                }
                OfferState::Open { next_check } => next_check,
            };
            tokio::select! {
                // First: an answer that was accepted counts.
                biased;
                report = &mut answered => return report.map_err(|_| NoListener),
                () = stop.cancelled() => return Err(NoListener),
                () = changed => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    fn check_offer(&self, id: DeliveryId, timeout: Duration, now: Instant) -> OfferState {
        let mut state = lock(&self.state);
        state.forget_absent(now);
        let Some(offer) = state.offers.get(&id) else {
            // Answered at this moment.
            return OfferState::Open { next_check: now };
        };
        match offer.taken.clone() {
            Some((_, since)) if now >= since + timeout => OfferState::TimedOut,
            Some((listener, since)) if state.is_present(&listener) => {
                OfferState::Open { next_check: (since + timeout).min(now + PRESENCE) }
            }
            Some(_) => OfferState::Absent,
            None if state.present.is_empty() => OfferState::Absent,
            None => OfferState::Open { next_check: now + PRESENCE },
        }
    }

    /// Reports the answers of a call.
    fn accept_answers(&self, listener: &str, answers: Vec<ListenerAnswer>) -> ListenResult {
        let mut result = ListenResult::default();
        let mut state = lock(&self.state);
        for answer in answers {
            let id = answer.delivery;
            let is_its =
                |offer: &Offer| offer.taken.as_ref().is_some_and(|(name, _)| name == listener);
            let offer = match state.offers.get(&id).is_some_and(is_its) {
                true => state.offers.remove(&id),
                false => None,
            };
            // The attempt may end at the same moment for another reason.
            let is_accepted =
                offer.is_some_and(|offer| offer.answer.send(answer.into_report()).is_ok());
            if is_accepted { &mut result.accepted } else { &mut result.unknown }.push(id);
        }
        result
    }

    /// Carries out a call of a listener. `on_arrival` is called when it is the first.
    async fn call(
        &self,
        call: ListenCall,
        stop: &CancellationToken,
        on_arrival: impl FnOnce(),
    ) -> Result<ListenResult, LaneError> {
        let ListenCall { listener, max, wait, holding, answers, is_leaving } = call;
        let mut result = self.accept_answers(&listener, answers);
        if is_leaving {
            let mut state = lock(&self.state);
            state.present.remove(&listener);
            state.take_back(&listener, &[]);
            if state.present.is_empty() {
                state.unattended_since = Instant::now();
            }
            drop(state);
            self.changed.notify_waiters();
            return Ok(result);
        }
        let (_guard, number) = self.begin_call(&listener, max)?;
        if max == 0 {
            return Ok(result);
        }
        lock(&self.state).take_back(&listener, &holding);
        on_arrival();
        self.changed.notify_waiters();
        let deadline = Instant::now() + wait;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = lock(&self.state);
                let newest = state.present.get(&listener).map(|present| present.newest_call);
                if newest != Some(number) {
                    return Ok(result);
                }
                result.deliveries = state.hand_out(&listener, max, Instant::now());
            }
            if !result.deliveries.is_empty() {
                return Ok(result);
            }
            tokio::select! {
                () = changed => {}
                () = stop.cancelled() => return Ok(result),
                () = tokio::time::sleep_until(deadline) => return Ok(result),
            }
        }
    }

    fn begin_call<'a>(
        &'a self,
        listener: &'a str,
        max: usize,
    ) -> Result<(CallGuard<'a>, u64), LaneError> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.forget_absent(now);
        if !state.is_present(listener) && state.present.len() >= LISTENERS_MAX {
            return Err(LaneError::TooManyListeners(LISTENERS_MAX));
        }
        state.calls += 1;
        let number = state.calls;
        let present = state.present.entry(listener.to_owned()).or_insert(Presence {
            calls: 0,
            seen: now,
            newest_call: number,
        });
        present.calls += 1;
        if max > 0 {
            present.newest_call = number;
        }
        Ok((CallGuard { listeners: self, listener }, number))
    }
}

enum OfferState {
    /// The listener that has it is gone, or there is none at all.
    Absent,
    TimedOut,
    Open {
        next_check: Instant,
    },
}

impl ListenerAnswer {
    fn into_report(self) -> SendReport {
        let Self { delivery: _, outcome, elapsed, detail, mut response_body } = self;
        response_body.truncate(crate::sender::RESPONSE_BYTES_KEPT);
        SendReport { elapsed, detail, response_body, ..SendReport::of(outcome) }
    }
}

impl Lane {
    /// Whether nothing may start for lack of a listener.
    pub(crate) fn lacks_listener(&self) -> bool {
        self.count_listeners() == Some(0)
    }

    /// How many programs listen; `None` if the destination is of another kind.
    pub(crate) fn count_listeners(&self) -> Option<usize> {
        let is_listened_to = matches!(self.destination().transport, Transport::Listen(_));
        is_listened_to.then(|| self.listeners().count())
    }
}

impl Engine {
    /// Carries out the call of a listener: its answers end attempts, and it gets the deliveries that wait.
    pub async fn listen(
        &self,
        destination: DestinationId,
        call: ListenCall,
    ) -> Result<ListenResult, LaneError> {
        if self.is_elsewhere(destination) {
            return Err(LaneError::OwnedElsewhere(self.describe_owner(destination).await?));
        }
        // Destinations of this kind have one lane.
        let lane = self.registry.load().first_lane(destination).cloned();
        let lane = lane.ok_or(LaneError::NoLane)?;
        if lane.count_listeners().is_none() {
            return Err(LaneError::NotListen);
        }
        let stop = lane.stop_token();
        lane.listeners().call(call, &stop, || lane.wake_for_listener()).await
    }

    async fn describe_owner(&self, destination: DestinationId) -> Result<String, LaneError> {
        let report = self.load_nodes().await?;
        let owner = report.lanes.iter().find(|row| row.lane.destination == destination);
        let owner = owner.and_then(|row| row.owner);
        let node = report.nodes.iter().find(|node| Some(node.id) == owner);
        Ok(node.map_or_else(
            || "no node at the moment".to_owned(),
            |node| match &node.address {
                Some(address) => format!("node `{}` at {address}", node.name),
                None => format!("node `{}`", node.name),
            },
        ))
    }

    /// Removes destinations of this process that had no listener for long, with their routes.
    /// Returns when to look again, if that is soon.
    pub(crate) async fn remove_unattended_destinations(self: &Arc<Self>) -> Option<Duration> {
        let registry = self.registry.load_full();
        let mut next: Option<Duration> = None;
        for lane in registry.all_lanes() {
            let destination = lane.destination();
            let Transport::Listen(config) = destination.transport else { continue };
            let left = config.remove_after.saturating_sub(lane.listeners().unattended_for());
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            let name = destination.name.as_str();
            match self.remove_destination(destination.id).await {
                Ok(()) => tracing::info!(
                    destination = name,
                    "this destination had no listener for long; it was removed with its routes"
                ),
                Err(error) => {
                    tracing::warn!(destination = name, %error, "could not remove a destination without a listener");
                }
            }
        }
        next
    }

    async fn remove_destination(
        self: &Arc<Self>,
        id: DestinationId,
    ) -> Result<(), ConfigChangeError> {
        self.change_from(ConfigOrigin::SettingsFile, |configuration| {
            let is_stored = configuration.destinations.iter().any(|stored| stored.id == id);
            let change = is_stored.then_some(ConfigChange::DeleteDestination(id));
            Ok::<_, ConfigChangeError>((change.into_iter().collect(), ()))
        })
        .await
    }
}
