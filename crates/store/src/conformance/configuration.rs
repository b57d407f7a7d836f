//! The configuration, and the effect of a change on deliveries that are not finished.
//!
//! The cases at the end delete a destination with a backlog larger than one step cancels. The
//! property applies random changes to the store and to `Configuration::apply`.

use std::time::Duration;

use proptest::{prelude::*, sample::select, test_runner::TestCaseResult};
use surehook_core::{
    decision::EventDecisionKind,
    delivery::state::DeliveryStatus,
    destination::DestinationSpec,
    event::{NewDelivery, NewEvent},
    replay::{ReplayItemOutcome, ReplayState},
    route::RouteSpec,
    source::SourceSpec,
    store::{
        AdmitResult, CancelResult, ConfigChange, ConfigChangeResult, Configuration, JoinRequest,
        JoinResult, NextStep, SettleResult, StoredObject,
    },
};
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DestinationId, EventId, Id, IdKind, RouteId, SourceId},
    name::Name,
    store_error::StoreError,
    time::{HumanDuration, Timestamp},
};
use surehook_webhooks::verify::VerifySpec;
use tokio::task::JoinSet;

use super::{
    StoreFixture, StoreHarness, check_property,
    fixture::{destination_spec, source_spec},
    replay_jobs::{STEP_LIMIT, TICK, advance, all, create_and_select, dead_letters, report, retry},
};

/// A route without a filter.
pub(super) fn route(from: &str, to: &str) -> RouteSpec {
    RouteSpec {
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        filter: None,
        transform: None,
    }
}

pub async fn stored_configuration_is_read_back(mut fixture: StoreFixture) {
    let put_at = fixture.now;
    let first: RouteId = fixture.new_id();
    let second: RouteId = fixture.new_id();
    let filtered = RouteSpec { filter: Some(".a == \"ü\"".to_owned()), ..route("bank", "mail") };
    let changes = vec![
        ConfigChange::PutRoute(second, route("shop", "crm")),
        ConfigChange::PutRoute(first, filtered.clone()),
    ];
    fixture.change(changes, put_at).await.unwrap();
    fixture.wait(Duration::from_secs(5));
    let mut spec = source_spec("shop");
    spec.dedup_window = Some(HumanDuration::from_secs(1));
    fixture.apply(ConfigChange::PutSource(fixture.shop, spec.clone())).await;

    fixture.reopen().await;

    let found = fixture.load_configuration().await.unwrap();
    let sources: Vec<_> = found.sources.iter().map(|s| s.spec.name.as_str()).collect();
    assert_eq!(sources, ["bank", "shop"], "by name");
    assert_eq!(found.sources[1].spec, spec);
    assert_eq!((found.sources[1].created_at, found.sources[1].updated_at), (put_at, fixture.now));
    assert_eq!(found.destinations[0].spec, destination_spec("crm"));
    let routes: Vec<_> = found.routes.iter().map(|r| (r.id, r.spec.clone())).collect();
    assert_eq!(routes, [(second, route("shop", "crm")), (first, filtered)], "oldest first");
}

pub async fn of_changes_planned_for_one_version_one_is_applied(fixture: StoreFixture) {
    let before = fixture.load_configuration().await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (store, now) = (fixture.store(), fixture.now);
        let spec = source_spec(&format!("source-{number}"));
        let put = vec![ConfigChange::PutSource(fixture.new_id(), spec)];
        tasks.spawn(async move { store.change(put, before.version, now).await.unwrap() });
    }

    let results = tasks.join_all().await;

    let after = fixture.load_configuration().await.unwrap();
    assert!(after.version > before.version);
    assert_eq!(fixture.load_configuration_version().await.unwrap(), after.version);
    let changed = ConfigChangeResult::Changed(after.version);
    let outdated = ConfigChangeResult::Outdated(after.version);
    assert_eq!(results.iter().filter(|result| **result == changed).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == outdated).count(), 7);
    assert_eq!(after.sources.len(), before.sources.len() + 1);
}

