//! Media metadata: stored once, and kept as long as it may be used.

use std::time::Duration;

use surehook_core::store::NextStep;
use surehook_messaging::{
    media::{StoredMedia, UNUSED_RETENTION, USE_RECORD_INTERVAL},
    message::MediaKind,
};
use surehook_types::ids::MediaId;

use super::StoreFixture;

const DAY: Duration = Duration::from_secs(86_400);
const TICK: Duration = Duration::from_millis(1);

fn upload(fixture: &StoreFixture, number: u128) -> StoredMedia {
    let id = MediaId::new(fixture.now, number << 100);
    StoredMedia {
        id,
        bucket: "files".to_owned(),
        key: format!("media/{id}.pdf"),
        kind: MediaKind::Document,
        mime_type: "application/pdf".to_owned(),
        size: 1 << 33,
        filename: Some("Conta de março.pdf".to_owned()),
        created_at: fixture.now,
    }
}

pub async fn media_metadata_survives_restart(mut fixture: StoreFixture) {
    let kinds = [
        MediaKind::Image,
        MediaKind::Video,
        MediaKind::Audio,
        MediaKind::Document,
        MediaKind::Sticker,
    ];
    let mut stored = Vec::new();
    for (number, kind) in (1..).zip(kinds) {
        let filename = (number % 2 == 0).then(|| "a".to_owned());
        stored.push(StoredMedia { kind, filename, ..upload(&fixture, number) });
    }
    for media in &stored {
        fixture.store_media(media.clone()).await.unwrap();
    }

    fixture.reopen().await;

    for media in stored {
        assert_eq!(fixture.find_media(media.id).await.unwrap(), Some(media));
    }
    assert_eq!(fixture.find_media(upload(&fixture, 9).id).await.unwrap(), None);
}

pub async fn storing_a_media_id_again_keeps_the_first_row(fixture: StoreFixture) {
    let first = upload(&fixture, 1);
    let second = StoredMedia { size: 2, key: "other".to_owned(), ..first.clone() };
    for media in [&first, &second] {
        fixture.store_media(media.clone()).await.unwrap();
    }
    assert_eq!(fixture.find_media(first.id).await.unwrap(), Some(first));
}

/// Stores a file that was uploaded now.
async fn store_new(fixture: &StoreFixture, number: u128) -> MediaId {
    let upload = upload(fixture, number);
    let id = upload.id;
    fixture.store_media(upload).await.unwrap();
    id
}

async fn is_stored(fixture: &StoreFixture, id: MediaId) -> bool {
    fixture.find_media(id).await.unwrap().is_some()
}

pub async fn unused_media_is_pruned_after_the_retention_time(mut fixture: StoreFixture) {
    let [unused, used, read] =
        [store_new(&fixture, 1).await, store_new(&fixture, 2).await, store_new(&fixture, 3).await];
    fixture.wait(100 * DAY);
    let found = fixture.use_media(used, fixture.now).await.unwrap();
    assert!(found.is_some_and(|upload| upload.id == used), "a use returns the metadata");
    // Reading the metadata is not a use.
    assert!(is_stored(&fixture, read).await);
    for (wait, expected) in [
        (UNUSED_RETENTION - 100 * DAY, [true, true, true]),
        (TICK, [false, true, false]),
        (100 * DAY - TICK, [false, true, false]),
        (TICK, [false, false, false]),
    ] {
        fixture.wait(wait);
        fixture.reopen().await;
        fixture.prune_all(30 * DAY).await;
        for (id, expected) in [unused, used, read].into_iter().zip(expected) {
            assert_eq!(is_stored(&fixture, id).await, expected, "{id} after {wait:?} more");
        }
    }
    assert_eq!(fixture.use_media(used, fixture.now).await.unwrap(), None);
}

pub async fn media_is_kept_while_an_event_may_reference_it(mut fixture: StoreFixture) {
    let file = store_new(&fixture, 1).await;
    let later = USE_RECORD_INTERVAL - TICK;
    fixture.wait(later);
    assert!(fixture.use_media(file, fixture.now).await.unwrap().is_some());
    let event = fixture.event_for_both("k");
    fixture.accept(event).await;
    fixture.finish_due(fixture.mail, NextStep::Succeeded).await;

    fixture.wait(UNUSED_RETENTION * 3);
    fixture.prune_all(30 * DAY).await;
    assert!(is_stored(&fixture, file).await, "a message is unfinished");

    fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
    fixture.wait(DAY);
    fixture.prune_all(30 * DAY).await;
    assert!(!is_stored(&fixture, file).await, "its event was pruned");
}

pub async fn media_is_pruned_in_bounded_slices(mut fixture: StoreFixture) {
    let mut files = Vec::new();
    for number in 1..=500 {
        files.push(store_new(&fixture, number).await);
    }
    fixture.wait(UNUSED_RETENTION + TICK);
    let recent = store_new(&fixture, 501).await;

    assert!(fixture.prune(30 * DAY, fixture.now).await.unwrap().more, "a slice is bounded");

    fixture.prune_all(30 * DAY).await;
    for id in files {
        assert_eq!(fixture.find_media(id).await.unwrap(), None);
    }
    assert!(fixture.find_media(recent).await.unwrap().is_some());
}
