//! Migrations of older files, and rejected files.

use surehook_core::{
    delivery::state::DeliveryStatus,
    idempotency::{KEY_RETENTION, StoredResponse, api_key},
};
use surehook_dedup::{Claim, ClaimRequest, Fingerprint, ThreadRandom, sqlite::rules};
use surehook_types::time::Timestamp;

use super::{
    super::{
        DATABASE, SqliteOptions, SqliteStore, dead_letter_groups, recent_keys, sealing::DataKeys,
        secret_key,
    },
    *,
};
use crate::steps::counts;

/// Writes a file as it was before a migration, with some rows.
fn write_old(file: &Path, migration: &str, rows: &str) {
    let before = MIGRATIONS.iter().position(|sql| sql.starts_with(migration)).unwrap();
    let old = Connection::open(file).unwrap();
    migrate_up_to(&old, before);
    old.execute_batch(rows).unwrap();
}

/// Opens such a file in a new folder, which migrates it.
fn migrate_old(migration: &str, rows: &str) -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.db");
    write_old(&file, migration, rows);
    let migrated = open_writer(&file).unwrap();
    (folder, migrated)
}

fn read_number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn embedded_sqlite_is_new_enough() {
    assert!(rusqlite::version_number() >= SQLITE_VERSION_MIN);
}

#[test]
fn foreign_file_and_newer_schema_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(open_writer(&foreign), Err(OpenError::Foreign(_))));

    let text = folder.path().join("text.db");
    std::fs::write(&text, "this is not a database, it is a text file").unwrap();
    assert!(matches!(open_writer(&text), Err(OpenError::Foreign(_))));

    let newer = folder.path().join("newer.db");
    open_writer(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(open_writer(&newer), Err(OpenError::Newer { found: 99, .. })));
}

#[test]
fn only_a_file_that_is_no_database_is_called_foreign() {
    let error = |code| {
        let failure = rusqlite::ffi::Error::new(code);
        open_error(rusqlite::Error::SqliteFailure(failure, None), Path::new("a.db"))
    };
    assert!(matches!(error(rusqlite::ffi::SQLITE_NOTADB), OpenError::Foreign(_)));
    assert!(matches!(error(rusqlite::ffi::SQLITE_IOERR_READ), OpenError::Sqlite(_)));
    assert!(matches!(error(rusqlite::ffi::SQLITE_CANTOPEN), OpenError::Sqlite(_)));
    assert!(matches!(error(rusqlite::ffi::SQLITE_CORRUPT), OpenError::Damaged(_)));
    let shown = error(rusqlite::ffi::SQLITE_IOERR_READ).to_string();
    assert!(shown.contains("I/O error") && !shown.contains("not a surehook"), "{shown}");
}

#[test]
fn migration_to_retention_keeps_all_rows() {
    let (_folder, migrated) = migrate_old(
        "-- 0007",
        "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
         INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint)
              VALUES (zeroblob(16), zeroblob(16), 1, 1, 0, zeroblob(32));
         INSERT INTO duplicates (event_id, seen_at, body) VALUES (zeroblob(16), 1, x'01');
         INSERT INTO duplicates (event_id, seen_at, body) VALUES (zeroblob(16), 2, NULL);",
    );

    let differing = "SELECT count(*) FROM duplicates WHERE body IS NOT NULL OR body_removed";
    let differing = read_number(&migrated, differing);
    assert_eq!(differing, 1);
    let empty = ["prune_cursors", "prune_later", "rollup_facts", "rollups"];
    for table in empty {
        let count = format!("SELECT count(*) FROM {table}");
        let rows = read_number(&migrated, &count);
        assert_eq!(rows, 0, "case: {table}");
    }
}

#[test]
fn keys_of_the_first_version_are_found_by_digest() {
    let (_folder, migrated) = migrate_old(
        "-- 0002",
        "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
         INSERT INTO keys VALUES (1, 'folded', zeroblob(16), zeroblob(32), 5),
                                 (1, 'both', zeroblob(16), zeroblob(32), 6);
         INSERT INTO keys_fresh VALUES (7, 1, 'both', zeroblob(16), zeroblob(32), 8),
                                       (8, 1, 'fresh', zeroblob(16), zeroblob(32), 9);",
    );

    let expires_at = |key| {
        let source = SourceId::from_uuid(Uuid::nil());
        let digest = KeyDigest::of(source, &DedupKey::new(key).unwrap());
        key_index::find_read_only(&migrated, digest).unwrap().unwrap().expires_at.as_millis()
    };
    assert_eq!([expires_at("folded"), expires_at("both"), expires_at("fresh")], [5, 8, 9]);
}

