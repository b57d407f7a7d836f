//! `surehook events`: what came in.

use std::{collections::HashSet, time::Duration};

use serde_json::Value;

use crate::{
    cli::{EventsCommand, Paging, Remote},
    client::{Client, query},
    failure::Failure,
    output,
};

const COLUMNS: [(&str, &str); 6] = [
    ("id", "id"),
    ("source", "source"),
    ("received", "received_at"),
    ("key", "key"),
    ("bytes", "body_bytes"),
    ("duplicates", "duplicate_count"),
];

/// How often `tail` looks.
const TAIL_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(command: EventsCommand) -> Result<(), Failure> {
    match command {
        EventsCommand::List { source, key, paging, remote } => {
            list(&remote, source.as_deref(), key.as_deref(), &paging).await
        }
        EventsCommand::Show { id, remote } => show(&remote, &id).await,
        EventsCommand::Tail { source, remote } => tail(&remote, source.as_deref()).await,
    }
}

/// Prints a page of a list and how to get the next one.
pub(super) fn print_list(
    remote: &Remote,
    answer: &Value,
    columns: &[(&str, &str)],
    nothing: &str,
) -> Result<(), Failure> {
    let rows = answer["data"].as_array().cloned().unwrap_or_default();
    if remote.json {
        return Ok(output::json_lines(&rows)?);
    }
    if rows.is_empty() {
        output::note(nothing);
        return Ok(());
    }
    output::table(columns, &rows)?;
    if let Some(cursor) = answer["next_cursor"].as_str() {
        output::note(&format!("\nmore with --cursor {cursor}"));
    }
    Ok(())
}

async fn list(
    remote: &Remote,
    source: Option<&str>,
    key: Option<&str>,
    paging: &Paging,
) -> Result<(), Failure> {
    let limit = paging.limit.to_string();
    let query = query(&[
        ("source", source),
        ("key", key),
        ("limit", Some(&limit)),
        ("cursor", paging.cursor.as_deref()),
    ]);
    let answer = Client::new(remote)?.get(&format!("/events{query}")).await?;
    print_list(remote, &answer, &COLUMNS, "No events yet. Send one to /in/{source}.")
}

async fn show(remote: &Remote, id: &str) -> Result<(), Failure> {
    let event = Client::new(remote)?.get(&format!("/events/{id}")).await?;
    if remote.json {
        return Ok(output::line(&event.to_string())?);
    }
    let names = [
        "id",
        "source",
        "key",
        "received_at",
        "body_bytes",
        "sha256",
        "duplicate_count",
        "last_duplicate_at",
    ];
    output::fields(&event, &names)?;
    let deliveries = event["deliveries"].as_array().cloned().unwrap_or_default();
    output::line("")?;
    if deliveries.is_empty() {
        output::line("No delivery: no route of its source matched.")?;
    } else {
        output::table(&DELIVERY_COLUMNS, &deliveries)?;
    }
    output::line("")?;
    let story = event["decisions"].as_array().cloned().unwrap_or_default();
    Ok(output::table(&[("at", "at"), ("what happened", "text")], &story)?)
}

const DELIVERY_COLUMNS: [(&str, &str); 6] = [
    ("delivery", "id"),
    ("destination", "destination"),
    ("status", "status"),
    ("attempts", "attempts"),
    ("reason", "reason"),
    ("due", "due_at"),
];

async fn tail(remote: &Remote, source: Option<&str>) -> Result<(), Failure> {
    let client = Client::new(remote)?;
    let query = query(&[("source", source), ("limit", Some("200"))]);
    let path = format!("/events{query}");
    let mut seen: HashSet<String> = ids(&client.get(&path).await?);
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(TAIL_EVERY) => {}
        }
        let answer = client.get(&path).await?;
        for row in answer["data"].as_array().into_iter().flatten().rev() {
            if row["id"].as_str().is_some_and(|id| seen.contains(id)) {
                continue;
            }
            output::line(&if remote.json { row.to_string() } else { summary(row) })?;
        }
        // Only the latest page can come back, so no more need be remembered.
        seen = ids(&answer);
    }
}

fn ids(answer: &Value) -> HashSet<String> {
    let rows = answer["data"].as_array().into_iter().flatten();
    rows.filter_map(|row| row["id"].as_str().map(str::to_owned)).collect()
}

fn summary(row: &Value) -> String {
    let fields = ["received_at", "source", "id", "key"].map(|name| output::cell(&row[name]));
    fields.join("  ")
}
