//! Lists of events and deliveries: newest first, every row once, with filters and text search.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use surehook_core::{
    delivery::state::DeliveryStatus,
    event::NewEvent,
    replay::StatusPattern,
    store::{
        ConfigChange, DeliveryFilter, EventDeliveryFilter, EventFilter, HistoryFilter, NextStep,
        PageRequest, RecordedDelivery, Settlement,
    },
};
use surehook_retry::{DeadReason, ScheduleReason};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    time::Timestamp,
};
use surehook_webhooks::{body_value::BodyValueFilter, key::fingerprint};

use super::{
    StoreFixture,
    fixture::{WINDOW, first_page, read_pages},
};

pub(super) fn with_delivery(delivery_filter: EventDeliveryFilter) -> EventFilter {
    EventFilter { delivery_filter, ..EventFilter::default() }
}

/// All events that match a filter, read page by page.
pub(super) async fn events(
    fixture: &StoreFixture,
    filter: &EventFilter,
    limit: usize,
) -> Vec<EventId> {
    let rows =
        read_pages(limit, async |page| fixture.list_events(filter.clone(), page).await).await;
    rows.iter().map(|row| row.id).collect()
}

/// All deliveries that match a filter, read page by page.
async fn deliveries(
    fixture: &StoreFixture,
    filter: &DeliveryFilter,
    limit: usize,
) -> Vec<DeliveryId> {
    let rows =
        read_pages(limit, async |page| fixture.list_deliveries(filter.clone(), page).await).await;
    rows.iter().map(|row| row.id).collect()
}

pub(super) fn newest_first<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_by(|a, b| b.cmp(a));
    list
}

/// Events of both sources at three times, several at each.
pub(super) async fn admit_many(fixture: &mut StoreFixture) -> Vec<NewEvent> {
    let mut all = Vec::new();
    for number in 0..24 {
        let source = if number % 3 == 0 { fixture.bank } else { fixture.shop };
        all.push(NewEvent { source, ..fixture.event_for_both(&format!("k{number}")) });
        if number % 8 == 7 {
            fixture.wait(Duration::from_millis(3));
        }
    }
    fixture.admit(all.clone()).await.unwrap();
    all
}

pub async fn events_are_listed_newest_first_in_pages(mut fixture: StoreFixture) {
    let all = admit_many(&mut fixture).await;
    let expected = newest_first(all.iter().map(|event| event.id).collect());

    for limit in [1, 5, 24, 100] {
        let listed = events(&fixture, &EventFilter::default(), limit).await;
        assert_eq!(listed, expected, "pages of {limit}");
    }
    let none = first_page(0);
    assert!(fixture.list_events(EventFilter::default(), none).await.unwrap().rows.is_empty());
}

pub async fn events_are_filtered_by_source_and_key(mut fixture: StoreFixture) {
    let all = admit_many(&mut fixture).await;
    for (source, number) in [(fixture.bank, 8), (fixture.shop, 16)] {
        let of_source = all.iter().filter(|event| event.source == source).map(|event| event.id);
        let expected = newest_first(of_source.collect());
        assert_eq!(expected.len(), number);
        let filter = EventFilter { source: Some(source), ..EventFilter::default() };
        assert_eq!(events(&fixture, &filter, 3).await, expected);
    }
    let with_key = |source, key: &str| EventFilter {
        source: Some(source),
        key: Some(key.into()),
        ..EventFilter::default()
    };
    assert_eq!(events(&fixture, &with_key(fixture.bank, "k6"), 9).await, [all[6].id]);
    assert!(events(&fixture, &with_key(fixture.shop, "k6"), 9).await.is_empty());
    assert!(events(&fixture, &with_key(fixture.shop, "k"), 9).await.is_empty());
    let unknown = EventFilter { source: Some(fixture.new_id()), ..EventFilter::default() };
    assert!(events(&fixture, &unknown, 9).await.is_empty());
    // The event that has the key now is found, also if another one had it before.
    fixture.wait(WINDOW);
    let newer = fixture.accept(fixture.event_with_key("k1")).await;
    assert_eq!(events(&fixture, &with_key(fixture.shop, "k1"), 9).await.first(), Some(&newer));
}

