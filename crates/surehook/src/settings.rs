//! Settings of `serve`. Precedence, highest first: flag, environment, file, default. Unknown keys in the
//! file are errors. Unknown variables are warnings: others set them too, such as Kubernetes.

pub(crate) mod document;
pub(crate) mod otel;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_core::{
    alert::AlertRulesSpec,
    destination::DestinationSpec,
    health::HealthSpec,
    idempotency::KeyLimits,
    otlp::OtlpSpec,
    quarantine::QUARANTINE_BYTES_MAX,
    route::RouteSpec,
    source::{PublicUrl, SourceSpec},
};
use surehook_engine::{
    apply::DesiredConfiguration, programs::AllowedPrograms, variables::AllowedVariables,
};
use surehook_messaging::media::BucketSpec;
use surehook_server::{ServerLimits, tls::CertificateFiles};
use surehook_store::sqlite::SecretKey;
use surehook_types::time::HumanDuration;

use self::document::SettingsDocument;
use crate::{
    commands::serve::ServeArgs,
    database::{DatabaseUrl, PostgresSettings},
};

const LOG_LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const LOG_FORMATS: [&str; 3] = ["auto", "json", "text"];

/// All settings of `serve`; docs/reference/settings.md is the reference.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Address to listen on: an IP address and a port.
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// Data folder.
    pub(crate) data: PathBuf,
    /// PostgreSQL database to use instead of a data folder, for several nodes.
    #[schemars(with = "Option<String>")]
    pub(crate) database: Option<DatabaseUrl>,
    pub(crate) postgres: PostgresSettings,
    /// Name of this process in lists of nodes. Not set: the name of the machine.
    pub(crate) node_name: Option<String>,
    /// File with the key that secrets in the database are encrypted with. Not set: `secret.key` in the
    /// data folder.
    pub(crate) secret_key_file: Option<PathBuf>,
    /// Private networks that destinations may use. Empty: only public addresses.
    #[schemars(with = "Vec<String>")]
    pub(crate) allow_networks: Vec<IpNet>,
    /// Programs, or folders of programs, that `exec` destinations may run. Empty: none.
    #[schemars(with = "Vec<PathBuf>")]
    pub(crate) allow_exec: AllowedPrograms,
    /// Environment variables that sources and destinations may reference with `env:NAME` over the API;
    /// `*` at the end stands for any rest. Empty: none.
    #[schemars(with = "Vec<String>")]
    pub(crate) allow_env: AllowedVariables,
    /// URL that providers call, without `/in/…`, such as `https://hooks.example.com`. Some providers
    /// sign it.
    pub(crate) public_url: Option<PublicUrl>,
    /// How long events are kept. Events with pending deliveries are not removed.
    pub(crate) retention: HumanDuration,
    /// Log level: `error`, `warn`, `info`, `debug` or `trace`.
    #[schemars(extend("enum" = LOG_LEVELS))]
    pub(crate) log: String,
    /// Log format: `json`, `text`, or `auto` (text on a terminal).
    #[schemars(extend("enum" = LOG_FORMATS))]
    pub(crate) log_format: String,
    /// How long running attempts may take to finish after SIGTERM.
    pub(crate) shutdown_grace: HumanDuration,
    /// Readiness fails if a delivery is overdue by this long while its lane is idle.
    pub(crate) ready_max_due_age: HumanDuration,
    /// Bucket for media files: S3, R2 or `MinIO`.
    pub(crate) media: BucketSpec,
    /// TLS of the listener.
    pub(crate) tls: TlsSettings,
    pub(crate) limits: LimitSettings,
    /// What counts as a failing and a degraded destination.
    pub(crate) health: HealthSpec,
    /// When alerts fire.
    pub(crate) alerts: AlertRulesSpec,
    /// Where traces and metrics are sent by OpenTelemetry's protocol.
    pub(crate) otlp: OtlpSpec,
    /// Sources to create or update at start.
    pub(crate) sources: Vec<SourceSpec>,
    /// Destinations to create or update at start.
    pub(crate) destinations: Vec<DestinationSpec>,
    /// Routes to create or update at start.
    pub(crate) routes: Vec<RouteSpec>,
    /// A warning for each `SUREHOOK_…` variable that is not a setting.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

