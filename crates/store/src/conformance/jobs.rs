//! Delivering again in bulk: what a job selects, hands out, counts, and survives.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::{Class, DeadReason, state::Status},
    event::NewEvent,
    ids::{DeliveryId, DestinationId, EventId, ReplayId},
    replay::{
        Advanced, ChangedReplay, Code, CreatedReplay, NewReplay, Outcome, Pace, ReplayFilter,
        ReplayInput, ReplayRow, ReplaySpec, ReplayState, Selected, Skip, Verb,
    },
    store::{Change, Next, Page, Replayed},
};
use tokio::task::JoinSet;

use super::World;

const TICK: Duration = Duration::from_millis(1);
const DEAD: Next = Next::Dead(DeadReason::MaxRetries);
const MANY: usize = 1000;
/// Open deliveries of a job for each destination, where that does not matter.
const ROOMY: u64 = 10_000;

fn retry(filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { verb: Verb::RetryFailed, filter, to: None, rate: Pace::default(), note: None }
}

fn resend(filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { verb: Verb::ForceResend, ..retry(filter) }
}

fn missing(to: DestinationId, filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { verb: Verb::SendMissing, to: Some(to), ..retry(filter) }
}

fn all() -> ReplayFilter {
    ReplayFilter::default()
}

/// Makes a job that must be made.
async fn create(world: &World, spec: ReplaySpec) -> ReplayId {
    let id = world.id();
    let job = NewReplay { id, spec, created_at: world.now };
    assert_eq!(world.create_replay(job).await.unwrap(), CreatedReplay::Created);
    id
}

/// Selects to the end; says in how many slices.
async fn select(world: &World, job: ReplayId) -> usize {
    for slices in 1.. {
        match world.select_replay(job).await.unwrap() {
            Selected::Now(ReplayState::Selecting) => {}
            Selected::Now(ReplayState::Running) => return slices,
            other => panic!("{other:?} while selecting"),
        }
    }
    0
}

/// A job that has selected all it takes.
async fn selected(world: &World, spec: ReplaySpec) -> ReplayId {
    let job = create(world, spec).await;
    select(world, job).await;
    job
}

async fn advance(world: &World, job: ReplayId, limit: usize) -> Advanced {
    world.advance_replay(job, limit, ROOMY, world.now).await.unwrap().unwrap()
}

/// The job as it is kept, whose numbers must add up.
async fn report(world: &World, job: ReplayId) -> ReplayRow {
    let row = world.find_replay(job).await.unwrap().unwrap();
    for part in row.by_destination.values().chain([&row.progress()]) {
        let ended: u64 = [Outcome::Succeeded, Outcome::Dead, Outcome::Cancelled]
            .map(|outcome| part.count(outcome))
            .iter()
            .sum();
        let sum = ended + part.skipped() + part.waiting(row.state) + part.left(row.state);
        assert_eq!(sum, part.selected, "{row:?}");
    }
    row
}

async fn count(world: &World, job: ReplayId, outcome: Outcome) -> u64 {
    report(world, job).await.progress().count(outcome)
}

/// An event whose only delivery ended so, with its delivery.
async fn ended(world: &World, event: NewEvent, next: Next) -> (EventId, DeliveryId) {
    let (destination, delivery) = (event.deliveries[0].destination, event.deliveries[0].id);
    let event = world.accept(event).await;
    world.finish_due(destination, next).await;
    (event, delivery)
}

/// So many dead letters of the CRM.
async fn dead_letters(world: &World, many: usize) -> Vec<EventId> {
    let events: Vec<NewEvent> = (0..many).map(|_| world.arrival()).collect();
    let ids = events.iter().map(|event| event.id).collect();
    world.admit(events).await.unwrap();
    while world.count(Status::Dead) < u64::try_from(many).unwrap() {
        world.finish_due(world.crm, DEAD).await;
    }
    ids
}

