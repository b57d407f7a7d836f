//! `surehook destinations`: how they do, and holding them back.

use serde_json::{Value, json};
use surehook_core::destination::kind::DestinationKind;

use super::events::print_list;
use crate::{
    cli::{DestinationsCommand, Remote},
    client::Client,
    failure::Failure,
    output,
};

const COLUMNS: [(&str, &str); 7] = [
    ("name", "name"),
    ("kind", "kind"),
    ("url", "url"),
    ("paused", "paused"),
    ("circuit", "circuit"),
    ("cooling until", "cooling_until"),
    ("why", "reason"),
];

pub(super) async fn run(command: DestinationsCommand) -> Result<(), Failure> {
    match command {
        DestinationsCommand::List { remote } => list(&remote).await,
        DestinationsCommand::Pause { name, reason, remote } => {
            let path = format!("/destinations/{name}/pause");
            let wish = json!({ "reason": reason });
            let shown = Client::new(&remote)?.post_json(&path, &wish).await?;
            said(&remote, &shown, &format!("{name} is paused; what it is owed is held"))
        }
        DestinationsCommand::Resume { name, rate, remote } => {
            let path = format!("/destinations/{name}/resume");
            let wish = json!({ "rate": rate });
            let shown = Client::new(&remote)?.post_json(&path, &wish).await?;
            said(&remote, &shown, &format!("{name} is resumed"))
        }
        DestinationsCommand::Probe { name, remote } => probe(&remote, &name).await,
    }
}

fn said(remote: &Remote, answer: &Value, text: &str) -> Result<(), Failure> {
    let line = if remote.json { answer.to_string() } else { text.to_owned() };
    Ok(output::line(&line)?)
}

async fn list(remote: &Remote) -> Result<(), Failure> {
    let mut answer = Client::new(remote)?.get("/destinations").await?;
    if !remote.json {
        // A table has no room for an object in an object.
        for row in answer["data"].as_array_mut().into_iter().flatten() {
            for name in ["paused", "circuit", "cooling_until"] {
                row[name] = row["state"][name].clone();
            }
            row["reason"] = why(&row["state"]);
            if row["kind"].is_null() {
                row["kind"] = json!(DestinationKind::default().as_str());
            }
        }
    }
    print_list(remote, &answer, &COLUMNS, "No destinations.")
}

/// Why nothing goes there.
fn why(state: &Value) -> Value {
    let hold = &state["hold"];
    match (&state["pause"]["reason"], hold["why"].as_str(), hold["until"].as_str()) {
        (Value::Null, Some(why), Some(until)) => json!(format!("{why} until {until}")),
        (reason, ..) => reason.clone(),
    }
}

async fn probe(remote: &Remote, name: &str) -> Result<(), Failure> {
    let path = format!("/destinations/{name}/probe");
    let probed = Client::new(remote)?.post(&path).await?;
    let attempt = &probed["attempt"];
    let came = if attempt["status"].is_null() { &attempt["failure"] } else { &attempt["status"] };
    let how = if probed["succeeded"] == true { "arrived" } else { "failed" };
    let text = format!("{} {how}: {}", output::cell(&probed["delivery"]), output::cell(came));
    said(remote, &probed, &text)
}
