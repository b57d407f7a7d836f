//! Lists: newest first, every row once, whatever comes in meanwhile.

use std::time::Duration;

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::NewEvent,
    ids::{DeliveryId, EventId},
    replay::StatusPattern,
    store::{
        ConfigChange, DeliveryFilter, EventDeliveryFilter, EventFilter, NextStep, PageRequest,
        ReplayResult,
    },
};

use super::{World, world::WINDOW};

pub(super) fn with_delivery(delivery_filter: EventDeliveryFilter) -> EventFilter {
    EventFilter { delivery_filter, ..EventFilter::default() }
}

/// All events that a filter finds, page by page.
pub(super) async fn events(world: &World, filter: &EventFilter, limit: usize) -> Vec<EventId> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = world.events(filter.clone(), PageRequest { after, limit }).await.unwrap();
        assert!(page.rows.len() <= limit);
        all.extend(page.rows.iter().map(|row| row.id));
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// All deliveries that a filter finds, page by page.
async fn deliveries(world: &World, filter: &DeliveryFilter, limit: usize) -> Vec<DeliveryId> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = world.deliveries(filter.clone(), PageRequest { after, limit }).await.unwrap();
        assert!(page.rows.len() <= limit);
        all.extend(page.rows.iter().map(|row| row.id));
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

pub(super) fn newest_first<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_by(|a, b| b.cmp(a));
    list
}

/// Events at three times, several at each, and two of each source.
pub(super) async fn many(world: &mut World) -> Vec<NewEvent> {
    let mut all = Vec::new();
    for number in 0..24 {
        let source = if number % 3 == 0 { world.bank } else { world.shop };
        all.push(NewEvent { source, ..world.keyed_for_both(&format!("k{number}")) });
        if number % 8 == 7 {
            world.wait(Duration::from_millis(3));
        }
    }
    world.admit(all.clone()).await.unwrap();
    all
}

pub async fn events_are_listed_newest_first_in_pages(mut world: World) {
    let all = many(&mut world).await;
    let expected = newest_first(all.iter().map(|event| event.id).collect());

    for limit in [1, 5, 24, 100] {
        let listed = events(&world, &EventFilter::default(), limit).await;
        assert_eq!(listed, expected, "pages of {limit}");
    }
    let none = PageRequest { after: None, limit: 0 };
    assert!(world.events(EventFilter::default(), none).await.unwrap().rows.is_empty());
}

pub async fn events_are_filtered_by_source_and_key(mut world: World) {
    let all = many(&mut world).await;
    for (source, number) in [(world.bank, 8), (world.shop, 16)] {
        let of_it = all.iter().filter(|event| event.source == source).map(|event| event.id);
        let expected = newest_first(of_it.collect());
        assert_eq!(expected.len(), number);
        let filter = EventFilter { source: Some(source), ..EventFilter::default() };
        assert_eq!(events(&world, &filter, 3).await, expected);
    }
    let with_key = |source, key: &str| EventFilter {
        source: Some(source),
        key: Some(key.into()),
        ..EventFilter::default()
    };
    assert_eq!(events(&world, &with_key(world.bank, "k6"), 9).await, [all[6].id]);
    assert!(events(&world, &with_key(world.shop, "k6"), 9).await.is_empty());
    assert!(events(&world, &with_key(world.shop, "k"), 9).await.is_empty());
    let nobody = EventFilter { source: Some(world.id()), ..EventFilter::default() };
    assert!(events(&world, &nobody, 9).await.is_empty());
    // The event that has the key now is found, also when another one had it before.
    world.wait(WINDOW);
    let newer = world.accept(world.keyed("k1")).await;
    assert_eq!(events(&world, &with_key(world.shop, "k1"), 9).await.first(), Some(&newer));
}

pub async fn next_page_is_stable_while_events_are_received(mut world: World) {
    let before = many(&mut world).await;
    let expected = newest_first(before.iter().map(|event| event.id).collect());
    let first = PageRequest { after: None, limit: 10 };
    let page = world.events(EventFilter::default(), first).await.unwrap();
    let after = page.next;

    world.accept(world.arrival()).await;

    let rest = PageRequest { after, limit: 100 };
    let rest = world.events(EventFilter::default(), rest).await.unwrap();
    let seen: Vec<EventId> = page.rows.iter().chain(&rest.rows).map(|row| row.id).collect();
    assert_eq!(seen, expected);
}

pub async fn deliveries_are_listed_newest_first_in_pages(mut world: World) {
    let all = many(&mut world).await;
    let born = all.iter().flat_map(|event| event.deliveries.iter().map(|delivery| delivery.id));
    let expected = newest_first(born.collect());

    for limit in [1, 7, 48, 100] {
        let listed = deliveries(&world, &DeliveryFilter::default(), limit).await;
        assert_eq!(listed, expected, "pages of {limit}");
    }
}

