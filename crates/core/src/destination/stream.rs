//! Redis stream destinations: the server, and the fields of an entry.

use std::fmt;

use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_guard::proxy::percent_decode;
use surehook_types::secret::{Env, Secret, SecretError, SecretRef, digest_parts};
use url::{Host, Url};

use super::auth::AuthSpec;
use crate::store::ClaimedDelivery;

/// Longest stream key, in bytes.
const KEY_BYTES_MAX: usize = 1024;

/// Default port of Redis.
const DEFAULT_PORT: u16 = 6379;

/// The stream settings of a destination; `url` names the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    #[schemars(length(min = 1))]
    pub key: String,
    /// Approximate number of entries to keep; Redis removes older ones. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_length: Option<u64>,
}

/// Why stream settings are invalid. No text contains any part of the URL, which may contain a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamSpecError {
    #[error("url: {0}")]
    Secret(#[from] SecretError),
    #[error("url: invalid URL; use redis://host:6379/0 or rediss://host:6379/0")]
    Syntax,
    #[error("url: only a database number, 0 to 1048575, may follow the host")]
    Path,
    /// A URL in the settings is visible to every user.
    #[error(
        "url: must not contain a password; set `auth = {{ basic = {{ user = \"default\", password = \"env:NAME\" }} }}`, or take the whole URL from the environment with `env:NAME`"
    )]
    Password,
    #[error("url: user and password must be UTF-8 and without control characters")]
    Credentials,
    #[error("auth: the url already has a password; remove one of the two")]
    DuplicateLogin,
    #[error("auth: Redis supports only `basic`, with a user (usually `default`) and a password")]
    Auth,
    #[error("auth: {0}")]
    AuthSecret(SecretError),
    #[error("stream.key must have 1 to {KEY_BYTES_MAX} bytes")]
    Key,
    #[error("stream.max_length must be at least 1")]
    Length,
}

/// User and password of a Redis server.
#[derive(Clone)]
pub struct RedisLogin {
    /// `None` for the default user.
    pub user: Option<String>,
    pub password: Secret,
}

impl fmt::Debug for RedisLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisLogin(•••)")
    }
}

/// A Redis server and its login.
#[derive(Clone, Debug)]
pub struct RedisServer {
    pub is_tls: bool,
    pub host: Host,
    pub port: u16,
    pub database: u32,
    pub login: Option<RedisLogin>,
}

/// Compares by digest, because a secret cannot be compared directly.
impl PartialEq for RedisServer {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for RedisServer {}

/// A checked stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStream {
    pub server: RedisServer,
    pub key: String,
    /// Approximate number of entries to keep.
    pub max_length: Option<u64>,
}

impl StreamSpec {
    /// Parses `url`, or the environment variable that it names, and resolves the password.
    pub fn build(
        &self,
        url: &str,
        auth: Option<&AuthSpec>,
        env: Env<'_>,
    ) -> Result<RedisStream, StreamSpecError> {
        if self.key.is_empty() || self.key.len() > KEY_BYTES_MAX {
            return Err(StreamSpecError::Key);
        }
        if self.max_length == Some(0) {
            return Err(StreamSpecError::Length);
        }
        let mut server = RedisServer::resolve(url, env)?;
        match (auth, &server.login) {
            (None, _) => {}
            (Some(_), Some(_)) => return Err(StreamSpecError::DuplicateLogin),
            (Some(AuthSpec::Basic { user, password }), None) => {
                let password = password.resolve(env).map_err(StreamSpecError::AuthSecret)?;
                server.login = Some(RedisLogin { user: Some(user.clone()), password });
            }
            (Some(AuthSpec::Bearer(_) | AuthSpec::Oauth2(_)), None) => {
                return Err(StreamSpecError::Auth);
            }
        }
        Ok(RedisStream { server, key: self.key.clone(), max_length: self.max_length })
    }
}

