//! The constraints of the schema, and a database from its first version.

use std::collections::BTreeSet;

use rusqlite::Connection;
use surehook_core::{decision::EventDecisionKind, store::AdminStore};
use surehook_types::ids::EventId;

use crate::harness::{open, open_file};

/// Valid rows; each statement below makes one of them invalid.
const VALID_ROWS: &str = "
    INSERT INTO sources VALUES (1, zeroblob(16), 'shop', '{}', 1, 1, NULL);
    INSERT INTO destinations VALUES (1, zeroblob(16), 'crm', '{}', 1, 1, NULL);
    INSERT INTO routes VALUES (1, zeroblob(16), 1, 1, NULL, 1, 1, NULL);
    INSERT INTO tokens (hash, created_at) VALUES (zeroblob(32), 1);
    INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
         VALUES (zeroblob(16), zeroblob(16), 1, 'k', 1, 0, zeroblob(32));
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at)
         VALUES (zeroblob(16), zeroblob(16), 1, 'pending', 'ingest', 1, 1);
    INSERT INTO attempts (delivery_id, number, id, started_at, took_ms, status)
         VALUES (zeroblob(16), 1, zeroblob(16), 1, 1, 200);
    INSERT INTO counters VALUES ('events', 1);
    INSERT INTO decisions (event_id, at, kind) VALUES (zeroblob(16), 1, 'replayed');
    INSERT INTO delivery_bodies (delivery_id, route_id) VALUES (zeroblob(16), zeroblob(16));
    INSERT INTO replays VALUES (1, zeroblob(16), '{}', 'running', 1, NULL, NULL);
    INSERT INTO replay_lanes VALUES (1, 1, 2, 1, 1);
    INSERT INTO replay_items VALUES (1, 1, 1, zeroblob(16), zeroblob(16), NULL, NULL);
    INSERT INTO lane_states (destination, pause_automatic, circuit, circuit_times)
         VALUES (1, 0, 'closed', 0);
    INSERT INTO prune_cursors VALUES (1, 'events', zeroblob(16));
    INSERT INTO rollups VALUES (10, 'source', 1, 10000, x'00');
    INSERT INTO term_segments VALUES (1, zeroblob(16), zeroblob(16), 1);
    INSERT INTO term_blocks VALUES (1, 1, zeroblob(24), zeroblob(24));
    INSERT INTO terms_fresh VALUES (zeroblob(16), zeroblob(8));
    INSERT INTO key_packs VALUES (1, zeroblob(48));
    INSERT INTO wills VALUES (zeroblob(16), 1, zeroblob(16), 1, 1, 1, 'interrupted', NULL, NULL,
                              'succeeded', NULL, NULL, NULL, NULL, NULL);
    INSERT INTO said VALUES (zeroblob(16), zeroblob(16), 1, NULL, 'succeeded', NULL, NULL);
    INSERT INTO sends VALUES (zeroblob(16), 'wamid.1', 1);
    INSERT INTO sends_by_day VALUES (1, 20000, 1);
    INSERT INTO awaited VALUES (zeroblob(16), 1);
    INSERT INTO media VALUES (zeroblob(16), 'b', 'k', 'image', 'image/png', 1, NULL, 1, 1);
    INSERT INTO surehook_dedup_claims (namespace, name, state, token, fence, operation, started_at,
                                       lease_until, expires_at)
         VALUES ('n', 'k', 0, zeroblob(16), 1, zeroblob(16), 1, 1, 1);";

