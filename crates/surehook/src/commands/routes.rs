//! `surehook routes try`: tests a filter and a transform.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::{json, value::to_raw_value};
use surehook_api::{
    ApiTransport as _, calls,
    resources::{TryRouteRequest, TryRouteResponse},
};

use super::files;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum RoutesCommand {
    /// Test a filter and a transform on an event; changes and sends nothing
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
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
        /// Also test the filter on the recent events of this source [default: that of the event]
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Kind of the event in the file
        #[arg(long, requires = "body")]
        kind: Option<String>,
        /// Header of the event in the file, such as 'x-github-event: push'; repeatable
        #[arg(short = 'H', long = "header", value_name = "HEADER", requires = "body")]
        headers: Vec<String>,
        /// Use the event's body with its secrets (role operator)
        #[arg(long, requires = "event")]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

pub(super) async fn run(command: RoutesCommand) -> Result<(), CliError> {
    let RoutesCommand::Try { filter, transform, event, body, source, kind, headers, exact, remote } =
        command;
    let headers = headers.iter().map(|header| parse_header(header)).collect::<Result<_, _>>()?;
    let source = source.map(|name| name.parse()).transpose().map_err(CliError::refused)?;
    let body = body.as_deref().map(files::read_text).transpose()?;
    let body = body.map(|body| to_raw_value(&body)).transpose()?;
    let event = event.map(|id| id.parse()).transpose().map_err(CliError::refused)?;
    let request = TryRouteRequest { filter, transform, event, body, source, kind, headers, exact };
    let result = ApiClient::new(&remote)?.call(calls::try_route(&request)).await?;
    if remote.json {
        output::print_line(json!(result))?;
    } else {
        print_result(&result)?;
    }
    let errors: Vec<String> =
        [result.filter_error, result.transform_error].into_iter().flatten().collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(CliError::refused(anyhow!("{}", errors.join("; ")))),
    }
}

fn parse_header(header: &str) -> Result<(String, String), CliError> {
    let (name, value) = header.split_once(':').ok_or_else(|| {
        CliError::refused(anyhow!("--header `{header}`: write it as `name: value`"))
    })?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn print_result(result: &TryRouteResponse) -> Result<(), CliError> {
    match result.matches {
        Some(true) => output::note("The filter matches."),
        Some(false) => output::note("The filter does not match."),
        None => {}
    }
    if result.dropped {
        output::note("The transform drops the event: nothing would be sent.");
    }
    if let Some(text) = &result.output {
        output::print_line(text)?;
    }
    if let Some(warning) = result.recent.as_ref().and_then(|recent| recent.warning.as_ref()) {
        output::note(&format!("warning: {warning}"));
    }
    if result.masked > 0 {
        output::note("note: secrets were masked as •••. Use --exact to include them.");
    }
    Ok(())
}
