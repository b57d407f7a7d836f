//! Transformed bodies: deliveries that send another body than the received one.

use std::time::Duration;

use bytes::Bytes;
use surehook_core::{
    decision::{EventDecisionKind, NotRoutedReason},
    delivery::state::DeliveryStatus,
    event::{NewDeliveryBody, NewEvent, PendingRoute},
    store::{ConfigChange, HeldClaim, NextStep, SettleResult},
};
use surehook_retry::DeadReason;
use surehook_types::ids::RouteId;
use surehook_webhooks::attribute::EventKind;

use super::{
    StoreFixture,
    fixture::{held_claim, other_claim},
};

const TRANSFORMED: &[u8] = br#"{"made":9007199254740993}"#;

/// An event for both destinations whose body for the CRM is transformed by a route.
fn transformed(fixture: &StoreFixture, key: &str, route: RouteId, body: Option<&[u8]>) -> NewEvent {
    let event = fixture.event_for_both(key);
    let body = body.map(Bytes::copy_from_slice);
    let bodies = vec![NewDeliveryBody {
        delivery: event.deliveries[0].id,
        route,
        body,
        filter_failed: false,
    }];
    NewEvent { bodies, ..event }
}

pub async fn claim_returns_the_transformed_body(mut fixture: StoreFixture) {
    let event = transformed(&fixture, "k", fixture.new_id(), Some(TRANSFORMED));
    fixture.accept(event.clone()).await;
    fixture.reopen().await;

    let (transformed, untouched) =
        (fixture.claim_one(fixture.crm).await, fixture.claim_one(fixture.mail).await);

    assert_eq!(
        transformed.payload,
        event.payload.with_transformed_body(Bytes::from_static(TRANSFORMED))
    );
    assert_eq!(untouched.payload, event.payload);
    assert_eq!((transformed.pending_route, untouched.pending_route), (None, None));
    assert_eq!(fixture.find_body(event.id).await.unwrap(), Some(event.payload.clone()));
    assert_eq!(
        fixture.find_delivery_body(transformed.id).await.unwrap().unwrap().body,
        TRANSFORMED
    );
    assert_eq!(fixture.find_delivery_body(untouched.id).await.unwrap(), Some(event.payload));
    assert_eq!(fixture.find_delivery_body(fixture.new_id()).await.unwrap(), None);
}

pub async fn revived_and_replayed_deliveries_send_the_transformed_body(mut fixture: StoreFixture) {
    let event = transformed(&fixture, "k", fixture.new_id(), Some(TRANSFORMED));
    fixture.accept(event.clone()).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    fixture.finish_due(fixture.mail, NextStep::Dead(DeadReason::MaxRetries)).await;

    fixture.expect_duplicate(fixture.repeat_of(&event)).await;

    let revived = fixture.claim_one(fixture.crm).await;
    assert_eq!(revived.payload.body, TRANSFORMED);
    fixture.finish(&revived, NextStep::Succeeded).await;
    fixture.wait(Duration::from_secs(61));
    fixture.replay(revived.id, fixture.new_id(), fixture.now).await.unwrap();
    assert_eq!(fixture.claim_one(fixture.crm).await.payload.body, TRANSFORMED);
}

pub async fn failed_transform_is_repeated_at_send_time(mut fixture: StoreFixture) {
    let route = fixture.new_id();
    let event = transformed(&fixture, "k", route, None);
    fixture.accept(event.clone()).await;

    let claimed = fixture.claim_one(fixture.crm).await;

    let pending = Some(PendingRoute { id: route, runs_filter: false, kind: event.kind.clone() });
    assert_eq!((&claimed.pending_route, &claimed.payload), (&pending, &event.payload));
    assert_eq!(
        fixture.find_delivery_body(claimed.id).await.unwrap(),
        None,
        "the transformed body is not known yet"
    );
    fixture.finish(&claimed, NextStep::Dead(DeadReason::PayloadError)).await;
    fixture.wait(Duration::from_secs(61));
    fixture.replay(claimed.id, fixture.new_id(), fixture.now).await.unwrap();
    assert_eq!(fixture.claim_one(fixture.crm).await.pending_route, pending);
}