pub async fn next_page_is_stable_while_events_are_received(mut fixture: StoreFixture) {
    let before = admit_many(&mut fixture).await;
    let expected = newest_first(before.iter().map(|event| event.id).collect());
    let first = first_page(10);
    let page = fixture.list_events(EventFilter::default(), first).await.unwrap();
    let after = page.next;

    fixture.accept(fixture.new_event()).await;

    let rest = PageRequest { after, limit: 100 };
    let rest = fixture.list_events(EventFilter::default(), rest).await.unwrap();
    let seen: Vec<EventId> = page.rows.iter().chain(&rest.rows).map(|row| row.id).collect();
    assert_eq!(seen, expected);
}

pub async fn deliveries_are_listed_newest_first_in_pages(mut fixture: StoreFixture) {
    let all = admit_many(&mut fixture).await;
    let ids = all.iter().flat_map(|event| event.deliveries.iter().map(|delivery| delivery.id));
    let expected = newest_first(ids.collect());

    for limit in [1, 7, 48, 100] {
        let listed = deliveries(&fixture, &DeliveryFilter::default(), limit).await;
        assert_eq!(listed, expected, "pages of {limit}");
    }
}

/// Several deliveries in every reachable status, for both destinations.
pub(super) async fn create_every_status(fixture: &mut StoreFixture) {
    let spare = fixture.new_id();
    let put = ConfigChange::PutDestination(spare, super::fixture::destination_spec("spare"));
    fixture.change(vec![put], fixture.now).await.unwrap();
    let ends = [
        NextStep::Succeeded,
        NextStep::RetryAt(fixture.now + Duration::from_secs(900)),
        NextStep::Dead(DeadReason::MaxRetries),
        NextStep::Dead(DeadReason::PayloadError),
    ];
    for destination in [fixture.crm, fixture.mail] {
        let events: Vec<NewEvent> = (0..16)
            .map(|_| {
                let deliveries = vec![fixture.delivery_to(destination), fixture.delivery_to(spare)];
                NewEvent { deliveries, ..fixture.new_event() }
            })
            .collect();
        fixture.admit(events).await.unwrap();
        for (claimed, next) in fixture.claim(destination, 12).await.iter().zip(ends.iter().cycle())
        {
            fixture.finish(claimed, *next).await;
        }
        fixture.claim(destination, 2).await;
    }
    fixture.apply(ConfigChange::DeleteDestination(spare)).await;
    let dead = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..DeliveryFilter::default() };
    for id in deliveries(fixture, &dead, 100).await.into_iter().step_by(4) {
        fixture.replay_now(id).await;
    }
}

pub async fn deliveries_are_filtered_by_each_status(mut fixture: StoreFixture) {
    create_every_status(&mut fixture).await;
    let all = fixture.all_deliveries().await;
    for status in DeliveryStatus::ALL {
        for destination in [None, Some(fixture.crm), Some(fixture.mail)] {
            let expected: Vec<DeliveryId> = all
                .iter()
                .filter(|row| row.status == status)
                .filter(|row| {
                    destination
                        .is_none_or(|filter_destination| row.destination == filter_destination)
                })
                .map(|row| row.id)
                .collect();
            let filter =
                DeliveryFilter { status: Some(status), destination, ..DeliveryFilter::default() };

            for limit in [1, 3, 100] {
                let listed = deliveries(&fixture, &filter, limit).await;
                assert_eq!(listed, expected, "{filter:?} in pages of {limit}");
            }
            // Nothing is held here; every other status occurs.
            let reachable = status != DeliveryStatus::Held
                && (destination.is_none() || status != DeliveryStatus::Cancelled);
            assert_eq!(expected.is_empty(), !reachable, "{filter:?}");
        }
    }
}