pub async fn change_for_an_older_version_changes_nothing(mut fixture: StoreFixture) {
    let old = fixture.load_configuration_version().await.unwrap();
    fixture.apply(ConfigChange::PutSource(fixture.shop, source_spec("store"))).await;
    fixture.reopen().await;
    let current = fixture.load_configuration().await.unwrap();
    let store = fixture.store();

    let delete = vec![ConfigChange::DeleteSource(fixture.shop)];
    let result = store.change(delete.clone(), old, fixture.now).await.unwrap();

    assert_eq!(result, ConfigChangeResult::Outdated(current.version));
    assert_eq!(fixture.load_configuration().await.unwrap(), current);
    fixture.accept(fixture.new_event()).await;
    let result = store.change(delete, current.version, fixture.now).await.unwrap();
    assert!(matches!(result, ConfigChangeResult::Changed(version) if version > current.version));
}

pub async fn renamed_source_and_destination_keep_their_routes(fixture: StoreFixture) {
    let changes = vec![
        ConfigChange::PutRoute(fixture.new_id(), route("shop", "crm")),
        ConfigChange::PutSource(fixture.shop, source_spec("store")),
        ConfigChange::PutDestination(fixture.crm, destination_spec("sales")),
    ];

    fixture.change(changes, fixture.now).await.unwrap();

    assert_eq!(fixture.load_configuration().await.unwrap().routes[0].spec, route("store", "sales"));
    fixture.accept(fixture.new_event()).await;
    assert_eq!(fixture.claim(fixture.crm, 9).await.len(), 1);
}

pub async fn name_in_use_is_refused(fixture: StoreFixture) {
    let before = fixture.load_configuration().await.unwrap();

    let source = fixture
        .change(vec![ConfigChange::PutSource(fixture.new_id(), source_spec("shop"))], fixture.now)
        .await;
    let renamed = ConfigChange::PutDestination(fixture.mail, destination_spec("crm"));
    let destination = fixture.change(vec![renamed], fixture.now).await;

    assert!(matches!(source, Err(StoreError::Refused(_))), "{source:?}");
    assert!(matches!(destination, Err(StoreError::Refused(_))), "{destination:?}");
    assert_eq!(fixture.load_configuration().await.unwrap(), before);
}

pub async fn name_can_be_reused_after_deletion(fixture: StoreFixture) {
    let (new_source, new_destination): (SourceId, DestinationId) =
        (fixture.new_id(), fixture.new_id());
    let changes = vec![
        ConfigChange::DeleteSource(fixture.shop),
        ConfigChange::PutSource(new_source, source_spec("shop")),
        ConfigChange::DeleteDestination(fixture.crm),
        ConfigChange::PutDestination(new_destination, destination_spec("crm")),
        ConfigChange::PutRoute(fixture.new_id(), route("shop", "crm")),
    ];

    fixture.change(changes, fixture.now).await.unwrap();

    let found = fixture.load_configuration().await.unwrap();
    assert!(found.sources.iter().any(|stored| stored.id == new_source));
    assert_eq!(found.sources.len(), 2);
    assert_eq!(found.routes.len(), 1);
    let deliveries = vec![fixture.delivery_to(new_destination)];
    fixture.accept(NewEvent { source: new_source, deliveries, ..fixture.new_event() }).await;
    assert_eq!(fixture.find_next_due(new_destination).await.unwrap(), Some(fixture.now));
}

pub async fn route_with_unknown_source_or_destination_is_refused(fixture: StoreFixture) {
    for (from, to) in [("unknown", "crm"), ("shop", "unknown"), ("crm", "shop")] {
        let refused = fixture
            .change(vec![ConfigChange::PutRoute(fixture.new_id(), route(from, to))], fixture.now);
        let refused = refused.await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{from} to {to}: {refused:?}");
    }
    assert!(fixture.load_configuration().await.unwrap().routes.is_empty());
}

pub async fn changes_with_one_invalid_change_are_not_applied(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let before = fixture.load_configuration().await.unwrap();
    let changes = vec![
        ConfigChange::PutSource(fixture.new_id(), source_spec("new")),
        ConfigChange::DeleteDestination(fixture.crm),
        ConfigChange::PutRoute(fixture.new_id(), route("new", "crm")),
    ];

    assert!(fixture.change(changes, fixture.now).await.is_err());

    fixture.reopen().await;
    assert_eq!(fixture.load_configuration().await.unwrap(), before);
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Pending]);
    assert_eq!(fixture.claim(fixture.crm, 9).await.len(), 1);
}