/// The events that a job selects, found by what it delivers.
async fn taken(world: &World, spec: ReplaySpec) -> Vec<EventId> {
    let preview = world.preview_replay(spec.clone(), world.now).await.unwrap();
    let job = selected(world, spec).await;
    advance(world, job, MANY).await;
    let mut events = Vec::new();
    for destination in [world.crm, world.mail] {
        for claimed in world.claim(destination, MANY).await {
            world.finish(&claimed, Next::Succeeded).await;
            events.push(claimed.event);
        }
    }
    let done = advance(world, job, 0).await;
    assert_eq!(done.state, ReplayState::Done, "{done:?}");
    let row = report(world, job).await;
    assert_eq!(preview.count, row.progress().selected, "a preview says what is selected");
    let parts: BTreeMap<_, _> =
        row.by_destination.iter().map(|(to, part)| (*to, part.selected)).collect();
    assert!(preview.complete);
    assert_eq!(preview.by_destination, parts);
    events.sort_unstable();
    events
}

pub async fn a_job_delivers_again_what_is_dead(mut world: World) {
    let (event, old) = ended(&world, world.keyed("k"), DEAD).await;
    let (other, _) = ended(&world, world.arrival(), Next::Succeeded).await;
    world.wait(TICK);

    let job = selected(&world, retry(all())).await;
    let step = advance(&world, job, MANY).await;

    assert_eq!(step.dispatched, BTreeMap::from([(world.crm, 1)]));
    assert_eq!((step.state, step.open, step.queued), (ReplayState::Running, 1, 0));
    let deliveries = world.detail(event).await.deliveries;
    let [was, heir] = &deliveries[..] else { panic!("two deliveries: {deliveries:?}") };
    assert_eq!((was.id, was.status, was.replayed_by), (old, Status::Replayed, Some(heir.id)));
    assert_eq!((heir.status, heir.replay_of), (Status::Pending, Some(old)));
    assert_eq!(heir.due_at, Some(world.now));
    assert_eq!(world.statuses(other).await, [Status::Succeeded]);

    world.finish_due(world.crm, Next::Succeeded).await;
    world.wait(TICK);
    let done = advance(&world, job, MANY).await;
    assert_eq!((done.state, done.open), (ReplayState::Done, 0));
    assert_eq!(done.outcomes, BTreeMap::from([(Outcome::Succeeded, 1)]));
    let row = report(&world, job).await;
    assert_eq!((row.state, row.ended_at), (ReplayState::Done, Some(world.now)));
    assert_eq!(row.progress().dispatched(), 1);
    // A job that is done is left alone.
    assert_eq!(advance(&world, job, MANY).await.dispatched, BTreeMap::new());
}

pub async fn a_job_takes_what_its_filter_says(mut world: World) {
    let fail = |reason, status, class, detail: Option<&str>| {
        let detail = detail.map(str::to_owned);
        (Next::Dead(reason), status, class, detail)
    };
    let kinds = [
        fail(DeadReason::MaxRetries, 503, Class::Transient, Some("Connection REFUSED by peer")),
        fail(DeadReason::InvalidEndpoint, 404, Class::Config, None),
        fail(DeadReason::PayloadError, 422, Class::Permanent, None),
    ];
    let mut events = Vec::new();
    for (number, (next, status, class, detail)) in kinds.into_iter().enumerate() {
        let event = if number == 2 {
            let to = vec![world.to(world.mail)];
            NewEvent { source: world.bank, deliveries: to, ..world.keyed("Order-2") }
        } else {
            world.keyed(&format!("order-{number}"))
        };
        let (to, id) = (event.deliveries[0].destination, event.id);
        world.accept(event).await;
        let claimed = world.claim_one(to).await;
        let mut settlement = world.settlement(&claimed, next);
        settlement.attempt.status = Some(status);
        settlement.attempt.class = Some(class);
        settlement.attempt.detail = detail;
        world.settle(settlement).await.unwrap();
        events.push((id, world.now));
        world.wait(Duration::from_secs(1));
    }
    let [(first, _), (second, second_at), (third, third_at)] = events[..] else {
        panic!("three events")
    };
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (ReplayFilter { source: Some(world.bank), ..all() }, vec![third]),
        (ReplayFilter { destination: Some(world.crm), ..all() }, vec![first, second]),
        (ReplayFilter { status: Some(Status::Dead), ..all() }, vec![first, second, third]),
        (ReplayFilter { reason: Some(DeadReason::PayloadError), ..all() }, vec![third]),
        (ReplayFilter { class: Some(Class::Config), ..all() }, vec![second]),
        (ReplayFilter { code: Some(Code::Exact(503)), ..all() }, vec![first]),
        (ReplayFilter { code: Some(Code::Hundred(4)), ..all() }, vec![second, third]),
        (ReplayFilter { since: Some(second_at), ..all() }, vec![second, third]),
        (ReplayFilter { until: Some(second_at), ..all() }, vec![first]),
        (ReplayFilter { since: Some(second_at), until: Some(third_at), ..all() }, vec![second]),
        (ReplayFilter { key: text("order-1"), ..all() }, vec![second]),
        (ReplayFilter { search: text("ORDER"), ..all() }, vec![first, second, third]),
        (ReplayFilter { search: text("refused"), ..all() }, vec![first]),
        (ReplayFilter { search: text("%"), ..all() }, vec![]),
        (ReplayFilter { source: Some(world.shop), class: Some(Class::Permanent), ..all() }, vec![]),
    ];
    for (filter, expected) in cases {
        for spec in [retry(filter.clone()), resend(filter.clone())] {
            let preview = world.preview_replay(spec, world.now).await.unwrap();
            assert_eq!(preview.count, u64::try_from(expected.len()).unwrap(), "{filter:?}");
        }
        // The dead stay dead for the next case: a job that is cancelled hands out nothing.
        let job = selected(&world, retry(filter.clone())).await;
        assert_eq!(
            report(&world, job).await.progress().selected,
            u64::try_from(expected.len()).unwrap()
        );
        world.change_replay(job, ReplayInput::Cancel, world.now).await.unwrap();
    }
    assert_eq!(taken(&world, retry(all())).await, [first, second, third]);
}

