//! Events are found by what they owe and by what is in their bodies, and tell what they owe.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use surehook_core::{
    body_value::BodyValueFilter,
    delivery::{DeadReason, state::DeliveryStatus},
    event::NewEvent,
    ids::EventId,
    key::fingerprint,
    replay::StatusPattern,
    store::{
        ConfigChange, DeliveryFilter, EventDeliveryFilter, EventFilter, NextStep, PageRequest,
    },
};

use super::{
    World,
    lists::{events, in_every_status, many, newest_first, with_delivery},
};

const EVERYTHING: usize = 1000;

pub async fn event_filter_matches_only_if_one_delivery_meets_all_conditions(mut world: World) {
    in_every_status(&mut world).await;
    let page = PageRequest { after: None, limit: EVERYTHING };
    let rows = world.deliveries(DeliveryFilter::default(), page).await.unwrap().rows;
    let mut all = Vec::new();
    for row in rows {
        let last = world.delivery_detail(row.id).await.attempts.pop();
        let last = last.map(|found| (found.attempt.class, found.attempt.status));
        all.push((row, last.unwrap_or_default()));
    }
    let hundred = |status: Option<u16>| status.map(|status| StatusPattern::Class(status / 100));
    let mut asked = vec![EventDeliveryFilter::default()];
    for (row, (class, status)) in &all {
        let whole = EventDeliveryFilter {
            status: Some(row.status),
            destination: Some(row.destination),
            reason: row.reason,
            class: *class,
            code: status.map(StatusPattern::Exact),
        };
        let code = hundred(*status);
        asked.extend([
            whole,
            EventDeliveryFilter { code, ..whole },
            EventDeliveryFilter { status: None, ..whole },
            EventDeliveryFilter { destination: None, reason: None, ..whole },
            EventDeliveryFilter {
                destination: Some(row.destination),
                ..EventDeliveryFilter::default()
            },
            EventDeliveryFilter { code, ..EventDeliveryFilter::default() },
            EventDeliveryFilter { class: *class, ..EventDeliveryFilter::default() },
        ]);
    }
    for delivery_filter in asked {
        let has = |wanted: Option<StatusPattern>, status: Option<u16>| {
            wanted.map(StatusPattern::range).is_none_or(|(low, high)| {
                status.is_some_and(|status| (low..=high).contains(&status))
            })
        };
        let meant = all.iter().filter(|(row, (class, status))| {
            delivery_filter.status.is_none_or(|wanted| wanted == row.status)
                && delivery_filter.destination.is_none_or(|wanted| wanted == row.destination)
                && (delivery_filter.reason.is_none() || delivery_filter.reason == row.reason)
                && (delivery_filter.class.is_none() || delivery_filter.class == *class)
                && has(delivery_filter.code, *status)
        });
        let mut expected = newest_first(meant.map(|(row, _)| row.event).collect());
        expected.dedup();
        assert_eq!(
            events(&world, &with_delivery(delivery_filter), 5).await,
            expected,
            "{delivery_filter:?}"
        );
    }
    let nobody =
        EventDeliveryFilter { destination: Some(world.id()), ..EventDeliveryFilter::default() };
    assert!(events(&world, &with_delivery(nobody), 5).await.is_empty());
}

pub async fn event_rows_count_deliveries_by_status(mut world: World) {
    in_every_status(&mut world).await;
    world.accept(NewEvent { deliveries: Vec::new(), ..world.arrival() }).await;
    let page = PageRequest { after: None, limit: EVERYTHING };
    for row in world.events(EventFilter::default(), page).await.unwrap().rows {
        let detail = world.detail(row.id).await;
        let mut expected = BTreeMap::new();
        for delivery in &detail.deliveries {
            *expected.entry(delivery.status).or_insert(0_u64) += 1;
        }
        assert_eq!(row.deliveries, expected);
        assert_eq!(detail.event.deliveries, expected);
    }
}

fn with_body(world: &World, body: &'static str) -> NewEvent {
    let mut event = world.arrival();
    event.payload.body = Bytes::from_static(body.as_bytes());
    event.payload.fingerprint = fingerprint(body.as_bytes());
    event
}

fn values(pairs: &[(&str, &str)]) -> EventFilter {
    let body = pairs.iter().map(|(path, text)| BodyValueFilter::new(path, text).unwrap()).collect();
    EventFilter { body, ..EventFilter::default() }
}

