//! API tokens: hashes, roles and expiry.

use surehook_core::{
    access::{ApiToken, Session},
    store::{InitialTokenResult, RemoveTokenResult},
};
use surehook_types::{ids::TokenId, time::Timestamp};

use super::{
    login_links,
    row::{blob, id, optional_id, optional_json, optional_time, text, time, to_json},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const ADD: &str = "
    INSERT INTO tokens (hash, id, name, role, created_at, expires_at, is_session, begun_with,
                        namespaces, urls)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (hash) DO UPDATE SET role = excluded.role, expires_at = excluded.expires_at,
                                     namespaces = excluded.namespaces, urls = excluded.urls";

// Expired sessions are removed whenever a session is added.
const REMOVE_EXPIRED_SESSIONS: &str =
    "DELETE FROM tokens WHERE is_session = 1 AND expires_at <= ?1";

/// Implements `AdminStore::add_token`.
pub(crate) fn add(connection: &impl SqlConnection, token: &ApiToken) -> Result<bool> {
    let begun_with = token.session.and_then(|session| session.sign_in_token);
    let namespaces = token.namespaces.as_ref().map(to_json).transpose()?;
    let urls = token.urls.as_ref().map(to_json).transpose()?;
    let values = params![
        token.hash,
        blob(token.id),
        token.name,
        token.role.as_str(),
        token.created_at.as_millis(),
        token.expires_at.map(Timestamp::as_millis),
        token.session.is_some(),
        begun_with.map(blob),
        namespaces,
        urls,
    ];
    if token.session.is_some() {
        connection.run(REMOVE_EXPIRED_SESSIONS, params![token.created_at.as_millis()])?;
    }
    // A token removed while a session is being started with it ends that session too.
    if let Some(token) = begun_with
        && !connection.exists(EXISTS, params![blob(token)])?
    {
        return Ok(false);
    }
    connection.run(ADD, values)?;
    Ok(true)
}

const ANY: &str = "SELECT 1 FROM tokens LIMIT 1";
const VALID_ADMIN: &str = "
    SELECT 1 FROM tokens
     WHERE role = 'admin' AND is_session = 0 AND namespaces IS NULL
       AND (expires_at > ?1 OR expires_at IS NULL)
     LIMIT 1";

/// Implements `AdminStore::add_initial_token`.
pub(crate) fn add_initial(
    connection: &impl SqlConnection,
    token: &ApiToken,
    generated: bool,
) -> Result<InitialTokenResult> {
    if generated && connection.exists(VALID_ADMIN, params![token.created_at.as_millis()])? {
        return Ok(InitialTokenResult::NotNeeded);
    }
    let is_first = !connection.exists(ANY, params![])?;
    add(connection, token)?;
    Ok(if is_first { InitialTokenResult::First } else { InitialTokenResult::Stored })
}

const EXTEND_SESSION: &str = "UPDATE tokens SET expires_at = ?2 WHERE id = ?1 AND is_session = 1";

/// Implements `AdminStore::extend_session`.
pub(crate) fn extend_session(
    connection: &impl SqlConnection,
    session: TokenId,
    expires_at: Timestamp,
) -> Result<()> {
    connection.run(EXTEND_SESSION, params![blob(session), expires_at.as_millis()]).map(drop)
}

const LIST: &str = "
    SELECT id, hash, name, role, created_at, expires_at, is_session, begun_with,
           namespaces, urls
      FROM tokens ORDER BY created_at, id";

/// Implements `AdminStore::list_tokens`.
pub(crate) fn list(connection: &impl SqlConnection) -> Result<Vec<ApiToken>> {
    connection.read_all(LIST, params![], read_token)
}

fn read_token(row: &dyn SqlRow) -> Result<ApiToken> {
    Ok(ApiToken {
        id: id(row, 0)?,
        hash: row.get(1)?,
        name: row.get(2)?,
        role: text(row, 3, |role| role.parse().ok())?,
        created_at: time(row, 4)?,
        expires_at: optional_time(row, 5)?,
        namespaces: optional_json(row, 8)?,
        urls: optional_json(row, 9)?,
        session: row.get::<bool>(6)?.then_some(Session { sign_in_token: optional_id(row, 7)? }),
    })
}

const EXISTS: &str = "SELECT 1 FROM tokens WHERE id = ?1";
// One statement: if two admins remove each other's token at once, one stays.
const REMOVE: &str = "
    DELETE FROM tokens
     WHERE id = ?1
       AND (role <> 'admin' OR is_session = 1 OR namespaces IS NOT NULL
            OR EXISTS (SELECT 1 FROM tokens other
                        WHERE other.role = 'admin' AND other.id <> ?1 AND other.is_session = 0
                          AND other.namespaces IS NULL AND (other.expires_at IS NULL OR other.expires_at > ?2)))";

const END_SESSIONS: &str = "DELETE FROM tokens WHERE is_session = 1 AND begun_with = ?1";

/// Implements `AdminStore::remove_token`.
pub(crate) fn remove(
    connection: &impl SqlConnection,
    token: TokenId,
    now: Timestamp,
) -> Result<RemoveTokenResult> {
    let id = blob(token);
    if !connection.exists(EXISTS, params![id])? {
        return Ok(RemoveTokenResult::NotFound);
    }
    if connection.run(REMOVE, params![id, now.as_millis()])? == 0 {
        return Ok(RemoveTokenResult::LastAdmin);
    }
    connection.run(END_SESSIONS, params![id])?;
    login_links::remove_of_token(connection, token)?;
    Ok(RemoveTokenResult::Removed)
}
