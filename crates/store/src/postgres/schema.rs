//! The schema of a project, and what the server must be.
//!
//! All tables of a project are in a schema of its own. Migrations go forward only, each in a transaction
//! that locks the row with the version: of several nodes that start together one migrates, and the others
//! find the work done.

use tokio_postgres::{Client, SimpleQueryMessage, error::SqlState};

use super::{PostgresOpenError, error::PostgresFailure};

/// All migrations in order. A released one is never edited.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_store.sql"),
    include_str!("../../migrations/postgres/0002_vacuum_settings.sql"),
    include_str!("../../migrations/postgres/0003_shards.sql"),
];

/// A node may run on a schema that is this much newer, so that nodes can be replaced one after the other.
const NEWER_SUPPORTED: usize = 1;

/// The oldest supported major version.
const VERSION_MIN: i32 = 150_000;

/// How often a start waits for the lock of another node that migrates, or of a long transaction: a minute.
const LOCK_TRIES_MAX: u32 = 30;

/// Creates or migrates the schema. A pooler may give each transaction another connection, so no statement
/// relies on an earlier transaction.
pub(super) async fn migrate(client: &mut Client, schema: &str) -> Result<(), PostgresOpenError> {
    if find_version(client, schema).await? != Some(MIGRATIONS.len()) {
        create_schema(client, schema).await?;
    }
    let mut tries = 1;
    loop {
        match run_migrations(client, schema).await {
            Err(PostgresOpenError::Locked) if tries < LOCK_TRIES_MAX => {
                tracing::info!("waiting for another node that migrates the database");
                tries += 1;
            }
            done => return done,
        }
    }
}

async fn run_migrations(client: &mut Client, schema: &str) -> Result<(), PostgresOpenError> {
    loop {
        let transaction = client.transaction().await.map_err(PostgresFailure::from)?;
        // Behind a long transaction, the nodes that run would wait for this one.
        transaction
            .batch_execute(&format!(
                "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = 0;
                 SET LOCAL search_path = \"{schema}\""
            ))
            .await
            .map_err(PostgresFailure::from)?;
        let row = transaction
            .query_typed_one("SELECT version FROM schema_version WHERE id = 1 FOR UPDATE", &[])
            .await
            .map_err(locked_or_failed)?;
        let version = usize::try_from(row.get::<_, i64>(0)).unwrap_or(usize::MAX);
        if version > MIGRATIONS.len() + NEWER_SUPPORTED {
            return Err(PostgresOpenError::Newer { found: version, known: MIGRATIONS.len() });
        }
        let Some(migration) = MIGRATIONS.get(version) else { return Ok(()) };
        tracing::info!(version = version + 1, "migrating the database");
        transaction.batch_execute(migration).await.map_err(locked_or_failed)?;
        transaction
            .batch_execute("UPDATE schema_version SET version = version + 1 WHERE id = 1")
            .await
            .map_err(PostgresFailure::from)?;
        transaction.commit().await.map_err(PostgresFailure::from)?;
    }
}

fn locked_or_failed(error: tokio_postgres::Error) -> PostgresOpenError {
    match error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        true => PostgresOpenError::Locked,
        false => PostgresFailure::from(error).into(),
    }
}

/// Refuses a schema that this version cannot read.
pub(super) async fn check_version(client: &Client, schema: &str) -> Result<(), PostgresOpenError> {
    let known = MIGRATIONS.len();
    match find_version(client, schema).await? {
        None => Err(PostgresOpenError::Missing(schema.to_owned())),
        Some(found) if found < known => Err(PostgresOpenError::Older { found, known }),
        Some(found) if found > known + NEWER_SUPPORTED => {
            Err(PostgresOpenError::Newer { found, known })
        }
        Some(_) => Ok(()),
    }
}

/// The version of a schema, whatever the search path is; `None` if it does not exist.
pub(super) async fn find_version(
    client: &Client,
    schema: &str,
) -> Result<Option<usize>, PostgresOpenError> {
    let sql = format!("SELECT version FROM \"{schema}\".schema_version WHERE id = 1");
    match client.simple_query(&sql).await {
        Ok(messages) => Ok(messages.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0)?.parse().ok()
        })),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(PostgresFailure::from(error).into()),
    }
}

/// Other nodes may create it at the same time, which `IF NOT EXISTS` does not expect.
async fn create_schema(client: &Client, schema: &str) -> Result<(), PostgresOpenError> {
    const TRIES_MAX: usize = 5;
    let script = format!(
        "CREATE SCHEMA IF NOT EXISTS \"{schema}\";
         CREATE TABLE IF NOT EXISTS \"{schema}\".schema_version (
             id      smallint PRIMARY KEY CHECK (id = 1),
             version bigint NOT NULL
         );
         INSERT INTO \"{schema}\".schema_version (id, version) VALUES (1, 0)
         ON CONFLICT (id) DO NOTHING;"
    );
    let mut tries = 1;
    loop {
        match client.batch_execute(&script).await {
            Ok(()) => return Ok(()),
            Err(error) if is_race(&error) && tries < TRIES_MAX => tries += 1,
            Err(error) => return Err(PostgresFailure::from(error).into()),
        }
    }
}

fn is_race(error: &tokio_postgres::Error) -> bool {
    let races = [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_SCHEMA];
    error.code().is_some_and(|code| races.contains(code))
}

/// What was found out about the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerSettings {
    /// Commits would not wait for the disk.
    pub(super) raises_synchronous_commit: bool,
}

/// Refuses a server that would lose what was answered.
pub(super) async fn check_server(
    client: &Client,
    requires_standby: bool,
    accepts_unsafe: bool,
) -> Result<ServerSettings, PostgresOpenError> {
    let row = client
        .query_typed_one(
            "SELECT current_setting('server_version_num')::int, current_setting('fsync'),
                    current_setting('full_page_writes'), current_setting('synchronous_commit'),
                    current_setting('synchronous_standby_names'), pg_is_in_recovery(),
                    current_setting('server_encoding')",
            &[],
        )
        .await
        .map_err(PostgresFailure::from)?;
    let version: i32 = row.get(0);
    if version < VERSION_MIN {
        return Err(PostgresOpenError::OldServer(version / 10_000));
    }
    if row.get::<_, bool>(5) {
        return Err(PostgresOpenError::Standby);
    }
    if row.get::<_, &str>(6) != "UTF8" {
        return Err(PostgresOpenError::Encoding(row.get(6)));
    }
    if !accepts_unsafe {
        for (column, name) in [(1, "fsync"), (2, "full_page_writes")] {
            if row.get::<_, &str>(column) == "off" {
                return Err(PostgresOpenError::UnsafeServer(name));
            }
        }
    }
    if requires_standby && row.get::<_, &str>(4).is_empty() {
        return Err(PostgresOpenError::NoSynchronousStandby);
    }
    // `remote_apply` waits for even more.
    let commit: &str = row.get(3);
    let raises_synchronous_commit = !accepts_unsafe && !["on", "remote_apply"].contains(&commit);
    Ok(ServerSettings { raises_synchronous_commit })
}
