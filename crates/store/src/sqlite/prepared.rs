//! Statements of the writer, prepared once.
//!
//! rusqlite's own cache finds a statement by the hash of its text, which took about three percent
//! of the writer's time for the few statements that run for every event. Here they are found by the
//! address of their text.

use rusqlite::{Connection, Statement};

pub(super) struct PreparedStatements<'c> {
    connection: &'c Connection,
    statements: Vec<(&'static str, Statement<'c>)>,
}

impl<'c> PreparedStatements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, statements: Vec::new() }
    }

    /// The statement for `sql`. There are about twenty, so a linear search is the fastest.
    pub(super) fn get(&mut self, sql: &'static str) -> rusqlite::Result<&mut Statement<'c>> {
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
