//! Random histories, applied to the store and to the model.
//!
//! After each step the results must be equal; after each restart and at the end everything that can
//! be read must be equal. A failing history is shrunk to a short list of steps.

use std::{collections::BTreeSet, time::Duration};

use proptest::{prelude::*, sample::select, test_runner::TestCaseResult};
use surehook_core::{
    event::{ConflictPolicy, DedupKeyClaim, NewDelivery, NewEvent, ProviderStatus, StatusUpdate},
    retention::RetentionSpec,
    store::{AdmitResult, ClaimedDelivery, ConfigChange, NextStep, SentMessage, Settlement},
};
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::HumanDuration,
};
use surehook_webhooks::{attribute::EventKind, key::DedupKey};

use super::{
    StoreFixture, StoreHarness, check_property, fail,
    fixture::{
        claimed_at_creation, destination_spec, held_claim, ordered_destination_spec, payload,
    },
    model::{ExpectedAdmission, StoreModel},
};

/// The day on which all messages are sent, as days since 1970.
const DAY: i32 = 20_833;

const REASONS: [DeadReason; 3] =
    [DeadReason::MaxRetries, DeadReason::PayloadError, DeadReason::Ambiguous];

/// A destination of the [`StoreFixture`].
#[derive(Clone, Copy, Debug)]
enum TargetDestination {
    Crm,
    Mail,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is generated independently")]
struct GeneratedEvent {
    is_from_bank: bool,
    key: Option<&'static str>,
    accepts_conflicts: bool,
    is_signed: bool,
    body: &'static str,
    to: Vec<TargetDestination>,
    is_claimed: bool,
    revive_dead: bool,
    order: Option<&'static str>,
    delay: u64,
    fields: SearchFields,
    status: Option<GeneratedStatus>,
}

/// A status about a delivery; `back` counts from the newest.
#[derive(Clone, Copy, Debug)]
struct GeneratedStatus {
    back: usize,
    outcome: GeneratedOutcome,
    sent_id: Option<&'static str>,
}

/// Searchable fields of an event, also used as a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchFields {
    pub(super) kind: Option<&'static str>,
    pub(super) phone: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum GeneratedOutcome {
    Succeeded,
    RetryIn(u64),
    Dead(DeadReason),
}

/// One step of a history. `back` counts from the newest: 0 is the last claim or delivery.
#[derive(Clone, Debug)]
enum HistoryStep {
    Admit(Vec<GeneratedEvent>),
    FindCommitted(GeneratedEvent),
    Claim(TargetDestination, usize),
    Settle { back: usize, outcome: GeneratedOutcome, is_ambiguous: bool, is_sent: bool },
    RecordCrashOutcome { back: usize, outcome: GeneratedOutcome, is_sent: bool },
    Release { back: usize, seconds: u64 },
    Abandon { back: usize },
    Replay { back: usize },
    Cancel { back: usize },
    Find(SearchFields),
    Wait { seconds: u64 },
    Delete(TargetDestination),
    Put { to: TargetDestination, is_ordered: bool },
    SetRetention { is_bank: bool, retention: RetentionSpec },
    Prune { older_than_seconds: u64 },
    RollUp,
    Reopen,
}

fn generated_event() -> impl Strategy<Value = GeneratedEvent> {
    let to = select(vec![
        vec![TargetDestination::Crm],
        vec![TargetDestination::Crm, TargetDestination::Mail],
        vec![TargetDestination::Mail],
        vec![],
    ]);
    let key = prop::option::weighted(0.8, select(vec!["a", "b", "c"]));
    let key = (key, prop::bool::weighted(0.4), prop::bool::weighted(0.2));
    let chances = (any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.8));
    let order = prop::option::of(select(vec!["x", "y"]));
    let lane = (order, select(vec![0, 0, 0, 5]));
    let fields = (search_fields(), prop::option::weighted(0.4, generated_status()));
    (key, select(vec!["one", "two", "three"]), to, chances, lane, fields).prop_map(
        |(
            (key, accepts_conflicts, is_signed),
            body,
            to,
            (is_from_bank, is_claimed, revive_dead),
            (order, delay),
            (fields, status),
        )| {
            GeneratedEvent {
                is_from_bank,
                key,
                accepts_conflicts,
                is_signed,
                body,
                to,
                is_claimed,
                revive_dead,
                order,
                delay,
                fields,
                status,
            }
        },
    )
}

