//! Replay jobs: which deliveries they select, dispatch and count, also across restarts.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::NewEvent,
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayAction, ReplayFilter, ReplayItemOutcome, ReplayRate, ReplayRow, ReplaySpec,
        ReplayState, ReplayTransition, SelectionReport, SkipReason, StatusPattern,
    },
    store::{ConfigChange, NextStep, PageRequest},
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::ids::{DeliveryId, DestinationId, EventId, ReplayId};
use surehook_webhooks::attribute::EventKind;
use tokio::task::JoinSet;

use super::{StoreFixture, fixture::first_page};

pub(super) const TICK: Duration = Duration::from_millis(1);
pub(super) const DEAD: NextStep = NextStep::Dead(DeadReason::MaxRetries);
pub(super) const STEP_LIMIT: usize = 1000;
/// A limit of open deliveries per destination that is never reached.
pub(super) const OPEN_LIMIT: u64 = 10_000;

pub(super) fn retry(filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec {
        action: ReplayAction::RetryFailed,
        filter,
        to: None,
        rate: ReplayRate::default(),
        note: None,
    }
}

pub(super) fn resend(filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { action: ReplayAction::ForceResend, ..retry(filter) }
}

pub(super) fn missing(to: DestinationId, filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { action: ReplayAction::SendMissing, to: Some(to), ..retry(filter) }
}

pub(super) fn all() -> ReplayFilter {
    ReplayFilter::default()
}

/// Creates a job, which must succeed.
pub(super) async fn create(fixture: &StoreFixture, spec: ReplaySpec) -> ReplayId {
    let id = fixture.new_id();
    let job = NewReplay { id, spec, created_at: fixture.now };
    assert_eq!(fixture.create_replay(job).await.unwrap(), CreateReplayResult::Created);
    id
}

/// Selects to the end and returns the number of slices.
pub(super) async fn select(fixture: &StoreFixture, job: ReplayId) -> usize {
    for slices in 1.. {
        match fixture.select_replay(job).await.unwrap() {
            SelectionReport::InState(ReplayState::Selecting) => {}
            SelectionReport::InState(ReplayState::Running) => return slices,
            other @ (SelectionReport::InState(_) | SelectionReport::NotFound) => {
                panic!("{other:?} while selecting")
            }
        }
    }
    0
}

/// Creates a job and completes its selection.
pub(super) async fn create_and_select(fixture: &StoreFixture, spec: ReplaySpec) -> ReplayId {
    let job = create(fixture, spec).await;
    select(fixture, job).await;
    job
}

pub(super) async fn advance(fixture: &StoreFixture, job: ReplayId, limit: usize) -> AdvanceReport {
    fixture.advance_replay(job, limit, OPEN_LIMIT, fixture.now).await.unwrap().unwrap()
}

