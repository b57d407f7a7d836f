//! The form of a route: a place to try it on real events before it is saved.

use askama::Template;
use axum::{Form, extract::Query};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::{Deletion, event::Event},
    names,
    trial::{Answer, Tried},
};
use crate::{
    client::{Address, List},
    lang::fill,
    page::{Failed, Frame, Nav, Shown, show},
    visitor::Visitor,
    words::{Edit, Routes},
};

/// Events that one can be tried on.
const EVENTS_MAX: &str = "20";

/// What is in the form: a route, and what it is tried on.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Typed {
    /// The route that is edited; none for one that is new.
    pub(super) id: Option<String>,
    pub(super) tag: String,
    pub(super) once: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) filter: String,
    pub(super) transform: String,
    /// The event that it is tried on; empty for `body`.
    pub(super) event: String,
    pub(super) body: String,
}

impl Typed {
    /// Writes the filter and the transform, if there are any.
    pub(super) fn write_programs(&self, wish: &mut Map<String, Value>) {
        for (name, text) in [("filter", &self.filter), ("transform", &self.transform)] {
            if !text.trim().is_empty() {
                wish.insert(name.to_owned(), text.trim().into());
            }
        }
    }
}

#[derive(Deserialize)]
struct FromSource {
    source: Option<String>,
}

#[derive(Template)]
#[template(path = "route.html")]
pub(super) struct RoutePage {
    frame: Frame,
    t: &'static Routes,
    e: &'static Edit,
    id: Option<String>,
    tag: String,
    pub(super) once: String,
    typed: Typed,
    sources: Vec<String>,
    destinations: Vec<String>,
    events: Vec<Event>,
    tried: Option<Tried>,
    /// Why it could not be tried.
    refusal: Option<String>,
    /// Why it was not saved.
    pub(super) trouble: Option<String>,
    pub(super) conflict: bool,
    /// What is there, after somebody else changed it.
    pub(super) now: Vec<(&'static str, String)>,
    deletion: Option<Deletion>,
}

/// The form with what was typed, and what comes of it. Without a choice the newest event of the
/// source is tried on.
pub(super) async fn page(
    visitor: &Visitor,
    mut typed: Typed,
    title: String,
) -> Result<RoutePage, Failed> {
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
    let mut events = Vec::new();
    if !typed.from.is_empty() {
        let newest = Event::newest_of(visitor, &typed.from, EVENTS_MAX).await;
        events = newest.map_err(|trouble| visitor.failed(trouble))?;
    }
    let is_there = events.iter().any(|event| event.id == typed.event);
    if !is_there && (!typed.event.is_empty() || typed.body.trim().is_empty()) {
        typed.event = events.first().map(|event| event.id.clone()).unwrap_or_default();
    }
    let deletion = typed.id.as_ref().map(|id| {
        let name = format!("{} → {}", typed.from, typed.to);
        let deletion = Deletion::new(e, "routes", id, typed.tag.clone(), t.delete_text.to_owned());
        Deletion { title: fill(e.delete_title, &[&name]), label: String::new(), ..deletion }
    });
    let page = RoutePage {
        frame: Frame::new(visitor, Nav::Routes, title),
        t,
        e,
        id: typed.id.clone(),
        tag: typed.tag.clone(),
        once: visitor.once(),
        sources,
        destinations,
        events,
        tried: None,
        refusal: None,
        trouble: None,
        conflict: false,
        now: Vec::new(),
        deletion,
        typed,
    };
    Ok(page.tried(visitor).await)
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
        typed.write_programs(&mut wish);
        let address = Address::new(&["routes", "try"]);
        match visitor.post::<Answer>(address, Some(wish.into())).await {
            Ok(answer) => self.tried = Some(Tried::of(answer, self.t)),
            Err(trouble) => self.refusal = Some(trouble.detail),
        }
        self
    }
}

/// The title over the form.
pub(super) fn title(visitor: &Visitor, typed: &Typed) -> String {
    let t = Routes::of(visitor.lang());
    match &typed.id {
        Some(_) => fill(t.edit, &[&typed.from, &typed.to]),
        None => t.playground.to_owned(),
    }
}

pub(super) async fn playground(visitor: Visitor, Query(typed): Query<Typed>) -> Shown {
    let typed = Typed { id: None, ..typed };
    let title = title(&visitor, &typed);
    show(&page(&visitor, typed, title).await?)
}

pub(super) async fn try_it(visitor: Visitor, Form(typed): Form<Typed>) -> Shown {
    let title = title(&visitor, &typed);
    show(&page(&visitor, typed, title).await?)
}
