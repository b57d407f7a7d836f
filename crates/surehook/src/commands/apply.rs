//! `surehook apply` and `diff`: applies a configuration file to a running gateway.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use surehook_api::{
    ApiTransport as _, calls,
    configuration::{ApplyResponse, ConfigurationDocument, FieldChange, ResourceChange},
};

use super::files;
use crate::{
    cli::GatewayArgs,
    client::ApiClient,
    error::CliError,
    output::{self, OutputStyle, style},
    settings::{Settings, document::SettingsDocument},
};

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
pub(crate) struct ApplyArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input. Settings of the
    /// server in it are ignored, so the file of `serve` can be used
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
#[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
pub(crate) struct DiffArgs {
    /// TOML or JSON with sources, destinations and routes; `-` reads standard input. Settings of the
    /// server in it are ignored, so the file of `serve` can be used
    file: PathBuf,
    /// Include deletions of resources that the file does not contain
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    remote: GatewayArgs,
}

pub(super) async fn run(args: &ApplyArgs) -> Result<(), CliError> {
    let document = read_document(&args.file)?;
    let settings = document.settings().map_err(CliError::settings)?;
    let ignored = document.server_sections();
    if !ignored.is_empty() {
        output::note(&format!(
            "note: ignored, as settings of the server: {}; `surehook reload` applies those of a running gateway",
            ignored.join(", ")
        ));
    }
    let Settings { sources, destinations, routes, .. } = settings;
    let call = calls::apply_configuration(&ConfigurationDocument { sources, destinations, routes })
        .query_some("prune", args.prune.then_some("true"))
        .query_some("dry_run", args.dry_run.then_some("true"));
    let report = ApiClient::new(&args.remote)?.call(call).await;
    let located = |detail: &str| document.error(detail).to_string();
    let report = report.map_err(|error: CliError| error.describe_refusal(located))?;
    if args.remote.json {
        output::print_line(json!(report))?;
    } else {
        print_report(&report)?;
    }
    let is_pending = args.dry_run && !report.changes.is_empty();
    if is_pending { Err(CliError::pending_changes()) } else { Ok(()) }
}

/// `diff` is `apply --dry-run`.
pub(super) async fn diff(args: DiffArgs) -> Result<(), CliError> {
    let DiffArgs { file, prune, remote } = args;
    run(&ApplyArgs { file, prune, dry_run: true, remote }).await
}

fn read_document(file: &Path) -> Result<SettingsDocument, CliError> {
    let name =
        if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
    Ok(SettingsDocument::new(name, files::read_text(file).map_err(CliError::settings)?))
}

fn print_report(report: &ApplyResponse) -> Result<(), CliError> {
    for ResourceChange { action, what, fields } in &report.changes {
        let what = output::escape_control(what);
        output::print_line(match action.as_str() {
            "create" => style(OutputStyle::Success, &format!("+ {what}")),
            "delete" => style(OutputStyle::Error, &format!("- {what}")),
            _ => style(OutputStyle::Warning, &format!("~ {what}")),
        })?;
        fields.iter().try_for_each(|field| output::print_line(format_field(field)))?;
    }
    let ApplyResponse { created, updated, deleted, unchanged, .. } = report;
    let (created, updated, deleted) = (created.len(), updated.len(), deleted.len());
    output::note(&match report.dry_run {
        true => format!(
            "{created} to create, {updated} to update, {deleted} to delete, {unchanged} unchanged"
        ),
        false => {
            format!(
                "{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged"
            )
        }
    });
    Ok(())
}

fn format_field(FieldChange { name, from, to }: &FieldChange) -> String {
    let name = output::escape_control(name);
    if from == to {
        return format!("    {name}: secret changed");
    }
    let text = |value: &Value| match value.is_null() {
        true => "(not set)".to_owned(),
        false => output::escape_control(&value.to_string()),
    };
    format!("    {name}: {} → {}", text(from), text(to))
}