/// The stored job; its numbers must add up.
pub(super) async fn report(fixture: &StoreFixture, job: ReplayId) -> ReplayRow {
    let row = fixture.find_replay(job).await.unwrap().unwrap();
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

pub(super) async fn count(
    fixture: &StoreFixture,
    job: ReplayId,
    outcome: ReplayItemOutcome,
) -> u64 {
    report(fixture, job).await.progress().count(outcome)
}

/// An event and its only delivery, which has ended with `next`.
pub(super) async fn ended(
    fixture: &StoreFixture,
    event: NewEvent,
    next: NextStep,
) -> (EventId, DeliveryId) {
    let (destination, delivery) = (event.deliveries[0].destination, event.deliveries[0].id);
    let event = fixture.accept(event).await;
    fixture.finish_due(destination, next).await;
    (event, delivery)
}

/// Creates `many` dead letters of the CRM.
pub(super) async fn dead_letters(fixture: &StoreFixture, count: usize) -> Vec<EventId> {
    let events: Vec<NewEvent> = (0..count).map(|_| fixture.new_event()).collect();
    let ids = events.iter().map(|event| event.id).collect();
    fixture.admit(events).await.unwrap();
    while fixture.count_deliveries(DeliveryStatus::Dead).await < u64::try_from(count).unwrap() {
        fixture.finish_due(fixture.crm, DEAD).await;
    }
    ids
}

/// Runs a job and returns the events that it delivers.
async fn run_job(fixture: &StoreFixture, spec: ReplaySpec) -> Vec<EventId> {
    let preview =
        fixture.preview_replay(spec.clone(), fixture.now, PreviewDepth::Whole).await.unwrap();
    // For a few deliveries the quick preview is complete.
    let quick =
        fixture.preview_replay(spec.clone(), fixture.now, PreviewDepth::Quick).await.unwrap();
    assert_eq!(quick, preview);
    let job = create_and_select(fixture, spec).await;
    advance(fixture, job, STEP_LIMIT).await;
    let mut events = Vec::new();
    for destination in [fixture.crm, fixture.mail] {
        for claimed in fixture.claim(destination, STEP_LIMIT).await {
            fixture.finish(&claimed, NextStep::Succeeded).await;
            events.push(claimed.event);
        }
    }
    let done = advance(fixture, job, 0).await;
    assert_eq!(done.state, ReplayState::Done, "{done:?}");
    let row = report(fixture, job).await;
    assert_eq!(preview.count, row.progress().selected, "the preview matches the selection");
    let parts: BTreeMap<_, _> =
        row.by_destination.iter().map(|(to, part)| (*to, part.selected)).collect();
    assert!(preview.complete);
    assert_eq!(preview.by_destination, parts);
    events.sort_unstable();
    events
}

pub async fn replay_job_selects_deliveries_that_match_its_filter(mut fixture: StoreFixture) {
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
            let to = vec![fixture.delivery_to(fixture.mail)];
            let kind = EventKind::new("refund");
            NewEvent {
                source: fixture.bank,
                deliveries: to,
                kind,
                ..fixture.event_with_key("Order-2")
            }
        } else {
            fixture.event_with_key(&format!("order-{number}"))
        };
        let (to, id) = (event.deliveries[0].destination, event.id);
        fixture.accept(event).await;
        let claimed = fixture.claim_one(to).await;
        let mut settlement = fixture.settlement(&claimed, next);
        settlement.attempt.status = Some(status);
        settlement.attempt.class = Some(class);
        settlement.attempt.detail = detail;
        fixture.settle(settlement).await.unwrap();
        events.push((id, fixture.now));
        fixture.wait(Duration::from_secs(1));
    }
    let [(first, _), (second, second_at), (third, third_at)] = events[..] else {
        panic!("three events")
    };
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (ReplayFilter { source: Some(fixture.bank), ..all() }, vec![third]),
        (ReplayFilter { kind: EventKind::new("refund"), ..all() }, vec![third]),
        (ReplayFilter { destination: Some(fixture.crm), ..all() }, vec![first, second]),
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
                source: Some(fixture.shop),
                class: Some(FailureClass::Permanent),
                ..all()
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        for spec in [retry(filter.clone()), resend(filter.clone())] {
            let preview =
                fixture.preview_replay(spec, fixture.now, PreviewDepth::Whole).await.unwrap();
            assert_eq!(preview.count, u64::try_from(expected.len()).unwrap(), "{filter:?}");
        }
        // The job is cancelled, so that the deliveries stay dead for the next case.
        let job = create_and_select(&fixture, retry(filter.clone())).await;
        assert_eq!(
            report(&fixture, job).await.progress().selected,
            u64::try_from(expected.len()).unwrap()
        );
        fixture.change_replay(job, ReplayTransition::Cancel, fixture.now).await.unwrap();
    }
    assert_eq!(run_job(&fixture, retry(all())).await, [first, second, third]);
}

