//! `/sources`: where events come from.

mod fields;

use std::{fmt::Write as _, sync::Arc};

use askama::Template;
use axum::{Router, extract::Path, routing::get};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use surehook_core::provider;

use self::fields::Source;
use super::{
    Deletion,
    chart::{CHARTS_MAX, Series},
    editor,
    event::Event,
};
use crate::{
    Dashboard,
    client::{Address, List, encode},
    lang::fill,
    page::{Frame, Nav, Shown, show},
    visitor::Visitor,
    words::{Edit, Sources},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/sources", get(list))
        .route("/sources/{name}", get(one))
        .merge(editor::routes::<Source>())
}

/// The source that is built in: what is sent over the API comes from it.
const OUTBOX: &str = "outbox";

#[derive(Deserialize)]
struct Found {
    name: String,
    provider: String,
    verified: bool,
    enabled: bool,
}

/// A source as a line of the list.
struct Row {
    found: Found,
    url: String,
    path: String,
    day: String,
    line: String,
}

#[derive(Template)]
#[template(path = "sources.html")]
struct SourcesPage {
    frame: Frame,
    t: &'static Sources,
    rows: Vec<Row>,
}

async fn list(visitor: Visitor, headers: HeaderMap) -> Shown {
    let t = Sources::of(visitor.lang());
    let found: List<Found> =
        visitor.get(Address::new(&["sources"])).await.map_err(|t| visitor.failed(t))?;
    let with_charts = found.data.len() <= CHARTS_MAX;
    let base = visitor.base(&headers);
    let mut rows = Vec::with_capacity(found.data.len());
    for found in found.data {
        let series = match with_charts {
            true => Series::of_day(&visitor, "accepted", "source", &found.name).await.ok(),
            false => None,
        };
        rows.push(Row {
            url: ingest(&base, &found.name),
            path: format!("/sources/{}", encode(&found.name)),
            day: series.as_ref().map(|s| visitor.lang().number(s.total.value)).unwrap_or_default(),
            line: series.map(|series| series.line()).unwrap_or_default(),
            found,
        });
    }
    show(&SourcesPage { frame: Frame::new(&visitor, Nav::Sources, t.title), t, rows })
}

fn ingest(base: &str, name: &str) -> String {
    if name == OUTBOX { String::new() } else { format!("{base}/in/{name}") }
}

/// Events and refused requests that the page of a source shows.
const FEW: &str = "5";

#[derive(Deserialize)]
struct Refused {
    reason: Option<String>,
    at: String,
    what_to_do: Option<String>,
}

#[derive(Template)]
#[template(path = "source.html")]
struct SourcePage {
    frame: Frame,
    t: &'static Sources,
    e: &'static Edit,
    found: Found,
    deletion: Deletion,
    url: String,
    /// Commands that send an event there.
    commands: Vec<(&'static str, String)>,
    greets: bool,
    with_secret: Option<String>,
    facts: Vec<(&'static str, String)>,
    events: Vec<Event>,
    refused: Vec<Refused>,
    numbers: Vec<(&'static str, String, String)>,
}

async fn one(visitor: Visitor, Path(name): Path<String>, headers: HeaderMap) -> Shown {
    let (t, e) = (Sources::of(visitor.lang()), Edit::of(visitor.lang()));
    let failed = |trouble| visitor.failed(trouble);
    let (shown, tag) =
        visitor.get_tagged::<Value>(Address::new(&["sources", &name])).await.map_err(failed)?;
    let found: Found = serde_json::from_value(shown.clone()).map_err(|_| {
        visitor.failed(crate::client::Trouble { status: 500, ..Default::default() })
    })?;
    let events = Event::newest_of(&visitor, &found.name, FEW).await.map_err(failed)?;
    let refused = Address::new(&["requests"])
        .with("source", &found.name)
        .with("outcome", "refused")
        .with("limit", FEW);
    let refused: List<Refused> = visitor.get(refused).await.map_err(failed)?;
    let mut numbers = Vec::new();
    for (metric, label) in
        [("accepted", t.accepted), ("duplicates", t.duplicates), ("no_key", t.no_key)]
    {
        let series = Series::of_day(&visitor, metric, "source", &found.name).await;
        let series = series.map_err(failed)?;
        numbers.push((label, visitor.lang().number(series.total.value), series.line()));
    }
    let base = visitor.base(&headers);
    let url = ingest(&base, &found.name);
    let preset = provider::find(&found.provider);
    show(&SourcePage {
        frame: Frame::new(&visitor, Nav::Sources, &found.name),
        t,
        e,
        deletion: Deletion::new(e, "sources", &found.name, tag, t.delete_text.to_owned()),
        commands: if url.is_empty() { Vec::new() } else { commands(t, &found, &base, &url) },
        greets: preset.is_some_and(|preset| preset.answer_handshake(None, None).is_some()),
        with_secret: (found.verified && SECRET_IN_PATH.contains(&found.provider.as_str()))
            .then(|| fill(t.address_secret, &[&url])),
        facts: facts(t, &shown),
        url,
        events,
        refused: refused.data,
        numbers,
        found,
    })
}

/// Providers that have nothing but the address to put their secret into.
const SECRET_IN_PATH: [&str; 2] = ["evolution-go", "evolution-api"];

/// What somebody types to see an event arrive at this very source.
fn commands(
    t: &'static Sources,
    found: &Found,
    base: &str,
    url: &str,
) -> Vec<(&'static str, String)> {
    let test = format!("surehook send-test {} --server {base}", found.name);
    if found.verified {
        return vec![(t.send_signed, format!("SUREHOOK_SECRET=… SUREHOOK_TOKEN=… {test}"))];
    }
    let sample = provider::find(&found.provider).and_then(|preset| preset.samples().first());
    let mut curl = format!("curl -X POST '{url}{}'", sample.map_or("", |sample| sample.target));
    for (name, value) in sample.map_or([].as_slice(), |sample| sample.headers) {
        let _ = write!(curl, " -H '{name}: {value}'");
    }
    let is_typed = curl.to_ascii_lowercase().contains("content-type:");
    if !is_typed {
        curl.push_str(" -H 'Content-Type: application/json'");
    }
    curl.push_str(" -d '{\"id\":\"test-1\",\"type\":\"test\"}'");
    vec![(t.send_plain, curl), (t.send_cli, format!("SUREHOOK_TOKEN=… {test}"))]
}

/// What is set beside the name and the provider, as it is.
fn facts(t: &'static Sources, shown: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| match (value.as_str(), value.as_array()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(items)) => {
            let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            items.join(", ")
        }
        (None, None) => value.to_string(),
    };
    let spec = crate::fields::bare(shown.clone());
    [
        ("/provider", t.provider),
        ("/verify", t.verify),
        ("/secrets", t.secrets),
        ("/verify_token", t.challenge),
        ("/keys", t.keys),
        ("/dedup_window", t.window),
        ("/redact", t.redact),
        ("/retention/events", t.keep_events),
        ("/retention/bodies", t.keep_bodies),
        ("/sync", t.sync),
    ]
    .into_iter()
    .filter_map(|(at, label)| Some((label, text(spec.pointer(at)?))))
    .collect()
}