impl RedisServer {
    /// Parses a URL or `env:NAME`. A literal URL is visible to every user, so it must not contain a password.
    fn resolve(url_or_variable: &str, env: Env<'_>) -> Result<Self, StreamSpecError> {
        if !url_or_variable.starts_with("env:") {
            let server = Self::parse(url_or_variable)?;
            return if server.login.is_some() {
                Err(StreamSpecError::Password)
            } else {
                Ok(server)
            };
        }
        let url = url_or_variable.parse::<SecretRef>()?.resolve(env)?;
        Self::parse(std::str::from_utf8(url.expose()).map_err(|_| StreamSpecError::Syntax)?)
    }

    fn parse(text: &str) -> Result<Self, StreamSpecError> {
        let url = Url::parse(text.trim()).map_err(|_| StreamSpecError::Syntax)?;
        let is_tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            _ => return Err(StreamSpecError::Syntax),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(StreamSpecError::Path);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(StreamSpecError::Syntax)?;
        // `url` normalizes the host only for http; parse it again.
        let host = Host::parse(host).map_err(|_| StreamSpecError::Syntax)?;
        let database = match url.path() {
            "" | "/" => 0,
            path => path[1..].parse().map_err(|_| StreamSpecError::Path)?,
        };
        if database >= 1 << 20 {
            return Err(StreamSpecError::Path);
        }
        let decode = |text| percent_decode(text).ok_or(StreamSpecError::Credentials);
        let (user, password) =
            (decode(url.username())?, decode(url.password().unwrap_or_default())?);
        let login = match (user.is_empty(), password.is_empty()) {
            (true, true) => None,
            // Redis ignores a user without a password; it may be a password in the old format.
            (false, true) => return Err(StreamSpecError::Credentials),
            (no_user, false) => Some(RedisLogin {
                user: (!no_user).then_some(user),
                password: Secret::new(password),
            }),
        };
        let port = url.port().unwrap_or(DEFAULT_PORT);
        Ok(Self { is_tls, host, port, database, login })
    }

    /// A digest of all parts, equal for equal servers.
    pub fn digest(&self) -> [u8; 32] {
        let (user, password) = match &self.login {
            Some(login) => (login.user.as_deref(), login.password.expose()),
            None => (None, &b""[..]),
        };
        let flags =
            [u8::from(self.is_tls), u8::from(user.is_some()), u8::from(self.login.is_some())];
        let (port, database) = (self.port.to_le_bytes(), self.database.to_le_bytes());
        let host = self.host.to_string();
        let user = user.unwrap_or_default().as_bytes();
        digest_parts([&flags[..], host.as_bytes(), &port, &database, user, password])
    }
}

