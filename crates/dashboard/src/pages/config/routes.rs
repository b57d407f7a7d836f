//! `/routes`: which events go where, and a place to try filters and transforms on real events.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    routing::{get, post},
};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Deletion,
    editor::{can_be_mended, may_configure},
    indented::indented,
};
use crate::{
    Dashboard,
    client::{Address, List, Trouble, encode},
    lang::fill,
    page::{Failed, Frame, Nav, Shown, show},
    show::{Badge, without_phones},
    visitor::Visitor,
    words::{Edit, Routes},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/routes", get(list))
        .route("/routes/new", get(begin))
        .route("/routes/try", get(playground).post(try_it))
        .route("/routes/save", post(save))
        .route("/routes/{id}/edit", get(edit))
        .route("/routes/{id}/delete", post(delete))
}

/// Events that one can be tried on.
const EVENTS_MAX: &str = "20";

#[derive(Clone, Deserialize)]
struct Route {
    id: String,
    from: String,
    to: String,
    filter: Option<String>,
    transform: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// A source and where it leads.
struct Group {
    from: String,
    routes: Vec<Route>,
}

#[derive(Template)]
#[template(path = "routes.html")]
struct RoutesPage {
    frame: Frame,
    t: &'static Routes,
    e: &'static Edit,
    groups: Vec<Group>,
    can_make: bool,
}

/// The names of all sources or destinations, in order.
async fn names(visitor: &Visitor, what: &str) -> Result<Vec<String>, Failed> {
    let found = visitor.get::<List<Named>>(Address::new(&[what])).await;
    let found = found.map_err(|trouble| visitor.failed(trouble))?;
    let mut names: Vec<String> = found.data.into_iter().map(|named| named.name).collect();
    names.sort();
    Ok(names)
}

async fn list(visitor: Visitor) -> Shown {
    let (t, e) = (Routes::of(visitor.lang()), Edit::of(visitor.lang()));
    let found = visitor.get::<List<Route>>(Address::new(&["routes"])).await;
    let mut routes = found.map_err(|trouble| visitor.failed(trouble))?.data;
    routes.sort_by(|a, b| (&a.to, &a.id).cmp(&(&b.to, &b.id)));
    let sources = names(&visitor, "sources").await?;
    let can_make = !sources.is_empty() && !names(&visitor, "destinations").await?.is_empty();
    let group = |from: String| {
        let of_it = routes.iter().filter(|route| route.from == from).cloned().collect();
        Group { from, routes: of_it }
    };
    let groups = sources.into_iter().map(group).collect();
    let frame = Frame::new(&visitor, Nav::Routes, t.title);
    show(&RoutesPage { frame, t, e, groups, can_make })
}

/// What is in the form: a route, and what it is tried on.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Typed {
    /// The route that is edited; none for one that is new.
    id: Option<String>,
    tag: String,
    once: String,
    from: String,
    to: String,
    filter: String,
    transform: String,
    /// The event that it is tried on; empty for `body`.
    event: String,
    body: String,
}

#[derive(Deserialize)]
struct FromSource {
    source: Option<String>,
}

/// An event that it can be tried on.
#[derive(Deserialize)]
struct Event {
    id: String,
    kind: Option<String>,
    key: Option<String>,
    received_at: String,
}

impl Event {
    fn label(&self) -> String {
        let key = self.key.as_deref().map(without_phones);
        let known = [self.kind.as_deref(), key.as_deref()];
        let known: Vec<&str> = known.into_iter().flatten().collect();
        let at = self.received_at.get(..19).unwrap_or(&self.received_at).replace('T', " ");
        let text: String = known.join(" · ").chars().take(60).collect();
        if text.is_empty() { at } else { format!("{at} · {text}") }
    }
}

/// What the API says of a trial.
#[derive(Deserialize)]
struct Answer {
    matches: Option<bool>,
    filter_error: Option<String>,
    output: Option<String>,
    #[serde(default)]
    dropped: bool,
    transform_error: Option<String>,
    #[serde(default)]
    input: Option<String>,
    #[serde(default)]
    masked: u64,
}

struct Tried {
    verdict: Badge,
    filter_error: Option<String>,
    output: Option<String>,
    dropped: bool,
    transform_error: Option<String>,
    input: Option<String>,
    masked: bool,
}