fn generated_status() -> impl Strategy<Value = GeneratedStatus> {
    let sent_id = prop::option::of(select(vec!["w-1", "w-2"]));
    (0..4_usize, generated_outcome(), sent_id)
        .prop_map(|(back, outcome, sent_id)| GeneratedStatus { back, outcome, sent_id })
}

fn search_fields() -> impl Strategy<Value = SearchFields> {
    let kind = prop::option::of(select(vec!["message", "status"]));
    // The first two are the same phone number.
    let phones = vec!["5511987654321", "551187654321", "5511900000000", "12@lid"];
    (kind, prop::option::of(select(phones))).prop_map(|(kind, phone)| SearchFields { kind, phone })
}

fn generated_outcome() -> impl Strategy<Value = GeneratedOutcome> {
    prop_oneof![
        2 => Just(GeneratedOutcome::Succeeded),
        2 => select(vec![0, 5, 60]).prop_map(GeneratedOutcome::RetryIn),
        4 => select(REASONS.to_vec()).prop_map(GeneratedOutcome::Dead),
    ]
}

fn history_step() -> impl Strategy<Value = HistoryStep> {
    let to = || select(vec![TargetDestination::Crm, TargetDestination::Mail]);
    prop_oneof![
        8 => prop::collection::vec(generated_event(), 1..4).prop_map(HistoryStep::Admit),
        4 => generated_event().prop_map(HistoryStep::FindCommitted),
        7 => (to(), 1..4_usize).prop_map(|(to, limit)| HistoryStep::Claim(to, limit)),
        9 => (0..5_usize, generated_outcome(), any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(back, outcome, is_ambiguous, is_sent)| HistoryStep::Settle { back, outcome, is_ambiguous, is_sent }),
        5 => (0..3_usize, generated_outcome(), any::<bool>())
            .prop_map(|(back, outcome, is_sent)| HistoryStep::RecordCrashOutcome { back, outcome, is_sent }),
        2 => (0..4_usize, select(vec![0, 30]))
            .prop_map(|(back, seconds)| HistoryStep::Release { back, seconds }),
        3 => (0..4_usize).prop_map(|back| HistoryStep::Abandon { back }),
        4 => (0..6_usize).prop_map(|back| HistoryStep::Replay { back }),
        4 => select(vec![1, 30, 60, 600]).prop_map(|seconds| HistoryStep::Wait { seconds }),
        1 => to().prop_map(HistoryStep::Delete),
        2 => (0..6_usize).prop_map(|back| HistoryStep::Cancel { back }),
        3 => search_fields().prop_map(HistoryStep::Find),
        1 => (to(), any::<bool>()).prop_map(|(to, is_ordered)| HistoryStep::Put { to, is_ordered }),
        1 => (any::<bool>(), generated_retention()).prop_map(|(is_bank, retention)| HistoryStep::SetRetention { is_bank, retention }),
        3 => select(vec![0, 60, 600]).prop_map(|older_than_seconds| HistoryStep::Prune { older_than_seconds }),
        1 => Just(HistoryStep::RollUp),
        2 => Just(HistoryStep::Reopen),
    ]
}

fn generated_retention() -> impl Strategy<Value = RetentionSpec> {
    let span = || prop::option::of(select(vec![1, 30, 60, 600]).prop_map(HumanDuration::from_secs));
    (span(), span(), span(), span()).prop_map(|(events, bodies, attempts, dead_letters)| {
        RetentionSpec { events, bodies, attempts, dead_letters }
    })
}

/// The store and its model.
pub(super) struct HistoryRun {
    pub(super) fixture: StoreFixture,
    pub(super) model: StoreModel,
    /// Every claim so far; most of them are stale.
    claims: Vec<ClaimedDelivery>,
}

impl HistoryRun {
    fn destination_id(&self, to: TargetDestination) -> DestinationId {
        match to {
            TargetDestination::Crm => self.fixture.crm,
            TargetDestination::Mail => self.fixture.mail,
        }
    }

