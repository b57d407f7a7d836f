//! Sent messages: the provider's id and the daily count are stored with the settlement.

use std::time::Duration;

use surehook_core::store::{
    ClaimedDelivery, ConfigChange, NextStep, SentMessage, SettleResult, Settlement,
};
use surehook_messaging::store::{DailySendCount, SENT_DAYS_KEPT};
use surehook_types::ids::DestinationId;

use super::{StoreFixture, fixture::other_claim};

const DAY: Duration = Duration::from_secs(86_400);

fn today(fixture: &StoreFixture) -> i32 {
    i32::try_from(fixture.now.as_millis() / 86_400_000).unwrap()
}

/// The settlement of an attempt that sent a message.
fn sent_settlement(
    fixture: &StoreFixture,
    claimed: &ClaimedDelivery,
    id: Option<&str>,
    day: i32,
) -> Settlement {
    let sent = Some(SentMessage { id: id.map(str::to_owned), day });
    Settlement { sent, ..fixture.settlement(claimed, NextStep::Succeeded) }
}

/// Sends `count` messages to the CRM on a day.
async fn send(fixture: &StoreFixture, count: usize, day: i32) {
    for _ in 0..count {
        let (_, claimed) = fixture.accept_and_claim().await;
        fixture.settle(sent_settlement(fixture, &claimed, None, day)).await.unwrap();
    }
}

fn send_count(destination: DestinationId, day: i32, sent: u64) -> DailySendCount {
    DailySendCount { destination, day, sent }
}

pub async fn sent_message_stores_its_id_and_is_counted(mut fixture: StoreFixture) {
    let day = today(&fixture);
    let (event, claimed) = fixture.accept_and_claim().await;
    assert_eq!(fixture.only_delivery(event).await.sent_id, None);
    assert_eq!(fixture.count_sent_on(fixture.crm, day).await.unwrap(), 0);

    let settled =
        fixture.settle(sent_settlement(&fixture, &claimed, Some("wamid.1"), day)).await.unwrap();

    assert_eq!(settled, SettleResult::Recorded);
    fixture.reopen().await;
    assert_eq!(fixture.only_delivery(event).await.sent_id.as_deref(), Some("wamid.1"));
    let sent_id = fixture.delivery_detail(claimed.id).await.delivery.sent_id;
    assert_eq!(sent_id.as_deref(), Some("wamid.1"));
    assert_eq!(fixture.count_sent_on(fixture.crm, day).await.unwrap(), 1);
    assert_eq!(fixture.count_sent_on(fixture.crm, day + 1).await.unwrap(), 0);
    assert_eq!(fixture.count_sent_on(fixture.mail, day).await.unwrap(), 0);
}

pub async fn sent_messages_are_counted_per_day_and_destination(fixture: StoreFixture) {
    let day = today(&fixture);
    send(&fixture, 2, day - 1).await;
    send(&fixture, 3, day).await;
    send(&fixture, 1, day + 1).await;

    let counts = fixture.count_sent_by_day(day - 1..=day).await.unwrap();

    assert_eq!(counts, [send_count(fixture.crm, day - 1, 2), send_count(fixture.crm, day, 3)]);
    assert_eq!(fixture.count_sent_on(fixture.crm, day).await.unwrap(), 3);
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    assert!(fixture.count_sent_by_day(day - 1..=day + 1).await.unwrap().is_empty());
}

pub async fn rejected_settlement_is_not_counted_as_sent(fixture: StoreFixture) {
    let day = today(&fixture);
    let (event, claimed) = fixture.accept_and_claim().await;
    let good = sent_settlement(&fixture, &claimed, Some("wamid.1"), day);
    let lost = Settlement { proof: other_claim(&claimed), ..good.clone() };

    assert_eq!(fixture.settle(lost).await.unwrap(), SettleResult::ClaimLost);

    assert_eq!(fixture.count_sent_on(fixture.crm, day).await.unwrap(), 0);
    assert_eq!(fixture.only_delivery(event).await.sent_id, None);
    fixture.settle(good.clone()).await.unwrap();
    let again = fixture.settle(good).await.unwrap();
    assert_eq!(again, SettleResult::Recorded, "the same attempt");
    assert_eq!(fixture.count_sent_on(fixture.crm, day).await.unwrap(), 1);
}

pub async fn crash_outcome_counts_a_message_that_may_have_been_sent(mut fixture: StoreFixture) {
    let day = today(&fixture);
    let (_, claimed) = fixture.accept_and_claim().await;
    let ambiguous_send = Some(SentMessage { id: None, day });
    let outcome = fixture.ambiguous_settlement(&claimed, NextStep::RetryAt(fixture.now + DAY));
    fixture.record_crash_outcome(Settlement { sent: ambiguous_send, ..outcome }).await.unwrap();
    assert_eq!(fixture.count_sent_on(fixture.crm, day).await.unwrap(), 0);

    fixture.reopen().await;

    assert_eq!(fixture.count_sent_on(fixture.crm, day).await.unwrap(), 1);
}

pub async fn old_daily_send_counts_are_pruned(mut fixture: StoreFixture) {
    let day = today(&fixture);
    send(&fixture, 1, day - 1).await;
    send(&fixture, 1, day).await;
    let kept_for = DAY * u32::try_from(SENT_DAYS_KEPT).unwrap();

    fixture.wait(kept_for);
    fixture.prune_all(kept_for * 2).await;

    assert_eq!(
        fixture.count_sent_by_day(0..=day + 1).await.unwrap(),
        [send_count(fixture.crm, day, 1)]
    );
}
