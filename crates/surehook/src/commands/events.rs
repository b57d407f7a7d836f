//! `surehook events`: lists, inspects and follows events.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use surehook_api::{ApiCall, ApiTransport as _, calls};
use surehook_types::redact::MASK;
use surehook_webhooks::attribute::AttributeName;

use super::{duplicates, list::print_page, timing};
use crate::{
    cli::{GatewayArgs, PageArgs},
    client::ApiClient,
    error::CliError,
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// List events, newest first
    List(Box<EventListArgs>),
    /// Show an event with its deliveries and timeline
    Show {
        /// Event id
        id: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Print the body of an event or delivery, secrets masked
    Body {
        /// Event or delivery id
        id: String,
        /// Print the exact bytes, including secrets (role operator)
        #[arg(long)]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// List the duplicates of an event, or compare one with the event
    Duplicates {
        /// Event id
        id: String,
        /// Number of the duplicate to compare
        n: Option<u32>,
        /// Compare the exact bytes, including secrets (role operator)
        #[arg(long, requires = "n")]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Deliver a duplicate anyway, as a new event; works once per duplicate
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    DeliverAnyway {
        /// Id of the original event
        id: String,
        /// Number of the duplicate, from `events duplicates`
        n: u32,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Follow new events until interrupted
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Tail {
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EventListArgs {
    /// Filter by source
    #[arg(long)]
    source: Option<String>,
    /// Filter by current deduplication key; at most one event per source
    #[arg(long)]
    key: Option<String>,
    /// Filter by event kind, such as message
    #[arg(long)]
    kind: Option<String>,
    /// Filter by phone number of sender or recipient, in any form
    #[arg(long)]
    phone: Option<String>,
    /// Filter by attribute, such as `message_id=wamid.A`; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_attribute)]
    attribute: Vec<(String, String)>,
    /// Filter by delivery status, such as dead
    #[arg(long)]
    status: Option<String>,
    /// Filter by destination of a delivery
    #[arg(long)]
    destination: Option<String>,
    /// Filter by reason of a dead delivery
    #[arg(long)]
    reason: Option<String>,
    /// Filter by failure class of the last attempt, such as transient
    #[arg(long)]
    class: Option<String>,
    /// Filter by HTTP status of the last attempt: 503, or 5xx
    #[arg(long)]
    code: Option<String>,
    /// Filter by a value in the body, such as `data.object.id=42`; repeatable
    #[arg(long, value_name = "PATH=VALUE", value_parser = parse_body_filter)]
    body: Vec<(String, String)>,
    #[command(flatten)]
    page: PageArgs,
}

impl EventListArgs {
    /// The query parameters that are set.
    fn filter(&self) -> Vec<(&str, &str)> {
        let single = [
            ("source", &self.source),
            ("key", &self.key),
            ("kind", &self.kind),
            ("phone", &self.phone),
            ("status", &self.status),
            ("destination", &self.destination),
            ("reason", &self.reason),
            ("class", &self.class),
            ("code", &self.code),
        ];
        let single = single.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let repeated = self.attribute.iter().chain(&self.body);
        single.chain(repeated.map(|(name, value)| (name.as_str(), value.as_str()))).collect()
    }
}

fn parse_body_filter(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (path, value) = pair.ok_or("expected PATH=VALUE, such as data.object.id=42")?;
    Ok((format!("body.{path}"), value.to_owned()))
}

fn parse_attribute(text: &str) -> Result<(String, String), String> {
    let known = || AttributeName::ALL.map(AttributeName::as_str).join(", ");
    let pair = text.split_once('=');
    let (name, value) = pair.ok_or("expected NAME=VALUE, such as message_id=wamid.A")?;
    let name = AttributeName::parse(name)
        .ok_or_else(|| format!("unknown attribute; use one of: {}", known()))?;
    Ok((name.as_str().to_owned(), value.to_owned()))
}

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
        EventsCommand::List(args) => {
            let filter = args.filter();
            let empty = match filter.is_empty() {
                true => "No events yet. Send one to /in/{source}.",
                false => "No matching events.",
            };
            let call = filter
                .into_iter()
                .fold(calls::list_events(), |call, (name, value)| call.query(name, value));
            print_page(&args.page, call, &COLUMNS, empty).await
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

async fn show(remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    let event = ApiClient::new(remote)?.call_json(calls::get_event(id)).await?;
    if remote.json {
        return output::print_line(&event);
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
        let phases = timing::format_phases(&entry["detail"]["timing"]);
        if let (false, Some(text)) = (phases.is_empty(), entry["text"].as_str()) {
            entry["text"] = format!("{text} [{phases} ms]").into();
        }
    }
    output::print_table(&[("at", "at"), ("event", "text")], &timeline)
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
    let call = match id.starts_with("dlv_") {
        true => calls::get_delivery_body(id),
        false => calls::get_event_body(id),
    };
    let call = call.query_some("exact", exact.then_some("true"));
    let body = ApiClient::new(remote)?.call_raw(call).await?.into_body();
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
    let call =
        calls::stream_updates().query("types", "event.received").query_some("source", source);
    let mut follower = StreamFollower { last_id: None, was_ready: false, down_since: None };
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            broken = follower.follow(&client, call.clone(), remote) => broken?,
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
        call: ApiCall<Bytes>,
        remote: &GatewayArgs,
    ) -> Result<(), CliError> {
        let mut updates = match client.stream(call, self.last_id.as_deref()).await {
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
                    output::print_result(remote.json, &row, &format_row(&row))?;
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
