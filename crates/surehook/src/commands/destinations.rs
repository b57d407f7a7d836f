//! `surehook destinations`: lists, pauses, resumes and probes destinations.

use serde_json::{Value, json};
use surehook_core::destination::kind::DestinationKind;

use super::events::print_list;
use crate::{
    cli::{DestinationsCommand, GatewayArgs},
    client::ApiClient,
    error::CliError,
    output,
};

const COLUMNS: [(&str, &str); 7] = [
    ("name", "name"),
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
            let path = format!("/destinations/{name}/pause");
            let request = json!({ "reason": reason });
            let destination = ApiClient::new(&remote)?.post_json(&path, &request).await?;
            print_result(&remote, &destination, &format!("{name} paused. Its deliveries are held."))
        }
        DestinationsCommand::Resume { name, rate, remote } => {
            let path = format!("/destinations/{name}/resume");
            let request = json!({ "rate": rate });
            let destination = ApiClient::new(&remote)?.post_json(&path, &request).await?;
            print_result(&remote, &destination, &format!("{name} resumed"))
        }
        DestinationsCommand::Probe { name, remote } => probe(&remote, &name).await,
    }
}

fn print_result(remote: &GatewayArgs, response: &Value, text: &str) -> Result<(), CliError> {
    let line = if remote.json { response.to_string() } else { text.to_owned() };
    Ok(output::print_line(&line)?)
}

async fn list(remote: &GatewayArgs) -> Result<(), CliError> {
    let mut answer = ApiClient::new(remote)?.get("/destinations").await?;
    if !remote.json {
        // A table shows only flat fields.
        for row in answer["data"].as_array_mut().into_iter().flatten() {
            for name in ["paused", "circuit", "cooling_until"] {
                row[name] = row["state"][name].clone();
            }
            row["reason"] = hold_reason(&row["state"]);
            if row["kind"].is_null() {
                row["kind"] = json!(DestinationKind::default().as_str());
            }
        }
    }
    print_list(remote, &answer, &COLUMNS, "No destinations.")
}

/// Why deliveries are held.
fn hold_reason(state: &Value) -> Value {
    let hold = &state["hold"];
    match (&state["pause"]["reason"], hold["why"].as_str(), hold["until"].as_str()) {
        (Value::Null, Some(why), Some(until)) => json!(format!("{why} until {until}")),
        (reason, ..) => reason.clone(),
    }
}

async fn probe(remote: &GatewayArgs, name: &str) -> Result<(), CliError> {
    let path = format!("/destinations/{name}/probe");
    let result = ApiClient::new(remote)?.post(&path).await?;
    let attempt = &result["attempt"];
    let outcome =
        if attempt["status"].is_null() { &attempt["failure"] } else { &attempt["status"] };
    let verb = if result["succeeded"] == true { "delivered" } else { "failed" };
    let text = format!(
        "{} {verb}: {}",
        output::format_value(&result["delivery"]),
        output::format_value(outcome)
    );
    print_result(remote, &result, &text)
}
