//! A bounded sample of what was not let in.

use std::time::Duration;

use bytes::Bytes;
use surehook_core::{
    event::HeaderBlock,
    refused::{RefusedFilter, RefusedRequest, SAMPLES_MAX},
    store::PageRequest,
};

use super::World;

pub(super) fn request(world: &World, source: Option<&str>, code: &str) -> RefusedRequest {
    RefusedRequest {
        id: world.id(),
        source: source.map(str::to_owned),
        at: world.now,
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

async fn list(world: &World, source: Option<&str>, code: Option<&str>) -> Vec<RefusedRequest> {
    let filter = RefusedFilter {
        source: source.map(str::to_owned),
        code: code.map(str::to_owned),
        ..RefusedFilter::default()
    };
    world.refused(filter, PageRequest { after: None, limit: 1000 }).await.unwrap()
}

pub async fn refused_request_is_stored_with_all_fields(mut world: World) {
    let whole = request(&world, Some("shop"), "mismatch");
    let bare = RefusedRequest {
        source: None,
        query: None,
        body_bytes: None,
        body: None,
        ..request(&world, None, "unknown_source")
    };
    world.store_refused(vec![whole.clone(), bare.clone()]).await.unwrap();

    world.reopen().await;

    assert_eq!(list(&world, None, None).await, [bare.clone(), whole.clone()]);
    assert_eq!(world.find_refused(whole.id).await.unwrap(), Some(whole));
    assert_eq!(world.find_refused(bare.id).await.unwrap(), Some(bare));
    assert_eq!(world.find_refused(world.id()).await.unwrap(), None);
}

pub async fn refused_samples_of_one_source_and_code_drop_the_oldest(world: World) {
    let other = request(&world, Some("shop"), "stale");
    let stranger = request(&world, None, "mismatch");
    world.store_refused(vec![other.clone(), stranger.clone()]).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..3 {
        let flood: Vec<_> =
            (0..SAMPLES_MAX).map(|_| request(&world, Some("shop"), "mismatch")).collect();
        all.extend(flood.iter().map(|request| request.id));
        world.store_refused(flood).await.unwrap();
    }

    let kept = list(&world, Some("shop"), Some("mismatch")).await;

    let newest: Vec<_> = all.into_iter().rev().take(SAMPLES_MAX).collect();
    assert_eq!(kept.iter().map(|request| request.id).collect::<Vec<_>>(), newest);
    assert_eq!(list(&world, None, Some("stale")).await, [other]);
    assert!(list(&world, None, None).await.contains(&stranger));
}

pub async fn refused_samples_without_source_drop_the_oldest(world: World) {
    for _ in 0..SAMPLES_MAX + 7 {
        world.store_refused(vec![request(&world, None, "unknown_source")]).await.unwrap();
    }
    assert_eq!(list(&world, None, Some("unknown_source")).await.len(), SAMPLES_MAX);
}

pub async fn refused_requests_are_listed_in_pages(world: World) {
    let all: Vec<_> = (0..25).map(|_| request(&world, Some("shop"), "stale")).collect();
    world.store_refused(all.clone()).await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = PageRequest { after, limit: 10 };
        let rows = world.refused(RefusedFilter::default(), page).await.unwrap();
        after = rows.last().map(|row| row.id);
        if rows.is_empty() {
            break;
        }
        seen.extend(rows);
    }
    seen.reverse();
    assert_eq!(seen, all);
}

pub async fn old_refused_sample_is_pruned_with_events_of_its_age(mut world: World) {
    world.store_refused(vec![request(&world, None, "stale")]).await.unwrap();
    world.wait(Duration::from_secs(10));
    let young = request(&world, None, "stale");
    world.store_refused(vec![young.clone()]).await.unwrap();

    world.prune_all(Duration::ZERO).await;

    assert_eq!(list(&world, None, None).await, [young]);
}
