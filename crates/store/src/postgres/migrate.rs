//! A project on PostgreSQL as the source or the target of a migration; see [`crate::migrate`].
//!
//! Until the migration is complete, a row of `meta` keeps nodes from using the target, so its transactions
//! take no locks. Commits of copied rows do not wait for the disk; the one that completes the migration
//! does, and then everything before it is there too.

use std::{sync::Arc, time::Duration};

use surehook_types::{store_error::StoreError, time::Timestamp};
use surehook_webhooks::attribute::SearchTerm;
use tokio::runtime::Handle;
use tokio_postgres::{Config, config::Host};

use super::{
    PostgresOpenError, PostgresOptions,
    connection::PgConnection,
    error::TransactionError,
    new_connector, open_data_keys,
    pool::{Access, Pool},
    schema,
    transaction::PgTransaction,
    writer::try_until_decided,
};
use crate::{
    migrate::{
        CopiedRange, MigrateError, MigrateResult, MigrationSide, MovedRow, Page, PageLimit,
        RangeWrite, RowKey, RowSum, Span, TABLES, Table, TableStorage, seal_row, unseal_row,
    },
    sealing::DataKeys,
    sql::{SqlConnection, SqlError, SqlParameter, SqlRow, SqlValue, params},
    steps::{
        claims::{self, EndedEpochs},
        lanes,
        prune::PruneProgress,
    },
};

/// Row of `meta` of a project that is the target of an unfinished migration: the source.
const MIGRATION_TARGET: &str = "migration_target";
/// Row of `meta` of a project that was moved, or whose last changes are being moved: where to.
const MOVED_TO: &str = "moved_to";

const FIND_MARK: &str = "SELECT value FROM meta WHERE name = ?1";
const PUT_MARK: &str = "
    INSERT INTO meta (name, value) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const DELETE_MARK: &str = "DELETE FROM meta WHERE name = ?1";

/// Longer than a range takes on a slow server.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(600);

fn find_mark(connection: &impl SqlConnection, name: &str) -> Result<Option<String>, SqlError> {
    connection.find_one(FIND_MARK, params![name], |row| row.get(0))
}

/// Why a project is not opened, because of a migration.
pub(super) fn check_marks(
    connection: &PgConnection<'_>,
) -> Result<Option<PostgresOpenError>, SqlError> {
    if find_mark(connection, MIGRATION_TARGET)?.is_some() {
        return Ok(Some(PostgresOpenError::MigrationUnfinished));
    }
    Ok(find_mark(connection, MOVED_TO)?.map(PostgresOpenError::Moved))
}

/// Forgets that a project was moved, because its owner insists to use it.
pub(super) fn forget_move(connection: &PgConnection<'_>) -> Result<(), SqlError> {
    connection.run(DELETE_MARK, params![MOVED_TO]).map(drop)
}

const NUMBERS: &str = "
    SELECT name, value FROM (
           SELECT parts.name COLLATE \"C\" AS name, CAST(sum(parts.value) AS bigint) AS value
             FROM (SELECT name, value FROM totals
                    UNION ALL
                   SELECT unnest(names), unnest(amounts) FROM count_facts
                    UNION ALL
                   SELECT name, value FROM counters
                    WHERE name IN ('lane_epoch', 'configuration_version')
                    UNION ALL
                   SELECT 'order_seq', CASE WHEN is_called THEN last_value ELSE 0 END
                     FROM order_numbers) AS parts
            GROUP BY 1) AS sums
     WHERE value <> 0";
const RESET_NUMBERS: [&str; 4] = [
    "DELETE FROM totals",
    "DELETE FROM count_facts",
    "UPDATE counters SET value = 0 WHERE name IN ('lane_epoch', 'configuration_version')",
    "SELECT setval('order_numbers', 1, FALSE)",
];
const SET_TOTAL: &str = "INSERT INTO totals (name, value) VALUES (?1, ?2)";
const SET_ORDER: &str = "SELECT setval('order_numbers', ?1)";
const SET_COUNTER: &str = "
    INSERT INTO counters (name, value) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const CREATE_RANGES: &str = "
    CREATE TABLE migration_ranges (
        table_name  text COLLATE \"C\" NOT NULL,
        last_key    bytea NOT NULL,
        hour        bigint,
        row_count   bigint NOT NULL,
        checksum    bytea NOT NULL,
        is_verified smallint NOT NULL,
        PRIMARY KEY (table_name, last_key)
    )";
