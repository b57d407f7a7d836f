//! What is known of files: kept whole, and once.

use surehook_core::{ids::MediaId, media::Upload, service::message::MediaKind};

use super::World;

fn upload(world: &World, number: u128) -> Upload {
    let id = MediaId::new(world.now, number << 100);
    Upload {
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

pub async fn what_is_known_of_a_file_survives_a_restart(mut world: World) {
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
        kept.push(Upload { kind, filename, ..upload(&world, number) });
    }
    for one in &kept {
        world.keep_upload(one.clone()).await.unwrap();
    }

    world.reopen().await;

    for one in kept {
        assert_eq!(world.upload(one.id).await.unwrap(), Some(one));
    }
    assert_eq!(world.upload(upload(&world, 9).id).await.unwrap(), None);
}

pub async fn a_file_that_is_kept_again_stays_as_it_was(world: World) {
    let first = upload(&world, 1);
    let second = Upload { size: 2, key: "other".to_owned(), ..first.clone() };
    for one in [&first, &second] {
        world.keep_upload(one.clone()).await.unwrap();
    }
    assert_eq!(world.upload(first.id).await.unwrap(), Some(first));
}
