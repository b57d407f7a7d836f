//! What `surehook doctor` says about a database, also one that a start would refuse.

use std::time::{Duration, Instant};

use surehook_core::store::DatabaseHealth;
use surehook_types::time::Clock;

use super::{
    PostgresOpenError, PostgresOptions,
    connection::PgConnection,
    database_health, new_connector,
    pool::{Access, Pool},
    read_data_key, run_blocking,
    schema::{MIGRATIONS, find_version},
};
use crate::{
    sql::{Result, SqlConnection, SqlRow, params},
    sqlite::SecretKeyId,
};

/// A server and the data of a project.
#[derive(Clone, Debug)]
pub struct DatabaseInspection {
    pub server: ServerInspection,
    /// As the API shows it; with the offset of the clocks.
    pub health: DatabaseHealth,
    /// Version of the schema; `None` if no gateway has been started on it.
    pub schema_version: Option<usize>,
    pub known_schema_version: usize,
    /// Nodes whose lease has not ended.
    pub nodes: u64,
    /// The key that secrets are encrypted with.
    pub needed_key: Option<SecretKeyId>,
}

/// Settings of a server that decide what is kept when it fails.
#[derive(Clone, Debug, Default)]
pub struct ServerInspection {
    pub version_number: i64,
    pub fsync: String,
    pub full_page_writes: String,
    pub synchronous_commit: String,
    pub synchronous_standby_names: String,
    pub encoding: String,
    pub is_standby: bool,
    pub is_autovacuum_on: bool,
    /// Transactions that the oldest row is behind, and how many force a full cleaning.
    pub frozen_age: i64,
    pub freeze_max_age: i64,
    /// How long one statement took, with the way to the server and back.
    pub round_trip: Duration,
}

const SERVER: &str = "
    SELECT CAST(current_setting('server_version_num') AS bigint), current_setting('fsync'),
           current_setting('full_page_writes'), current_setting('synchronous_commit'),
           current_setting('synchronous_standby_names'), current_setting('server_encoding'),
           pg_is_in_recovery(), current_setting('autovacuum') = 'on',
           (SELECT CAST(age(datfrozenxid) AS bigint) FROM pg_database WHERE datname = current_database()),
           CAST(current_setting('autovacuum_freeze_max_age') AS bigint)";
// By the clock of the server itself: the schema may not exist.
const NOW: &str = "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)";
const NODES: &str = "SELECT count(*) FROM nodes WHERE lease_until > surehook_now()";

/// Inspects the database of a project without writing to it, on a standby too.
pub async fn inspect_database(
    options: &PostgresOptions,
    clock: std::sync::Arc<dyn Clock>,
) -> std::result::Result<DatabaseInspection, PostgresOpenError> {
    let connector = new_connector(options, true)?;
    let schema_version = find_version(&connector.open().await?.client, connector.schema()).await?;
    let pool = Pool::new(connector.into(), 1);
    let failed = |error: surehook_types::store_error::StoreError| {
        PostgresOpenError::Database(error.to_string())
    };
    let (server, health) =
        run_blocking(&pool, Access::Read, move |connection| inspect_server(connection, &*clock))
            .await
            .map_err(failed)?;
    // Older schemas have these tables too.
    let (nodes, needed_key) = match schema_version {
        Some(1..) => run_blocking(&pool, Access::Read, inspect_project).await.map_err(failed)?,
        Some(0) | None => (0, None),
    };
    let known_schema_version = MIGRATIONS.len();
    Ok(DatabaseInspection {
        server,
        health,
        schema_version,
        known_schema_version,
        nodes,
        needed_key,
    })
}

/// How much the server's clock is ahead of another one.
#[derive(Clone, Copy, Debug)]
pub struct ClockOffset {
    pub millis: i64,
    /// How long it took to ask: the error is at most half of it.
    pub round_trip: Duration,
}

pub(super) fn measure_clock(
    connection: &PgConnection<'_>,
    clock: &dyn Clock,
) -> Result<ClockOffset> {
    let read_now = || connection.read_one(NOW, params![], |row| row.get::<i64>(0));
    // Prepares the statement.
    read_now()?;
    let (before, started) = (clock.now(), Instant::now());
    let now = read_now()?;
    let round_trip = started.elapsed();
    Ok(ClockOffset { millis: now - (before + round_trip / 2).as_millis(), round_trip })
}

fn inspect_server(
    connection: &PgConnection<'_>,
    clock: &dyn Clock,
) -> Result<(ServerInspection, DatabaseHealth)> {
    let ClockOffset { millis, round_trip } = measure_clock(connection, clock)?;
    let server = connection.read_one(SERVER, params![], |row: &dyn SqlRow| {
        Ok(ServerInspection {
            version_number: row.get(0)?,
            fsync: row.get(1)?,
            full_page_writes: row.get(2)?,
            synchronous_commit: row.get(3)?,
            synchronous_standby_names: row.get(4)?,
            encoding: row.get(5)?,
            is_standby: row.get(6)?,
            is_autovacuum_on: row.get(7)?,
            frozen_age: row.get(8)?,
            freeze_max_age: row.get(9)?,
            round_trip,
        })
    })?;
    let mut health = database_health::inspect(connection, server.is_standby)?;
    health.clock_offset_ms = millis;
    Ok((server, health))
}

fn inspect_project(connection: &PgConnection<'_>) -> Result<(u64, Option<SecretKeyId>)> {
    let nodes = connection.read_one(NODES, params![], |row| row.get(0))?;
    Ok((nodes, read_data_key(connection)?.map(|stored| stored.by)))
}
