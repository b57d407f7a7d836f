//! Search by event kind and attributes; only stored events are found.

use std::time::Duration;

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::NewEvent,
    store::{DeliveryFilter, EventDeliveryFilter, EventFilter, NextStep},
};
use surehook_types::ids::EventId;
use surehook_webhooks::attribute::{
    AttributeFilter,
    AttributeName::{self, Account, Chat, MessageId, Phone, ProviderStatus},
    Attributes, EventKind,
};

use super::{StoreFixture, fixture::first_page, lists::events};

const DAY: Duration = Duration::from_secs(86_400);

fn with_status(status: DeliveryStatus) -> EventDeliveryFilter {
    EventDeliveryFilter { status: Some(status), ..EventDeliveryFilter::default() }
}

fn searchable_event(
    fixture: &StoreFixture,
    kind: &str,
    attributes: &[(AttributeName, &str)],
) -> NewEvent {
    let mut event = NewEvent { kind: EventKind::new(kind), ..fixture.new_event() };
    attributes.iter().for_each(|(name, value)| event.attributes.push(*name, value));
    event
}

fn attribute_filter(attributes: &[(AttributeName, &str)]) -> EventFilter {
    let filters = attributes.iter().map(|(name, text)| AttributeFilter::new(*name, text).unwrap());
    EventFilter { attributes: filters.collect(), ..EventFilter::default() }
}

fn of_kind(kind: &str) -> EventFilter {
    EventFilter { kind: EventKind::new(kind), ..EventFilter::default() }
}

pub async fn batch_search_returns_the_same_events_as_single_searches(mut fixture: StoreFixture) {
    let mut sent = Vec::new();
    for number in 0..12 {
        let id = format!("wamid.{}", number % 4);
        let event = NewEvent {
            deliveries: fixture.event_for_both("any").deliveries,
            ..searchable_event(&fixture, "status", &[(MessageId, &id), (Account, "wamid.0")])
        };
        sent.push(fixture.accept(event).await);
        fixture.wait(Duration::from_millis(1));
    }
    for is_restarted in [false, true] {
        if is_restarted {
            fixture.reopen().await;
        }
        for limit in [1, 2, 10] {
            let ids = ["wamid.3", "wamid.0", "nowhere", "wamid.0"];
            let each: Vec<_> =
                ids.iter().map(|id| AttributeFilter::new(MessageId, id).unwrap()).collect();
            let found = fixture.list_events_with_each(each, limit).await.unwrap();
            assert_eq!(found.len(), ids.len());
            for (id, rows) in ids.iter().zip(found) {
                let page = first_page(limit);
                let alone = fixture
                    .list_events(attribute_filter(&[(MessageId, id)]), page)
                    .await
                    .unwrap()
                    .rows;
                assert_eq!(format!("{rows:?}"), format!("{alone:?}"), "case: {id}, {limit}");
            }
        }
        assert!(fixture.list_events_with_each(Vec::new(), 10).await.unwrap().is_empty());

        let event_ids = vec![sent[7], sent[2], EventId::new(fixture.now, 1)];
        let found = fixture.list_deliveries_of(event_ids).await.unwrap();
        let mut one_by_one = fixture.event_detail(sent[2]).await.deliveries;
        one_by_one.extend(fixture.event_detail(sent[7]).await.deliveries);
        one_by_one.sort_by_key(|delivery| delivery.id);
        assert!(!one_by_one.is_empty());
        assert_eq!(format!("{found:?}"), format!("{one_by_one:?}"));
    }
}

