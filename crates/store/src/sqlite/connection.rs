//! `SQLite` behind the layer of [`crate::sql`].

use std::ops::ControlFlow;

use rusqlite::{
    Connection, Error, Row, ToSql, params_from_iter,
    types::{ToSqlOutput, Type, ValueRef},
};
use surehook_types::ids::EventId;

use crate::sql::{Dialect, Result, SqlConnection, SqlError, SqlParameter, SqlRow, SqlValue};

/// A parameter as rusqlite binds it.
struct BoundParameter<'a>(&'a dyn SqlParameter);

impl ToSql for BoundParameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0.to_value()? {
            SqlValue::Null => ValueRef::Null,
            SqlValue::Integer(integer) => ValueRef::Integer(integer),
            SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
            SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The parameters of a statement, as rusqlite binds them.
pub(super) fn bind<'a>(values: &'a [&'a dyn SqlParameter]) -> impl rusqlite::Params + 'a {
    params_from_iter(values.iter().map(|value| BoundParameter(*value)))
}

impl SqlConnection for Connection {
    type Dialect = SqliteDialect;

    fn run(&self, sql: &str, values: &[&dyn SqlParameter]) -> Result<usize> {
        debug_assert_portable(sql);
        Ok(self.prepare_cached(sql)?.execute(bind(values))?)
    }

    fn read_while(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnMut(&dyn SqlRow) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        debug_assert_portable(sql);
        read_rows(self.prepare_cached(sql)?.query(bind(values))?, read)
    }

    fn read_snapshot<T>(&self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let _rolled_back_at_the_end = self.unchecked_transaction()?;
        read(self)
    }
}

/// Passes rows to `read` until it breaks.
pub(super) fn read_rows(
    mut rows: rusqlite::Rows<'_>,
    mut read: impl FnMut(&dyn SqlRow) -> Result<ControlFlow<()>>,
) -> Result<()> {
    while let Some(row) = rows.next()? {
        if read(row)?.is_break() {
            break;
        }
    }
    Ok(())
}

impl SqlRow for Row<'_> {
    fn value(&self, column: usize) -> Result<SqlValue<'_>> {
        Ok(match self.get_ref(column)? {
            ValueRef::Null => SqlValue::Null,
            ValueRef::Integer(integer) => SqlValue::Integer(integer),
            ValueRef::Text(text) => SqlValue::Text(str::from_utf8(text).map_err(|_| {
                SqlError::InvalidValue { column, what: "a text is not UTF-8".to_owned() }
            })?),
            ValueRef::Blob(bytes) => SqlValue::Blob(bytes),
            ValueRef::Real(_) => {
                let what = "no column holds a fraction".to_owned();
                return Err(SqlError::InvalidValue { column, what });
            }
        })
    }

    fn column_count(&self) -> usize {
        self.as_ref().column_count()
    }
}

pub(crate) struct SqliteDialect;

impl Dialect for SqliteDialect {
    const ID_LIST: &'static str = "json_each(?1) j";
    const LISTED_ID: &'static str = "unhex(j.value)";
    const NEXT_ORDER_NUMBER: &'static str =
        "UPDATE counters SET value = value + 1 WHERE name = 'order_seq' RETURNING value";

    fn text_contains(text: &str, part: &str) -> String {
        format!("instr({text}, {part}) > 0")
    }

    fn bytes_contain(bytes: &str, text: &str) -> String {
        format!("instr({bytes}, CAST({text} AS BLOB)) > 0")
    }
}

/// SQL that only `SQLite` understands, or understands differently.
const SQLITE_ONLY: [&str; 14] = [
    "INSERT OR ",
    "UPDATE OR ",
    "iif(",
    "ifnull(",
    "total(",
    "char(",
    "rowid",
    " GLOB ",
    " IS ?",
    " IS NOT ?",
    " IS (",
    " IS NOT (",
    "changes()",
    "LIMIT -",
];