pub async fn deliveries_are_filtered_by_destination_and_reason(mut fixture: StoreFixture) {
    create_every_status(&mut fixture).await;
    let all = fixture.all_deliveries().await;
    for destination in [None, Some(fixture.crm)] {
        for reason in [None, Some(DeadReason::MaxRetries), Some(DeadReason::PayloadError)] {
            let status = reason.map(|_| DeliveryStatus::Dead);
            let expected: Vec<DeliveryId> = all
                .iter()
                .filter(|row| {
                    destination
                        .is_none_or(|filter_destination| row.destination == filter_destination)
                })
                .filter(|row| {
                    reason.is_none() || (row.reason, row.status) == (reason, DeliveryStatus::Dead)
                })
                .map(|row| row.id)
                .collect();
            let filter =
                DeliveryFilter { status, destination, reason, ..DeliveryFilter::default() };

            assert!(!expected.is_empty(), "{filter:?}");
            assert_eq!(deliveries(&fixture, &filter, 3).await, expected, "{filter:?}");
        }
    }
    let unmatched = DeliveryFilter {
        status: Some(DeliveryStatus::Dead),
        reason: Some(DeadReason::Expired),
        ..DeliveryFilter::default()
    };
    assert!(deliveries(&fixture, &unmatched, 9).await.is_empty());
}

pub async fn events_and_deliveries_are_filtered_by_time(mut fixture: StoreFixture) {
    let all = admit_many(&mut fixture).await;
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
        assert_eq!(events(&fixture, &filter, 3).await, expected, "{filter:?}");
        let delivery = all
            .iter()
            .filter(|event| expected.contains(&event.id))
            .flat_map(|event| event.deliveries.iter().map(|delivery| delivery.id));
        let expected = newest_first(delivery.collect());
        let filter = DeliveryFilter { since, until, ..DeliveryFilter::default() };
        assert_eq!(deliveries(&fixture, &filter, 3).await, expected, "{filter:?}");
    }
}

pub async fn events_are_filtered_by_delivery_status(mut fixture: StoreFixture) {
    create_every_status(&mut fixture).await;
    let all = fixture.all_deliveries().await;
    for status in DeliveryStatus::ALL {
        let matching = all.iter().filter(|row| row.status == status).map(|row| row.event);
        let mut expected = newest_first(matching.collect::<Vec<_>>());
        expected.dedup();
        let filter = with_delivery(EventDeliveryFilter {
            status: Some(status),
            ..EventDeliveryFilter::default()
        });
        assert_eq!(events(&fixture, &filter, 3).await, expected, "{filter:?}");
    }
}

pub async fn events_are_searched_by_key_and_body(mut fixture: StoreFixture) {
    let find = |text: &str| EventFilter { search: Some(text.into()), ..EventFilter::default() };
    let with_body = |fixture: &StoreFixture, key: &str, body: &'static [u8]| {
        let mut event = fixture.event_with_key(key);
        event.payload.body = Bytes::from_static(body);
        event.payload.fingerprint = fingerprint(body);
        event
    };
    let phone = with_body(&fixture, "order-1", b"{\"phone\":\"+55119\"}");
    let bytes = with_body(&fixture, "order-2", b"\xff\x00caf\xc3\xa9 100%_");
    let large = with_body(&fixture, "order-3", &[b'x'; 200_000]);
    fixture.wait(Duration::from_millis(1));
    let all = [phone.id, bytes.id, large.id];
    fixture.admit(vec![phone, bytes, large]).await.unwrap();

    for (text, expected) in [
        ("order-", newest_first(all.to_vec())),
        ("order-2", vec![all[1]]),
        ("+55119", vec![all[0]]),
        ("caf\u{e9}", vec![all[1]]),
        // `%` and `_` are not wildcards.
        ("100%_", vec![all[1]]),
        ("1%", vec![]),
        ("ORDER-1", vec![]),
        // The body is too large to be searched.
        ("xxxx", vec![]),
    ] {
        assert_eq!(events(&fixture, &find(text), 2).await, expected, "{text}");
    }
}

