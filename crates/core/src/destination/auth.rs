//! Authentication at a destination: basic, bearer token, or `OAuth2` client credentials.

use http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use surehook_guard::address::DestinationUrlError;
use surehook_types::{
    authorization::{basic_header, bearer_header},
    object,
    secret::{Env, SecretError, SecretRef},
};

use super::oauth2::{Oauth2Config, Oauth2Spec};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AuthSpec {
    /// User and password (RFC 7617).
    #[serde(deserialize_with = "deserialize_basic")]
    #[schemars(with = "BasicAuthSpec")]
    Basic { user: String, password: SecretRef },
    /// Fixed token.
    Bearer(SecretRef),
    /// Token that is fetched, and refreshed before it expires.
    Oauth2(#[serde(deserialize_with = "surehook_types::object::required")] Oauth2Spec),
}

// The fields of `AuthSpec::Basic`, with a schema name of their own for client generators.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BasicAuthSpec {
    /// User name, not secret.
    #[schemars(regex(pattern = r"^[^:\x00-\x1f\x7f]+$"))]
    user: String,
    password: SecretRef,
}

fn deserialize_basic<'de, D: Deserializer<'de>>(from: D) -> Result<(String, SecretRef), D::Error> {
    object::required(from).map(|BasicAuthSpec { user, password }| (user, password))
}

/// Why authentication settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum AuthSpecError {
    #[error("basic: the user must not be empty or contain `:` or control characters")]
    User,
    #[error("{0}: the secret contains characters that are not allowed in a header")]
    Characters(&'static str),
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("oauth2.token_url: {0}")]
    UrlSyntax(#[from] url::ParseError),
    #[error("oauth2.token_url: {0}")]
    Url(#[from] DestinationUrlError),
    #[error("oauth2.{0} must not be empty")]
    Empty(&'static str),
    #[error(
        "oauth2.scopes: a scope must be printable ASCII without spaces, quotes and backslashes"
    )]
    Scope,
    #[error("`headers` already sets `authorization`; remove one of the two")]
    HeaderConflict,
}

/// Checked authentication of a destination.
#[derive(Debug)]
pub enum AuthConfig {
    /// The same `authorization` header at every attempt.
    Fixed(HeaderValue),
    Oauth2(Oauth2Config),
}

impl AuthSpec {
    /// Resolves the secrets through `env`.
    pub fn build(&self, env: Env<'_>) -> Result<AuthConfig, AuthSpecError> {
        match self {
            Self::Basic { user, password } => {
                if user.is_empty() || user.chars().any(|c| c == ':' || c.is_control()) {
                    return Err(AuthSpecError::User);
                }
                let password = password.resolve(env)?;
                Ok(AuthConfig::Fixed(basic_header(user.as_bytes(), password.expose())))
            }
            Self::Bearer(token) => {
                let token = token.resolve(env)?;
                let value =
                    bearer_header(token.expose()).ok_or(AuthSpecError::Characters("bearer"))?;
                Ok(AuthConfig::Fixed(value))
            }
            Self::Oauth2(spec) => Ok(AuthConfig::Oauth2(spec.build(env)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(json: &str) -> Result<AuthConfig, AuthSpecError> {
        let env = |name: &str| (name == "TOKEN").then(|| "t0ken".to_owned());
        serde_json::from_str::<AuthSpec>(json).unwrap().build(&env)
    }

    #[test]
    fn basic_and_bearer_build_fixed_header() {
        let cases = [
            // Example from RFC 7617.
            (
                r#"{"basic":{"user":"Aladdin","password":"open sesame"}}"#,
                Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ),
            (r#"{"bearer":"env:TOKEN"}"#, Some("Bearer t0ken")),
            (r#"{"bearer":"env:MISSING"}"#, None),
            (r#"{"bearer":"two words"}"#, None),
            (r#"{"bearer":"evil\r\nx-a: b"}"#, None),
            (r#"{"basic":{"user":"a:b","password":"x"}}"#, None),
            (r#"{"basic":{"user":"","password":"x"}}"#, None),
        ];
        for (json, expected) in cases {
            let built = build(json).ok().map(|auth| match auth {
                AuthConfig::Fixed(value) => {
                    assert!(value.is_sensitive(), "case: {json}");
                    value.to_str().unwrap().to_owned()
                }
                AuthConfig::Oauth2(_) => panic!("case: {json}"),
            });
            assert_eq!(built.as_deref(), expected, "case: {json}");
        }
    }

    #[test]
    fn auth_errors_contain_no_secret() {
        for json in
            [r#"{"bearer":"canary canary"}"#, r#"{"basic":{"user":":","password":"canary"}}"#]
        {
            let error = build(json).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }
}