    fn event(&self, generated: &GeneratedEvent) -> NewEvent {
        let fixture = &self.fixture;
        let delivery = |to: &TargetDestination| {
            let claim = generated.is_claimed.then(|| fixture.new_claim());
            NewDelivery {
                claim,
                delay: Duration::from_secs(generated.delay),
                order_key: generated.order.and_then(DedupKey::new),
                ..fixture.delivery_to(self.destination_id(*to))
            }
        };
        let source = if generated.is_from_bank { fixture.bank } else { fixture.shop };
        let payload = payload(generated.body.as_bytes());
        let on_conflict = match generated.accepts_conflicts {
            true => ConflictPolicy::Accept,
            false => ConflictPolicy::Duplicate,
        };
        let claim =
            |key| DedupKeyClaim { on_conflict: Some(on_conflict), ..fixture.key_claim(key) };
        let signed = generated.is_signed.then(|| fixture.signed_bytes(source, &payload));
        NewEvent {
            source,
            key: generated.key.map(claim),
            signed_bytes: signed,
            kind: generated.fields.kind.and_then(EventKind::new),
            attributes: generated.fields.attributes(),
            payload,
            deliveries: generated.to.iter().map(delivery).collect(),
            revive_dead: generated.revive_dead,
            status_update: generated.status.and_then(|status| self.status_update(status)),
            ..fixture.new_event()
        }
    }

    fn status_update(&self, generated: GeneratedStatus) -> Option<StatusUpdate> {
        let (_, delivery) = self.model.deliveries.iter().rev().nth(generated.back)?;
        let status = match self.next_step(generated.outcome) {
            NextStep::Succeeded => ProviderStatus::Sent,
            next @ (NextStep::RetryAt(_) | NextStep::Dead(_)) => ProviderStatus::Failed(next),
        };
        Some(StatusUpdate {
            event: delivery.event,
            destination: delivery.destination,
            at: self.fixture.now,
            sent_id: generated.sent_id.map(str::to_owned),
            status,
        })
    }

    fn next_step(&self, outcome: GeneratedOutcome) -> NextStep {
        match outcome {
            GeneratedOutcome::Succeeded => NextStep::Succeeded,
            GeneratedOutcome::RetryIn(seconds) => {
                NextStep::RetryAt(self.fixture.now + Duration::from_secs(seconds))
            }
            GeneratedOutcome::Dead(reason) => NextStep::Dead(reason),
        }
    }

    fn claim(&self, back: usize) -> Option<ClaimedDelivery> {
        let last = self.claims.len().checked_sub(1)?;
        Some(self.claims[last - back.min(last)].clone())
    }

    async fn apply_step(&mut self, step: &HistoryStep) -> TestCaseResult {
        match step {
            HistoryStep::Admit(generated) => self.admit(generated).await?,
            HistoryStep::FindCommitted(generated) => self.find_committed(generated)?,
            HistoryStep::Claim(to, limit) => self.claim_due(*to, *limit).await?,
            HistoryStep::Settle { back, outcome, is_ambiguous, is_sent } => {
                self.settle(*back, *outcome, *is_ambiguous, *is_sent).await?;
            }
            HistoryStep::RecordCrashOutcome { back, outcome, is_sent } => {
                self.record_crash_outcome(*back, *outcome, *is_sent).await?;
            }
            HistoryStep::Release { back, seconds } => self.release(*back, *seconds).await,
            HistoryStep::Abandon { back } => self.abandon(*back).await,
            HistoryStep::Replay { back } => self.replay(*back).await?,
            HistoryStep::Wait { seconds } => self.fixture.wait(Duration::from_secs(*seconds)),
            HistoryStep::Delete(to) => self.delete(*to).await,
            HistoryStep::Cancel { back } => self.cancel(*back).await?,
            HistoryStep::Find(fields) => self.find(*fields).await?,
            HistoryStep::Put { to, is_ordered } => self.put(*to, *is_ordered).await,
            HistoryStep::SetRetention { is_bank, retention } => {
                let source = if *is_bank { self.fixture.bank } else { self.fixture.shop };
                self.set_retention(source, *retention).await;
            }
            HistoryStep::Prune { older_than_seconds } => {
                self.prune(Duration::from_secs(*older_than_seconds)).await?;
            }
            HistoryStep::RollUp => self.roll_up().await,
            HistoryStep::Reopen => {
                self.reopen().await;
                self.compare().await?;
            }
        }
        self.compare_counts().await
    }