pub async fn force_resend_job_selects_succeeded_deliveries_too(mut fixture: StoreFixture) {
    let (dead, _) = ended(&fixture, fixture.new_event(), DEAD).await;
    let (succeeded, _) = ended(&fixture, fixture.new_event(), NextStep::Succeeded).await;
    let (_, waiting) = fixture.accept_and_claim().await;
    fixture.finish(&waiting, NextStep::RetryAt(fixture.now + Duration::from_secs(60))).await;
    fixture.wait(TICK);
    let status = |status| ReplayFilter { status: Some(status), ..all() };
    let to = |destination| ReplayFilter { destination: Some(destination), ..all() };

    assert_eq!(run_job(&fixture, resend(status(DeliveryStatus::Succeeded))).await, [succeeded]);
    assert_eq!(run_job(&fixture, resend(status(DeliveryStatus::Dead))).await, [dead]);
    fixture.wait(TICK);
    assert_eq!(run_job(&fixture, resend(all())).await, [dead, succeeded]);
    fixture.wait(TICK);
    assert_eq!(run_job(&fixture, resend(to(fixture.crm))).await, [dead, succeeded]);
    assert_eq!(run_job(&fixture, resend(to(fixture.mail))).await, []);
    assert_eq!(fixture.event_detail(dead).await.deliveries.len(), 4);
}

pub async fn send_missing_job_delivers_events_the_destination_never_got(mut fixture: StoreFixture) {
    let (one, _) = ended(&fixture, fixture.event_with_key("k-1"), NextStep::Succeeded).await;
    let nowhere =
        fixture.accept(NewEvent { deliveries: Vec::new(), ..fixture.event_with_key("k-2") }).await;
    let both = fixture.accept(fixture.event_for_both("k-3")).await;
    let bank = NewEvent { source: fixture.bank, ..fixture.event_with_key("b-1") };
    let (elsewhere, _) = ended(&fixture, bank, NextStep::Succeeded).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;
    fixture.wait(TICK);
    let from = |source| ReplayFilter { source: Some(source), ..all() };
    let search = |text: &str| ReplayFilter { search: Some(text.to_owned()), ..all() };

    for (filter, count) in
        [(all(), 3), (from(fixture.bank), 1), (from(fixture.shop), 2), (search("K-"), 2)]
    {
        let preview = fixture
            .preview_replay(missing(fixture.mail, filter), fixture.now, PreviewDepth::Whole)
            .await
            .unwrap();
        assert_eq!(preview.count, count);
    }
    assert_eq!(run_job(&fixture, missing(fixture.mail, from(fixture.shop))).await, [one, nowhere]);
    assert_eq!(run_job(&fixture, missing(fixture.mail, all())).await, [elsewhere]);

    assert_eq!(
        run_job(&fixture, missing(fixture.mail, all())).await,
        [],
        "all events are delivered now"
    );
    assert_eq!(fixture.event_detail(both).await.deliveries.len(), 2);
    let sent = fixture.only_delivery(nowhere).await;
    assert_eq!((sent.destination, sent.replay_of), (fixture.mail, None));
}

pub async fn delivery_that_dies_after_job_creation_is_not_selected(mut fixture: StoreFixture) {
    let (early, _) = ended(&fixture, fixture.new_event(), DEAD).await;
    let (dying, claimed) = fixture.accept_and_claim().await;
    fixture.wait(TICK);
    let job = create(&fixture, retry(all())).await;
    fixture.wait(TICK);
    // In flight when the job was created, dead before the job selects.
    fixture.finish(&claimed, DEAD).await;

    select(&fixture, job).await;
    advance(&fixture, job, STEP_LIMIT).await;

    assert_eq!(fixture.delivery_statuses(dying).await, [DeliveryStatus::Dead]);
    assert_eq!(
        fixture.delivery_statuses(early).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Pending]
    );
    assert_eq!(report(&fixture, job).await.progress().selected, 1);
}

pub async fn event_received_after_job_creation_is_not_selected(mut fixture: StoreFixture) {
    let early = fixture.accept(NewEvent { deliveries: Vec::new(), ..fixture.new_event() }).await;
    fixture.wait(TICK);
    let job = create(&fixture, missing(fixture.mail, all())).await;
    fixture.wait(TICK);
    let late = fixture.accept(NewEvent { deliveries: Vec::new(), ..fixture.new_event() }).await;

    select(&fixture, job).await;
    advance(&fixture, job, STEP_LIMIT).await;

    assert_eq!(fixture.delivery_statuses(early).await, [DeliveryStatus::Pending]);
    assert!(fixture.event_detail(late).await.deliveries.is_empty());
    assert_eq!(report(&fixture, job).await.progress().selected, 1);
}

