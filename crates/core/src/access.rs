//! API tokens, browser sessions and roles.
//!
//! A token is shown once, when it is created; only its SHA-256 is stored.

use std::{fmt, str::FromStr, sync::Arc};

use surehook_types::{ids::TokenId, string_enum, time::Timestamp};

use crate::one_shot::UrlPattern;

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The longest name of a token, in bytes.
pub const TOKEN_NAME_BYTES_MAX: usize = 100;

/// Maximum number of namespaces of a token.
pub const TOKEN_NAMESPACES_MAX: usize = 50;

/// The name of the admin token that is set by the environment variable of the same name. At a start with
/// another value it is replaced, so no other token has this name.
pub const ENVIRONMENT_TOKEN: &str = "SUREHOOK_ADMIN_TOKEN";

string_enum! {
    /// What a token may do. Ordered: each role includes the permissions of the ones before it.
    pub enum Role {
        /// Reads everything, changes nothing.
        Viewer = "viewer",
        /// May also act on deliveries and send messages: replay, cancel, pause, resume. Configures nothing.
        Operator = "operator",
        /// May do everything.
        Admin = "admin",
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown role `{0}`; use viewer, operator or admin")]
pub struct ParseRoleError(String);

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        Self::parse(text).ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

/// The IP address that a request came from. Every request from a socket carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub Arc<str>);

/// A token as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// Public identifier; it grants no access.
    pub id: TokenId,
    pub hash: TokenHash,
    /// What the token is for, in the words of its owner.
    pub name: Option<String>,
    pub role: Role,
    pub created_at: Timestamp,
    /// Requests are refused from this time on.
    pub expires_at: Option<Timestamp>,
    /// The token may only use the idempotency service, and only these of its namespaces. `None`: no limit.
    pub namespaces: Option<Arc<[String]>>,
    /// The URLs that the token may deliver to without a configured destination. `None`: no URL.
    pub urls: Option<Arc<[UrlPattern]>>,
    /// Set if this is the session of a signed-in browser instead of an API token.
    pub session: Option<Session>,
}

/// The session of a signed-in browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The token used to sign in; the session ends when it is removed. `None` for a one-time link.
    pub sign_in_token: Option<TokenId>,
}

/// A one-time login link that was not used yet. Only the hash of its code is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLoginLink {
    pub hash: TokenHash,
    pub expires_at: Timestamp,
    /// The token that created it. Sessions started with the link end with that token.
    pub created_by: Option<LinkCreator>,
}

/// The token that created a login link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCreator {
    pub id: TokenId,
    pub expires_at: Option<Timestamp>,
}

impl LinkCreator {
    /// For a session, this is the token it was started with, if there is one.
    pub fn from_token(token: &ApiToken) -> Self {
        let id = token.session.and_then(|session| session.sign_in_token).unwrap_or(token.id);
        Self { id, expires_at: token.expires_at }
    }
}

impl ApiToken {
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_parse_from_their_names() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("Admin".parse::<Role>().is_err());
    }

    #[test]
    fn token_expires_at_its_expiry_time() {
        let at = Timestamp::from_millis;
        let token = |expires_at| ApiToken {
            id: TokenId::new(at(1), 1),
            hash: [0; 32],
            name: None,
            role: Role::Viewer,
            created_at: at(1),
            expires_at,
            namespaces: None,
            urls: None,
            session: None,
        };
        for (name, expires_at, expected) in [
            ("never", None, false),
            ("later", Some(at(11)), false),
            ("now", Some(at(10)), true),
            ("before", Some(at(9)), true),
        ] {
            assert_eq!(token(expires_at).has_expired(at(10)), expected, "case: {name}");
        }
    }
}
