//! Everything that came to the door, in one list.

use std::time::Duration;

use surehook_core::{
    event::NewEvent,
    ids::EventId,
    requests::{ReceivedRequest, RequestFilter, RequestOutcome},
    store::PageRequest,
    time::Timestamp,
};

use super::{World, refused::request};

/// What is told of an arrival here: what became of it, when, and of which event.
type Told = (RequestOutcome, Timestamp, Option<EventId>);

fn told(arrival: &ReceivedRequest) -> Told {
    match arrival {
        ReceivedRequest::Accepted(accepted) => {
            (RequestOutcome::Accepted, accepted.at, Some(accepted.event))
        }
        ReceivedRequest::Duplicate(sighted) => {
            (RequestOutcome::Duplicate, sighted.at, Some(sighted.event))
        }
        ReceivedRequest::Refused(refused) => (RequestOutcome::Refused, refused.at, None),
    }
}

async fn all(world: &World, filter: &RequestFilter, limit: usize) -> Vec<ReceivedRequest> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = world.list_requests(filter.clone(), PageRequest { after, limit }).await.unwrap();
        assert!(page.rows.len() <= limit);
        all.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// Arrivals of every kind at different times, oldest first; those of the bank are refused only.
async fn mixed(world: &mut World) -> Vec<Told> {
    let mut expected = Vec::new();
    for round in 0..6 {
        world.wait(Duration::from_millis(5));
        let first = world.keyed(&format!("k{round}"));
        world.accept(first.clone()).await;
        expected.push((RequestOutcome::Accepted, world.now, Some(first.id)));
        for _ in 0..round % 3 {
            world.wait(Duration::from_millis(5));
            world.expect_duplicate(world.again(&first)).await;
            expected.push((RequestOutcome::Duplicate, world.now, Some(first.id)));
        }
        world.wait(Duration::from_millis(5));
        let source = if round % 2 == 0 { "shop" } else { "bank" };
        let code = if round < 3 { "stale" } else { "mismatch" };
        world.store_refused(vec![request(world, Some(source), code)]).await.unwrap();
        expected.push((RequestOutcome::Refused, world.now, None));
    }
    world.reopen().await;
    expected
}

pub async fn requests_of_every_outcome_are_listed_newest_first(mut world: World) {
    let mut expected = mixed(&mut world).await;
    expected.reverse();

    for limit in [1, 2, 3, 7, 100] {
        let listed = all(&world, &RequestFilter::default(), limit).await;
        let listed: Vec<Told> = listed.iter().map(told).collect();
        assert_eq!(listed, expected, "pages of {limit}");
    }
}

pub async fn requests_are_filtered_by_outcome_time_reason_and_source(mut world: World) {
    let mut expected = mixed(&mut world).await;
    expected.reverse();
    let (newest, oldest) = (expected[3].1, expected[9].1);
    let shop = Some(("shop".to_owned(), Some(world.shop)));
    let nobody = Some(("nobody".to_owned(), None));
    let of = |outcome| RequestFilter { outcome, ..RequestFilter::default() };
    let listed = async |filter: &RequestFilter| -> Vec<Told> {
        all(&world, filter, 2).await.iter().map(told).collect()
    };

    for outcome in RequestOutcome::ALL {
        let meant: Vec<Told> = expected.iter().copied().filter(|row| row.0 == outcome).collect();
        assert!(!meant.is_empty());
        assert_eq!(listed(&of(Some(outcome))).await, meant, "{outcome:?}");
    }
    let filter = RequestFilter { since: Some(oldest), until: Some(newest), ..of(None) };
    let within: Vec<Told> =
        expected.iter().copied().filter(|row| row.1 >= oldest && row.1 < newest).collect();
    assert_eq!(listed(&filter).await, within);
    let stale = RequestFilter { reason: Some("stale".to_owned()), ..of(None) };
    assert_eq!(listed(&stale).await.len(), 3);
    let stale = RequestFilter { outcome: Some(RequestOutcome::Accepted), ..stale };
    assert!(listed(&stale).await.is_empty());
    // Three of the six refused were for the bank.
    let of_shop = listed(&RequestFilter { source: shop, ..of(None) }).await;
    assert_eq!(of_shop.len(), expected.len() - 3);
    assert!(listed(&RequestFilter { source: nobody, ..of(None) }).await.is_empty());
    let other = listed(&RequestFilter { exclude_source: Some(world.shop), ..of(None) }).await;
    assert!(other.iter().all(|row| row.0 == RequestOutcome::Refused) && other.len() == 6);
}

/// All at the same time, their events between each other. Looking all events of the moment up for each
/// of them would take minutes.
pub async fn interleaved_requests_with_thousands_of_events_are_one_row_each(world: World) {
    let mut parts: Vec<NewEvent> = (0..10_000).map(|_| world.arrival()).collect();
    let requests: Vec<_> = parts[..5].iter().map(|part| part.request_id).collect();
    for (n, part) in parts.iter_mut().enumerate() {
        part.request_id = requests[n % 5];
    }
    for some in parts.chunks(1000) {
        world.admit(some.to_vec()).await.unwrap();
    }

    for limit in [2, 10] {
        let listed = all(&world, &RequestFilter::default(), limit).await;
        let mut found: Vec<_> = listed
            .iter()
            .map(|arrival| match arrival {
                ReceivedRequest::Accepted(accepted) => (accepted.request, accepted.events),
                other @ (ReceivedRequest::Duplicate(_) | ReceivedRequest::Refused(_)) => {
                    panic!("{other:?}")
                }
            })
            .collect();
        found.sort_unstable();
        let mut expected: Vec<_> = requests.iter().map(|request| (*request, 2000)).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "pages of {limit}");
    }
}

pub async fn request_with_several_events_is_one_row(mut world: World) {
    let mut parts: Vec<NewEvent> = (0..5).map(|n| world.keyed(&format!("k{n}"))).collect();
    let request = parts[0].request_id;
    parts.iter_mut().for_each(|part| part.request_id = request);
    world.admit(parts.clone()).await.unwrap();
    let alone = world.accept(world.arrival()).await;

    for limit in [1, 10] {
        let listed = all(&world, &RequestFilter::default(), limit).await;
        let [ReceivedRequest::Accepted(last), ReceivedRequest::Accepted(first)] = &listed[..]
        else {
            panic!("pages of {limit}: {listed:?}")
        };
        assert_eq!((last.event, last.events), (alone, 1));
        assert_eq!((first.request, first.events), (request, 5));
        assert_eq!(first.path.as_deref(), Some(parts[0].payload.head.path.as_str()));
    }
    world.wait(Duration::from_millis(5));
    let differing = NewEvent { payload: world.arrival().payload, ..world.again(&parts[0]) };
    world.expect_duplicate(differing).await;
    world.reopen().await;
    let listed = all(&world, &RequestFilter::default(), 10).await;
    let ReceivedRequest::Duplicate(sighted) = &listed[0] else { panic!("{listed:?}") };
    assert!(sighted.bytes_differ);
    assert_eq!((sighted.event, sighted.source), (parts[0].id, world.shop));
    assert!(sighted.body_bytes.is_some_and(|bytes| bytes > 0));
}
