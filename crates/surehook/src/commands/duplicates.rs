//! `surehook events duplicates` and `deliver-anyway`: what came again, and what is none of these.

use serde_json::Value;

use crate::{
    cli::Remote,
    client::{Client, query},
    failure::Failure,
    output,
};

const COLUMNS: [(&str, &str); 4] = [
    ("n", "n"),
    ("seen", "seen_at"),
    ("bytes differ", "bytes_differ"),
    ("delivered as", "delivered_as"),
];

const CHANGES: [(&str, &str); 4] =
    [("where", "path"), ("change", "change"), ("before", "before"), ("after", "after")];

/// All that are kept of an event.
pub(super) async fn list(remote: &Remote, event: &str) -> Result<(), Failure> {
    let shown = Client::new(remote)?.get(&format!("/events/{event}")).await?;
    let rows = shown["duplicates"].as_array().cloned().unwrap_or_default();
    if remote.json {
        return Ok(output::json_lines(&rows)?);
    }
    if rows.is_empty() {
        output::note("No duplicates of it were seen.");
        return Ok(());
    }
    output::table(&COLUMNS, &rows)?;
    let all = shown["duplicate_count"].as_u64().unwrap_or(0);
    if all > rows.len() as u64 {
        output::note(&format!("\nit came again {all} times; these are kept"));
    }
    Ok(())
}

/// What differs in one.
pub(super) async fn show(remote: &Remote, event: &str, n: u32, exact: bool) -> Result<(), Failure> {
    let query = query(&[("exact", exact.then_some("true"))]);
    let path = format!("/events/{event}/duplicates/{n}{query}");
    let shown = Client::new(remote)?.get(&path).await?;
    if remote.json {
        return Ok(output::line(&shown.to_string())?);
    }
    output::fields(&shown, &["n", "at", "gap_ms", "same_bytes", "body_kept", "delivered_as"])?;
    output::line("")?;
    let changes = shown["diff"].as_array().cloned().unwrap_or_default();
    if changes.is_empty() {
        return Ok(output::line(nothing_differs(&shown))?);
    }
    output::table(&CHANGES, &changes)?;
    if shown["truncated"] == true {
        output::note("\nnote: this is not all; something was cut");
    }
    if shown["masked"].as_u64().unwrap_or(0) > 0 {
        output::note("\nnote: secrets are masked as ••• and not compared; --exact compares them");
    }
    Ok(())
}

fn nothing_differs(shown: &Value) -> &'static str {
    if shown["same_bytes"] == true {
        "The bytes are the same."
    } else if shown["compared_as"].is_null() {
        "The bytes differ; retention has removed them."
    } else if shown["masked"].as_u64().unwrap_or(0) > 0 {
        "Nothing differs but how it is written, or a secret that is masked."
    } else {
        "Nothing differs but how it is written."
    }
}

/// Makes an event of one.
pub(super) async fn deliver_anyway(remote: &Remote, event: &str, n: u32) -> Result<(), Failure> {
    let path = format!("/events/{event}/duplicates/{n}/deliver");
    let answer = Client::new(remote)?.post(&path).await?;
    if remote.json {
        return Ok(output::line(&answer.to_string())?);
    }
    let new = output::cell(&answer["event_id"]);
    Ok(output::line(&format!("duplicate {n} of {event} is delivered as {new}"))?)
}