    async fn roll_up(&self) {
        while self.fixture.roll_up().await.unwrap() {}
    }

    pub(super) async fn reopen(&mut self) {
        self.fixture.reopen().await;
        self.model.release_all(self.fixture.now);
        self.model.restart_status_waits(self.fixture.now);
    }

    async fn admit(&mut self, generated: &[GeneratedEvent]) -> TestCaseResult {
        let events: Vec<NewEvent> =
            generated.iter().map(|generated| self.event(generated)).collect();
        let admitted = self.fixture.admit(events.clone()).await.unwrap();
        prop_assert_eq!(admitted.len(), events.len());
        for (event, admitted) in events.iter().zip(admitted) {
            match (self.model.admit(event), admitted) {
                (
                    ExpectedAdmission::Accepted {
                        held: expected_held,
                        confirmed: expected_confirmed,
                        key_conflict: expected_conflict,
                    },
                    AdmitResult::Accepted { held, confirmed, key_conflict },
                ) => {
                    prop_assert_eq!(&held, &expected_held);
                    prop_assert_eq!(confirmed, expected_confirmed);
                    prop_assert_eq!(key_conflict, expected_conflict);
                    let claims = claimed_at_creation(event);
                    self.claims.extend(claims.filter(|claim| !held.contains(&claim.id)));
                }
                (
                    ExpectedAdmission::Duplicate { original, reason, bytes_differ, revived },
                    AdmitResult::Duplicate(duplicate),
                ) => {
                    prop_assert_eq!(
                        (duplicate.original, duplicate.reason, duplicate.bytes_differ),
                        (original, reason, bytes_differ)
                    );
                    let to = |old: &DeliveryId| self.model.deliveries[old].destination;
                    let expected: BTreeSet<DestinationId> = revived.iter().map(to).collect();
                    let revived_to: BTreeSet<DestinationId> =
                        duplicate.revived.into_iter().collect();
                    prop_assert_eq!(revived_to, expected);
                    for old in revived {
                        let replay_id =
                            self.fixture.delivery_detail(old).await.delivery.replayed_by;
                        self.model.set_replay_id(old, replay_id.unwrap());
                    }
                }
                (expected, admitted) => return fail(format!("{admitted:?}, not {expected:?}")),
            }
        }
        Ok(())
    }

    fn find_committed(&mut self, generated: &GeneratedEvent) -> TestCaseResult {
        let event = self.event(generated);
        let Some(claim) = &event.key else { return Ok(()) };
        let now = self.fixture.now;
        let original =
            self.fixture.find_committed(event.source, claim, &event.payload.fingerprint, now);
        if let Some(original) = original {
            prop_assert_eq!(Some(original), self.model.find_committed(&event));
            self.model.count_sighting(original, now);
        }
        Ok(())
    }

    async fn claim_due(&mut self, to: TargetDestination, limit: usize) -> TestCaseResult {
        let (to, now, proof) =
            (self.destination_id(to), self.fixture.now, self.fixture.new_claim());
        let claimed = self.fixture.claim_due(to, now, proof, limit).await.unwrap().claimed;
        let ids: Vec<DeliveryId> = claimed.iter().map(|claimed| claimed.id).collect();
        prop_assert_eq!(ids, self.model.claim(to, now, proof, limit));
        for claim in &claimed {
            let delivery = &self.model.deliveries[&claim.id];
            prop_assert_eq!((claim.event, claim.attempts), (delivery.event, delivery.attempts));
            prop_assert_eq!(&claim.payload, &self.model.events[&claim.event].admitted.payload);
        }
        self.claims.extend(claimed);
        Ok(())
    }

    /// The settlement of a claim with this outcome, which is clear or ambiguous.
    fn settlement(
        &self,
        claim: &ClaimedDelivery,
        outcome: GeneratedOutcome,
        is_ambiguous: bool,
        is_sent: bool,
    ) -> Settlement {
        let next = self.next_step(outcome);
        let settlement = if is_ambiguous {
            self.fixture.ambiguous_settlement(claim, next)
        } else {
            let mut settlement = self.fixture.settlement(claim, next);
            if claim.attempts % 2 == 1 {
                // This response belongs to another dead letter group.
                settlement.attempt.response = b"order 7 is closed".to_vec();
            }
            settlement
        };
        let id = (!is_ambiguous).then(|| "w-2".to_owned());
        Settlement { sent: is_sent.then_some(SentMessage { id, day: DAY }), ..settlement }
    }