pub async fn deliveries_are_filtered_by_source_and_event(mut fixture: StoreFixture) {
    let all = admit_many(&mut fixture).await;
    for source in [fixture.shop, fixture.bank] {
        let of_source = all.iter().filter(|event| event.source == source);
        let expected = newest_first(
            of_source
                .flat_map(|event| event.deliveries.iter().map(|delivery| delivery.id))
                .collect(),
        );
        let filter = DeliveryFilter { source: Some(source), ..DeliveryFilter::default() };
        assert_eq!(deliveries(&fixture, &filter, 5).await, expected, "{filter:?}");
    }
    let one = &all[5];
    let delivery = newest_first(one.deliveries.iter().map(|delivery| delivery.id).collect());
    let filter = DeliveryFilter { event: Some(one.id), ..DeliveryFilter::default() };
    assert_eq!(deliveries(&fixture, &filter, 1).await, delivery);
}

pub async fn deliveries_are_filtered_by_last_attempt(mut fixture: StoreFixture) {
    admit_many(&mut fixture).await;
    for claimed in fixture.claim(fixture.crm, 4).await {
        fixture.finish(&claimed, NextStep::Dead(DeadReason::MaxRetries)).await;
    }
    for claimed in fixture.claim(fixture.crm, 3).await {
        fixture.finish(&claimed, NextStep::Succeeded).await;
    }
    let rows = fixture.all_deliveries().await;
    for row in rows.iter().filter(|row| row.attempts > 0) {
        let last = fixture.delivery_detail(row.id).await.attempts.pop().unwrap().attempt;
        for (class, code) in [(last.class, None), (None, last.status), (last.class, last.status)] {
            let code = code.map(StatusPattern::Exact);
            let filter = DeliveryFilter { class, code, ..DeliveryFilter::default() };
            let listed = deliveries(&fixture, &filter, 2).await;
            assert!(listed.contains(&row.id), "{filter:?}");
            if class.is_some() || code.is_some() {
                assert!(listed.len() < rows.len(), "{filter:?}");
            }
        }
    }
    let unmatched =
        DeliveryFilter { code: Some(StatusPattern::Exact(599)), ..DeliveryFilter::default() };
    assert!(deliveries(&fixture, &unmatched, 9).await.is_empty());
}

pub async fn text_search_reads_a_bounded_number_of_rows_per_page(mut fixture: StoreFixture) {
    // More events than a page with a search reads; the match is the oldest.
    let first = fixture.accept(fixture.event_with_key("needle")).await;
    fixture.wait(Duration::from_millis(1));
    for _ in 0..3 {
        let rest: Vec<NewEvent> = (0..400).map(|_| fixture.new_event()).collect();
        fixture.admit(rest).await.unwrap();
    }
    let filter = EventFilter { search: Some("needle".into()), ..EventFilter::default() };
    let page = fixture.list_events(filter.clone(), first_page(10)).await.unwrap();

    assert!(page.rows.is_empty());
    assert!(page.next.is_some(), "an empty page that is not the last has a next position");
    assert_eq!(events(&fixture, &filter, 10).await, [first]);
}

pub async fn unknown_ids_return_none(fixture: StoreFixture) {
    assert!(fixture.find_event(fixture.new_id()).await.unwrap().is_none());
    assert!(fixture.find_body(fixture.new_id()).await.unwrap().is_none());
    assert!(fixture.find_delivery(fixture.new_id()).await.unwrap().is_none());
}

