//! Keys that an earlier version stored without namespaces.

use std::time::Duration;

use surehook_core::event::{ConflictPolicy, DedupKeyClaim, NewEvent};
use surehook_store::conformance::StoreFixture;
use surehook_webhooks::key::{DedupKey, KeyNamespace};

use crate::harness::{fixture_in, open_file};

/// An event with a key in a header, as the gateway admits it now.
fn header_event(fixture: &StoreFixture, key: &str) -> NewEvent {
    let claim = DedupKeyClaim {
        namespace: KeyNamespace::Header,
        on_conflict: Some(ConflictPolicy::Duplicate),
        ..fixture.key_claim(key)
    };
    NewEvent { key: Some(claim), earlier_key: DedupKey::new(key), ..fixture.new_event() }
}

#[tokio::test]
async fn header_key_of_an_earlier_version_is_still_recognized() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture_in(folder.path()).await;
    // An earlier version stored every key like one of a body.
    let old = fixture.event_with_key("k");
    fixture.accept(old.clone()).await;
    fixture.wait(Duration::from_secs(1));
    let since = fixture.now.as_millis();
    let sql = "INSERT INTO key_namespaces (since) VALUES (?1)";
    open_file(folder.path()).execute(sql, [since]).unwrap();
    fixture.reopen().await;
    fixture.wait(Duration::from_secs(1));

    let retried = NewEvent { payload: old.payload.clone(), ..header_event(&fixture, "k") };
    assert_eq!(fixture.expect_duplicate(retried).await.original, old.id);

    // Another body under the key was never received in a header.
    fixture.accept(header_event(&fixture, "k")).await;
    // Keys of this version have namespaces.
    let new = fixture.event_with_key("l");
    fixture.accept(new.clone()).await;
    let in_header = NewEvent { payload: new.payload.clone(), ..header_event(&fixture, "l") };
    fixture.accept(in_header).await;
}

#[tokio::test]
async fn new_store_has_no_keys_of_an_earlier_version() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture_in(folder.path()).await;
    let in_body = fixture.event_with_key("k");
    fixture.accept(in_body.clone()).await;

    let in_header = NewEvent { payload: in_body.payload.clone(), ..header_event(&fixture, "k") };
    fixture.accept(in_header).await;

    let file = open_file(folder.path());
    let count: i64 =
        file.query_row("SELECT count(*) FROM key_namespaces", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
}