/// TLS of the listener: both files, or neither for plain HTTP.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsSettings {
    /// PEM file with the certificate and its chain.
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with the private key.
    pub(crate) key: Option<PathBuf>,
}

/// Limits on incoming requests and on memory.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    /// Largest request body, in bytes. A source may override it.
    pub(crate) body_bytes_max: usize,
    /// Memory for all request bodies being received, in bytes.
    pub(crate) bodies_in_memory_max: usize,
    /// Open connections. Derived from the limit of open files if not set.
    pub(crate) connections_max: Option<usize>,
    /// Open connections from one IP address.
    pub(crate) connections_per_address_max: usize,
    /// Time to receive the head of a request; also how long a connection may stay idle.
    pub(crate) head_timeout: HumanDuration,
    /// Time to receive the body of a request.
    pub(crate) body_timeout: HumanDuration,
    /// Time to answer a request, from its head to the head of the response.
    pub(crate) request_timeout: HumanDuration,
    /// How long a client may read nothing of a response.
    pub(crate) write_timeout: HumanDuration,
    /// Bytes per second at which a body must arrive at least; 0 for no minimum.
    pub(crate) body_rate_min: u64,
    /// How long a request waits for a running request with the same `Idempotency-Key`.
    pub(crate) idempotency_wait: HumanDuration,
    /// Stored keys of the idempotency service.
    pub(crate) idempotency_keys_max: u64,
    /// Stored keys of one namespace of the idempotency service.
    pub(crate) idempotency_namespace_keys_max: u64,
    /// Memory for bodies queued for delivery, in bytes; the rest is queued in the store.
    pub(crate) lane_bytes_max: usize,
    /// Requests queued for a commit.
    pub(crate) commit_queue_max: usize,
    /// Committed keys kept in memory.
    pub(crate) keys_remembered: usize,
    /// Quarantined requests per source, in bytes.
    pub(crate) quarantine_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            data: PathBuf::from("data"),
            database: None,
            postgres: PostgresSettings::default(),
            node_name: None,
            secret_key_file: None,
            allow_networks: Vec::new(),
            allow_exec: AllowedPrograms::default(),
            allow_env: AllowedVariables::default(),
            public_url: None,
            retention: HumanDuration::from_secs(30 * 86_400),
            log: "info".to_owned(),
            log_format: "auto".to_owned(),
            shutdown_grace: HumanDuration::from_secs(10),
            ready_max_due_age: HumanDuration::from_secs(300),
            media: BucketSpec::default(),
            tls: TlsSettings::default(),
            limits: LimitSettings::default(),
            health: HealthSpec::default(),
            alerts: AlertRulesSpec::default(),
            otlp: OtlpSpec::default(),
            sources: Vec::new(),
            destinations: Vec::new(),
            routes: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        let limits = ServerLimits::default();
        Self {
            body_bytes_max: limits.body_bytes_max,
            bodies_in_memory_max: limits.bodies_in_memory_max,
            connections_max: None,
            connections_per_address_max: limits.connections_per_address_max,
            head_timeout: HumanDuration(limits.head_timeout),
            body_timeout: HumanDuration(limits.body_timeout),
            request_timeout: HumanDuration(limits.request_timeout),
            write_timeout: HumanDuration(limits.write_timeout),
            body_rate_min: limits.body_rate_min,
            idempotency_wait: HumanDuration(limits.idempotency_wait),
            idempotency_keys_max: KeyLimits::default().total,
            idempotency_namespace_keys_max: KeyLimits::default().per_namespace,
            lane_bytes_max: 64 * 1024 * 1024,
            commit_queue_max: 20_000,
            keys_remembered: 100_000,
            quarantine_bytes_max: QUARANTINE_BYTES_MAX,
        }
    }
}