pub async fn event_is_found_by_kind_and_by_each_attribute(mut fixture: StoreFixture) {
    let jid = "551187654321:3@s.whatsapp.net";
    let came = searchable_event(
        &fixture,
        "message",
        &[(MessageId, "wamid.A"), (Phone, jid), (Chat, "1203@g.us")],
    );
    let event = fixture.accept(came.clone()).await;
    fixture
        .accept(searchable_event(
            &fixture,
            "status",
            &[(MessageId, "wamid.B"), (Account, "wamid.A")],
        ))
        .await;
    fixture.accept(fixture.new_event()).await;

    for is_restarted in [false, true] {
        if is_restarted {
            fixture.reopen().await;
        }
        let row = fixture.event_detail(event).await.event;
        assert_eq!((&row.kind, &row.attributes), (&came.kind, &came.attributes));
        for filter in [
            of_kind("message"),
            attribute_filter(&[(MessageId, "wamid.A")]),
            attribute_filter(&[(Phone, "+55 (11) 98765-4321")]),
            attribute_filter(&[(Phone, "551187654321")]),
            attribute_filter(&[(Chat, "5511987654321@s.whatsapp.net")]),
            attribute_filter(&[(Phone, "1203@g.us")]),
            attribute_filter(&[(Chat, "1203@G.US")]),
        ] {
            assert_eq!(events(&fixture, &filter, 10).await, [event], "{filter:?}");
        }
        for filter in [
            of_kind("messag"),
            of_kind("Message"),
            attribute_filter(&[(MessageId, "wamid.a")]),
            attribute_filter(&[(MessageId, "wamid")]),
            attribute_filter(&[(Account, "wamid.B")]),
            attribute_filter(&[(Phone, "5511987654322")]),
        ] {
            assert!(events(&fixture, &filter, 10).await.is_empty(), "{filter:?}");
        }
    }
    let plain = fixture.accept(fixture.new_event()).await;
    let row = fixture.event_detail(plain).await.event;
    assert_eq!((row.kind, row.attributes), (None, Attributes::default()));
}

pub async fn search_filters_must_all_match(mut fixture: StoreFixture) {
    let phone = (Phone, "5511987654321");
    let read = searchable_event(&fixture, "status", &[phone, (ProviderStatus, "read")]);
    let read = NewEvent { source: fixture.bank, key: Some(fixture.key_claim("k")), ..read };
    let read = fixture.accept(read).await;
    fixture.wait(Duration::from_millis(5));
    let later = fixture.now;
    let sent = searchable_event(&fixture, "status", &[phone, (ProviderStatus, "sent")]);
    let sent = fixture.accept(sent).await;
    let message = fixture.accept(searchable_event(&fixture, "message", &[phone])).await;
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;

    let of_phone = || attribute_filter(&[phone]);
    let of_bank = Some(fixture.bank);
    for (name, filter, expected) in [
        ("one", of_phone(), vec![message, sent, read]),
        (
            "kind too",
            EventFilter { kind: EventKind::new("status"), ..of_phone() },
            vec![sent, read],
        ),
        ("both", attribute_filter(&[phone, (ProviderStatus, "READ")]), vec![read]),
        (
            "never both",
            attribute_filter(&[(ProviderStatus, "sent"), (ProviderStatus, "read")]),
            vec![],
        ),
        ("source", EventFilter { source: of_bank, ..of_phone() }, vec![read]),
        ("key", EventFilter { source: of_bank, key: Some("k".into()), ..of_phone() }, vec![read]),
        (
            "key of another",
            EventFilter { source: of_bank, key: Some("k".into()), ..of_kind("message") },
            vec![],
        ),
        ("since", EventFilter { since: Some(later), ..of_phone() }, vec![message, sent]),
        ("until", EventFilter { until: Some(later), ..of_phone() }, vec![read]),
        (
            "dead",
            EventFilter { delivery_filter: with_status(DeliveryStatus::Dead), ..of_phone() },
            vec![],
        ),
        (
            "succeeded",
            EventFilter {
                delivery_filter: with_status(DeliveryStatus::Succeeded),
                ..of_kind("status")
            },
            vec![sent, read],
        ),
        ("text", EventFilter { search: Some("nowhere".into()), ..of_phone() }, vec![]),
    ] {
        for limit in [1, 2, 10] {
            assert_eq!(events(&fixture, &filter, limit).await, expected, "case: {name}");
        }
    }
}

pub async fn search_results_are_listed_newest_first_in_pages(mut fixture: StoreFixture) {
    let mut expected = Vec::new();
    for number in 0..60_u32 {
        let phone = format!("55119876543{:02}", number % 3);
        let message = format!("wamid.{number}");
        let event =
            searchable_event(&fixture, "message", &[(Phone, &phone), (MessageId, &message)]);
        if number % 3 == 0 {
            expected.insert(0, event.id);
        }
        fixture.accept(event).await;
        if number % 20 == 7 {
            fixture.wait(Duration::from_millis(2));
        }
        let filter = attribute_filter(&[(Phone, "5511987654300")]);
        assert_eq!(events(&fixture, &filter, 100).await, expected, "after event {number}");
    }
    for limit in [1, 7, 20, 100] {
        let filter = attribute_filter(&[(Phone, "5511987654300")]);
        assert_eq!(events(&fixture, &filter, limit).await, expected, "pages of {limit}");
        assert_eq!(events(&fixture, &of_kind("message"), limit).await.len(), 60);
    }
    fixture.reopen().await;
    assert_eq!(events(&fixture, &attribute_filter(&[(Phone, "5511987654300")]), 7).await, expected);
}