const RANGES: &str = "
    SELECT last_key, hour, row_count, checksum, is_verified FROM migration_ranges
     WHERE table_name = ?1";
const PUT_RANGE: &str = "
    INSERT INTO migration_ranges (table_name, last_key, hour, row_count, checksum, is_verified)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (table_name, last_key) DO UPDATE
       SET hour = excluded.hour, row_count = excluded.row_count, checksum = excluded.checksum,
           is_verified = excluded.is_verified";

const DELETE_TERM: &str = "DELETE FROM terms WHERE term = ?1 AND event_id = ?2";

const SIZE: &str = "
    SELECT coalesce(CAST(sum(pg_total_relation_size(oid)) AS bigint), 0) FROM pg_class
     WHERE relkind = 'r'
       AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())";

// Nodes that register at the same time wait for the commit, and then see the mark.
const LOCK_NODES: &str = "LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE";
const ANY_NODE: &str = "SELECT 1 FROM nodes WHERE lease_until > surehook_now()";

pub(crate) struct PostgresSide {
    name: String,
    pool: Pool,
    handle: Handle,
    keys: Option<DataKeys>,
    /// A dry run without a target.
    is_missing: bool,
}

/// The server, database and project, without user and password.
fn describe(options: &PostgresOptions) -> Result<String, PostgresOpenError> {
    let config: Config = options.url.parse().map_err(|_| PostgresOpenError::Url)?;
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let port = config.get_ports().get(index).or(config.get_ports().first());
        let host = match host {
            Host::Tcp(host) => host.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        match port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let database = config.get_dbname().unwrap_or("postgres");
    Ok(format!("postgres://{hosts}/{database}, project {}", options.project))
}

impl PostgresSide {
    /// Opens a project for reading, also while nodes use it.
    pub(crate) fn open_source(
        options: &PostgresOptions,
        handle: &Handle,
    ) -> Result<Self, PostgresOpenError> {
        let side = Self::open(options, None, handle)?;
        match side.read(|connection| find_mark(connection, MIGRATION_TARGET)) {
            Ok(None) => Ok(side),
            Ok(Some(_)) => Err(PostgresOpenError::MigrationUnfinished),
            Err(error) => Err(PostgresOpenError::Database(error.to_string())),
        }
    }

    /// Opens a project to be filled. Without a dry run it is created if it does not exist.
    pub(crate) fn open_target(
        options: &PostgresOptions,
        now: Timestamp,
        is_dry_run: bool,
        handle: &Handle,
    ) -> Result<Self, PostgresOpenError> {
        if is_dry_run {
            return match Self::open(options, None, handle) {
                Err(PostgresOpenError::Missing(_)) => Self::missing(options, handle),
                opened => opened,
            };
        }
        Self::open(options, Some(now), handle)
    }

    /// Connects to the server of a project that does not exist.
    fn missing(options: &PostgresOptions, handle: &Handle) -> Result<Self, PostgresOpenError> {
        let pool = Pool::new(Arc::new(new_connector(options, true)?), 1);
        let (name, handle) = (describe(options)?, handle.clone());
        Ok(Self { name, pool, handle, keys: None, is_missing: true })
    }

    fn open(
        options: &PostgresOptions,
        created_at: Option<Timestamp>,
        handle: &Handle,
    ) -> Result<Self, PostgresOpenError> {
        let options = PostgresOptions { statement_timeout: STATEMENT_TIMEOUT, ..options.clone() };
        let open = async {
            let mut connector = new_connector(&options, false)?;
            let mut first = connector.open().await?;
            let (standby, accepts_unsafe) =
                (options.require_synchronous_standby, options.accept_unsafe_server);
            let settings = schema::check_server(&first.client, standby, accepts_unsafe).await?;
            connector.raises_synchronous_commit = settings.raises_synchronous_commit;
            match created_at {
                Some(_) => schema::migrate(&mut first.client, connector.schema()).await?,
                None => schema::check_version(&first.client, connector.schema()).await?,
            }
            drop(first);
            let pool = Pool::new(Arc::new(connector), 1);
            let keys = open_data_keys(&pool, options.secret_key.clone(), created_at).await?;
            Ok::<_, PostgresOpenError>((pool, keys))
        };
        let (pool, keys) = handle.block_on(open)?;
        let (name, handle) = (describe(&options)?, handle.clone());
        Ok(Self { name, pool, handle, keys: Some(keys), is_missing: false })
    }

    fn transact<T>(
        &self,
        access: Access,
        work: impl Fn(&PgConnection<'_>) -> Result<T, SqlError>,
    ) -> MigrateResult<T> {
        let done = try_until_decided(|| {
            self.pool.transact(&self.handle, access, |connection| work(&connection))
        });
        done.map_err(statement_error)
    }

    fn read<T>(&self, work: impl Fn(&PgConnection<'_>) -> Result<T, SqlError>) -> MigrateResult<T> {
        self.transact(Access::Read, work)
    }

    fn keys(&self) -> Result<&DataKeys, SqlError> {
        self.keys.as_ref().ok_or(SqlError::RowMissing)
    }

    fn put_rows(
        &self,
        connection: &PgConnection<'_>,
        table: &Table,
        rows: &[&MovedRow],
        is_new: bool,
    ) -> Result<(), SqlError> {
        if rows.is_empty() {
            return Ok(());
        }
        if table.storage == TableStorage::Numbers {
            return rows.iter().try_for_each(|row| put_number(connection, row));
        }
        let keys = self.keys()?;
        let sealed: Result<Vec<MovedRow>, SqlError> = match table.sealed {
            Some(_) => rows.iter().map(|row| seal_row(keys, table, row)).collect(),
            None => Ok(Vec::new()),
        };
        let sealed = sealed?;
        let values: Vec<Vec<SqlValue<'_>>> = match table.sealed {
            Some(_) => sealed.iter().map(|row| row.values().collect()).collect(),
            None => rows.iter().map(|row| row.values().collect()).collect(),
        };
        let columns = table.column_list();
        match is_new {
            true => connection.copy_rows(table.name, &columns, &values),
            false => merge_rows(connection, table.name, &columns, &table.on_conflict(), &values),
        }
    }
}

fn statement_error(error: TransactionError) -> MigrateError {
    MigrateError::Statement(StoreError::from(error).to_string())
}

/// Copies rows into a temporary table and from there into their table, where some may exist.
fn merge_rows(
    connection: &PgConnection<'_>,
    table: &str,
    columns: &str,
    on_conflict: &str,
    rows: &[Vec<SqlValue<'_>>],
) -> Result<(), SqlError> {
    if rows.is_empty() {
        return Ok(());
    }
    let temporary = format!("moved_{table}");
    connection.run(
        &format!(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {temporary} (LIKE {table} INCLUDING DEFAULTS)
             ON COMMIT DELETE ROWS"
        ),
        params![],
    )?;
    connection.copy_rows(&temporary, columns, rows)?;
    let merge =
        format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {temporary} {on_conflict}");
    connection.run(&merge, params![]).map(drop)
}

fn put_number(connection: &PgConnection<'_>, row: &MovedRow) -> Result<(), SqlError> {
    let (SqlValue::Text(name), SqlValue::Integer(value)) = (row.value(0), row.value(1)) else {
        return Err(SqlError::RowMissing);
    };
    match name {
        "order_seq" => connection.find_one(SET_ORDER, params![value], |_| Ok(())).map(drop),
        "lane_epoch" | "configuration_version" => {
            connection.run(SET_COUNTER, params![name, value]).map(drop)
        }
        _ => connection.run(SET_TOTAL, params![name, value]).map(drop),
    }
}

fn delete_rows<'r>(
    connection: &PgConnection<'_>,
    table: &Table,
    rows: impl Iterator<Item = &'r MovedRow>,
) -> Result<(), SqlError> {
    let delete = table.delete();
    for row in rows {
        let key = row.key(table.key_columns)?;
        let values: Vec<&dyn SqlParameter> =
            key.iter().map(|value| value as &dyn SqlParameter).collect();
        connection.run(&delete, &values)?;
    }
    Ok(())
}

fn put_terms(
    connection: &PgConnection<'_>,
    terms: &[(SearchTerm, [u8; 16])],
    is_new: bool,
) -> Result<(), SqlError> {
    let terms: Vec<_> = terms.iter().map(|(term, event)| (term.to_bytes(), event)).collect();
    let rows: Vec<Vec<SqlValue<'_>>> = terms
        .iter()
        .map(|(term, event)| vec![SqlValue::Blob(term), SqlValue::Blob(&event[..])])
        .collect();
    match is_new {
        true if rows.is_empty() => Ok(()),
        true => connection.copy_rows("terms", "term, event_id", &rows),
        false => {
            let ignore = "ON CONFLICT (term, event_id) DO NOTHING";
            merge_rows(connection, "terms", "term, event_id", ignore, &rows)
        }
    }
}

fn put_range(
    connection: &PgConnection<'_>,
    table: &Table,
    range: &CopiedRange,
) -> Result<(), SqlError> {
    let CopiedRange { last, hour, sum, is_verified } = range;
    let (last, checksum) = (CopiedRange::encode_key(last)?, sum.checksum.to_be_bytes());
    let values = params![table.name, last, hour, sum.rows, checksum, *is_verified];
    connection.run(PUT_RANGE, values).map(drop)
}

impl MigrationSide for PostgresSide {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn id(&self) -> MigrateResult<String> {
        let sql = "SELECT id FROM data_keys";
        let id: Vec<u8> =
            self.read(|connection| connection.read_one(sql, params![], |row| row.get(0)))?;
        Ok(data_encoding::HEXLOWER.encode(&id))
    }

    fn read_page(
        &mut self,
        table: &Table,
        span: Span<'_>,
        limit: PageLimit,
    ) -> MigrateResult<Page> {
        if self.is_missing {
            return Ok(Page::new(limit));
        }
        let (sql, values) = table.page_query(span, limit, NUMBERS);
        let checked = table.checked_columns();
        self.read(|connection| {
            let (mut page, keys) = (Page::new(limit), self.keys()?);
            connection.read_while(&sql, &values, |row: &dyn SqlRow| {
                let row = unseal_row(keys, table, MovedRow::read(row, checked)?)?;
                Ok(page.push(row))
            })?;
            Ok(page)
        })
    }

    fn count_rows(&mut self, table: &Table) -> MigrateResult<u64> {
        let sql = match (table.storage, table.is_numbered) {
            (TableStorage::Numbers, _) => format!("SELECT count(*) FROM ({NUMBERS}) AS numbers"),
            (TableStorage::Table, true) => {
                format!("SELECT coalesce(max(seq) - min(seq) + 1, 0) FROM {}", table.name)
            }
            (TableStorage::Table | TableStorage::Keys, _) => {
                format!("SELECT count(*) FROM {}", table.name)
            }
        };
        self.read(|connection| connection.read_one(&sql, params![], |row| row.get(0)))
    }

    fn size_bytes(&mut self) -> MigrateResult<u64> {
        self.read(|connection| connection.read_one(SIZE, params![], |row| row.get(0)))
    }

    fn take_over(&mut self, to: &str, now: Timestamp) -> MigrateResult<bool> {
        let done = self.pool.transact(&self.handle, Access::WriteAlone, |connection| {
            connection.run(LOCK_NODES, params![])?;
            if connection.exists(ANY_NODE, params![])? {
                return Ok(false);
            }
            connection.run(PUT_MARK, params![MOVED_TO, to])?;
            // Applies what nodes that died have left behind, as the next owners of their lanes would.
            let mut tx = PgTransaction::new(connection, PruneProgress::default());
            let epoch = lanes::next_epoch(&tx)?;
            claims::end_epochs(&mut tx, EndedEpochs::before(epoch, None), now)?;
            tx.finish()?;
            Ok(true)
        });
        done.map_err(statement_error)
    }

    fn moved_to(&self) -> MigrateResult<Option<String>> {
        self.read(|connection| find_mark(connection, MOVED_TO))
    }

    fn mark_moved(&mut self, to: &str) -> MigrateResult<()> {
        self.transact(Access::WriteAlone, |connection| {
            connection.run(PUT_MARK, params![MOVED_TO, to]).map(drop)
        })
    }

    fn unfinished_source(&mut self) -> MigrateResult<Option<String>> {
        match self.is_missing {
            true => Ok(None),
            false => self.read(|connection| find_mark(connection, MIGRATION_TARGET)),
        }
    }

    fn begin(&mut self, source: &str) -> MigrateResult<()> {
        self.transact(Access::WriteAlone, |connection| {
            connection.run(CREATE_RANGES, params![])?;
            connection.run(PUT_MARK, params![MIGRATION_TARGET, source]).map(drop)
        })
    }

    fn copied_ranges(&mut self, table: &Table) -> MigrateResult<Vec<CopiedRange>> {
        self.read(|connection| {
            connection.read_all(RANGES, params![table.name], |row| {
                let checksum: [u8; 16] = row.get(3)?;
                let sum = RowSum { rows: row.get(2)?, checksum: u128::from_be_bytes(checksum) };
                let last = CopiedRange::decode_key(row.get(0)?, table.key_columns)?;
                Ok(CopiedRange { last, hour: row.get(1)?, sum, is_verified: row.get(4)? })
            })
        })
    }

    fn write_range(&mut self, table: &Table, write: &RangeWrite<'_>) -> MigrateResult<()> {
        let RangeWrite { changes, is_new, terms, range } = write;
        let rows: Vec<&MovedRow> = changes.written.iter().map(|(row, _)| row).collect();
        self.transact(Access::WriteHint, |connection| {
            delete_rows(connection, table, changes.removed.iter())?;
            if table.is_counted {
                let replaced = changes.written.iter().filter_map(|(_, old)| old.as_ref());
                delete_rows(connection, table, replaced)?;
            }
            self.put_rows(connection, table, &rows, *is_new)?;
            for (term, event) in &terms.removed {
                connection.run(DELETE_TERM, params![term.to_bytes(), *event])?;
            }
            put_terms(connection, &terms.added, *is_new)?;
            put_range(connection, table, range)
        })
    }

    fn replace_tables(
        &mut self,
        tables: &[&Table],
        read: &mut dyn FnMut(&Table, Option<&RowKey>) -> MigrateResult<Page>,
    ) -> MigrateResult<()> {
        // The source fails with errors of its own.
        let mut failed = None;
        let done = self.pool.transact(&self.handle, Access::WriteHint, |connection| {
            for table in tables.iter().rev() {
                match table.storage {
                    TableStorage::Numbers => {
                        for reset in RESET_NUMBERS {
                            connection.run(reset, params![])?;
                        }
                    }
                    TableStorage::Table | TableStorage::Keys => {
                        connection.run(&table.delete_all(), params![])?;
                    }
                }
            }
            for table in tables {
                let mut after = None;
                loop {
                    let page = match read(table, after.as_ref()) {
                        Ok(page) => page,
                        Err(error) => {
                            failed = Some(error);
                            return Err(SqlError::RowMissing);
                        }
                    };
                    let rows: Vec<&MovedRow> = page.rows.iter().collect();
                    self.put_rows(&connection, table, &rows, true)?;
                    let Some(last) = page.rows.last().filter(|_| !page.is_complete) else { break };
                    after = Some(last.key(table.key_columns)?);
                }
            }
            Ok(())
        });
        match (failed, done) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => Err(statement_error(error)),
        }
    }

    fn optimize(&mut self) -> MigrateResult<()> {
        // Without statistics, the first statements of the gateway would read whole tables.
        self.transact(Access::WriteHint, |connection| {
            for table in TABLES.iter().filter(|table| table.storage != TableStorage::Numbers) {
                connection.run(&format!("ANALYZE {}", table.name), params![])?;
            }
            connection.run("ANALYZE terms", params![]).map(drop)
        })
    }

    fn complete(&mut self) -> MigrateResult<()> {
        self.transact(Access::WriteAlone, |connection| {
            for Table { name, .. } in TABLES.iter().filter(|table| table.is_numbered) {
                let advance = format!(
                    "SELECT setval(pg_get_serial_sequence('{name}', 'seq'), max(seq)) FROM {name}
                     HAVING max(seq) IS NOT NULL"
                );
                connection.find_one(&advance, params![], |_| Ok(()))?;
            }
            connection.run("DROP TABLE migration_ranges", params![])?;
            connection.run(DELETE_MARK, params![MIGRATION_TARGET]).map(drop)
        })
    }
}