pub async fn event_filter_matches_only_if_one_delivery_meets_all_conditions(
    mut fixture: StoreFixture,
) {
    create_every_status(&mut fixture).await;
    let rows = fixture.all_deliveries().await;
    let mut all = Vec::new();
    for row in rows {
        let last = fixture.delivery_detail(row.id).await.attempts.pop();
        let last = last.map(|row| (row.attempt.class, row.attempt.status));
        all.push((row, last.unwrap_or_default()));
    }
    let status_class =
        |status: Option<u16>| status.map(|status| StatusPattern::Class(status / 100));
    let mut filters = vec![EventDeliveryFilter::default()];
    for (row, (class, status)) in &all {
        let all_conditions = EventDeliveryFilter {
            status: Some(row.status),
            destination: Some(row.destination),
            reason: row.reason,
            class: *class,
            code: status.map(StatusPattern::Exact),
        };
        let code = status_class(*status);
        filters.extend([
            all_conditions,
            EventDeliveryFilter { code, ..all_conditions },
            EventDeliveryFilter { status: None, ..all_conditions },
            EventDeliveryFilter { destination: None, reason: None, ..all_conditions },
            EventDeliveryFilter {
                destination: Some(row.destination),
                ..EventDeliveryFilter::default()
            },
            EventDeliveryFilter { code, ..EventDeliveryFilter::default() },
            EventDeliveryFilter { class: *class, ..EventDeliveryFilter::default() },
        ]);
    }
    for delivery_filter in filters {
        let has = |value: Option<StatusPattern>, status: Option<u16>| {
            value.map(StatusPattern::range).is_none_or(|(low, high)| {
                status.is_some_and(|status| (low..=high).contains(&status))
            })
        };
        let matching = all.iter().filter(|(row, (class, status))| {
            delivery_filter.status.is_none_or(|value| value == row.status)
                && delivery_filter.destination.is_none_or(|value| value == row.destination)
                && (delivery_filter.reason.is_none() || delivery_filter.reason == row.reason)
                && (delivery_filter.class.is_none() || delivery_filter.class == *class)
                && has(delivery_filter.code, *status)
        });
        let mut expected = newest_first(matching.map(|(row, _)| row.event).collect());
        expected.dedup();
        assert_eq!(
            events(&fixture, &with_delivery(delivery_filter), 5).await,
            expected,
            "{delivery_filter:?}"
        );
    }
    let unknown = EventDeliveryFilter {
        destination: Some(fixture.new_id()),
        ..EventDeliveryFilter::default()
    };
    assert!(events(&fixture, &with_delivery(unknown), 5).await.is_empty());
}

pub async fn event_rows_count_deliveries_by_status(mut fixture: StoreFixture) {
    create_every_status(&mut fixture).await;
    fixture.accept(NewEvent { deliveries: Vec::new(), ..fixture.new_event() }).await;
    for row in fixture.all_events().await {
        let detail = fixture.event_detail(row.id).await;
        let mut expected = BTreeMap::new();
        for delivery in &detail.deliveries {
            *expected.entry(delivery.status).or_insert(0_u64) += 1;
        }
        assert_eq!(row.deliveries, expected);
        assert_eq!(detail.event.deliveries, expected);
    }
}

fn with_body(fixture: &StoreFixture, body: &'static str) -> NewEvent {
    let mut event = fixture.new_event();
    event.payload.body = Bytes::from_static(body.as_bytes());
    event.payload.fingerprint = fingerprint(body.as_bytes());
    event
}

fn values(pairs: &[(&str, &str)]) -> EventFilter {
    let body = pairs.iter().map(|(path, text)| BodyValueFilter::new(path, text).unwrap()).collect();
    EventFilter { body, ..EventFilter::default() }
}

