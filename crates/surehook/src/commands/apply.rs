//! `surehook apply`: a file's sources, destinations and routes into a running gateway.

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::json;
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use crate::{cli::ApplyArgs, client::Client, failure::Failure, output};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    sources: Vec<SourceSpec>,
    #[serde(default)]
    destinations: Vec<DestinationSpec>,
    #[serde(default)]
    routes: Vec<RouteSpec>,
}

pub(super) async fn run(args: &ApplyArgs) -> Result<(), Failure> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read {file}"))
        .map_err(Failure::settings)?;
    let Document { sources, destinations, routes } =
        toml::from_str(&text).with_context(|| format!("in {file}")).map_err(Failure::settings)?;
    let document = json!({ "sources": sources, "destinations": destinations, "routes": routes });
    let report = Client::new(&args.remote)?.put("/configuration", &document).await?;
    if args.remote.json {
        return Ok(output::line(&report.to_string())?);
    }
    for verb in ["created", "updated"] {
        for what in report[verb].as_array().into_iter().flatten() {
            output::line(&format!("{verb}  {}", output::cell(what)))?;
        }
    }
    Ok(output::line(&format!("{} unchanged", report["unchanged"]))?)
}
