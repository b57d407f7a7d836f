//! `/destinations`: where events go, how those places do, and what an operator can do about it.

use std::{sync::Arc, time::Duration};

use askama::Template;
use axum::{
    Form, Router,
    extract::Path,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::destination::kind::Family;

use super::{
    Deletion, Thing as _,
    chart::{CHARTS_MAX, Series},
    destination_fields::{Destination, kind_of},
    destination_state::{Limit, Numbers, State, Watermark, badge, limits, watermark},
    editor,
};
use crate::{
    Dashboard,
    client::{Address, List, Trouble, encode},
    lang::fill,
    page::{Frame, Nav, Shown, show},
    show::{Badge, span},
    visitor::Visitor,
    words::{Destinations, Edit},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/destinations", get(list))
        .route("/destinations/{name}", get(one))
        .route("/destinations/{name}/pause", post(pause))
        .route("/destinations/{name}/resume", post(resume))
        .route("/destinations/{name}/probe", post(probe))
        .route("/destinations/{name}/test", post(test))
        .merge(editor::routes::<Destination>())
}

/// What is shown where there is nothing to show.
const NOTHING: &str = "–";

#[derive(Deserialize)]
struct Found {
    name: String,
    #[serde(default = "http")]
    kind: String,
    #[serde(default)]
    url: String,
    rate: Option<String>,
    state: Option<State>,
}

fn http() -> String {
    Destination::USUAL.to_owned()
}

#[derive(Default, Deserialize)]
struct Stats {
    #[serde(default)]
    destinations: Vec<Numbers>,
}

/// A destination as a line of the list.
struct Row {
    path: String,
    found: Found,
    badge: Badge,
    mark: Option<Watermark>,
    oldest: String,
    dead: u64,
    dead_shown: String,
    line: String,
}

#[derive(Template)]
#[template(path = "destinations.html")]
struct DestinationsPage {
    frame: Frame,
    t: &'static Destinations,
    rows: Vec<Row>,
}

async fn list(visitor: Visitor) -> Shown {
    let (lang, t) = (visitor.lang(), Destinations::of(visitor.lang()));
    let failed = |trouble| visitor.failed(trouble);
    let found: List<Found> = visitor.get(Address::new(&["destinations"])).await.map_err(failed)?;
    let stats: Stats = visitor.get(Address::new(&["stats"])).await.map_err(failed)?;
    let with_charts = found.data.len() <= CHARTS_MAX;
    let mut rows = Vec::with_capacity(found.data.len());
    for mut found in found.data {
        let numbers = stats.destinations.iter().find(|numbers| numbers.name == found.name);
        let (mut dead, mut line) = (0, String::new());
        if with_charts {
            let of = |metric| Series::of_day(&visitor, metric, "destination", &found.name);
            dead = of("dead").await.map(|series| series.total.value).unwrap_or_default();
            line = of("attempts").await.map(|series| series.line()).unwrap_or_default();
        }
        found.url = without_secrets(&found.url);
        let oldest = numbers.map(|numbers| age(&visitor, numbers)).unwrap_or_default();
        rows.push(Row {
            path: format!("/destinations/{}", encode(&found.name)),
            badge: badge(found.state.as_ref(), t),
            mark: numbers.and_then(|numbers| watermark(numbers, lang, t)),
            oldest,
            dead,
            dead_shown: lang.number(dead),
            line,
            found,
        });
    }
    show(&DestinationsPage { frame: Frame::new(&visitor, Nav::Destinations, t.title), t, rows })
}

/// How long the oldest has waited that could have been sent by now.
fn age(visitor: &Visitor, numbers: &Numbers) -> String {
    let seconds = numbers.oldest_pending_age_seconds;
    let shown = seconds.map(|age| span(visitor.lang(), Duration::from_secs(age)));
    shown.unwrap_or_else(|| NOTHING.to_owned())
}

/// An address without what may let somebody in: its user, its password and its query.
fn without_secrets(url: &str) -> String {
    const HIDDEN: &str = "•••";
    let (url, query) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?•••"));
    let Some((scheme, rest)) = url.split_once("://") else { return format!("{url}{query}") };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = match host.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => host.to_owned(),
    };
    format!("{scheme}://{host}{path}{query}")
}