pub async fn events_are_filtered_by_body_values(mut fixture: StoreFixture) {
    let one = with_body(&fixture, r#"{"data":{"object":{"id":42,"tags":["a","b"]}},"live":true}"#);
    let two = with_body(&fixture, r#"{"data":{"object":{"id":"42","tags":["b"]}},"live":false}"#);
    let three = with_body(&fixture, "data.object.id=42");
    let ids = [one.id, two.id, three.id];
    fixture.admit(vec![one, two, three]).await.unwrap();
    fixture.wait(Duration::from_millis(1));

    for (pairs, expected) in [
        (&[("data.object.id", "42")][..], vec![ids[0], ids[1]]),
        (&[("data.object.id", "42"), ("live", "true")], vec![ids[0]]),
        (&[("data.object.tags.0", "b")], vec![ids[1]]),
        (&[("data.object.tags.1", "b")], vec![ids[0]]),
        (&[("data.object.id", "4")], vec![]),
        (&[("data.object", "{}")], vec![]),
    ] {
        assert_eq!(events(&fixture, &values(pairs), 1).await, newest_first(expected), "{pairs:?}");
    }
    // Combined with other filters.
    fixture.finish_due(fixture.crm, NextStep::Dead(DeadReason::MaxRetries)).await;
    let dead = EventDeliveryFilter {
        status: Some(DeliveryStatus::Dead),
        ..EventDeliveryFilter::default()
    };
    for (status, expected) in
        [(DeliveryStatus::Dead, vec![ids[0]]), (DeliveryStatus::Succeeded, vec![])]
    {
        let delivery_filter = EventDeliveryFilter { status: Some(status), ..dead };
        let filter = EventFilter { delivery_filter, ..values(&[("live", "true")]) };
        assert_eq!(events(&fixture, &filter, 5).await, expected, "{status:?}");
    }
    let bank = EventFilter { source: Some(fixture.bank), ..values(&[("live", "true")]) };
    assert!(events(&fixture, &bank, 5).await.is_empty());
}

pub async fn body_value_search_reads_a_bounded_number_of_bodies_per_page(
    mut fixture: StoreFixture,
) {
    let first = fixture.accept(with_body(&fixture, r#"{"needle":1}"#)).await;
    fixture.wait(Duration::from_millis(1));
    for _ in 0..3 {
        let rest: Vec<NewEvent> = (0..400).map(|_| fixture.new_event()).collect();
        fixture.admit(rest).await.unwrap();
    }
    let crm =
        EventDeliveryFilter { destination: Some(fixture.crm), ..EventDeliveryFilter::default() };
    for delivery_filter in [EventDeliveryFilter::default(), crm] {
        let filter = EventFilter { delivery_filter, ..values(&[("needle", "1")]) };
        let page = fixture.list_events(filter.clone(), first_page(10)).await.unwrap();

        assert!(page.rows.is_empty() && page.rows_scanned < 1201, "{} rows", page.rows_scanned);
        assert_eq!(page.next, page.last, "the page reports how far it read");
        assert!(page.next.is_some());
        assert_eq!(events(&fixture, &filter, 10).await, [first]);
    }
}

pub async fn key_filter_without_source_finds_events_of_all_sources(mut fixture: StoreFixture) {
    let all = admit_many(&mut fixture).await;
    let with_key = |key: &str| EventFilter { key: Some(key.into()), ..EventFilter::default() };
    let other =
        fixture.accept(NewEvent { source: fixture.shop, ..fixture.event_with_key("k6") }).await;
    let both: Vec<EventId> = newest_first(vec![all[6].id, other]);

    assert_eq!(events(&fixture, &with_key("k6"), 9).await, both);
    assert_eq!(events(&fixture, &with_key("k6"), 1).await, both);
    assert_eq!(events(&fixture, &with_key("k7"), 9).await, [all[7].id]);
    assert!(events(&fixture, &with_key("k"), 9).await.is_empty());
    assert!(events(&fixture, &with_key(""), 9).await.is_empty());
    // Duplicates are counted with the original.
    fixture.expect_duplicate(fixture.repeat_of(&all[7])).await;
    fixture.reopen().await;
    let page = first_page(9);
    let rows = fixture.list_events(with_key("k7"), page).await.unwrap().rows;
    assert_eq!((rows.len(), rows[0].duplicates), (1, 1));
    // Also events of a deleted source.
    fixture.apply(ConfigChange::DeleteSource(fixture.bank)).await;
    assert_eq!(events(&fixture, &with_key("k6"), 9).await, both);
}

/// The history of a destination, read page by page.
async fn history(
    fixture: &StoreFixture,
    destination: DestinationId,
    since: Timestamp,
    limit: usize,
) -> Vec<RecordedDelivery> {
    let filter = HistoryFilter { destination, since, until: fixture.now };
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = fixture.list_history(filter, PageRequest { after, limit }).await.unwrap();
        let Some(last) = page.last() else { return all };
        assert!(page.len() <= limit);
        after = Some(last.id);
        all.extend(page);
    }
}

/// Admits two events for both destinations and attempts their deliveries to the CRM twice: both are
/// asked to wait for 7 s, then the first one dies and the second one succeeds. Returns when the first
/// attempts started.
async fn record_history(fixture: &mut StoreFixture) -> Timestamp {
    let first = fixture.accept(fixture.event_for_both("first")).await;
    fixture.wait(Duration::from_secs(1));
    fixture.accept(fixture.event_for_both("second")).await;
    let started_at = fixture.now;
    for claimed in fixture.claim(fixture.crm, 2).await {
        let took = fixture.settlement(&claimed, NextStep::Succeeded).attempt.took;
        let next = NextStep::RetryAt(started_at + took + REQUESTED_WAIT);
        let schedule_reason = Some(ScheduleReason::RetryAfter);
        let settlement = Settlement { schedule_reason, ..fixture.settlement(&claimed, next) };
        fixture.settle(settlement).await.unwrap();
    }
    fixture.wait(Duration::from_secs(10));
    for claimed in fixture.claim(fixture.crm, 2).await {
        let dead = NextStep::Dead(DeadReason::MaxRetries);
        let next = if claimed.event == first { dead } else { NextStep::Succeeded };
        fixture.finish(&claimed, next).await;
    }
    fixture.wait(Duration::from_secs(1));
    started_at
}

const REQUESTED_WAIT: Duration = Duration::from_secs(7);

pub async fn history_has_deliveries_of_one_destination_and_time_span(mut fixture: StoreFixture) {
    fixture.accept(fixture.event_for_both("older")).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(Duration::from_secs(60));
    let since = fixture.now;
    let started_at = record_history(&mut fixture).await;

    for limit in [1, 2, 10] {
        let all = history(&fixture, fixture.crm, since, limit).await;
        let [second, first] = &all[..] else { panic!("two deliveries: {all:?}") };
        assert_eq!((first.created_at, second.created_at), (since, started_at));
        assert_eq!(
            (first.status, second.status),
            (DeliveryStatus::Dead, DeliveryStatus::Succeeded)
        );
        assert_eq!((first.reason, second.reason), (Some(DeadReason::MaxRetries), None));
        assert!(first.ended_at.is_some() && second.ended_at.is_some());
    }
    let unfinished = history(&fixture, fixture.mail, since, 10).await;
    assert_eq!(unfinished.len(), 2);
    assert!(unfinished.iter().all(|one| one.attempts.is_empty() && one.ended_at.is_none()));
    assert!(history(&fixture, fixture.new_id(), since, 10).await.is_empty());
}

pub async fn history_has_the_attempts_of_each_delivery(mut fixture: StoreFixture) {
    let since = fixture.now;
    let started_at = record_history(&mut fixture).await;
    let all = history(&fixture, fixture.crm, since, 10).await;
    assert_eq!(all.len(), 2);
    for delivery in &all {
        assert_eq!((delivery.attempts_made, delivery.attempts.len()), (2, 2));
        let (refused, last) = (delivery.attempts[0], delivery.attempts[1]);
        assert_eq!((refused.started_at, refused.retry_after), (started_at, Some(REQUESTED_WAIT)));
        assert!(refused.class.is_some());
        assert_eq!(last.started_at, started_at + Duration::from_secs(10));
        assert_eq!(last.retry_after, None);
        assert_eq!(last.class.is_some(), delivery.reason.is_some());
    }
}

pub async fn history_of_replays_names_what_they_replace(mut fixture: StoreFixture) {
    let since = fixture.now;
    let (event, claimed) = fixture.accept_and_claim().await;
    fixture.finish(&claimed, NextStep::Dead(DeadReason::MaxRetries)).await;
    let old = fixture.only_delivery(event).await.id;
    fixture.wait(Duration::from_secs(60));
    let new = fixture.replay_now(old).await;
    fixture.wait(Duration::from_secs(1));

    let all = history(&fixture, fixture.crm, since, 10).await;
    let [replay, replayed] = &all[..] else { panic!("two deliveries: {all:?}") };
    assert_eq!((replay.id, replay.replay_of), (new, Some(old)));
    assert_eq!(replayed.status, DeliveryStatus::Replayed);
    // It was dead, whatever came of it later.
    assert_eq!(replayed.reason, Some(DeadReason::MaxRetries));
    assert_eq!(replayed.replay_of, None);
}