pub async fn a_forced_job_takes_what_succeeded_too(mut world: World) {
    let (dead, _) = ended(&world, world.arrival(), DEAD).await;
    let (well, _) = ended(&world, world.arrival(), Next::Succeeded).await;
    world.accept(world.arrival()).await;
    let waiting = world.claim_one(world.crm).await;
    world.finish(&waiting, Next::RetryAt(world.now + Duration::from_secs(60))).await;
    world.wait(TICK);
    let status = |status| ReplayFilter { status: Some(status), ..all() };
    let to = |destination| ReplayFilter { destination: Some(destination), ..all() };

    assert_eq!(taken(&world, resend(status(Status::Succeeded))).await, [well]);
    assert_eq!(taken(&world, resend(status(Status::Dead))).await, [dead]);
    world.wait(TICK);
    assert_eq!(taken(&world, resend(all())).await, [dead, well]);
    world.wait(TICK);
    assert_eq!(taken(&world, resend(to(world.crm))).await, [dead, well]);
    assert_eq!(taken(&world, resend(to(world.mail))).await, []);
    assert_eq!(world.detail(dead).await.deliveries.len(), 4);
}

pub async fn missing_events_are_sent_to_a_destination_that_never_got_them(mut world: World) {
    let (one, _) = ended(&world, world.keyed("k-1"), Next::Succeeded).await;
    let nowhere = world.accept(NewEvent { deliveries: Vec::new(), ..world.keyed("k-2") }).await;
    let both = world.accept(world.keyed_for_both("k-3")).await;
    let bank = NewEvent { source: world.bank, ..world.keyed("b-1") };
    let (elsewhere, _) = ended(&world, bank, Next::Succeeded).await;
    world.finish_due(world.mail, Next::Succeeded).await;
    world.wait(TICK);
    let from = |source| ReplayFilter { source: Some(source), ..all() };
    let search = |text: &str| ReplayFilter { search: Some(text.to_owned()), ..all() };

    for (filter, count) in
        [(all(), 3), (from(world.bank), 1), (from(world.shop), 2), (search("K-"), 2)]
    {
        let preview = world.preview_replay(missing(world.mail, filter), world.now).await.unwrap();
        assert_eq!(preview.count, count);
    }
    assert_eq!(taken(&world, missing(world.mail, from(world.shop))).await, [one, nowhere]);
    assert_eq!(taken(&world, missing(world.mail, all())).await, [elsewhere]);

    assert_eq!(taken(&world, missing(world.mail, all())).await, [], "all have it now");
    assert_eq!(world.detail(both).await.deliveries.len(), 2);
    let sent = world.only_delivery(nowhere).await;
    assert_eq!((sent.destination, sent.replay_of), (world.mail, None));
}

