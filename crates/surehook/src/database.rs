//! The PostgreSQL database of the settings: its URL, whose password is never shown, and its options.

use std::{
    convert::Infallible,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use anyhow::{Context as _, anyhow, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use surehook_engine::tls::client_config_of_file;
use surehook_types::{redact::MASK, time::HumanDuration};

use crate::settings::environment;

/// Parameters of a URL that are shown; the values of all others are masked.
const SHOWN_PARAMETERS: [&str; 9] = [
    "application_name",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
];

/// `postgres://user:password@host/database`, or `env:NAME`. Any text can be one, since the errors of parsers
/// quote what they refuse; [`Self::resolve`] checks it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DatabaseUrl(String);

impl FromStr for DatabaseUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Without passwords.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.starts_with("env:") {
            return f.write_str(&self.0);
        }
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str(MASK) };
        // The last one: a password may contain others.
        let rest = match rest.rsplit_once('@') {
            Some((user, rest)) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                let mask = if password.is_empty() { String::new() } else { format!(":{MASK}") };
                write!(f, "{scheme}://{user}{mask}@")?;
                rest
            }
            None => {
                write!(f, "{scheme}://")?;
                rest
            }
        };
        let (server, query) = rest.split_once('?').unwrap_or((rest, ""));
        f.write_str(server)?;
        for (number, parameter) in parameters(query).enumerate() {
            let separator = if number == 0 { '?' } else { '&' };
            let (name, value) = parameter;
            let value = if SHOWN_PARAMETERS.contains(&name) { value } else { MASK };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    parameters.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
}

/// Without passwords: nothing stores a URL.
impl Serialize for DatabaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DatabaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

/// A URL without the parameters that say how the server proves itself.
#[derive(Debug, PartialEq, Eq)]
struct ParsedUrl {
    /// For the driver, with one `sslmode` that it knows.
    url: String,
    uses_tls: bool,
    ca_file: Option<PathBuf>,
}

impl DatabaseUrl {
    fn resolve(&self) -> anyhow::Result<String> {
        let Some(name) = self.0.strip_prefix("env:") else { return Ok(self.0.clone()) };
        let unset = || {
            anyhow!(
                "the environment variable {name}, which has the URL of the database, is not set"
            )
        };
        environment(name).with_context(unset)
    }

    /// Checks everything that needs no variable.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match self.0.starts_with("env:") {
            true => Ok(()),
            false => parse_url(&self.0).map(drop),
        }
    }
}

fn parse_url(text: &str) -> anyhow::Result<ParsedUrl> {
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    ensure!(
        is_url,
        "database must be a URL such as postgres://user:password@host/database, or env:NAME"
    );
    let (server, query) = text.split_once('?').unwrap_or((text, ""));
    let (mut kept, mut mode, mut ca_file) = (Vec::new(), None, None);
    for (name, value) in parameters(query) {
        match name {
            "sslmode" => mode = Some(value),
            "sslrootcert" if value == "system" => {}
            "sslrootcert" => ca_file = decode(value),
            "sslcert" | "sslkey" => {
                return Err(anyhow!("database: {name} is not supported; use a password"));
            }
            _ => kept.push(format!("{name}={value}")),
        }
    }
    let is_local = is_on_this_machine(server, &kept);
    // A certificate is always verified, so the stricter modes of libpq are `require`.
    let mode = match mode {
        None if is_local && ca_file.is_none() => "disable",
        None | Some("require" | "verify-ca" | "verify-full") => "require",
        Some("disable") => "disable",
        Some("prefer" | "allow") => "prefer",
        Some(_) => {
            return Err(anyhow!(
                "database: sslmode must be disable, prefer, require, verify-ca or verify-full"
            ));
        }
    };
    kept.push(format!("sslmode={mode}"));
    let url = format!("{server}?{}", kept.join("&"));
    Ok(ParsedUrl { url, uses_tls: mode != "disable", ca_file })
}

/// A percent-encoded path.
fn decode(value: &str) -> Option<PathBuf> {
    let pair = format!("path={value}");
    let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
    pairs.next().map(|(_, path)| PathBuf::from(path.into_owned()))
}

/// Whether all hosts of a URL are this machine.
fn is_on_this_machine(server: &str, parameters: &[String]) -> bool {
    let authority = server.split_once("://").map_or(server, |(_, rest)| rest);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    let of_parameters = parameters.iter().filter_map(|parameter| {
        parameter.strip_prefix("host=").or_else(|| parameter.strip_prefix("hostaddr="))
    });
    let mut hosts = authority.split(',').chain(of_parameters.flat_map(|hosts| hosts.split(',')));
    hosts.all(|host| {
        // A path is a Unix socket; `%2F` is a slash.
        host.is_empty()
            || host.starts_with('/')
            || host.to_lowercase().starts_with("%2f")
            || host.starts_with("[::1]")
            || host.rsplit_once(':').map_or(host, |(host, _)| host) == "localhost"
            || host.starts_with("127.")
    })
}

