//! What holds for a lane that sends messages: how many in a day, when none, and how fast to one
//! recipient.
//!
//! What may not be sent now costs nothing: no attempt, no turn of the rate, no place in memory. A hold
//! is worked out whenever it is asked for, so there is nothing of it to be kept over a restart; what
//! was sent today is in the store.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    channel::{RecipientKey, RecipientPacer},
    destination::{
        Destination,
        send_limits::{DailySendCounter, SendHold, SendLimits},
        sender::MessageSender,
    },
    store::{ClaimedDelivery, HeldClaim, StoreError},
    time::Timestamp,
};

use super::{Inside, Lane, LaneSlot};

/// What a lane that sends messages remembers.
#[derive(Debug)]
pub(super) struct MessageSendState {
    /// What was sent today; `None` until it was read from the store.
    today: Option<DailySendCounter>,
    pairs: RecipientPacer,
}

/// A message that has to wait for its turn with its recipient.
pub(super) struct PostponedDelivery {
    held: HeldClaim,
    due_at: Timestamp,
    slot: LaneSlot,
}

impl PostponedDelivery {
    pub(super) fn new(claimed: &ClaimedDelivery, due_at: Timestamp, slot: LaneSlot) -> Self {
        let held = HeldClaim { delivery: claimed.id, token: claimed.lease.token };
        Self { held, due_at, slot }
    }
}

impl MessageSendState {
    pub(super) fn new(destination: &Destination) -> Self {
        let rule = destination.sender().and_then(|sender| sender.recipient_rule);
        Self { today: None, pairs: RecipientPacer::new(rule) }
    }

    /// Takes over changed settings.
    pub(super) fn update(&mut self, old: &Destination, new: &Destination, now: Timestamp) {
        let rule = new.sender().and_then(|sender| sender.recipient_rule);
        if old.transport != new.transport {
            // Another number: its recipients owe it nothing.
            self.pairs = RecipientPacer::new(rule);
        }
        self.pairs.set_rule(rule);
        let day = |destination: &Destination| destination.sender().map(|s| s.limits.day(now));
        if day(old) != day(new) {
            self.today = None;
        }
    }

    /// How many were sent today, if that is known.
    fn sent(&self, limits: &SendLimits, now: Timestamp) -> Option<u64> {
        self.today.and_then(|today| today.on(limits.day(now)))
    }

    fn hold(&self, limits: &SendLimits, now: Timestamp) -> Option<(Timestamp, SendHold)> {
        limits.hold(now, self.sent(limits, now).unwrap_or_default())
    }

    /// Whether one more may be sent while so many are on their way.
    fn may_send(&self, limits: &SendLimits, running: u32, now: Timestamp) -> bool {
        let is_free = |sent: u64| {
            limits.hold(now, sent).is_none() && limits.remaining(sent) > u64::from(running)
        };
        self.sent(limits, now).is_some_and(is_free)
    }
}

impl Lane {
    /// Whether the calendar of its number lets one more start; always, if it sends no messages.
    pub(super) fn may_send(&self, inside: &Inside) -> bool {
        let destination = self.destination.load();
        let Some(MessageSender { limits, .. }) = destination.sender() else { return true };
        inside.sending.may_send(limits, inside.running, self.shared.clock.now())
    }

    /// Until when nothing is sent, and why.
    pub(super) fn hold(&self, inside: &Inside) -> Option<(Timestamp, SendHold)> {
        let destination = self.destination.load();
        let limits = &destination.sender()?.limits;
        inside.sending.hold(limits, self.shared.clock.now())
    }

    /// The same, for whoever looks.
    pub(crate) fn shown_hold(&self) -> Option<(Timestamp, SendHold)> {
        self.hold(&self.inside())
    }

    /// Reads from the store what was sent today, if that is not known, and shows it.
    pub(super) async fn learn_sent_today(&self) -> Result<(), StoreError> {
        let destination = self.destination.load_full();
        let Some(MessageSender { limits, .. }) = destination.sender() else { return Ok(()) };
        let now = self.shared.clock.now();
        let known = self.inside().sending.sent(limits, now);
        let sent = match known {
            Some(sent) => sent,
            None => {
                let day = limits.day(now);
                let sent = self.shared.store.sent_on(self.id, day).await?;
                self.inside().sending.today = Some(DailySendCounter::new(day, sent, limits));
                sent
            }
        };
        self.show_sent(&destination, limits, sent);
        Ok(())
    }

    /// Counts a message that was sent, or may have been. The attempt still counts as running, so that
    /// no moment is without it.
    pub(super) fn count_sent(&self, destination: &Destination, day: i32) {
        let Some(MessageSender { limits, .. }) = destination.sender() else { return };
        let mut inside = self.inside();
        let Some(today) = &mut inside.sending.today else { return };
        let warned = today.count(day, limits);
        let sent = today.on(day).unwrap_or_default();
        drop(inside);
        self.show_sent(destination, limits, sent);
        if let Some(sent) = warned {
            let destination = destination.name.as_str();
            let warn_at = limits.warn_at.map_or(0, std::num::NonZeroU64::get);
            tracing::warn!(
                destination,
                sent,
                warn_at,
                "the number has sent many messages today; one that sends too many may be banned"
            );
        }
    }

    fn show_sent(&self, destination: &Destination, limits: &SendLimits, sent: u64) {
        self.shared.telemetry.sent_today(destination.name.as_str(), sent, limits.warn_at);
    }

    /// When the next message to a recipient should come again, if it has to wait. If not, it counts as
    /// sent.
    pub(super) fn wait_for_turn(&self, recipient: RecipientKey) -> Option<Timestamp> {
        let wait = self.inside().sending.pairs.reserve(recipient, self.begun.elapsed());
        // Rounded up: one that comes a moment too early is sent away again.
        let due_at = || self.shared.clock.now() + wait + Duration::from_millis(1);
        (!wait.is_zero()).then(due_at)
    }

    /// The service wants a recipient to be left alone.
    pub(super) fn leave_alone(&self, recipient: RecipientKey, wait: Duration) {
        self.inside().sending.pairs.hold(recipient, wait, self.begun.elapsed());
    }

    /// Gives a message back to the store that comes again later. If that fails it is found by its
    /// lease.
    pub(super) async fn put_off(self: Arc<Self>, put_off: PostponedDelivery) {
        let PostponedDelivery { held, due_at, slot } = put_off;
        self.shared.telemetry.put_off(&self.name());
        let released = self.shared.store.release(vec![held], due_at).await;
        self.let_go(held.delivery);
        drop(slot);
        match released {
            Ok(()) => self.expect_due(due_at),
            Err(error) => {
                tracing::warn!(delivery = %held.delivery, %error, "a message could not be put off");
            }
        }
    }
}
