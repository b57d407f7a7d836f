//! What people configured, with its secrets masked: an answer never shows one.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use surehook_core::{
    destination::DestinationSpec, route::RouteSpec, secret::SecretRef, source::SourceSpec,
    store::Stored, time::Timestamp,
};

/// A spec that can be shown.
pub(crate) trait Masked: Serialize {
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
pub(crate) fn spec<S: Masked>(spec: &S) -> Value {
    // A spec is plain data and always becomes JSON.
    let mut json = serde_json::to_value(spec).unwrap_or_default();
    spec.mask(&mut json);
    json
}

/// The spec with its id and times.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Stored{S}")]
pub(crate) struct Shown<'a, I, S> {
    id: &'a I,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(flatten)]
    spec: &'a S,
}

/// The same as JSON, secrets masked.
pub(crate) fn stored<I: Serialize, S: Masked>(stored: &Stored<I, S>) -> Value {
    let Stored { id, spec, created_at, updated_at } = stored;
    let shown = Shown { id, created_at: *created_at, updated_at: *updated_at, spec };
    let mut json = serde_json::to_value(shown).unwrap_or_default();
    spec.mask(&mut json);
    json
}
