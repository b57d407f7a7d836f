//! `surehook export`: prints the configuration as a file for `apply`.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use surehook_api::{ApiTransport as _, calls};
// Replaces literal secrets; `apply` refuses it.
use surehook_types::redact::MASK;

use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConfigFormat {
    Toml,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Output format
    #[arg(long, default_value = "toml")]
    format: ConfigFormat,
    #[command(flatten)]
    remote: GatewayArgs,
}

const SECTIONS: [&str; 3] = ["sources", "destinations", "routes"];

pub(super) async fn run(args: &ExportArgs) -> Result<(), CliError> {
    let configuration = ApiClient::new(&args.remote)?.call(calls::get_configuration()).await?;
    let missing = masked_fields(&configuration);
    if args.remote.json {
        output::print_line(&configuration)?;
    } else if args.format == ConfigFormat::Json {
        output::print_line(format!("{configuration:#}"))?;
    } else {
        output::print_line(to_toml(&configuration, &missing)?.trim_end())?;
    }
    if !missing.is_empty() {
        output::note(&format!(
            "note: before applying this file, set these secrets, preferably as env:NAME: {}",
            missing.join(", ")
        ));
    }
    Ok(())
}

/// Paths of the secrets that are masked in the export.
fn masked_fields(configuration: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    for section in SECTIONS {
        for entry in configuration[section].as_array().into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default();
            collect_masked(entry, &format!("{section}.{name}"), &mut paths);
        }
    }
    paths
}

fn collect_masked(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(MASK) => paths.push(path.to_owned()),
        Value::Array(items) => items.iter().for_each(|item| collect_masked(item, path, paths)),
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, value)| collect_masked(value, &format!("{path}.{name}"), paths));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn to_toml(configuration: &Value, missing: &[String]) -> Result<String, CliError> {
    let mut text = String::new();
    if !missing.is_empty() {
        text.push_str(&format!(
            "# Literal secrets are masked as {MASK}. Set them before applying this file:\n"
        ));
        missing.iter().for_each(|path| text.push_str(&format!("#   {path}\n")));
        text.push('\n');
    }
    for section in SECTIONS {
        for entry in configuration[section].as_array().into_iter().flatten() {
            text.push_str(&format!("[[{section}]]\n"));
            if let Value::Object(fields) = entry {
                text.push_str(&fields_to_toml(fields)?);
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// The fields of a resource, one per line, its name first.
fn fields_to_toml(fields: &Map<String, Value>) -> Result<String, CliError> {
    let first = ["name", "from", "to"];
    let rank = |name: &str| first.iter().position(|known| *known == name).unwrap_or(first.len());
    let mut sorted: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
    sorted.sort_by_key(|(name, _)| (rank(name), (*name).clone()));
    let mut text = String::new();
    for (name, value) in sorted {
        let value = toml::Value::try_from(without_nulls(value))?;
        text.push_str(&format!("{name} = {value}\n"));
    }
    Ok(text)
}

/// TOML has no null: unset fields are omitted.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn export_can_be_parsed_again() {
        let configuration = json!({
            "sources": [{
                "name": "shop", "enabled": true, "keys": null, "max_body_bytes": 10,
                "verify": { "hmac": { "header": ["a", "b"], "prefix": "x=\"y\"" } },
                "secrets": ["env:A", "•••"],
            }],
            "destinations": [{
                "name": "crm", "url": "https://example.com/", "headers": { "x-key": "•••" },
                "retry": { "jitter": 0.5, "schedule": ["1s", "2s"] },
            }],
            "routes": [{ "from": "shop", "to": "crm", "filter": ".a == \"b\" # 'c'" }],
        });

        let missing = masked_fields(&configuration);
        let text = to_toml(&configuration, &missing).unwrap();

        assert_eq!(missing, ["sources.shop.secrets", "destinations.crm.headers.x-key"]);
        assert!(text.contains("#   sources.shop.secrets\n"), "{text}");
        let read: Value = toml::from_str(&text).unwrap();
        let mut expected = configuration;
        expected["sources"][0].as_object_mut().unwrap().remove("keys");
        assert_eq!(read, expected);
    }
}
