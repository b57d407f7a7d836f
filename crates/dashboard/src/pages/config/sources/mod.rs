//! `/sources`: where events come from.

mod fields;

use std::{fmt::Write as _, sync::Arc};

use askama::Template;
use axum::{Router, extract::Path, routing::get};
use http::HeaderMap;
use serde_json::Value;
use surehook_api::{
    ApiTransport as _, calls, events::EventResponse, requests::ReceivedRequestSummary,
    resources::SourceResponse,
};
use surehook_core::outbox::OUTBOX;
use surehook_webhooks::provider::{self, HandshakeKind, Provider};

use self::fields::SourceResource;
use super::{
    DeleteDialog, editor,
    recent_event::load_newest,
    sparkline::{CHARTS_MAX, load_day, sparkline},
};
use crate::{
    Dashboard,
    current_user::CurrentUser,
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{FormTexts, SourceTexts},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/sources", get(list_sources))
        .route("/sources/{name}", get(show_source))
        .merge(editor::routes::<SourceResource>())
}

struct SourceRow {
    source: SourceResponse,
    /// Empty for the outbox.
    url: String,
    /// Number of events of the last day.
    day: String,
    /// Sparkline of the last day.
    line: String,
}

#[derive(Template)]
#[template(path = "sources.html")]
struct SourcesPage {
    frame: PageFrame,
    t: &'static SourceTexts,
    rows: Vec<SourceRow>,
}

async fn list_sources(user: CurrentUser, headers: HeaderMap) -> PageResult {
    let t = SourceTexts::of(user.lang());
    let sources = user.call(calls::list_sources()).await?.data;
    let with_charts = sources.len() <= CHARTS_MAX;
    let base = user.ingest_base(&headers);
    let mut rows = Vec::with_capacity(sources.len());
    for source in sources {
        let name = source.spec.name.as_str();
        let series = match with_charts {
            true => load_day(&user, "accepted", "source", name).await.ok(),
            false => None,
        };
        rows.push(SourceRow {
            url: ingest_url(&base, name),
            day: series.as_ref().map(|s| user.lang().number(s.total.value)).unwrap_or_default(),
            line: series.as_ref().map(sparkline).unwrap_or_default(),
            source,
        });
    }
    render_page(&SourcesPage { frame: PageFrame::of_menu(&user, NavItem::Sources), t, rows })
}

fn ingest_url(base: &str, name: &str) -> String {
    if name == OUTBOX { String::new() } else { format!("{base}/in/{name}") }
}

/// Number of events and refused requests on the page of a source.
const RECENT_LIMIT: &str = "5";

