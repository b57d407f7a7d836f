//! `surehook sources`: lists sources.

use serde_json::json;

use super::events::print_list;
use crate::{cli::SourcesCommand, client::ApiClient, error::CliError};

const COLUMNS: [(&str, &str); 5] = [
    ("name", "name"),
    ("provider", "provider"),
    ("verification", "verification"),
    ("path", "path"),
    ("enabled", "enabled"),
];

pub(super) async fn run(command: SourcesCommand) -> Result<(), CliError> {
    let SourcesCommand::List { remote } = command;
    let mut answer = ApiClient::new(&remote)?.get("/sources").await?;
    if !remote.json {
        for row in answer["data"].as_array_mut().into_iter().flatten() {
            let is_verified = row["verified"] == true;
            row["verification"] = json!(if is_verified { "verified" } else { "unverified" });
            row["path"] = json!(format!("/in/{}", row["name"].as_str().unwrap_or_default()));
        }
    }
    print_list(&remote, &answer, &COLUMNS, "No sources.")
}
