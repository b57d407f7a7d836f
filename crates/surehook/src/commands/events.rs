//! `surehook events`: what came in.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use surehook_core::redact::MASK;

use super::{duplicates, timing};
use crate::{
    cli::{EventsCommand, Paging, Remote},
    client::{Client, query},
    failure::Failure,
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

/// How long `tail` waits before it connects again, and how long it goes on trying.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

pub(super) async fn run(command: EventsCommand) -> Result<(), Failure> {
    match command {
        EventsCommand::List { source, key, about, found, paging, remote } => {
            let mut filter = vec![("source", source.as_deref()), ("key", key.as_deref())];
            filter.extend(about.pairs());
            filter.extend(found.pairs());
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
    let cursor = answer["next_cursor"].as_str();
    match (rows.is_empty(), cursor) {
        (true, None) => output::note(nothing),
        // A page looks at so many rows and no more.
        (true, Some(cursor)) => {
            output::note(&format!("nothing so far; go on with --cursor {cursor}"));
        }
        (false, _) => output::table(columns, &rows)?,
    }
    if let Some(cursor) = cursor.filter(|_| !rows.is_empty()) {
        output::note(&format!("\nmore with --cursor {cursor}"));
    }
    Ok(())
}

async fn list(
    remote: &Remote,
    filter: &[(&str, Option<&str>)],
    paging: &Paging,
) -> Result<(), Failure> {
    let limit = paging.limit.to_string();
    let place = [("limit", Some(limit.as_str())), ("cursor", paging.cursor.as_deref())];
    let query = query(&[filter, &place].concat());
    let answer = Client::new(remote)?.get(&format!("/events{query}")).await?;
    let nothing = match filter.iter().any(|(_, value)| value.is_some()) {
        true => "No such event.",
        false => "No events yet. Send one to /in/{source}.",
    };
    print_list(remote, &answer, &COLUMNS, nothing)
}

async fn show(remote: &Remote, id: &str) -> Result<(), Failure> {
    let event = Client::new(remote)?.get(&format!("/events/{id}")).await?;
    if remote.json {
        return Ok(output::line(&event.to_string())?);
    }
    let attributes = flat(&event["attributes"]);
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
    output::fields(&event, &names)?;
    if !attributes.is_empty() {
        output::line("")?;
        output::table(&[("attribute", "name"), ("value", "value")], &attributes)?;
    }
    let deliveries = event["deliveries"].as_array().cloned().unwrap_or_default();
    output::line("")?;
    if deliveries.is_empty() {
        output::line("No delivery: no route of its source matched.")?;
    } else {
        output::table(&DELIVERY_COLUMNS, &deliveries)?;
    }
    output::line("")?;
    let mut story = event["decisions"].as_array().cloned().unwrap_or_default();
    for entry in &mut story {
        let stages = timing::in_words(&entry["detail"]["timing"]);
        if let (false, Some(text)) = (stages.is_empty(), entry["text"].as_str()) {
            entry["text"] = format!("{text} [{stages} ms]").into();
        }
    }
    Ok(output::table(&[("at", "at"), ("what happened", "text")], &story)?)
}

/// Each value of each attribute as a row.
fn flat(attributes: &Value) -> Vec<Value> {
    let names = attributes.as_object().into_iter().flatten();
    let pairs = names.flat_map(|(name, values)| {
        let values = values.as_array().into_iter().flatten();
        values.map(move |value| json!({ "name": name, "value": value }))
    });
    pairs.collect()
}

/// Writes a body out as it is, without a line of ours.
async fn body(remote: &Remote, id: &str, exact: bool) -> Result<(), Failure> {
    let list = if id.starts_with("dlv_") { "deliveries" } else { "events" };
    let query = query(&[("exact", exact.then_some("true"))]);
    let body = Client::new(remote)?.get_bytes(&format!("/{list}/{id}/body{query}")).await?;
    output::bytes(&body)?;
    let mask = MASK.as_bytes();
    if !exact && body.windows(mask.len()).any(|window| window == mask) {
        output::note("\nnote: secrets are masked as •••; --exact shows them");
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

/// Prints events as they come, from the gateway's stream. A connection that breaks is made anew and
/// goes on where it was.
async fn tail(remote: &Remote, source: Option<&str>) -> Result<(), Failure> {
    let client = Client::new(remote)?;
    let query = query(&[("types", Some("event.received")), ("source", source)]);
    let path = format!("/stream{query}");
    let mut follower = Follower { last_id: None, was_ready: false, down_since: None };
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            broken = follower.follow(&client, &path, remote) => broken?,
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(COME_BACK_AFTER) => {}
        }
    }
}

/// Where a tail is.
struct Follower {
    last_id: Option<String>,
    was_ready: bool,
    down_since: Option<Instant>,
}

impl Follower {
    /// Follows until the connection breaks. Fails if it should not be tried again.
    async fn follow(
        &mut self,
        client: &Client,
        path: &str,
        remote: &Remote,
    ) -> Result<(), Failure> {
        let mut news = match client.stream(path, self.last_id.as_deref()).await {
            Ok(news) => news,
            Err(failure) if self.may_come_back(&failure) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        (self.was_ready, self.down_since) = (true, None);
        while let Some(event) = news.next().await? {
            if let Some(id) = &event.id {
                self.last_id = Some(id.clone());
            }
            match event.kind.as_str() {
                "event.received" => {
                    let row: Value = serde_json::from_str(&event.data)?;
                    output::line(&if remote.json { row.to_string() } else { summary(&row) })?;
                }
                "reset" => {
                    output::note("note: some events are missing here; `events list` has them");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn may_come_back(&mut self, failure: &Failure) -> bool {
        let down_since = *self.down_since.get_or_insert_with(Instant::now);
        self.was_ready && failure.is_unreachable() && down_since.elapsed() < GIVE_UP_AFTER
    }
}

fn summary(row: &Value) -> String {
    let fields =
        ["received_at", "source", "id", "kind", "key"].map(|name| output::cell(&row[name]));
    fields.join("  ")
}
