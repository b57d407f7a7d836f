//! `surehook clock`: whether the gateway trusts its clock, and confirming it.

use clap::Subcommand;
use serde_json::json;
use surehook_api::{ApiTransport as _, calls};
use surehook_core::clock::ClockStatus;

use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum ClockCommand {
    /// Show whether the gateway trusts its clock
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Show {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Confirm that the clock is right, so that history and keys expire by it again
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Confirm {
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

pub(super) async fn run(command: ClockCommand) -> Result<(), CliError> {
    let (remote, call) = match command {
        ClockCommand::Show { remote } => (remote, calls::get_clock()),
        ClockCommand::Confirm { remote } => (remote, calls::confirm_clock()),
    };
    let status = ApiClient::new(&remote)?.call(call).await?;
    output::print_result(remote.json, &json!(status), &describe(&status))
}

fn describe(status: &ClockStatus) -> String {
    let ClockStatus { in_doubt, now, expected, .. } = status;
    if !in_doubt {
        return format!("The clock is trusted: {now}");
    }
    format!(
        "The clock is in doubt: it says {now}, expected is {expected}. Nothing expires because of the \
         difference. Set the clock, or run `surehook clock confirm` if it is right."
    )
}
