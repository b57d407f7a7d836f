//! What people configured, with its secrets masked: an answer never shows one.

use serde::Serialize;
use serde_json::{Value, json};
use surehook_core::{
    destination::DestinationSpec, route::RouteSpec, secret::SecretRef, source::SourceSpec,
    store::Stored,
};

/// A spec that can be shown.
pub trait Masked: Serialize {
    /// Puts masks over the secrets in the JSON form of `self`.
    fn mask(&self, json: &mut Value);
}

fn masks(secrets: &[SecretRef]) -> Value {
    secrets.iter().map(ToString::to_string).collect()
}

impl Masked for SourceSpec {
    fn mask(&self, json: &mut Value) {
        if !self.secrets.is_empty() {
            json["secrets"] = masks(&self.secrets);
        }
    }
}

impl Masked for DestinationSpec {
    fn mask(&self, json: &mut Value) {
        if !self.signing_secrets.is_empty() {
            json["signing_secrets"] = masks(&self.signing_secrets);
        }
        if !self.headers.is_empty() {
            json["headers"] = self
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), json!(value.to_string())))
                .collect();
        }
    }
}

impl Masked for RouteSpec {
    fn mask(&self, _: &mut Value) {}
}

/// The spec alone.
pub fn spec<S: Masked>(spec: &S) -> Value {
    // A spec is plain data and always becomes JSON.
    let mut json = serde_json::to_value(spec).unwrap_or_default();
    spec.mask(&mut json);
    json
}

/// The spec with its id and times.
pub(crate) fn stored<I: ToString, S: Masked>(stored: &Stored<I, S>) -> Value {
    let mut shown = spec(&stored.spec);
    shown["id"] = json!(stored.id.to_string());
    shown["created_at"] = json!(stored.created_at);
    shown["updated_at"] = json!(stored.updated_at);
    shown
}