/// Deliveries in every status that can be reached, some of each, in both destinations.
pub(super) async fn in_every_status(world: &mut World) {
    let spare = world.id();
    let put = ConfigChange::PutDestination(spare, super::samples::destination("spare"));
    world.change(vec![put], world.now).await.unwrap();
    let ends = [
        NextStep::Succeeded,
        NextStep::RetryAt(world.now + Duration::from_secs(900)),
        NextStep::Dead(DeadReason::MaxRetries),
        NextStep::Dead(DeadReason::PayloadError),
    ];
    for destination in [world.crm, world.mail] {
        let events: Vec<NewEvent> = (0..16)
            .map(|_| {
                let deliveries = vec![world.to(destination), world.to(spare)];
                NewEvent { deliveries, ..world.arrival() }
            })
            .collect();
        world.admit(events).await.unwrap();
        for (claimed, next) in world.claim(destination, 12).await.iter().zip(ends.iter().cycle()) {
            world.finish(claimed, *next).await;
        }
        world.claim(destination, 2).await;
    }
    world.change(vec![ConfigChange::DeleteDestination(spare)], world.now).await.unwrap();
    let dead = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..DeliveryFilter::default() };
    for id in deliveries(world, &dead, 100).await.into_iter().step_by(4) {
        let replayed = world.replay(id, world.id(), world.now).await.unwrap();
        assert!(matches!(replayed, ReplayResult::Created { .. }));
    }
}

pub async fn deliveries_are_filtered_by_each_status(mut world: World) {
    in_every_status(&mut world).await;
    let everything = PageRequest { after: None, limit: 1000 };
    let all = world.deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
    for status in DeliveryStatus::ALL {
        for destination in [None, Some(world.crm), Some(world.mail)] {
            let expected: Vec<DeliveryId> = all
                .iter()
                .filter(|row| row.status == status)
                .filter(|row| destination.is_none_or(|wanted| row.destination == wanted))
                .map(|row| row.id)
                .collect();
            let filter =
                DeliveryFilter { status: Some(status), destination, ..DeliveryFilter::default() };

            for limit in [1, 3, 100] {
                let listed = deliveries(&world, &filter, limit).await;
                assert_eq!(listed, expected, "{filter:?} in pages of {limit}");
            }
            // No operation of a store holds a delivery yet; all else is there to be found.
            let reachable = status != DeliveryStatus::Held
                && (destination.is_none() || status != DeliveryStatus::Cancelled);
            assert_eq!(expected.is_empty(), !reachable, "{filter:?}");
        }
    }
}

pub async fn deliveries_are_filtered_by_destination_and_reason(mut world: World) {
    in_every_status(&mut world).await;
    let everything = PageRequest { after: None, limit: 1000 };
    let all = world.deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
    for destination in [None, Some(world.crm)] {
        for reason in [None, Some(DeadReason::MaxRetries), Some(DeadReason::PayloadError)] {
            let status = reason.map(|_| DeliveryStatus::Dead);
            let expected: Vec<DeliveryId> = all
                .iter()
                .filter(|row| destination.is_none_or(|wanted| row.destination == wanted))
                .filter(|row| {
                    reason.is_none() || (row.reason, row.status) == (reason, DeliveryStatus::Dead)
                })
                .map(|row| row.id)
                .collect();
            let filter =
                DeliveryFilter { status, destination, reason, ..DeliveryFilter::default() };

            assert!(!expected.is_empty(), "{filter:?}");
            assert_eq!(deliveries(&world, &filter, 3).await, expected, "{filter:?}");
        }
    }
    let never = DeliveryFilter {
        status: Some(DeliveryStatus::Dead),
        reason: Some(DeadReason::Expired),
        ..DeliveryFilter::default()
    };
    assert!(deliveries(&world, &never, 9).await.is_empty());
}

pub async fn events_and_deliveries_are_filtered_by_time(mut world: World) {
    let all = many(&mut world).await;
    let times: Vec<_> = all.iter().map(|event| event.received_at).collect();
    let (first, middle, last) = (times[0], times[8], times[16]);
    assert!(first < middle && middle < last);
    for (since, until) in [
        (None, None),
        (Some(first), None),
        (Some(middle), None),
        (Some(middle), Some(last)),
        (None, Some(middle)),
        (None, Some(first)),
        (Some(last + Duration::from_millis(1)), None),
        (Some(last), Some(first)),
    ] {
        let within = all
            .iter()
            .filter(|event| since.is_none_or(|since| event.received_at >= since))
            .filter(|event| until.is_none_or(|until| event.received_at < until));
        let expected = newest_first(within.map(|event| event.id).collect());
        let filter = EventFilter { since, until, ..EventFilter::default() };
        assert_eq!(events(&world, &filter, 3).await, expected, "{filter:?}");
        let owed = all
            .iter()
            .filter(|event| expected.contains(&event.id))
            .flat_map(|event| event.deliveries.iter().map(|delivery| delivery.id));
        let expected = newest_first(owed.collect());
        let filter = DeliveryFilter { since, until, ..DeliveryFilter::default() };
        assert_eq!(deliveries(&world, &filter, 3).await, expected, "{filter:?}");
    }
}

