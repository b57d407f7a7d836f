//! What the cases about jobs stand on.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::NewEvent,
    ids::{DeliveryId, DestinationId, EventId, ReplayId},
    replay::{
        AdvanceReport, CreateReplayResult, NewReplay, ReplayAction, ReplayFilter,
        ReplayItemOutcome, ReplayRate, ReplayRow, ReplaySpec, ReplayState, SelectionReport,
    },
    store::NextStep,
};

use super::World;

pub(super) const TICK: Duration = Duration::from_millis(1);
pub(super) const DEAD: NextStep = NextStep::Dead(DeadReason::MaxRetries);
pub(super) const MANY: usize = 1000;
/// Open deliveries of a job for each destination, where that does not matter.
pub(super) const ROOMY: u64 = 10_000;

pub(super) fn retry(filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec {
        verb: ReplayAction::RetryFailed,
        filter,
        to: None,
        rate: ReplayRate::default(),
        note: None,
    }
}

pub(super) fn resend(filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { verb: ReplayAction::ForceResend, ..retry(filter) }
}

pub(super) fn missing(to: DestinationId, filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { verb: ReplayAction::SendMissing, to: Some(to), ..retry(filter) }
}

pub(super) fn all() -> ReplayFilter {
    ReplayFilter::default()
}

/// Makes a job that must be made.
pub(super) async fn create(world: &World, spec: ReplaySpec) -> ReplayId {
    let id = world.id();
    let job = NewReplay { id, spec, created_at: world.now };
    assert_eq!(world.create_replay(job).await.unwrap(), CreateReplayResult::Created);
    id
}

/// Selects to the end; says in how many slices.
pub(super) async fn select(world: &World, job: ReplayId) -> usize {
    for slices in 1.. {
        match world.select_replay(job).await.unwrap() {
            SelectionReport::Now(ReplayState::Selecting) => {}
            SelectionReport::Now(ReplayState::Running) => return slices,
            other @ (SelectionReport::Now(_) | SelectionReport::NotFound) => {
                panic!("{other:?} while selecting")
            }
        }
    }
    0
}

/// A job that has selected all it takes.
pub(super) async fn selected(world: &World, spec: ReplaySpec) -> ReplayId {
    let job = create(world, spec).await;
    select(world, job).await;
    job
}

pub(super) async fn advance(world: &World, job: ReplayId, limit: usize) -> AdvanceReport {
    world.advance_replay(job, limit, ROOMY, world.now).await.unwrap().unwrap()
}

/// The job as it is kept, whose numbers must add up.
pub(super) async fn report(world: &World, job: ReplayId) -> ReplayRow {
    let row = world.find_replay(job).await.unwrap().unwrap();
    for part in row.by_destination.values().chain([&row.progress()]) {
        let ended: u64 =
            [ReplayItemOutcome::Succeeded, ReplayItemOutcome::Dead, ReplayItemOutcome::Cancelled]
                .map(|outcome| part.count(outcome))
                .iter()
                .sum();
        let sum = ended + part.skipped() + part.waiting(row.state) + part.left(row.state);
        assert_eq!(sum, part.selected, "{row:?}");
    }
    row
}

pub(super) async fn count(world: &World, job: ReplayId, outcome: ReplayItemOutcome) -> u64 {
    report(world, job).await.progress().count(outcome)
}

/// An event whose only delivery ended so, with its delivery.
pub(super) async fn ended(world: &World, event: NewEvent, next: NextStep) -> (EventId, DeliveryId) {
    let (destination, delivery) = (event.deliveries[0].destination, event.deliveries[0].id);
    let event = world.accept(event).await;
    world.finish_due(destination, next).await;
    (event, delivery)
}

/// So many dead letters of the CRM.
pub(super) async fn dead_letters(world: &World, many: usize) -> Vec<EventId> {
    let events: Vec<NewEvent> = (0..many).map(|_| world.arrival()).collect();
    let ids = events.iter().map(|event| event.id).collect();
    world.admit(events).await.unwrap();
    while world.count(DeliveryStatus::Dead) < u64::try_from(many).unwrap() {
        world.finish_due(world.crm, DEAD).await;
    }
    ids
}