pub async fn job_selection_continues_after_restart(mut fixture: StoreFixture) {
    const EVENTS: usize = 450;
    dead_letters(&fixture, EVENTS).await;
    fixture.wait(TICK);
    let job = create(&fixture, retry(all())).await;

    let mut slices = 0;
    while fixture.select_replay(job).await.unwrap()
        == SelectionReport::InState(ReplayState::Selecting)
    {
        fixture.reopen().await;
        slices += 1;
    }

    assert!(slices > 1, "a slice is bounded");
    assert_eq!(report(&fixture, job).await.progress().selected, 450);
}

pub async fn job_that_selects_nothing_is_done(fixture: StoreFixture) {
    let job = create_and_select(&fixture, retry(all())).await;

    assert_eq!(advance(&fixture, job, STEP_LIMIT).await.state, ReplayState::Done);
    assert_eq!(report(&fixture, job).await.progress().selected, 0);
}

pub async fn overlapping_jobs_are_refused(fixture: StoreFixture) {
    let to = |destination| ReplayFilter { destination: Some(destination), ..all() };
    let first = create(&fixture, retry(to(fixture.crm))).await;
    let new_replay = |spec| NewReplay { id: fixture.new_id(), spec, created_at: fixture.now };

    let refused = fixture.create_replay(new_replay(resend(all()))).await.unwrap();
    assert_eq!(refused, CreateReplayResult::Overlaps(first));
    fixture.change_replay(first, ReplayTransition::Pause, fixture.now).await.unwrap();
    let refused = fixture.create_replay(new_replay(retry(to(fixture.crm)))).await.unwrap();
    assert_eq!(refused, CreateReplayResult::Overlaps(first), "a paused job is not finished");
    create(&fixture, retry(to(fixture.mail))).await;
    create(&fixture, missing(fixture.crm, all())).await;

    fixture.change_replay(first, ReplayTransition::Cancel, fixture.now).await.unwrap();
    create(&fixture, retry(to(fixture.crm))).await;
}

pub async fn creating_the_same_job_again_has_no_effect(mut fixture: StoreFixture) {
    let job = NewReplay { id: fixture.new_id(), spec: retry(all()), created_at: fixture.now };
    assert_eq!(fixture.create_replay(job.clone()).await.unwrap(), CreateReplayResult::Created);
    for state in [ReplayState::Selecting, ReplayState::Cancelled] {
        assert_eq!(
            fixture.create_replay(job.clone()).await.unwrap(),
            CreateReplayResult::AlreadyExists
        );
        fixture.reopen().await;
        assert_eq!(
            fixture.create_replay(job.clone()).await.unwrap(),
            CreateReplayResult::AlreadyExists
        );
        let page = first_page(9);
        let states: Vec<_> = fixture.list_replays(page).await.unwrap();
        assert_eq!(states.iter().map(|row| row.state).collect::<Vec<_>>(), [state]);
        fixture.change_replay(job.id, ReplayTransition::Cancel, fixture.now).await.unwrap();
    }
}

pub async fn concurrent_overlapping_jobs_are_created_once(fixture: StoreFixture) {
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let job = NewReplay { id: fixture.new_id(), spec: retry(all()), created_at: fixture.now };
        let store = fixture.store();
        tasks.spawn(async move { store.create_replay(job).await.unwrap() });
    }

    let results = tasks.join_all().await;

    let created = results.iter().filter(|results| **results == CreateReplayResult::Created).count();
    assert_eq!(created, 1, "{results:?}");
    let page = first_page(9);
    assert_eq!(fixture.list_replays(page).await.unwrap().len(), 1);
}

pub async fn job_preview_reports_the_time_range_and_changes_nothing(mut fixture: StoreFixture) {
    let begin = fixture.now;
    ended(&fixture, fixture.new_event(), DEAD).await;
    fixture.wait(Duration::from_secs(5));
    ended(&fixture, fixture.new_event(), DEAD).await;
    let end = fixture.now;
    fixture.wait(TICK);

    let preview =
        fixture.preview_replay(retry(all()), fixture.now, PreviewDepth::Whole).await.unwrap();

    assert_eq!((preview.count, preview.complete), (2, true));
    assert_eq!((preview.oldest, preview.newest), (Some(begin), Some(end)));
    assert_eq!(preview.by_destination, BTreeMap::from([(fixture.crm, 2)]));
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Dead).await, 2);
    let page = first_page(9);
    assert!(fixture.list_replays(page).await.unwrap().is_empty());
}