#[test]
fn pending_delivery_from_before_lanes_stays_due() {
    const ROWS: &str = "
        INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
        INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', '{}', 1, 1, NULL);
        INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
             VALUES (zeroblob(16), zeroblob(16), 1, 'k', 1, 0, zeroblob(32));
        INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at)
             VALUES (zeroblob(16), zeroblob(16), 1, 'pending', 'ingest', 1, 7);";
    let (_folder, opened) = migrate_old("-- 0005", ROWS);

    let due = "SELECT due_at, order_key FROM deliveries INDEXED BY deliveries_due
                WHERE destination = 1 AND due_at IS NOT NULL";
    let found: (i64, Option<String>) =
        opened.query_row(due, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(found, (7, None));
    assert_eq!(counts::load(&opened).unwrap(), surehook_core::store::StoreCounts::default());
}

#[test]
fn tokens_of_the_first_version_become_admin_tokens() {
    let rows = "INSERT INTO tokens VALUES (zeroblob(32), 5), (randomblob(32), 6);";
    let (_folder, migrated) = migrate_old("-- 0002", rows);

    let tokens = super::super::tokens::list(&migrated).unwrap();

    assert_eq!(tokens.len(), 2);
    assert_ne!(tokens[0].id, tokens[1].id);
    for token in tokens {
        assert_eq!(token.role, surehook_core::access::Role::Admin);
        assert_eq!((token.name, token.expires_at), (None, None));
    }
}

#[test]
fn sources_from_before_the_rules_for_new_ones_are_lenient_until_changed() {
    let (folder, mut migrated) = migrate_old(
        "-- 0023",
        "INSERT INTO sources VALUES (1, zeroblob(16), 'sms', '{\"name\":\"sms\"}', 1, 1, NULL),
                                    (2, x'01000000000000000000000000000000', 'old', '{\"name\":\"old\"}', 1, 1, 5);",
    );
    let id = SourceId::from_uuid(Uuid::nil());
    let secret_key = secret_key::find_or_create(folder.path(), None).unwrap();
    let keys = DataKeys::open(&mut migrated, &secret_key, Timestamp::default()).unwrap();
    let lenient = |connection: &Connection| {
        super::super::lookups::load_configuration(connection, &keys).unwrap().past.lenient_sources
    };
    assert_eq!(lenient(&migrated), [id].into());

    let transaction = migrated.transaction().unwrap();
    transaction.execute("DELETE FROM lenient_sources WHERE id = zeroblob(16)", []).unwrap();
    transaction.commit().unwrap();

    assert!(lenient(&migrated).is_empty());
}

#[test]
fn media_from_before_use_tracking_counts_as_used_at_migration() {
    let (_folder, migrated) = migrate_old(
        "-- 0020",
        "INSERT INTO media VALUES (zeroblob(16), 'b', 'k', 'image', 'image/png', 1, NULL, 1);",
    );

    let since = "SELECT unixepoch() * 1000 - used_at FROM media WHERE created_at = 1";
    let since = read_number(&migrated, since);
    assert!((0..3_600_000).contains(&since), "{since} ms ago");
}

#[test]
fn events_from_before_attributes_have_no_terms() {
    let (_folder, migrated) = migrate_old(
        "-- 0009",
        "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
         INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
              VALUES (zeroblob(16), zeroblob(16), 1, 'k', 1, 0, zeroblob(32));",
    );

    let id = surehook_types::ids::EventId::from_uuid(Uuid::nil());
    let event = super::super::lookups::find_event(&migrated, id).unwrap().unwrap().event;
    assert_eq!(event.key.as_deref(), Some("k"));
    assert!(event.kind.is_none() && event.attributes.is_empty());
    let terms = "SELECT (SELECT count(*) FROM term_blocks) + (SELECT count(*) FROM terms_fresh)";
    let terms = read_number(&migrated, terms);
    assert_eq!(terms, 0);
}

