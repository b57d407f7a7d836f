//! `surehook nodes`: the processes that use the store, what they own, and the database.

use clap::Args;
use serde_json::{Value, json};
use surehook_api::{
    ApiTransport as _, calls,
    nodes::{DatabaseResponse, NodesResponse},
};

use super::list::Columns;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
pub(crate) struct NodesArgs {
    /// Also list lanes, duties and hand-overs
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    remote: GatewayArgs,
}

const NODES: &Columns = &[
    ("node", "name"),
    ("state", "state"),
    ("address", "address"),
    ("version", "version"),
    ("lanes", "lanes"),
    ("started", "started_at"),
    ("renewed", "renewed_at"),
    ("duties", "duties"),
];
const LANES: &Columns = &[
    ("destination", "destination"),
    ("shard", "shard"),
    ("owner", "owner"),
    ("epoch", "epoch"),
    ("since", "since"),
    ("oldest due (s)", "oldest_pending_age_seconds"),
];
const DUTIES: &Columns =
    &[("duty", "duty"), ("leader", "leader"), ("term", "term"), ("since", "since")];
const HANDOVERS: &Columns = &[
    ("at", "at"),
    ("destination", "destination"),
    ("shard", "shard"),
    ("from", "from"),
    ("to", "to"),
    ("planned", "is_planned"),
];

pub(super) async fn run(args: &NodesArgs) -> Result<(), CliError> {
    let report = ApiClient::new(&args.remote)?.call(calls::get_nodes()).await?;
    if args.remote.json {
        return output::print_line(json!(report));
    }
    output::print_table(NODES, &rows(&report, json!(report.nodes)))?;
    if args.all {
        for (columns, list, empty) in [
            (LANES, json!(report.lanes), "No lanes."),
            (DUTIES, json!(report.duties), "No duties."),
            (HANDOVERS, json!(report.handovers), "No hand-overs."),
        ] {
            output::print_line("")?;
            match rows(&report, list) {
                rows if rows.is_empty() => output::note(empty),
                rows => output::print_table(columns, &rows)?,
            }
        }
    }
    let database = match &report.database {
        Some(database) => describe_database(database),
        None => "Embedded store: one node. Several nodes need PostgreSQL.".to_owned(),
    };
    output::print_line(format!("\n{database}"))
}

/// The rows of a table, with the names of nodes instead of their ids.
fn rows(report: &NodesResponse, list: Value) -> Vec<Value> {
    let Value::Array(mut rows) = list else { return Vec::new() };
    for row in &mut rows {
        for field in ["owner", "leader", "from", "to"] {
            if let Some(id) = row[field].as_str().and_then(|id| id.parse().ok()) {
                row[field] = json!(report.node_name(id));
            }
        }
        if let Some(duties) = row["duties"].as_array() {
            let names: Vec<&str> = duties.iter().filter_map(Value::as_str).collect();
            row["duties"] = json!(names.join(", "));
        }
    }
    rows
}

fn describe_database(database: &DatabaseResponse) -> String {
    let DatabaseResponse { version, connections, connections_max, clock_offset_ms, .. } = database;
    let standby = match (database.waits_for_standby, database.standbys.len()) {
        (true, _) => "commits wait for a standby".to_owned(),
        (false, 0) => "no standby: losing the server loses data".to_owned(),
        (false, count) => format!("{count} standbys, commits do not wait for them"),
    };
    format!(
        "{version}; {standby}; {connections} of {connections_max} connections; oldest transaction {} s; \
         {} rows to clean up of {}; clock offset {clock_offset_ms} ms",
        database.oldest_transaction_seconds, database.dead_rows, database.live_rows,
    )
}
