//! Search: events are found by their kind and their attributes, also long after, and only while
//! they are there.

use std::time::Duration;

use surehook_core::{
    attribute::{
        AttributeFilter,
        AttributeName::{self, Account, Chat, MessageId, Phone, ProviderStatus},
        Attributes, EventKind,
    },
    delivery::state::DeliveryStatus,
    event::NewEvent,
    ids::EventId,
    store::{DeliveryFilter, EventDeliveryFilter, EventFilter, NextStep, PageRequest},
};

use super::{World, lists::events};

const DAY: Duration = Duration::from_secs(86_400);

fn with_status(status: DeliveryStatus) -> EventDeliveryFilter {
    EventDeliveryFilter { status: Some(status), ..EventDeliveryFilter::default() }
}

/// An event of a kind with attributes.
fn about(world: &World, kind: &str, attributes: &[(AttributeName, &str)]) -> NewEvent {
    let mut event = NewEvent { kind: EventKind::new(kind), ..world.arrival() };
    attributes.iter().for_each(|(name, value)| event.attributes.push(*name, value));
    event
}

fn wanted(attributes: &[(AttributeName, &str)]) -> EventFilter {
    let wanted = attributes.iter().map(|(name, text)| AttributeFilter::new(*name, text).unwrap());
    EventFilter { attributes: wanted.collect(), ..EventFilter::default() }
}

fn of_kind(kind: &str) -> EventFilter {
    EventFilter { kind: EventKind::new(kind), ..EventFilter::default() }
}

pub async fn batch_search_returns_the_same_events_as_single_searches(mut world: World) {
    let mut sent = Vec::new();
    for number in 0..12 {
        let id = format!("wamid.{}", number % 4);
        let event = NewEvent {
            deliveries: world.keyed_for_both("any").deliveries,
            ..about(&world, "status", &[(MessageId, &id), (Account, "wamid.0")])
        };
        sent.push(world.accept(event).await);
        world.wait(Duration::from_millis(1));
    }
    for is_restarted in [false, true] {
        if is_restarted {
            world.reopen().await;
        }
        for limit in [1, 2, 10] {
            let ids = ["wamid.3", "wamid.0", "nowhere", "wamid.0"];
            let each: Vec<_> =
                ids.iter().map(|id| AttributeFilter::new(MessageId, id).unwrap()).collect();
            let found = world.list_events_with_each(each, limit).await.unwrap();
            assert_eq!(found.len(), ids.len());
            for (id, rows) in ids.iter().zip(found) {
                let page = PageRequest { after: None, limit };
                let alone = world.events(wanted(&[(MessageId, id)]), page).await.unwrap().rows;
                assert_eq!(format!("{rows:?}"), format!("{alone:?}"), "case: {id}, {limit}");
            }
        }
        assert!(world.list_events_with_each(Vec::new(), 10).await.unwrap().is_empty());

        let asked = vec![sent[7], sent[2], EventId::new(world.now, 1)];
        let found = world.list_deliveries_of(asked).await.unwrap();
        let mut one_by_one = world.detail(sent[2]).await.deliveries;
        one_by_one.extend(world.detail(sent[7]).await.deliveries);
        one_by_one.sort_by_key(|delivery| delivery.id);
        assert!(!one_by_one.is_empty());
        assert_eq!(format!("{found:?}"), format!("{one_by_one:?}"));
    }
}

pub async fn event_is_found_by_kind_and_by_each_attribute(mut world: World) {
    let jid = "551187654321:3@s.whatsapp.net";
    let came =
        about(&world, "message", &[(MessageId, "wamid.A"), (Phone, jid), (Chat, "1203@g.us")]);
    let event = world.accept(came.clone()).await;
    world.accept(about(&world, "status", &[(MessageId, "wamid.B"), (Account, "wamid.A")])).await;
    world.accept(world.arrival()).await;

    for is_restarted in [false, true] {
        if is_restarted {
            world.reopen().await;
        }
        let row = world.detail(event).await.event;
        assert_eq!((&row.kind, &row.attributes), (&came.kind, &came.attributes));
        for filter in [
            of_kind("message"),
            wanted(&[(MessageId, "wamid.A")]),
            wanted(&[(Phone, "+55 (11) 98765-4321")]),
            wanted(&[(Phone, "551187654321")]),
            wanted(&[(Chat, "5511987654321@s.whatsapp.net")]),
            wanted(&[(Phone, "1203@g.us")]),
            wanted(&[(Chat, "1203@G.US")]),
        ] {
            assert_eq!(events(&world, &filter, 10).await, [event], "{filter:?}");
        }
        for filter in [
            of_kind("messag"),
            of_kind("Message"),
            wanted(&[(MessageId, "wamid.a")]),
            wanted(&[(MessageId, "wamid")]),
            wanted(&[(Account, "wamid.B")]),
            wanted(&[(Phone, "5511987654322")]),
        ] {
            assert!(events(&world, &filter, 10).await.is_empty(), "{filter:?}");
        }
    }
    let plain = world.accept(world.arrival()).await;
    let row = world.detail(plain).await.event;
    assert_eq!((row.kind, row.attributes), (None, Attributes::default()));
}

