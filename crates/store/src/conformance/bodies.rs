//! Deliveries that send something else than what came.

use std::time::Duration;

use bytes::Bytes;
use surehook_core::{
    delivery::DeadReason,
    event::{NewDeliveryBody, NewEvent},
    ids::RouteId,
    store::{ConfigChange, NextStep},
};

use super::World;

const MADE: &[u8] = br#"{"made":9007199254740993}"#;

/// An event for both; what the CRM gets is made by a route.
fn transformed(world: &World, key: &str, route: RouteId, body: Option<&[u8]>) -> NewEvent {
    let event = world.keyed_for_both(key);
    let body = body.map(Bytes::copy_from_slice);
    let bodies = vec![NewDeliveryBody { delivery: event.deliveries[0].id, route, body }];
    NewEvent { bodies, ..event }
}

pub async fn claim_returns_the_transformed_body(mut world: World) {
    let event = transformed(&world, "k", world.id(), Some(MADE));
    world.accept(event.clone()).await;
    world.reopen().await;

    let (made, came) = (world.claim_one(world.crm).await, world.claim_one(world.mail).await);

    assert_eq!(made.payload, event.payload.with_transformed_body(Bytes::from_static(MADE)));
    assert_eq!(came.payload, event.payload);
    assert_eq!((made.transform, came.transform), (None, None));
    assert_eq!(world.body(event.id).await.unwrap(), Some(event.payload.clone()));
    assert_eq!(world.find_delivery_body(made.id).await.unwrap().unwrap().body, MADE);
    assert_eq!(world.find_delivery_body(came.id).await.unwrap(), Some(event.payload));
    assert_eq!(world.find_delivery_body(world.id()).await.unwrap(), None);
}

pub async fn revived_and_replayed_deliveries_send_the_transformed_body(mut world: World) {
    let event = transformed(&world, "k", world.id(), Some(MADE));
    world.accept(event.clone()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    world.finish_due(world.mail, NextStep::Dead(DeadReason::MaxRetries)).await;

    world.expect_duplicate(world.again(&event)).await;

    let revived = world.claim_one(world.crm).await;
    assert_eq!(revived.payload.body, MADE);
    world.finish(&revived, NextStep::Succeeded).await;
    world.wait(Duration::from_secs(61));
    world.replay(revived.id, world.id(), world.now).await.unwrap();
    assert_eq!(world.claim_one(world.crm).await.payload.body, MADE);
}

pub async fn failed_transform_is_repeated_at_send_time(mut world: World) {
    let route = world.id();
    let event = transformed(&world, "k", route, None);
    world.accept(event.clone()).await;

    let claimed = world.claim_one(world.crm).await;

    assert_eq!((claimed.transform, &claimed.payload), (Some(route), &event.payload));
    assert_eq!(world.find_delivery_body(claimed.id).await.unwrap(), None, "nobody knows it yet");
    world.finish(&claimed, NextStep::Dead(DeadReason::PayloadError)).await;
    world.wait(Duration::from_secs(61));
    world.replay(claimed.id, world.id(), world.now).await.unwrap();
    assert_eq!(world.claim_one(world.crm).await.transform, Some(route));
}

pub async fn transformed_body_of_a_duplicate_is_not_stored(world: World) {
    let first = world.keyed_for_both("k");
    world.accept(first.clone()).await;
    let again = world.again(&first);
    let body = Some(Bytes::from_static(MADE));
    let bodies =
        vec![NewDeliveryBody { delivery: again.deliveries[0].id, route: world.id(), body }];
    world.expect_duplicate(NewEvent { bodies, ..again }).await;
    assert_eq!(world.claim_one(world.crm).await.payload, first.payload);
}

pub async fn transformed_body_for_deleted_destination_is_not_stored(world: World) {
    let event = transformed(&world, "k", world.id(), Some(MADE));
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    world.accept(event.clone()).await;
    assert_eq!(world.find_delivery_body(event.deliveries[0].id).await.unwrap(), None);
    assert_eq!(world.claim_one(world.mail).await.payload, event.payload);
}

pub async fn route_stores_its_transform(mut world: World) {
    let route = surehook_core::route::RouteSpec {
        transform: Some("{a: .\"ü\"}".to_owned()),
        ..super::configure::route("shop", "crm")
    };
    let id = world.id();
    world.change(vec![ConfigChange::PutRoute(id, route.clone())], world.now).await.unwrap();
    world.reopen().await;
    assert_eq!(world.configuration().await.unwrap().routes[0].spec, route);
    let plain = super::configure::route("shop", "crm");
    world.change(vec![ConfigChange::PutRoute(id, plain.clone())], world.now).await.unwrap();
    assert_eq!(world.configuration().await.unwrap().routes[0].spec, plain);
}