pub async fn what_happens_after_the_creation_is_not_taken(mut world: World) {
    let (early, _) = ended(&world, world.arrival(), DEAD).await;
    let dying = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.wait(TICK);

    let dead = create(&world, retry(all())).await;
    let absent = create(&world, missing(world.mail, all())).await;
    world.wait(TICK);
    // It was on its way when the jobs were made, and dies before they come to it.
    world.finish(&claimed, DEAD).await;
    let late = world.accept(NewEvent { deliveries: Vec::new(), ..world.arrival() }).await;
    world.wait(TICK);
    select(&world, dead).await;
    select(&world, absent).await;
    advance(&world, dead, MANY).await;
    advance(&world, absent, MANY).await;

    assert_eq!(world.statuses(dying).await, [Status::Dead, Status::Pending]);
    let again: Vec<_> = world.claim(world.crm, MANY).await;
    assert_eq!(again.iter().map(|claimed| claimed.event).collect::<Vec<_>>(), [early]);
    assert!(world.detail(late).await.deliveries.is_empty());
    assert_eq!(report(&world, dead).await.progress().selected, 1);
    assert_eq!(report(&world, absent).await.progress().selected, 2);
}

pub async fn a_job_goes_on_after_a_restart(mut world: World) {
    const EVENTS: usize = 450;
    let events = dead_letters(&world, EVENTS).await;
    world.wait(TICK);
    let job = create(&world, retry(all())).await;

    let mut slices = 0;
    while world.select_replay(job).await.unwrap() == Selected::Now(ReplayState::Selecting) {
        world.reopen().await;
        slices += 1;
    }
    assert!(slices > 1, "a slice is bounded, however much there is");
    let mut handed = 0;
    loop {
        world.reopen().await;
        let step = advance(&world, job, 100).await;
        if step.dispatched.is_empty() {
            break;
        }
        handed += step.dispatched[&world.crm];
        assert_eq!(world.unfinished_replays().await.unwrap(), [job]);
        world.finish_due(world.crm, Next::Succeeded).await;
    }

    assert_eq!(handed, EVENTS);
    for event in events {
        assert_eq!(world.statuses(event).await, [Status::Replayed, Status::Succeeded]);
    }
    while advance(&world, job, 0).await.state == ReplayState::Running {}
    assert_eq!(count(&world, job, Outcome::Succeeded).await, u64::try_from(EVENTS).unwrap());
    assert_eq!(report(&world, job).await.state, ReplayState::Done);
    assert!(world.unfinished_replays().await.unwrap().is_empty());
}

pub async fn concurrent_looks_and_steps_take_each_once(mut world: World) {
    const EVENTS: usize = 250;
    let events = dead_letters(&world, EVENTS).await;
    world.wait(TICK);
    let job = create(&world, retry(all())).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (store, now) = (world.store(), world.now);
        tasks.spawn(async move {
            while store.select_replay(job).await.unwrap() == Selected::Now(ReplayState::Selecting) {
            }
            let mut handed = 0;
            loop {
                let step = store.advance_replay(job, 20, ROOMY, now).await.unwrap().unwrap();
                handed += step.dispatched.values().sum::<usize>();
                if step.queued == 0 {
                    return handed;
                }
            }
        });
    }

    let handed: usize = tasks.join_all().await.into_iter().sum();

    assert_eq!(handed, EVENTS);
    for event in events {
        assert_eq!(world.statuses(event).await, [Status::Replayed, Status::Pending]);
    }
    assert_eq!(report(&world, job).await.progress().dispatched(), 250);
}

pub async fn what_cannot_be_delivered_any_more_is_skipped_with_its_reason(mut world: World) {
    let (_, by_hand) = ended(&world, world.arrival(), DEAD).await;
    world.wait(TICK);
    let to_mail = NewEvent { deliveries: vec![world.to(world.mail)], ..world.arrival() };
    ended(&world, to_mail, DEAD).await;
    let (kept, _) = ended(&world, world.arrival(), DEAD).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;

    let replayed = world.replay(by_hand, world.id(), world.now).await.unwrap();
    assert!(matches!(replayed, Replayed::Created { .. }));
    world.change(vec![Change::DeleteDestination(world.mail)], world.now).await.unwrap();
    let step = advance(&world, job, MANY).await;

    let expected = [Skip::Superseded, Skip::DestinationGone];
    assert_eq!(step.outcomes, expected.map(|skip| (Outcome::Skipped(skip), 1)).into());
    assert_eq!(step.dispatched, BTreeMap::from([(world.crm, 1)]));
    assert_eq!(world.statuses(kept).await, [Status::Replayed, Status::Pending]);
    world.finish_due(world.crm, Next::Succeeded).await;
    advance(&world, job, 0).await;
    let row = report(&world, job).await;
    assert_eq!((row.state, row.progress().skipped()), (ReplayState::Done, 2));
    assert_eq!(row.progress().dispatched(), 1);
}

