//! What is known of files: kept whole, once, and as long as somebody may need it.

use std::time::Duration;

use surehook_core::{
    channel::message::MediaKind,
    ids::MediaId,
    media::{StoredMedia, UNUSED_RETENTION, USE_RECORD_INTERVAL},
    store::NextStep,
};

use super::World;

const DAY: Duration = Duration::from_secs(86_400);
const TICK: Duration = Duration::from_millis(1);

fn upload(world: &World, number: u128) -> StoredMedia {
    let id = MediaId::new(world.now, number << 100);
    StoredMedia {
        id,
        bucket: "files".to_owned(),
        key: format!("media/{id}.pdf"),
        kind: MediaKind::Document,
        mime_type: "application/pdf".to_owned(),
        size: 1 << 33,
        filename: Some("Conta de março.pdf".to_owned()),
        created_at: world.now,
    }
}

pub async fn media_metadata_survives_restart(mut world: World) {
    let kinds = [
        MediaKind::Image,
        MediaKind::Video,
        MediaKind::Audio,
        MediaKind::Document,
        MediaKind::Sticker,
    ];
    let mut kept = Vec::new();
    for (number, kind) in (1..).zip(kinds) {
        let filename = (number % 2 == 0).then(|| "a".to_owned());
        kept.push(StoredMedia { kind, filename, ..upload(&world, number) });
    }
    for one in &kept {
        world.store_media(one.clone()).await.unwrap();
    }

    world.reopen().await;

    for one in kept {
        assert_eq!(world.find_media(one.id).await.unwrap(), Some(one));
    }
    assert_eq!(world.find_media(upload(&world, 9).id).await.unwrap(), None);
}

pub async fn storing_a_media_id_again_keeps_the_first_row(world: World) {
    let first = upload(&world, 1);
    let second = StoredMedia { size: 2, key: "other".to_owned(), ..first.clone() };
    for one in [&first, &second] {
        world.store_media(one.clone()).await.unwrap();
    }
    assert_eq!(world.find_media(first.id).await.unwrap(), Some(first));
}

/// Keeps a file that came now.
async fn keep(world: &World, number: u128) -> MediaId {
    let upload = upload(world, number);
    let id = upload.id;
    world.store_media(upload).await.unwrap();
    id
}

async fn is_known(world: &World, id: MediaId) -> bool {
    world.find_media(id).await.unwrap().is_some()
}

pub async fn unused_media_is_pruned_after_the_retention_time(mut world: World) {
    let [unused, used, shown] =
        [keep(&world, 1).await, keep(&world, 2).await, keep(&world, 3).await];
    world.wait(100 * DAY);
    let found = world.use_media(used, world.now).await.unwrap();
    assert!(found.is_some_and(|upload| upload.id == used), "a use says what is known");
    // Who only looks does not use.
    assert!(is_known(&world, shown).await);
    for (wait, expected) in [
        (UNUSED_RETENTION - 100 * DAY, [true, true, true]),
        (TICK, [false, true, false]),
        (100 * DAY - TICK, [false, true, false]),
        (TICK, [false, false, false]),
    ] {
        world.wait(wait);
        world.reopen().await;
        world.prune_all(30 * DAY).await;
        for (id, expected) in [unused, used, shown].into_iter().zip(expected) {
            assert_eq!(is_known(&world, id).await, expected, "{id} after {wait:?} more");
        }
    }
    assert_eq!(world.use_media(used, world.now).await.unwrap(), None);
}

pub async fn media_is_kept_while_an_event_may_reference_it(mut world: World) {
    let file = keep(&world, 1).await;
    let later = USE_RECORD_INTERVAL - TICK;
    world.wait(later);
    assert!(world.use_media(file, world.now).await.unwrap().is_some());
    let event = world.keyed_for_both("k");
    world.accept(event).await;
    world.finish_due(world.mail, NextStep::Succeeded).await;

    world.wait(UNUSED_RETENTION * 3);
    world.prune_all(30 * DAY).await;
    assert!(is_known(&world, file).await, "a message is still owed");

    world.finish_due(world.crm, NextStep::Succeeded).await;
    world.wait(DAY);
    world.prune_all(30 * DAY).await;
    assert!(!is_known(&world, file).await, "its event is gone");
}

pub async fn media_is_pruned_in_bounded_slices(mut world: World) {
    let mut files = Vec::new();
    for number in 1..=500 {
        files.push(keep(&world, number).await);
    }
    world.wait(UNUSED_RETENTION + TICK);
    let young = keep(&world, 501).await;

    assert!(world.prune(30 * DAY, world.now).await.unwrap().more, "a slice is bounded");

    world.prune_all(30 * DAY).await;
    for id in files {
        assert_eq!(world.find_media(id).await.unwrap(), None);
    }
    assert!(world.find_media(young).await.unwrap().is_some());
}
