//! PostgreSQL behind the layer of [`crate::sql`].
//!
//! The steps are synchronous. They run on the blocking pool, and each statement waits there for the
//! driver. Statements are prepared once per connection, or sent as text with each execution where a
//! pooler stands in between that does not know prepared statements.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    ops::ControlFlow,
    time::Duration,
};

use bytes::{BufMut as _, BytesMut};
use tokio::runtime::Handle;
use tokio_postgres::{
    Row, Statement, Transaction,
    binary_copy::BinaryCopyInWriter,
    types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use super::error::{FailureKind, PostgresFailure};
use crate::sql::{Dialect, Result, SqlConnection, SqlError, SqlParameter, SqlRow, SqlValue};

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

/// A parameter in the binary format, for the type that the server found for it.
#[derive(Debug)]
struct BinaryParameter<'a>(SqlValue<'a>);

impl ToSql for BinaryParameter<'_> {
    fn to_sql(&self, column: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        match (self.0, column) {
            (SqlValue::Null, _) => return Ok(IsNull::Yes),
            (SqlValue::Integer(integer), &Type::INT8) => out.put_i64(integer),
            (SqlValue::Integer(integer), &Type::INT4) => {
                out.put_i32(integer.try_into().map_err(|_| SqlError::OutOfRange)?);
            }
            (SqlValue::Integer(integer), &Type::INT2) => {
                out.put_i16(integer.try_into().map_err(|_| SqlError::OutOfRange)?);
            }
            (SqlValue::Text(text), &Type::TEXT) => out.put_slice(text.as_bytes()),
            (SqlValue::Blob(bytes), &Type::BYTEA) => out.put_slice(bytes),
            (value, column) => {
                let what = format!("{} for a parameter of type {column}", value.kind());
                return Err(Box::new(SqlError::Unstorable(what)));
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A parameter as text, whose type the server finds.
#[derive(Debug)]
struct TextParameter<'a>(SqlValue<'a>);

impl ToSql for TextParameter<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        match self.0 {
            SqlValue::Null => return Ok(IsNull::Yes),
            SqlValue::Integer(integer) => out.put_slice(integer.to_string().as_bytes()),
            SqlValue::Text(text) => out.put_slice(text.as_bytes()),
            SqlValue::Blob(bytes) => {
                out.put_slice(b"\\x");
                out.put_slice(data_encoding::HEXLOWER.encode(bytes).as_bytes());
            }
        }
        Ok(IsNull::No)
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value of a result.
struct RawValue<'a>(SqlValue<'a>);

impl<'a> FromSql<'a> for RawValue<'a> {
    fn from_sql(column: &Type, raw: &'a [u8]) -> Result<Self, BoxedError> {
        let value = match *column {
            Type::INT8 => SqlValue::Integer(i64::from_be_bytes(raw.try_into()?)),
            Type::INT4 => SqlValue::Integer(i32::from_be_bytes(raw.try_into()?).into()),
            Type::INT2 => SqlValue::Integer(i16::from_be_bytes(raw.try_into()?).into()),
            Type::BOOL => SqlValue::Integer((raw != [0]).into()),
            Type::TEXT => SqlValue::Text(std::str::from_utf8(raw)?),
            Type::BYTEA => SqlValue::Blob(raw),
            _ => return Err(format!("no column has the type {column}").into()),
        };
        Ok(Self(value))
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxedError> {
        Ok(Self(SqlValue::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl SqlRow for Row {
    fn value(&self, column: usize) -> Result<SqlValue<'_>> {
        match self.try_get::<_, RawValue<'_>>(column) {
            Ok(value) => Ok(value.0),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let what = cause.unwrap_or_else(|| error.to_string());
                Err(SqlError::InvalidValue { column, what })
            }
        }
    }

    fn column_count(&self) -> usize {
        self.len()
    }
}

/// Index hints of SQLite.
const HINTS: [&str; 2] = [" INDEXED BY ", " NOT INDEXED"];

const LISTED_TABLE: &str = "deliveries";
/// Indexes of `deliveries` that are views here: an index on what an attempt changes would prevent HOT
/// updates.
const LISTS: [&str; 4] =
    ["deliveries_due", "deliveries_leased", "deliveries_line", "deliveries_dead"];

/// A statement of the steps in the words of PostgreSQL: `?1` becomes `$1`, and index hints are dropped. A
/// table whose hint is one of [`LISTS`] is replaced by that view.
pub(super) fn translate(sql: &str) -> String {
    let mut text = sql.replace('?', "$");
    for hint in HINTS {
        while let Some(start) = text.find(hint) {
            let name = &text[start + hint.len()..];
            let end = match hint.ends_with(' ') {
                true => {
                    name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len())
                }
                false => 0,
            };
            let list = LISTS.iter().find(|list| **list == &name[..end]);
            text.replace_range(start..start + hint.len() + end, "");
            if let Some(list) = list
                && let Some(table) = text[..start].rfind(LISTED_TABLE)
            {
                text.replace_range(table..table + LISTED_TABLE.len(), list);
            }
        }
    }
    text
}

/// Prepared statements of a connection, by the text of the steps.
#[derive(Default)]
pub(super) struct StatementCache(RefCell<HashMap<Box<str>, Statement, ahash::RandomState>>);

/// More are forgotten and prepared again: lists are built from their filters and have many forms.
const STATEMENTS_MAX: usize = 500;

/// Rows that are fetched at first of a result that the caller may not read to its end.
const ROWS_FETCHED_FIRST: i32 = 64;
/// Each further fetch has this many times as many rows.
const FETCH_GROWTH: i32 = 4;
const ROWS_FETCHED_MAX: i32 = 4096;

/// A transaction of a connection, for the steps.
pub(super) struct PgConnection<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    pub(super) statements: &'a StatementCache,
    pub(super) handle: &'a Handle,
    /// `None` where statements cannot be prepared.
    pub(super) prepares: bool,
    /// The version of the configuration, which does not change during a batch; zero in other transactions.
    pub(super) configuration_version: u64,
    /// For how long an answer is awaited.
    pub(super) timeout: Duration,
    /// The connection must not be used again.
    pub(super) is_broken: &'a Cell<bool>,
}

