//! Dead letters by what they died of: how many are dead now, whatever moves them.

use std::time::Duration;

use surehook_core::{
    dead_letters::{DeadLetterGroup, DeadLetterGroupFilter, DeathCause},
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    event::{NewEvent, ProviderStatus},
    ids::{DeliveryId, DestinationId, EventId, GroupId},
    replay::{PreviewDepth, ReplayFilter},
    retention::RetentionSpec,
    store::{
        ConfigChange, DeliveryFilter, NextStep, PageRequest, REPLAY_INTERVAL, ReplayResult,
        SettleResult,
    },
    time::HumanDuration,
};

use super::{
    World,
    job_kit::{DEAD, MANY, TICK, advance, all, report, resend, retry, selected},
    statuses::tell,
};

const DAY: Duration = Duration::from_secs(86_400);
const SERVER: Duration = Duration::from_secs(30 * 86_400);
const PARKED: NextStep = NextStep::Dead(DeadReason::Ambiguous);
const REFUSED: NextStep = NextStep::Dead(DeadReason::Unrecoverable);

/// Lets an event die of an answer.
async fn dies(world: &World, event: NewEvent, said: &str) -> (EventId, DeliveryId) {
    let (to, delivery) = (event.deliveries[0].destination, event.deliveries[0].id);
    let event = world.accept(event).await;
    let claimed = world.claim_one(to).await;
    let mut settlement = world.settlement(&claimed, DEAD);
    settlement.attempt.response = said.as_bytes().to_vec();
    assert_eq!(world.settle(settlement).await.unwrap(), SettleResult::Recorded);
    (event, delivery)
}

async fn groups_of(world: &World, filter: DeadLetterGroupFilter) -> Vec<DeadLetterGroup> {
    let page = PageRequest { after: None, limit: 1000 };
    world.list_dead_letter_groups(filter, page).await.unwrap().rows
}

async fn groups(world: &World) -> Vec<DeadLetterGroup> {
    groups_of(world, DeadLetterGroupFilter::default()).await
}

/// The shapes and counts of all groups, by shape.
async fn counts(world: &World) -> Vec<(String, u64)> {
    let mut counts: Vec<_> =
        groups(world).await.into_iter().map(|group| (group.cause.shape, group.count)).collect();
    counts.sort();
    counts
}

/// These are all groups there are, by shape, with their counts.
async fn expect(world: &World, expected: &[(&str, u64)]) {
    let counts = counts(world).await;
    let seen: Vec<_> = counts.iter().map(|(shape, count)| (shape.as_str(), *count)).collect();
    assert_eq!(seen, expected);
}

async fn replay(world: &World, delivery: DeliveryId) {
    let replayed = world.replay(delivery, world.id(), world.now).await.unwrap();
    assert!(matches!(replayed, ReplayResult::Created { .. }), "{replayed:?}");
}

async fn in_group(
    world: &World,
    group: GroupId,
    status: Option<DeliveryStatus>,
) -> Vec<DeliveryId> {
    let filter = DeliveryFilter { group: Some(group), status, ..DeliveryFilter::default() };
    let page = PageRequest { after: None, limit: 1000 };
    let rows = world.deliveries(filter, page).await.unwrap().rows;
    assert!(rows.iter().all(|row| row.group == Some(group) && row.status == DeliveryStatus::Dead));
    rows.iter().map(|row| row.id).collect()
}

