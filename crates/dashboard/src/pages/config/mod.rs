//! `/sources`, `/destinations` and `/routes`: configuration pages.
//!
//! Sources and destinations share their forms ([`editor`]); the differences are in
//! [`EditableResource`].

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
use surehook_api::percent_encode;

use crate::{
    Dashboard,
    form_fields::{FormField, FormValues},
    lang::{Lang, fill},
    page::NavItem,
    translations::FormTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().merge(sources::routes()).merge(destinations::routes()).merge(routes::routes())
}

/// A provider or destination kind offered before the form.
struct ResourceChoice {
    href: String,
    name: &'static str,
    about: &'static str,
}

/// The dialog that confirms a deletion.
struct DeleteDialog {
    path: String,
    tag: String,
    title: String,
    label: String,
    text: String,
}

impl DeleteDialog {
    fn new(e: &FormTexts, collection: &str, name: &str, tag: String, text: String) -> Self {
        Self {
            path: format!("/{collection}/{}", percent_encode(name)),
            tag,
            title: fill(e.delete_title, &[&name]),
            label: fill(e.delete_type, &[&name]),
            text,
        }
    }
}

/// A named resource that is edited with a form.
trait EditableResource: Send + Sync + 'static {
    /// Path segment, in the dashboard and in the API.
    const PATH: &'static str;
    const NAV: NavItem;
    /// The setting chosen before the form: provider or kind.
    const CHOICE_FIELD: &'static str;
    const DEFAULT_CHOICE: &'static str;

    /// Title and introduction of the page for a new resource.
    fn new_page_texts(lang: Lang) -> (&'static str, &'static str);
    fn choices(lang: Lang) -> Vec<ResourceChoice>;
    /// The form fields for a spec.
    fn fields(spec: &Value, lang: Lang) -> Vec<FormField>;
    /// Fills fields that do not map to one JSON pointer.
    fn fill_special_fields(_fields: &mut [FormField], _spec: &Value) {}
    fn write_special_fields(_typed: &FormValues, _spec: &mut Value) {}
}