impl RedisStream {
    /// The fields of an entry, in this order. `id` is the event id, the same for all attempts and replays,
    /// so that a consumer can detect duplicates.
    pub fn fields<'c>(
        claimed: &'c ClaimedDelivery,
    ) -> Vec<(&'static str, std::borrow::Cow<'c, [u8]>)> {
        let text = |text: String| text.into_bytes().into();
        let head = &claimed.payload.head;
        let mut fields: Vec<(_, std::borrow::Cow<'c, [u8]>)> = vec![
            ("id", text(claimed.event.to_string())),
            ("delivery", text(claimed.id.to_string())),
            ("attempt", text((claimed.attempts + 1).to_string())),
            ("source", claimed.source.as_str().as_bytes().into()),
            ("received_at", text(claimed.received_at.to_string())),
        ];
        if let Some(key) = &claimed.key {
            fields.push(("key", key.as_str().as_bytes().into()));
        }
        if let Some((_, value)) = head.headers.lines().find(|(name, _)| *name == CONTENT_TYPE) {
            fields.push(("content_type", value.into()));
        }
        fields.push(("body", claimed.payload.body[..].into()));
        fields
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build(
        url: &str,
        stream: Value,
        auth: Option<Value>,
    ) -> Result<RedisStream, StreamSpecError> {
        let spec: StreamSpec = serde_json::from_value(stream).unwrap();
        let auth: Option<AuthSpec> = auth.map(|auth| serde_json::from_value(auth).unwrap());
        spec.build(url, auth.as_ref(), &|name| match name {
            "URL" => Some("rediss://u%40x:can%3aary@[::1]:7000/3".to_owned()),
            "PASSWORD_ONLY" => Some("redis://:canary@redis.test".to_owned()),
            "PASSWORD" => Some("canary".to_owned()),
            "USER_ONLY" => Some("redis://canary@redis.test".to_owned()),
            _ => None,
        })
    }

    fn describe(stream: &RedisStream) -> String {
        let RedisServer { is_tls, host, port, database, login } = &stream.server;
        let login = login.as_ref().map(|login| {
            let password = String::from_utf8_lossy(login.password.expose()).into_owned();
            format!("{}/{password}", login.user.as_deref().unwrap_or("-"))
        });
        format!("{is_tls} {host} {port} {database} {}", login.unwrap_or_default())
    }

    #[test]
    fn redis_url_is_parsed() {
        let basic = json!({ "basic": { "user": "default", "password": "env:PASSWORD" } });
        let cases = [
            ("redis://redis.test", None, "false redis.test 6379 0 "),
            ("redis://redis.test:1/", None, "false redis.test 1 0 "),
            ("rediss://10.0.0.1/15", None, "true 10.0.0.1 6379 15 "),
            ("redis://2130706433", None, "false 127.0.0.1 6379 0 "),
            ("env:URL", None, "true [::1] 7000 3 u@x/can:ary"),
            ("env:PASSWORD_ONLY", None, "false redis.test 6379 0 -/canary"),
            ("redis://redis.test", Some(basic), "false redis.test 6379 0 default/canary"),
        ];
        for (url, auth, expected) in cases {
            let stream = build(url, json!({ "key": "events" }), auth).unwrap();
            assert_eq!(describe(&stream), expected, "case: {url}");
            assert!(!format!("{stream:?}").contains("canary"), "{stream:?}");
        }
    }

    #[test]
    fn invalid_stream_settings_are_rejected_without_repeating_the_url() {
        let key = || json!({ "key": "events" });
        let basic = || Some(json!({ "basic": { "user": "u", "password": "canary" } }));
        let cases = [
            ("canary", key(), None, StreamSpecError::Syntax),
            ("http://canary", key(), None, StreamSpecError::Syntax),
            ("redis:///canary", key(), None, StreamSpecError::Syntax),
            ("redis://h/canary", key(), None, StreamSpecError::Path),
            ("redis://h/1/2", key(), None, StreamSpecError::Path),
            ("redis://h/1048576", key(), None, StreamSpecError::Path),
            ("redis://h/-1", key(), None, StreamSpecError::Path),
            ("redis://h?canary", key(), None, StreamSpecError::Path),
            ("redis://:canary@h", key(), None, StreamSpecError::Password),
            ("redis://u:canary@h", key(), None, StreamSpecError::Password),
            ("redis://canary@h", key(), None, StreamSpecError::Credentials),
            ("env:USER_ONLY", key(), None, StreamSpecError::Credentials),
            ("env:URL", key(), basic(), StreamSpecError::DuplicateLogin),
            ("redis://h", key(), Some(json!({ "bearer": "canary" })), StreamSpecError::Auth),
            ("redis://h", json!({ "key": "" }), None, StreamSpecError::Key),
            ("redis://h", json!({ "key": "x".repeat(1025) }), None, StreamSpecError::Key),
            ("redis://h", json!({ "key": "k", "max_length": 0 }), None, StreamSpecError::Length),
        ];
        for (url, stream, auth, expected) in cases {
            let error = build(url, stream, auth).unwrap_err();
            assert!(!error.to_string().contains("canary"), "{error}");
            assert_eq!(error, expected, "case: {url}");
        }
        let unset = build("env:NOT_THERE", key(), None);
        assert!(matches!(unset, Err(StreamSpecError::Secret(SecretError::Unset { .. }))));
    }

    #[test]
    fn redis_server_digest_changes_with_every_part() {
        let urls = [
            "redis://h",
            "rediss://h",
            "redis://i",
            "redis://h:1",
            "redis://h/1",
            "redis://:a@h",
            "redis://a:b@h",
            "redis://ab:c@h",
        ];
        let digests: std::collections::HashSet<_> =
            urls.iter().map(|url| RedisServer::parse(url).unwrap().digest()).collect();
        assert_eq!(digests.len(), urls.len());
    }
}