pub async fn job_state_changes_only_as_replay_state_allows(fixture: StoreFixture) {
    let inputs = [ReplayTransition::Pause, ReplayTransition::Resume, ReplayTransition::Cancel];
    for path in [
        vec![],
        vec![ReplayTransition::Pause],
        vec![ReplayTransition::Pause, ReplayTransition::Resume],
        vec![ReplayTransition::Cancel],
    ] {
        for input in inputs {
            let job = create(&fixture, retry(all())).await;
            for step in &path {
                fixture.change_replay(job, *step, fixture.now).await.unwrap();
            }
            let state = report(&fixture, job).await.state;

            let changed = fixture.change_replay(job, input, fixture.now).await.unwrap();

            let expected = state
                .apply(input)
                .map_or(ChangeReplayResult::Refused(state), ChangeReplayResult::Changed);
            assert_eq!(changed, expected, "{state:?} and {input:?}");
            let after = state.apply(input).unwrap_or(state);
            assert_eq!(report(&fixture, job).await.state, after);
            fixture.change_replay(job, ReplayTransition::Cancel, fixture.now).await.unwrap();
        }
    }
    let unknown = fixture
        .change_replay(fixture.new_id(), ReplayTransition::Pause, fixture.now)
        .await
        .unwrap();
    assert_eq!(unknown, ChangeReplayResult::NotFound);
    assert_eq!(fixture.select_replay(fixture.new_id()).await.unwrap(), SelectionReport::NotFound);
    assert_eq!(fixture.advance_replay(fixture.new_id(), 1, 1, fixture.now).await.unwrap(), None);
    assert!(fixture.find_replay(fixture.new_id()).await.unwrap().is_none());
}

pub async fn jobs_are_listed_newest_first_in_pages(mut fixture: StoreFixture) {
    let mut created = Vec::new();
    for _ in 0..3 {
        let job = create(&fixture, retry(all())).await;
        fixture.change_replay(job, ReplayTransition::Cancel, fixture.now).await.unwrap();
        created.push(job);
        fixture.wait(TICK);
    }
    let ids = |rows: Vec<ReplayRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();

    let first = fixture.list_replays(first_page(2)).await.unwrap();
    let rest =
        fixture.list_replays(PageRequest { after: Some(created[1]), limit: 2 }).await.unwrap();

    assert_eq!((ids(first), ids(rest)), (vec![created[2], created[1]], vec![created[0]]));
}

pub async fn job_step_replays_dead_deliveries(mut fixture: StoreFixture) {
    let (event, old) = ended(&fixture, fixture.event_with_key("k"), DEAD).await;
    let (other, _) = ended(&fixture, fixture.new_event(), NextStep::Succeeded).await;
    fixture.wait(TICK);

    let job = create_and_select(&fixture, retry(all())).await;
    let step = advance(&fixture, job, STEP_LIMIT).await;

    assert_eq!(step.dispatched, BTreeMap::from([(fixture.crm, 1)]));
    assert_eq!((step.state, step.open, step.queued), (ReplayState::Running, 1, 0));
    let deliveries = fixture.event_detail(event).await.deliveries;
    let [old_row, replay_row] = &deliveries[..] else { panic!("two deliveries: {deliveries:?}") };
    assert_eq!(
        (old_row.id, old_row.status, old_row.replayed_by),
        (old, DeliveryStatus::Replayed, Some(replay_row.id))
    );
    assert_eq!((replay_row.status, replay_row.replay_of), (DeliveryStatus::Pending, Some(old)));
    assert_eq!(replay_row.due_at, Some(fixture.now));
    assert_eq!(fixture.delivery_statuses(other).await, [DeliveryStatus::Succeeded]);
}

