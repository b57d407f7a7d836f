//! Delivering again in bulk: which jobs are made, and what they select.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    attribute::EventKind,
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    event::NewEvent,
    ids::EventId,
    replay::{
        ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth, ReplayFilter, ReplayRow,
        ReplaySpec, ReplayState, ReplayTransition, SelectionReport, StatusPattern,
    },
    store::{NextStep, PageRequest},
};
use tokio::task::JoinSet;

use super::{
    World,
    job_kit::{
        DEAD, MANY, TICK, advance, all, create, dead_letters, ended, missing, report, resend,
        retry, select, selected,
    },
};

/// The events that a job selects, found by what it delivers.
async fn taken(world: &World, spec: ReplaySpec) -> Vec<EventId> {
    let preview = world.preview_replay(spec.clone(), world.now, PreviewDepth::Whole).await.unwrap();
    // A few are seen at first sight.
    let quick = world.preview_replay(spec.clone(), world.now, PreviewDepth::Quick).await.unwrap();
    assert_eq!(quick, preview);
    let job = selected(world, spec).await;
    advance(world, job, MANY).await;
    let mut events = Vec::new();
    for destination in [world.crm, world.mail] {
        for claimed in world.claim(destination, MANY).await {
            world.finish(&claimed, NextStep::Succeeded).await;
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

pub async fn replay_job_selects_deliveries_that_match_its_filter(mut world: World) {
    let fail = |reason, status, class, detail: Option<&str>| {
        let detail = detail.map(str::to_owned);
        (NextStep::Dead(reason), status, class, detail)
    };
    let kinds = [
        fail(
            DeadReason::MaxRetries,
            503,
            FailureClass::Transient,
            Some("Connection REFUSED by peer"),
        ),
        fail(DeadReason::InvalidEndpoint, 404, FailureClass::Config, None),
        fail(DeadReason::PayloadError, 422, FailureClass::Permanent, None),
    ];
    let mut events = Vec::new();
    for (number, (next, status, class, detail)) in kinds.into_iter().enumerate() {
        let event = if number == 2 {
            let to = vec![world.to(world.mail)];
            let kind = EventKind::new("refund");
            NewEvent { source: world.bank, deliveries: to, kind, ..world.keyed("Order-2") }
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
        (ReplayFilter { kind: EventKind::new("refund"), ..all() }, vec![third]),
        (ReplayFilter { destination: Some(world.crm), ..all() }, vec![first, second]),
        (ReplayFilter { status: Some(DeliveryStatus::Dead), ..all() }, vec![first, second, third]),
        (ReplayFilter { reason: Some(DeadReason::PayloadError), ..all() }, vec![third]),
        (ReplayFilter { class: Some(FailureClass::Config), ..all() }, vec![second]),
        (ReplayFilter { code: Some(StatusPattern::Exact(503)), ..all() }, vec![first]),
        (ReplayFilter { code: Some(StatusPattern::Class(4)), ..all() }, vec![second, third]),
        (ReplayFilter { since: Some(second_at), ..all() }, vec![second, third]),
        (ReplayFilter { until: Some(second_at), ..all() }, vec![first]),
        (ReplayFilter { since: Some(second_at), until: Some(third_at), ..all() }, vec![second]),
        (ReplayFilter { key: text("order-1"), ..all() }, vec![second]),
        (ReplayFilter { search: text("ORDER"), ..all() }, vec![first, second, third]),
        (ReplayFilter { search: text("refused"), ..all() }, vec![first]),
        (ReplayFilter { search: text("%"), ..all() }, vec![]),
        (
            ReplayFilter {
                source: Some(world.shop),
                class: Some(FailureClass::Permanent),
                ..all()
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        for spec in [retry(filter.clone()), resend(filter.clone())] {
            let preview = world.preview_replay(spec, world.now, PreviewDepth::Whole).await.unwrap();
            assert_eq!(preview.count, u64::try_from(expected.len()).unwrap(), "{filter:?}");
        }
        // The dead stay dead for the next case: a job that is cancelled hands out nothing.
        let job = selected(&world, retry(filter.clone())).await;
        assert_eq!(
            report(&world, job).await.progress().selected,
            u64::try_from(expected.len()).unwrap()
        );
        world.change_replay(job, ReplayTransition::Cancel, world.now).await.unwrap();
    }
    assert_eq!(taken(&world, retry(all())).await, [first, second, third]);
}

pub async fn force_resend_job_selects_succeeded_deliveries_too(mut world: World) {
    let (dead, _) = ended(&world, world.arrival(), DEAD).await;
    let (well, _) = ended(&world, world.arrival(), NextStep::Succeeded).await;
    world.accept(world.arrival()).await;
    let waiting = world.claim_one(world.crm).await;
    world.finish(&waiting, NextStep::RetryAt(world.now + Duration::from_secs(60))).await;
    world.wait(TICK);
    let status = |status| ReplayFilter { status: Some(status), ..all() };
    let to = |destination| ReplayFilter { destination: Some(destination), ..all() };

    assert_eq!(taken(&world, resend(status(DeliveryStatus::Succeeded))).await, [well]);
    assert_eq!(taken(&world, resend(status(DeliveryStatus::Dead))).await, [dead]);
    world.wait(TICK);
    assert_eq!(taken(&world, resend(all())).await, [dead, well]);
    world.wait(TICK);
    assert_eq!(taken(&world, resend(to(world.crm))).await, [dead, well]);
    assert_eq!(taken(&world, resend(to(world.mail))).await, []);
    assert_eq!(world.detail(dead).await.deliveries.len(), 4);
}

pub async fn send_missing_job_delivers_events_the_destination_never_got(mut world: World) {
    let (one, _) = ended(&world, world.keyed("k-1"), NextStep::Succeeded).await;
    let nowhere = world.accept(NewEvent { deliveries: Vec::new(), ..world.keyed("k-2") }).await;
    let both = world.accept(world.keyed_for_both("k-3")).await;
    let bank = NewEvent { source: world.bank, ..world.keyed("b-1") };
    let (elsewhere, _) = ended(&world, bank, NextStep::Succeeded).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;
    world.wait(TICK);
    let from = |source| ReplayFilter { source: Some(source), ..all() };
    let search = |text: &str| ReplayFilter { search: Some(text.to_owned()), ..all() };

    for (filter, count) in
        [(all(), 3), (from(world.bank), 1), (from(world.shop), 2), (search("K-"), 2)]
    {
        let preview = world
            .preview_replay(missing(world.mail, filter), world.now, PreviewDepth::Whole)
            .await
            .unwrap();
        assert_eq!(preview.count, count);
    }
    assert_eq!(taken(&world, missing(world.mail, from(world.shop))).await, [one, nowhere]);
    assert_eq!(taken(&world, missing(world.mail, all())).await, [elsewhere]);

    assert_eq!(taken(&world, missing(world.mail, all())).await, [], "all have it now");
    assert_eq!(world.detail(both).await.deliveries.len(), 2);
    let sent = world.only_delivery(nowhere).await;
    assert_eq!((sent.destination, sent.replay_of), (world.mail, None));
}

pub async fn delivery_that_dies_after_job_creation_is_not_selected(mut world: World) {
    let (early, _) = ended(&world, world.arrival(), DEAD).await;
    let dying = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.wait(TICK);
    let job = create(&world, retry(all())).await;
    world.wait(TICK);
    // It was on its way when the job was made, and dies before the job comes to it.
    world.finish(&claimed, DEAD).await;

    select(&world, job).await;
    advance(&world, job, MANY).await;

    assert_eq!(world.statuses(dying).await, [DeliveryStatus::Dead]);
    assert_eq!(world.statuses(early).await, [DeliveryStatus::Replayed, DeliveryStatus::Pending]);
    assert_eq!(report(&world, job).await.progress().selected, 1);
}

pub async fn event_received_after_job_creation_is_not_selected(mut world: World) {
    let early = world.accept(NewEvent { deliveries: Vec::new(), ..world.arrival() }).await;
    world.wait(TICK);
    let job = create(&world, missing(world.mail, all())).await;
    world.wait(TICK);
    let late = world.accept(NewEvent { deliveries: Vec::new(), ..world.arrival() }).await;

    select(&world, job).await;
    advance(&world, job, MANY).await;

    assert_eq!(world.statuses(early).await, [DeliveryStatus::Pending]);
    assert!(world.detail(late).await.deliveries.is_empty());
    assert_eq!(report(&world, job).await.progress().selected, 1);
}

pub async fn job_selection_continues_after_restart(mut world: World) {
    const EVENTS: usize = 450;
    dead_letters(&world, EVENTS).await;
    world.wait(TICK);
    let job = create(&world, retry(all())).await;

    let mut slices = 0;
    while world.select_replay(job).await.unwrap() == SelectionReport::Now(ReplayState::Selecting) {
        world.reopen().await;
        slices += 1;
    }

    assert!(slices > 1, "a slice is bounded, however much there is");
    assert_eq!(report(&world, job).await.progress().selected, 450);
}

pub async fn job_that_selects_nothing_is_done(world: World) {
    let job = selected(&world, retry(all())).await;

    assert_eq!(advance(&world, job, MANY).await.state, ReplayState::Done);
    assert_eq!(report(&world, job).await.progress().selected, 0);
}

pub async fn overlapping_jobs_are_refused(world: World) {
    let to = |destination| ReplayFilter { destination: Some(destination), ..all() };
    let first = create(&world, retry(to(world.crm))).await;
    let ask = |spec| NewReplay { id: world.id(), spec, created_at: world.now };

    let refused = world.create_replay(ask(resend(all()))).await.unwrap();
    assert_eq!(refused, CreateReplayResult::Overlaps(first));
    world.change_replay(first, ReplayTransition::Pause, world.now).await.unwrap();
    let refused = world.create_replay(ask(retry(to(world.crm)))).await.unwrap();
    assert_eq!(refused, CreateReplayResult::Overlaps(first), "one that is paused is not over");
    create(&world, retry(to(world.mail))).await;
    create(&world, missing(world.crm, all())).await;

    world.change_replay(first, ReplayTransition::Cancel, world.now).await.unwrap();
    create(&world, retry(to(world.crm))).await;
}

pub async fn creating_the_same_job_again_has_no_effect(mut world: World) {
    let job = NewReplay { id: world.id(), spec: retry(all()), created_at: world.now };
    assert_eq!(world.create_replay(job.clone()).await.unwrap(), CreateReplayResult::Created);
    for state in [ReplayState::Selecting, ReplayState::Cancelled] {
        assert_eq!(world.create_replay(job.clone()).await.unwrap(), CreateReplayResult::Known);
        world.reopen().await;
        assert_eq!(world.create_replay(job.clone()).await.unwrap(), CreateReplayResult::Known);
        let page = PageRequest { after: None, limit: 9 };
        let states: Vec<_> = world.list_replays(page).await.unwrap();
        assert_eq!(states.iter().map(|row| row.state).collect::<Vec<_>>(), [state]);
        world.change_replay(job.id, ReplayTransition::Cancel, world.now).await.unwrap();
    }
}

pub async fn concurrent_overlapping_jobs_are_created_once(world: World) {
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let job = NewReplay { id: world.id(), spec: retry(all()), created_at: world.now };
        let store = world.store();
        tasks.spawn(async move { store.create_replay(job).await.unwrap() });
    }

    let told = tasks.join_all().await;

    let made = told.iter().filter(|told| **told == CreateReplayResult::Created).count();
    assert_eq!(made, 1, "{told:?}");
    let page = PageRequest { after: None, limit: 9 };
    assert_eq!(world.list_replays(page).await.unwrap().len(), 1);
}

pub async fn job_preview_reports_the_time_range_and_changes_nothing(mut world: World) {
    let begin = world.now;
    ended(&world, world.arrival(), DEAD).await;
    world.wait(Duration::from_secs(5));
    ended(&world, world.arrival(), DEAD).await;
    let end = world.now;
    world.wait(TICK);

    let preview = world.preview_replay(retry(all()), world.now, PreviewDepth::Whole).await.unwrap();

    assert_eq!((preview.count, preview.complete), (2, true));
    assert_eq!((preview.oldest, preview.newest), (Some(begin), Some(end)));
    assert_eq!(preview.by_destination, BTreeMap::from([(world.crm, 2)]));
    assert_eq!(world.count(DeliveryStatus::Dead), 2);
    let page = PageRequest { after: None, limit: 9 };
    assert!(world.list_replays(page).await.unwrap().is_empty());
}

pub async fn job_state_changes_only_as_replay_state_allows(world: World) {
    let inputs = [ReplayTransition::Pause, ReplayTransition::Resume, ReplayTransition::Cancel];
    for path in [
        vec![],
        vec![ReplayTransition::Pause],
        vec![ReplayTransition::Pause, ReplayTransition::Resume],
        vec![ReplayTransition::Cancel],
    ] {
        for input in inputs {
            let job = create(&world, retry(all())).await;
            for step in &path {
                world.change_replay(job, *step, world.now).await.unwrap();
            }
            let state = report(&world, job).await.state;

            let changed = world.change_replay(job, input, world.now).await.unwrap();

            let expected = state
                .apply(input)
                .map_or(ChangeReplayResult::Refused(state), ChangeReplayResult::Changed);
            assert_eq!(changed, expected, "{state:?} and {input:?}");
            let after = state.apply(input).unwrap_or(state);
            assert_eq!(report(&world, job).await.state, after);
            world.change_replay(job, ReplayTransition::Cancel, world.now).await.unwrap();
        }
    }
    let unknown =
        world.change_replay(world.id(), ReplayTransition::Pause, world.now).await.unwrap();
    assert_eq!(unknown, ChangeReplayResult::NotFound);
    assert_eq!(world.select_replay(world.id()).await.unwrap(), SelectionReport::NotFound);
    assert_eq!(world.advance_replay(world.id(), 1, 1, world.now).await.unwrap(), None);
    assert!(world.find_replay(world.id()).await.unwrap().is_none());
}

pub async fn jobs_are_listed_newest_first_in_pages(mut world: World) {
    let mut made = Vec::new();
    for _ in 0..3 {
        let job = create(&world, retry(all())).await;
        world.change_replay(job, ReplayTransition::Cancel, world.now).await.unwrap();
        made.push(job);
        world.wait(TICK);
    }
    let ids = |rows: Vec<ReplayRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();

    let first = world.list_replays(PageRequest { after: None, limit: 2 }).await.unwrap();
    let rest = world.list_replays(PageRequest { after: Some(made[1]), limit: 2 }).await.unwrap();

    assert_eq!((ids(first), ids(rest)), (vec![made[2], made[1]], vec![made[0]]));
}
