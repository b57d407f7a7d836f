//! Quarantine: requests that were not accepted and must not be lost.

use std::time::Duration;

use bytes::Bytes;
use surehook_core::{
    event::{HeaderBlock, NewEvent},
    quarantine::{
        QUARANTINE_REQUESTS_MAX, QUARANTINE_RETENTION, QuarantineRelease, QuarantinedRequest,
    },
    store::{AdmitResult, ConfigChange, PageRequest},
};
use surehook_types::{
    ids::{RequestId, SourceId},
    store_error::StoreError,
};

use super::{StoreFixture, fixture::first_page};

fn request(fixture: &StoreFixture, source: SourceId, body: impl Into<Bytes>) -> QuarantinedRequest {
    let body = body.into();
    QuarantinedRequest {
        id: fixture.new_id(),
        source,
        received_at: fixture.now,
        seen_at: fixture.now,
        times: 1,
        code: "mismatch".to_owned(),
        method: "POST".to_owned(),
        path: "/a".to_owned(),
        query: Some("b=1".to_owned()),
        remote: "192.0.2.1".to_owned(),
        headers: HeaderBlock::from_bytes(HEADERS.to_vec()),
        body_bytes: body.len() as u64,
        body: Some(body),
    }
}

const HEADERS: &[u8] = b"x-a: \xff\r\n";
/// Upper bound of the stored size of a request without its body.
const STORED_BYTES_MAX: usize = 256;
/// Size limit of the quarantine: enough for four large requests.
const BYTES_MAX: u64 = 4 << 20;

async fn quarantine_one(
    fixture: &StoreFixture,
    source: SourceId,
    body: impl Into<Bytes>,
) -> QuarantinedRequest {
    let quarantined = request(fixture, source, body);
    let result = fixture.quarantine(quarantined.clone(), BYTES_MAX).await.unwrap();
    assert_eq!((result.id, result.evicted), (Some(quarantined.id), 0));
    quarantined
}

async fn ids(fixture: &StoreFixture, source: Option<SourceId>) -> Vec<RequestId> {
    let page = first_page(100_000);
    let rows = fixture.list_quarantined(source, page).await.unwrap();
    assert!(rows.iter().all(|row| row.body.is_none()));
    rows.iter().map(|row| row.id).collect()
}

pub async fn quarantined_request_is_stored_with_all_fields(mut fixture: StoreFixture) {
    let first = quarantine_one(&fixture, fixture.shop, "a").await;
    let other = quarantine_one(&fixture, fixture.bank, "a").await;
    let bare = QuarantinedRequest { query: None, ..request(&fixture, fixture.shop, "") };
    fixture.quarantine(bare.clone(), BYTES_MAX).await.unwrap();

    fixture.reopen().await;

    assert_eq!(ids(&fixture, None).await, [bare.id, other.id, first.id]);
    assert_eq!(ids(&fixture, Some(fixture.shop)).await, [bare.id, first.id]);
    for quarantined in [first, other, bare] {
        assert_eq!(fixture.find_quarantined(quarantined.id).await.unwrap(), Some(quarantined));
    }
    assert_eq!(fixture.find_quarantined(fixture.new_id()).await.unwrap(), None);
}

pub async fn repeated_request_is_quarantined_once(mut fixture: StoreFixture) {
    let first = quarantine_one(&fixture, fixture.shop, "a").await;
    fixture.wait(Duration::from_secs(5));
    let repeat = QuarantinedRequest {
        code: "stale".to_owned(),
        headers: HeaderBlock::from_bytes(b"x-a: 2\r\n".to_vec()),
        remote: "192.0.2.2".to_owned(),
        ..request(&fixture, fixture.shop, "a")
    };

    let result = fixture.quarantine(repeat.clone(), BYTES_MAX).await.unwrap();

    assert_eq!(result.id, Some(first.id));
    let expected =
        QuarantinedRequest { id: first.id, received_at: first.received_at, times: 2, ..repeat };
    assert_eq!(fixture.find_quarantined(first.id).await.unwrap(), Some(expected));
    assert_eq!(ids(&fixture, None).await, [first.id]);
}