pub async fn job_is_done_when_its_deliveries_have_ended(mut fixture: StoreFixture) {
    ended(&fixture, fixture.new_event(), DEAD).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    advance(&fixture, job, STEP_LIMIT).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(TICK);

    let done = advance(&fixture, job, STEP_LIMIT).await;

    assert_eq!((done.state, done.open), (ReplayState::Done, 0));
    assert_eq!(done.outcomes, BTreeMap::from([(ReplayItemOutcome::Succeeded, 1)]));
    let row = report(&fixture, job).await;
    assert_eq!((row.state, row.ended_at), (ReplayState::Done, Some(fixture.now)));
    assert_eq!(row.progress().dispatched(), 1);
    assert_eq!(
        advance(&fixture, job, STEP_LIMIT).await.dispatched,
        BTreeMap::new(),
        "a finished job dispatches nothing"
    );
}

pub async fn job_continues_after_restart(mut fixture: StoreFixture) {
    const EVENTS: usize = 250;
    let events = dead_letters(&fixture, EVENTS).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;

    let mut state = ReplayState::Running;
    while state == ReplayState::Running {
        fixture.reopen().await;
        assert_eq!(fixture.list_unfinished_replays().await.unwrap(), [job]);
        state = advance(&fixture, job, 100).await.state;
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    }

    for event in events {
        assert_eq!(
            fixture.delivery_statuses(event).await,
            [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]
        );
    }
    assert_eq!(count(&fixture, job, ReplayItemOutcome::Succeeded).await, 250);
    assert!(fixture.list_unfinished_replays().await.unwrap().is_empty());
}

pub async fn concurrent_selections_and_steps_dispatch_each_delivery_once(
    mut fixture: StoreFixture,
) {
    const EVENTS: usize = 250;
    let events = dead_letters(&fixture, EVENTS).await;
    fixture.wait(TICK);
    let job = create(&fixture, retry(all())).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (store, now) = (fixture.store(), fixture.now);
        tasks.spawn(async move {
            while store.select_replay(job).await.unwrap()
                == SelectionReport::InState(ReplayState::Selecting)
            {}
            let mut dispatched = 0;
            loop {
                let step = store.advance_replay(job, 20, OPEN_LIMIT, now).await.unwrap().unwrap();
                dispatched += step.dispatched.values().sum::<usize>();
                if step.queued == 0 {
                    return dispatched;
                }
            }
        });
    }

    let dispatched: usize = tasks.join_all().await.into_iter().sum();

    assert_eq!(dispatched, EVENTS);
    for event in events {
        assert_eq!(
            fixture.delivery_statuses(event).await,
            [DeliveryStatus::Replayed, DeliveryStatus::Pending]
        );
    }
    assert_eq!(report(&fixture, job).await.progress().dispatched(), 250);
}

pub async fn undeliverable_items_are_skipped_with_a_reason(mut fixture: StoreFixture) {
    let (_, by_hand) = ended(&fixture, fixture.new_event(), DEAD).await;
    fixture.wait(TICK);
    let to_mail =
        NewEvent { deliveries: vec![fixture.delivery_to(fixture.mail)], ..fixture.new_event() };
    ended(&fixture, to_mail, DEAD).await;
    let (kept, _) = ended(&fixture, fixture.new_event(), DEAD).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;

    fixture.replay_now(by_hand).await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.mail)).await;
    let step = advance(&fixture, job, STEP_LIMIT).await;

    let expected = [SkipReason::Superseded, SkipReason::DestinationGone];
    assert_eq!(step.outcomes, expected.map(|skip| (ReplayItemOutcome::Skipped(skip), 1)).into());
    assert_eq!(step.dispatched, BTreeMap::from([(fixture.crm, 1)]));
    assert_eq!(
        fixture.delivery_statuses(kept).await,
        [DeliveryStatus::Replayed, DeliveryStatus::Pending]
    );
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    advance(&fixture, job, 0).await;
    let row = report(&fixture, job).await;
    assert_eq!((row.state, row.progress().skipped()), (ReplayState::Done, 2));
    assert_eq!(row.progress().dispatched(), 1);
}

