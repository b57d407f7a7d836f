//! `/sources`, `/destinations` and `/routes`: what people configure.
//!
//! Sources and destinations are made and changed by the same handlers ([`editor`]); what differs is in
//! their [`EditableResource`].

mod destinations;
mod editor;
mod json_indent;
mod recent_event;
mod routes;
mod sources;
mod sparkline;

use std::sync::Arc;

use axum::Router;
use serde_json::Value;

use crate::{
    Dashboard,
    client::percent_encode,
    form_fields::{FormField, FormValues},
    lang::{Lang, fill},
    page::NavItem,
    translations::FormTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().merge(sources::routes()).merge(destinations::routes()).merge(routes::routes())
}

/// One of what can be chosen before anything else is asked.
struct ResourceChoice {
    href: String,
    name: &'static str,
    about: &'static str,
}

/// What the dialog says that deletes something.
struct DeleteDialog {
    path: String,
    tag: String,
    title: String,
    label: String,
    text: String,
}

impl DeleteDialog {
    fn new(e: &FormTexts, what: &str, name: &str, tag: String, text: String) -> Self {
        Self {
            path: format!("/{what}/{}", percent_encode(name)),
            tag,
            title: fill(e.delete_title, &[&name]),
            label: fill(e.delete_type, &[&name]),
            text,
        }
    }
}

/// A kind of thing that has a name and settings.
trait EditableResource: Send + Sync + 'static {
    /// Its word in addresses, ours and those of the API.
    const PATH: &'static str;
    const NAV: NavItem;
    /// The setting that is chosen before anything else.
    const CHOICE_FIELD: &'static str;
    /// What it is if nobody says.
    const DEFAULT_CHOICE: &'static str;

    /// The title of the page that makes one, and what it asks first.
    fn new_page_texts(lang: Lang) -> (&'static str, &'static str);
    /// What can be chosen first.
    fn choices(lang: Lang) -> Vec<ResourceChoice>;
    /// The fields of one with these settings.
    fn fields(spec: &Value, lang: Lang) -> Vec<FormField>;
    /// Fills the fields that have no single place in the spec.
    fn fill_special_fields(_fields: &mut [FormField], _spec: &Value) {}
    /// Writes those.
    fn write_special_fields(_typed: &FormValues, _spec: &mut Value) {}
}
