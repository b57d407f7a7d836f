//! API tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    access::{Role, TOKEN_NAME_BYTES_MAX, TOKEN_NAMESPACES_MAX},
    one_shot::{TOKEN_URLS_MAX, UrlPattern},
};
use surehook_types::{
    ids::TokenId,
    time::{HumanDuration, Timestamp},
};

/// Request to create a token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTokenRequest {
    pub role: Role,
    #[serde(default)]
    #[schemars(length(max = TOKEN_NAME_BYTES_MAX))]
    pub name: Option<String>,
    /// Lifetime; unlimited by default.
    #[serde(default)]
    pub expires_in: Option<HumanDuration>,
    /// Namespaces of the idempotency service. Such a token may use the service in these, within its role,
    /// and nothing else. No limit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TOKEN_NAMESPACES_MAX))]
    pub namespaces: Option<Vec<String>>,
    /// URLs that the token may deliver to without a configured destination; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TOKEN_URLS_MAX))]
    pub urls: Option<Vec<UrlPattern>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Token")]
pub struct TokenResponse {
    pub id: TokenId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub role: Role,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub expired: bool,
    /// Namespaces of the idempotency service that the token is limited to; absent if it is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// URLs that the token may deliver to without a configured destination; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urls: Option<Vec<UrlPattern>>,
    /// Whether it is a dashboard session.
    pub session: bool,
    /// The token that the session was started with, or that created its login link; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in_token: Option<TokenId>,
}

/// A new token with its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    #[serde(flatten)]
    pub details: TokenResponse,
    /// The secret. Shown only once.
    pub token: String,
}

/// A one-time login link.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LoginLink {
    /// Path, to be appended to the gateway's URL.
    pub path: String,
    pub expires_at: Timestamp,
}
