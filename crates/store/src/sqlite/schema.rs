//! Opening the file: settings that durability rests on, and migrations, forward only.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, functions::FunctionFlags};
use surehook_core::{
    ids::SourceId,
    key::{DedupKey, KeyDigest},
};
use uuid::Uuid;

use super::{OpenError, groups};

/// Every migration, in order. One that has been released is never edited.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sqlite/0001_events_and_deliveries.sql"),
    include_str!("../../migrations/sqlite/0002_keys_by_digest.sql"),
    include_str!("../../migrations/sqlite/0003_decisions.sql"),
    include_str!("../../migrations/sqlite/0004_replay_jobs.sql"),
    include_str!("../../migrations/sqlite/0005_lanes.sql"),
    include_str!("../../migrations/sqlite/0006_idempotency_results.sql"),
    include_str!("../../migrations/sqlite/0007_retention_and_rollups.sql"),
    include_str!("../../migrations/sqlite/0008_token_roles.sql"),
    include_str!("../../migrations/sqlite/0009_search_attributes.sql"),
    include_str!("../../migrations/sqlite/0010_token_headers.sql"),
    include_str!("../../migrations/sqlite/0011_quarantine.sql"),
    include_str!("../../migrations/sqlite/0012_quarantine_bounds.sql"),
    include_str!("../../migrations/sqlite/0013_sends.sql"),
    include_str!("../../migrations/sqlite/0014_media.sql"),
    include_str!("../../migrations/sqlite/0015_awaited.sql"),
    include_str!("../../migrations/sqlite/0016_sessions.sql"),
    include_str!("../../migrations/sqlite/0017_dead_groups.sql"),
    include_str!("../../migrations/sqlite/0018_delivered_anyway.sql"),
    include_str!("../../migrations/sqlite/0019_attempt_timings.sql"),
];

/// "srhk": tells our files from others'.
const APPLICATION_ID: i32 = 0x7372_686b;

/// Before this, two connections could corrupt the log when one of them reset it.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Opens the one connection that writes.
pub(super) fn open_writer(file: &Path) -> Result<Connection, OpenError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(OpenError::OldSqlite(rusqlite::version()));
    }
    let mut connection = Connection::open(file)?;
    check_owner(&connection, file)?;
    // FULL: the log is synced at every commit, which is what an answer of 200 promises.
    // mmap off: an I/O error on a mapped page would be a signal, not an error.
    // A small cache: SQLite walks all of it at most commits, and the system caches the pages too.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA mmap_size = 0;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;
         PRAGMA busy_timeout = 5000;
         PRAGMA cache_size = -8192;
         PRAGMA journal_size_limit = 67108864;",
    )?;
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenError::NoLog(file.to_owned()));
    }
    migrate(&mut connection)?;
    // Only now: a migration may sort more than fits into memory.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Opens the connection that copies the log into the database; see `checkpoint`.
pub(super) fn open_copier(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA mmap_size = 0;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -64;",
    )?;
    Ok(connection)
}

/// Opens a connection that can only look.
pub(super) fn open_reader(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.execute_batch(
        "PRAGMA query_only = ON;
         PRAGMA mmap_size = 0;
         PRAGMA busy_timeout = 5000;
         PRAGMA cache_size = -8192;",
    )?;
    Ok(connection)
}

pub(super) fn check_owner(connection: &Connection, file: &Path) -> Result<(), OpenError> {
    let foreign = |_| OpenError::Foreign(file.to_owned());
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(foreign)?;
    let owner: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if tables > 0 && owner != APPLICATION_ID {
        return Err(OpenError::Foreign(file.to_owned()));
    }
    Ok(())
}

fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    let done = usize::try_from(found).unwrap_or(0);
    add_functions(connection)?;
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(done) {
        // Each in its own transaction: one that fails leaves the version before it usable.
        let tx = connection.transaction()?;
        tx.execute_batch(sql)?;
        tx.pragma_update(None, "user_version", index + 1)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.commit()?;
    }
    Ok(())
}

/// What migrations need and SQLite does not have.
fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    connection.create_scalar_function(
        "key_digest",
        2,
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC,
        |call| {
            let source = SourceId::from_uuid(Uuid::from_bytes(call.get(0)?));
            let key = DedupKey::new(call.get_raw(1).as_str()?);
            Ok(key.map(|key| KeyDigest::of(source, &key).to_bytes()))
        },
    )?;
    groups::add_functions(connection)
}

/// How `SQLite` would carry out a statement, in an empty file.
#[cfg(test)]
pub(super) fn plan(sql: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let connection = open_writer(&folder.path().join("a.db")).unwrap();
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for index in 1..=explain.parameter_count() {
        explain.raw_bind_parameter(index, 1).unwrap();
    }
    let mut rows = explain.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}

#[cfg(test)]
mod tests {
    use rusqlite::params;
    use surehook_core::{delivery::state::Status, time::Timestamp};

    use super::{
        super::{DATABASE, SqliteOptions, SqliteStore, counts},
        *,
    };

