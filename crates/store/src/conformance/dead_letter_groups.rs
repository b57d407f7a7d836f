//! Groups of dead letters by cause, and their counts after every kind of transition.

use std::time::Duration;

use surehook_core::{
    dead_letters::{DeadLetterCause, DeadLetterGroup, DeadLetterGroupFilter},
    delivery::state::DeliveryStatus,
    event::{NewEvent, ProviderStatus},
    replay::{PreviewDepth, ReplayFilter},
    retention::RetentionSpec,
    store::{ConfigChange, DeliveryFilter, NextStep, REPLAY_INTERVAL, SettleResult},
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, GroupId},
    time::HumanDuration,
};

use super::{
    StoreFixture,
    fixture::{first_page, read_pages},
    replay_jobs::{DEAD, STEP_LIMIT, TICK, advance, all, create_and_select, report, resend, retry},
    statuses::send_status,
};

const DAY: Duration = Duration::from_secs(86_400);
const SERVER_RETENTION: Duration = Duration::from_secs(30 * 86_400);
const DEAD_AMBIGUOUS: NextStep = NextStep::Dead(DeadReason::Ambiguous);
const DEAD_UNRECOVERABLE: NextStep = NextStep::Dead(DeadReason::Unrecoverable);

/// Accepts an event whose delivery fails with this response and becomes a dead letter.
async fn create_dead_letter(
    fixture: &StoreFixture,
    event: NewEvent,
    response: &str,
) -> (EventId, DeliveryId) {
    let (to, delivery) = (event.deliveries[0].destination, event.deliveries[0].id);
    let event = fixture.accept(event).await;
    let claimed = fixture.claim_one(to).await;
    let mut settlement = fixture.settlement(&claimed, DEAD);
    settlement.attempt.response = response.as_bytes().to_vec();
    assert_eq!(fixture.settle(settlement).await.unwrap(), SettleResult::Recorded);
    (event, delivery)
}

async fn list_groups(
    fixture: &StoreFixture,
    filter: DeadLetterGroupFilter,
) -> Vec<DeadLetterGroup> {
    let page = first_page(1000);
    fixture.list_dead_letter_groups(filter, page).await.unwrap().rows
}

async fn list_all_groups(fixture: &StoreFixture) -> Vec<DeadLetterGroup> {
    list_groups(fixture, DeadLetterGroupFilter::default()).await
}

async fn counts(fixture: &StoreFixture) -> Vec<(String, u64)> {
    let mut counts: Vec<_> = list_all_groups(fixture)
        .await
        .into_iter()
        .map(|group| (group.cause.shape, group.count))
        .collect();
    counts.sort();
    counts
}

/// Asserts the shapes and counts of all groups, ordered by shape.
async fn assert_groups(fixture: &StoreFixture, expected: &[(&str, u64)]) {
    let counts = counts(fixture).await;
    let seen: Vec<_> = counts.iter().map(|(shape, count)| (shape.as_str(), *count)).collect();
    assert_eq!(seen, expected);
}

async fn list_group_members(
    fixture: &StoreFixture,
    group: GroupId,
    status: Option<DeliveryStatus>,
) -> Vec<DeliveryId> {
    let filter = DeliveryFilter { group: Some(group), status, ..DeliveryFilter::default() };
    let page = first_page(1000);
    let rows = fixture.list_deliveries(filter, page).await.unwrap().rows;
    assert!(rows.iter().all(|row| row.group == Some(group) && row.status == DeliveryStatus::Dead));
    rows.iter().map(|row| row.id).collect()
}

pub async fn dead_deliveries_with_one_cause_form_one_group(mut fixture: StoreFixture) {
    let first_at = fixture.now;
    let (_, first) = create_dead_letter(&fixture, fixture.new_event(), "order 17 is closed").await;
    fixture.wait(TICK);
    let (event, second) =
        create_dead_letter(&fixture, fixture.new_event(), "order 4711 is closed").await;
    let last_at = fixture.now;
    let (_, other) = create_dead_letter(&fixture, fixture.new_event(), "go away").await;

    fixture.reopen().await;

    assert_groups(&fixture, &[("400: go away", 1), ("400: order # is closed", 2)]).await;
    let closed =
        list_all_groups(&fixture).await.into_iter().find(|group| group.count == 2).unwrap();
    let shape = "400: order # is closed".to_owned();
    let cause = DeadLetterCause {
        class: Some(FailureClass::Permanent),
        http_status: Some(400),
        failure: None,
        shape,
    };
    let expected = DeadLetterGroup {
        id: cause.group_id(fixture.crm),
        destination: fixture.crm,
        cause,
        reason: DeadReason::MaxRetries,
        count: 2,
        first_seen: first_at,
        last_seen: last_at,
        newest_delivery: second,
        newest_event: event,
        sample_detail: None,
        sample_response: b"order 4711 is closed".to_vec(),
    };
    assert_eq!(closed, expected);
    for status in [None, Some(DeliveryStatus::Dead)] {
        assert_eq!(list_group_members(&fixture, closed.id, status).await, [second, first]);
    }
    assert!(
        list_group_members(&fixture, closed.id, Some(DeliveryStatus::Succeeded)).await.is_empty()
    );
    let row = fixture.delivery_detail(other).await.delivery;
    assert_eq!(
        list_groups(&fixture, DeadLetterGroupFilter { id: row.group, ..Default::default() })
            .await
            .len(),
        1
    );
}

