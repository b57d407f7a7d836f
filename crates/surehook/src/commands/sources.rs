//! `surehook sources`: lists sources.

use clap::Subcommand;
use serde_json::json;
use surehook_api::calls;

use super::list::print_list;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError};

#[derive(Debug, Subcommand)]
pub(crate) enum SourcesCommand {
    /// List sources and whether they verify signatures
    List {
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

const COLUMNS: [(&str, &str); 5] = [
    ("name", "name"),
    ("provider", "provider"),
    ("verification", "verification"),
    ("path", "path"),
    ("enabled", "enabled"),
];

pub(super) async fn run(command: SourcesCommand) -> Result<(), CliError> {
    let SourcesCommand::List { remote } = command;
    let mut sources = ApiClient::new(&remote)?.call_json(calls::list_sources()).await?;
    if !remote.json {
        for row in sources["data"].as_array_mut().into_iter().flatten() {
            let is_verified = row["verified"] == true;
            row["verification"] = json!(if is_verified { "verified" } else { "unverified" });
            row["path"] = json!(format!("/in/{}", row["name"].as_str().unwrap_or_default()));
        }
    }
    print_list(&remote, &sources, &COLUMNS, "No sources.")
}
