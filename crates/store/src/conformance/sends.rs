//! What was sent is named and counted in the step that records it.

use std::time::Duration;

use surehook_core::{
    delivery::LeaseToken,
    ids::DestinationId,
    store::{
        ClaimedDelivery, ConfigChange, DailySendCount, NextStep, SENT_DAYS_KEPT, SentMessage,
        SettleResult, Settlement,
    },
};

use super::World;

const DAY: Duration = Duration::from_secs(86_400);

fn today(world: &World) -> i32 {
    i32::try_from(world.now.as_millis() / 86_400_000).unwrap()
}

/// The end of an attempt that sent something.
fn sent(world: &World, claimed: &ClaimedDelivery, id: Option<&str>, day: i32) -> Settlement {
    let sent = Some(SentMessage { id: id.map(str::to_owned), day });
    Settlement { sent, ..world.settlement(claimed, NextStep::Succeeded) }
}

/// Sends `many` messages to the CRM on a day.
async fn send(world: &World, many: usize, day: i32) {
    for _ in 0..many {
        world.accept(world.arrival()).await;
        let claimed = world.claim_one(world.crm).await;
        world.settle(sent(world, &claimed, None, day)).await.unwrap();
    }
}

fn on(destination: DestinationId, day: i32, sent: u64) -> DailySendCount {
    DailySendCount { destination, day, sent }
}

pub async fn sent_message_stores_its_id_and_is_counted(mut world: World) {
    let day = today(&world);
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(world.only_delivery(event).await.sent_id, None);
    assert_eq!(world.count_sent_on(world.crm, day).await.unwrap(), 0);

    let settled = world.settle(sent(&world, &claimed, Some("wamid.1"), day)).await.unwrap();

    assert_eq!(settled, SettleResult::Recorded);
    world.reopen().await;
    assert_eq!(world.only_delivery(event).await.sent_id.as_deref(), Some("wamid.1"));
    let shown = world.delivery_detail(claimed.id).await.delivery.sent_id;
    assert_eq!(shown.as_deref(), Some("wamid.1"));
    assert_eq!(world.count_sent_on(world.crm, day).await.unwrap(), 1);
    assert_eq!(world.count_sent_on(world.crm, day + 1).await.unwrap(), 0);
    assert_eq!(world.count_sent_on(world.mail, day).await.unwrap(), 0);
}

pub async fn sent_messages_are_counted_per_day_and_destination(world: World) {
    let day = today(&world);
    send(&world, 2, day - 1).await;
    send(&world, 3, day).await;
    send(&world, 1, day + 1).await;

    let told = world.count_sent_by_day(day - 1..=day).await.unwrap();

    assert_eq!(told, [on(world.crm, day - 1, 2), on(world.crm, day, 3)]);
    assert_eq!(world.count_sent_on(world.crm, day).await.unwrap(), 3);
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    assert!(world.count_sent_by_day(day - 1..=day + 1).await.unwrap().is_empty());
}

pub async fn rejected_settlement_is_not_counted_as_sent(world: World) {
    let day = today(&world);
    let event = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let good = sent(&world, &claimed, Some("wamid.1"), day);
    let lost = Settlement { token: LeaseToken(-1), ..good.clone() };

    assert_eq!(world.settle(lost).await.unwrap(), SettleResult::LeaseLost);

    assert_eq!(world.count_sent_on(world.crm, day).await.unwrap(), 0);
    assert_eq!(world.only_delivery(event).await.sent_id, None);
    world.settle(good.clone()).await.unwrap();
    assert_eq!(world.settle(good).await.unwrap(), SettleResult::LeaseLost);
    assert_eq!(world.count_sent_on(world.crm, day).await.unwrap(), 1);
}

pub async fn crash_outcome_counts_a_message_that_may_have_been_sent(mut world: World) {
    let day = today(&world);
    world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let may_have_been = Some(SentMessage { id: None, day });
    let will = world.will(&claimed, NextStep::RetryAt(world.now + DAY));
    world.record_crash_outcome(Settlement { sent: may_have_been, ..will }).await.unwrap();
    assert_eq!(world.count_sent_on(world.crm, day).await.unwrap(), 0);

    world.die().await;

    assert_eq!(world.count_sent_on(world.crm, day).await.unwrap(), 1);
}

pub async fn old_daily_send_counts_are_pruned(mut world: World) {
    let day = today(&world);
    send(&world, 1, day - 1).await;
    send(&world, 1, day).await;
    let kept_for = DAY * u32::try_from(SENT_DAYS_KEPT).unwrap();

    world.wait(kept_for);
    world.prune_all(kept_for * 2).await;

    assert_eq!(world.count_sent_by_day(0..=day + 1).await.unwrap(), [on(world.crm, day, 1)]);
}