pub async fn dead_deliveries_with_one_cause_form_one_group(mut world: World) {
    let first_at = world.now;
    let (_, first) = dies(&world, world.arrival(), "order 17 is closed").await;
    world.wait(TICK);
    let (event, second) = dies(&world, world.arrival(), "order 4711 is closed").await;
    let last_at = world.now;
    let (_, other) = dies(&world, world.arrival(), "go away").await;

    world.reopen().await;

    expect(&world, &[("400: go away", 1), ("400: order # is closed", 2)]).await;
    let closed = groups(&world).await.into_iter().find(|group| group.count == 2).unwrap();
    let shape = "400: order # is closed".to_owned();
    let cause =
        DeathCause { class: Some(FailureClass::Permanent), code: Some(400), failure: None, shape };
    let expected = DeadLetterGroup {
        id: cause.group_id(world.crm),
        destination: world.crm,
        cause,
        reason: DeadReason::MaxRetries,
        count: 2,
        first_seen: first_at,
        last_seen: last_at,
        newest: (second, event),
        sample: (None, b"order 4711 is closed".to_vec()),
    };
    assert_eq!(closed, expected);
    for status in [None, Some(DeliveryStatus::Dead)] {
        assert_eq!(in_group(&world, closed.id, status).await, [second, first]);
    }
    assert!(in_group(&world, closed.id, Some(DeliveryStatus::Succeeded)).await.is_empty());
    let row = world.delivery_detail(other).await.delivery;
    assert_eq!(
        groups_of(&world, DeadLetterGroupFilter { id: row.group, ..Default::default() })
            .await
            .len(),
        1
    );
}

pub async fn delivery_that_is_no_longer_dead_leaves_its_group(mut world: World) {
    let keyed = world.keyed("k");
    let (_, first) = dies(&world, world.arrival(), "closed").await;
    dies(&world, keyed.clone(), "closed").await;
    let (_, third) = dies(&world, world.arrival(), "closed").await;
    world.wait(REPLAY_INTERVAL);

    replay(&world, third).await;
    expect(&world, &[("400: closed", 2)]).await;
    assert_eq!(world.delivery_detail(third).await.delivery.group, None);
    assert_ne!(groups(&world).await[0].newest.0, third, "the newest is one that is dead");

    assert!(world.expect_duplicate(world.again(&keyed)).await.revived.len() == 1);
    expect(&world, &[("400: closed", 1)]).await;

    replay(&world, first).await;
    expect(&world, &[]).await;
    world.reopen().await;
    expect(&world, &[]).await;

    world.finish_due(world.crm, DEAD).await;
    expect(&world, &[("400: said the destination", 3)]).await;
}

pub async fn pruned_delivery_leaves_its_group(mut world: World) {
    let day = Some(HumanDuration(DAY));
    let brief = RetentionSpec { bodies: day, attempts: day, dead_letters: day, events: None };
    world.keep(world.shop, brief).await;
    dies(&world, world.arrival(), "closed").await;
    world.wait(DAY * 2);
    world.prune_all(SERVER).await;
    let kept = groups(&world).await;
    assert_eq!((kept[0].count, &kept[0].sample), (1, &(None, Vec::new())), "it is still dead");
    dies(&world, world.arrival(), "closed").await;
    expect(&world, &[("400: closed", 2)]).await;

    world.wait(SERVER - DAY);
    world.prune_all(SERVER).await;
    expect(&world, &[("400: closed", 1)]).await;

    world.wait(SERVER);
    world.prune_all(SERVER).await;
    expect(&world, &[]).await;
}

pub async fn status_update_moves_deliveries_between_groups(world: World) {
    let parked = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    world.settle(world.will(&claimed, PARKED)).await.unwrap();
    let waits = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    let later = NextStep::RetryAt(world.now + DAY);
    world.settle(world.will(&claimed, later)).await.unwrap();
    expect(&world, &[("interrupted", 1)]).await;

    tell(&world, parked, ProviderStatus::Sent).await.unwrap();
    expect(&world, &[]).await;
    tell(&world, waits, ProviderStatus::Failed(REFUSED)).await.unwrap();
    expect(&world, &[("a status said so: unrecoverable", 1)]).await;
}

pub async fn failed_status_during_the_attempt_is_the_death_cause(mut world: World) {
    let under_way = world.accept(world.arrival()).await;
    let claimed = world.claim_one(world.crm).await;
    assert_eq!(tell(&world, under_way, ProviderStatus::Failed(REFUSED)).await, None);
    let later = NextStep::RetryAt(world.now + DAY);
    let settled = world.settle(world.will(&claimed, later)).await.unwrap();
    assert_eq!(settled, SettleResult::Overruled(REFUSED));
    world.reopen().await;
    expect(&world, &[("a status said so: unrecoverable", 1)]).await;
}