pub async fn what_retention_removed_before_its_turn_is_skipped(mut world: World) {
    ended(&world, world.arrival(), DEAD).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    world.prune(world.now, world.now).await.unwrap();

    let step = advance(&world, job, MANY).await;

    assert_eq!(step.outcomes, BTreeMap::from([(Outcome::Skipped(Skip::EventGone), 1)]));
    assert_eq!(report(&world, job).await.state, ReplayState::Done);
}

pub async fn a_job_that_selects_nothing_is_done(world: World) {
    let job = selected(&world, retry(all())).await;

    assert_eq!(advance(&world, job, MANY).await.state, ReplayState::Done);
    assert_eq!(report(&world, job).await.progress().selected, 0);
}

pub async fn a_destination_that_is_full_holds_up_only_itself(mut world: World) {
    for n in 0..6 {
        ended(&world, world.arrival(), DEAD).await;
        let to_mail = NewEvent { deliveries: vec![world.to(world.mail)], ..world.arrival() };
        if n < 3 {
            ended(&world, to_mail, DEAD).await;
        }
    }
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    let step = |limit| world.advance_replay(job, limit, 2, world.now);
    let (crm, mail) = (world.crm, world.mail);

    let first = step(3).await.unwrap().unwrap();
    assert_eq!(first.dispatched.values().sum::<usize>(), 3);
    let second = step(MANY).await.unwrap().unwrap();
    assert_eq!(second.dispatched.values().sum::<usize>(), 1, "two for each, and no more");
    assert_eq!((second.open, second.queued), (4, 5));
    assert_eq!(step(MANY).await.unwrap().unwrap().dispatched, BTreeMap::new());

    world.finish_due(mail, DEAD).await;
    let third = step(MANY).await.unwrap().unwrap();
    assert_eq!(third.dispatched, BTreeMap::from([(mail, 1)]), "the other one still waits");
    assert_eq!(third.outcomes, BTreeMap::from([(Outcome::Dead, 2)]));
    world.finish_due(crm, Next::Succeeded).await;
    assert_eq!(step(MANY).await.unwrap().unwrap().dispatched, BTreeMap::from([(crm, 2)]));
    report(&world, job).await;
}

pub async fn a_job_that_is_paused_hands_out_nothing(mut world: World) {
    let events = dead_letters(&world, 3).await;
    world.wait(TICK);
    let job = create(&world, retry(all())).await;
    let change = |input| world.change_replay(job, input, world.now);

    // Before it has selected anything.
    let paused = ChangedReplay::Changed(ReplayState::Paused);
    assert_eq!(change(ReplayInput::Pause).await.unwrap(), paused);
    assert_eq!(world.select_replay(job).await.unwrap(), Selected::Now(ReplayState::Paused));
    assert_eq!(report(&world, job).await.progress().selected, 0);
    change(ReplayInput::Resume).await.unwrap();
    select(&world, job).await;
    assert_eq!(report(&world, job).await.progress().selected, 3);

    // And while it runs: what was handed out goes on and is counted.
    advance(&world, job, 1).await;
    assert_eq!(change(ReplayInput::Pause).await.unwrap(), paused);
    world.finish_due(world.crm, Next::Succeeded).await;
    let step = advance(&world, job, MANY).await;
    assert_eq!((step.dispatched.len(), step.state), (0, ReplayState::Paused));
    assert_eq!(step.outcomes, BTreeMap::from([(Outcome::Succeeded, 1)]));
    assert_eq!(world.count(Status::Dead), 2);
    assert_eq!(world.unfinished_replays().await.unwrap(), [job]);

    change(ReplayInput::Resume).await.unwrap();
    select(&world, job).await;
    advance(&world, job, MANY).await;
    world.finish_due(world.crm, Next::Succeeded).await;
    advance(&world, job, 0).await;
    assert_eq!(count(&world, job, Outcome::Succeeded).await, 3);
    for event in events {
        assert_eq!(world.statuses(event).await, [Status::Replayed, Status::Succeeded]);
    }
}