impl PgConnection<'_> {
    pub(super) fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let limited = async { tokio::time::timeout(self.timeout, work).await };
        match self.handle.block_on(limited) {
            Ok(done) => done.map_err(|error| {
                let failure = PostgresFailure::from(error);
                if failure.kind == FailureKind::Connection {
                    self.is_broken.set(true);
                }
                SqlError::Postgres(failure)
            }),
            Err(_) => {
                self.is_broken.set(true);
                let text = format!("PostgreSQL did not answer in {:?}", self.timeout);
                Err(SqlError::Postgres(PostgresFailure::new(FailureKind::Connection, text)))
            }
        }
    }

    fn statement(&self, sql: &str) -> Result<Statement> {
        if let Some(prepared) = self.statements.0.borrow().get(sql) {
            return Ok(prepared.clone());
        }
        let prepared = self.wait(self.transaction.prepare(&translate(sql)))?;
        let mut statements = self.statements.0.borrow_mut();
        if statements.len() >= STATEMENTS_MAX {
            statements.clear();
        }
        statements.insert(sql.into(), prepared.clone());
        Ok(prepared)
    }

    fn query(&self, sql: &str, values: &[&dyn SqlParameter]) -> Result<Vec<Row>> {
        if self.prepares {
            let (statement, values) = (self.statement(sql)?, bind(values, BinaryParameter)?);
            let values = references(&values);
            return self.wait(self.transaction.query(&statement, &values));
        }
        let values = bind(values, TextParameter)?;
        self.wait(self.transaction.query_typed(&translate(sql), &untyped(&values)))
    }

    /// Runs a statement that is written for PostgreSQL alone, whose parameters are arrays.
    pub(super) fn query_arrays(
        &self,
        sql: &'static str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>> {
        if !self.prepares {
            return self.wait(self.transaction.query_typed(sql, values));
        }
        let statement = self.statement(sql)?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|(value, _)| *value).collect();
        self.wait(self.transaction.query(&statement, &values))
    }

    /// Copies rows into columns of a table.
    pub(super) fn copy_rows(
        &self,
        table: &str,
        columns: &str,
        rows: &[Vec<SqlValue<'_>>],
    ) -> Result<()> {
        let described = self.statement(&format!("SELECT {columns} FROM {table}"))?;
        let types: Vec<Type> =
            described.columns().iter().map(|column| column.type_().clone()).collect();
        let copy = format!("COPY {table} ({columns}) FROM STDIN (FORMAT binary)");
        self.wait(async {
            let sink = self.transaction.copy_in(&copy).await?;
            let mut writer = std::pin::pin!(BinaryCopyInWriter::new(sink, &types));
            for row in rows {
                let values: Vec<BinaryParameter<'_>> =
                    row.iter().copied().map(BinaryParameter).collect();
                let values = values.iter().map(|value| value as &(dyn ToSql + Sync));
                writer.as_mut().write_raw(values).await?;
            }
            writer.finish().await.map(drop)
        })
    }

    /// Fetches the rows of a result in parts, and stops as soon as `read` breaks.
    fn read_in_parts(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        mut read: impl FnMut(&dyn SqlRow) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (statement, values) = (self.statement(sql)?, bind(values, BinaryParameter)?);
        let values = references(&values);
        let portal = self.wait(self.transaction.bind(&statement, &values))?;
        let mut fetched = ROWS_FETCHED_FIRST;
        loop {
            let rows = self.wait(self.transaction.query_portal(&portal, fetched))?;
            for row in &rows {
                if read(row)?.is_break() {
                    return Ok(());
                }
            }
            if rows.len() < usize::try_from(fetched).unwrap_or(usize::MAX) {
                return Ok(());
            }
            fetched = (fetched * FETCH_GROWTH).min(ROWS_FETCHED_MAX);
        }
    }
}