pub async fn groups_are_listed_by_newest_death_first(mut world: World) {
    let to_mail = |world: &World| NewEvent {
        source: world.bank,
        deliveries: vec![world.to(world.mail)],
        ..world.arrival()
    };
    for said in ["a", "b", "c"] {
        dies(&world, world.arrival(), said).await;
        world.wait(TICK);
    }
    dies(&world, to_mail(&world), "d").await;
    dies(&world, to_mail(&world), "e").await;
    world.wait(TICK);
    dies(&world, world.arrival(), "a").await;

    let shapes = |rows: &[DeadLetterGroup]| -> String {
        rows.iter().map(|group| group.cause.shape.trim_start_matches("400: ")).collect()
    };
    let whole = shapes(&groups(&world).await);
    assert!(["adecb", "aedcb"].contains(&whole.as_str()), "{whole}");
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = PageRequest { after, limit: 2 };
        let listed =
            world.list_dead_letter_groups(DeadLetterGroupFilter::default(), page).await.unwrap();
        paged.extend(listed.rows);
        after = listed.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(shapes(&paged), whole);
    let to = |destination: DestinationId| DeadLetterGroupFilter {
        destination: Some(destination),
        ..DeadLetterGroupFilter::default()
    };
    assert_eq!(shapes(&groups_of(&world, to(world.crm)).await), "acb");
    let of_bank =
        DeadLetterGroupFilter { source: Some(world.bank), ..DeadLetterGroupFilter::default() };
    assert_eq!(groups_of(&world, of_bank).await.len(), 2);
    let neither = DeadLetterGroupFilter { source: Some(world.bank), ..to(world.crm) };
    assert_eq!(groups_of(&world, neither).await.len(), 0);
}

pub async fn replay_job_can_select_one_group(mut world: World) {
    for number in 0..3 {
        dies(&world, world.arrival(), &format!("order {number} is closed")).await;
        dies(&world, world.arrival(), "go away").await;
    }
    let to_mail = NewEvent { deliveries: vec![world.to(world.mail)], ..world.arrival() };
    dies(&world, to_mail, "order 9 is closed").await;
    world.wait(TICK);
    let of_crm =
        DeadLetterGroupFilter { destination: Some(world.crm), ..DeadLetterGroupFilter::default() };
    let found = groups_of(&world, of_crm).await;
    let closed = found.iter().find(|group| group.cause.shape.contains("closed")).unwrap().id;
    let filter = ReplayFilter { group: Some(closed), ..all() };
    for spec in [retry(filter.clone()), resend(filter.clone())] {
        let preview = world.preview_replay(spec, world.now, PreviewDepth::Whole).await.unwrap();
        assert_eq!((preview.count, preview.complete), (3, true));
    }

    let job = selected(&world, retry(filter.clone())).await;
    advance(&world, job, MANY).await;

    assert_eq!(report(&world, job).await.progress().selected, 3);
    expect(&world, &[("400: go away", 3), ("400: order # is closed", 1)]).await;
    let preview =
        world.preview_replay(retry(filter), world.now, PreviewDepth::Whole).await.unwrap();
    assert_eq!(preview.count, 0, "there is no such group now");
}

pub async fn groups_of_deleted_destination_remain(mut world: World) {
    let (_, delivery) = dies(&world, world.arrival(), "closed").await;
    world.change(vec![ConfigChange::DeleteDestination(world.crm)], world.now).await.unwrap();
    world.reopen().await;
    expect(&world, &[("400: closed", 1)]).await;
    let group = groups(&world).await.remove(0);
    assert_eq!((group.destination, group.newest.0), (world.crm, delivery));
    world.wait(SERVER * 2);
    world.prune_all(SERVER).await;
    expect(&world, &[]).await;
}