#[test]
fn delivery_from_before_message_ids_is_released_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.db");
    write_old(
        &file,
        "-- 0013",
        "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
         INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', '{}', 1, 1, NULL);
         INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
              VALUES (zeroblob(16), zeroblob(16), 1, 'k', 1, 0, zeroblob(32));
         INSERT INTO deliveries (id, event_id, destination, state, cause, created_at,
                                 lease_token, lease_until)
              VALUES (zeroblob(16), zeroblob(16), 1, 'in_flight', 'ingest', 1, 7, 9);
         INSERT INTO counters VALUES ('status:in_flight', 1);",
    );
    let options = SqliteOptions::new(folder.path());
    std::fs::rename(&file, folder.path().join(DATABASE)).unwrap();

    drop(SqliteStore::open(&options, Timestamp::from_millis(50)).unwrap());

    let opened = open_reader(&folder.path().join(DATABASE)).unwrap();
    let id = surehook_types::ids::DeliveryId::from_uuid(Uuid::nil());
    let row = super::super::lookups::find_delivery(&opened, id).unwrap().unwrap().delivery;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::Pending, 0));
    assert_eq!((row.due_at, row.sent_id), (Some(Timestamp::from_millis(50)), None));
    assert_eq!(counts::load(&opened).unwrap().by_status[&DeliveryStatus::Pending], 1);
}

#[test]
fn claims_from_before_epochs_end_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.db");
    // Leases of the time before, until 2027. The second delivery has a crash outcome.
    write_old(
        &file,
        "-- 0031",
        "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
         INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', '{}', 1, 1, NULL);
         INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint)
              VALUES (zeroblob(16), zeroblob(16), 1, 1, 0, zeroblob(32));
         INSERT INTO deliveries (id, event_id, destination, state, cause, created_at,
                                 lease_token, lease_until)
              VALUES (zeroblob(16), zeroblob(16), 1, 'in_flight', 'ingest', 1, 7, 1800000000000),
                     (unhex(hex(zeroblob(15)) || '01'), zeroblob(16), 1, 'in_flight', 'ingest', 1, 8,
                      1800000000000);
         INSERT INTO wills (delivery_id, lease_token, attempt_id, number, started_at, took_ms,
                            failure, class, next, reason)
              VALUES (unhex(hex(zeroblob(15)) || '01'), 8, zeroblob(16), 1, 2, 1, 'interrupted',
                      'ambiguous', 'dead', 'ambiguous');
         INSERT INTO counters VALUES ('status:in_flight', 2);",
    );
    std::fs::rename(&file, folder.path().join(DATABASE)).unwrap();

    let options = SqliteOptions::new(folder.path());
    drop(SqliteStore::open(&options, Timestamp::from_millis(50)).unwrap());

    let opened = open_reader(&folder.path().join(DATABASE)).unwrap();
    let counts = counts::load(&opened).unwrap();
    let count = |status| counts.by_status.get(&status).copied().unwrap_or_default();
    assert_eq!(count(DeliveryStatus::InFlight), 0);
    assert_eq!((count(DeliveryStatus::Pending), count(DeliveryStatus::Dead)), (1, 1));
    assert_eq!(read_number(&opened, "SELECT value FROM counters WHERE name = 'lane_epoch'"), 1);
}

#[test]
fn dead_deliveries_from_before_groups_get_one() {
    use surehook_core::{dead_letters::DeadLetterGroupFilter, store::PageRequest};
    use surehook_retry::DeadReason;

    let (_folder, migrated) = migrate_old(
        "-- 0017",
        "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
         INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', '{}', 1, 1, NULL);
         INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint)
              VALUES (zeroblob(16), zeroblob(16), 1, 1, 0, zeroblob(32));
         WITH dead (id, at, reason) AS (VALUES (x'01', 5, 'max_retries'), (x'02', 6, 'expired'),
                                               (x'03', 7, 'max_retries'), (x'04', 8, 'max_retries'))
         INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, attempts,
                                 ended_at, reason)
         SELECT unhex(hex(id) || hex(zeroblob(15))), zeroblob(16), 1, 'dead', 'ingest', 1, 1, at, reason
           FROM dead;
         INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, attempts,
                                 ended_at)
              VALUES (unhex('05' || hex(zeroblob(15))), zeroblob(16), 1, 'succeeded', 'ingest', 1, 1, 9);
         INSERT INTO attempts (delivery_id, number, id, started_at, took_ms, status, failure,
                               class, response, next)
              VALUES (unhex('01' || hex(zeroblob(15))), 1, zeroblob(16), 1, 1, 400, NULL, 'permanent',
                      CAST('order 1 is closed' AS BLOB), 'dead'),
                     (unhex('02' || hex(zeroblob(15))), 1, zeroblob(16), 1, 1, 400, NULL, 'permanent',
                      CAST('order 2 is closed' AS BLOB), NULL),
                     (unhex('03' || hex(zeroblob(15))), 1, zeroblob(16), 1, 1, NULL, 'timeout',
                      'ambiguous', NULL, 'retry');",
    );

    let page = PageRequest { after: None, limit: 10 };
    let groups =
        dead_letter_groups::list(&migrated, DeadLetterGroupFilter::default(), page).unwrap();
    let found: Vec<_> = groups
        .rows
        .iter()
        .map(|group| {
            let at = (group.first_seen.as_millis(), group.last_seen.as_millis());
            assert_eq!(group.cause.group_id(group.destination), group.id);
            (group.cause.shape.as_str(), group.reason, group.count, at)
        })
        .collect();
    // The third must have failed by a status; of the fourth nothing is known.
    let expected = [
        ("no attempt is kept: max_retries", DeadReason::MaxRetries, 2, (7, 8)),
        ("400: order # is closed", DeadReason::Expired, 2, (5, 6)),
    ];
    assert_eq!(found, expected);
    let dead = "SELECT count(*) FROM deliveries WHERE (state = 'dead') = (dead_group IS NULL)";
    let astray = read_number(&migrated, dead);
    assert_eq!(astray, 0);
}

