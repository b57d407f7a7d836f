//! `surehook routes try`: tests a filter and a transform.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::files;
use crate::{
    cli::{GatewayArgs, RoutesCommand},
    client::ApiClient,
    error::CliError,
    output,
};

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
        output::print_line(&result.to_string())?;
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