impl LimitSettings {
    /// The limits of the HTTP server, with this many connections.
    pub(crate) fn server_limits(&self, connections_max: usize) -> ServerLimits {
        ServerLimits {
            body_bytes_max: self.body_bytes_max,
            bodies_in_memory_max: self.bodies_in_memory_max,
            connections_max,
            connections_per_address_max: self.connections_per_address_max,
            head_timeout: self.head_timeout.0,
            body_timeout: self.body_timeout.0,
            request_timeout: self.request_timeout.0,
            write_timeout: self.write_timeout.0,
            body_rate_min: self.body_rate_min,
            idempotency_wait: self.idempotency_wait.0,
        }
    }
}

/// `SUREHOOK_…` variables that are not settings.
const NON_SETTINGS: [&str; 6] = [
    "SUREHOOK_ADMIN_TOKEN",
    "SUREHOOK_CONFIG",
    "SUREHOOK_SECRET",
    SECRET_KEY_VARIABLE,
    "SUREHOOK_SERVER",
    "SUREHOOK_TOKEN",
];

/// A step that takes longer delays all nodes, and the lease of a node is 15 s.
const STATEMENT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const STATEMENT_TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// The longest name of a node.
const NODE_NAME_CHARS_MAX: usize = 64;

/// The variable with the key that secrets are encrypted with.
const SECRET_KEY_VARIABLE: &str = "SUREHOOK_SECRET_KEY";

#[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variables that are text; others cannot be settings.
fn environment_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

impl Settings {
    /// Loads the file, then overrides it with the environment, then with flags.
    pub(crate) fn load(args: &ServeArgs) -> anyhow::Result<Self> {
        let document = settings_file(args).map(|path| SettingsDocument::read(&path)).transpose()?;
        Self::from_document(args, document.as_ref())
    }

    /// Like [`Self::load`], from a file that was read before.
    pub(crate) fn from_document(
        args: &ServeArgs,
        document: Option<&SettingsDocument>,
    ) -> anyhow::Result<Self> {
        let mut table = match document {
            Some(document) => {
                // For its errors: only what was read from the text itself has positions.
                document.settings()?;
                document.table()?
            }
            None => toml::Table::new(),
        };
        let mut warnings = otel::apply_variables(&mut table, &environment);
        warnings.extend(apply_variables(&mut table, environment_variables())?);
        let mut settings = Self { warnings, ..Self::from_table(table)? };
        if let Some(data) = &args.data {
            settings.data.clone_from(data);
            settings.database = None;
        }
        if let Some(database) = &args.database {
            settings.database = Some(database.clone());
        }
        if let Some(listen) = args.listen {
            settings.listen = listen;
        }
        match (settings.check(), document) {
            (Ok(()), _) => Ok(settings),
            (Err(error), Some(document)) => Err(document.error(&format!("{error:#}")).into()),
            (Err(error), None) => Err(error),
        }
    }

    /// Loads only a file, without environment and flags.
    pub(crate) fn from_file(path: &Path) -> anyhow::Result<Self> {
        Self::from_document_alone(&SettingsDocument::read(path)?)
    }

    /// Like [`Self::from_file`], from a file that was read before.
    pub(crate) fn from_document_alone(document: &SettingsDocument) -> anyhow::Result<Self> {
        let settings = document.settings()?;
        settings.check().map_err(|error| document.error(&format!("{error:#}")))?;
        Ok(settings)
    }

