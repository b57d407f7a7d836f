//! Random histories, played through the store and through the model.
//!
//! After each step the answers must agree; after each restart and at the end everything that can
//! be seen must. A history that fails is shrunk to a short list of steps that can be read.

use std::{collections::BTreeSet, time::Duration};

use proptest::{prelude::*, sample::select, test_runner::TestCaseResult};
use surehook_core::{
    attribute::EventKind,
    delivery::DeadReason,
    event::{NewDelivery, NewEvent, ProviderStatus, StatusUpdate},
    ids::{DeliveryId, DestinationId},
    key::DedupKey,
    retention::RetentionSpec,
    store::{AdmitResult, ClaimedDelivery, ConfigChange, NextStep, SentMessage, Settlement},
    time::HumanDuration,
};

use super::{
    Harness, World, check, fail,
    model::{Expected, Model},
    samples::{claimed_at_birth, destination, held, ordered, payload},
    world::LEASE,
};

/// The day on which all is sent; that of the [`World`]'s beginning.
const DAY: i32 = 20_833;

/// Why deliveries die here.
const REASONS: [DeadReason; 3] =
    [DeadReason::MaxRetries, DeadReason::PayloadError, DeadReason::Ambiguous];

/// Which destination of the [`World`].
#[derive(Clone, Copy, Debug)]
enum To {
    Crm,
    Mail,
}

/// An event of a request.
#[derive(Clone, Debug)]
struct Arrival {
    from_bank: bool,
    key: Option<&'static str>,
    body: &'static str,
    to: Vec<To>,
    claimed: bool,
    revive_dead: bool,
    order: Option<&'static str>,
    delay: u64,
    about: About,
    tells: Option<Tells>,
}

/// A status about the delivery that comes `back` from the newest.
#[derive(Clone, Copy, Debug)]
struct Tells {
    back: usize,
    end: End,
    sent_id: Option<&'static str>,
}

/// What an event is about, and what is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) kind: Option<&'static str>,
    pub(super) phone: Option<&'static str>,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Succeeded,
    RetryIn(u64),
    Dead(DeadReason),
}

/// One step of a history. `back` counts from the newest: 0 is the last claim, or delivery.
#[derive(Clone, Debug)]
enum Op {
    Admit(Vec<Arrival>),
    Recall(Arrival),
    Claim(To, usize),
    Settle { back: usize, end: End, is_known: bool, sent: bool },
    LeaveWill { back: usize, end: End, sent: bool },
    Release { back: usize, seconds: u64 },
    Renew { back: usize },
    ReleaseExpired,
    Replay { back: usize },
    Cancel { back: usize },
    Find(About),
    Wait { seconds: u64 },
    Delete(To),
    Put(To, bool),
    Keep { of_bank: bool, retention: RetentionSpec },
    Prune { older_than_seconds: u64 },
    RollUp,
    Reopen,
}

fn an_arrival() -> impl Strategy<Value = Arrival> {
    let to = select(vec![vec![To::Crm], vec![To::Crm, To::Mail], vec![To::Mail], vec![]]);
    let key = prop::option::weighted(0.8, select(vec!["a", "b", "c"]));
    let chances = (any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.8));
    let order = prop::option::of(select(vec!["x", "y"]));
    let lane = (order, select(vec![0, 0, 0, 5]));
    let about = (an_about(), prop::option::weighted(0.4, a_status()));
    (key, select(vec!["one", "two"]), to, chances, lane, about).prop_map(
        |(key, body, to, (from_bank, claimed, revive_dead), (order, delay), (about, tells))| {
            Arrival { from_bank, key, body, to, claimed, revive_dead, order, delay, about, tells }
        },
    )
}

fn a_status() -> impl Strategy<Value = Tells> {
    let sent_id = prop::option::of(select(vec!["w-1", "w-2"]));
    (0..4_usize, an_end(), sent_id).prop_map(|(back, end, sent_id)| Tells { back, end, sent_id })
}

fn an_about() -> impl Strategy<Value = About> {
    let kind = prop::option::of(select(vec!["message", "status"]));
    // The first two are the same number.
    let phones = vec!["5511987654321", "551187654321", "5511900000000", "12@lid"];
    (kind, prop::option::of(select(phones))).prop_map(|(kind, phone)| About { kind, phone })
}

fn an_end() -> impl Strategy<Value = End> {
    prop_oneof![
        2 => Just(End::Succeeded),
        2 => select(vec![0, 5, 60]).prop_map(End::RetryIn),
        4 => select(REASONS.to_vec()).prop_map(End::Dead),
    ]
}

