//! `surehook destinations`: lists, pauses, resumes and probes destinations.

use clap::Subcommand;
use serde_json::{Value, json};
use surehook_api::{
    ApiTransport as _, calls,
    resources::{PauseRequest, ResumeRequest},
};
use surehook_core::destination::kind::DestinationKind;

use super::list::print_list;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationsCommand {
    /// List destinations and their health
    List {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Pause deliveries to a destination
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Pause {
        /// Destination name or id
        name: String,
        /// Reason (visible to your team)
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Resume deliveries to a destination
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Resume {
        /// Destination name or id
        name: String,
        /// Rate limit for the backlog, such as 100/s
        #[arg(long)]
        rate: Option<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Attempt the next due delivery now, even if the destination is paused or its circuit is open
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Probe {
        /// Destination name or id
        name: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

const COLUMNS: [(&str, &str); 8] = [
    ("name", "name"),
    ("health", "health"),
    ("kind", "kind"),
    ("url", "url"),
    ("paused", "paused"),
    ("circuit", "circuit"),
    ("cooling until", "cooling_until"),
    ("reason", "reason"),
];

pub(super) async fn run(command: DestinationsCommand) -> Result<(), CliError> {
    match command {
        DestinationsCommand::List { remote } => list(&remote).await,
        DestinationsCommand::Pause { name, reason, remote } => {
            let call = calls::pause_destination(&name, &PauseRequest { reason });
            let destination = ApiClient::new(&remote)?.call_json(call).await?;
            let text = format!("{name} paused. Its deliveries are held.");
            output::print_result(remote.json, &destination, &text)
        }
        DestinationsCommand::Resume { name, rate, remote } => {
            let rate = rate.map(|rate| rate.parse()).transpose().map_err(CliError::refused)?;
            let call = calls::resume_destination(&name, &ResumeRequest { rate });
            let destination = ApiClient::new(&remote)?.call_json(call).await?;
            output::print_result(remote.json, &destination, &format!("{name} resumed"))
        }
        DestinationsCommand::Probe { name, remote } => probe(&remote, &name).await,
    }
}

async fn list(remote: &GatewayArgs) -> Result<(), CliError> {
    let mut destinations = ApiClient::new(remote)?.call_json(calls::list_destinations()).await?;
    if !remote.json {
        // A table shows only flat fields.
        for row in destinations["data"].as_array_mut().into_iter().flatten() {
            for name in ["paused", "circuit", "cooling_until"] {
                row[name] = row["state"][name].clone();
            }
            row["reason"] = hold_reason(&row["state"]);
            row["health"] = row["health"]["status"].clone();
            if row["kind"].is_null() {
                row["kind"] = json!(DestinationKind::default().as_str());
            }
        }
    }
    print_list(remote, &destinations, &COLUMNS, "No destinations.")
}

/// Why deliveries are held.
fn hold_reason(state: &Value) -> Value {
    let hold = &state["hold"];
    match (&state["pause"]["reason"], hold["reason"].as_str(), hold["until"].as_str()) {
        (Value::Null, Some(reason), Some(until)) => json!(format!("{reason} until {until}")),
        (reason, ..) => reason.clone(),
    }
}

async fn probe(remote: &GatewayArgs, name: &str) -> Result<(), CliError> {
    let probe = ApiClient::new(remote)?.call(calls::probe_destination(name)).await?;
    let result = if probe.succeeded { "delivered" } else { "failed" };
    let outcome = match (probe.attempt.status, probe.attempt.failure) {
        (Some(status), _) => json!(status),
        (None, failure) => json!(failure),
    };
    let text = format!("{} {result}: {}", probe.delivery, output::format_value(&outcome));
    output::print_result(remote.json, &json!(probe), &text)
}