pub async fn item_whose_event_was_pruned_is_skipped(mut fixture: StoreFixture) {
    ended(&fixture, fixture.new_event(), DEAD).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    assert_eq!(fixture.prune_all(Duration::ZERO).await.events, 1);

    let step = advance(&fixture, job, STEP_LIMIT).await;

    assert_eq!(
        step.outcomes,
        BTreeMap::from([(ReplayItemOutcome::Skipped(SkipReason::EventGone), 1)])
    );
    assert_eq!(report(&fixture, job).await.state, ReplayState::Done);
}

pub async fn destination_at_its_open_limit_does_not_delay_others(mut fixture: StoreFixture) {
    for _ in 0..3 {
        ended(&fixture, fixture.new_event(), DEAD).await;
        let to_mail =
            NewEvent { deliveries: vec![fixture.delivery_to(fixture.mail)], ..fixture.new_event() };
        ended(&fixture, to_mail, DEAD).await;
    }
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    let step = || async {
        fixture.advance_replay(job, STEP_LIMIT, 2, fixture.now).await.unwrap().unwrap()
    };
    let (crm, mail) = (fixture.crm, fixture.mail);

    let first = step().await;
    assert_eq!(first.dispatched, BTreeMap::from([(crm, 2), (mail, 2)]), "two per destination");
    assert_eq!((first.open, first.queued), (4, 2));
    assert_eq!(step().await.dispatched, BTreeMap::new(), "and no more");
    fixture.finish_due(mail, DEAD).await;
    let second = step().await;

    assert_eq!(
        second.dispatched,
        BTreeMap::from([(mail, 1)]),
        "the other destination is at its limit"
    );
    assert_eq!(second.outcomes, BTreeMap::from([(ReplayItemOutcome::Dead, 2)]));
    report(&fixture, job).await;
}

pub async fn step_limit_is_shared_among_destinations(mut fixture: StoreFixture) {
    for _ in 0..3 {
        let both = fixture.new_event();
        let deliveries = vec![fixture.delivery_to(fixture.crm), fixture.delivery_to(fixture.mail)];
        fixture.accept(NewEvent { deliveries, ..both }).await;
    }
    fixture.finish_due(fixture.crm, DEAD).await;
    fixture.finish_due(fixture.mail, DEAD).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;

    let step = advance(&fixture, job, 4).await;

    assert_eq!(step.dispatched, BTreeMap::from([(fixture.crm, 2), (fixture.mail, 2)]));
}

pub async fn paused_job_selects_nothing(mut fixture: StoreFixture) {
    dead_letters(&fixture, 3).await;
    fixture.wait(TICK);
    let job = create(&fixture, retry(all())).await;

    fixture.change_replay(job, ReplayTransition::Pause, fixture.now).await.unwrap();
    assert_eq!(
        fixture.select_replay(job).await.unwrap(),
        SelectionReport::InState(ReplayState::Paused)
    );
    assert_eq!(report(&fixture, job).await.progress().selected, 0);

    fixture.change_replay(job, ReplayTransition::Resume, fixture.now).await.unwrap();
    select(&fixture, job).await;
    assert_eq!(report(&fixture, job).await.progress().selected, 3);
}

pub async fn paused_job_dispatches_nothing(mut fixture: StoreFixture) {
    dead_letters(&fixture, 3).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    advance(&fixture, job, 1).await;

    fixture.change_replay(job, ReplayTransition::Pause, fixture.now).await.unwrap();
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let step = advance(&fixture, job, STEP_LIMIT).await;

    // Deliveries dispatched before the pause continue and are counted.
    assert_eq!((step.dispatched.len(), step.state), (0, ReplayState::Paused));
    assert_eq!(step.outcomes, BTreeMap::from([(ReplayItemOutcome::Succeeded, 1)]));
    assert_eq!((fixture.count_deliveries(DeliveryStatus::Dead).await, step.queued), (2, 2));
    assert_eq!(fixture.list_unfinished_replays().await.unwrap(), [job]);
}