pub async fn delivery_that_is_no_longer_dead_leaves_its_group(mut fixture: StoreFixture) {
    let keyed = fixture.event_with_key("k");
    let (_, first) = create_dead_letter(&fixture, fixture.new_event(), "closed").await;
    create_dead_letter(&fixture, keyed.clone(), "closed").await;
    let (_, third) = create_dead_letter(&fixture, fixture.new_event(), "closed").await;
    fixture.wait(REPLAY_INTERVAL);

    fixture.replay_now(third).await;
    assert_groups(&fixture, &[("400: closed", 2)]).await;
    assert_eq!(fixture.delivery_detail(third).await.delivery.group, None);
    assert_ne!(
        list_all_groups(&fixture).await[0].newest_delivery,
        third,
        "the newest member is dead"
    );

    assert!(fixture.expect_duplicate(fixture.repeat_of(&keyed)).await.revived.len() == 1);
    assert_groups(&fixture, &[("400: closed", 1)]).await;

    fixture.replay_now(first).await;
    assert_groups(&fixture, &[]).await;
    fixture.reopen().await;
    assert_groups(&fixture, &[]).await;

    fixture.finish_due(fixture.crm, DEAD).await;
    assert_groups(&fixture, &[("400: destination response", 3)]).await;
}

pub async fn pruned_delivery_leaves_its_group(mut fixture: StoreFixture) {
    let day = Some(HumanDuration(DAY));
    let brief = RetentionSpec { bodies: day, attempts: day, dead_letters: day, events: None };
    fixture.set_retention(fixture.shop, brief).await;
    create_dead_letter(&fixture, fixture.new_event(), "closed").await;
    fixture.wait(DAY * 2);
    fixture.prune_all(SERVER_RETENTION).await;
    let groups = list_all_groups(&fixture).await;
    assert_eq!(
        (groups[0].count, &groups[0].sample_detail, &*groups[0].sample_response),
        (1, &None, &[][..]),
        "the delivery is still dead"
    );
    create_dead_letter(&fixture, fixture.new_event(), "closed").await;
    assert_groups(&fixture, &[("400: closed", 2)]).await;

    fixture.wait(SERVER_RETENTION - DAY);
    fixture.prune_all(SERVER_RETENTION).await;
    assert_groups(&fixture, &[("400: closed", 1)]).await;

    fixture.wait(SERVER_RETENTION);
    fixture.prune_all(SERVER_RETENTION).await;
    assert_groups(&fixture, &[]).await;
}

pub async fn status_update_moves_deliveries_between_groups(fixture: StoreFixture) {
    let (parked, claimed) = fixture.accept_and_claim().await;
    fixture.settle(fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS)).await.unwrap();
    let (ambiguous, claimed) = fixture.accept_and_claim().await;
    let later = NextStep::RetryAt(fixture.now + DAY);
    fixture.settle(fixture.ambiguous_settlement(&claimed, later)).await.unwrap();
    assert_groups(&fixture, &[("interrupted", 1)]).await;

    send_status(&fixture, parked, ProviderStatus::Sent).await.unwrap();
    assert_groups(&fixture, &[]).await;
    send_status(&fixture, ambiguous, ProviderStatus::Failed(DEAD_UNRECOVERABLE)).await.unwrap();
    assert_groups(&fixture, &[("a status said so: unrecoverable", 1)]).await;
}

pub async fn failed_status_during_the_attempt_is_the_death_cause(mut fixture: StoreFixture) {
    let (under_way, claimed) = fixture.accept_and_claim().await;
    assert_eq!(
        send_status(&fixture, under_way, ProviderStatus::Failed(DEAD_UNRECOVERABLE)).await,
        None
    );
    let later = NextStep::RetryAt(fixture.now + DAY);
    let settled = fixture.settle(fixture.ambiguous_settlement(&claimed, later)).await.unwrap();
    assert_eq!(settled, SettleResult::Overruled(DEAD_UNRECOVERABLE));
    fixture.reopen().await;
    assert_groups(&fixture, &[("a status said so: unrecoverable", 1)]).await;
}