/// How the database is used; docs/reference/settings.md is the reference.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PostgresSettings {
    /// Gateways with different projects can share a database: the tables are in the schema
    /// `surehook_<project>`.
    pub(crate) project: String,
    /// File with the only certificate authorities that may sign the certificate of the server.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether connections keep prepared statements; not possible behind some poolers.
    pub(crate) prepared_statements: bool,
    /// Refuses a server that confirms commits before a standby has them.
    pub(crate) require_synchronous_standby: bool,
    /// How long the server may work on a statement.
    pub(crate) statement_timeout: HumanDuration,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        Self {
            project: "default".to_owned(),
            ca_file: None,
            prepared_statements: true,
            require_synchronous_standby: false,
            statement_timeout: HumanDuration::from_secs(5),
        }
    }
}

/// What the driver needs to connect.
pub(crate) struct DatabaseAccess {
    pub(crate) url: String,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

impl PostgresSettings {
    /// Resolves the URL and loads the certificates.
    pub(crate) fn access(&self, database: &DatabaseUrl) -> anyhow::Result<DatabaseAccess> {
        let ParsedUrl { url, uses_tls, ca_file } = parse_url(&database.resolve()?)?;
        let ca_file = self.ca_file.clone().or(ca_file);
        let tls = match uses_tls {
            true => Some(load_tls(ca_file.as_deref())?),
            false => None,
        };
        Ok(DatabaseAccess { url, tls })
    }
}

fn load_tls(ca_file: Option<&Path>) -> anyhow::Result<Arc<rustls::ClientConfig>> {
    let mut config = client_config_of_file(ca_file)
        .context("the certificate authorities of the database cannot be used")?;
    // A server that knows this extension refuses other protocols than its own.
    config.alpn_protocols.clear();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_never_shown() {
        for (url, shown) in [
            ("postgres://u:secret@h:5432/db", "postgres://u:•••@h:5432/db"),
            ("postgres://u:se@cr/et@h/db?sslmode=require", "postgres://u:•••@h/db?sslmode=require"),
            ("postgresql://u@h/db", "postgresql://u@h/db"),
            ("postgres://h/db?user=u&password=secret", "postgres://h/db?user=•••&password=•••"),
            ("host=h password=secret", "•••"),
            ("env:DATABASE_URL", "env:DATABASE_URL"),
        ] {
            let url = DatabaseUrl(url.to_owned());
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), shown);
            assert_eq!(serde_json::to_value(&url).unwrap(), shown);
        }
    }

    #[test]
    fn invalid_url_is_refused_without_being_quoted() {
        for url in [
            "host=h password=secret",
            "mysql://u:secret@h/db",
            "postgres://u:secret@h/db?sslmode=maybe",
            "postgres://u:secret@h/db?sslkey=secret",
        ] {
            let error = format!("{:#}", DatabaseUrl(url.to_owned()).check().unwrap_err());
            assert!(!error.contains("secret") && error.contains("database"), "{error}");
        }
    }

    #[test]
    fn connections_to_other_machines_are_encrypted_unless_that_is_disabled() {
        for (url, expected) in [
            ("postgres://127.0.0.1:5432/db", "disable"),
            ("postgres://u:p@localhost/db", "disable"),
            ("postgres:///db?host=/run/postgresql", "disable"),
            ("postgres://[::1]:5432/db", "disable"),
            ("postgres://localhost,db.example.com/db", "require"),
            ("postgres://localhost.example.com/db", "require"),
            ("postgres://u@db.example.com/db", "require"),
            ("postgres://u@db.example.com/db?sslmode=verify-full", "require"),
            ("postgres://u@db.example.com/db?sslmode=prefer", "prefer"),
            ("postgres://u@db.example.com/db?sslmode=disable", "disable"),
            ("postgres://localhost/db?sslrootcert=ca.pem", "require"),
        ] {
            let parsed = parse_url(url).unwrap();
            assert!(parsed.url.ends_with(&format!("sslmode={expected}")), "{url}: {}", parsed.url);
            assert_eq!(parsed.uses_tls, expected != "disable", "{url}");
        }
        let parsed = parse_url("postgres://h/db?sslrootcert=%2Fca.pem&connect_timeout=3").unwrap();
        assert_eq!(parsed.url, "postgres://h/db?connect_timeout=3&sslmode=require");
        assert_eq!(parsed.ca_file, Some(PathBuf::from("/ca.pem")));
    }
}