pub async fn source_created_and_deleted_in_one_change_does_not_exist(fixture: StoreFixture) {
    let (brief, nowhere): (SourceId, DestinationId) = (fixture.new_id(), fixture.new_id());
    let before = fixture.load_configuration().await.unwrap();
    let changes = vec![
        ConfigChange::PutSource(brief, source_spec("brief")),
        ConfigChange::PutDestination(nowhere, destination_spec("nowhere")),
        ConfigChange::PutRoute(fixture.new_id(), route("brief", "nowhere")),
        ConfigChange::DeleteSource(brief),
        ConfigChange::DeleteDestination(nowhere),
        ConfigChange::DeleteSource(brief),
    ];

    fixture.change(changes, fixture.now).await.unwrap();

    let found = fixture.load_configuration().await.unwrap();
    assert_eq!(Configuration { version: before.version, ..found }, before);
    let too_late = NewEvent { source: brief, ..fixture.new_event() };
    assert_eq!(fixture.admit(vec![too_late]).await.unwrap(), [AdmitResult::SourceGone]);
}

pub async fn deleted_source_rejects_new_events_and_keeps_old_ones(fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let route_id = fixture.new_id();
    let put = vec![ConfigChange::PutRoute(route_id, route("shop", "crm"))];
    fixture.change(put, fixture.now).await.unwrap();

    fixture.apply(ConfigChange::DeleteSource(fixture.shop)).await;

    assert_eq!(fixture.admit(vec![fixture.new_event()]).await.unwrap(), [AdmitResult::SourceGone]);
    assert_eq!(fixture.event_detail(event).await.event.source, fixture.shop);
    assert!(fixture.load_configuration().await.unwrap().routes.is_empty());
    // Accepted events are still delivered.
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    assert_eq!(fixture.delivery_statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn deleting_a_destination_cancels_unfinished_deliveries(mut fixture: StoreFixture) {
    let events: Vec<NewEvent> = (0..5).map(|n| fixture.event_for_both(&format!("k{n}"))).collect();
    fixture.admit(events.clone()).await.unwrap();
    let ends =
        [NextStep::Succeeded, NextStep::Dead(DeadReason::Expired), NextStep::RetryAt(fixture.now)];
    let claimed = fixture.claim(fixture.crm, 4).await;
    for (claimed, next) in claimed.iter().zip(ends) {
        fixture.finish(claimed, next).await;
    }
    fixture.wait(Duration::from_secs(1));

    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    let cancelled = DeliveryStatus::Cancelled;
    let statuses =
        [DeliveryStatus::Succeeded, DeliveryStatus::Dead, cancelled, cancelled, cancelled];
    for (event, status) in events.iter().zip(statuses) {
        let delivery = fixture.delivery_detail(event.deliveries[0].id).await.delivery;
        assert_eq!((delivery.status, delivery.due_at), (status, None));
        assert_eq!(delivery.ended_at == Some(fixture.now), status == cancelled);
    }
    assert_eq!(
        (
            fixture.count_deliveries(cancelled).await,
            fixture.count_deliveries(DeliveryStatus::Pending).await
        ),
        (3, 5)
    );
    assert_eq!(
        (
            fixture.count_deliveries(DeliveryStatus::InFlight).await,
            fixture.count_deliveries(DeliveryStatus::Scheduled).await
        ),
        (0, 0)
    );
}

pub async fn deleted_destination_has_no_due_deliveries(fixture: StoreFixture) {
    fixture.accept(fixture.event_for_both("k")).await;

    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    assert!(fixture.claim(fixture.crm, 9).await.is_empty());
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), None);
    assert!(!fixture.find_oldest_due(fixture.now).await.unwrap().contains_key(&fixture.crm));
    assert_eq!(
        fixture.claim(fixture.mail, 9).await.len(),
        1,
        "the other destination is not affected"
    );
}

pub async fn delivery_to_deleted_or_unknown_destination_is_not_stored(fixture: StoreFixture) {
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    let nowhere =
        NewDelivery { destination: fixture.new_id(), ..fixture.delivery_to(fixture.mail) };
    let deliveries =
        vec![fixture.delivery_to(fixture.crm), nowhere, fixture.delivery_to(fixture.mail)];

    let event = fixture.accept(NewEvent { deliveries, ..fixture.new_event() }).await;

    assert_eq!(fixture.only_delivery(event).await.destination, fixture.mail);
    assert_eq!(fixture.count_deliveries(DeliveryStatus::Pending).await, 1);
}