#[test]
fn opening_twice_migrates_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    drop(open_writer(&file).unwrap());
    let again = open_writer(&file).unwrap();
    let version: i64 = again.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(usize::try_from(version).unwrap(), MIGRATIONS.len());
}

#[test]
fn recent_keys_of_an_older_file_are_batched_in_order() {
    let (_folder, migrated) = migrate_old(
        "-- 0021",
        "INSERT INTO keys_fresh VALUES
             (3, zeroblob(16), unhex('01' || hex(zeroblob(15))), zeroblob(8), 7),
             (9, zeroblob(16), unhex('02' || hex(zeroblob(15))), x'0102030405060708',
              9223372036854775807);",
    );

    let mut found = Vec::new();
    recent_keys::read_batches(&migrated, |number, key, entry| {
        assert_eq!(key.to_bytes(), [0; 16]);
        let first = entry.event.uuid().as_bytes()[0];
        found.push((number, first, entry.body.to_bytes()[7], entry.expires_at.as_millis()));
    })
    .unwrap();
    assert_eq!(found, [(3, 1, 0, 7), (9, 2, 8, i64::MAX)]);
}

#[test]
fn no_batch_of_an_older_file_counts_as_merged() {
    let (_folder, migrated) =
        migrate_old("-- 0032", "INSERT INTO key_packs VALUES (7, zeroblob(48))");

    let mut found = Vec::new();
    recent_keys::read_batches(&migrated, |number, key, _| found.push((number, key.to_bytes())))
        .unwrap();
    assert_eq!(found, [(7, [0; 16])]);
}

#[test]
fn indexed_keys_of_an_older_file_are_in_the_old_level() {
    let (_folder, migrated) = migrate_old(
        "-- 0033",
        "INSERT INTO key_blocks VALUES (-9223372036854775808, zeroblob(48))",
    );

    let key = KeyDigest::from_bytes([0; 16]);
    assert!(key_index::find_read_only(&migrated, key).unwrap().is_some());
    assert_eq!(key_index::estimate_key_count(&migrated, &key_index::OLD).unwrap(), 1);
}

#[test]
fn indexed_keys_of_an_older_file_are_found_in_blocks() {
    // Scattered, with two that differ only in the lower half where a block would end.
    let numbers = (0..200_u128).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let mut digests: Vec<[u8; 16]> = numbers.map(u128::to_be_bytes).collect();
    digests.sort_unstable();
    let mut twin = digests[59];
    twin[15] ^= 1;
    digests.push(twin);
    let rows: Vec<String> = digests
        .iter()
        .enumerate()
        .map(|(n, digest)| {
            let digest = data_encoding::HEXLOWER.encode(digest);
            format!("(x'{digest}', unhex(format('%032x', {n})), zeroblob(8), {n})")
        })
        .collect();
    let rows = format!("INSERT INTO keys VALUES {};", rows.join(","));
    let (_folder, migrated) = migrate_old("-- 0022", &rows);

    for (number, digest) in digests.into_iter().enumerate() {
        let found =
            key_index::find_read_only(&migrated, KeyDigest::from_bytes(digest)).unwrap().unwrap();
        assert_eq!(found.event.uuid().as_u128(), number as u128);
        assert_eq!(found.expires_at.as_millis(), i64::try_from(number).unwrap());
    }
    assert_eq!(key_index::find_read_only(&migrated, KeyDigest::from_bytes([7; 16])).unwrap(), None);
    let count = "SELECT count(*) FROM key_blocks";
    assert_eq!(read_number(&migrated, count), 4);
}