pub async fn full_quarantine_drops_the_oldest_of_the_source(fixture: StoreFixture) {
    let other = quarantine_one(&fixture, fixture.bank, "a").await;
    // The head counts as well.
    let large = vec![b'x'; usize::try_from(BYTES_MAX / 4).unwrap() - STORED_BYTES_MAX];
    let mut all = Vec::new();
    let mut evicted = 0;
    for number in 0..6_u8 {
        let mut body = large.clone();
        body[0] = number;
        let quarantined = request(&fixture, fixture.shop, body);
        all.push(quarantined.id);
        evicted += fixture.quarantine(quarantined, BYTES_MAX).await.unwrap().evicted;
    }
    all.reverse();
    assert_eq!(ids(&fixture, Some(fixture.shop)).await, all[..4]);
    assert_eq!((evicted, ids(&fixture, Some(fixture.bank)).await), (2, vec![other.id]));

    // The number of small requests is limited too.
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..QUARANTINE_REQUESTS_MAX + 3 {
        let (store, quarantined) =
            (fixture.store(), request(&fixture, fixture.bank, number.to_string()));
        tasks.spawn(async move { store.quarantine(quarantined, BYTES_MAX).await.unwrap().evicted });
        if tasks.len() == 500 {
            tasks.join_all().await;
            tasks = tokio::task::JoinSet::new();
        }
    }
    tasks.join_all().await;
    assert_eq!(ids(&fixture, Some(fixture.bank)).await.len() as u64, QUARANTINE_REQUESTS_MAX);
    for id in ids(&fixture, Some(fixture.shop)).await {
        assert!(fixture.discard_quarantined(id).await.unwrap());
    }
    let room = fixture.quarantine(request(&fixture, fixture.shop, large), BYTES_MAX).await.unwrap();
    assert_eq!(room.evicted, 0, "discarded requests take no room");
}

pub async fn full_quarantine_drops_unsigned_requests_first(fixture: StoreFixture) {
    let large =
        |number: u8| vec![number; usize::try_from(BYTES_MAX / 4).unwrap() - STORED_BYTES_MAX];
    let unsigned = |number| QuarantinedRequest {
        code: "missing_signature".to_owned(),
        ..request(&fixture, fixture.shop, large(number))
    };
    let mut signed = vec![request(&fixture, fixture.shop, large(0))];
    fixture.quarantine(signed[0].clone(), BYTES_MAX).await.unwrap();
    for number in 1..=9 {
        let result = fixture.quarantine(unsigned(number), BYTES_MAX).await.unwrap();
        assert!(result.id.is_some(), "an older unsigned request is dropped");
    }
    assert_eq!(ids(&fixture, None).await.len(), 4);
    for number in 10..13 {
        signed.push(request(&fixture, fixture.shop, large(number)));
        let result = fixture.quarantine(signed.last().unwrap().clone(), BYTES_MAX).await.unwrap();
        assert_eq!(result.evicted, 1);
    }
    let all: Vec<_> = signed.iter().rev().map(|quarantined| quarantined.id).collect();
    assert_eq!(ids(&fixture, None).await, all);

    let result = fixture.quarantine(unsigned(20), BYTES_MAX).await.unwrap();

    assert_eq!((result.id, result.evicted), (None, 0), "no unsigned request is left to drop");
    assert_eq!(ids(&fixture, None).await, all);
}

