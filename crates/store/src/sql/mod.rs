//! The layer between the steps and a database: SQL text, parameters, rows and errors.
//!
//! The statements of [`crate::steps`] are written once for `SQLite` and `PostgreSQL`, with parameters
//! as `?1`. A connection may rewrite only what has the same meaning everywhere: the form of the
//! parameters, and index hints (`INDEXED BY x`, `NOT INDEXED`), which it may drop, or replace by a view
//! that lists the rows of that index. What the databases write in different words is in [`Dialect`]. The
//! rules for such statements are in docs/decisions/0073-steps-for-both-databases.md and 0078.

mod error;
mod value;

use std::ops::ControlFlow;

pub(crate) use self::{
    error::{Result, SqlError},
    value::{FromSqlValue, SqlParameter, SqlValue, params},
};

/// A connection, with its cache of prepared statements.
pub(crate) trait SqlConnection {
    type Dialect: Dialect;

    /// Runs a statement; returns how many rows it changed.
    fn run(&self, sql: &str, values: &[&dyn SqlParameter]) -> Result<usize>;

    /// Passes the rows of a query to `read`, one after the other, until it breaks. `read` may run
    /// other statements on the connection.
    fn read_while(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnMut(&dyn SqlRow) -> Result<ControlFlow<()>>,
    ) -> Result<()>;

    /// Runs reads that must see the same state of all tables.
    fn read_snapshot<T>(&self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T>;

    /// Reads a row, if it exists.
    fn find_one<T>(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnOnce(&dyn SqlRow) -> Result<T>,
    ) -> Result<Option<T>> {
        let (mut read, mut found) = (Some(read), None);
        self.read_while(sql, values, |row| {
            found = read.take().map(|read| read(row)).transpose()?;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Reads a row that must exist.
    fn read_one<T>(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        read: impl FnOnce(&dyn SqlRow) -> Result<T>,
    ) -> Result<T> {
        self.find_one(sql, values, read)?.ok_or(SqlError::RowMissing)
    }

    fn read_all<T, C: Default + Extend<T>>(
        &self,
        sql: &str,
        values: &[&dyn SqlParameter],
        mut read: impl FnMut(&dyn SqlRow) -> Result<T>,
    ) -> Result<C> {
        let mut all = C::default();
        self.read_while(sql, values, |row| {
            all.extend([read(row)?]);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    /// Whether a query returns a row.
    fn exists(&self, sql: &str, values: &[&dyn SqlParameter]) -> Result<bool> {
        Ok(self.find_one(sql, values, |_| Ok(()))?.is_some())
    }
}

/// A row of a result. It is passed by reference while it is current, and never boxed.
pub(crate) trait SqlRow {
    fn value(&self, column: usize) -> Result<SqlValue<'_>>;

    fn column_count(&self) -> usize;
}

impl dyn SqlRow + '_ {
    pub(crate) fn get<T: FromSqlValue>(&self, column: usize) -> Result<T> {
        let value = self.value(column)?;
        let kind = value.kind();
        T::from_value(value).ok_or_else(|| {
            let expected = std::any::type_name::<T>();
            SqlError::InvalidValue { column, what: format!("{kind} is not a valid {expected}") }
        })
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8]> {
        match self.value(column)? {
            SqlValue::Blob(bytes) => Ok(bytes),
            other @ (SqlValue::Null | SqlValue::Integer(_) | SqlValue::Text(_)) => {
                let what = format!("{} is no blob", other.kind());
                Err(SqlError::InvalidValue { column, what })
            }
        }
    }

    pub(crate) fn optional_text(&self, column: usize) -> Result<Option<&str>> {
        match self.value(column)? {
            SqlValue::Null => Ok(None),
            SqlValue::Text(text) => Ok(Some(text)),
            other @ (SqlValue::Integer(_) | SqlValue::Blob(_)) => {
                let what = format!("{} is no text", other.kind());
                Err(SqlError::InvalidValue { column, what })
            }
        }
    }
}

/// SQL that differs between the databases.
pub(crate) trait Dialect {
    /// A table with a row for each id of the list that is parameter `?1`; see `row::id_list`.
    const ID_LIST: &'static str;
    /// The id in a row of [`Self::ID_LIST`].
    const LISTED_ID: &'static str;
    /// Gives the next place in an ordering queue. Numbers are never reused, not even after a restart.
    const NEXT_ORDER_NUMBER: &'static str;

    /// Whether a text contains another.
    fn text_contains(text: &str, part: &str) -> String;

    /// Whether bytes contain a text.
    fn bytes_contain(bytes: &str, text: &str) -> String;
}