    fn from_table(table: toml::Table) -> anyhow::Result<Self> {
        // The full text: the bare message has the value but not its key.
        table.try_into().map_err(|error: toml::de::Error| {
            anyhow!("settings: {}", error.to_string().trim_end().replace('\n', " "))
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        let limits = &self.limits;
        let ceiling = surehook_webhooks::provider::BODY_BYTES_CEILING;
        anyhow::ensure!(
            (1..=ceiling).contains(&limits.body_bytes_max),
            "limits.body_bytes_max must be between 1 and {ceiling}"
        );
        anyhow::ensure!(
            limits.bodies_in_memory_max >= limits.body_bytes_max,
            "limits.bodies_in_memory_max must not be smaller than limits.body_bytes_max"
        );
        for (name, value) in [
            ("connections_max", limits.connections_max.unwrap_or(1)),
            ("connections_per_address_max", limits.connections_per_address_max),
            ("commit_queue_max", limits.commit_queue_max),
            ("keys_remembered", limits.keys_remembered),
        ] {
            anyhow::ensure!(value > 0, "limits.{name} must be at least 1");
        }
        if let Some(database) = &self.database {
            database.check()?;
        }
        let statement_timeout = self.postgres.statement_timeout.0;
        anyhow::ensure!(
            (STATEMENT_TIMEOUT_MIN..=STATEMENT_TIMEOUT_MAX).contains(&statement_timeout),
            "postgres.statement_timeout must be between {} and {} s",
            STATEMENT_TIMEOUT_MIN.as_secs(),
            STATEMENT_TIMEOUT_MAX.as_secs()
        );
        anyhow::ensure!(
            self.tls.cert.is_some() == self.tls.key.is_some(),
            "tls.cert and tls.key belong together; set both, or remove [tls]"
        );
        self.health.build()?;
        self.alerts.build()?;
        // Checks only the syntax: variables may be set later, where the gateway runs.
        self.media.build(&|_| Some("set".to_owned()))?;
        self.otlp.build(&|_| Some("set".to_owned()))?;
        anyhow::ensure!(
            LOG_LEVELS.contains(&self.log.as_str()),
            "log: unknown level `{}`; available: {}",
            self.log,
            LOG_LEVELS.join(", ")
        );
        anyhow::ensure!(
            LOG_FORMATS.contains(&self.log_format.as_str()),
            "log_format: unknown format `{}`; available: {}",
            self.log_format,
            LOG_FORMATS.join(", ")
        );
        Ok(())
    }

    /// The key that secrets are encrypted with; `None` for the one in the data folder.
    pub(crate) fn secret_key(&self) -> anyhow::Result<Option<SecretKey>> {
        let variable = environment(SECRET_KEY_VARIABLE);
        match (&self.secret_key_file, variable) {
            (Some(file), None) => {
                let key = SecretKey::read(file);
                let context = || format!("the secret key {} cannot be used", file.display());
                key.map(Some).with_context(context)
            }
            (None, Some(text)) => {
                let context = || format!("{SECRET_KEY_VARIABLE} cannot be used");
                SecretKey::parse(&text).map(Some).with_context(context)
            }
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(anyhow!(
                "both {SECRET_KEY_VARIABLE} and secret_key_file are set; remove one of them"
            )),
        }
    }

    /// The files of the listener's certificate; `None` for plain HTTP.
    pub(crate) fn certificate_files(&self) -> Option<CertificateFiles> {
        let TlsSettings { cert, key } = &self.tls;
        cert.clone().zip(key.clone()).map(|(cert, key)| CertificateFiles { cert, key })
    }

    /// The name of this process in lists of nodes.
    pub(crate) fn node_name(&self) -> String {
        let of_machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = self.node_name.clone().or_else(of_machine).unwrap_or_default();
        match name.trim() {
            "" => "surehook".to_owned(),
            name => name.chars().take(NODE_NAME_CHARS_MAX).collect(),
        }
    }

    /// The sources, destinations and routes in the settings.
    pub(crate) fn desired_configuration(&self) -> DesiredConfiguration {
        DesiredConfiguration {
            sources: self.sources.clone(),
            destinations: self.destinations.clone(),
            routes: self.routes.clone(),
            prune: false,
        }
    }
}

/// The JSON Schema of the settings file: docs/reference/settings.schema.json.
pub(crate) fn json_schema() -> String {
    let mut schema = schemars::schema_for!(Settings);
    schema.insert("title".to_owned(), "Settings of Surehook".into());
    // Object keys are sorted and there is nothing that cannot be written.
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

/// An error that was found after the settings were loaded, with its place in the settings file.
pub(crate) fn locate(args: &ServeArgs, error: &dyn std::error::Error) -> anyhow::Error {
    let document = settings_file(args).and_then(|path| SettingsDocument::read(&path).ok());
    match document {
        Some(document) => document.error(&error.to_string()).into(),
        None => anyhow!("{error}"),
    }
}

/// The settings file in use, if any.
pub(crate) fn settings_file(args: &ServeArgs) -> Option<PathBuf> {
    let default = || Some(PathBuf::from("surehook.toml")).filter(|path| path.exists());
    args.config.clone().or_else(default)
}

/// Overrides the file with `SUREHOOK_LISTEN`, `SUREHOOK_LIMITS__BODY_BYTES_MAX` and so on. Returns a
/// warning for each variable that is not a setting.
fn apply_variables(
    table: &mut toml::Table,
    variables: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<Vec<String>> {
    let settings: Vec<String> =
        flatten(&json!(Settings::default())).iter().map(|(key, _)| variable_name(key)).collect();
    let mut warnings = Vec::new();
    for (name, value) in variables {
        let Some(key) = name.strip_prefix("SUREHOOK_") else { continue };
        if !settings.contains(&name.to_uppercase()) {
            let is_expected = NON_SETTINGS.contains(&name.as_str());
            if !is_expected && !is_service_variable(&name, &value) {
                warnings.push(unknown_variable_warning(&name, &settings));
            }
            continue;
        }
        anyhow::ensure!(!value.is_empty(), "{name} is set but empty; unset it or set a value");
        let path: Vec<String> = key.split("__").map(str::to_lowercase).collect();
        let (last, parents) = path.split_last().context("a variable has a name")?;
        let valid = Settings::from_table(single_setting(&path, &value)).map(drop);
        valid.with_context(|| format!("in the environment variable {name}"))?;
        let mut at = &mut *table;
        for parent in parents {
            at = at
                .entry(parent.clone())
                .or_insert_with(|| toml::Value::Table(toml::Table::new()))
                .as_table_mut()
                .with_context(|| format!("{name}: `{parent}` is not a table"))?;
        }
        at.insert(last.clone(), parse_value(&value));
    }
    Ok(warnings)
}

/// The variable that sets `key`, such as `SUREHOOK_LIMITS__BODY_BYTES_MAX`.
pub(crate) fn variable_name(key: &str) -> String {
    format!("SUREHOOK_{}", key.replace('.', "__").to_uppercase())
}

/// Whether Kubernetes (or a Docker link) set the variable for a service whose name begins with
/// `surehook`: `SUREHOOK_SERVICE_HOST`, `SUREHOOK_PORT=tcp://…`, `SUREHOOK_PORT_8080_TCP_ADDR`.
fn is_service_variable(name: &str, value: &str) -> bool {
    let is_port = |text: &str| {
        let mut parts = text.split('_');
        let (port, protocol) = (parts.next().unwrap_or_default(), parts.next());
        let rest = (parts.next(), parts.next());
        port.parse::<u16>().is_ok()
            && matches!(protocol, Some("TCP" | "UDP" | "SCTP"))
            && matches!(rest, (None | Some("PROTO" | "PORT" | "ADDR"), None))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT") && value.contains("://")
        || name.split_once("_PORT_").is_some_and(|(_, port)| is_port(port))
}

fn unknown_variable_warning(name: &str, settings: &[String]) -> String {
    // Weighs the beginning more: a part of a longer name is near it.
    let key = |name: &str| name.strip_prefix("SUREHOOK_").unwrap_or(name).to_owned();
    let similarity = |setting: &&String| strsim::jaro_winkler(&key(name), &key(setting));
    let others = NON_SETTINGS.map(ToOwned::to_owned);
    let nearest = settings
        .iter()
        .chain(&others)
        .max_by(|one, other| similarity(one).total_cmp(&similarity(other)));
    let nearest = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
    format!("the environment variable {name} is not a setting and is ignored{nearest}")
}

/// Settings by full name, such as `limits.body_bytes_max`. A list is one setting.
pub(crate) fn flatten(value: &Value) -> Vec<(String, Value)> {
    let mut settings = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        if value.is_object() {
            let inner = flatten(value).into_iter();
            settings.extend(inner.map(|(rest, value)| (format!("{name}.{rest}"), value)));
        } else {
            settings.push((name.clone(), value.clone()));
        }
    }
    settings
}

/// A table with only this value, to check whether it is a known setting.
fn single_setting(path: &[String], value: &str) -> toml::Table {
    let mut value = parse_value(value);
    for key in path.iter().rev() {
        value = toml::Value::Table(toml::Table::from_iter([(key.clone(), value)]));
    }
    let toml::Value::Table(table) = value else { return toml::Table::new() };
    table
}

/// Parses a number, list or boolean; anything else is a string.
fn parse_value(text: &str) -> toml::Value {
    let parsed = format!("v = {text}").parse::<toml::Table>().ok().and_then(|mut t| t.remove("v"));
    match parsed {
        Some(
            value @ (toml::Value::Integer(_) | toml::Value::Boolean(_) | toml::Value::Array(_)),
        ) => value,
        _ => toml::Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, variables: &[(&str, &str)]) -> anyhow::Result<Settings> {
        let mut table: toml::Table = file.parse()?;
        let pairs = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let warnings = apply_variables(&mut table, pairs)?;
        let settings = Settings { warnings, ..Settings::from_table(table)? };
        settings.check()?;
        Ok(settings)
    }

    #[test]
    fn environment_overrides_the_file() {
        let file = "listen = \"127.0.0.1:1\"\n[limits]\nbody_bytes_max = 10\nconnections_max = 7";
        let variables = [
            ("SUREHOOK_LISTEN", "127.0.0.1:2"),
            ("SUREHOOK_LIMITS__BODY_BYTES_MAX", "20"),
            ("SUREHOOK_ALLOW_NETWORKS", "[\"127.0.0.0/8\"]"),
            ("SUREHOOK_ADMIN_TOKEN", "x"),
            ("PATH", "y"),
        ];

        let settings = load(file, &variables).unwrap();

        assert_eq!(settings.listen.port(), 2);
        assert_eq!(settings.limits.body_bytes_max, 20);
        assert_eq!(settings.limits.connections_max, Some(7));
        assert_eq!(settings.allow_networks.len(), 1);
    }

    #[test]
    fn error_names_the_invalid_setting() {
        type Variables = [(&'static str, &'static str)];
        let cases: [(&str, &Variables, &str); 13] = [
            ("listen = \"x\"", &[], "listen"),
            ("listen = \"127.0.0.1:70000\"", &[], "socket address"),
            ("[limits]\nbody_bytes_max = 0", &[], "limits.body_bytes_max"),
            ("retention = \"30 days\"", &[], "duration"),
            ("log = \"loud\"", &[], "loud"),
            ("allow_exec = [\"hooks\"]", &[], "allow_exec"),
            ("", &[("SUREHOOK_ALLOW_EXEC", "[\"/opt/../bin\"]")], "allow_exec"),
            ("[[sources]]\nname = \"A b\"", &[], "name"),
            ("[media]\nbucket = \"files\"", &[], "media.endpoint is missing"),
            ("[media]\nendpoint = \"s3.test\"\nbucket = \"files\"", &[], "media.endpoint"),
            ("listem = \"127.0.0.1:1\"", &[], "listem"),
            ("", &[("SUREHOOK_LISTEN", "")], "SUREHOOK_LISTEN"),
            ("", &[("SUREHOOK_LIMITS__CONNECTIONS_MAX", "-1")], "CONNECTIONS_MAX"),
        ];
        for (file, variables, named) in cases {
            let error = format!("{:#}", load(file, variables).unwrap_err());
            assert!(error.contains(named), "case: {file} {variables:?}: {error}");
        }
    }

    #[test]
    fn unknown_variable_is_a_warning_with_the_nearest_name() {
        for (name, nearest) in [
            ("SUREHOOK_LISTEM", "SUREHOOK_LISTEN"),
            ("SUREHOOK_MEDIA__SECRET", "SUREHOOK_MEDIA__SECRET_KEY"),
            ("SUREHOOK_LIMITS_BODY_BYTES_MAX", "SUREHOOK_LIMITS__BODY_BYTES_MAX"),
            ("SUREHOOK_TOKENS", "SUREHOOK_TOKEN"),
            ("SUREHOOK_SECRET_KEY_FILES", "SUREHOOK_SECRET_KEY_FILE"),
        ] {
            for value in ["x", ""] {
                let warnings = load("", &[(name, value)]).unwrap().warnings;
                let [warning] = &warnings[..] else { panic!("{name}: {warnings:?}") };
                let advice = format!("did you mean {nearest}?");
                assert!(warning.contains(name) && warning.ends_with(&advice), "{warning}");
            }
        }
    }

    #[test]
    fn variables_of_kubernetes_services_are_ignored() {
        let variables = [
            ("SUREHOOK_PORT", "tcp://10.0.0.7:8080"),
            ("SUREHOOK_SERVICE_HOST", "10.0.0.7"),
            ("SUREHOOK_SERVICE_PORT", "8080"),
            ("SUREHOOK_SERVICE_PORT_HTTP", "8080"),
            ("SUREHOOK_PORT_8080_TCP", "tcp://10.0.0.7:8080"),
            ("SUREHOOK_PORT_8080_TCP_ADDR", "10.0.0.7"),
            ("SUREHOOK_PORT_8080_TCP_PORT", "8080"),
            ("SUREHOOK_PORT_8080_TCP_PROTO", "tcp"),
            ("SUREHOOK_METRICS_SERVICE_HOST", "fd00::7"),
        ];
        assert!(load("", &variables).unwrap().warnings.is_empty());
        for (name, value) in [("SUREHOOK_PORT", "8080"), ("SUREHOOK_PORT_X_TCP", "1")] {
            assert_eq!(load("", &[(name, value)]).unwrap().warnings.len(), 1, "{name}");
        }
    }

    #[test]
    fn bucket_can_be_set_by_environment_alone() {
        let variables = [
            ("SUREHOOK_MEDIA__ENDPOINT", "https://s3.test"),
            ("SUREHOOK_MEDIA__BUCKET", "files"),
            ("SUREHOOK_MEDIA__ACCESS_KEY", "AKIA1"),
            ("SUREHOOK_MEDIA__SECRET_KEY", "env:S3_SECRET"),
            ("SUREHOOK_MEDIA__LINK_LIFETIME", "5m"),
            ("SUREHOOK_MEDIA__PATH_STYLE", "false"),
        ];

        let settings = load("", &variables).unwrap();

        let env = |name: &str| (name == "S3_SECRET").then(|| "secret".to_owned());
        let bucket = settings.media.build(&env).unwrap().unwrap();
        assert_eq!(bucket.name(), "files");
        assert_eq!(bucket.link_lifetime(), Duration::from_secs(300));
    }

    #[test]
    fn example_settings_file_is_valid() {
        let text = include_str!("../../../surehook.example.toml");
        let settings: Settings = toml::from_str(text).unwrap();
        assert!(!settings.sources.is_empty());
    }
}