pub async fn flood_of_one_address_drops_only_its_own_quarantined_requests(fixture: StoreFixture) {
    let large =
        |number: u8| vec![number; usize::try_from(BYTES_MAX / 16).unwrap() - STORED_BYTES_MAX];
    let from = |remote: &str, code: &str, number| QuarantinedRequest {
        remote: remote.to_owned(),
        code: code.to_owned(),
        ..request(&fixture, fixture.shop, large(number))
    };
    let genuine = [from("192.0.2.7", "mismatch", 0), from("192.0.2.7", "mismatch", 1)];
    for quarantined in &genuine {
        fixture.quarantine(quarantined.clone(), BYTES_MAX).await.unwrap();
    }
    let mut flood = Vec::new();
    for number in 10..60 {
        // Addresses of one IPv6 network are one sender.
        let quarantined = from(&format!("2001:db8::{number}"), "mismatch", number);
        flood.push(quarantined.id);
        let result = fixture.quarantine(quarantined, BYTES_MAX).await.unwrap();
        assert!(result.id.is_some(), "it takes the place of its own oldest");
    }
    let remaining = ids(&fixture, Some(fixture.shop)).await;
    assert_eq!(remaining.len(), 16);
    assert!(genuine.iter().all(|request| remaining.contains(&request.id)));
    assert_eq!(remaining[..14], flood.iter().rev().take(14).copied().collect::<Vec<_>>());

    // Another address takes what the first one has beyond its share.
    let late = from("198.51.100.1", "mismatch", 100);
    let stored = fixture.quarantine(late.clone(), BYTES_MAX).await.unwrap();
    assert_eq!((stored.id, stored.evicted), (Some(late.id), 1));
    let remaining = ids(&fixture, Some(fixture.shop)).await;
    assert!(genuine.iter().chain([&late]).all(|request| remaining.contains(&request.id)));
}

pub async fn newcomer_does_not_displace_addresses_within_their_share(fixture: StoreFixture) {
    let large =
        |number: u8| vec![number; usize::try_from(BYTES_MAX / 8).unwrap() - STORED_BYTES_MAX];
    let from = |number: u8| QuarantinedRequest {
        remote: format!("192.0.2.{number}"),
        ..request(&fixture, fixture.shop, large(number))
    };
    let mut older = Vec::new();
    for number in 0..8 {
        let quarantined = from(number);
        older.insert(0, quarantined.id);
        fixture.quarantine(quarantined, BYTES_MAX).await.unwrap();
    }
    let stored = fixture.quarantine(from(9), BYTES_MAX).await.unwrap();
    assert_eq!((stored.id, stored.evicted), (None, 0));
    assert_eq!(ids(&fixture, Some(fixture.shop)).await, older);

    assert!(fixture.discard_quarantined(older[0]).await.unwrap());
    let stored = fixture.quarantine(from(10), BYTES_MAX).await.unwrap();
    assert!(stored.id.is_some(), "there is room again");
}

pub async fn unsigned_repeat_keeps_the_signed_request(fixture: StoreFixture) {
    let signed = quarantine_one(&fixture, fixture.shop, "a").await;
    let copy = QuarantinedRequest {
        code: "missing_signature".to_owned(),
        headers: HeaderBlock::from_bytes(Vec::new()),
        ..request(&fixture, fixture.shop, "a")
    };
    assert_eq!(fixture.quarantine(copy, BYTES_MAX).await.unwrap().id, Some(signed.id));

    let found = fixture.find_quarantined(signed.id).await.unwrap();

    assert_eq!(found, Some(QuarantinedRequest { times: 2, ..signed }));
}

pub async fn repeated_request_with_longer_headers_takes_more_room(fixture: StoreFixture) {
    let first = quarantine_one(&fixture, fixture.shop, "a".repeat(5_000)).await;
    let second = quarantine_one(&fixture, fixture.shop, "b").await;
    let longer = HeaderBlock::from_bytes(vec![b'x'; 9_900]);
    let repeat = QuarantinedRequest { headers: longer, ..second.clone() };

    let result = fixture.quarantine(repeat, 12_000).await.unwrap();

    assert_eq!((result.id, result.evicted), (Some(second.id), 1));
    assert_eq!(fixture.find_quarantined(first.id).await.unwrap(), None);
}

pub async fn quarantine_queue_is_oldest_first(fixture: StoreFixture) {
    let mut all = Vec::new();
    for body in ["a", "b", "c", "d", "e"] {
        all.push(quarantine_one(&fixture, fixture.shop, body).await.id);
        quarantine_one(&fixture, fixture.bank, body).await;
    }
    let first = fixture.list_quarantined_ids(fixture.shop, first_page(2)).await.unwrap();
    let rest = PageRequest { after: first.last().copied(), limit: 9 };
    let rest = fixture.list_quarantined_ids(fixture.shop, rest).await.unwrap();
    assert_eq!([first, rest].concat(), all);
}

