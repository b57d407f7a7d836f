//! Checks a PostgreSQL database: what its server keeps when it fails, its health, and the data of the gateway.

use std::{sync::Arc, time::Duration};

use surehook_core::store::DatabaseHealth;
use surehook_engine::system::SystemClock;
use surehook_store::{DatabaseInspection, ServerInspection, inspect_database};

use super::Findings;
use crate::{
    backend::{database_error, postgres_options},
    database::DatabaseUrl,
    settings::Settings,
};

/// The oldest supported version.
const VERSION_MIN: i64 = 150_000;
/// Every response waits for at least one round trip.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(10);
/// A transaction that is open for longer keeps removed rows from being cleaned up.
const TRANSACTION_MAX: Duration = Duration::from_secs(300);
/// The same in transactions, for replication slots and standbys that report what they read.
const SNAPSHOT_AGE_MAX: u64 = 10_000_000;
/// Fewer removed rows do not matter, however small the tables are.
const DEAD_ROWS_MIN: u64 = 1_000_000;
/// Retries, signatures and the times of lists depend on the clocks of nodes.
const CLOCK_OFFSET_MAX_MS: u64 = 1000;
/// Connections of one node.
const CONNECTIONS_PER_NODE: u64 = 9;
const MIB: u64 = 1 << 20;

pub(super) async fn check(settings: &Settings, database: &DatabaseUrl, findings: &mut Findings) {
    let options = match postgres_options(settings, database) {
        Ok(options) => options,
        Err(error) => {
            let advice =
                "Fix `database`, `postgres` and the secret key; see docs/reference/settings.md.";
            return findings.fail("database", error.to_string(), advice);
        }
    };
    let inspection = match inspect_database(&options, Arc::new(SystemClock)).await {
        Ok(inspection) => inspection,
        Err(error) => {
            let advice = "Check that the server runs and is reached from here, and the URL, the password and TLS.";
            return findings.fail("database", database_error(error).to_string(), advice);
        }
    };
    let DatabaseInspection { server, health, .. } = &inspection;
    check_server(server, health, findings);
    check_promise(settings, server, health, findings);
    check_health(server, health, findings);
    check_project(&inspection, options.secret_key.id(), findings);
}

fn check_server(server: &ServerInspection, health: &DatabaseHealth, findings: &mut Findings) {
    let version = &health.version;
    if server.version_number < VERSION_MIN {
        let advice = "Upgrade the server to PostgreSQL 15 or newer.";
        findings.fail("database", format!("{version} is too old"), advice);
    } else {
        let size = health.size_bytes / MIB;
        findings.ok("database", format!("{version}, {size} MiB"));
    }
    if server.is_standby {
        let advice = "Name all hosts in the URL and add target_session_attrs=read-write.";
        findings.fail("database", "the server is a standby", advice);
    }
    if server.encoding != "UTF8" {
        let message = format!("the database has the encoding {}", server.encoding);
        findings.fail("encoding", message, "Create a database with ENCODING 'UTF8'.");
    } else {
        findings.ok("encoding", "UTF8");
    }
    let round_trip = format!("{:.1} ms", server.round_trip.as_secs_f64() * 1e3);
    if server.round_trip > ROUND_TRIP_MAX {
        let advice = "Every response waits for the database. Run nodes near it.";
        findings.warn("round trip", round_trip, advice);
    } else {
        findings.ok("round trip", round_trip);
    }
}

/// What is kept when the server, or its machine, fails.
fn check_promise(
    settings: &Settings,
    server: &ServerInspection,
    health: &DatabaseHealth,
    findings: &mut Findings,
) {
    for (name, value) in [("fsync", &server.fsync), ("full_page_writes", &server.full_page_writes)]
    {
        if value == "off" {
            let advice = format!("Set {name} = on and restart the server: nodes refuse to start.");
            findings.fail(
                "durability",
                format!("{name} = off: a power failure loses events"),
                advice,
            );
        }
    }
    if ["off", "local"].contains(&server.synchronous_commit.as_str()) {
        let message = format!(
            "synchronous_commit = {}; nodes raise it to on for what they write",
            server.synchronous_commit
        );
        findings.ok("durability", message);
    }
    let synchronous: Vec<&str> = health
        .standbys
        .iter()
        .filter(|standby| standby.is_synchronous)
        .map(|standby| standby.name.as_str())
        .collect();
    let names = &server.synchronous_standby_names;
    match (names.is_empty(), synchronous.is_empty()) {
        (false, false) => findings.ok(
            "standby",
            format!(
                "commits wait for {}: nothing answered is lost if the server is, and a synchronous standby is promoted",
                synchronous.join(", ")
            ),
        ),
        (false, true) => findings.fail(
            "standby",
            format!("commits wait for a standby, but none of {names} is connected: nothing is accepted"),
            "Start the standby, or take it out of synchronous_standby_names and accept that a failover may lose events.",
        ),
        (true, _) if settings.postgres.require_synchronous_standby => findings.fail(
            "standby",
            "synchronous_standby_names is empty, but require_synchronous_standby is set: nodes refuse to start",
            "Set synchronous_standby_names on the server.",
        ),
        (true, _) => {
            let message = match health.standbys.len() {
                0 => "no standby: events survive a crash of the server, not the loss of its disk".to_owned(),
                count => format!(
                    "{count} asynchronous standbys: a failover may lose the last events that were answered"
                ),
            };
            let advice = "For no loss in a failover: a synchronous standby, and require_synchronous_standby = true. A managed service may replicate below PostgreSQL; see docs/operations/many-nodes.md.";
            findings.recommend("standby", message, advice);
        }
    }
    for standby in &health.standbys {
        if standby.state != "streaming" {
            let message = format!("standby {} is in state {}", standby.name, standby.state);
            findings.warn("standby", message, "Look at its log.");
        }
    }
}