pub async fn a_cancelled_job_leaves_the_rest_and_counts_what_goes_on(mut world: World) {
    dead_letters(&world, 5).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, 2).await;

    world.change_replay(job, ReplayInput::Cancel, world.now).await.unwrap();

    let row = report(&world, job).await;
    assert_eq!((row.state, row.ended_at), (ReplayState::Cancelled, Some(world.now)));
    let progress = row.progress();
    assert_eq!((progress.left(row.state), progress.waiting(row.state)), (3, 2));
    assert_eq!(world.unfinished_replays().await.unwrap(), [job], "two are on their way");
    assert_eq!(advance(&world, job, MANY).await.dispatched, BTreeMap::new());
    world.finish_due(world.crm, DEAD).await;
    let step = advance(&world, job, MANY).await;
    assert_eq!((step.open, step.state), (0, ReplayState::Cancelled));
    assert_eq!(count(&world, job, Outcome::Dead).await, 2);
    assert!(world.unfinished_replays().await.unwrap().is_empty());
    assert_eq!(world.count(Status::Dead), 5, "three were never touched, two died again");
}

pub async fn a_job_moves_only_as_the_law_says(world: World) {
    let inputs = [ReplayInput::Pause, ReplayInput::Resume, ReplayInput::Cancel];
    for path in [
        vec![],
        vec![ReplayInput::Pause],
        vec![ReplayInput::Pause, ReplayInput::Resume],
        vec![ReplayInput::Cancel],
    ] {
        for input in inputs {
            let job = create(&world, retry(all())).await;
            for step in &path {
                world.change_replay(job, *step, world.now).await.unwrap();
            }
            let state = report(&world, job).await.state;

            let changed = world.change_replay(job, input, world.now).await.unwrap();

            let expected =
                state.apply(input).map_or(ChangedReplay::Refused(state), ChangedReplay::Changed);
            assert_eq!(changed, expected, "{state:?} and {input:?}");
            let after = state.apply(input).unwrap_or(state);
            assert_eq!(report(&world, job).await.state, after);
            world.change_replay(job, ReplayInput::Cancel, world.now).await.unwrap();
        }
    }
    let unknown = world.change_replay(world.id(), ReplayInput::Pause, world.now).await.unwrap();
    assert_eq!(unknown, ChangedReplay::NotFound);
    assert_eq!(world.select_replay(world.id()).await.unwrap(), Selected::NotFound);
    assert_eq!(world.advance_replay(world.id(), 1, 1, world.now).await.unwrap(), None);
    assert!(world.find_replay(world.id()).await.unwrap().is_none());
}

pub async fn jobs_that_could_overlap_are_refused(world: World) {
    let to = |destination| ReplayFilter { destination: Some(destination), ..all() };
    let first = create(&world, retry(to(world.crm))).await;
    let ask = |spec| NewReplay { id: world.id(), spec, created_at: world.now };

    let refused = world.create_replay(ask(resend(all()))).await.unwrap();
    assert_eq!(refused, CreatedReplay::Overlaps(first));
    world.change_replay(first, ReplayInput::Pause, world.now).await.unwrap();
    let refused = world.create_replay(ask(retry(to(world.crm)))).await.unwrap();
    assert_eq!(refused, CreatedReplay::Overlaps(first), "one that is paused is not over");
    create(&world, retry(to(world.mail))).await;
    create(&world, missing(world.crm, all())).await;

    world.change_replay(first, ReplayInput::Cancel, world.now).await.unwrap();
    create(&world, retry(to(world.crm))).await;
}

pub async fn of_concurrent_jobs_that_overlap_one_is_made(world: World) {
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let job = NewReplay { id: world.id(), spec: retry(all()), created_at: world.now };
        let store = world.store();
        tasks.spawn(async move { store.create_replay(job).await.unwrap() });
    }

    let told = tasks.join_all().await;

    let made = told.iter().filter(|told| **told == CreatedReplay::Created).count();
    assert_eq!(made, 1, "{told:?}");
    let page = Page { after: None, limit: 9 };
    assert_eq!(world.list_replays(page).await.unwrap().len(), 1);
}

