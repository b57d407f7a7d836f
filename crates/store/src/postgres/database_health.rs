//! Health of the database server, as its statistics show it.

use std::time::Duration;

use surehook_core::store::{DatabaseHealth, StandbyHealth};

use crate::sql::{Result, SqlConnection, params};

// Ages and sizes that the role may not see are zero.
const SERVER: &str = "
    SELECT current_setting('server_version'),
           pg_database_size(current_database()),
           (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
           CAST(current_setting('max_connections') AS bigint),
           coalesce((SELECT CAST(max(extract(epoch FROM clock_timestamp() - xact_start)) * 1000 AS bigint)
                       FROM pg_stat_activity
                      WHERE xact_start IS NOT NULL AND datname = current_database()), 0),
           coalesce((SELECT CAST(max(age(backend_xmin)) AS bigint) FROM pg_stat_activity
                      WHERE backend_xmin IS NOT NULL), 0),
           coalesce((SELECT CAST(sum(n_dead_tup) AS bigint) FROM pg_stat_user_tables
                      WHERE schemaname = current_schema()), 0),
           coalesce((SELECT CAST(sum(n_live_tup) AS bigint) FROM pg_stat_user_tables
                      WHERE schemaname = current_schema()), 0),
           current_setting('synchronous_standby_names') <> ''
             AND current_setting('synchronous_commit') NOT IN ('off', 'local')";
const STANDBYS: &str = "
    SELECT application_name, coalesce(state, ''), coalesce(sync_state IN ('sync', 'quorum'), FALSE),
           CAST(coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), write_lsn), 0) AS bigint)
      FROM pg_stat_replication ORDER BY application_name";

/// Implements `AdminStore::inspect_database`, without the offset of the clocks, which is measured apart.
pub(super) fn inspect(connection: &impl SqlConnection, is_standby: bool) -> Result<DatabaseHealth> {
    let server = connection.read_one(SERVER, params![], |row| {
        Ok(DatabaseHealth {
            version: format!("PostgreSQL {}", row.get::<String>(0)?),
            size_bytes: row.get(1)?,
            connections: row.get(2)?,
            connections_max: row.get(3)?,
            oldest_transaction: Duration::from_millis(row.get(4)?),
            oldest_snapshot_age: row.get(5)?,
            dead_rows: row.get(6)?,
            live_rows: row.get(7)?,
            waits_for_standby: row.get(8)?,
            ..DatabaseHealth::default()
        })
    })?;
    if is_standby {
        return Ok(server);
    }
    let standbys = connection.read_all(STANDBYS, params![], |row| {
        Ok(StandbyHealth {
            name: row.get(0)?,
            state: row.get(1)?,
            is_synchronous: row.get(2)?,
            lag_bytes: row.get::<i64>(3)?.try_into().unwrap_or_default(),
        })
    })?;
    Ok(DatabaseHealth { standbys, ..server })
}