pub async fn search_filters_must_all_match(mut world: World) {
    let phone = (Phone, "5511987654321");
    let read = about(&world, "status", &[phone, (ProviderStatus, "read")]);
    let read = NewEvent { source: world.bank, key: Some(world.key("k")), ..read };
    let read = world.accept(read).await;
    world.wait(Duration::from_millis(5));
    let later = world.now;
    let sent = about(&world, "status", &[phone, (ProviderStatus, "sent")]);
    let sent = world.accept(sent).await;
    let message = world.accept(about(&world, "message", &[phone])).await;
    world.finish_due(world.crm, NextStep::Succeeded).await;

    let of_phone = || wanted(&[phone]);
    let of_bank = Some(world.bank);
    for (name, filter, expected) in [
        ("one", of_phone(), vec![message, sent, read]),
        (
            "kind too",
            EventFilter { kind: EventKind::new("status"), ..of_phone() },
            vec![sent, read],
        ),
        ("both", wanted(&[phone, (ProviderStatus, "READ")]), vec![read]),
        ("never both", wanted(&[(ProviderStatus, "sent"), (ProviderStatus, "read")]), vec![]),
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
            assert_eq!(events(&world, &filter, limit).await, expected, "case: {name}");
        }
    }
}

pub async fn search_results_are_listed_newest_first_in_pages(mut world: World) {
    let mut expected = Vec::new();
    for number in 0..60_u32 {
        let phone = format!("55119876543{:02}", number % 3);
        let message = format!("wamid.{number}");
        let event = about(&world, "message", &[(Phone, &phone), (MessageId, &message)]);
        if number % 3 == 0 {
            expected.insert(0, event.id);
        }
        world.accept(event).await;
        if number % 20 == 7 {
            world.wait(Duration::from_millis(2));
        }
        let filter = wanted(&[(Phone, "5511987654300")]);
        assert_eq!(events(&world, &filter, 100).await, expected, "after event {number}");
    }
    for limit in [1, 7, 20, 100] {
        let filter = wanted(&[(Phone, "5511987654300")]);
        assert_eq!(events(&world, &filter, limit).await, expected, "pages of {limit}");
        assert_eq!(events(&world, &of_kind("message"), limit).await.len(), 60);
    }
    world.reopen().await;
    assert_eq!(events(&world, &wanted(&[(Phone, "5511987654300")]), 7).await, expected);
}

pub async fn pruned_event_is_not_found(mut world: World) {
    let phone = (Phone, "5511987654321");
    for number in 0..10 {
        world
            .accept(about(&world, "message", &[phone, (MessageId, &format!("old-{number}"))]))
            .await;
    }
    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY * 2);
    let mut stay = Vec::new();
    // Those that go are folded, or about to be, while others come.
    for number in 0..10 {
        let event = about(&world, "message", &[phone, (MessageId, &format!("new-{number}"))]);
        stay.insert(0, world.accept(event).await);
        if number == 4 {
            assert_eq!(world.prune_all(DAY).await.events, 10);
        }
    }

    for is_restarted in [false, true] {
        if is_restarted {
            world.reopen().await;
        }
        assert_eq!(events(&world, &wanted(&[phone]), 3).await, stay);
        assert_eq!(events(&world, &of_kind("message"), 3).await, stay);
        assert!(events(&world, &wanted(&[(MessageId, "old-3")]), 3).await.is_empty());
    }
}

pub async fn attributes_of_a_duplicate_are_not_indexed(world: World) {
    let first = about(&world, "message", &[(MessageId, "wamid.A")]);
    let first = NewEvent { key: Some(world.key("k")), ..first };
    let event = world.accept(first.clone()).await;
    let other = about(&world, "status", &[(MessageId, "wamid.B")]);
    let again = NewEvent { kind: other.kind, attributes: other.attributes, ..world.again(&first) };
    world.expect_duplicate(again).await;

    assert_eq!(events(&world, &wanted(&[(MessageId, "wamid.A")]), 9).await, [event]);
    assert!(events(&world, &wanted(&[(MessageId, "wamid.B")]), 9).await.is_empty());
    assert!(events(&world, &of_kind("status"), 9).await.is_empty());
}

pub async fn attributes_of_a_refused_request_are_not_indexed(world: World) {
    let known = world.accept(world.arrival()).await;
    for number in 0..12 {
        let name = format!("wamid.{number}");
        let good = about(&world, "message", &[(MessageId, &name)]);
        let bad = about(&world, "message", &[(MessageId, &format!("bad-{number}"))]);
        let taken = NewEvent { id: known, ..bad.clone() };
        world.admit(vec![bad, taken]).await.unwrap_err();
        let event = world.accept(good).await;
        assert_eq!(events(&world, &wanted(&[(MessageId, &name)]), 9).await, [event]);
    }
    assert_eq!(events(&world, &of_kind("message"), 5).await.len(), 12);
    for number in 0..12 {
        let never = wanted(&[(MessageId, &format!("bad-{number}"))]);
        assert!(events(&world, &never, 9).await.is_empty());
    }
}

pub async fn deliveries_are_filtered_by_event_kind(world: World) {
    let message = about(&world, "message", &[]);
    world.accept(message.clone()).await;
    world.accept(about(&world, "status", &[])).await;
    world.accept(world.arrival()).await;
    let kind = EventKind::new("message");
    let filter = DeliveryFilter { kind, ..DeliveryFilter::default() };

    let page = world.deliveries(filter, PageRequest { after: None, limit: 10 }).await.unwrap();

    let found: Vec<_> = page.rows.iter().map(|row| row.id).collect();
    assert_eq!(found, [message.deliveries[0].id]);
}
