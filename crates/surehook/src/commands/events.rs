//! `surehook events`: lists, inspects and follows events.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use surehook_types::redact::MASK;

use super::{duplicates, timing};
use crate::{
    cli::{EventsCommand, GatewayArgs, PageArgs},
    client::{ApiClient, query_string},
    error::CliError,
    output,
};

const COLUMNS: [(&str, &str); 7] = [
    ("id", "id"),
    ("source", "source"),
    ("kind", "kind"),
    ("received", "received_at"),
    ("key", "key"),
    ("bytes", "body_bytes"),
    ("duplicates", "duplicate_count"),
];

/// Delay before `tail` reconnects, and how long it keeps trying.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(command: EventsCommand) -> Result<(), CliError> {
    match command {
        EventsCommand::List { source, key, attributes, search, paging, remote } => {
            let mut filter = vec![("source", source.as_deref()), ("key", key.as_deref())];
            filter.extend(attributes.pairs());
            filter.extend(search.pairs());
            list(&remote, &filter, &paging).await
        }
        EventsCommand::Show { id, remote } => show(&remote, &id).await,
        EventsCommand::Body { id, exact, remote } => body(&remote, &id, exact).await,
        EventsCommand::Duplicates { id, n: None, remote, .. } => {
            duplicates::list(&remote, &id).await
        }
        EventsCommand::Duplicates { id, n: Some(n), exact, remote } => {
            duplicates::show(&remote, &id, n, exact).await
        }
        EventsCommand::DeliverAnyway { id, n, remote } => {
            duplicates::deliver_anyway(&remote, &id, n).await
        }
        EventsCommand::Tail { source, remote } => tail(&remote, source.as_deref()).await,
    }
}

/// Prints a page of a list, and the cursor of the next page.
pub(super) fn print_list(
    remote: &GatewayArgs,
    answer: &Value,
    columns: &[(&str, &str)],
    empty: &str,
) -> Result<(), CliError> {
    let rows = answer["data"].as_array().cloned().unwrap_or_default();
    if remote.json {
        return Ok(output::print_json_lines(&rows)?);
    }
    let cursor = answer["next_cursor"].as_str();
    match (rows.is_empty(), cursor) {
        (true, None) => output::note(empty),
        // A page examines a limited number of rows.
        (true, Some(cursor)) => {
            output::note(&format!("No match so far. Continue with --cursor {cursor}"));
        }
        (false, _) => output::print_table(columns, &rows)?,
    }
    if let Some(cursor) = cursor.filter(|_| !rows.is_empty()) {
        output::note(&format!("\nNext page: --cursor {cursor}"));
    }
    Ok(())
}

async fn list(
    remote: &GatewayArgs,
    filter: &[(&str, Option<&str>)],
    paging: &PageArgs,
) -> Result<(), CliError> {
    let limit = paging.limit.to_string();
    let page = [("limit", Some(limit.as_str())), ("cursor", paging.cursor.as_deref())];
    let query = query_string(&[filter, &page].concat());
    let answer = ApiClient::new(remote)?.get(&format!("/events{query}")).await?;
    let empty = match filter.iter().any(|(_, value)| value.is_some()) {
        true => "No matching events.",
        false => "No events yet. Send one to /in/{source}.",
    };
    print_list(remote, &answer, &COLUMNS, empty)
}

async fn show(remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    let event = ApiClient::new(remote)?.get(&format!("/events/{id}")).await?;
    if remote.json {
        return Ok(output::print_line(&event.to_string())?);
    }
    let attributes = attribute_rows(&event["attributes"]);
    let names = [
        "id",
        "source",
        "kind",
        "key",
        "received_at",
        "body_bytes",
        "sha256",
        "duplicate_count",
        "last_duplicate_at",
    ];
    output::print_fields(&event, &names)?;
    if !attributes.is_empty() {
        output::print_line("")?;
        output::print_table(&[("attribute", "name"), ("value", "value")], &attributes)?;
    }
    let deliveries = event["deliveries"].as_array().cloned().unwrap_or_default();
    output::print_line("")?;
    if deliveries.is_empty() {
        output::print_line("No deliveries: no route matched.")?;
    } else {
        output::print_table(&DELIVERY_COLUMNS, &deliveries)?;
    }
    output::print_line("")?;
    let mut timeline = event["decisions"].as_array().cloned().unwrap_or_default();
    for entry in &mut timeline {
        let stages = timing::format_phases(&entry["detail"]["timing"]);
        if let (false, Some(text)) = (stages.is_empty(), entry["text"].as_str()) {
            entry["text"] = format!("{text} [{stages} ms]").into();
        }
    }
    Ok(output::print_table(&[("at", "at"), ("event", "text")], &timeline)?)
}

