//! Statements, prepared once: those of the writer that run for every event, and all others.

use rusqlite::{
    CachedStatement, Connection, OptionalExtension as _, Params, Result, Row, Statement,
};

/// Statements of the writer that run for every event.
///
/// rusqlite's own cache finds a statement by the hash of its text, which took about three percent
/// of the writer's time. Here they are found by the address of their text.
pub(super) struct PreparedStatements<'c> {
    connection: &'c Connection,
    statements: Vec<(&'static str, Statement<'c>)>,
}

impl<'c> PreparedStatements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, statements: Vec::new() }
    }

    /// The statement for `sql`. There are about twenty, so a linear search is the fastest.
    pub(super) fn get(&mut self, sql: &'static str) -> Result<&mut Statement<'c>> {
        let found = self.statements.iter().position(|(text, _)| std::ptr::eq(*text, sql));
        let index = match found {
            Some(index) => index,
            None => {
                self.statements.push((sql, self.connection.prepare(sql)?));
                self.statements.len() - 1
            }
        };
        Ok(&mut self.statements[index].1)
    }
}

/// Statements of a connection's own cache, each run in one call.
pub(super) trait CachedStatements {
    fn cached(&self, sql: &str) -> Result<CachedStatement<'_>>;

    /// Returns how many rows were changed.
    fn run(&self, sql: &str, values: impl Params) -> Result<usize> {
        self.cached(sql)?.execute(values)
    }

    /// Reads a row that must exist.
    fn read_one<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.cached(sql)?.query_row(values, read)
    }

    /// Reads a row, if it exists.
    fn find_one<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.read_one(sql, values, read).optional()
    }

    fn read_all<T, C: FromIterator<T>>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<C> {
        self.cached(sql)?.query_map(values, read)?.collect()
    }
}

impl CachedStatements for Connection {
    fn cached(&self, sql: &str) -> Result<CachedStatement<'_>> {
        self.prepare_cached(sql)
    }
}
