//! A sender that comes again to an event which was given up gives it another chance.

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::NewEvent,
    store::{AdmitResult, ConfigChange, NextStep},
};
use tokio::task::JoinSet;

use super::World;

const DEAD: NextStep = NextStep::Dead(DeadReason::MaxRetries);

pub async fn duplicate_revives_an_event_whose_deliveries_are_all_dead(mut world: World) {
    let first = world.keyed_for_both("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, DEAD).await;
    world.finish_due(world.mail, DEAD).await;

    let mut revived = world.expect_duplicate(world.again(&first)).await.revived;

    revived.sort();
    assert_eq!(revived, [world.crm, world.mail]);
    world.reopen().await;
    let deliveries = world.detail(first.id).await.deliveries;
    assert_eq!(deliveries.len(), 4);
    for old in &first.deliveries {
        let was = deliveries.iter().find(|delivery| delivery.id == old.id).unwrap();
        let heir = deliveries.iter().find(|heir| heir.replay_of == Some(old.id)).unwrap();
        assert_eq!((was.status, was.replayed_by), (DeliveryStatus::Replayed, Some(heir.id)));
        assert_eq!((heir.status, heir.due_at), (DeliveryStatus::Pending, Some(world.now)));
        assert_eq!((heir.destination, heir.attempts), (old.destination, 0));
    }
    let claimed = world.claim_one(world.mail).await;
    assert_eq!((claimed.event, claimed.payload), (first.id, first.payload));
}

pub async fn duplicate_revives_nothing_while_one_delivery_is_not_dead(world: World) {
    let later = NextStep::RetryAt(world.now + std::time::Duration::from_secs(900));
    for (status, next) in [
        (DeliveryStatus::Pending, None),
        (DeliveryStatus::Scheduled, Some(later)),
        (DeliveryStatus::Succeeded, Some(NextStep::Succeeded)),
    ] {
        let first = world.keyed_for_both(status.as_str());
        world.accept(first.clone()).await;
        world.finish_due(world.crm, DEAD).await;
        if let Some(next) = next {
            world.finish_due(world.mail, next).await;
        }

        let duplicate = world.expect_duplicate(world.again(&first)).await;

        assert!(duplicate.revived.is_empty(), "case: {status:?}");
        let statuses = world.statuses(first.id).await;
        assert_eq!(statuses, [DeliveryStatus::Dead, status], "case: {status:?}");
        world.claim(world.mail, 9).await;
    }
    let in_flight = world.keyed_for_both("in flight");
    world.accept(in_flight.clone()).await;
    world.finish_due(world.crm, DEAD).await;
    world.claim_one(world.mail).await;
    assert!(world.expect_duplicate(world.again(&in_flight)).await.revived.is_empty());
}

pub async fn duplicate_revives_nothing_if_the_source_disables_it(world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, DEAD).await;
    let copy = NewEvent { revive_dead: false, ..world.again(&first) };

    let duplicate = world.expect_duplicate(copy).await;

    assert!(duplicate.revived.is_empty());
    assert_eq!(world.statuses(first.id).await, [DeliveryStatus::Dead]);
    assert_eq!(world.next_due(world.crm).await.unwrap(), None);
}

pub async fn ambiguous_dead_delivery_is_not_revived(world: World) {
    let first = world.keyed_for_both("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, NextStep::Dead(DeadReason::Ambiguous)).await;
    world.finish_due(world.mail, DEAD).await;

    let duplicate = world.expect_duplicate(world.again(&first)).await;

    assert_eq!(duplicate.revived, [world.mail], "what did not arrive is");
    assert!(world.claim(world.crm, 9).await.is_empty());
    assert_eq!(world.counts().dead[&DeadReason::Ambiguous].pending, 1);
}

pub async fn concurrent_duplicates_revive_once(world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, DEAD).await;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (store, copy) = (world.store(), world.again(&first));
        tasks.spawn(async move { store.admit([copy].into()).await.unwrap().remove(0) });
    }

    let told = tasks.join_all().await;

    let revived = told.iter().filter(
        |told| matches!(told, AdmitResult::Duplicate(duplicate) if !duplicate.revived.is_empty()),
    );
    assert_eq!(revived.count(), 1);
    assert_eq!(world.statuses(first.id).await, [DeliveryStatus::Replayed, DeliveryStatus::Pending]);
}

pub async fn revived_delivery_that_dies_is_revived_again(world: World) {
    let first = world.keyed("k");
    world.accept(first.clone()).await;
    for round in 1..4 {
        world.finish_due(world.crm, DEAD).await;

        let duplicate = world.expect_duplicate(world.again(&first)).await;

        assert_eq!(duplicate.revived, [world.crm], "round {round}");
        assert_eq!(world.detail(first.id).await.deliveries.len(), round + 1);
    }
    assert_eq!(world.count(DeliveryStatus::Replayed), 3);
    assert_eq!(world.counts().dead[&DeadReason::MaxRetries].total, 3);
    assert_eq!(world.counts().dead[&DeadReason::MaxRetries].pending, 0);
}

pub async fn delivery_to_deleted_destination_is_not_revived(world: World) {
    let first = world.keyed_for_both("k");
    world.accept(first.clone()).await;
    world.finish_due(world.crm, DEAD).await;
    world.finish_due(world.mail, DEAD).await;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();

    let duplicate = world.expect_duplicate(world.again(&first)).await;

    assert_eq!(duplicate.revived, [world.mail]);
    let statuses = world.statuses(first.id).await;
    assert_eq!(statuses.iter().filter(|status| **status == DeliveryStatus::Dead).count(), 1);
}