pub async fn pruned_event_is_not_found(mut fixture: StoreFixture) {
    let phone = (Phone, "5511987654321");
    for number in 0..10 {
        fixture
            .accept(searchable_event(
                &fixture,
                "message",
                &[phone, (MessageId, &format!("old-{number}"))],
            ))
            .await;
    }
    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY * 2);
    let mut stay = Vec::new();
    // Terms of the pruned events are merged, or about to be, while new events are added.
    for number in 0..10 {
        let event =
            searchable_event(&fixture, "message", &[phone, (MessageId, &format!("new-{number}"))]);
        stay.insert(0, fixture.accept(event).await);
        if number == 4 {
            assert_eq!(fixture.prune_all(DAY).await.events, 10);
        }
    }

    for is_restarted in [false, true] {
        if is_restarted {
            fixture.reopen().await;
        }
        assert_eq!(events(&fixture, &attribute_filter(&[phone]), 3).await, stay);
        assert_eq!(events(&fixture, &of_kind("message"), 3).await, stay);
        assert!(events(&fixture, &attribute_filter(&[(MessageId, "old-3")]), 3).await.is_empty());
    }
}

pub async fn attributes_of_a_duplicate_are_not_indexed(fixture: StoreFixture) {
    let first = searchable_event(&fixture, "message", &[(MessageId, "wamid.A")]);
    let first = NewEvent { key: Some(fixture.key_claim("k")), ..first };
    let event = fixture.accept(first.clone()).await;
    let other = searchable_event(&fixture, "status", &[(MessageId, "wamid.B")]);
    let again =
        NewEvent { kind: other.kind, attributes: other.attributes, ..fixture.repeat_of(&first) };
    fixture.expect_duplicate(again).await;

    assert_eq!(events(&fixture, &attribute_filter(&[(MessageId, "wamid.A")]), 9).await, [event]);
    assert!(events(&fixture, &attribute_filter(&[(MessageId, "wamid.B")]), 9).await.is_empty());
    assert!(events(&fixture, &of_kind("status"), 9).await.is_empty());
}

pub async fn attributes_of_a_refused_request_are_not_indexed(fixture: StoreFixture) {
    let existing = fixture.accept(fixture.new_event()).await;
    for number in 0..12 {
        let name = format!("wamid.{number}");
        let good = searchable_event(&fixture, "message", &[(MessageId, &name)]);
        let bad = searchable_event(&fixture, "message", &[(MessageId, &format!("bad-{number}"))]);
        let with_used_id = NewEvent { id: existing, ..bad.clone() };
        fixture.admit(vec![bad, with_used_id]).await.unwrap_err();
        let event = fixture.accept(good).await;
        assert_eq!(events(&fixture, &attribute_filter(&[(MessageId, &name)]), 9).await, [event]);
    }
    assert_eq!(events(&fixture, &of_kind("message"), 5).await.len(), 12);
    for number in 0..12 {
        let never = attribute_filter(&[(MessageId, &format!("bad-{number}"))]);
        assert!(events(&fixture, &never, 9).await.is_empty());
    }
}

pub async fn deliveries_are_filtered_by_event_kind(fixture: StoreFixture) {
    let message = searchable_event(&fixture, "message", &[]);
    fixture.accept(message.clone()).await;
    fixture.accept(searchable_event(&fixture, "status", &[])).await;
    fixture.accept(fixture.new_event()).await;
    let kind = EventKind::new("message");
    let filter = DeliveryFilter { kind, ..DeliveryFilter::default() };

    let page = fixture.list_deliveries(filter, first_page(10)).await.unwrap();

    let found: Vec<_> = page.rows.iter().map(|row| row.id).collect();
    assert_eq!(found, [message.deliveries[0].id]);
}
