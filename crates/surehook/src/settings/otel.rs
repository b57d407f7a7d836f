//! The standard environment variables of OpenTelemetry, for `[otlp]`.
//!
//! They often are set for all programs of a machine or pod, so the settings file and `SUREHOOK_OTLP__…`
//! take precedence, and one that cannot be used is a warning, as OpenTelemetry demands.

use serde_json::{Value, json};

use super::Settings;

/// A variable, and the setting that it stands for.
struct StandardVariable {
    name: &'static str,
    /// Below `[otlp]`.
    key: &'static str,
    format: VariableFormat,
}

/// How the value of a variable is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VariableFormat {
    Text,
    Number,
    Milliseconds,
    /// `name=value,name=value`, percent-encoded.
    Pairs,
    /// `otlp` or `none`.
    Exporter,
}

const fn variable(
    name: &'static str,
    key: &'static str,
    format: VariableFormat,
) -> StandardVariable {
    StandardVariable { name, key, format }
}

const VARIABLES: [StandardVariable; 13] = [
    variable("OTEL_EXPORTER_OTLP_ENDPOINT", "endpoint", VariableFormat::Text),
    variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "traces_endpoint", VariableFormat::Text),
    variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "metrics_endpoint", VariableFormat::Text),
    variable("OTEL_EXPORTER_OTLP_HEADERS", "headers", VariableFormat::Pairs),
    variable("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca_file", VariableFormat::Text),
    variable("OTEL_EXPORTER_OTLP_TIMEOUT", "timeout", VariableFormat::Milliseconds),
    variable("OTEL_METRIC_EXPORT_INTERVAL", "metrics_interval", VariableFormat::Milliseconds),
    variable("OTEL_SERVICE_NAME", "service_name", VariableFormat::Text),
    variable("OTEL_RESOURCE_ATTRIBUTES", "resource", VariableFormat::Pairs),
    variable("OTEL_TRACES_EXPORTER", "traces", VariableFormat::Exporter),
    variable("OTEL_METRICS_EXPORTER", "metrics", VariableFormat::Exporter),
    variable("OTEL_TRACES_SAMPLER", "sampler", VariableFormat::Text),
    variable("OTEL_TRACES_SAMPLER_ARG", "sample_ratio", VariableFormat::Number),
];

const DISABLED: &str = "OTEL_SDK_DISABLED";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// Adds the values of the variables that the settings do not have. Returns a warning for each that cannot
/// be used.
pub(super) fn apply_variables(
    table: &mut toml::Table,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    // Empty is the same as not set.
    let read = |name: &str| env(name).filter(|value| !value.trim().is_empty());
    let mut warnings = Vec::new();
    if read(DISABLED).is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) {
        return warnings;
    }
    let protocol = read(PROTOCOL).filter(|protocol| protocol.trim() == "grpc");
    if protocol.is_some() {
        warnings.push(format!(
            "{PROTOCOL} is grpc, which is not supported: the endpoints in the environment are not used. Set it to \
             http/protobuf, with the HTTP port of the collector (4318)"
        ));
    }
    for StandardVariable { name, key, format } in VARIABLES {
        let Some(value) = read(name) else { continue };
        if key.ends_with("endpoint") && protocol.is_some() {
            continue;
        }
        match format.read(value.trim()).and_then(|value| check(key, value)) {
            Some(value) => {
                let section = table.entry("otlp").or_insert(toml::Value::Table(toml::Table::new()));
                // Anything else than a table is refused when the settings are read.
                if let Some(section) = section.as_table_mut() {
                    section.entry(key).or_insert(value);
                }
            }
            None => warnings.push(format!(
                "the environment variable {name} has a value that cannot be used for otlp.{key} and is ignored"
            )),
        }
    }
    warnings
}

/// The variable that sets `key`, such as `otlp.endpoint`, if the settings do not.
pub(crate) fn variable_of(key: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    let key = key.strip_prefix("otlp.")?;
    let key = key.split('.').next()?;
    let mut table = toml::Table::new();
    apply_variables(&mut table, env);
    table.get("otlp").filter(|section| section.get(key).is_some())?;
    VARIABLES.iter().find(|variable| variable.key == key).map(|variable| variable.name)
}

/// The value as it is in the settings, if `[otlp]` with it alone is valid.
fn check(key: &str, value: Value) -> Option<toml::Value> {
    let value = toml::Value::try_from(value).ok()?;
    let section = toml::Table::from_iter([(key.to_owned(), value.clone())]);
    let table = toml::Table::from_iter([("otlp".to_owned(), toml::Value::Table(section))]);
    let settings = Settings::from_table(table).ok()?;
    settings.otlp.build(&|_| Some("set".to_owned())).ok()?;
    Some(value)
}

