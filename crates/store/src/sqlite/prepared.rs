//! Statements of the writer, prepared once.
//!
//! rusqlite's own cache finds a statement by hashing its text, which for the few statements that run
//! for every event took some three percent of the writer's time in a profile. Here they are found by where their text
//! stands in the program.

use rusqlite::{Connection, Statement};

/// The statements that have been used on a connection.
pub(super) struct PreparedStatements<'c> {
    connection: &'c Connection,
    statements: Vec<(&'static str, Statement<'c>)>,
}

impl<'c> PreparedStatements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, statements: Vec::new() }
    }

    /// The statement for `sql`. There are some twenty, so looking at each is the fastest way.
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