#[test]
fn quarantined_requests_of_an_older_file_are_counted_by_sender() {
    let row = |id: u8, remote: &str, bytes: usize| {
        format!(
            "INSERT INTO quarantine (id, source_id, fingerprint, received_at, seen_at, times, code,
                                     method, path, remote, headers, body_bytes, body)
             VALUES (unhex('{id:032x}'), zeroblob(16), x'{id:02x}', 1, 1, 1, 'mismatch', 'POST', '',
                     '{remote}', x'0a', {bytes}, zeroblob({bytes}));"
        )
    };
    let rows = [row(1, "192.0.2.1", 10), row(2, "192.0.2.1", 20), row(3, "192.0.2.2", 5)];
    let (_folder, migrated) = migrate_old("-- 0025_quarantine_senders", &rows.concat());

    let held = "SELECT many * 100 + bytes FROM quarantine_senders WHERE sender = '192.0.2.";
    assert_eq!(read_number(&migrated, &format!("{held}1'")), 232);
    assert_eq!(read_number(&migrated, &format!("{held}2'")), 106);
    migrated.execute("DELETE FROM quarantine WHERE body_bytes < 20", []).unwrap();
    assert_eq!(read_number(&migrated, &format!("{held}1'")), 121);
    assert_eq!(read_number(&migrated, "SELECT count(*) FROM quarantine_senders"), 1);
}

#[test]
fn new_file_has_large_pages_and_older_file_keeps_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let [new, old] = ["new.db", "old.db"].map(|name| folder.path().join(name));
    Connection::open(&old).unwrap().pragma_update(None, "page_size", 4096).unwrap();
    write_old(&old, "-- 0021", "");
    for (file, expected) in [(new, 8192), (old, 4096)] {
        drop(open_writer(&file).unwrap());
        let opened = open_writer(&file).unwrap();
        let size: i64 = opened.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
        assert_eq!(size, expected, "case: {}", file.display());
    }
}

#[test]
fn stored_responses_and_unfinished_requests_become_claims() {
    let (_folder, migrated) = migrate_old(
        "-- 0029",
        r#"INSERT INTO idempotency_results VALUES
               (1, CAST(zeroblob(31) || x'ab' AS BLOB), 'done', zeroblob(32), zeroblob(16), 1000, 201,
                '[["etag","\"a\""]]', x'7b0aff00'),
               (2, CAST(zeroblob(31) || x'ab' AS BLOB), 'pending', zeroblob(32),
                CAST(zeroblob(15) || x'07' AS BLOB), 2000,
                NULL, NULL, NULL)"#,
    );
    let scope = std::array::from_fn(|index| if index == 31 { 0xab } else { 0 });
    let key = |name| api_key(&scope, name).unwrap();
    let find = |name| {
        super::super::idempotency::find(&migrated, &key(name), Timestamp::from_millis(3000))
            .unwrap()
            .unwrap()
    };
    let done = find("done");
    assert_eq!(done.row.expires_at, Timestamp::from_millis(1000) + KEY_RETENTION);
    let response = StoredResponse::from_result(&done.result.unwrap()).unwrap();
    assert_eq!((response.status, &response.body[..]), (201, &b"\x7b\x0a\xff\x00"[..]));
    assert_eq!(response.headers, [("etag".to_owned(), "\"a\"".to_owned())]);

    let request = ClaimRequest {
        key: key("pending"),
        fingerprint: Some(Fingerprint::from_bytes([0; 32])),
        lease: std::time::Duration::ZERO,
        ttl: KEY_RETENTION,
    };
    let now = Timestamp::from_millis(3000);
    let claim = rules::claim(&migrated, &request, now, &ThreadRandom).unwrap();
    let Claim::Claimed(grant) = claim else { panic!("{claim:?}") };
    assert!(grant.is_resumed);
    assert_eq!((grant.operation.started_at.as_millis(), grant.operation.id[15]), (2000, 7));
    assert_eq!(read_number(&migrated, "SELECT keys FROM claim_counts WHERE namespace = 'api:'"), 2);
}

#[test]
fn claims_have_the_table_that_their_rules_expect() {
    let columns = |connection: &Connection| -> Vec<String> {
        let sql = "SELECT name || ' ' || type || \"notnull\" || pk
                     FROM pragma_table_info('surehook_dedup_claims')";
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_>>().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let ours = open_writer(&folder.path().join("a.db")).unwrap();
    let theirs = Connection::open_in_memory().unwrap();
    theirs.execute_batch(rules::SCHEMA).unwrap();
    assert_eq!(columns(&ours), columns(&theirs));
}