#[expect(clippy::cognitive_complexity, reason = "one scenario from the failure to its replay")]
pub async fn failed_filter_is_repeated_at_send_time_and_may_cancel_the_delivery(
    mut fixture: StoreFixture,
) {
    let route = fixture.new_id();
    let mut event = transformed(&fixture, "k", route, None);
    event.bodies[0].filter_failed = true;
    event.kind = EventKind::new("paid");
    fixture.accept(event.clone()).await;
    let claimed = fixture.claim_one(fixture.crm).await;
    let pending = Some(PendingRoute { id: route, runs_filter: true, kind: EventKind::new("paid") });
    assert_eq!(claimed.pending_route, pending);
    fixture.finish(&claimed, NextStep::Dead(DeadReason::PayloadError)).await;
    fixture.wait(Duration::from_secs(61));
    fixture.replay(claimed.id, fixture.new_id(), fixture.now).await.unwrap();
    fixture.reopen().await;
    let replayed = fixture.claim_one(fixture.crm).await;
    assert_eq!(replayed.pending_route, pending);

    let stale = HeldClaim { proof: other_claim(&replayed), ..held_claim(&replayed) };
    let reason = NotRoutedReason::FilterFalse;
    assert!(!fixture.cancel_claimed(stale, reason.clone(), fixture.now).await.unwrap());
    let cancelled = async |fixture: &StoreFixture| {
        let by_status = fixture.counts().await.by_status;
        by_status.get(&DeliveryStatus::Cancelled).copied().unwrap_or_default()
    };
    let before = cancelled(&fixture).await;
    assert!(fixture.cancel_claimed(held_claim(&replayed), reason, fixture.now).await.unwrap());

    let found = fixture.find_delivery(replayed.id).await.unwrap().unwrap();
    assert_eq!(found.delivery.status, DeliveryStatus::Cancelled);
    assert_eq!(found.attempts, []);
    assert_eq!(cancelled(&fixture).await, before + 1);
    let decisions = fixture.find_event(event.id).await.unwrap().unwrap().decisions;
    let last = decisions.last().unwrap();
    assert_eq!((last.kind, last.delivery), (EventDecisionKind::Cancelled, Some(replayed.id)));
    assert_eq!(last.detail["why"], "filter_false");
    let late = fixture.settlement(&replayed, NextStep::Succeeded);
    assert_eq!(fixture.settle(late).await.unwrap(), SettleResult::ClaimLost);
}

pub async fn transformed_body_of_a_duplicate_is_not_stored(fixture: StoreFixture) {
    let first = fixture.event_for_both("k");
    fixture.accept(first.clone()).await;
    let again = fixture.repeat_of(&first);
    let body = Some(Bytes::from_static(TRANSFORMED));
    let bodies = vec![NewDeliveryBody {
        delivery: again.deliveries[0].id,
        route: fixture.new_id(),
        body,
        filter_failed: false,
    }];
    fixture.expect_duplicate(NewEvent { bodies, ..again }).await;
    assert_eq!(fixture.claim_one(fixture.crm).await.payload, first.payload);
}

pub async fn transformed_body_for_deleted_destination_is_not_stored(fixture: StoreFixture) {
    let event = transformed(&fixture, "k", fixture.new_id(), Some(TRANSFORMED));
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    fixture.accept(event.clone()).await;
    assert_eq!(fixture.find_delivery_body(event.deliveries[0].id).await.unwrap(), None);
    assert_eq!(fixture.claim_one(fixture.mail).await.payload, event.payload);
}

pub async fn route_stores_its_transform(mut fixture: StoreFixture) {
    let route = surehook_core::route::RouteSpec {
        transform: Some("{a: .\"ü\"}".to_owned()),
        ..super::configuration::route("shop", "crm")
    };
    let id = fixture.new_id();
    fixture.apply(ConfigChange::PutRoute(id, route.clone())).await;
    fixture.reopen().await;
    assert_eq!(fixture.load_configuration().await.unwrap().routes[0].spec, route);
    let plain = super::configuration::route("shop", "crm");
    fixture.apply(ConfigChange::PutRoute(id, plain.clone())).await;
    assert_eq!(fixture.load_configuration().await.unwrap().routes[0].spec, plain);
}