impl Tried {
    fn of(answer: Answer, t: &Routes) -> Self {
        let verdict = match (answer.matches, &answer.filter_error) {
            (_, Some(_)) => Badge::new("bad", "warn", t.filter_failed),
            (Some(true), None) => Badge::new("ok", "check", t.matches),
            (Some(false), None) => Badge::new("warn", "cross", t.no_match),
            (None, None) => Badge::new("", "dot", t.no_filter),
        };
        Self {
            verdict,
            filter_error: answer.filter_error,
            output: answer.output.as_deref().map(indented),
            dropped: answer.dropped,
            transform_error: answer.transform_error,
            input: answer.input.as_deref().map(indented),
            masked: answer.masked > 0,
        }
    }
}

#[derive(Template)]
#[template(path = "route.html")]
struct RoutePage {
    frame: Frame,
    t: &'static Routes,
    e: &'static Edit,
    id: Option<String>,
    tag: String,
    once: String,
    typed: Typed,
    sources: Vec<String>,
    destinations: Vec<String>,
    events: Vec<Event>,
    tried: Option<Tried>,
    /// Why it could not be tried.
    refusal: Option<String>,
    /// Why it was not saved.
    trouble: Option<String>,
    conflict: bool,
    /// What is there, after somebody else changed it.
    now: Vec<(&'static str, String)>,
    deletion: Option<Deletion>,
}

/// The form with what was typed. Without a choice the newest event of the source is tried on.
async fn page(visitor: &Visitor, mut typed: Typed, title: String) -> Result<RoutePage, Failed> {
    let (t, e) = (Routes::of(visitor.lang()), Edit::of(visitor.lang()));
    let (sources, destinations) =
        (names(visitor, "sources").await?, names(visitor, "destinations").await?);
    if !sources.contains(&typed.from) {
        // Where something comes in there is something to try it on.
        let newest = Address::new(&["events"]).with("limit", "1");
        let newest = visitor.get::<List<FromSource>>(newest).await.unwrap_or_default();
        let busy = newest.data.into_iter().next().and_then(|event| event.source);
        let busy = busy.filter(|source| sources.contains(source));
        typed.from = busy.or_else(|| sources.first().cloned()).unwrap_or_default();
    }
    let mut events = List::<Event>::default();
    if !typed.from.is_empty() {
        let newest =
            Address::new(&["events"]).with("source", &typed.from).with("limit", EVENTS_MAX);
        events = visitor.get(newest).await.map_err(|trouble| visitor.failed(trouble))?;
    }
    let is_there = events.data.iter().any(|event| event.id == typed.event);
    if !is_there && (!typed.event.is_empty() || typed.body.trim().is_empty()) {
        typed.event = events.data.first().map(|event| event.id.clone()).unwrap_or_default();
    }
    let deletion = typed.id.as_ref().map(|id| {
        let name = format!("{} → {}", typed.from, typed.to);
        let deletion = Deletion::new(e, "routes", id, typed.tag.clone(), t.delete_text.to_owned());
        Deletion { title: fill(e.delete_title, &[&name]), label: String::new(), ..deletion }
    });
    Ok(RoutePage {
        frame: Frame::new(visitor, Nav::Routes, title),
        t,
        e,
        id: typed.id.clone(),
        tag: typed.tag.clone(),
        once: visitor.once(),
        sources,
        destinations,
        events: events.data,
        tried: None,
        refusal: None,
        trouble: None,
        conflict: false,
        now: Vec::new(),
        deletion,
        typed,
    })
}

impl RoutePage {
    /// Tries what is in the form, if there is anything to try it on.
    async fn tried(mut self, visitor: &Visitor) -> Self {
        let typed = &self.typed;
        let mut wish = Map::new();
        let on =
            if typed.event.is_empty() { ("body", &typed.body) } else { ("event", &typed.event) };
        if on.1.trim().is_empty() {
            return self;
        }
        wish.insert(on.0.to_owned(), on.1.clone().into());
        for (name, text) in [("filter", &typed.filter), ("transform", &typed.transform)] {
            if !text.trim().is_empty() {
                wish.insert(name.to_owned(), text.trim().into());
            }
        }
        let address = Address::new(&["routes", "try"]);
        match visitor.post::<Answer>(address, Some(wish.into())).await {
            Ok(answer) => self.tried = Some(Tried::of(answer, self.t)),
            Err(trouble) => self.refusal = Some(trouble.detail),
        }
        self
    }
}

/// The title over the form.
fn title(visitor: &Visitor, typed: &Typed) -> String {
    let t = Routes::of(visitor.lang());
    match &typed.id {
        Some(_) => fill(t.edit, &[&typed.from, &typed.to]),
        None => t.playground.to_owned(),
    }
}

async fn begin(visitor: Visitor, Query(typed): Query<Typed>) -> Shown {
    may_configure(&visitor)?;
    let typed = Typed { id: None, ..typed };
    let title = Routes::of(visitor.lang()).new.to_owned();
    show(&page(&visitor, typed, title).await?.tried(&visitor).await)
}

async fn playground(visitor: Visitor, Query(typed): Query<Typed>) -> Shown {
    let typed = Typed { id: None, ..typed };
    let title = title(&visitor, &typed);
    show(&page(&visitor, typed, title).await?.tried(&visitor).await)
}

async fn try_it(visitor: Visitor, Form(typed): Form<Typed>) -> Shown {
    let title = title(&visitor, &typed);
    show(&page(&visitor, typed, title).await?.tried(&visitor).await)
}

async fn edit(visitor: Visitor, Path(id): Path<String>) -> Shown {
    may_configure(&visitor)?;
    let found = visitor.get_tagged::<Route>(Address::new(&["routes", &id])).await;
    let (route, tag) = found.map_err(|trouble| visitor.failed(trouble))?;
    let typed = Typed {
        id: Some(route.id),
        tag,
        from: route.from,
        to: route.to,
        filter: route.filter.unwrap_or_default(),
        transform: route.transform.unwrap_or_default(),
        ..Typed::default()
    };
    let title = title(&visitor, &typed);
    show(&page(&visitor, typed, title).await?.tried(&visitor).await)
}

async fn save(visitor: Visitor, Form(mut typed): Form<Typed>) -> Shown {
    let e = Edit::of(visitor.lang());
    let mut wish = Map::new();
    for (name, text) in [("from", &typed.from), ("to", &typed.to)] {
        wish.insert(name.to_owned(), text.clone().into());
    }
    for (name, text) in [("filter", &typed.filter), ("transform", &typed.transform)] {
        if !text.trim().is_empty() {
            wish.insert(name.to_owned(), text.trim().into());
        }
    }
    let wish = Some(Value::Object(wish));
    let saved: Result<Value, Trouble> = match &typed.id {
        Some(id) => {
            visitor.change(Method::PUT, Address::new(&["routes", id]), wish, &typed.tag).await
        }
        None => visitor.post_once(Address::new(&["routes"]), wish, &typed.once).await,
    };
    let trouble = match saved {
        Ok(_) => {
            let name = format!("{} → {}", typed.from, typed.to);
            return Ok(visitor.done("/routes", fill(e.saved, &[&name])));
        }
        Err(trouble) if can_be_mended(&trouble) => trouble,
        Err(trouble) => return Err(visitor.failed(trouble)),
    };
    let is_conflict = trouble.status == 412;
    let now = match &typed.id {
        Some(id) if is_conflict => {
            let there = visitor.get_tagged::<Route>(Address::new(&["routes", id])).await;
            let (there, tag) = there.map_err(|trouble| visitor.failed(trouble))?;
            typed.tag = tag;
            differences(&there, &typed, Routes::of(visitor.lang()))
        }
        _ => Vec::new(),
    };
    let title = title(&visitor, &typed);
    let once = visitor.once_again(&typed.once, &trouble);
    let page = page(&visitor, typed, title).await?.tried(&visitor).await;
    show(&RoutePage { trouble: Some(trouble.detail), conflict: is_conflict, now, once, ..page })
}

/// What is there and is not what was typed.
fn differences(there: &Route, typed: &Typed, t: &'static Routes) -> Vec<(&'static str, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        (t.from, there.from.clone(), &typed.from),
        (t.to, there.to.clone(), &typed.to),
        (t.filter, text(&there.filter), &typed.filter),
        (t.transform, text(&there.transform), &typed.transform),
    ]
    .into_iter()
    .filter(|(_, there, typed)| there.trim() != typed.trim())
    .map(|(name, there, _)| (name, there))
    .collect()
}

#[derive(Deserialize)]
struct Farewell {
    #[serde(default)]
    tag: String,
}

async fn delete(visitor: Visitor, Path(id): Path<String>, Form(typed): Form<Farewell>) -> Shown {
    let e = Edit::of(visitor.lang());
    let address = Address::new(&["routes", &id]);
    match visitor.change::<Value>(Method::DELETE, address, None, &typed.tag).await {
        Ok(_) => Ok(visitor.done("/routes", fill(e.deleted, &[&Routes::of(visitor.lang()).route]))),
        Err(trouble) if trouble.status == 412 => {
            Ok(visitor.refused(&format!("/routes/{}/edit", encode(&id)), &trouble))
        }
        Err(trouble) => Err(visitor.failed(trouble)),
    }
}