/// The statements of the steps must mean the same on `PostgreSQL`.
pub(super) fn debug_assert_portable(sql: &str) {
    debug_assert!(
        !SQLITE_ONLY.iter().any(|words| sql.contains(words)),
        "a statement of the steps is for SQLite only: {sql}"
    );
}

/// Carries a damaged body through an error of rusqlite.
#[derive(Debug, thiserror::Error)]
#[error("the stored body of {0} is damaged")]
struct DamagedBodyError(EventId);

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        if matches!(error, Error::QueryReturnedNoRows) {
            return Self::RowMissing;
        }
        if let Error::FromSqlConversionFailure(_, _, cause) = &error
            && let Some(DamagedBodyError(event)) = cause.downcast_ref()
        {
            return Self::DamagedBody(*event);
        }
        Self::Sqlite(error)
    }
}

/// For the modules that are written for `SQLite` alone, and call shared steps.
impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Sqlite(error) => error,
            SqlError::RowMissing => Self::QueryReturnedNoRows,
            SqlError::DamagedBody(event) => {
                Self::FromSqlConversionFailure(0, Type::Blob, Box::new(DamagedBodyError(event)))
            }
            SqlError::InvalidValue { column, what } => {
                Self::FromSqlConversionFailure(column, Type::Text, what.into())
            }
            error @ (SqlError::OutOfRange | SqlError::Unstorable(_) | SqlError::Postgres(_)) => {
                Self::ToSqlConversionFailure(Box::new(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use surehook_types::{ids::Id, time::Timestamp};

    use super::*;
    use crate::sql::params;

    static EVENT: LazyLock<EventId> = LazyLock::new(|| Id::new(Timestamp::from_millis(7), 1));

    #[test]
    fn values_are_read_as_they_were_written() {
        let connection = Connection::open_in_memory().unwrap();
        let (text, blob) = ("é".to_owned(), vec![0_u8, 255]);
        let read = |row: &dyn SqlRow| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        };
        let values = params![text, blob, i64::MIN, true, None::<[u8; 16]>];
        let found: (String, Vec<u8>, i64, bool, Option<[u8; 16]>) =
            connection.read_one("SELECT ?1, ?2, ?3, ?4, ?5", values, read).unwrap();
        assert_eq!(found, (text, blob, i64::MIN, true, None));
    }

    #[test]
    fn rows_after_a_break_are_not_read() {
        let connection = Connection::open_in_memory().unwrap();
        let mut seen = Vec::new();
        let sql = "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3";
        let read = |row: &dyn SqlRow| {
            seen.push(row.get::<i64>(0)?);
            Ok(if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        connection.read_while(sql, params![], read).unwrap();
        assert_eq!(seen, [1, 2]);
    }

    #[test]
    fn missing_row_and_wrong_kind_are_different_errors() {
        let connection = Connection::open_in_memory().unwrap();
        let read = |row: &dyn SqlRow| row.get::<i64>(0);
        let none = connection.read_one("SELECT 1 WHERE 1 = 0", params![], read);
        assert!(matches!(none, Err(SqlError::RowMissing)), "{none:?}");
        let text = connection.read_one("SELECT 'a secret'", params![], read).unwrap_err();
        assert!(matches!(text, SqlError::InvalidValue { column: 0, .. }), "{text:?}");
        assert!(!text.to_string().contains("secret"), "{text}");
    }

    #[test]
    fn damaged_body_survives_both_conversions() {
        let error = SqlError::from(Error::from(SqlError::DamagedBody(*EVENT)));
        assert_eq!(error.damaged_event(), Some(*EVENT));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "for SQLite only")]
    fn statement_for_sqlite_only_is_noticed() {
        let connection = Connection::open_in_memory().unwrap();
        let _ = connection.run("INSERT OR REPLACE INTO t VALUES (?1)", params![1_i64]);
    }
}