pub async fn events_are_filtered_by_delivery_status(mut world: World) {
    in_every_status(&mut world).await;
    let everything = PageRequest { after: None, limit: 1000 };
    let all = world.deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
    for status in DeliveryStatus::ALL {
        let with = all.iter().filter(|row| row.status == status).map(|row| row.event);
        let mut expected = newest_first(with.collect::<Vec<_>>());
        expected.dedup();
        let filter = with_delivery(EventDeliveryFilter {
            status: Some(status),
            ..EventDeliveryFilter::default()
        });
        assert_eq!(events(&world, &filter, 3).await, expected, "{filter:?}");
    }
}

pub async fn events_are_searched_by_key_and_body(mut world: World) {
    let find = |text: &str| EventFilter { search: Some(text.into()), ..EventFilter::default() };
    let with_body = |world: &World, key: &str, body: &'static [u8]| {
        let mut event = world.keyed(key);
        event.payload.body = bytes::Bytes::from_static(body);
        event.payload.fingerprint = surehook_core::key::fingerprint(body);
        event
    };
    let phone = with_body(&world, "order-1", b"{\"phone\":\"+55119\"}");
    let bytes = with_body(&world, "order-2", b"\xff\x00caf\xc3\xa9 100%_");
    let large = with_body(&world, "order-3", &[b'x'; 200_000]);
    world.wait(Duration::from_millis(1));
    let all = [phone.id, bytes.id, large.id];
    world.admit(vec![phone, bytes, large]).await.unwrap();

    for (text, expected) in [
        ("order-", newest_first(all.to_vec())),
        ("order-2", vec![all[1]]),
        ("+55119", vec![all[0]]),
        ("caf\u{e9}", vec![all[1]]),
        // Not a pattern.
        ("100%_", vec![all[1]]),
        ("1%", vec![]),
        ("ORDER-1", vec![]),
        // Too large to look into.
        ("xxxx", vec![]),
    ] {
        assert_eq!(events(&world, &find(text), 2).await, expected, "{text}");
    }
}

pub async fn deliveries_are_filtered_by_source_and_event(mut world: World) {
    let all = many(&mut world).await;
    for source in [world.shop, world.bank] {
        let of_it = all.iter().filter(|event| event.source == source);
        let expected = newest_first(
            of_it.flat_map(|event| event.deliveries.iter().map(|owed| owed.id)).collect(),
        );
        let filter = DeliveryFilter { source: Some(source), ..DeliveryFilter::default() };
        assert_eq!(deliveries(&world, &filter, 5).await, expected, "{filter:?}");
    }
    let one = &all[5];
    let owed = newest_first(one.deliveries.iter().map(|owed| owed.id).collect());
    let filter = DeliveryFilter { event: Some(one.id), ..DeliveryFilter::default() };
    assert_eq!(deliveries(&world, &filter, 1).await, owed);
}

pub async fn deliveries_are_filtered_by_last_attempt(mut world: World) {
    many(&mut world).await;
    for claimed in world.claim(world.crm, 4).await {
        world.finish(&claimed, NextStep::Dead(DeadReason::MaxRetries)).await;
    }
    for claimed in world.claim(world.crm, 3).await {
        world.finish(&claimed, NextStep::Succeeded).await;
    }
    let everything = PageRequest { after: None, limit: 1000 };
    let rows = world.deliveries(DeliveryFilter::default(), everything).await.unwrap().rows;
    for row in rows.iter().filter(|row| row.attempts > 0) {
        let last = world.delivery_detail(row.id).await.attempts.pop().unwrap().attempt;
        for (class, code) in [(last.class, None), (None, last.status), (last.class, last.status)] {
            let code = code.map(StatusPattern::Exact);
            let filter = DeliveryFilter { class, code, ..DeliveryFilter::default() };
            let found = deliveries(&world, &filter, 2).await;
            assert!(found.contains(&row.id), "{filter:?}");
            if class.is_some() || code.is_some() {
                assert!(found.len() < rows.len(), "{filter:?}");
            }
        }
    }
    let never =
        DeliveryFilter { code: Some(StatusPattern::Exact(599)), ..DeliveryFilter::default() };
    assert!(deliveries(&world, &never, 9).await.is_empty());
}

pub async fn text_search_reads_a_bounded_number_of_rows_per_page(mut world: World) {
    // More than a page with a search looks at; what is searched for is the oldest.
    let first = world.accept(world.keyed("needle")).await;
    world.wait(Duration::from_millis(1));
    for _ in 0..3 {
        let rest: Vec<NewEvent> = (0..400).map(|_| world.arrival()).collect();
        world.admit(rest).await.unwrap();
    }
    let filter = EventFilter { search: Some("needle".into()), ..EventFilter::default() };
    let page = world.events(filter.clone(), PageRequest { after: None, limit: 10 }).await.unwrap();

    assert!(page.rows.is_empty());
    assert!(page.next.is_some(), "an empty page that is not the last one says so");
    assert_eq!(events(&world, &filter, 10).await, [first]);
}

pub async fn unknown_ids_are_none(world: World) {
    assert!(world.event(world.id()).await.unwrap().is_none());
    assert!(world.body(world.id()).await.unwrap().is_none());
    assert!(world.delivery(world.id()).await.unwrap().is_none());
}