fn an_op() -> impl Strategy<Value = Op> {
    let to = || select(vec![To::Crm, To::Mail]);
    prop_oneof![
        8 => prop::collection::vec(an_arrival(), 1..4).prop_map(Op::Admit),
        4 => an_arrival().prop_map(Op::Recall),
        7 => (to(), 1..4_usize).prop_map(|(to, limit)| Op::Claim(to, limit)),
        9 => (0..5_usize, an_end(), any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(back, end, is_known, sent)| Op::Settle { back, end, is_known, sent }),
        5 => (0..3_usize, an_end(), any::<bool>())
            .prop_map(|(back, end, sent)| Op::LeaveWill { back, end, sent }),
        2 => (0..4_usize, select(vec![0, 30]))
            .prop_map(|(back, seconds)| Op::Release { back, seconds }),
        1 => (0..4_usize).prop_map(|back| Op::Renew { back }),
        2 => Just(Op::ReleaseExpired),
        4 => (0..6_usize).prop_map(|back| Op::Replay { back }),
        4 => select(vec![1, 30, 60, 600]).prop_map(|seconds| Op::Wait { seconds }),
        1 => to().prop_map(Op::Delete),
        2 => (0..6_usize).prop_map(|back| Op::Cancel { back }),
        3 => an_about().prop_map(Op::Find),
        1 => (to(), any::<bool>()).prop_map(|(to, is_ordered)| Op::Put(to, is_ordered)),
        1 => (any::<bool>(), a_retention()).prop_map(|(of_bank, retention)| Op::Keep { of_bank, retention }),
        3 => select(vec![0, 60, 600]).prop_map(|older_than_seconds| Op::Prune { older_than_seconds }),
        1 => Just(Op::RollUp),
        2 => Just(Op::Reopen),
    ]
}

fn a_retention() -> impl Strategy<Value = RetentionSpec> {
    let span = || prop::option::of(select(vec![1, 30, 60, 600]).prop_map(HumanDuration::from_secs));
    (span(), span(), span(), span()).prop_map(|(events, bodies, attempts, dead_letters)| {
        RetentionSpec { events, bodies, attempts, dead_letters }
    })
}

/// The store and its model, side by side.
pub(super) struct Run {
    pub(super) world: World,
    pub(super) model: Model,
    /// Every claim that was ever made; most of them are stale.
    claims: Vec<ClaimedDelivery>,
}

impl Run {
    fn to(&self, to: To) -> DestinationId {
        match to {
            To::Crm => self.world.crm,
            To::Mail => self.world.mail,
        }
    }

    fn event(&self, arrival: &Arrival) -> NewEvent {
        let world = &self.world;
        let owed = |to: &To| {
            let claim = arrival.claimed.then(|| world.lease());
            NewDelivery {
                claim,
                delay: Duration::from_secs(arrival.delay),
                order_key: arrival.order.and_then(DedupKey::new),
                ..world.to(self.to(*to))
            }
        };
        NewEvent {
            source: if arrival.from_bank { world.bank } else { world.shop },
            key: arrival.key.map(|key| world.key(key)),
            kind: arrival.about.kind.and_then(EventKind::new),
            attributes: arrival.about.attributes(),
            payload: payload(arrival.body.as_bytes()),
            deliveries: arrival.to.iter().map(owed).collect(),
            revive_dead: arrival.revive_dead,
            status_update: arrival.tells.and_then(|tells| self.told(tells)),
            ..world.arrival()
        }
    }

    fn told(&self, tells: Tells) -> Option<StatusUpdate> {
        let (_, about) = self.model.deliveries.iter().rev().nth(tells.back)?;
        let said = match self.next(tells.end) {
            NextStep::Succeeded => ProviderStatus::Sent,
            next @ (NextStep::RetryAt(_) | NextStep::Dead(_)) => ProviderStatus::Failed(next),
        };
        Some(StatusUpdate {
            event: about.event,
            destination: about.destination,
            at: self.world.now,
            sent_id: tells.sent_id.map(str::to_owned),
            status: said,
        })
    }

    fn next(&self, end: End) -> NextStep {
        match end {
            End::Succeeded => NextStep::Succeeded,
            End::RetryIn(seconds) => {
                NextStep::RetryAt(self.world.now + Duration::from_secs(seconds))
            }
            End::Dead(reason) => NextStep::Dead(reason),
        }
    }

    fn claim(&self, back: usize) -> Option<ClaimedDelivery> {
        let last = self.claims.len().checked_sub(1)?;
        Some(self.claims[last - back.min(last)].clone())
    }

