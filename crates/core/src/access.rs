//! Who may do what: API tokens and their roles.
//!
//! A token is a secret that is shown once; only its SHA-256 is kept. Its role says how far it
//! reaches, and each role may do all that the one before it may.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::TokenId, time::Timestamp};

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The longest name of a token, in bytes.
pub const TOKEN_NAME_BYTES_MAX: usize = 100;

/// How far a token reaches. Ordered: a later one may do all that an earlier one may.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks, and changes nothing.
    Viewer,
    /// Looks after deliveries as well: replays, pauses, cancels. Configures nothing.
    Operator,
    /// May do everything.
    Admin,
}

impl Role {
    /// All of them, the weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no role.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a role is one of viewer, operator, admin, not `{0}`")]
pub struct ParseRoleError(String);

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// Its id, which opens nothing.
    pub id: TokenId,
    /// The SHA-256 of what is sent.
    pub hash: TokenHash,
    /// What it is for.
    pub name: Option<String>,
    /// How far it reaches.
    pub role: Role,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it opens nothing.
    pub expires_at: Option<Timestamp>,
    /// Set if it is no token of the API but a browser that has signed in.
    pub session: Option<Session>,
}

/// A browser that has signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The token that it was begun with, and with which it ends; `None` for a link that opens once.
    pub begun_with: Option<TokenId>,
}

impl ApiToken {
    /// Whether its time has passed.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_reaches_as_far_as_those_before_it() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("Admin".parse::<Role>().is_err());
    }

    #[test]
    fn a_token_ends_at_its_time() {
        let at = Timestamp::from_millis;
        let token = |expires_at| ApiToken {
            id: TokenId::new(at(1), 1),
            hash: [0; 32],
            name: None,
            role: Role::Viewer,
            created_at: at(1),
            expires_at,
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