pub async fn deleted_source_and_destination_can_be_created_again(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    let delete = vec![
        ConfigChange::DeleteSource(fixture.shop),
        ConfigChange::DeleteDestination(fixture.crm),
    ];
    fixture.change(delete, fixture.now).await.unwrap();
    fixture.wait(Duration::from_secs(5));

    let put = vec![
        ConfigChange::PutSource(fixture.shop, source_spec("shop")),
        ConfigChange::PutDestination(fixture.crm, destination_spec("crm")),
    ];
    fixture.change(put, fixture.now).await.unwrap();

    let found = fixture.load_configuration().await.unwrap();
    assert_eq!(found.sources[1].created_at, fixture.now);
    assert_eq!(
        fixture.delivery_statuses(event).await,
        [DeliveryStatus::Cancelled],
        "a cancelled delivery stays cancelled"
    );
    fixture.accept(fixture.new_event()).await;
    assert_eq!(fixture.claim(fixture.crm, 9).await.len(), 1);
}

/// More deliveries than a store cancels in a few slices.
const BACKLOG: usize = 1500;

/// Admits events for the CRM, a third of them in three ordering queues.
async fn fill_backlog(fixture: &StoreFixture) -> Vec<EventId> {
    let lines = ["a", "b", "c"];
    let one = |number: usize| match number % 3 {
        0 => fixture.ordered_event(lines[number / 3 % 3]),
        _ => fixture.new_event(),
    };
    let events: Vec<NewEvent> = (0..BACKLOG).map(one).collect();
    let ids = events.iter().map(|event| event.id).collect();
    fixture.admit(events).await.unwrap();
    ids
}

async fn delete_crm(fixture: &StoreFixture) {
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
}

async fn cancel_all(fixture: &StoreFixture) {
    while fixture.cancel_for_deleted_destinations().await.unwrap() {}
}

async fn count_all(fixture: &StoreFixture) -> u64 {
    fixture.counts().await.by_status.values().sum()
}

async fn assert_nothing_is_due(fixture: &StoreFixture) {
    assert!(fixture.claim(fixture.crm, STEP_LIMIT).await.is_empty());
    let next = fixture.claim_next(fixture.crm, fixture.now, fixture.new_claim()).await.unwrap();
    assert!(next.claimed.is_empty());
    assert_eq!(fixture.find_next_due(fixture.crm).await.unwrap(), None);
    assert!(fixture.find_oldest_due(fixture.now).await.unwrap().is_empty());
}

/// The delivery was cancelled at that time, with one recorded decision.
async fn assert_cancelled(fixture: &StoreFixture, event: EventId, at: Timestamp) {
    let detail = fixture.event_detail(event).await;
    let delivery = &detail.deliveries[0];
    assert_eq!((delivery.status, delivery.ended_at), (DeliveryStatus::Cancelled, Some(at)));
    let decisions =
        detail.decisions.iter().filter(|decisions| decisions.kind == EventDecisionKind::Cancelled);
    assert_eq!(decisions.count(), 1);
}

pub async fn large_backlog_of_deleted_destination_is_cancelled_in_slices(
    mut fixture: StoreFixture,
) {
    let events = fill_backlog(&fixture).await;
    let claimed = fixture.claim(fixture.crm, 700).await;
    let deleted_at = fixture.now;
    delete_crm(&fixture).await;

    for _ in 0..2 {
        fixture.wait(Duration::from_secs(1));
        assert!(fixture.cancel_for_deleted_destinations().await.unwrap(), "there is more");
        assert_eq!(count_all(&fixture).await, u64::try_from(BACKLOG).unwrap());
        assert_nothing_is_due(&fixture).await;
        fixture.reopen().await;
    }
    for late in [&claimed[0], &claimed[699]] {
        let late = fixture.settlement(late, NextStep::Succeeded);
        assert_eq!(fixture.settle(late).await.unwrap(), SettleResult::ClaimLost);
    }
    cancel_all(&fixture).await;

    assert_eq!(
        fixture.count_deliveries(DeliveryStatus::Cancelled).await,
        u64::try_from(BACKLOG).unwrap()
    );
    for event in events {
        assert_cancelled(&fixture, event, deleted_at).await;
    }
}