pub async fn events_are_filtered_by_body_values(mut world: World) {
    let one = with_body(&world, r#"{"data":{"object":{"id":42,"tags":["a","b"]}},"live":true}"#);
    let two = with_body(&world, r#"{"data":{"object":{"id":"42","tags":["b"]}},"live":false}"#);
    let three = with_body(&world, "data.object.id=42");
    let ids = [one.id, two.id, three.id];
    world.admit(vec![one, two, three]).await.unwrap();
    world.wait(Duration::from_millis(1));

    for (pairs, expected) in [
        (&[("data.object.id", "42")][..], vec![ids[0], ids[1]]),
        (&[("data.object.id", "42"), ("live", "true")], vec![ids[0]]),
        (&[("data.object.tags.0", "b")], vec![ids[1]]),
        (&[("data.object.tags.1", "b")], vec![ids[0]]),
        (&[("data.object.id", "4")], vec![]),
        (&[("data.object", "{}")], vec![]),
    ] {
        assert_eq!(events(&world, &values(pairs), 1).await, newest_first(expected), "{pairs:?}");
    }
    // With others: all of it holds together.
    world.finish_due(world.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    let dead = EventDeliveryFilter {
        status: Some(DeliveryStatus::Dead),
        ..EventDeliveryFilter::default()
    };
    for (status, expected) in
        [(DeliveryStatus::Dead, vec![ids[0]]), (DeliveryStatus::Succeeded, vec![])]
    {
        let delivery_filter = EventDeliveryFilter { status: Some(status), ..dead };
        let filter = EventFilter { delivery_filter, ..values(&[("live", "true")]) };
        assert_eq!(events(&world, &filter, 5).await, expected, "{status:?}");
    }
    let bank = EventFilter { source: Some(world.bank), ..values(&[("live", "true")]) };
    assert!(events(&world, &bank, 5).await.is_empty());
}

pub async fn body_value_search_reads_a_bounded_number_of_bodies_per_page(mut world: World) {
    let first = world.accept(with_body(&world, r#"{"needle":1}"#)).await;
    world.wait(Duration::from_millis(1));
    for _ in 0..3 {
        let rest: Vec<NewEvent> = (0..400).map(|_| world.arrival()).collect();
        world.admit(rest).await.unwrap();
    }
    let crm =
        EventDeliveryFilter { destination: Some(world.crm), ..EventDeliveryFilter::default() };
    for delivery_filter in [EventDeliveryFilter::default(), crm] {
        let filter = EventFilter { delivery_filter, ..values(&[("needle", "1")]) };
        let page =
            world.events(filter.clone(), PageRequest { after: None, limit: 10 }).await.unwrap();

        assert!(page.rows.is_empty() && page.rows_scanned < 1201, "{} looks", page.rows_scanned);
        assert_eq!(page.next, page.last, "it says how far it came");
        assert!(page.next.is_some());
        assert_eq!(events(&world, &filter, 10).await, [first]);
    }
}

pub async fn key_filter_without_source_finds_events_of_all_sources(mut world: World) {
    let all = many(&mut world).await;
    let with_key = |key: &str| EventFilter { key: Some(key.into()), ..EventFilter::default() };
    let other = world.accept(NewEvent { source: world.shop, ..world.keyed("k6") }).await;
    let both: Vec<EventId> = newest_first(vec![all[6].id, other]);

    assert_eq!(events(&world, &with_key("k6"), 9).await, both);
    assert_eq!(events(&world, &with_key("k6"), 1).await, both);
    assert_eq!(events(&world, &with_key("k7"), 9).await, [all[7].id]);
    assert!(events(&world, &with_key("k"), 9).await.is_empty());
    assert!(events(&world, &with_key(""), 9).await.is_empty());
    // Copies are counted with the original.
    world.expect_duplicate(world.again(&all[7])).await;
    world.reopen().await;
    let page = PageRequest { after: None, limit: 9 };
    let found = world.events(with_key("k7"), page).await.unwrap().rows;
    assert_eq!((found.len(), found[0].duplicates), (1, 1));
    // Also of a source that is gone.
    world.change(vec![ConfigChange::DeleteSource(world.bank)], world.now).await.unwrap();
    assert_eq!(events(&world, &with_key("k6"), 9).await, both);
}