    #[test]
    fn the_embedded_sqlite_is_new_enough() {
        assert!(rusqlite::version_number() >= SQLITE_VERSION_MIN);
    }

    #[test]
    fn a_foreign_file_and_a_newer_schema_are_refused() {
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

    /// The steps that retention takes for granted are not there in an older file.
    #[test]
    fn a_file_from_before_retention_keeps_all_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let before = MIGRATIONS.iter().position(|sql| sql.starts_with("-- 0007")).unwrap();
        let old = Connection::open(&file).unwrap();
        add_functions(&old).unwrap();
        MIGRATIONS[..before].iter().for_each(|sql| old.execute_batch(sql).unwrap());
        old.pragma_update(None, "user_version", before).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.execute_batch(
            "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
             INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint)
                  VALUES (zeroblob(16), zeroblob(16), 1, 1, 0, zeroblob(32));
             INSERT INTO duplicates (event_id, seen_at, body) VALUES (zeroblob(16), 1, x'01');
             INSERT INTO duplicates (event_id, seen_at, body) VALUES (zeroblob(16), 2, NULL);",
        )
        .unwrap();
        drop(old);

        let migrated = open_writer(&file).unwrap();

        let differing = "SELECT count(*) FROM duplicates WHERE body IS NOT NULL OR body_removed";
        let differing: i64 = migrated.query_row(differing, [], |row| row.get(0)).unwrap();
        assert_eq!(differing, 1);
        let empty = ["prune_cursors", "prune_later", "rollup_facts", "rollups"];
        for table in empty {
            let count = format!("SELECT count(*) FROM {table}");
            let rows: i64 = migrated.query_row(&count, [], |row| row.get(0)).unwrap();
            assert_eq!(rows, 0, "case: {table}");
        }
    }

    #[test]
    fn keys_of_the_first_version_are_found_by_their_digests() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.db");
        let old = Connection::open(&file).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.execute_batch(
            "PRAGMA user_version = 1; PRAGMA application_id = 1936877675;
             INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
             INSERT INTO keys VALUES (1, 'folded', zeroblob(16), zeroblob(32), 5),
                                     (1, 'both', zeroblob(16), zeroblob(32), 6);
             INSERT INTO keys_fresh VALUES (7, 1, 'both', zeroblob(16), zeroblob(32), 8),
                                           (8, 1, 'fresh', zeroblob(16), zeroblob(32), 9);",
        )
        .unwrap();
        drop(old);

        let migrated = open_writer(&file).unwrap();

        let expires_at = |key| {
            let source = SourceId::from_uuid(Uuid::nil());
            let digest = KeyDigest::of(source, &DedupKey::new(key).unwrap()).to_bytes();
            migrated
                .query_row(
                    "SELECT expires_at FROM keys WHERE digest = ?1 AND length(body) = 8",
                    params![digest],
                    |row| row.get::<_, i64>(0),
                )
                .unwrap()
        };
        assert_eq!([expires_at("folded"), expires_at("both"), expires_at("fresh")], [5, 8, 9]);
    }

    #[test]
    fn what_waited_before_there_were_lanes_is_due_after() {
        const ROWS: &str = "
            INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
            INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', '{}', 1, 1, NULL);
            INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
                 VALUES (zeroblob(16), zeroblob(16), 1, 'k', 1, 0, zeroblob(32));
            INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at)
                 VALUES (zeroblob(16), zeroblob(16), 1, 'pending', 'ingest', 1, 7);";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.db");
        let before = MIGRATIONS.iter().position(|sql| sql.starts_with("-- 0005_lanes")).unwrap();
        let old = Connection::open(&file).unwrap();
        add_functions(&old).unwrap();
        MIGRATIONS[..before].iter().for_each(|sql| old.execute_batch(sql).unwrap());
        old.execute_batch(ROWS).unwrap();
        old.pragma_update(None, "user_version", before).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        drop(old);

        let opened = open_writer(&file).unwrap();

        let due = "SELECT due_at, order_key FROM deliveries INDEXED BY deliveries_due
                    WHERE destination = 1 AND due_at IS NOT NULL";
        let found: (i64, Option<String>) =
            opened.query_row(due, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(found, (7, None));
        assert_eq!(counts::load(&opened).unwrap(), surehook_core::store::Counts::default());
    }

    #[test]
    fn tokens_of_the_first_version_are_admins_and_can_be_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.db");
        let old = Connection::open(&file).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.execute_batch(
            "PRAGMA user_version = 1; PRAGMA application_id = 1936877675;
             INSERT INTO tokens VALUES (zeroblob(32), 5), (randomblob(32), 6);",
        )
        .unwrap();
        drop(old);

        let tokens = super::super::tokens::all(&open_writer(&file).unwrap()).unwrap();

        assert_eq!(tokens.len(), 2);
        assert_ne!(tokens[0].id, tokens[1].id);
        for token in tokens {
            assert_eq!(token.role, surehook_core::access::Role::Admin);
            assert_eq!((token.name, token.expires_at), (None, None));
        }
    }

    #[test]
    fn events_from_before_there_were_attributes_are_about_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.db");
        let before = MIGRATIONS.iter().position(|sql| sql.starts_with("-- 0009")).unwrap();
        let old = Connection::open(&file).unwrap();
        add_functions(&old).unwrap();
        MIGRATIONS[..before].iter().for_each(|sql| old.execute_batch(sql).unwrap());
        old.pragma_update(None, "user_version", before).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.execute_batch(
            "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
             INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
                  VALUES (zeroblob(16), zeroblob(16), 1, 'k', 1, 0, zeroblob(32));",
        )
        .unwrap();
        drop(old);

        let migrated = open_writer(&file).unwrap();

        let id = surehook_core::ids::EventId::from_uuid(Uuid::nil());
        let event = super::super::read::event(&migrated, id).unwrap().unwrap().event;
        assert_eq!(event.key.as_deref(), Some("k"));
        assert!(event.kind.is_none() && event.attributes.is_empty());
        let terms =
            "SELECT (SELECT count(*) FROM term_blocks) + (SELECT count(*) FROM terms_fresh)";
        let terms: i64 = migrated.query_row(terms, [], |row| row.get(0)).unwrap();
        assert_eq!(terms, 0);
    }

    #[test]
    fn what_was_sent_before_there_were_names_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.db");
        let before = MIGRATIONS.iter().position(|sql| sql.starts_with("-- 0013")).unwrap();
        let old = Connection::open(&file).unwrap();
        add_functions(&old).unwrap();
        MIGRATIONS[..before].iter().for_each(|sql| old.execute_batch(sql).unwrap());
        old.pragma_update(None, "user_version", before).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.execute_batch(
            "INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
             INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', '{}', 1, 1, NULL);
             INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
                  VALUES (zeroblob(16), zeroblob(16), 1, 'k', 1, 0, zeroblob(32));
             INSERT INTO deliveries (id, event_id, destination, state, cause, created_at,
                                     lease_token, lease_until)
                  VALUES (zeroblob(16), zeroblob(16), 1, 'in_flight', 'ingest', 1, 7, 9);
             INSERT INTO counters VALUES ('status:in_flight', 1);",
        )
        .unwrap();
        drop(old);
        let options = SqliteOptions::new(folder.path());
        std::fs::rename(&file, folder.path().join(DATABASE)).unwrap();

        drop(SqliteStore::open(&options, Timestamp::from_millis(50)).unwrap());

        let opened = open_reader(&folder.path().join(DATABASE)).unwrap();
        let id = surehook_core::ids::DeliveryId::from_uuid(Uuid::nil());
        let row = super::super::read::delivery(&opened, id).unwrap().unwrap().delivery;
        assert_eq!((row.status, row.attempts), (Status::Pending, 0));
        assert_eq!((row.due_at, row.sent_id), (Some(Timestamp::from_millis(50)), None));
        assert_eq!(counts::load(&opened).unwrap().by_status[&Status::Pending], 1);
    }

    #[test]
    fn who_was_dead_before_there_were_groups_has_one() {
        use surehook_core::dead::GroupFilter;
        use surehook_core::delivery::DeadReason;
        use surehook_core::store::Page;

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.db");
        let before = MIGRATIONS.iter().position(|sql| sql.starts_with("-- 0017")).unwrap();
        let old = Connection::open(&file).unwrap();
        add_functions(&old).unwrap();
        MIGRATIONS[..before].iter().for_each(|sql| old.execute_batch(sql).unwrap());
        old.pragma_update(None, "user_version", before).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.execute_batch(
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
        )
        .unwrap();
        drop(old);

        let migrated = open_writer(&file).unwrap();

        let page = Page { after: None, limit: 10 };
        let groups = groups::list(&migrated, GroupFilter::default(), page).unwrap();
        let found: Vec<_> = groups
            .rows
            .iter()
            .map(|group| {
                let at = (group.first_seen.as_millis(), group.last_seen.as_millis());
                assert_eq!(group.cause.group(group.destination), group.id);
                (group.cause.shape.as_str(), group.reason, group.count, at)
            })
            .collect();
        // Of the third a status must have said that it failed; of the fourth nothing is known.
        let expected = [
            ("no attempt is kept: max_retries", DeadReason::MaxRetries, 2, (7, 8)),
            ("400: order # is closed", DeadReason::Expired, 2, (5, 6)),
        ];
        assert_eq!(found, expected);
        let dead = "SELECT count(*) FROM deliveries WHERE (state = 'dead') = (dead_group IS NULL)";
        let astray: i64 = migrated.query_row(dead, [], |row| row.get(0)).unwrap();
        assert_eq!(astray, 0);
    }

    #[test]
    fn opening_twice_migrates_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        drop(open_writer(&file).unwrap());
        let again = open_writer(&file).unwrap();
        let version: i64 =
            again.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(usize::try_from(version).unwrap(), MIGRATIONS.len());
    }
}
