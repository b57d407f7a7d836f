//! Callbacks: due when their delivery has ended, in whatever way, and ended once.

use std::sync::Arc;

use surehook_core::{
    callback::{Callback, CallbackResult, DeliveryEnd, DueCallback},
    decision::EventDecisionKind,
    event::{NewDelivery, NewEvent},
    store::{ConfigChange, NextStep},
};
use surehook_retry::DeadReason;
use surehook_types::ids::EventId;

use super::StoreFixture;

fn callback(fixture: &StoreFixture) -> Callback {
    Callback {
        destination: fixture.mail,
        path: "/done".to_owned(),
        query: Some("a=1".to_owned()),
        on: DeliveryEnd::ALL.to_vec(),
    }
}

async fn accept_with_callback(fixture: &StoreFixture) -> EventId {
    let callback = Some(Arc::new(callback(fixture)));
    let deliveries = vec![NewDelivery { callback, ..fixture.delivery_to(fixture.crm) }];
    fixture.accept(NewEvent { deliveries, ..fixture.new_event() }).await
}

async fn due(fixture: &StoreFixture) -> Vec<DueCallback> {
    fixture.list_due_callbacks(None, 10).await.unwrap()
}

pub async fn callback_is_due_when_its_delivery_has_ended(fixture: StoreFixture) {
    let dead = accept_with_callback(&fixture).await;
    fixture.accept(fixture.new_event()).await;
    assert_eq!(due(&fixture).await, []);

    for claimed in fixture.claim(fixture.crm, 9).await {
        fixture.finish(&claimed, NextStep::RetryAt(fixture.now)).await;
        assert_eq!(due(&fixture).await, [], "a retry is no end");
    }
    for claimed in fixture.claim(fixture.crm, 9).await {
        fixture.finish(&claimed, NextStep::Dead(DeadReason::MaxRetries)).await;
    }

    let due = due(&fixture).await;
    assert_eq!(due.len(), 1, "{due:?}");
    assert_eq!((due[0].event, due[0].end), (dead, DeliveryEnd::Dead));
    assert_eq!((due[0].reason, due[0].attempts), (Some(DeadReason::MaxRetries), 2));
    assert_eq!((&due[0].callback, due[0].ended_at), (&callback(&fixture), fixture.now));
    assert!(due[0].last_attempt.is_some());
}

pub async fn every_way_to_end_makes_a_callback_due(fixture: StoreFixture) {
    accept_with_callback(&fixture).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let cancelled = accept_with_callback(&fixture).await;
    let delivery = fixture.only_delivery(cancelled).await.id;
    fixture.cancel(delivery, fixture.now).await.unwrap();
    accept_with_callback(&fixture).await;

    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;

    let ends: Vec<_> = due(&fixture).await.iter().map(|due| due.end).collect();
    assert_eq!(ends, [DeliveryEnd::Succeeded, DeliveryEnd::Cancelled, DeliveryEnd::Cancelled]);
}

pub async fn due_callback_survives_a_restart_and_is_ended_once(mut fixture: StoreFixture) {
    let event = accept_with_callback(&fixture).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.reopen().await;
    let delivery = due(&fixture).await[0].delivery;
    assert_eq!(fixture.list_due_callbacks(Some(delivery), 10).await.unwrap(), []);

    for _repeated in 0..2 {
        let posted = CallbackResult::Posted(fixture.new_id());
        fixture.end_callback(delivery, posted, fixture.now).await.unwrap();
    }

    assert_eq!(due(&fixture).await, []);
    let decisions = fixture.event_detail(event).await.decisions;
    let posted = decisions.iter().filter(|row| row.kind == EventDecisionKind::CallbackPosted);
    assert_eq!(posted.count(), 1);
}

pub async fn replay_has_a_callback_of_its_own(fixture: StoreFixture) {
    accept_with_callback(&fixture).await;
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    let first = due(&fixture).await.remove(0);

    let replay = fixture.replay_now(first.delivery).await;

    let due_now = due(&fixture).await;
    assert_eq!(due_now.len(), 1, "a delivery that was replayed still reports how it ended");
    assert_eq!((due_now[0].delivery, due_now[0].end), (first.delivery, DeliveryEnd::Dead));
    fixture.end_callback(first.delivery, CallbackResult::NotRequested, fixture.now).await.unwrap();
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    let due = due(&fixture).await;
    assert_eq!(due.len(), 1, "{due:?}");
    assert_eq!((due[0].delivery, due[0].end), (replay, DeliveryEnd::Succeeded));
}
