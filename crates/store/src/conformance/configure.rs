//! What people configure, and what a change does to what is already under way.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::{NewDelivery, NewEvent},
    ids::{DestinationId, RouteId, SourceId},
    route::RouteSpec,
    store::{AdmitResult, ConfigChange, NextStep, StoreError},
    time::HumanDuration,
};

use super::{
    World,
    samples::{destination, source},
};

/// A route that takes everything.
pub(super) fn route(from: &str, to: &str) -> RouteSpec {
    RouteSpec {
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        filter: None,
        transform: None,
    }
}

pub async fn stored_configuration_is_read_back(mut world: World) {
    let put_at = world.now;
    let first: RouteId = world.id();
    let second: RouteId = world.id();
    let filtered = RouteSpec { filter: Some(".a == \"ü\"".to_owned()), ..route("bank", "mail") };
    let changes = vec![
        ConfigChange::PutRoute(second, route("shop", "crm")),
        ConfigChange::PutRoute(first, filtered.clone()),
    ];
    world.change(changes, put_at).await.unwrap();
    world.wait(Duration::from_secs(5));
    let mut spec = source("shop");
    spec.dedup_window = Some(HumanDuration::from_secs(1));
    world.change(vec![ConfigChange::PutSource(world.shop, spec.clone())], world.now).await.unwrap();

    world.reopen().await;

    let found = world.configuration().await.unwrap();
    let sources: Vec<_> = found.sources.iter().map(|s| s.spec.name.as_str()).collect();
    assert_eq!(sources, ["bank", "shop"], "by name");
    assert_eq!(found.sources[1].spec, spec);
    assert_eq!((found.sources[1].created_at, found.sources[1].updated_at), (put_at, world.now));
    assert_eq!(found.destinations[0].spec, destination("crm"));
    let routes: Vec<_> = found.routes.iter().map(|r| (r.id, r.spec.clone())).collect();
    assert_eq!(routes, [(second, route("shop", "crm")), (first, filtered)], "oldest first");
}

pub async fn renamed_source_and_destination_keep_their_routes(world: World) {
    let changes = vec![
        ConfigChange::PutRoute(world.id(), route("shop", "crm")),
        ConfigChange::PutSource(world.shop, source("store")),
        ConfigChange::PutDestination(world.crm, destination("sales")),
    ];

    world.change(changes, world.now).await.unwrap();

    assert_eq!(world.configuration().await.unwrap().routes[0].spec, route("store", "sales"));
    world.accept(world.arrival()).await;
    assert_eq!(world.claim(world.crm, 9).await.len(), 1);
}

pub async fn name_in_use_is_refused(world: World) {
    let before = world.configuration().await.unwrap();

    let source =
        world.change(vec![ConfigChange::PutSource(world.id(), source("shop"))], world.now).await;
    let renamed = ConfigChange::PutDestination(world.mail, destination("crm"));
    let destination = world.change(vec![renamed], world.now).await;

    assert!(matches!(source, Err(StoreError::Refused(_))), "{source:?}");
    assert!(matches!(destination, Err(StoreError::Refused(_))), "{destination:?}");
    assert_eq!(world.configuration().await.unwrap(), before);
}

pub async fn name_can_be_reused_after_deletion(world: World) {
    let (new_source, new_destination): (SourceId, DestinationId) = (world.id(), world.id());
    let changes = vec![
        ConfigChange::DeleteSource(world.shop),
        ConfigChange::PutSource(new_source, source("shop")),
        ConfigChange::DeleteDestination(world.crm),
        ConfigChange::PutDestination(new_destination, destination("crm")),
        ConfigChange::PutRoute(world.id(), route("shop", "crm")),
    ];

    world.change(changes, world.now).await.unwrap();

    let found = world.configuration().await.unwrap();
    assert!(found.sources.iter().any(|stored| stored.id == new_source));
    assert_eq!(found.sources.len(), 2);
    assert_eq!(found.routes.len(), 1);
    let deliveries = vec![world.to(new_destination)];
    world.accept(NewEvent { source: new_source, deliveries, ..world.arrival() }).await;
    assert_eq!(world.claim(new_destination, 9).await.len(), 1);
}

pub async fn route_with_unknown_source_or_destination_is_refused(world: World) {
    for (from, to) in [("nobody", "crm"), ("shop", "nobody"), ("crm", "shop")] {
        let refused =
            world.change(vec![ConfigChange::PutRoute(world.id(), route(from, to))], world.now);
        let refused = refused.await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{from} to {to}: {refused:?}");
    }
    assert!(world.configuration().await.unwrap().routes.is_empty());
}

pub async fn changes_with_one_invalid_change_are_not_applied(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let before = world.configuration().await.unwrap();
    let changes = vec![
        ConfigChange::PutSource(world.id(), source("new")),
        ConfigChange::DeleteDestination(world.crm),
        ConfigChange::PutRoute(world.id(), route("new", "crm")),
    ];

    assert!(world.change(changes, world.now).await.is_err());

    world.reopen().await;
    assert_eq!(world.configuration().await.unwrap(), before);
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Pending]);
    assert_eq!(world.claim(world.crm, 9).await.len(), 1);
}