pub async fn delivery_not_yet_cancelled_behaves_as_cancelled(fixture: StoreFixture) {
    let events = fill_backlog(&fixture).await;
    delete_crm(&fixture).await;
    let mut waiting = None;
    for event in events {
        let delivery = fixture.only_delivery(event).await;
        if delivery.status != DeliveryStatus::Cancelled {
            waiting = Some(delivery);
        }
    }
    let Some(waiting) = waiting else { return };

    let (event, destination, request) = (waiting.event, fixture.crm, fixture.new_id());
    let request_to_join =
        JoinRequest { event, destination, request, revive: true, now: fixture.now };
    assert_eq!(fixture.join(request_to_join).await.unwrap(), JoinResult::Cancelled);
    // A user may cancel it before the slices do.
    let cancelled = fixture.cancel(waiting.id, fixture.now).await.unwrap();
    assert_eq!(cancelled, CancelResult::Done { destination });

    cancel_all(&fixture).await;
    assert_eq!(
        fixture.count_deliveries(DeliveryStatus::Cancelled).await,
        u64::try_from(BACKLOG).unwrap()
    );
}

pub async fn recreated_destination_gets_no_old_deliveries(fixture: StoreFixture) {
    fill_backlog(&fixture).await;
    delete_crm(&fixture).await;

    let put = vec![ConfigChange::PutDestination(fixture.crm, destination_spec("crm"))];
    fixture.change(put, fixture.now).await.unwrap();
    let new = fixture.accept(fixture.new_event()).await;
    cancel_all(&fixture).await;

    assert_eq!(fixture.claim_one(fixture.crm).await.event, new);
    assert_eq!(
        fixture.count_deliveries(DeliveryStatus::Cancelled).await,
        u64::try_from(BACKLOG).unwrap()
    );
}

pub async fn replay_job_of_deleted_destination_finishes(mut fixture: StoreFixture) {
    dead_letters(&fixture, BACKLOG).await;
    fixture.wait(TICK);
    let job = create_and_select(&fixture, retry(all())).await;
    advance(&fixture, job, BACKLOG).await;

    delete_crm(&fixture).await;
    cancel_all(&fixture).await;
    while advance(&fixture, job, STEP_LIMIT).await.state != ReplayState::Done {
        assert!(
            report(&fixture, job).await.progress().count(ReplayItemOutcome::Cancelled) > 0,
            "the job continues"
        );
    }

    let row = report(&fixture, job).await;
    assert_eq!(row.state, ReplayState::Done);
    assert_eq!(row.progress().count(ReplayItemOutcome::Cancelled), u64::try_from(BACKLOG).unwrap());
}

