//! The list of all received requests, and the bounded sample of refused ones.

use std::time::Duration;

use bytes::Bytes;
use surehook_core::{
    event::{HeaderBlock, NewEvent},
    refused::{RefusedFilter, RefusedRequest, SAMPLE_PROTECTED, SAMPLES_MAX},
    requests::{ReceivedRequest, RequestFilter, RequestOutcome},
    store::PageRequest,
};
use surehook_types::{ids::EventId, time::Timestamp};

use super::{
    StoreFixture,
    fixture::{first_page, read_pages},
};

/// Outcome, time and event of a request.
type RequestSummary = (RequestOutcome, Timestamp, Option<EventId>);

fn summarize(request: &ReceivedRequest) -> RequestSummary {
    match request {
        ReceivedRequest::Accepted(accepted) => {
            (RequestOutcome::Accepted, accepted.at, Some(accepted.event))
        }
        ReceivedRequest::Duplicate(duplicate) => {
            (RequestOutcome::Duplicate, duplicate.at, Some(duplicate.event))
        }
        ReceivedRequest::Refused(refused) => (RequestOutcome::Refused, refused.at, None),
    }
}

async fn list_all(
    fixture: &StoreFixture,
    filter: &RequestFilter,
    limit: usize,
) -> Vec<ReceivedRequest> {
    read_pages(limit, async |page| fixture.list_requests(filter.clone(), page).await).await
}

/// Requests of every outcome at different times, oldest first; those of the bank are all refused.
async fn receive_mixed_requests(fixture: &mut StoreFixture) -> Vec<RequestSummary> {
    let mut expected = Vec::new();
    for round in 0..6 {
        fixture.wait(Duration::from_millis(5));
        let first = fixture.event_with_key(&format!("k{round}"));
        fixture.accept(first.clone()).await;
        expected.push((RequestOutcome::Accepted, fixture.now, Some(first.id)));
        for _ in 0..round % 3 {
            fixture.wait(Duration::from_millis(5));
            fixture.expect_duplicate(fixture.repeat_of(&first)).await;
            expected.push((RequestOutcome::Duplicate, fixture.now, Some(first.id)));
        }
        fixture.wait(Duration::from_millis(5));
        let source = if round % 2 == 0 { "shop" } else { "bank" };
        let code = if round < 3 { "stale" } else { "mismatch" };
        fixture.store_refused(vec![find_refused(fixture, Some(source), code)]).await.unwrap();
        expected.push((RequestOutcome::Refused, fixture.now, None));
    }
    fixture.reopen().await;
    expected
}

pub async fn requests_of_every_outcome_are_listed_newest_first(mut fixture: StoreFixture) {
    let mut expected = receive_mixed_requests(&mut fixture).await;
    expected.reverse();

    for limit in [1, 2, 3, 7, 100] {
        let listed = list_all(&fixture, &RequestFilter::default(), limit).await;
        let listed: Vec<RequestSummary> = listed.iter().map(summarize).collect();
        assert_eq!(listed, expected, "pages of {limit}");
    }
}

pub async fn requests_are_filtered_by_outcome_time_reason_and_source(mut fixture: StoreFixture) {
    let mut expected = receive_mixed_requests(&mut fixture).await;
    expected.reverse();
    let (newest, oldest) = (expected[3].1, expected[9].1);
    let shop = Some(("shop".to_owned(), Some(fixture.shop)));
    let unknown = Some(("unknown".to_owned(), None));
    let with_outcome = |outcome| RequestFilter { outcome, ..RequestFilter::default() };
    let listed = async |filter: &RequestFilter| -> Vec<RequestSummary> {
        list_all(&fixture, filter, 2).await.iter().map(summarize).collect()
    };

    for outcome in RequestOutcome::ALL {
        let matching: Vec<RequestSummary> =
            expected.iter().copied().filter(|row| row.0 == outcome).collect();
        assert!(!matching.is_empty());
        assert_eq!(listed(&with_outcome(Some(outcome))).await, matching, "{outcome:?}");
    }
    let filter = RequestFilter { since: Some(oldest), until: Some(newest), ..with_outcome(None) };
    let within: Vec<RequestSummary> =
        expected.iter().copied().filter(|row| row.1 >= oldest && row.1 < newest).collect();
    assert_eq!(listed(&filter).await, within);
    let stale = RequestFilter { reason: Some("stale".to_owned()), ..with_outcome(None) };
    assert_eq!(listed(&stale).await.len(), 3);
    let stale = RequestFilter { outcome: Some(RequestOutcome::Accepted), ..stale };
    assert!(listed(&stale).await.is_empty());
    // Three of the six refused requests were for the bank.
    let of_shop = listed(&RequestFilter { source: shop, ..with_outcome(None) }).await;
    assert_eq!(of_shop.len(), expected.len() - 3);
    assert!(listed(&RequestFilter { source: unknown, ..with_outcome(None) }).await.is_empty());
    let other =
        listed(&RequestFilter { exclude_source: Some(fixture.shop), ..with_outcome(None) }).await;
    assert!(other.iter().all(|row| row.0 == RequestOutcome::Refused) && other.len() == 6);
}