pub async fn source_created_and_deleted_in_one_change_does_not_exist(world: World) {
    let (brief, nowhere): (SourceId, DestinationId) = (world.id(), world.id());
    let before = world.configuration().await.unwrap();
    let changes = vec![
        ConfigChange::PutSource(brief, source("brief")),
        ConfigChange::PutDestination(nowhere, destination("nowhere")),
        ConfigChange::PutRoute(world.id(), route("brief", "nowhere")),
        ConfigChange::DeleteSource(brief),
        ConfigChange::DeleteDestination(nowhere),
        ConfigChange::DeleteSource(brief),
    ];

    world.change(changes, world.now).await.unwrap();

    assert_eq!(world.configuration().await.unwrap(), before);
    let too_late = NewEvent { source: brief, ..world.arrival() };
    assert_eq!(world.admit(vec![too_late]).await.unwrap(), [AdmitResult::SourceGone]);
}

pub async fn deleted_source_rejects_new_events_and_keeps_old_ones(world: World) {
    let event = world.accept(world.arrival()).await;
    let route_id = world.id();
    let put = vec![ConfigChange::PutRoute(route_id, route("shop", "crm"))];
    world.change(put, world.now).await.unwrap();

    world.change(vec![ConfigChange::DeleteSource(world.shop)], world.now).await.unwrap();

    assert_eq!(world.admit(vec![world.arrival()]).await.unwrap(), [AdmitResult::SourceGone]);
    assert_eq!(world.detail(event).await.event.source, world.shop);
    assert!(world.configuration().await.unwrap().routes.is_empty());
    // What was accepted is still owed.
    world.finish_due(world.crm, NextStep::Succeeded).await;
    assert_eq!(world.statuses(event).await, [DeliveryStatus::Succeeded]);
}

pub async fn deleting_a_destination_cancels_unfinished_deliveries(mut world: World) {
    let events: Vec<NewEvent> = (0..5).map(|n| world.keyed_for_both(&format!("k{n}"))).collect();
    world.admit(events.clone()).await.unwrap();
    let ends =
        [NextStep::Succeeded, NextStep::Dead(DeadReason::Expired), NextStep::RetryAt(world.now)];
    let claimed = world.claim(world.crm, 4).await;
    for (claimed, next) in claimed.iter().zip(ends) {
        world.finish(claimed, next).await;
    }
    world.wait(Duration::from_secs(1));

    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();

    let gone = DeliveryStatus::Cancelled;
    let statuses = [DeliveryStatus::Succeeded, DeliveryStatus::Dead, gone, gone, gone];
    for (event, status) in events.iter().zip(statuses) {
        let kept = world.delivery_detail(event.deliveries[0].id).await.delivery;
        assert_eq!((kept.status, kept.due_at), (status, None));
        assert_eq!(kept.ended_at == Some(world.now), status == gone);
    }
    assert_eq!((world.count(gone), world.count(DeliveryStatus::Pending)), (3, 5));
    assert_eq!(
        (world.count(DeliveryStatus::InFlight), world.count(DeliveryStatus::Scheduled)),
        (0, 0)
    );
}

pub async fn deleted_destination_has_no_due_deliveries(world: World) {
    world.accept(world.keyed_for_both("k")).await;

    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();

    assert!(world.claim(world.crm, 9).await.is_empty());
    assert_eq!(world.next_due(world.crm).await.unwrap(), None);
    assert!(!world.oldest_due(world.now).await.unwrap().contains_key(&world.crm));
    assert_eq!(world.claim(world.mail, 9).await.len(), 1, "the other one is owed as before");
}

pub async fn delivery_to_deleted_or_unknown_destination_is_not_stored(world: World) {
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    let nowhere = NewDelivery { destination: world.id(), ..world.to(world.mail) };
    let deliveries = vec![world.to(world.crm), nowhere, world.to(world.mail)];

    let event = world.accept(NewEvent { deliveries, ..world.arrival() }).await;

    assert_eq!(world.only_delivery(event).await.destination, world.mail);
    assert_eq!(world.count(DeliveryStatus::Pending), 1);
}

pub async fn deleted_source_and_destination_can_be_created_again(mut world: World) {
    let event = world.accept(world.arrival()).await;
    let delete =
        vec![ConfigChange::DeleteSource(world.shop), ConfigChange::DeleteDestination(world.crm)];
    world.change(delete, world.now).await.unwrap();
    world.wait(Duration::from_secs(5));

    let put = vec![
        ConfigChange::PutSource(world.shop, source("shop")),
        ConfigChange::PutDestination(world.crm, destination("crm")),
    ];
    world.change(put, world.now).await.unwrap();

    let found = world.configuration().await.unwrap();
    assert_eq!(found.sources[1].created_at, world.now);
    assert_eq!(
        world.statuses(event).await,
        [DeliveryStatus::Cancelled],
        "a debt does not come back"
    );
    world.accept(world.arrival()).await;
    assert_eq!(world.claim(world.crm, 9).await.len(), 1);
}
