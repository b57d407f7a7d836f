//! `surehook alerts`: what fires, what has fired, and test messages to channels.

use clap::Subcommand;
use serde_json::{Value, json};
use surehook_api::{
    ApiTransport as _,
    alerts::{AlertResponse, AlertsResponse, TestAlertResponse},
    calls,
};

use super::list::Columns;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// List what fires, and the channels
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    List {
        /// Also list what has been resolved
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Send a test message to an alert channel
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Test {
        /// Name of the channel: a destination with `alerts`
        channel: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

const ALERTS: &Columns = &[
    ("status", "status"),
    ("subject", "subject"),
    ("rule", "rule"),
    ("summary", "summary"),
    ("since", "fired_at"),
    ("until", "resolved_at"),
];
const CHANNELS: &Columns =
    &[("channel", "destination"), ("kind", "kind"), ("format", "format"), ("health", "health")];

pub(super) async fn run(command: AlertsCommand) -> Result<(), CliError> {
    match command {
        AlertsCommand::List { all, remote } => {
            let alerts = ApiClient::new(&remote)?.call(calls::list_alerts()).await?;
            if remote.json {
                return output::print_line(json!(alerts));
            }
            print_alerts(&alerts, all)
        }
        AlertsCommand::Test { channel, remote } => {
            let sent = ApiClient::new(&remote)?.call(calls::test_alert_channel(&channel)).await?;
            output::print_result(remote.json, &json!(sent), &describe_test(&sent))
        }
    }
}

fn describe_test(sent: &TestAlertResponse) -> String {
    let events: Vec<String> = sent.events.iter().map(ToString::to_string).collect();
    format!(
        "A test message to {} is on its way. Whether it arrived: surehook events show {}",
        sent.channel,
        events.join(", ")
    )
}

fn print_alerts(alerts: &AlertsResponse, all: bool) -> Result<(), CliError> {
    let mut shown: Vec<&AlertResponse> = alerts.active.iter().collect();
    if all {
        shown.extend(&alerts.past);
    }
    match shown.is_empty() {
        true => output::note("Nothing fires."),
        false => {
            let rows: Vec<Value> = shown.iter().map(|alert| alert_row(alert)).collect();
            output::print_table(ALERTS, &rows)?;
        }
    }
    output::print_line("")?;
    if alerts.channels.is_empty() {
        output::note(
            "No alert channels, so alerts are only listed. Add `alerts = {}` to a destination \
             (Slack, Discord, e-mail, webhook or WhatsApp).",
        );
        return Ok(());
    }
    let rows: Vec<Value> = alerts.channels.iter().map(|channel| json!(channel)).collect();
    output::print_table(CHANNELS, &rows)
}

fn alert_row(alert: &AlertResponse) -> Value {
    let mut row = json!(alert);
    row["subject"] = json!(format!("{} {}", alert.subject.kind.as_str(), alert.subject.name));
    row
}