/// All requests have the same time and their events are interleaved. Reading all events of that time
/// for each request would take minutes.
pub async fn interleaved_requests_with_thousands_of_events_are_one_row_each(fixture: StoreFixture) {
    let mut parts: Vec<NewEvent> = (0..10_000).map(|_| fixture.new_event()).collect();
    let requests: Vec<_> = parts[..5].iter().map(|part| part.request_id).collect();
    for (n, part) in parts.iter_mut().enumerate() {
        part.request_id = requests[n % 5];
    }
    for some in parts.chunks(1000) {
        fixture.admit(some.to_vec()).await.unwrap();
    }

    for limit in [2, 10] {
        let listed = list_all(&fixture, &RequestFilter::default(), limit).await;
        let mut found: Vec<_> = listed
            .iter()
            .map(|request| match request {
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

pub async fn request_with_several_events_is_one_row(mut fixture: StoreFixture) {
    let mut parts: Vec<NewEvent> =
        (0..5).map(|n| fixture.event_with_key(&format!("k{n}"))).collect();
    let request = parts[0].request_id;
    parts.iter_mut().for_each(|part| part.request_id = request);
    fixture.admit(parts.clone()).await.unwrap();
    let alone = fixture.accept(fixture.new_event()).await;

    for limit in [1, 10] {
        let listed = list_all(&fixture, &RequestFilter::default(), limit).await;
        let [ReceivedRequest::Accepted(last), ReceivedRequest::Accepted(first)] = &listed[..]
        else {
            panic!("pages of {limit}: {listed:?}")
        };
        assert_eq!((last.event, last.events), (alone, 1));
        assert_eq!((first.request, first.events), (request, 5));
        assert_eq!(first.path.as_deref(), Some(parts[0].payload.head.path.as_str()));
    }
    fixture.wait(Duration::from_millis(5));
    let differing =
        NewEvent { payload: fixture.new_event().payload, ..fixture.repeat_of(&parts[0]) };
    fixture.expect_duplicate(differing).await;
    fixture.reopen().await;
    let listed = list_all(&fixture, &RequestFilter::default(), 10).await;
    let ReceivedRequest::Duplicate(duplicate) = &listed[0] else { panic!("{listed:?}") };
    assert!(duplicate.bytes_differ);
    assert_eq!((duplicate.event, duplicate.source), (parts[0].id, fixture.shop));
    assert!(duplicate.body_bytes.is_some_and(|bytes| bytes > 0));
}

pub(super) fn find_refused(
    fixture: &StoreFixture,
    source: Option<&str>,
    code: &str,
) -> RefusedRequest {
    RefusedRequest {
        id: fixture.new_id(),
        source: source.map(str::to_owned),
        at: fixture.now,
        code: code.to_owned(),
        status: 401,
        method: "POST".to_owned(),
        path: "/in/shop/a".to_owned(),
        query: Some("a=1".to_owned()),
        remote: "192.0.2.1".to_owned(),
        headers: HeaderBlock::from_bytes(b"x-a: \xff\r\n".to_vec()),
        body_bytes: Some(4),
        body: Some(Bytes::from_static(b"\x00\xffab")),
    }
}

async fn list_refused(
    fixture: &StoreFixture,
    source: Option<&str>,
    code: Option<&str>,
) -> Vec<RefusedRequest> {
    let filter = RefusedFilter {
        source: source.map(str::to_owned),
        code: code.map(str::to_owned),
        ..RefusedFilter::default()
    };
    fixture.list_refused(filter, first_page(1000)).await.unwrap()
}

pub async fn refused_request_is_stored_with_all_fields(mut fixture: StoreFixture) {
    let complete = find_refused(&fixture, Some("shop"), "mismatch");
    let bare = RefusedRequest {
        source: None,
        query: None,
        body_bytes: None,
        body: None,
        ..find_refused(&fixture, None, "unknown_source")
    };
    fixture.store_refused(vec![complete.clone(), bare.clone()]).await.unwrap();

    fixture.reopen().await;

    assert_eq!(list_refused(&fixture, None, None).await, [bare.clone(), complete.clone()]);
    assert_eq!(fixture.find_refused(complete.id).await.unwrap(), Some(complete));
    assert_eq!(fixture.find_refused(bare.id).await.unwrap(), Some(bare));
    assert_eq!(fixture.find_refused(fixture.new_id()).await.unwrap(), None);
}

pub async fn refused_samples_of_one_source_and_code_drop_the_oldest(fixture: StoreFixture) {
    let other = find_refused(&fixture, Some("shop"), "stale");
    let unknown_source = find_refused(&fixture, None, "mismatch");
    fixture.store_refused(vec![other.clone(), unknown_source.clone()]).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..3 {
        let flood: Vec<_> =
            (0..SAMPLES_MAX).map(|_| find_refused(&fixture, Some("shop"), "mismatch")).collect();
        all.extend(flood.iter().map(|request| request.id));
        fixture.store_refused(flood).await.unwrap();
    }

    let kept = list_refused(&fixture, Some("shop"), Some("mismatch")).await;

    let newest: Vec<_> = all.into_iter().rev().take(SAMPLES_MAX).collect();
    assert_eq!(kept.iter().map(|request| request.id).collect::<Vec<_>>(), newest);
    assert_eq!(list_refused(&fixture, None, Some("stale")).await, [other]);
    assert!(list_refused(&fixture, None, None).await.contains(&unknown_source));
}

pub async fn flood_of_refused_requests_drops_only_samples_of_its_own_address(
    mut fixture: StoreFixture,
) {
    let from = |fixture: &StoreFixture, remote: String| RefusedRequest {
        remote,
        ..find_refused(fixture, Some("shop"), "mismatch")
    };
    let genuine: Vec<_> = (0..5).map(|_| from(&fixture, "192.0.2.7".to_owned())).collect();
    fixture.store_refused(genuine.clone()).await.unwrap();
    for number in 0..3 * SAMPLES_MAX {
        // Addresses of one IPv6 network are one sender.
        let flood = from(&fixture, format!("2001:db8::{number:x}"));
        fixture.store_refused(vec![flood]).await.unwrap();
    }
    let kept = list_refused(&fixture, Some("shop"), Some("mismatch")).await;
    assert_eq!(kept.len(), SAMPLES_MAX);
    assert!(genuine.iter().all(|request| kept.contains(request)));

    // Of many addresses, each keeps one: the first ones, until they are old.
    let count = 2 * SAMPLES_MAX;
    for number in 0..count {
        let stranger = from(&fixture, format!("198.51.{}.{}", number / 200, number % 200));
        fixture.store_refused(vec![stranger]).await.unwrap();
    }
    let kept = list_refused(&fixture, Some("shop"), Some("mismatch")).await;
    assert_eq!(kept.len(), SAMPLES_MAX);
    assert!(kept.iter().any(|request| request.remote == "192.0.2.7"));
    fixture.wait(SAMPLE_PROTECTED * 2);
    let late = from(&fixture, "203.0.113.1".to_owned());
    fixture.store_refused(vec![late.clone()]).await.unwrap();
    assert!(list_refused(&fixture, Some("shop"), None).await.contains(&late));
}

pub async fn refused_samples_without_source_drop_the_oldest(fixture: StoreFixture) {
    for _ in 0..SAMPLES_MAX + 7 {
        fixture.store_refused(vec![find_refused(&fixture, None, "unknown_source")]).await.unwrap();
    }
    assert_eq!(list_refused(&fixture, None, Some("unknown_source")).await.len(), SAMPLES_MAX);
}

pub async fn refused_requests_are_listed_in_pages(fixture: StoreFixture) {
    let all: Vec<_> = (0..25).map(|_| find_refused(&fixture, Some("shop"), "stale")).collect();
    fixture.store_refused(all.clone()).await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = PageRequest { after, limit: 10 };
        let rows = fixture.list_refused(RefusedFilter::default(), page).await.unwrap();
        after = rows.last().map(|row| row.id);
        if rows.is_empty() {
            break;
        }
        seen.extend(rows);
    }
    seen.reverse();
    assert_eq!(seen, all);
}

pub async fn old_refused_sample_is_pruned_with_events_of_its_age(mut fixture: StoreFixture) {
    fixture.store_refused(vec![find_refused(&fixture, None, "stale")]).await.unwrap();
    fixture.wait(Duration::from_secs(10));
    let young = find_refused(&fixture, None, "stale");
    fixture.store_refused(vec![young.clone()]).await.unwrap();

    fixture.prune_all(Duration::ZERO).await;

    assert_eq!(list_refused(&fixture, None, None).await, [young]);
}
