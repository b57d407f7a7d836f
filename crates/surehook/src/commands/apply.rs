//! `surehook apply` and `diff`: applies a configuration file to a running gateway.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use super::files;
use crate::{
    cli::GatewayArgs,
    client::{ApiClient, query_string},
    error::CliError,
    output::{self, OutputStyle, style},
};

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct ApplyArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input
    file: PathBuf,
    /// Delete resources that the file does not contain; pending deliveries of deleted destinations are
    /// cancelled
    #[arg(long)]
    prune: bool,
    /// Only show what would change; exit code 9 if there are changes
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    remote: GatewayArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)))]
pub(crate) struct DiffArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input
    file: PathBuf,
    /// Include deletions of resources that the file does not contain
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    remote: GatewayArgs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    sources: Vec<SourceSpec>,
    #[serde(default)]
    destinations: Vec<DestinationSpec>,
    #[serde(default)]
    routes: Vec<RouteSpec>,
}

pub(super) async fn run(args: &ApplyArgs) -> Result<(), CliError> {
    let document = read_config(&args.file).map_err(CliError::settings)?;
    let query = query_string(&[
        ("prune", args.prune.then_some("true")),
        ("dry_run", args.dry_run.then_some("true")),
    ]);
    let client = ApiClient::new(&args.remote)?;
    let report = client.put(&format!("/configuration{query}"), &document).await?;
    if args.remote.json {
        output::print_line(&report)?;
    } else {
        print_report(&report, args.dry_run)?;
    }
    let is_pending = report["changes"].as_array().is_some_and(|changes| !changes.is_empty());
    if args.dry_run && is_pending { Err(CliError::pending_changes()) } else { Ok(()) }
}

/// `diff` is `apply --dry-run`.
pub(super) async fn diff(args: DiffArgs) -> Result<(), CliError> {
    let DiffArgs { file, prune, remote } = args;
    run(&ApplyArgs { file, prune, dry_run: true, remote }).await
}

fn read_config(file: &Path) -> anyhow::Result<Value> {
    let text = files::read_text(file)?;
    let is_json = file.extension().is_some_and(|end| end == "json");
    // TOML never starts with a brace, so standard input may be either.
    let is_json = is_json || text.trim_start().starts_with('{');
    let within = || format!("in {}", file.display());
    let document = if is_json {
        serde_json::from_str(&text).with_context(within)?
    } else {
        toml::from_str(&text).with_context(within)?
    };
    let ConfigFile { sources, destinations, routes } = document;
    Ok(json!({ "sources": sources, "destinations": destinations, "routes": routes }))
}

fn print_report(report: &Value, dry_run: bool) -> Result<(), CliError> {
    for change in report["changes"].as_array().into_iter().flatten() {
        let what = output::format_value(&change["what"]);
        let line = match change["action"].as_str() {
            Some("create") => style(OutputStyle::Success, &format!("+ {what}")),
            Some("delete") => style(OutputStyle::Error, &format!("- {what}")),
            Some(_) | None => style(OutputStyle::Warning, &format!("~ {what}")),
        };
        output::print_line(line)?;
        for field in change["fields"].as_array().into_iter().flatten() {
            output::print_line(format!("    {}", format_field(field)))?;
        }
    }
    let count = |verb: &str| report[verb].as_array().map_or(0, Vec::len);
    let (created, updated, deleted) = (count("created"), count("updated"), count("deleted"));
    let unchanged = &report["unchanged"];
    let summary = if dry_run {
        format!(
            "{created} to create, {updated} to update, {deleted} to delete, {unchanged} unchanged"
        )
    } else {
        format!("{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged")
    };
    output::note(&summary);
    Ok(())
}

fn format_field(field: &Value) -> String {
    let name = output::format_value(&field["name"]);
    if field["from"] == field["to"] {
        return format!("{name}: secret changed");
    }
    let text = |value: &Value| match value.is_null() {
        true => "(not set)".to_owned(),
        false => output::escape_control(&value.to_string()),
    };
    format!("{name}: {} → {}", text(&field["from"]), text(&field["to"]))
}