pub async fn resumed_job_dispatches_the_rest_once(mut fixture: StoreFixture) {
    let events = dead_letters(&fixture, 3).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    advance(&fixture, job, 1).await;
    fixture.change_replay(job, ReplayTransition::Pause, fixture.now).await.unwrap();

    fixture.change_replay(job, ReplayTransition::Resume, fixture.now).await.unwrap();
    select(&fixture, job).await;
    advance(&fixture, job, STEP_LIMIT).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    advance(&fixture, job, 0).await;

    assert_eq!(count(&fixture, job, ReplayItemOutcome::Succeeded).await, 3);
    for event in events {
        assert_eq!(
            fixture.delivery_statuses(event).await,
            [DeliveryStatus::Replayed, DeliveryStatus::Succeeded]
        );
    }
}

#[expect(clippy::cognitive_complexity, reason = "steps of one history, one after the other")]
pub async fn cancelled_job_leaves_the_rest_and_counts_open_deliveries(mut fixture: StoreFixture) {
    dead_letters(&fixture, 5).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    advance(&fixture, job, 2).await;

    fixture.change_replay(job, ReplayTransition::Cancel, fixture.now).await.unwrap();

    let row = report(&fixture, job).await;
    assert_eq!((row.state, row.ended_at), (ReplayState::Cancelled, Some(fixture.now)));
    let progress = row.progress();
    assert_eq!((progress.left(row.state), progress.waiting(row.state)), (3, 2));
    assert_eq!(fixture.list_unfinished_replays().await.unwrap(), [job], "two deliveries are open");
    assert_eq!(advance(&fixture, job, STEP_LIMIT).await.dispatched, BTreeMap::new());
    fixture.finish_due(fixture.crm, DEAD).await;
    let step = advance(&fixture, job, STEP_LIMIT).await;
    assert_eq!((step.open, step.state), (0, ReplayState::Cancelled));
    assert_eq!(count(&fixture, job, ReplayItemOutcome::Dead).await, 2);
    assert!(fixture.list_unfinished_replays().await.unwrap().is_empty());
    assert_eq!(
        fixture.count_deliveries(DeliveryStatus::Dead).await,
        5,
        "three were never dispatched, two died again"
    );
}

pub async fn delivery_replayed_later_counts_with_its_first_outcome(mut fixture: StoreFixture) {
    for (next, outcome) in
        [(DEAD, ReplayItemOutcome::Dead), (NextStep::Succeeded, ReplayItemOutcome::Succeeded)]
    {
        ended(&fixture, fixture.new_event(), DEAD).await;
        fixture.wait(TICK);
        let job = create_and_select(&fixture, retry(all())).await;
        advance(&fixture, job, STEP_LIMIT).await;
        let claimed = fixture.claim_one(fixture.crm).await;
        fixture.finish(&claimed, next).await;
        fixture.wait(surehook_core::store::REPLAY_INTERVAL);
        fixture.replay_now(claimed.id).await;

        advance(&fixture, job, 0).await;

        assert_eq!(count(&fixture, job, outcome).await, 1);
        fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        fixture.wait(TICK);
    }
}

pub async fn deleting_a_destination_cancels_its_part_of_the_job(mut fixture: StoreFixture) {
    dead_letters(&fixture, 3).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    advance(&fixture, job, 1).await;

    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    advance(&fixture, job, STEP_LIMIT).await;

    let row = report(&fixture, job).await;
    assert_eq!(row.state, ReplayState::Done);
    assert_eq!(row.progress().count(ReplayItemOutcome::Cancelled), 1);
    assert_eq!(row.progress().count(ReplayItemOutcome::Skipped(SkipReason::DestinationGone)), 2);
}

pub async fn old_jobs_are_pruned_only_after_they_have_ended(mut fixture: StoreFixture) {
    dead_letters(&fixture, 2).await;
    fixture.wait(TICK);
    let over = create_and_select(&fixture, retry(all())).await;
    advance(&fixture, over, STEP_LIMIT).await;
    fixture.change_replay(over, ReplayTransition::Cancel, fixture.now).await.unwrap();
    fixture.wait(TICK);

    assert!(!fixture.prune_replays(fixture.now).await.unwrap(), "two deliveries are open");
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    advance(&fixture, over, 0).await;
    let running = create(&fixture, resend(all())).await;
    while fixture.prune_replays(fixture.now).await.unwrap() {}

    assert!(fixture.find_replay(over).await.unwrap().is_none());
    assert_eq!(report(&fixture, running).await.state, ReplayState::Selecting);
}
