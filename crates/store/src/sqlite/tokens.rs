//! API tokens: hashes, roles and ends.

use rusqlite::{Connection, OptionalExtension, Row, params};
use surehook_core::{access::Token, ids::TokenId, store::TokenRemoved, time::Timestamp};

use super::{
    read::collect,
    row::{blob, corrupt, id, optional_time, time},
    writer::Tx,
};

const ADD: &str = "
    INSERT INTO tokens (hash, id, name, role, created_at, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (hash) DO UPDATE SET role = excluded.role, expires_at = excluded.expires_at";

/// See `AdminStore::add_token`.
pub(super) fn add(tx: &mut Tx<'_, '_>, token: &Token) -> rusqlite::Result<()> {
    let values = params![
        token.hash,
        blob(token.id),
        token.name,
        token.role.as_str(),
        token.created_at.as_millis(),
        token.expires_at.map(Timestamp::as_millis),
    ];
    tx.connection.execute(ADD, values)?;
    Ok(())
}

const ALL: &str = "
    SELECT id, hash, name, role, created_at, expires_at FROM tokens ORDER BY created_at, id";

/// See `AdminStore::tokens`.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Token>> {
    collect(connection, ALL, [], token)
}

fn token(row: &Row<'_>) -> rusqlite::Result<Token> {
    let role: String = row.get(3)?;
    Ok(Token {
        id: id(row, 0)?,
        hash: row.get(1)?,
        name: row.get(2)?,
        role: role.parse().map_err(|_| corrupt(3, &role))?,
        created_at: time(row, 4)?,
        expires_at: optional_time(row, 5)?,
    })
}

const ROLE: &str = "SELECT role FROM tokens WHERE id = ?1";
// One statement: of two admins that remove each other's token at once, one stays.
const REMOVE: &str = "
    DELETE FROM tokens
     WHERE id = ?1
       AND (role <> 'admin'
            OR EXISTS (SELECT 1 FROM tokens other
                        WHERE other.role = 'admin' AND other.id <> ?1
                          AND (other.expires_at IS NULL OR other.expires_at > ?2)))";

/// See `AdminStore::remove_token`.
pub(super) fn remove(
    tx: &mut Tx<'_, '_>,
    token: TokenId,
    now: Timestamp,
) -> rusqlite::Result<TokenRemoved> {
    let id = blob(token);
    let there = tx.connection.query_row(ROLE, params![id], |_| Ok(())).optional()?;
    if there.is_none() {
        return Ok(TokenRemoved::NotFound);
    }
    match tx.connection.execute(REMOVE, params![id, now.as_millis()])? {
        0 => Ok(TokenRemoved::LastAdmin),
        _ => Ok(TokenRemoved::Removed),
    }
}
