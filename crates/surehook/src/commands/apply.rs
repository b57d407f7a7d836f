//! `surehook apply` and `diff`: a file's sources, destinations and routes into a running gateway.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use super::files;
use crate::{
    cli::{ApplyArgs, DiffArgs},
    client::{Client, query},
    failure::Failure,
    output::{self, Tone, paint},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    sources: Vec<SourceSpec>,
    #[serde(default)]
    destinations: Vec<DestinationSpec>,
    #[serde(default)]
    routes: Vec<RouteSpec>,
}

pub(super) async fn run(args: &ApplyArgs) -> Result<(), Failure> {
    let document = read(&args.file).map_err(Failure::settings)?;
    let query = query(&[
        ("prune", args.prune.then_some("true")),
        ("dry_run", args.dry_run.then_some("true")),
    ]);
    let client = Client::new(&args.remote)?;
    let report = client.put(&format!("/configuration{query}"), &document).await?;
    if args.remote.json {
        output::line(&report.to_string())?;
    } else {
        print(&report, args.dry_run)?;
    }
    let is_pending = report["changes"].as_array().is_some_and(|changes| !changes.is_empty());
    if args.dry_run && is_pending { Err(Failure::drift()) } else { Ok(()) }
}

/// `diff` is an `apply` that stops before it changes anything.
pub(super) async fn diff(args: DiffArgs) -> Result<(), Failure> {
    let DiffArgs { file, prune, remote } = args;
    run(&ApplyArgs { file, prune, dry_run: true, remote }).await
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let text = files::read_text(file)?;
    let is_json = file.extension().is_some_and(|end| end == "json");
    // TOML never begins with a brace, so standard input may be either.
    let is_json = is_json || text.trim_start().starts_with('{');
    let within = || format!("in {}", file.display());
    let document = if is_json {
        serde_json::from_str(&text).with_context(within)?
    } else {
        toml::from_str(&text).with_context(within)?
    };
    let Document { sources, destinations, routes } = document;
    Ok(json!({ "sources": sources, "destinations": destinations, "routes": routes }))
}

fn print(report: &Value, dry_run: bool) -> Result<(), Failure> {
    for change in report["changes"].as_array().into_iter().flatten() {
        let what = output::cell(&change["what"]);
        let line = match change["action"].as_str() {
            Some("create") => paint(Tone::Good, &format!("+ {what}")),
            Some("delete") => paint(Tone::Bad, &format!("- {what}")),
            Some(_) | None => paint(Tone::Warn, &format!("~ {what}")),
        };
        output::line(&line)?;
        for field in change["fields"].as_array().into_iter().flatten() {
            output::line(&format!("    {}", told(field)))?;
        }
    }
    let many = |verb: &str| report[verb].as_array().map_or(0, Vec::len);
    let (created, updated, deleted) = (many("created"), many("updated"), many("deleted"));
    let unchanged = &report["unchanged"];
    let sum = if dry_run {
        format!(
            "{created} to create, {updated} to update, {deleted} to delete, {unchanged} unchanged"
        )
    } else {
        format!("{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged")
    };
    output::note(&sum);
    Ok(())
}

/// One field of an update.
fn told(field: &Value) -> String {
    let name = output::cell(&field["name"]);
    if field["from"] == field["to"] {
        return format!("{name}: a secret differs");
    }
    let text = |value: &Value| match value {
        Value::Null => "(not set)".to_owned(),
        Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => output::plain(&value.to_string()),
    };
    format!("{name}: {} → {}", text(&field["from"]), text(&field["to"]))
}
