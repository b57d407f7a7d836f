//! One-time login links: the hash of a code that signs in once.

use surehook_core::{
    access::{LinkCreator, StoredLoginLink, TokenHash},
    store::LOGIN_LINKS_MAX,
};
use surehook_types::{ids::TokenId, time::Timestamp};

use super::row::{blob, optional_id, optional_time, time};
use crate::sql::{Result, SqlConnection, params};

const ADD: &str = "
    INSERT INTO login_links (hash, expires_at, token, token_expires_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (hash) DO NOTHING";
const REMOVE_EXPIRED: &str = "DELETE FROM login_links WHERE expires_at <= ?1";
const REMOVE_SURPLUS: &str = "
    DELETE FROM login_links
     WHERE hash NOT IN (SELECT hash FROM login_links ORDER BY expires_at DESC, hash LIMIT ?1)";

/// Implements `AdminStore::add_login_link`.
pub(crate) fn add(
    connection: &impl SqlConnection,
    link: &StoredLoginLink,
    now: Timestamp,
) -> Result<()> {
    let creator = link.created_by;
    let token = creator.map(|creator| blob(creator.id));
    let token_expires_at = creator.and_then(|creator| creator.expires_at);
    let values = params![
        link.hash,
        link.expires_at.as_millis(),
        token,
        token_expires_at.map(Timestamp::as_millis),
    ];
    connection.run(REMOVE_EXPIRED, params![now.as_millis()])?;
    connection.run(ADD, values)?;
    let kept = i64::try_from(LOGIN_LINKS_MAX).unwrap_or(i64::MAX);
    connection.run(REMOVE_SURPLUS, params![kept]).map(drop)
}

const FIND: &str = "SELECT expires_at, token, token_expires_at FROM login_links WHERE hash = ?1";
const REMOVE: &str = "DELETE FROM login_links WHERE hash = ?1";

/// Implements `AdminStore::take_login_link`. Of two nodes, the one whose statement removes the row has it.
pub(crate) fn take(
    connection: &impl SqlConnection,
    hash: &TokenHash,
    now: Timestamp,
) -> Result<Option<StoredLoginLink>> {
    let link = connection.find_one(FIND, params![*hash], |row| {
        let expires_at = time(row, 0)?;
        let token_expires_at = optional_time(row, 2)?;
        let creator = |id| LinkCreator { id, expires_at: token_expires_at };
        let created_by = optional_id(row, 1)?.map(creator);
        Ok(StoredLoginLink { hash: *hash, expires_at, created_by })
    })?;
    let is_taken = connection.run(REMOVE, params![*hash])? > 0;
    Ok(link.filter(|link| is_taken && link.expires_at > now))
}

const REMOVE_OF_TOKEN: &str = "DELETE FROM login_links WHERE token = ?1";

/// Removes the links that a token has created.
pub(crate) fn remove_of_token(connection: &impl SqlConnection, token: TokenId) -> Result<()> {
    connection.run(REMOVE_OF_TOKEN, params![blob(token)]).map(drop)
}