fn check_health(server: &ServerInspection, health: &DatabaseHealth, findings: &mut Findings) {
    let DatabaseHealth { connections, connections_max, dead_rows, live_rows, .. } = *health;
    let message = format!("{connections} of {connections_max} in use");
    if connections + CONNECTIONS_PER_NODE > connections_max {
        let advice = format!("Raise max_connections: a node uses up to {CONNECTIONS_PER_NODE}.");
        findings.warn("connections", message, advice);
    } else {
        findings.ok("connections", message);
    }
    let oldest = health.oldest_transaction.as_secs();
    let age = health.oldest_snapshot_age;
    if health.oldest_transaction > TRANSACTION_MAX || age > SNAPSHOT_AGE_MAX {
        let message = format!("a transaction is open for {oldest} s, {age} transactions behind");
        let advice = "Removed rows cannot be cleaned up. Find it in pg_stat_activity, pg_replication_slots or pg_prepared_xacts, and end it.";
        findings.warn("transactions", message, advice);
    } else {
        findings
            .ok("transactions", format!("oldest open for {oldest} s, {age} transactions behind"));
    }
    let message = format!("{dead_rows} rows to clean up, {live_rows} in use");
    if dead_rows > DEAD_ROWS_MIN && dead_rows > live_rows {
        let advice = "Autovacuum does not keep up: look for old transactions, or raise autovacuum_vacuum_cost_limit.";
        findings.warn("bloat", message, advice);
    } else {
        findings.ok("bloat", message);
    }
    if !server.is_autovacuum_on {
        findings.warn("autovacuum", "autovacuum = off: tables grow for ever", "Switch it on.");
    }
    let ServerInspection { frozen_age, freeze_max_age, .. } = *server;
    if frozen_age > freeze_max_age {
        let message = format!("the oldest row is {frozen_age} transactions old");
        let advice =
            "Autovacuum should have frozen it. The server stops at 2 billion: run VACUUM FREEZE.";
        findings.warn("wraparound", message, advice);
    }
    let offset = health.clock_offset_ms;
    let message = format!("the server's clock is {offset} ms ahead of this one");
    if offset.unsigned_abs() > CLOCK_OFFSET_MAX_MS {
        findings.warn("clock", message, "Set both with NTP.");
    } else {
        findings.ok("clock", message);
    }
}

fn check_project(
    inspection: &DatabaseInspection,
    key: surehook_store::sqlite::SecretKeyId,
    findings: &mut Findings,
) {
    let known = inspection.known_schema_version;
    match inspection.schema_version {
        None => {
            let advice = "Start `surehook serve`; it creates them.";
            findings.warn("schema", "there are no tables of a gateway", advice);
        }
        Some(version) if version < known => {
            let advice = "Back it up, then start `surehook serve`; it migrates the schema.";
            findings.warn(
                "schema",
                format!("version {version}; this program uses {known}"),
                advice,
            );
        }
        Some(version) if version > known => {
            let message = format!("version {version}; this program uses {known}");
            findings.warn("schema", message, "Replace this node by the newer version.");
        }
        Some(version) => findings.ok("schema", format!("version {version}")),
    }
    findings.ok("nodes", format!("{} running", inspection.nodes));
    match inspection.needed_key {
        Some(needed) if needed != key => {
            let message =
                format!("secrets are encrypted with {needed}, but the key given is {key}");
            findings.fail(
                "secret key",
                message,
                "Take the key from another node, or from where you keep it.",
            );
        }
        Some(needed) => findings.ok("secret key", format!("{needed}, outside the database")),
        None => findings.ok("secret key", format!("{key}; no secrets are stored yet")),
    }
}