/// A constraint, and a statement that only it rejects.
const INVALID_STATEMENTS: &[(&str, &str)] = &[
    ("id_is_8_bytes", "INSERT INTO data_keys VALUES (x'01', x'', zeroblob(8), 1)"),
    ("wrapped_by_is_8_bytes", "INSERT INTO data_keys VALUES (zeroblob(8), x'', x'01', 1)"),
    ("holder_is_uuid", "INSERT INTO key_conflicts VALUES (zeroblob(16), x'01')"),
    ("hash_is_sha256", "UPDATE tokens SET hash = x'00'"),
    ("id_is_uuid", "UPDATE sources SET id = x'00'"),
    ("id_is_uuid", "UPDATE destinations SET id = x'00'"),
    ("id_is_uuid", "UPDATE routes SET id = x'00'"),
    (
        "id_is_uuid",
        "INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint)
                    VALUES (x'00', zeroblob(16), 1, 1, 0, zeroblob(32))",
    ),
    (
        "id_is_uuid",
        "INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at)
                    VALUES (x'00', zeroblob(16), 1, 'pending', 'ingest', 1, 1)",
    ),
    ("spec_is_json", "UPDATE sources SET spec = '{'"),
    ("spec_is_json", "UPDATE destinations SET spec = '{'"),
    ("fingerprint_is_sha256", "UPDATE events SET fingerprint = x'00'"),
    ("key_is_something", "UPDATE events SET key = ''"),
    ("seen_again_iff_counted", "UPDATE events SET duplicates = 1"),
    ("seen_again_iff_counted", "UPDATE events SET last_duplicate_at = 1"),
    ("state_is_known", "UPDATE deliveries SET state = 'lost', due_at = NULL"),
    ("cause_is_known", "UPDATE deliveries SET cause = 'whim'"),
    ("due_iff_waiting", "UPDATE deliveries SET due_at = NULL"),
    ("due_iff_waiting", "UPDATE deliveries SET state = 'held'"),
    ("lease_iff_in_flight", "UPDATE deliveries SET claim_number = 1, lane_epoch = 1"),
    ("lease_iff_in_flight", "UPDATE deliveries SET state = 'in_flight', due_at = NULL"),
    ("expiry_iff_lease", "UPDATE deliveries SET lane_epoch = 1"),
    ("ended_iff_final", "UPDATE deliveries SET ended_at = 1"),
    ("ended_iff_final", "UPDATE deliveries SET state = 'succeeded', due_at = NULL"),
    ("dead_has_a_reason", "UPDATE deliveries SET state = 'dead', due_at = NULL, ended_at = 1"),
    ("replayed_names_its_heir", "UPDATE deliveries SET replayed_by = zeroblob(16)"),
    (
        "replayed_names_its_heir",
        "UPDATE deliveries SET state = 'replayed', due_at = NULL, ended_at = 1",
    ),
    ("throttled_within_attempts", "UPDATE deliveries SET throttled = 1"),
    ("numbers_start_at_one", "UPDATE attempts SET number = 0"),
    ("answered_or_failed", "UPDATE attempts SET status = NULL"),
    ("answered_or_failed", "UPDATE attempts SET failure = 'dns'"),
    ("detail_is_json", "UPDATE decisions SET detail = '{'"),
    ("body_has_a_fingerprint", "UPDATE delivery_bodies SET body = x'00'"),
    (
        "id_is_uuid",
        "INSERT INTO refused_requests (id, at, code, status, method, path, remote, headers)
                    VALUES (x'00', 1, 'c', 401, 'POST', '/', '', x'')",
    ),
    ("reason_of_a_pause", "UPDATE lane_states SET pause_reason = 'why not'"),
    ("circuit_is_known", "UPDATE lane_states SET circuit = 'ajar'"),
    ("until_iff_open", "UPDATE lane_states SET circuit = 'open'"),
    ("until_iff_open", "UPDATE lane_states SET open_until = 1"),
    ("drain_is_whole", "UPDATE lane_states SET drain_rate = '1/s'"),
    ("drain_is_whole", "UPDATE lane_states SET drain_until = 1"),
    ("role_is_known", "UPDATE tokens SET role = 'root'"),
    ("session_or_not", "UPDATE tokens SET is_session = 2"),
    ("never_below_zero", "UPDATE counters SET value = -1"),
    ("id_is_uuid", "UPDATE replays SET id = x'00'"),
    ("spec_is_json", "UPDATE replays SET spec = '{'"),
    ("state_is_known", "UPDATE replays SET state = 'lost'"),
    ("ended_iff_final", "UPDATE replays SET ended_at = 1"),
    ("ended_iff_final", "UPDATE replays SET state = 'done'"),
    ("selected_before_it_runs", "UPDATE replays SET cursor = x'00'"),
    ("taken_within_selected", "UPDATE replay_lanes SET taken = 3"),
    ("open_within_taken", "UPDATE replay_lanes SET open = 2"),
    ("open_within_taken", "UPDATE replay_lanes SET open = -1"),
    ("numbers_start_at_one", "UPDATE replay_items SET number = 0"),
    ("what_is_known", "UPDATE prune_cursors SET what = 'all'"),
    ("width_is_known", "UPDATE rollups SET width = 5"),
    ("kind_is_known", "UPDATE rollups SET kind = 'route'"),
    ("start_is_whole", "UPDATE rollups SET start = 10001"),
    ("ids_are_uuids", "UPDATE term_segments SET min_event = x'00'"),
    ("ids_are_uuids", "UPDATE term_segments SET max_event = x'00'"),
    ("entries_are_whole", "UPDATE term_blocks SET entries = x''"),
    ("entries_are_whole", "UPDATE term_blocks SET entries = zeroblob(25)"),
    ("id_is_uuid", "INSERT INTO terms_fresh VALUES (x'00', zeroblob(8))"),
    ("terms_are_whole", "UPDATE terms_fresh SET terms = x''"),
    ("terms_are_whole", "UPDATE terms_fresh SET terms = zeroblob(12)"),
    ("keys_are_whole", "UPDATE key_packs SET keys = x''"),
    ("keys_are_whole", "UPDATE key_packs SET keys = zeroblob(47)"),
    ("keys_are_whole", "INSERT INTO key_blocks_young VALUES (1, zeroblob(47))"),
    ("range_is_known", "INSERT INTO key_ranges VALUES (16, 1)"),
    ("range_is_known", "INSERT INTO key_ranges VALUES (-1, 1)"),
    ("next_is_known", "UPDATE wills SET next = 'whim'"),
    ("due_iff_retried", "UPDATE wills SET next = 'retry'"),
    ("due_iff_retried", "UPDATE wills SET due_at = 1"),
    ("reason_iff_dead", "UPDATE wills SET next = 'dead'"),
    ("reason_iff_dead", "UPDATE wills SET reason = 'ambiguous'"),
    ("named_only_if_counted", "UPDATE wills SET sent_id = 'wamid.1'"),
    ("next_is_known", "UPDATE said SET next = 'whim'"),
    ("due_iff_retried", "UPDATE said SET next = 'retry'"),
    ("due_iff_retried", "UPDATE said SET due_at = 1"),
    ("reason_iff_dead", "UPDATE said SET next = 'dead'"),
    ("reason_iff_dead", "UPDATE said SET reason = 'ambiguous'"),
    ("id_is_something", "UPDATE sends SET sent_id = ''"),
    ("one_at_least", "UPDATE sends_by_day SET sent = 0"),
    ("forwards", "UPDATE awaited SET wait_ms = -1"),
    ("columns_fit_the_state", "UPDATE surehook_dedup_claims SET state = 1"),
    ("columns_fit_the_state", "UPDATE surehook_dedup_claims SET result = x''"),
    ("counts_never_below_zero", "UPDATE claim_counts SET keys = -1"),
    ("spec_is_json", "INSERT INTO callbacks (delivery_id, spec) VALUES (x'00', '{')"),
    ("state_is_known", "INSERT INTO callbacks (delivery_id, spec, state) VALUES (x'00', '{}', 3)"),
    ("urls_are_json", "UPDATE tokens SET urls = '['"),
    ("namespaces_are_json", "UPDATE tokens SET namespaces = '['"),
    ("id_is_uuid", "UPDATE media SET id = x'00'"),
    ("kind_is_known", "UPDATE media SET kind = 'gif'"),
    ("is_somewhere", "UPDATE media SET key = ''"),
    ("has_bytes", "UPDATE media SET size = 0"),
];

