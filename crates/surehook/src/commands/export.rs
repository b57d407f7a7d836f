//! `surehook export`: what is configured, as a file that `apply` takes.

use serde_json::{Map, Value};
// It stands where a secret was written out, and `apply` refuses it.
use surehook_core::redact::MASK;

use crate::{
    cli::{ExportArgs, Format},
    client::Client,
    failure::Failure,
    output,
};

/// The parts of a configuration, and what each entry is called by.
const PARTS: [&str; 3] = ["sources", "destinations", "routes"];

pub(super) async fn run(args: &ExportArgs) -> Result<(), Failure> {
    let configuration = Client::new(&args.remote)?.get("/configuration").await?;
    let missing = masked(&configuration);
    if args.remote.json {
        output::line(&configuration.to_string())?;
    } else if args.format == Format::Json {
        output::line(&format!("{configuration:#}"))?;
    } else {
        output::line(toml(&configuration, &missing)?.trim_end())?;
    }
    if !missing.is_empty() {
        output::note(&format!(
            "note: fill in before applying this again, best as env:NAME: {}",
            missing.join(", ")
        ));
    }
    Ok(())
}

/// The places of secrets that are not in the export.
fn masked(configuration: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for part in PARTS {
        for entry in configuration[part].as_array().into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default();
            find(entry, &format!("{part}.{name}"), &mut found);
        }
    }
    found
}

fn find(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(MASK) => found.push(path.to_owned()),
        Value::Array(items) => items.iter().for_each(|item| find(item, path, found)),
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| find(value, &format!("{path}.{name}"), found));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn toml(configuration: &Value, missing: &[String]) -> Result<String, Failure> {
    let mut text = String::new();
    if !missing.is_empty() {
        text.push_str(&format!("# Secrets that were written out are hidden as {MASK}. Fill in:\n"));
        missing.iter().for_each(|place| text.push_str(&format!("#   {place}\n")));
        text.push('\n');
    }
    for part in PARTS {
        for entry in configuration[part].as_array().into_iter().flatten() {
            text.push_str(&format!("[[{part}]]\n"));
            if let Value::Object(fields) = entry {
                text.push_str(&fields_as_toml(fields)?);
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// One entry's fields, a line each; what it is called by comes first.
fn fields_as_toml(fields: &Map<String, Value>) -> Result<String, Failure> {
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

/// TOML has no word for nothing: what is not set is left out.
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
    fn an_export_can_be_read_back() {
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

        let missing = masked(&configuration);
        let text = toml(&configuration, &missing).unwrap();

        assert_eq!(missing, ["sources.shop.secrets", "destinations.crm.headers.x-key"]);
        assert!(text.contains("#   sources.shop.secrets\n"), "{text}");
        let read: Value = toml::from_str(&text).unwrap();
        let mut expected = configuration;
        expected["sources"][0].as_object_mut().unwrap().remove("keys");
        assert_eq!(read, expected);
    }
}