    async fn settle(
        &mut self,
        back: usize,
        outcome: GeneratedOutcome,
        is_ambiguous: bool,
        is_sent: bool,
    ) -> TestCaseResult {
        let Some(claim) = self.claim(back) else { return Ok(()) };
        let settlement = self.settlement(&claim, outcome, is_ambiguous, is_sent);
        let settled = self.fixture.settle(settlement.clone()).await.unwrap();
        prop_assert_eq!(settled, self.model.settle(held_claim(&claim), &settlement));
        Ok(())
    }

    async fn record_crash_outcome(
        &mut self,
        back: usize,
        outcome: GeneratedOutcome,
        is_sent: bool,
    ) -> TestCaseResult {
        let Some(claim) = self.claim(back) else { return Ok(()) };
        let settlement = self.settlement(&claim, outcome, true, is_sent);
        let recorded = self.fixture.record_crash_outcome(settlement.clone()).await.unwrap();
        prop_assert_eq!(recorded, self.model.record_crash_outcome(held_claim(&claim), &settlement));
        Ok(())
    }

    async fn replay(&mut self, back: usize) -> TestCaseResult {
        let Some(old) = self.model.deliveries.keys().rev().nth(back).copied() else {
            return Ok(());
        };
        let (new, now) = (self.fixture.new_id(), self.fixture.now);
        let replayed = self.fixture.replay(old, new, now).await.unwrap();
        prop_assert_eq!(replayed, self.model.replay(old, new, now));
        Ok(())
    }

    async fn release(&mut self, back: usize, seconds: u64) {
        let Some(claim) = self.claim(back) else { return };
        let due_at = self.fixture.now + Duration::from_secs(seconds);
        self.fixture.release(vec![held_claim(&claim)], due_at).await.unwrap();
        self.model.release(held_claim(&claim), due_at);
    }

    async fn abandon(&mut self, back: usize) {
        let Some(claim) = self.claim(back) else { return };
        self.fixture.abandon_claim(&claim).await;
        self.model.abandon(held_claim(&claim), self.fixture.now);
    }

    async fn delete(&mut self, to: TargetDestination) {
        let (id, now) = (self.destination_id(to), self.fixture.now);
        self.fixture.change(vec![ConfigChange::DeleteDestination(id)], now).await.unwrap();
        self.model.delete_destination(id, now);
    }

    async fn put(&mut self, to: TargetDestination, is_ordered: bool) {
        let (id, now) = (self.destination_id(to), self.fixture.now);
        let name = format!("{to:?}").to_lowercase();
        let spec =
            if is_ordered { ordered_destination_spec(&name) } else { destination_spec(&name) };
        self.fixture.change(vec![ConfigChange::PutDestination(id, spec)], now).await.unwrap();
        self.model.destinations.insert(id);
        if !is_ordered {
            self.model.release_all_held(id, now);
        }
    }

    async fn cancel(&mut self, back: usize) -> TestCaseResult {
        let Some(id) = self.model.deliveries.keys().rev().nth(back).copied() else {
            return Ok(());
        };
        let now = self.fixture.now;
        let cancelled = self.fixture.cancel(id, now).await.unwrap();
        prop_assert_eq!(cancelled, self.model.cancel(id, now));
        Ok(())
    }
}

async fn run_history(fixture: StoreFixture, steps: Vec<HistoryStep>) -> TestCaseResult {
    let mut model = StoreModel::default();
    model.destinations.extend([fixture.crm, fixture.mail]);
    let mut run = HistoryRun { fixture, model, claims: Vec::new() };
    for step in &steps {
        run.apply_step(step).await?;
    }
    run.reopen().await;
    run.compare().await?;
    run.prune_bodies_and_attempts().await
}

pub fn random_history_agrees_with_the_model<H: StoreHarness + 'static>(harness: impl Fn() -> H) {
    let steps = prop::collection::vec(history_step(), 1..60);
    check_property(harness().random_cases(), steps, |steps| async {
        run_history(StoreFixture::new(harness()).await, steps).await
    });
}