pub async fn a_delivery_that_is_replayed_later_counts_as_what_it_was(mut world: World) {
    for (next, outcome) in [(DEAD, Outcome::Dead), (Next::Succeeded, Outcome::Succeeded)] {
        ended(&world, world.arrival(), DEAD).await;
        world.wait(TICK);
        let job = selected(&world, retry(all())).await;
        advance(&world, job, MANY).await;
        let claimed = world.claim_one(world.crm).await;
        world.finish(&claimed, next).await;
        world.wait(surehook_core::store::REPLAY_INTERVAL);
        let replayed = world.replay(claimed.id, world.id(), world.now).await.unwrap();
        assert!(matches!(replayed, Replayed::Created { .. }));

        advance(&world, job, 0).await;

        assert_eq!(count(&world, job, outcome).await, 1);
        world.finish_due(world.crm, Next::Succeeded).await;
        world.wait(TICK);
    }
}

pub async fn a_destination_that_is_deleted_cancels_its_part_of_a_job(mut world: World) {
    dead_letters(&world, 3).await;
    world.wait(TICK);
    let job = selected(&world, retry(all())).await;
    advance(&world, job, 1).await;

    world.change(vec![Change::DeleteDestination(world.crm)], world.now).await.unwrap();
    advance(&world, job, MANY).await;

    let row = report(&world, job).await;
    assert_eq!(row.state, ReplayState::Done);
    assert_eq!(row.progress().count(Outcome::Cancelled), 1);
    assert_eq!(row.progress().count(Outcome::Skipped(Skip::DestinationGone)), 2);
}

pub async fn a_preview_spans_the_time_of_its_events_and_changes_nothing(mut world: World) {
    let begin = world.now;
    ended(&world, world.arrival(), DEAD).await;
    world.wait(Duration::from_secs(5));
    ended(&world, world.arrival(), DEAD).await;
    let end = world.now;
    world.wait(TICK);

    let preview = world.preview_replay(retry(all()), world.now).await.unwrap();

    assert_eq!((preview.count, preview.complete), (2, true));
    assert_eq!((preview.oldest, preview.newest), (Some(begin), Some(end)));
    assert_eq!(preview.by_destination, BTreeMap::from([(world.crm, 2)]));
    assert_eq!(world.count(Status::Dead), 2);
    let page = Page { after: None, limit: 9 };
    assert!(world.list_replays(page).await.unwrap().is_empty());
}

pub async fn jobs_come_newest_first_in_whole_pages(mut world: World) {
    let mut made = Vec::new();
    for _ in 0..3 {
        let job = create(&world, retry(all())).await;
        world.change_replay(job, ReplayInput::Cancel, world.now).await.unwrap();
        made.push(job);
        world.wait(TICK);
    }
    let ids = |rows: Vec<ReplayRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();

    let first = world.list_replays(Page { after: None, limit: 2 }).await.unwrap();
    let rest = world.list_replays(Page { after: Some(made[1]), limit: 2 }).await.unwrap();

    assert_eq!((ids(first), ids(rest)), (vec![made[2], made[1]], vec![made[0]]));
}

pub async fn old_jobs_are_removed_when_they_have_ended(mut world: World) {
    let events = dead_letters(&world, 2).await;
    world.wait(TICK);
    let over = selected(&world, retry(all())).await;
    advance(&world, over, MANY).await;
    world.change_replay(over, ReplayInput::Cancel, world.now).await.unwrap();
    world.wait(TICK);

    assert!(!world.prune_replays(world.now).await.unwrap(), "two are on their way");
    world.finish_due(world.crm, Next::Succeeded).await;
    advance(&world, over, 0).await;
    let running = create(&world, resend(all())).await;
    assert!(!world.prune_replays(report(&world, over).await.created_at).await.unwrap());
    while world.prune_replays(world.now).await.unwrap() {}

    assert!(world.find_replay(over).await.unwrap().is_none());
    assert_eq!(report(&world, running).await.state, ReplayState::Selecting);
    assert_eq!(world.statuses(events[0]).await, [Status::Replayed, Status::Succeeded]);
}
