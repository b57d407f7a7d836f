//! How a destination is told who calls: user and password, a token, or `OAuth2` client credentials.

use data_encoding::BASE64;
use http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::oauth2::{Oauth2Config, Oauth2Spec};
use crate::{
    address::DestinationUrlError,
    object,
    secret::{SecretError, SecretRef},
};

/// How a destination is told who calls, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AuthSpec {
    /// RFC 7617.
    #[serde(deserialize_with = "basic_fields")]
    Basic {
        /// Not secret.
        #[schemars(regex(pattern = r"^[^:\x00-\x1f\x7f]+$"))]
        user: String,
        /// Secret.
        password: SecretRef,
    },
    /// A token that does not change.
    Bearer(SecretRef),
    /// A token that is fetched, and fetched again before it runs out.
    Oauth2(#[serde(deserialize_with = "crate::object::required")] Oauth2Spec),
}

fn basic_fields<'de, D: Deserializer<'de>>(from: D) -> Result<(String, SecretRef), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        user: String,
        password: SecretRef,
    }
    object::required(from).map(|Fields { user, password }| (user, password))
}

/// Authentication that cannot be used as it is written.
#[derive(Debug, thiserror::Error)]
pub enum AuthSpecError {
    /// A user that cannot be told from the password, or that no header can hold.
    #[error("basic: the user may not be empty and may not hold `:` or control characters")]
    User,
    /// A secret that no header can hold.
    #[error("{0}: the secret holds characters that a header cannot")]
    Characters(&'static str),
    /// A secret cannot be looked up.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// The token's address is not one.
    #[error("oauth2.token_url: {0}")]
    UrlSyntax(#[from] url::ParseError),
    /// The token's address is not acceptable.
    #[error("oauth2.token_url: {0}")]
    Url(#[from] DestinationUrlError),
    /// A field that must say something says nothing.
    #[error("oauth2.{0} may not be empty")]
    Empty(&'static str),
    /// A scope is a word.
    #[error("oauth2.scopes: a scope is a word of visible ASCII without quotes and backslashes")]
    Scope,
    /// Two ways to set one header.
    #[error("`headers` sets `authorization` already; keep one of the two")]
    HeaderToo,
}

/// How a destination is told who calls.
#[derive(Debug)]
pub enum AuthConfig {
    /// By the same value of `authorization` at every attempt.
    Fixed(HeaderValue),
    /// By a token that has to be fetched.
    Oauth2(Oauth2Config),
}

impl AuthSpec {
    /// Looks the secrets up through `env`.
    pub fn build(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<AuthConfig, AuthSpecError> {
        match self {
            Self::Basic { user, password } => {
                if user.is_empty() || user.chars().any(|c| c == ':' || c.is_control()) {
                    return Err(AuthSpecError::User);
                }
                let password = password.resolve(env)?;
                Ok(AuthConfig::Fixed(basic(user.as_bytes(), password.expose())))
            }
            Self::Bearer(token) => {
                let token = token.resolve(env)?;
                let value = bearer(token.expose()).ok_or(AuthSpecError::Characters("bearer"))?;
                Ok(AuthConfig::Fixed(value))
            }
            Self::Oauth2(spec) => Ok(AuthConfig::Oauth2(spec.build(env)?)),
        }
    }
}

/// The value of `authorization`, or of `proxy-authorization`, for a user and a password.
pub fn basic(user: &[u8], password: &[u8]) -> HeaderValue {
    let pair = [user, b":", password].concat();
    let text = format!("Basic {}", BASE64.encode(&pair));
    sensitive(HeaderValue::try_from(text).expect("base64 is plain ASCII"))
}

/// The value of `authorization` for a token; `None` if a header cannot hold it.
pub(super) fn bearer(token: &[u8]) -> Option<HeaderValue> {
    // RFC 6750 allows less; what a server handed out is given back, as long as it is one word.
    let is_word = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok();
    value.filter(|_| is_word).map(sensitive)
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(json: &str) -> Result<AuthConfig, AuthSpecError> {
        let env = |name: &str| (name == "TOKEN").then(|| "t0ken".to_owned());
        serde_json::from_str::<AuthSpec>(json).unwrap().build(&env)
    }

    #[test]
    fn a_fixed_header_says_who_calls() {
        let cases = [
            // The pair of RFC 7617.
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
    fn errors_hold_no_secret() {
        for json in
            [r#"{"bearer":"canary canary"}"#, r#"{"basic":{"user":":","password":"canary"}}"#]
        {
            let error = build(json).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }
}
