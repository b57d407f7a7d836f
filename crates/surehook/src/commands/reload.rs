//! `surehook reload`: applies the settings file of a running gateway.

use clap::Args;
use serde_json::json;
use surehook_api::{ApiTransport as _, calls, reload::ReloadResponse};

use crate::{
    cli::GatewayArgs,
    client::ApiClient,
    error::CliError,
    output::{self, OutputStyle, style},
};

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    remote: GatewayArgs,
}

pub(super) async fn run(args: &ReloadArgs) -> Result<(), CliError> {
    let report = ApiClient::new(&args.remote)?.call(calls::reload_settings()).await;
    // The detail names file, line and column; the status adds nothing.
    let report = report.map_err(|error: CliError| error.describe_refusal(ToOwned::to_owned))?;
    if args.remote.json {
        return output::print_line(json!(report));
    }
    let ReloadResponse { file, applied, needs_restart, created, updated, unchanged } = report;
    let groups = [("+", &created), ("~", &updated), ("~", &applied)];
    for (sign, names) in groups {
        for name in names {
            let line = format!("{sign} {}", output::escape_control(name));
            output::print_line(style(OutputStyle::Success, &line))?;
        }
    }
    for name in &needs_restart {
        let line = format!("! {} needs a restart", output::escape_control(name));
        output::print_line(style(OutputStyle::Warning, &line))?;
    }
    let file = file.unwrap_or_else(|| "no settings file".to_owned());
    output::note(&format!(
        "{}: {} created, {} updated, {unchanged} unchanged, {} settings applied, {} need a restart",
        output::escape_control(&file),
        created.len(),
        updated.len(),
        applied.len(),
        needs_restart.len()
    ));
    Ok(())
}