/// A [`ConfigChange`] with a short `Debug` output. There are few ids and names, so that they collide
/// often.
#[derive(Clone, Copy, Debug)]
enum ConfigEdit {
    PutSource { id: u8, name: &'static str, window: u64 },
    PutDestination { id: u8, name: &'static str, concurrency: u32 },
    PutRoute { id: u8, from: &'static str, to: &'static str },
    DeleteSource { id: u8 },
    DeleteDestination { id: u8 },
    DeleteRoute { id: u8 },
}

fn numbered_id<K: IdKind>(number: u8) -> Id<K> {
    Id::new(Timestamp::from_millis(7), u128::from(number) << 48)
}

impl ConfigEdit {
    fn change(self) -> ConfigChange {
        match self {
            Self::PutSource { id: number, name, window } => {
                let spec = SourceSpec {
                    dedup_window: Some(HumanDuration::from_secs(window)),
                    // The redaction settings of a source outlive it.
                    verify: Some(VerifySpec::Token { header: format!("X-{name}-{number}") }),
                    redact: vec!["pin".to_owned(); usize::from(number == 1)],
                    strip_secrets: window == 2,
                    ..source_spec(name)
                };
                ConfigChange::PutSource(numbered_id(number), spec)
            }
            Self::PutDestination { id: number, name, concurrency } => {
                let spec = DestinationSpec { concurrency, ..destination_spec(name) };
                ConfigChange::PutDestination(numbered_id(number), spec)
            }
            Self::PutRoute { id: number, from, to } => {
                ConfigChange::PutRoute(numbered_id(number), route(from, to))
            }
            Self::DeleteSource { id: number } => ConfigChange::DeleteSource(numbered_id(number)),
            Self::DeleteDestination { id: number } => {
                ConfigChange::DeleteDestination(numbered_id(number))
            }
            Self::DeleteRoute { id: number } => ConfigChange::DeleteRoute(numbered_id(number)),
        }
    }
}

fn config_edit() -> impl Strategy<Value = ConfigEdit> {
    let from = || select(vec!["shop", "bank", "post"]);
    let to = || select(vec!["crm", "mail", "zoo"]);
    prop_oneof![
        4 => (1..4_u8, from(), 1..3_u64)
            .prop_map(|(id, name, window)| ConfigEdit::PutSource { id, name, window }),
        4 => (1..4_u8, to(), 1..3_u32)
            .prop_map(|(id, name, concurrency)| ConfigEdit::PutDestination { id, name, concurrency }),
        4 => (1..4_u8, from(), to()).prop_map(|(id, from, to)| ConfigEdit::PutRoute { id, from, to }),
        1 => (1..4_u8).prop_map(|id| ConfigEdit::DeleteSource { id }),
        1 => (1..4_u8).prop_map(|id| ConfigEdit::DeleteDestination { id }),
        1 => (1..4_u8).prop_map(|id| ConfigEdit::DeleteRoute { id }),
    ]
}

/// Whether the change is valid: names are unique, and both ends of a route exist.
fn is_valid_change(configuration: &Configuration, change: &ConfigChange) -> bool {
    fn free<I: PartialEq, S>(
        list: &[StoredObject<I, S>],
        id: I,
        wanted: &Name,
        name: impl Fn(&S) -> &Name,
    ) -> bool {
        list.iter().all(|stored| stored.id == id || name(&stored.spec) != wanted)
    }
    match change {
        ConfigChange::PutSource(id, spec) => {
            free(&configuration.sources, *id, &spec.name, |spec| &spec.name)
        }
        ConfigChange::PutDestination(id, spec) => {
            free(&configuration.destinations, *id, &spec.name, |spec| &spec.name)
        }
        ConfigChange::PutRoute(_, spec) => {
            configuration.sources.iter().any(|source| source.spec.name == spec.from)
                && configuration.destinations.iter().any(|end| end.spec.name == spec.to)
        }
        ConfigChange::DeleteSource(_)
        | ConfigChange::DeleteDestination(_)
        | ConfigChange::DeleteRoute(_) => true,
    }
}

/// The configuration after `changes`, or an error if one of them is invalid.
fn expected_configuration(
    before: &Configuration,
    changes: &[ConfigChange],
    now: Timestamp,
) -> Result<Configuration, ()> {
    let mut after = before.clone();
    for change in changes {
        if !is_valid_change(&after, change) {
            return Err(());
        }
        after.apply(std::slice::from_ref(change), now);
    }
    Ok(after)
}

async fn check_changes(mut fixture: StoreFixture, steps: Vec<Vec<ConfigEdit>>) -> TestCaseResult {
    let clear = vec![
        ConfigChange::DeleteSource(fixture.shop),
        ConfigChange::DeleteSource(fixture.bank),
        ConfigChange::DeleteDestination(fixture.crm),
        ConfigChange::DeleteDestination(fixture.mail),
    ];
    fixture.change(clear, fixture.now).await.unwrap();
    let version = fixture.load_configuration_version().await.unwrap();
    let mut configuration = Configuration { version, ..Configuration::default() };
    for edits in steps {
        let changes: Vec<ConfigChange> = edits.iter().map(|edit| edit.change()).collect();
        fixture.wait(Duration::from_secs(1));
        let expected = expected_configuration(&configuration, &changes, fixture.now);

        let result = fixture.change(changes, fixture.now).await;

        prop_assert_eq!(result.is_ok(), expected.is_ok(), "{:?}: {:?}", edits, result);
        let found = fixture.load_configuration().await.unwrap();
        prop_assert_eq!(found.version > configuration.version, expected.is_ok());
        configuration = expected.unwrap_or(configuration);
        configuration.version = found.version;
        prop_assert_eq!(&found, &configuration, "{:?}", edits);
    }
    fixture.reopen().await;
    prop_assert_eq!(fixture.load_configuration().await.unwrap(), configuration);
    Ok(())
}

pub fn random_changes_match_configuration_apply<H: StoreHarness + 'static>(
    harness: impl Fn() -> H,
) {
    let steps = prop::collection::vec(prop::collection::vec(config_edit(), 1..5), 1..12);
    check_property(harness().random_cases(), steps, |steps| async {
        check_changes(StoreFixture::new(harness()).await, steps).await
    });
}