impl VariableFormat {
    /// The value as JSON; `None` if it is not in this format.
    fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Text => Some(json!(text)),
            Self::Number => text.parse::<f64>().ok().map(|number| json!(number)),
            Self::Milliseconds => text.parse::<u64>().ok().map(|ms| json!(format!("{ms}ms"))),
            Self::Pairs => {
                let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
                let pairs = pairs.map(|pair| {
                    let (name, value) = pair.split_once('=')?;
                    let value = decode_percent(value.trim())?;
                    Some((decode_percent(name.trim())?, Value::String(value)))
                });
                pairs.collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
            }
            Self::Exporter => match text {
                "otlp" => Some(json!(true)),
                "none" => Some(json!(false)),
                _ => None,
            },
        }
    }
}

fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let [decoded] = data_encoding::HEXLOWER_PERMISSIVE.decode(&digits).ok()?[..] else {
                    return None;
                };
                decoded
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use surehook_core::trace::SamplerKind;

    use super::*;

    /// The settings of a file with these variables, and the warnings.
    fn load(file: &str, variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let env = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut table: toml::Table = file.parse().unwrap();
        let warnings = apply_variables(&mut table, &env);
        let settings = Settings::from_table(table).unwrap();
        settings.check().unwrap();
        (settings, warnings)
    }

    #[test]
    fn standard_variables_are_settings() {
        let (settings, warnings) = load(
            "",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20YTpi, x-tenant=a=b,"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "15000"),
                ("OTEL_SERVICE_NAME", "hooks"),
                ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=production"),
                ("OTEL_METRICS_EXPORTER", "none"),
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
                ("OTEL_TRACES_EXPORTER", ""),
            ],
        );
        assert!(warnings.is_empty(), "{warnings:?}");
        let otlp = settings.otlp;
        assert_eq!(otlp.endpoint.as_deref(), Some("http://collector:4318"));
        assert_eq!(
            json!(otlp.headers),
            json!({ "authorization": "Basic YTpi", "x-tenant": "a=b" })
        );
        assert_eq!((otlp.timeout.0.as_millis(), otlp.metrics_interval.0.as_secs()), (2500, 15));
        assert_eq!(otlp.service_name.as_deref(), Some("hooks"));
        assert_eq!(otlp.resource["deployment.environment.name"], "production");
        assert!(otlp.traces && !otlp.metrics);
        assert_eq!(otlp.sampler, SamplerKind::ParentBasedTraceIdRatio);
        assert!((otlp.sample_ratio - 0.25).abs() < f64::EPSILON);
    }

    #[test]
    fn settings_file_has_precedence() {
        let file = "[otlp]\nservice_name = \"of-file\"";
        let (settings, _) =
            load(file, &[("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")]);
        assert_eq!(settings.otlp.service_name.as_deref(), Some("of-file"));
        assert_eq!(settings.otlp.endpoint.as_deref(), Some("http://c"));
    }

    #[test]
    fn unusable_variable_is_a_warning_without_its_value() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "canary:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "canary"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%canary"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "canary"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5"),
            ("OTEL_TRACES_SAMPLER", "canary"),
            ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
            ("OTEL_TRACES_EXPORTER", "canary"),
        ] {
            let (settings, warnings) = load("", &[(name, value)]);
            let [warning] = &warnings[..] else { panic!("{name}: {warnings:?}") };
            assert!(warning.contains(name) && !warning.contains("canary"), "{warning}");
            assert_eq!(settings.otlp, Settings::default().otlp, "case: {name}={value}");
        }
    }

    #[test]
    fn grpc_and_a_disabled_sdk_send_nothing() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        let (settings, warnings) = load("", &[endpoint, (PROTOCOL, "grpc")]);
        assert_eq!(settings.otlp.endpoint, None);
        assert!(warnings[0].contains("4318"), "{warnings:?}");
        let (settings, warnings) = load("", &[endpoint, (DISABLED, "true")]);
        assert_eq!((settings.otlp.endpoint, warnings.len()), (None, 0));
    }

    #[test]
    fn origin_of_a_setting_is_its_variable() {
        let env = |name: &str| match name {
            "OTEL_SERVICE_NAME" => Some("x".to_owned()),
            "OTEL_TRACES_SAMPLER" => Some("unknown".to_owned()),
            _ => None,
        };
        assert_eq!(variable_of("otlp.service_name", &env), Some("OTEL_SERVICE_NAME"));
        assert_eq!(variable_of("otlp.sampler", &env), None, "it is not used");
        assert_eq!(variable_of("health.window", &env), None);
    }
}