    async fn step(&mut self, op: &Op) -> TestCaseResult {
        match op {
            Op::Admit(arrivals) => self.admit(arrivals).await?,
            Op::Recall(arrival) => self.recall(arrival)?,
            Op::Claim(to, limit) => self.claim_due(*to, *limit).await?,
            Op::Settle { back, end, is_known, sent } => {
                self.settle(*back, *end, *is_known, *sent).await?;
            }
            Op::LeaveWill { back, end, sent } => {
                self.record_crash_outcome(*back, *end, *sent).await?
            }
            Op::Release { back, seconds } => self.release(*back, *seconds).await,
            Op::Renew { back } => self.renew(*back).await,
            Op::ReleaseExpired => self.release_expired().await?,
            Op::Replay { back } => self.replay(*back).await?,
            Op::Wait { seconds } => self.world.wait(Duration::from_secs(*seconds)),
            Op::Delete(to) => self.delete(*to).await,
            Op::Cancel { back } => self.cancel(*back).await?,
            Op::Find(about) => self.find(*about).await?,
            Op::Put(to, is_ordered) => self.put(*to, *is_ordered).await,
            Op::Keep { of_bank, retention } => {
                let source = if *of_bank { self.world.bank } else { self.world.shop };
                self.keep(source, *retention).await;
            }
            Op::Prune { older_than_seconds } => {
                self.prune(Duration::from_secs(*older_than_seconds)).await?;
            }
            Op::RollUp => self.roll_up().await,
            Op::Reopen => {
                self.reopen().await;
                self.compare().await?;
            }
        }
        self.compare_counts()
    }

    async fn roll_up(&self) {
        while self.world.roll_up().await.unwrap() {}
    }

    pub(super) async fn reopen(&mut self) {
        self.world.reopen().await;
        if self.world.is_sole_owner() {
            self.model.release_where(self.world.now, |_| true);
            self.model.wait_anew(self.world.now);
        }
    }

    async fn admit(&mut self, arrivals: &[Arrival]) -> TestCaseResult {
        let events: Vec<NewEvent> = arrivals.iter().map(|arrival| self.event(arrival)).collect();
        let admitted = self.world.admit(events.clone()).await.unwrap();
        prop_assert_eq!(admitted.len(), events.len());
        for (event, admitted) in events.iter().zip(admitted) {
            match (self.model.admit(event), admitted) {
                (
                    Expected::Accepted { held: expected, confirmed: moved },
                    AdmitResult::Accepted { held, confirmed },
                ) => {
                    prop_assert_eq!((&held, confirmed), (&expected, moved));
                    let claims = claimed_at_birth(event);
                    self.claims.extend(claims.filter(|claim| !held.contains(&claim.id)));
                }
                (
                    Expected::Duplicate { original, bytes_differ, revived },
                    AdmitResult::Duplicate(told),
                ) => {
                    prop_assert_eq!((told.original, told.bytes_differ), (original, bytes_differ));
                    let to = |old: &DeliveryId| self.model.deliveries[old].destination;
                    let expected: BTreeSet<DestinationId> = revived.iter().map(to).collect();
                    let told: BTreeSet<DestinationId> = told.revived.into_iter().collect();
                    prop_assert_eq!(told, expected);
                    for old in revived {
                        let heir = self.world.delivery_detail(old).await.delivery.replayed_by;
                        self.model.name_heir(old, heir.unwrap());
                    }
                }
                (expected, admitted) => return fail(format!("{admitted:?}, not {expected:?}")),
            }
        }
        Ok(())
    }

    fn recall(&mut self, arrival: &Arrival) -> TestCaseResult {
        let event = self.event(arrival);
        let Some(claim) = &event.key else { return Ok(()) };
        let now = self.world.now;
        let said =
            self.world.find_committed(event.source, &claim.key, &event.payload.fingerprint, now);
        if let Some(original) = said {
            prop_assert_eq!(Some(original), self.model.may_recall(&event));
            self.model.see(original, now);
        }
        Ok(())
    }

    async fn claim_due(&mut self, to: To, limit: usize) -> TestCaseResult {
        let (to, now, lease) = (self.to(to), self.world.now, self.world.lease());
        let claimed = self.world.claim_due(to, now, lease, limit).await.unwrap().claimed;
        let ids: Vec<DeliveryId> = claimed.iter().map(|claimed| claimed.id).collect();
        prop_assert_eq!(ids, self.model.claim(to, now, lease, limit));
        for claim in &claimed {
            let owed = &self.model.deliveries[&claim.id];
            prop_assert_eq!((claim.event, claim.attempts), (owed.event, owed.attempts));
            prop_assert_eq!(&claim.payload, &self.model.events[&claim.event].admitted.payload);
        }
        self.claims.extend(claimed);
        Ok(())
    }

