//! `surehook routes try`: tests a filter and a transform.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::{Value, json};

use super::files;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum RoutesCommand {
    /// Test a filter and a transform on an event; changes and sends nothing
    #[command(mut_arg("data", |data| data.hide(true)))]
    Try {
        /// Filter in jq
        #[arg(long, required_unless_present = "transform")]
        filter: Option<String>,
        /// Transform in jq
        #[arg(long)]
        transform: Option<String>,
        /// Event whose body is used
        #[arg(long, value_name = "ID", conflicts_with = "body")]
        event: Option<String>,
        /// File to use as the body instead; `-` reads standard input
        #[arg(long, value_name = "FILE", required_unless_present = "event")]
        body: Option<PathBuf>,
        /// Use the event's body with its secrets (role operator)
        #[arg(long, requires = "event")]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

pub(super) async fn run(command: RoutesCommand) -> Result<(), CliError> {
    let RoutesCommand::Try { filter, transform, event, body, exact, remote } = command;
    let body = body.as_deref().map(files::read_text).transpose()?;
    let request = json!({
        "filter": filter,
        "transform": transform,
        "event": event,
        "body": body,
        "exact": exact,
    });
    let result = ApiClient::new(&remote)?.post_json("/routes/try", &request).await?;
    print_result(&remote, &result)
}

fn print_result(remote: &GatewayArgs, result: &Value) -> Result<(), CliError> {
    if remote.json {
        output::print_line(result)?;
    } else {
        match result["matches"].as_bool() {
            Some(true) => output::note("The filter matches."),
            Some(false) => output::note("The filter does not match."),
            None => {}
        }
        if result["dropped"] == true {
            output::note("The transform drops the event: nothing would be sent.");
        }
        if let Some(sent) = result["output"].as_str() {
            output::print_line(sent)?;
        }
        if result["masked"].as_u64().is_some_and(|masked| masked > 0) {
            output::note("note: secrets were masked as •••. Use --exact to include them.");
        }
    }
    let errors: Vec<&str> = ["filter_error", "transform_error"]
        .iter()
        .filter_map(|name| result[name].as_str())
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(CliError::refused(anyhow!("{}", errors.join("; "))))
}