/// One row per value of each attribute.
fn attribute_rows(attributes: &Value) -> Vec<Value> {
    let names = attributes.as_object().into_iter().flatten();
    let pairs = names.flat_map(|(name, values)| {
        let values = values.as_array().into_iter().flatten();
        values.map(move |value| json!({ "name": name, "value": value }))
    });
    pairs.collect()
}

/// Writes only the body to standard output.
async fn body(remote: &GatewayArgs, id: &str, exact: bool) -> Result<(), CliError> {
    let list = if id.starts_with("dlv_") { "deliveries" } else { "events" };
    let query = query_string(&[("exact", exact.then_some("true"))]);
    let body = ApiClient::new(remote)?.get_bytes(&format!("/{list}/{id}/body{query}")).await?;
    output::write_bytes(&body)?;
    let mask = MASK.as_bytes();
    if !exact && body.windows(mask.len()).any(|window| window == mask) {
        output::note("\nnote: secrets are masked as •••. Use --exact to show them.");
    }
    Ok(())
}

const DELIVERY_COLUMNS: [(&str, &str); 6] = [
    ("delivery", "id"),
    ("destination", "destination"),
    ("status", "status"),
    ("attempts", "attempts"),
    ("reason", "reason"),
    ("due", "due_at"),
];

/// Prints new events from the gateway's stream. Reconnects after a broken connection and resumes there.
async fn tail(remote: &GatewayArgs, source: Option<&str>) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let query = query_string(&[("types", Some("event.received")), ("source", source)]);
    let path = format!("/stream{query}");
    let mut follower = StreamFollower { last_id: None, was_ready: false, down_since: None };
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            broken = follower.follow(&client, &path, remote) => broken?,
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(RECONNECT_DELAY) => {}
        }
    }
}

/// Position and connection state of `tail`.
struct StreamFollower {
    last_id: Option<String>,
    was_ready: bool,
    down_since: Option<Instant>,
}

impl StreamFollower {
    /// Follows until the connection breaks. An error means that reconnecting makes no sense.
    async fn follow(
        &mut self,
        client: &ApiClient,
        path: &str,
        remote: &GatewayArgs,
    ) -> Result<(), CliError> {
        let mut updates = match client.stream(path, self.last_id.as_deref()).await {
            Ok(updates) => updates,
            Err(failure) if self.should_reconnect(&failure) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        (self.was_ready, self.down_since) = (true, None);
        while let Some(event) = updates.next().await? {
            if let Some(id) = &event.id {
                self.last_id = Some(id.clone());
            }
            match event.kind.as_str() {
                "event.received" => {
                    let row: Value = serde_json::from_str(&event.data)?;
                    output::print_line(&if remote.json {
                        row.to_string()
                    } else {
                        format_row(&row)
                    })?;
                }
                "reset" => {
                    output::note("note: some events were missed. See `surehook events list`.");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn should_reconnect(&mut self, failure: &CliError) -> bool {
        let down_since = *self.down_since.get_or_insert_with(Instant::now);
        self.was_ready && failure.is_unreachable() && down_since.elapsed() < RECONNECT_TIMEOUT
    }
}

fn format_row(row: &Value) -> String {
    let fields =
        ["received_at", "source", "id", "kind", "key"].map(|name| output::format_value(&row[name]));
    fields.join("  ")
}