    /// An attempt of which it is known, or not, how it ended; and whether something was sent.
    fn settlement(
        &self,
        claim: &ClaimedDelivery,
        end: End,
        is_known: bool,
        sent: bool,
    ) -> Settlement {
        let next = self.next(end);
        let settlement = if is_known {
            let mut settlement = self.world.settlement(claim, next);
            if claim.attempts % 2 == 1 {
                // What dies of this is of another group.
                settlement.attempt.response = b"order 7 is closed".to_vec();
            }
            settlement
        } else {
            self.world.will(claim, next)
        };
        let id = is_known.then(|| "w-2".to_owned());
        Settlement { sent: sent.then_some(SentMessage { id, day: DAY }), ..settlement }
    }

    async fn settle(
        &mut self,
        back: usize,
        end: End,
        is_known: bool,
        sent: bool,
    ) -> TestCaseResult {
        let Some(claim) = self.claim(back) else { return Ok(()) };
        let settlement = self.settlement(&claim, end, is_known, sent);
        let settled = self.world.settle(settlement.clone()).await.unwrap();
        prop_assert_eq!(settled, self.model.settle(held(&claim), &settlement));
        Ok(())
    }

    async fn record_crash_outcome(&mut self, back: usize, end: End, sent: bool) -> TestCaseResult {
        let Some(claim) = self.claim(back) else { return Ok(()) };
        let will = self.settlement(&claim, end, false, sent);
        let left = self.world.record_crash_outcome(will.clone()).await.unwrap();
        prop_assert_eq!(left, self.model.record_crash_outcome(held(&claim), &will));
        Ok(())
    }

    async fn replay(&mut self, back: usize) -> TestCaseResult {
        let Some(old) = self.model.deliveries.keys().rev().nth(back).copied() else {
            return Ok(());
        };
        let (new, now) = (self.world.id(), self.world.now);
        let replayed = self.world.replay(old, new, now).await.unwrap();
        prop_assert_eq!(replayed, self.model.replay(old, new, now));
        Ok(())
    }
}

impl Run {
    async fn release(&mut self, back: usize, seconds: u64) {
        let Some(claim) = self.claim(back) else { return };
        let due_at = self.world.now + Duration::from_secs(seconds);
        self.world.release(vec![held(&claim)], due_at).await.unwrap();
        self.model.release(held(&claim), due_at);
    }

    async fn renew(&mut self, back: usize) {
        let Some(claim) = self.claim(back) else { return };
        let until = self.world.now + LEASE;
        self.world.renew(vec![held(&claim)], until).await.unwrap();
        self.model.renew(held(&claim), until);
    }

    async fn release_expired(&mut self) -> TestCaseResult {
        let now = self.world.now;
        let freed = self.world.release_expired(now).await.unwrap();
        let expected = self.model.release_where(now, |lease| lease.until <= now);
        prop_assert_eq!(freed.len(), expected.len());
        prop_assert_eq!(freed.into_iter().collect::<BTreeSet<_>>(), expected);
        Ok(())
    }

    async fn delete(&mut self, to: To) {
        let (id, now) = (self.to(to), self.world.now);
        self.world.change(vec![ConfigChange::DeleteDestination(id)], now).await.unwrap();
        self.model.delete_destination(id, now);
    }

    async fn put(&mut self, to: To, is_ordered: bool) {
        let (id, now) = (self.to(to), self.world.now);
        let name = format!("{to:?}").to_lowercase();
        let spec = if is_ordered { ordered(&name) } else { destination(&name) };
        self.world.change(vec![ConfigChange::PutDestination(id, spec)], now).await.unwrap();
        self.model.destinations.insert(id);
        if !is_ordered {
            self.model.call_all(id, now);
        }
    }

    async fn cancel(&mut self, back: usize) -> TestCaseResult {
        let Some(id) = self.model.deliveries.keys().rev().nth(back).copied() else {
            return Ok(());
        };
        let now = self.world.now;
        let cancelled = self.world.cancel(id, now).await.unwrap();
        prop_assert_eq!(cancelled, self.model.cancel(id, now));
        Ok(())
    }
}

async fn play(world: World, ops: Vec<Op>) -> TestCaseResult {
    let mut model = Model::default();
    model.destinations.extend([world.crm, world.mail]);
    let mut run = Run { world, model, claims: Vec::new() };
    for op in &ops {
        run.step(op).await?;
    }
    run.reopen().await;
    run.compare().await?;
    run.grow_old().await
}

pub fn random_history_agrees_with_the_model<H: Harness + 'static>(harness: impl Fn() -> H) {
    let ops = prop::collection::vec(an_op(), 1..60);
    check(ops, |ops| async { play(World::new(harness()).await, ops).await });
}
