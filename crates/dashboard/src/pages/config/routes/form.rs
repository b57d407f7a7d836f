//! The route form, which tests filter and transform on real events before saving.

use askama::Template;
use axum::{Form, extract::Query};
use serde::Deserialize;
use serde_json::{Map, Value};
use surehook_api::{ApiTransport as _, calls, events::EventResponse, resources::TryRouteResponse};

use super::super::{DeleteDialog, recent_event::load_newest};
use crate::{
    client::{ApiError, parse_request},
    current_user::CurrentUser,
    format::Badge,
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{FormTexts, RouteTexts},
};

/// Number of events offered for a test.
const EVENTS_MAX: &str = "20";

/// The route, and the test input.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RouteForm {
    /// `None` for a new route.
    pub(super) id: Option<String>,
    pub(super) tag: String,
    pub(super) idempotency_key: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) filter: String,
    pub(super) transform: String,
    /// Event to test with; empty to use `body`.
    pub(super) event: String,
    pub(super) body: String,
}

impl RouteForm {
    pub(super) fn write_programs(&self, payload: &mut Map<String, Value>) {
        for (name, text) in [("filter", &self.filter), ("transform", &self.transform)] {
            if !text.trim().is_empty() {
                payload.insert(name.to_owned(), text.trim().into());
            }
        }
    }
}

#[derive(Template)]
#[template(path = "route.html")]
pub(super) struct RoutePage {
    frame: PageFrame,
    t: &'static RouteTexts,
    e: &'static FormTexts,
    id: Option<String>,
    tag: String,
    pub(super) idempotency_key: String,
    form: RouteForm,
    sources: Vec<String>,
    destinations: Vec<String>,
    events: Vec<EventResponse>,
    trial: Option<TryRouteResponse>,
    trial_error: Option<String>,
    pub(super) error: Option<String>,
    pub(super) conflict: bool,
    /// Current values after a conflicting change.
    pub(super) differences: Vec<(&'static str, String)>,
    delete_dialog: Option<DeleteDialog>,
}

/// Builds the form and tests its filter and transform. By default the newest event of the source is
/// used.
pub(super) async fn route_page(
    user: &CurrentUser,
    mut form: RouteForm,
    title: String,
) -> Result<RoutePage, ApiError> {
    let (t, e) = (RouteTexts::of(user.lang()), FormTexts::of(user.lang()));
    let (sources, destinations) = (user.source_names().await?, user.destination_names().await?);
    if !sources.contains(&form.from) {
        // Prefers the source with the newest event, so that there is an event to test with.
        let newest = user.call(calls::list_events().query("limit", "1")).await.unwrap_or_default();
        let active = newest.page.data.into_iter().next().and_then(|listed| listed.event.source);
        let active = active.filter(|source| sources.contains(source));
        form.from = active.or_else(|| sources.first().cloned()).unwrap_or_default();
    }
    let mut events = Vec::new();
    if !form.from.is_empty() {
        events = load_newest(user, &form.from, EVENTS_MAX).await?;
    }
    let is_listed = events.iter().any(|event| event.id.to_string() == form.event);
    if !is_listed && (!form.event.is_empty() || form.body.trim().is_empty()) {
        form.event = events.first().map(|event| event.id.to_string()).unwrap_or_default();
    }
    let delete_dialog = form.id.as_ref().map(|id| {
        let name = format!("{} → {}", form.from, form.to);
        let delete_dialog =
            DeleteDialog::new(e, "routes", id, form.tag.clone(), t.delete_text.to_owned());
        DeleteDialog {
            title: fill(e.delete_title, &[&name]),
            label: String::new(),
            ..delete_dialog
        }
    });
    let page = RoutePage {
        frame: PageFrame::new(user, NavItem::Routes, title),
        t,
        e,
        id: form.id.clone(),
        tag: form.tag.clone(),
        idempotency_key: user.new_idempotency_key(),
        sources,
        destinations,
        events,
        trial: None,
        trial_error: None,
        error: None,
        conflict: false,
        differences: Vec::new(),
        delete_dialog,
        form,
    };
    Ok(page.with_trial(user).await)
}

impl RoutePage {
    /// Tests filter and transform if there is an event or a body.
    async fn with_trial(mut self, user: &CurrentUser) -> Self {
        let form = &self.form;
        let mut payload = Map::new();
        let (input, value) =
            if form.event.is_empty() { ("body", &form.body) } else { ("event", &form.event) };
        if value.trim().is_empty() {
            return self;
        }
        payload.insert(input.to_owned(), value.clone().into());
        if !form.from.is_empty() {
            payload.insert("source".to_owned(), form.from.clone().into());
        }
        form.write_programs(&mut payload);
        let result = match parse_request(payload.into()) {
            Ok(request) => user.call(calls::try_route(&request)).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(trial) => self.trial = Some(trial),
            Err(error) => self.trial_error = Some(error.detail),
        }
        self
    }

    /// A warning if the filter matches none of the source's recent events.
    fn recent_warning(&self, trial: &TryRouteResponse) -> Option<String> {
        let recent = trial.recent.as_ref().filter(|recent| recent.warning.is_some())?;
        let text = fill(self.t.never_matches, &[&recent.events, &self.form.from]);
        Some(match recent.failed {
            0 => text,
            failed => format!("{text} {}", fill(self.t.filter_fails_on, &[&failed])),
        })
    }

    fn verdict(&self, trial: &TryRouteResponse) -> Badge {
        match (trial.matches, &trial.filter_error) {
            (_, Some(_)) => Badge::new("bad", "warn", self.t.filter_failed),
            (Some(true), None) => Badge::new("ok", "check", self.t.matches),
            (Some(false), None) => Badge::new("warn", "cross", self.t.no_match),
            (None, None) => Badge::new("", "dot", self.t.no_filter),
        }
    }
}

pub(super) fn page_title(user: &CurrentUser, form: &RouteForm) -> String {
    let t = RouteTexts::of(user.lang());
    match &form.id {
        Some(_) => fill(t.edit, &[&form.from, &form.to]),
        None => t.playground.to_owned(),
    }
}

pub(super) async fn show_playground(
    user: CurrentUser,
    Query(form): Query<RouteForm>,
) -> PageResult {
    let form = RouteForm { id: None, ..form };
    let title = page_title(&user, &form);
    render_page(&route_page(&user, form, title).await?)
}

pub(super) async fn try_route(user: CurrentUser, Form(form): Form<RouteForm>) -> PageResult {
    let title = page_title(&user, &form);
    render_page(&route_page(&user, form, title).await?)
}