pub async fn released_request_leaves_quarantine_in_the_same_commit(fixture: StoreFixture) {
    let quarantined = quarantine_one(&fixture, fixture.shop, "a").await;
    let released = || NewEvent {
        releases: Some(QuarantineRelease::Request(quarantined.id)),
        ..fixture.new_event()
    };

    let admitted = fixture.admit(vec![released(), fixture.new_event()]).await.unwrap();

    assert!(
        admitted.iter().all(|request| matches!(request, AdmitResult::Accepted { .. })),
        "{admitted:?}"
    );
    assert_eq!(ids(&fixture, None).await, []);
    let before = fixture.counts().await.events;
    let twice = fixture.admit(vec![released(), fixture.new_event()]).await;
    assert!(matches!(twice, Err(StoreError::Refused(_))), "{twice:?}");
    assert_eq!(fixture.counts().await.events, before, "a released request is not stored again");
}

pub async fn released_duplicate_leaves_quarantine(fixture: StoreFixture) {
    let quarantined = quarantine_one(&fixture, fixture.shop, "a").await;
    fixture.admit(vec![fixture.event_with_key("k")]).await.unwrap();

    let event = NewEvent {
        releases: Some(QuarantineRelease::Request(quarantined.id)),
        ..fixture.event_with_key("k")
    };
    let admitted = fixture.admit(vec![event]).await.unwrap();

    assert!(matches!(admitted[..], [AdmitResult::Duplicate(_)]), "{admitted:?}");
    assert_eq!(ids(&fixture, None).await, []);
}

pub async fn release_for_deleted_source_stays_in_quarantine(fixture: StoreFixture) {
    let quarantined = quarantine_one(&fixture, fixture.shop, "a").await;
    fixture.apply(ConfigChange::DeleteSource(fixture.shop)).await;

    let event = NewEvent {
        releases: Some(QuarantineRelease::Request(quarantined.id)),
        ..fixture.new_event()
    };
    assert_eq!(fixture.admit(vec![event]).await.unwrap(), [AdmitResult::SourceGone]);

    assert_eq!(ids(&fixture, None).await, [quarantined.id]);
}

pub async fn accepting_the_same_request_removes_it_from_quarantine(mut fixture: StoreFixture) {
    let quarantined = quarantine_one(&fixture, fixture.shop, "a").await;
    let other = quarantine_one(&fixture, fixture.shop, "b").await;
    let elsewhere = quarantine_one(&fixture, fixture.bank, "a").await;
    fixture.reopen().await;
    assert!(fixture.may_have_quarantined(fixture.shop), "known after a restart");

    let same = Some(QuarantineRelease::Same(quarantined.fingerprint()));
    for event in [fixture.event_with_key("k"), fixture.event_with_key("k")] {
        fixture.admit(vec![NewEvent { releases: same, ..event }]).await.unwrap();
    }

    assert_eq!(ids(&fixture, None).await, [elsewhere.id, other.id]);
    assert!(fixture.discard_quarantined(other.id).await.unwrap());
    fixture.prune_all(QUARANTINE_RETENTION * 4).await;
    // That of the shop has none any more, which a store need not know.
    assert!(fixture.may_have_quarantined(fixture.bank));
}

pub async fn unreleased_request_is_pruned_after_the_quarantine_time(mut fixture: StoreFixture) {
    let old = quarantine_one(&fixture, fixture.shop, "old").await;
    let seen = quarantine_one(&fixture, fixture.shop, "seen again").await;
    fixture.wait(QUARANTINE_RETENTION);
    let repeat = request(&fixture, fixture.shop, "seen again");
    fixture.quarantine(repeat, BYTES_MAX).await.unwrap();
    fixture.prune_all(QUARANTINE_RETENTION * 4).await;
    assert_eq!(ids(&fixture, None).await, [seen.id, old.id], "the quarantine time is not over");

    fixture.wait(Duration::from_secs(1));
    fixture.prune_all(QUARANTINE_RETENTION * 4).await;

    assert_eq!(ids(&fixture, None).await, [seen.id]);
    assert!(fixture.discard_quarantined(seen.id).await.unwrap());
    assert!(!fixture.discard_quarantined(seen.id).await.unwrap());
}