pub async fn groups_are_listed_by_newest_death_first(mut fixture: StoreFixture) {
    let to_mail = |fixture: &StoreFixture| NewEvent {
        source: fixture.bank,
        deliveries: vec![fixture.delivery_to(fixture.mail)],
        ..fixture.new_event()
    };
    for response in ["a", "b", "c"] {
        create_dead_letter(&fixture, fixture.new_event(), response).await;
        fixture.wait(TICK);
    }
    create_dead_letter(&fixture, to_mail(&fixture), "d").await;
    create_dead_letter(&fixture, to_mail(&fixture), "e").await;
    fixture.wait(TICK);
    create_dead_letter(&fixture, fixture.new_event(), "a").await;

    let shapes = |rows: &[DeadLetterGroup]| -> String {
        rows.iter().map(|group| group.cause.shape.trim_start_matches("400: ")).collect()
    };
    let all_shapes = shapes(&list_all_groups(&fixture).await);
    assert!(["adecb", "aedcb"].contains(&all_shapes.as_str()), "{all_shapes}");
    let all = DeadLetterGroupFilter::default();
    let paged = read_pages(2, async |page| fixture.list_dead_letter_groups(all, page).await).await;
    assert_eq!(shapes(&paged), all_shapes);
    let to = |destination: DestinationId| DeadLetterGroupFilter {
        destination: Some(destination),
        ..DeadLetterGroupFilter::default()
    };
    assert_eq!(shapes(&list_groups(&fixture, to(fixture.crm)).await), "acb");
    let of_bank =
        DeadLetterGroupFilter { source: Some(fixture.bank), ..DeadLetterGroupFilter::default() };
    assert_eq!(list_groups(&fixture, of_bank).await.len(), 2);
    let neither = DeadLetterGroupFilter { source: Some(fixture.bank), ..to(fixture.crm) };
    assert_eq!(list_groups(&fixture, neither).await.len(), 0);
}

pub async fn replay_job_can_select_one_group(mut fixture: StoreFixture) {
    for number in 0..3 {
        create_dead_letter(&fixture, fixture.new_event(), &format!("order {number} is closed"))
            .await;
        create_dead_letter(&fixture, fixture.new_event(), "go away").await;
    }
    let to_mail =
        NewEvent { deliveries: vec![fixture.delivery_to(fixture.mail)], ..fixture.new_event() };
    create_dead_letter(&fixture, to_mail, "order 9 is closed").await;
    fixture.wait(TICK);
    let of_crm = DeadLetterGroupFilter {
        destination: Some(fixture.crm),
        ..DeadLetterGroupFilter::default()
    };
    let found = list_groups(&fixture, of_crm).await;
    let closed = found.iter().find(|group| group.cause.shape.contains("closed")).unwrap().id;
    let filter = ReplayFilter { group: Some(closed), ..all() };
    for spec in [retry(filter.clone()), resend(filter.clone())] {
        let preview = fixture.preview_replay(spec, fixture.now, PreviewDepth::Whole).await.unwrap();
        assert_eq!((preview.count, preview.complete), (3, true));
    }

    let job = create_and_select(&fixture, retry(filter.clone())).await;
    advance(&fixture, job, STEP_LIMIT).await;

    assert_eq!(report(&fixture, job).await.progress().selected, 3);
    assert_groups(&fixture, &[("400: go away", 3), ("400: order # is closed", 1)]).await;
    let preview =
        fixture.preview_replay(retry(filter), fixture.now, PreviewDepth::Whole).await.unwrap();
    assert_eq!(preview.count, 0, "the group is empty now");
}

pub async fn groups_of_deleted_destination_remain(mut fixture: StoreFixture) {
    let (_, delivery) = create_dead_letter(&fixture, fixture.new_event(), "closed").await;
    fixture.apply(ConfigChange::DeleteDestination(fixture.crm)).await;
    fixture.reopen().await;
    assert_groups(&fixture, &[("400: closed", 1)]).await;
    let group = list_all_groups(&fixture).await.remove(0);
    assert_eq!((group.destination, group.newest_delivery), (fixture.crm, delivery));
    fixture.wait(SERVER_RETENTION * 2);
    fixture.prune_all(SERVER_RETENTION).await;
    assert_groups(&fixture, &[]).await;
}