#[derive(Template)]
#[template(path = "source.html")]
struct SourcePage {
    frame: PageFrame,
    t: &'static SourceTexts,
    e: &'static FormTexts,
    source: SourceResponse,
    delete_dialog: DeleteDialog,
    url: String,
    /// Description and command line.
    commands: Vec<(&'static str, String)>,
    /// How the provider checks the URL.
    handshake: Option<&'static str>,
    with_secret: Option<String>,
    facts: Vec<(&'static str, String)>,
    events: Vec<EventResponse>,
    refused: Vec<ReceivedRequestSummary>,
    /// Label, count of the last day, and its sparkline.
    numbers: Vec<(&'static str, String, String)>,
}

async fn show_source(
    user: CurrentUser,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> PageResult {
    let (t, e) = (SourceTexts::of(user.lang()), FormTexts::of(user.lang()));
    let (resource, tag) = user.call_versioned(calls::get_resource("sources", &name)).await?;
    let source: SourceResponse = serde_json::from_value(resource.clone())?;
    let name = source.spec.name.as_str();
    let events = load_newest(&user, name, RECENT_LIMIT).await?;
    let refused = calls::list_requests()
        .query("source", name)
        .query("outcome", "refused")
        .query("limit", RECENT_LIMIT);
    let refused = user.call(refused).await?.data;
    let mut numbers = Vec::new();
    for (metric, label) in [
        ("accepted", t.accepted),
        ("duplicates", t.duplicates),
        ("no_key", t.no_key),
        ("key_conflicts", t.key_conflicts),
    ] {
        let series = load_day(&user, metric, "source", name).await?;
        numbers.push((label, user.lang().number(series.total.value), sparkline(&series)));
    }
    let base = user.ingest_base(&headers);
    let url = ingest_url(&base, name);
    let provider = source.spec.provider.as_str();
    let preset = provider::find(provider);
    render_page(&SourcePage {
        frame: PageFrame::new(&user, NavItem::Sources, name),
        t,
        e,
        delete_dialog: DeleteDialog::new(e, "sources", name, tag, t.delete_text.to_owned()),
        commands: if url.is_empty() { Vec::new() } else { test_commands(t, &source, &base, &url) },
        handshake: handshake_hint(t, preset),
        with_secret: (source.state.verified && SECRET_IN_PATH.contains(&provider))
            .then(|| fill(t.address_secret, &[&url])),
        facts: setting_facts(t, &resource),
        url,
        events,
        refused,
        numbers,
        source,
    })
}

/// How the provider checks the URL, and what is left to do for a person.
fn handshake_hint(t: &'static SourceTexts, preset: Option<&Provider>) -> Option<&'static str> {
    match preset?.handshake {
        HandshakeKind::None => None,
        HandshakeKind::Automatic => Some(t.handshake_automatic),
        HandshakeKind::VerifyToken => Some(t.handshake),
        HandshakeKind::EchoedSecret => Some(t.handshake_echoed),
        HandshakeKind::SentSecret => Some(t.handshake_sent),
    }
}

/// Providers that can only send their secret as part of the URL.
const SECRET_IN_PATH: [&str; 2] = ["evolution-go", "evolution-api"];

/// Commands that send a test event to this source.
fn test_commands(
    t: &'static SourceTexts,
    source: &SourceResponse,
    base: &str,
    url: &str,
) -> Vec<(&'static str, String)> {
    let test = format!("surehook send-test {} --server {base}", source.spec.name);
    if source.state.verified {
        return vec![(t.send_signed, format!("SUREHOOK_SECRET=… SUREHOOK_TOKEN=… {test}"))];
    }
    let sample = provider::find(&source.spec.provider).and_then(|preset| preset.samples.first());
    let mut curl = format!("curl -X POST '{url}{}'", sample.map_or("", |sample| sample.target));
    for (name, value) in sample.map_or([].as_slice(), |sample| sample.headers) {
        let _ = write!(curl, " -H '{name}: {value}'");
    }
    let has_content_type = curl.to_ascii_lowercase().contains("content-type:");
    if !has_content_type {
        curl.push_str(" -H 'Content-Type: application/json'");
    }
    curl.push_str(" -d '{\"id\":\"test-1\",\"type\":\"test\"}'");
    vec![(t.send_plain, curl), (t.send_cli, format!("SUREHOOK_TOKEN=… {test}"))]
}

fn setting_facts(t: &'static SourceTexts, resource: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| match (value.as_str(), value.as_array()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(items)) => {
            let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            items.join(", ")
        }
        (None, None) => value.to_string(),
    };
    let spec = crate::form_fields::editable_spec(resource.clone());
    [
        ("/provider", t.provider),
        ("/verify", t.verify),
        ("/secrets", t.secrets),
        ("/verify_token", t.challenge),
        ("/keys", t.keys),
        ("/dedup_window", t.window),
        ("/on_conflict", t.on_conflict),
        ("/compare_bodies", t.compare),
        ("/replay_guard", t.guard),
        ("/redact", t.redact),
        ("/retention/events", t.keep_events),
        ("/retention/bodies", t.keep_bodies),
        ("/sync", t.sync),
    ]
    .into_iter()
    .filter_map(|(at, label)| Some((label, text(spec.pointer(at)?))))
    .collect()
}