fn create_database() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let connection = open_file(folder.path());
    connection.pragma_update(None, "foreign_keys", true).unwrap();
    connection.execute_batch(VALID_ROWS).unwrap();
    (folder, connection)
}

#[test]
fn each_constraint_rejects_an_invalid_row() {
    let (_folder, connection) = create_database();
    for (constraint, statement) in INVALID_STATEMENTS {
        let refused = connection.execute(statement, []).map_err(|error| error.to_string());

        let expected = format!("CHECK constraint failed: {constraint}");
        assert_eq!(refused.err().as_deref(), Some(&*expected), "{statement}");
    }
}

#[test]
fn every_constraint_has_an_invalid_row() {
    let (_folder, connection) = create_database();
    let mut statement =
        connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").unwrap();
    let texts: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();

    let in_schema: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.split("CONSTRAINT ").skip(1))
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();

    assert_eq!(in_schema, INVALID_STATEMENTS.iter().map(|(constraint, _)| *constraint).collect());
}

#[test]
fn referenced_rows_cannot_be_deleted() {
    let (_folder, connection) = create_database();
    for statement in [
        "DELETE FROM sources",
        "DELETE FROM destinations",
        "DELETE FROM events",
        "DELETE FROM deliveries",
        "INSERT INTO duplicates (event_id, seen_at) VALUES (x'ff', 1)",
    ] {
        let refused = connection.execute(statement, []).map_err(|error| error.to_string());
        assert_eq!(refused.err().as_deref(), Some("FOREIGN KEY constraint failed"), "{statement}");
    }
}