fn bind<'a, P>(
    values: &'a [&dyn SqlParameter],
    wrap: impl Fn(SqlValue<'a>) -> P,
) -> Result<Vec<P>> {
    values.iter().map(|value| value.to_value().map(&wrap)).collect()
}

fn references<P: ToSql + Sync>(values: &[P]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn untyped<P: ToSql + Sync>(values: &[P]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}

impl SqlConnection for PgConnection<'_> {
    type Dialect = PostgresDialect;

    fn run(&self, sql: &str, values: &[&dyn SqlParameter]) -> Result<usize> {
        let changed = if self.prepares {
            let (statement, values) = (self.statement(sql)?, bind(values, BinaryParameter)?);
            let values = references(&values);
            self.wait(self.transaction.execute(&statement, &values))?
        } else {
            let values = bind(values, TextParameter)?;
            self.wait(self.transaction.execute_typed(&translate(sql), &untyped(&values)))?
        };
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    fn read_while(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        mut read: impl FnMut(&dyn SqlRow) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        if self.prepares {
            return self.read_in_parts(sql, values, read);
        }
        for row in &self.query(sql, values)? {
            if read(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Every transaction that reads has one snapshot, and one that writes is the only one.
    fn read_snapshot<T>(&self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        read(self)
    }

    fn find_one<T>(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnOnce(&dyn SqlRow) -> Result<T>,
    ) -> Result<Option<T>> {
        self.query(sql, values)?.first().map(|row| read(row)).transpose()
    }

    fn read_all<T, C: Default + Extend<T>>(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        mut read: impl FnMut(&dyn SqlRow) -> Result<T>,
    ) -> Result<C> {
        let mut all = C::default();
        for row in &self.query(sql, values)? {
            all.extend([read(row)?]);
        }
        Ok(all)
    }
}

pub(super) struct PostgresDialect;

impl Dialect for PostgresDialect {
    const ID_LIST: &'static str =
        "json_array_elements_text(CAST(CAST(?1 AS text) AS json)) AS j (value)";
    const LISTED_ID: &'static str = "decode(j.value, 'hex')";
    // Each version of a row that is updated would be read again as long as a transaction may see it.
    const NEXT_ORDER_NUMBER: &'static str = "SELECT nextval('order_numbers')";

    fn text_contains(text: &str, part: &str) -> String {
        format!("strpos({text}, {part}) > 0")
    }

    fn bytes_contain(bytes: &str, text: &str) -> String {
        format!("position(convert_to({text}, 'UTF8') IN {bytes}) > 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_renamed_and_index_hints_dropped() {
        assert_eq!(
            translate(
                "SELECT ?1 FROM d INDEXED BY d_by_x\n WHERE a = ?12 AND b IN (SELECT 1 FROM e NOT INDEXED)"
            ),
            "SELECT $1 FROM d\n WHERE a = $12 AND b IN (SELECT 1 FROM e)"
        );
    }

    #[test]
    fn hinted_list_of_deliveries_becomes_its_view() {
        assert_eq!(
            translate(
                "UPDATE deliveries SET state = 'held' WHERE id IN (SELECT d.id FROM deliveries d INDEXED BY deliveries_due
                 WHERE due_at < ?1) OR EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_line WHERE ended_at IS NULL)"
            ),
            "UPDATE deliveries SET state = 'held' WHERE id IN (SELECT d.id FROM deliveries_due d
                 WHERE due_at < $1) OR EXISTS (SELECT 1 FROM deliveries_line WHERE ended_at IS NULL)"
        );
    }
}
