//! `surehook events duplicates` and `deliver-anyway`.

use serde_json::{Value, json};
use surehook_api::{ApiTransport as _, calls};

use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

const COLUMNS: [(&str, &str); 4] = [
    ("n", "n"),
    ("seen", "seen_at"),
    ("bytes differ", "bytes_differ"),
    ("delivered as", "delivered_as"),
];

const CHANGES: [(&str, &str); 4] =
    [("where", "path"), ("change", "change"), ("before", "before"), ("after", "after")];

pub(super) async fn list(remote: &GatewayArgs, event: &str) -> Result<(), CliError> {
    let details = ApiClient::new(remote)?.call_json(calls::get_event(event)).await?;
    let rows = details["duplicates"].as_array().cloned().unwrap_or_default();
    if remote.json {
        return output::print_json_lines(&rows);
    }
    if rows.is_empty() {
        output::note("No duplicates.");
        return Ok(());
    }
    output::print_table(&COLUMNS, &rows)?;
    let total = details["duplicate_count"].as_u64().unwrap_or(0);
    if total > rows.len() as u64 {
        output::note(&format!("\n{total} duplicates were received; only these are stored."));
    }
    Ok(())
}

pub(super) async fn show(
    remote: &GatewayArgs,
    event: &str,
    n: u32,
    exact: bool,
) -> Result<(), CliError> {
    let call = calls::compare_duplicate(event, n).query_some("exact", exact.then_some("true"));
    let comparison = ApiClient::new(remote)?.call_json(call).await?;
    if remote.json {
        return output::print_line(&comparison);
    }
    output::print_fields(
        &comparison,
        &["n", "at", "gap_ms", "same_bytes", "body_kept", "delivered_as"],
    )?;
    output::print_line("")?;
    let changes = comparison["diff"].as_array().cloned().unwrap_or_default();
    if changes.is_empty() {
        return output::print_line(no_difference(&comparison));
    }
    output::print_table(&CHANGES, &changes)?;
    if comparison["truncated"] == true {
        output::note("\nnote: the comparison was truncated");
    }
    if comparison["masked"].as_u64().unwrap_or(0) > 0 {
        output::note(
            "\nnote: secrets are masked as ••• and not compared. Use --exact to compare them.",
        );
    }
    Ok(())
}

fn no_difference(comparison: &Value) -> &'static str {
    if comparison["same_bytes"] == true {
        "The bodies are equal."
    } else if comparison["compared_as"].is_null() {
        "The bodies differ, but were removed by retention."
    } else if comparison["masked"].as_u64().unwrap_or(0) > 0 {
        "Only formatting or masked secrets differ."
    } else {
        "Only formatting differs."
    }
}

pub(super) async fn deliver_anyway(
    remote: &GatewayArgs,
    event: &str,
    n: u32,
) -> Result<(), CliError> {
    let delivered = ApiClient::new(remote)?.call(calls::deliver_duplicate(event, n)).await?;
    let text = format!("Duplicate {n} of {event} delivered as {}", delivered.event_id);
    output::print_result(remote.json, &json!(delivered), &text)
}