/// An attempt that failed.
#[derive(Deserialize)]
struct Attempt {
    started_at: String,
    status: Option<u16>,
    failure: Option<String>,
    class: Option<String>,
    detail: Option<String>,
}

impl Attempt {
    fn what(&self) -> String {
        let code = self.status.map(|status| status.to_string());
        let what = code.or_else(|| self.failure.clone()).unwrap_or_default();
        format!("{what} {}", self.class.as_deref().unwrap_or_default()).trim().to_owned()
    }
}

#[derive(Template)]
#[template(path = "destination.html")]
struct DestinationPage {
    frame: Frame,
    t: &'static Destinations,
    e: &'static Edit,
    found: Found,
    badge: Badge,
    mark: Option<Watermark>,
    limits: Vec<Limit>,
    /// It is neither paused nor unusable.
    is_free: bool,
    deletion: Deletion,
    path: String,
    tiles: Vec<(&'static str, String, String)>,
    last: Option<Attempt>,
    takes_messages: bool,
    spec: String,
    typed: Typed,
}

/// What is in the forms of the page, and why one of them was not carried out.
struct Typed {
    reason: String,
    rate: String,
    body: String,
    to: String,
    text: String,
    once: String,
    /// What was wrong with the test.
    test_trouble: Option<Trouble>,
    /// Why it was neither paused nor resumed.
    lane_trouble: Option<Trouble>,
}

impl Typed {
    fn new(visitor: &Visitor) -> Self {
        Self {
            reason: String::new(),
            rate: String::new(),
            body: SAMPLE.to_owned(),
            to: String::new(),
            text: String::new(),
            once: visitor.once(),
            test_trouble: None,
            lane_trouble: None,
        }
    }
}

/// What is sent to see whether anything arrives.
const SAMPLE: &str = "{\n  \"type\": \"test\",\n  \"message\": \"Hello from Surehook\"\n}";

async fn one(visitor: Visitor, Path(name): Path<String>) -> Shown {
    let typed = Typed::new(&visitor);
    page(&visitor, &name, typed).await
}

async fn page(visitor: &Visitor, name: &str, typed: Typed) -> Shown {
    let (lang, t) = (visitor.lang(), Destinations::of(visitor.lang()));
    let failed = |trouble| visitor.failed(trouble);
    let address = Address::new(&["destinations", name]);
    let (mut shown, tag) = visitor.get_tagged::<Value>(address).await.map_err(failed)?;
    let unread = |_| visitor.failed(Trouble { status: 500, ..Trouble::default() });
    let mut found: Found = serde_json::from_value(shown.clone()).map_err(unread)?;
    let stats: Stats = visitor.get(Address::new(&["stats"])).await.map_err(failed)?;
    let numbers = stats.destinations.into_iter().find(|numbers| numbers.name == found.name);
    let numbers = numbers.unwrap_or_default();
    found.url = without_secrets(&found.url);
    if shown["url"].is_string() {
        shown["url"] = json!(found.url);
    }
    let spec = crate::fields::bare(shown);
    let e = Edit::of(lang);
    let text = t.delete_text.to_owned();
    show(&DestinationPage {
        frame: Frame::new(visitor, Nav::Destinations, &found.name),
        t,
        e,
        badge: badge(found.state.as_ref(), t),
        mark: watermark(&numbers, lang, t),
        limits: limits(found.state.as_ref(), found.rate.as_deref(), t),
        is_free: found.state.as_ref().is_some_and(|state| state.pause.is_none()),
        deletion: Deletion::new(e, "destinations", &found.name, tag, text),
        path: format!("/destinations/{}", encode(&found.name)),
        tiles: tiles(visitor, &found.name, &numbers).await.map_err(failed)?,
        last: last_failure(visitor, &found.name).await.map_err(failed)?,
        takes_messages: kind_of(&spec).family() == Family::Service,
        spec: serde_json::to_string_pretty(&spec).unwrap_or_default(),
        typed,
        found,
    })
}

/// How it did in the last 24 hours.
async fn tiles(
    visitor: &Visitor,
    name: &str,
    numbers: &Numbers,
) -> Result<Vec<(&'static str, String, String)>, Trouble> {
    let (lang, t) = (visitor.lang(), Destinations::of(visitor.lang()));
    let of = |metric| Series::of_day(visitor, metric, "destination", name);
    let (attempts, failures) = (of("attempts").await?.total.value, of("failed").await?.total.value);
    let times = of("attempt_time").await?.total;
    let dead = of("dead").await?.total.value;
    let ms = |ms: Option<f64>| {
        let whole = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        whole.map_or_else(|| NOTHING.to_owned(), |whole| span(lang, whole))
    };
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let success = match attempts {
        0 => NOTHING.to_owned(),
        _ => {
            let share = (attempts.saturating_sub(failures)) as f64 / attempts as f64;
            format!("{} %", lang.decimal(share * 100.0, 1))
        }
    };
    let none = String::new;
    let times_shown = match times.p95_ms {
        Some(_) => format!("p50 {} · p99 {}", ms(times.p50_ms), ms(times.p99_ms)),
        None => none(),
    };
    Ok(vec![
        (t.success, success, none()),
        (t.attempts_day, lang.number(attempts), none()),
        (t.took, ms(times.p95_ms), times_shown),
        (t.dead_day, lang.number(dead), none()),
        (t.oldest, age(visitor, numbers), none()),
    ])
}

/// The newest failure of what is tried again, or else of what died.
async fn last_failure(visitor: &Visitor, name: &str) -> Result<Option<Attempt>, Trouble> {
    #[derive(Deserialize)]
    struct Listed {
        id: String,
    }
    #[derive(Deserialize)]
    struct Whole {
        attempt_list: Vec<Attempt>,
    }
    for status in ["scheduled", "dead"] {
        let address = Address::new(&["deliveries"])
            .with("destination", name)
            .with("status", status)
            .with("limit", "1");
        let found: List<Listed> = visitor.get(address).await?;
        let Some(delivery) = found.data.into_iter().next() else { continue };
        let whole: Whole = visitor.get(Address::new(&["deliveries", &delivery.id])).await?;
        let failed = |attempt: &Attempt| attempt.class.is_some();
        if let Some(attempt) = whole.attempt_list.into_iter().rev().find(failed) {
            return Ok(Some(attempt));
        }
    }
    Ok(None)
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
}

async fn pause(visitor: Visitor, Path(name): Path<String>, Form(typed): Form<Reason>) -> Shown {
    let reason = Some(typed.reason.trim()).filter(|reason| !reason.is_empty());
    let wish = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
    let t = Destinations::of(visitor.lang());
    let kept = Typed { reason: typed.reason, ..Typed::new(&visitor) };
    act(&visitor, (&name, "pause"), wish, Some(kept), |_| fill(t.was_paused, &[&name])).await
}

#[derive(Deserialize)]
struct Pace {
    #[serde(default)]
    rate: String,
}

async fn resume(visitor: Visitor, Path(name): Path<String>, Form(typed): Form<Pace>) -> Shown {
    let rate = Some(typed.rate.trim()).filter(|rate| !rate.is_empty());
    let wish = rate.map_or_else(|| json!({}), |rate| json!({ "rate": rate }));
    let t = Destinations::of(visitor.lang());
    let kept = Typed { rate: typed.rate, ..Typed::new(&visitor) };
    act(&visitor, (&name, "resume"), wish, Some(kept), |_| fill(t.was_resumed, &[&name])).await
}

async fn probe(visitor: Visitor, Path(name): Path<String>) -> Shown {
    let t = Destinations::of(visitor.lang());
    let say = |answer: &Value| match answer["succeeded"].as_bool() {
        Some(true) => t.probe_good.to_owned(),
        _ => {
            let attempt = &answer["attempt"];
            let code = attempt["status"].as_u64().map(|code| code.to_string());
            let what = code.or_else(|| attempt["failure"].as_str().map(str::to_owned));
            fill(t.probe_bad, &[&what.unwrap_or_default()])
        }
    };
    act(&visitor, (&name, "probe"), json!({}), None, say).await
}

/// Does something with a destination and goes back to its page; what was typed is kept if it was
/// refused.
async fn act(
    visitor: &Visitor,
    (name, what): (&str, &str),
    wish: Value,
    typed: Option<Typed>,
    say: impl Fn(&Value) -> String,
) -> Shown {
    let back = format!("/destinations/{}", encode(name));
    let body = (what != "probe").then_some(wish);
    match visitor.post::<Value>(Address::new(&["destinations", name, what]), body).await {
        Ok(answer) => Ok(visitor.done(&back, say(&answer))),
        Err(trouble) if !editor::can_be_mended(&trouble) => Err(visitor.failed(trouble)),
        Err(trouble) => match typed {
            Some(typed) => {
                page(visitor, name, Typed { lane_trouble: Some(trouble), ..typed }).await
            }
            None => Ok(visitor.refused(&back, &trouble)),
        },
    }
}

#[derive(Deserialize)]
struct Test {
    #[serde(default)]
    once: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    text: String,
}

/// Sends a test event through everything that a real one goes through.
async fn test(visitor: Visitor, Path(name): Path<String>, Form(typed): Form<Test>) -> Shown {
    let t = Destinations::of(visitor.lang());
    let wish = if typed.to.is_empty() {
        match serde_json::from_str::<Value>(&typed.body) {
            Ok(body) => json!({ "destination": name, "type": "test", "body": body }),
            Err(error) => {
                let detail = fill(Edit::of(visitor.lang()).not_json, &[&error]);
                let trouble = Trouble { detail, ..Trouble::default() };
                return again(&visitor, &name, typed, trouble).await;
            }
        }
    } else {
        json!({ "destination": name, "to": typed.to.trim(), "text": typed.text })
    };
    let address = Address::new(&["messages"]);
    match visitor.post_once::<Value>(address, Some(wish), &typed.once).await {
        Ok(sent) => {
            let id = sent["id"].as_str().unwrap_or_default();
            Ok(visitor.done(&format!("/events/{}", encode(id)), t.test_sent))
        }
        Err(trouble) if !editor::can_be_mended(&trouble) => Err(visitor.failed(trouble)),
        Err(trouble) => again(&visitor, &name, typed, trouble).await,
    }
}

/// The page with the test as it was typed.
async fn again(visitor: &Visitor, name: &str, typed: Test, trouble: Trouble) -> Shown {
    let kept = Typed {
        once: visitor.once_again(&typed.once, &trouble),
        body: typed.body,
        to: typed.to,
        text: typed.text,
        test_trouble: Some(trouble),
        ..Typed::new(visitor)
    };
    page(visitor, name, kept).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_lets_somebody_in() {
        for (url, expected) in [
            ("https://a.example/in", "https://a.example/in"),
            ("https://u:p@a.example/in?token=x", "https://•••@a.example/in?•••"),
            ("https://u:p%40q@a@b.example", "https://•••@b.example"),
            ("https://a.example/x@y", "https://a.example/x@y"),
            ("builtin:inbox", "builtin:inbox"),
            ("env:REDIS", "env:REDIS"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), expected, "case: {url}");
        }
    }
}
