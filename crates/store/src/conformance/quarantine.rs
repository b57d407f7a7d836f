//! What was not let in and may not be lost.

use std::time::Duration;

use bytes::Bytes;
use surehook_core::{
    event::{HeaderBlock, NewEvent},
    ids::{RequestId, SourceId},
    quarantine::{
        QUARANTINE_REQUESTS_MAX, QUARANTINE_RETENTION, QuarantineRelease, QuarantinedRequest,
    },
    store::{AdmitResult, ConfigChange, PageRequest, StoreError},
};

use super::World;

fn request(world: &World, source: SourceId, body: impl Into<Bytes>) -> QuarantinedRequest {
    let body = body.into();
    QuarantinedRequest {
        id: world.id(),
        source,
        received_at: world.now,
        seen_at: world.now,
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
/// Room for a few large ones.
const ROOM: u64 = 4 << 20;

async fn keep(world: &World, source: SourceId, body: &'static str) -> QuarantinedRequest {
    let aside = request(world, source, body);
    let kept = world.quarantine(aside.clone(), ROOM).await.unwrap();
    assert_eq!((kept.id, kept.pushed_out), (Some(aside.id), 0));
    aside
}

async fn ids(world: &World, source: Option<SourceId>) -> Vec<RequestId> {
    let page = PageRequest { after: None, limit: 100_000 };
    let rows = world.list_quarantined(source, page).await.unwrap();
    assert!(rows.iter().all(|row| row.body.is_none()));
    rows.iter().map(|row| row.id).collect()
}

pub async fn quarantined_request_is_stored_with_all_fields(mut world: World) {
    let first = keep(&world, world.shop, "a").await;
    let other = keep(&world, world.bank, "a").await;
    let bare = QuarantinedRequest { query: None, ..request(&world, world.shop, "") };
    world.quarantine(bare.clone(), ROOM).await.unwrap();

    world.reopen().await;

    assert_eq!(ids(&world, None).await, [bare.id, other.id, first.id]);
    assert_eq!(ids(&world, Some(world.shop)).await, [bare.id, first.id]);
    for aside in [first, other, bare] {
        assert_eq!(world.find_quarantined(aside.id).await.unwrap(), Some(aside));
    }
    assert_eq!(world.find_quarantined(world.id()).await.unwrap(), None);
}

pub async fn repeated_request_is_quarantined_once(mut world: World) {
    let first = keep(&world, world.shop, "a").await;
    world.wait(Duration::from_secs(5));
    let again = QuarantinedRequest {
        code: "stale".to_owned(),
        headers: HeaderBlock::from_bytes(b"x-a: 2\r\n".to_vec()),
        remote: "192.0.2.2".to_owned(),
        ..request(&world, world.shop, "a")
    };

    let kept = world.quarantine(again.clone(), ROOM).await.unwrap();

    assert_eq!(kept.id, Some(first.id));
    let expected =
        QuarantinedRequest { id: first.id, received_at: first.received_at, times: 2, ..again };
    assert_eq!(world.find_quarantined(first.id).await.unwrap(), Some(expected));
    assert_eq!(ids(&world, None).await, [first.id]);
}

pub async fn full_quarantine_drops_the_oldest_of_the_source(world: World) {
    let other = keep(&world, world.bank, "a").await;
    // The headers count too.
    let large = vec![b'x'; usize::try_from(ROOM / 4).unwrap() - HEADERS.len()];
    let mut all = Vec::new();
    let mut pushed_out = 0;
    for number in 0..6_u8 {
        let mut body = large.clone();
        body[0] = number;
        let aside = request(&world, world.shop, body);
        all.push(aside.id);
        pushed_out += world.quarantine(aside, ROOM).await.unwrap().pushed_out;
    }
    all.reverse();
    assert_eq!(ids(&world, Some(world.shop)).await, all[..4]);
    assert_eq!((pushed_out, ids(&world, Some(world.bank)).await), (2, vec![other.id]));

    // Small ones are bounded by their number.
    let mut coming = tokio::task::JoinSet::new();
    for number in 0..QUARANTINE_REQUESTS_MAX + 3 {
        let (store, aside) = (world.store(), request(&world, world.bank, number.to_string()));
        coming.spawn(async move { store.quarantine(aside, ROOM).await.unwrap().pushed_out });
        if coming.len() == 500 {
            coming.join_all().await;
            coming = tokio::task::JoinSet::new();
        }
    }
    coming.join_all().await;
    assert_eq!(ids(&world, Some(world.bank)).await.len() as u64, QUARANTINE_REQUESTS_MAX);
    for id in ids(&world, Some(world.shop)).await {
        assert!(world.discard_quarantined(id).await.unwrap());
    }
    let room = world.quarantine(request(&world, world.shop, large), ROOM).await.unwrap();
    assert_eq!(room.pushed_out, 0, "what was discarded takes no room");
}

pub async fn full_quarantine_drops_unsigned_requests_first(world: World) {
    let large = |number: u8| vec![number; usize::try_from(ROOM / 4).unwrap() - HEADERS.len()];
    let stranger = |number| QuarantinedRequest {
        code: "missing_signature".to_owned(),
        ..request(&world, world.shop, large(number))
    };
    let mut signed = vec![request(&world, world.shop, large(0))];
    world.quarantine(signed[0].clone(), ROOM).await.unwrap();
    for number in 1..=9 {
        let kept = world.quarantine(stranger(number), ROOM).await.unwrap();
        assert!(kept.id.is_some(), "another stranger makes room");
    }
    assert_eq!(ids(&world, None).await.len(), 4);
    for number in 10..13 {
        signed.push(request(&world, world.shop, large(number)));
        let kept = world.quarantine(signed.last().unwrap().clone(), ROOM).await.unwrap();
        assert_eq!(kept.pushed_out, 1);
    }
    let all: Vec<_> = signed.iter().rev().map(|aside| aside.id).collect();
    assert_eq!(ids(&world, None).await, all);

    let kept = world.quarantine(stranger(20), ROOM).await.unwrap();

    assert_eq!((kept.id, kept.pushed_out), (None, 0), "there is no stranger left to make room");
    assert_eq!(ids(&world, None).await, all);
}

pub async fn unsigned_repeat_keeps_the_signed_request(world: World) {
    let signed = keep(&world, world.shop, "a").await;
    let copy = QuarantinedRequest {
        code: "missing_signature".to_owned(),
        headers: HeaderBlock::from_bytes(Vec::new()),
        ..request(&world, world.shop, "a")
    };
    assert_eq!(world.quarantine(copy, ROOM).await.unwrap().id, Some(signed.id));

    let found = world.find_quarantined(signed.id).await.unwrap();

    assert_eq!(found, Some(QuarantinedRequest { times: 2, ..signed }));
}

pub async fn repeated_request_with_longer_headers_takes_more_room(world: World) {
    let first = keep(&world, world.shop, "a").await;
    let second = keep(&world, world.shop, "b").await;
    let longer = HeaderBlock::from_bytes(vec![b'x'; 99]);
    let again = QuarantinedRequest { headers: longer, ..second.clone() };

    let kept = world.quarantine(again, 101).await.unwrap();

    assert_eq!((kept.id, kept.pushed_out), (Some(second.id), 1));
    assert_eq!(world.find_quarantined(first.id).await.unwrap(), None);
}

pub async fn quarantine_queue_is_oldest_first(world: World) {
    let mut all = Vec::new();
    for body in ["a", "b", "c", "d", "e"] {
        all.push(keep(&world, world.shop, body).await.id);
        keep(&world, world.bank, body).await;
    }
    let first = world
        .list_quarantined_ids(world.shop, PageRequest { after: None, limit: 2 })
        .await
        .unwrap();
    let rest = PageRequest { after: first.last().copied(), limit: 9 };
    let rest = world.list_quarantined_ids(world.shop, rest).await.unwrap();
    assert_eq!([first, rest].concat(), all);
}

pub async fn released_request_leaves_quarantine_in_the_same_commit(world: World) {
    let aside = keep(&world, world.shop, "a").await;
    let released =
        || NewEvent { releases: Some(QuarantineRelease::Request(aside.id)), ..world.arrival() };

    let admitted = world.admit(vec![released(), world.arrival()]).await.unwrap();

    assert!(admitted.iter().all(|one| matches!(one, AdmitResult::Accepted { .. })), "{admitted:?}");
    assert_eq!(ids(&world, None).await, []);
    let before = world.counts().events;
    let twice = world.admit(vec![released(), world.arrival()]).await;
    assert!(matches!(twice, Err(StoreError::Refused(_))), "{twice:?}");
    assert_eq!(world.counts().events, before, "nothing of a request that is out already");
}

pub async fn released_duplicate_leaves_quarantine(world: World) {
    let aside = keep(&world, world.shop, "a").await;
    world.admit(vec![world.keyed("k")]).await.unwrap();

    let event =
        NewEvent { releases: Some(QuarantineRelease::Request(aside.id)), ..world.keyed("k") };
    let admitted = world.admit(vec![event]).await.unwrap();

    assert!(matches!(admitted[..], [AdmitResult::Duplicate(_)]), "{admitted:?}");
    assert_eq!(ids(&world, None).await, []);
}

pub async fn release_for_deleted_source_stays_in_quarantine(world: World) {
    let aside = keep(&world, world.shop, "a").await;
    world.change(vec![ConfigChange::DeleteSource(world.shop)], world.now).await.unwrap();

    let event =
        NewEvent { releases: Some(QuarantineRelease::Request(aside.id)), ..world.arrival() };
    assert_eq!(world.admit(vec![event]).await.unwrap(), [AdmitResult::SourceGone]);

    assert_eq!(ids(&world, None).await, [aside.id]);
}

pub async fn accepting_the_same_request_removes_it_from_quarantine(mut world: World) {
    assert!(!world.may_have_quarantined(world.shop));
    let aside = keep(&world, world.shop, "a").await;
    let other = keep(&world, world.shop, "b").await;
    let elsewhere = keep(&world, world.bank, "a").await;
    world.reopen().await;
    assert!(world.may_have_quarantined(world.shop), "it is known after a restart");

    let same = Some(QuarantineRelease::Same(aside.fingerprint()));
    for event in [world.keyed("k"), world.keyed("k")] {
        world.admit(vec![NewEvent { releases: same, ..event }]).await.unwrap();
    }

    assert_eq!(ids(&world, None).await, [elsewhere.id, other.id]);
    assert!(world.discard_quarantined(other.id).await.unwrap());
    world.prune_all(QUARANTINE_RETENTION * 4).await;
    assert!(!world.may_have_quarantined(world.shop) && world.may_have_quarantined(world.bank));
}

pub async fn unreleased_request_is_pruned_after_the_quarantine_time(mut world: World) {
    let old = keep(&world, world.shop, "old").await;
    let seen = keep(&world, world.shop, "seen again").await;
    world.wait(QUARANTINE_RETENTION);
    let again = request(&world, world.shop, "seen again");
    world.quarantine(again, ROOM).await.unwrap();
    world.prune_all(QUARANTINE_RETENTION * 4).await;
    assert_eq!(ids(&world, None).await, [seen.id, old.id], "its time is not over yet");

    world.wait(Duration::from_secs(1));
    world.prune_all(QUARANTINE_RETENTION * 4).await;

    assert_eq!(ids(&world, None).await, [seen.id]);
    assert!(world.discard_quarantined(seen.id).await.unwrap());
    assert!(!world.discard_quarantined(seen.id).await.unwrap());
}