#[test]
fn names_replays_and_job_items_are_unique() {
    let (_folder, connection) = create_database();
    let same_name = "INSERT INTO sources VALUES (2, randomblob(16), 'shop', '{}', 1, 1, ?1)";
    assert!(
        connection.execute(same_name, [None::<i64>]).is_err(),
        "two existing sources with one name"
    );
    let deleted_at = Some(1);
    connection.execute(same_name, [deleted_at]).unwrap();

    let replay =
        "INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at,
                                        replay_of)
                VALUES (randomblob(16), zeroblob(16), 1, 'pending', 'replay', 1, 1, zeroblob(16))";
    connection.execute(replay, []).unwrap();
    assert!(connection.execute(replay, []).is_err(), "two replays of one delivery");

    let again = "INSERT INTO replay_items VALUES (1, ?1, 2, zeroblob(16), NULL, NULL, NULL)";
    assert!(connection.execute(again, [1]).is_err(), "one event twice in a job");
    connection.execute(again, [2]).unwrap();
}

/// Rows of the first schema version: an event in flight with one failed attempt.
const FIRST_VERSION_ROWS: &str = "
    INSERT INTO sources VALUES (1, randomblob(16), 'shop', '{}', 1, 1, NULL);
    INSERT INTO destinations VALUES (1, randomblob(16), 'crm', '{}', 1, 1, NULL);
    INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint)
         VALUES (x'018bcfe5680070008000000000000001', randomblob(16), 1, 'k', 1, 0, zeroblob(32));
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, attempts,
                            lease_token, lease_until)
         VALUES (zeroblob(16), x'018bcfe5680070008000000000000001', 1, 'in_flight', 'ingest', 1, 1, 7, 8);
    INSERT INTO attempts (delivery_id, number, id, started_at, took_ms, status, class)
         VALUES (zeroblob(16), 1, randomblob(16), 1, 1, 503, 'transient');
    INSERT INTO counters VALUES ('status:in_flight', 1);
    PRAGMA user_version = 1;
    PRAGMA application_id = 0x7372686b;";

#[tokio::test]
async fn event_from_the_first_schema_version_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let first = include_str!("../../migrations/sqlite/0001_events_and_deliveries.sql");
    let old = open_file(folder.path());
    old.execute_batch(first).unwrap();
    old.execute_batch(FIRST_VERSION_ROWS).unwrap();
    drop(old);

    let store = open(folder.path());

    let id = EventId::from_uuid(uuid::uuid!("018bcfe5-6800-7000-8000-000000000001"));
    let detail = store.find_event(id).await.unwrap().unwrap();
    assert_eq!((detail.verified_by, detail.key_from), (None, None));
    assert!(detail.unrouted.is_empty());
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(detail.attempts[0].next, None, "the first version did not store it");
    let kinds: Vec<_> = detail.decisions.iter().map(|decision| decision.kind).collect();
    assert_eq!(kinds, [EventDecisionKind::Recovered]);
}
