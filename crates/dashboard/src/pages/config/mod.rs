//! `/sources`, `/destinations` and `/routes`: what people configure.
//!
//! Sources and destinations are made and changed by the same handlers ([`editor`]); what differs is in
//! their [`Thing`].

mod chart;
mod destinations;
mod editor;
mod event;
mod indented;
mod routes;
mod sources;

use std::sync::Arc;

use axum::Router;
use serde_json::Value;

use crate::{
    Dashboard,
    client::encode,
    fields::{Field, Typed},
    lang::{Lang, fill},
    page::Nav,
    words::Edit,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().merge(sources::routes()).merge(destinations::routes()).merge(routes::routes())
}

/// One of what can be chosen before anything else is asked.
struct Choice {
    href: String,
    name: &'static str,
    about: &'static str,
}

/// What the dialog says that deletes something.
struct Deletion {
    path: String,
    tag: String,
    title: String,
    label: String,
    text: String,
}

impl Deletion {
    fn new(e: &Edit, what: &str, name: &str, tag: String, text: String) -> Self {
        Self {
            path: format!("/{what}/{}", encode(name)),
            tag,
            title: fill(e.delete_title, &[&name]),
            label: fill(e.delete_type, &[&name]),
            text,
        }
    }
}

/// A kind of thing that has a name and settings.
trait Thing: Send + Sync + 'static {
    /// Its word in addresses, ours and those of the API.
    const PATH: &'static str;
    const NAV: Nav;
    /// The setting that is chosen before anything else.
    const CHOICE: &'static str;
    /// What it is if nobody says.
    const USUAL: &'static str;

    /// The title of the page that makes one, and what it asks first.
    fn begin(lang: Lang) -> (&'static str, &'static str);
    /// What can be chosen first.
    fn choices(lang: Lang) -> Vec<Choice>;
    /// The fields of one with these settings.
    fn fields(spec: &Value, lang: Lang) -> Vec<Field>;
    /// Fills the fields that have no single place in the spec.
    fn fill_own(_fields: &mut [Field], _spec: &Value) {}
    /// Writes those.
    fn write_own(_typed: &Typed, _spec: &mut Value) {}
}
