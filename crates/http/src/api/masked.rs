//! What people configured, with its secrets masked: an answer never shows one.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use surehook_core::{
    destination::{DestinationSpec, auth::AuthSpec},
    redact,
    route::RouteSpec,
    secret::SecretRef,
    source::SourceSpec,
    store::StoredObject,
    time::Timestamp,
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
        if let Some(token) = &self.verify_token {
            json["verify_token"] = json!(token.to_string());
        }
    }
}

impl Masked for DestinationSpec {
    fn mask(&self, json: &mut Value) {
        if !self.url.is_empty() {
            json["url"] = json!(redact::mask_url(&self.url));
        }
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
        if let Some(exec) = self.exec.as_ref().filter(|exec| !exec.env.is_empty()) {
            let shown =
                exec.env.iter().map(|(name, value)| (name.clone(), json!(value.to_string())));
            json["exec"]["env"] = shown.collect();
        }
        if let Some(account) = &self.account {
            json["account"]["token"] = json!(account.token.to_string());
        }
        if let Some(sign_as) = &self.sign_as {
            json["sign_as"]["secret"] = json!(sign_as.secret.to_string());
        }
        if let Some(proxy) = &self.proxy {
            json["proxy"] = json!(proxy.to_string());
        }
        match self.auth.as_deref() {
            Some(AuthSpec::Basic { password, .. }) => {
                json["auth"]["basic"]["password"] = json!(password.to_string());
            }
            Some(AuthSpec::Bearer(token)) => json["auth"]["bearer"] = json!(token.to_string()),
            Some(AuthSpec::Oauth2(oauth2)) => {
                let secret = oauth2.client_secret.to_string();
                json["auth"]["oauth2"]["client_secret"] = json!(secret);
                json["auth"]["oauth2"]["token_url"] = json!(redact::mask_url(&oauth2.token_url));
            }
            None => {}
        }
        // Certificates are for everybody to see; the key is not.
        if let Some(key) = self.tls.as_ref().and_then(|tls| tls.client_key.as_ref()) {
            json["tls"]["client_key"] = json!(key.to_string());
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

/// The spec with its id and times, and how it does beside what was written.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Stored{S}")]
pub(crate) struct Shown<'a, I, S, T> {
    id: &'a I,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(flatten)]
    spec: &'a S,
    #[serde(flatten)]
    state: T,
}

/// Nothing to say beside what was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NoState {}

/// What was written, as JSON, secrets masked. This is what has a version.
pub(crate) fn stored<I: Serialize, S: Masked>(stored: &StoredObject<I, S>) -> Value {
    stored_with(stored, NoState {})
}

/// The same with how it does.
pub(crate) fn stored_with<I: Serialize, S: Masked, T: Serialize>(
    stored: &StoredObject<I, S>,
    state: T,
) -> Value {
    let StoredObject { id, spec, created_at, updated_at } = stored;
    let shown = Shown { id, created_at: *created_at, updated_at: *updated_at, spec, state };
    let mut json = serde_json::to_value(shown).unwrap_or_default();
    spec.mask(&mut json);
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_source_is_shown() {
        let written = json!({
            "name": "in", "provider": "stripe", "secrets": ["canary", "env:S"],
            "verify_token": "canary",
        });
        let shown = spec(&serde_json::from_value::<SourceSpec>(written).unwrap());
        assert_eq!(shown["secrets"], json!(["•••", "env:S"]));
        assert_eq!(shown["verify_token"], "•••");
        assert!(!shown.to_string().contains("canary"));
    }

    #[test]
    fn no_secret_of_a_destination_is_shown() {
        let base = json!({ "name": "out", "url": "https://example.com" });
        let cases = [
            (
                json!({ "auth": { "basic": { "user": "u", "password": "canary" } } }),
                json!({ "auth": { "basic": { "user": "u", "password": "•••" } } }),
            ),
            (json!({ "auth": { "bearer": "canary" } }), json!({ "auth": { "bearer": "•••" } })),
            (json!({ "auth": { "bearer": "env:T" } }), json!({ "auth": { "bearer": "env:T" } })),
            (
                json!({ "auth": { "oauth2": {
                    "token_url": "https://id.test/", "client_id": "i", "client_secret": "canary",
                } } }),
                json!({ "auth": { "oauth2": {
                    "token_url": "https://id.test/", "client_id": "i", "client_secret": "•••",
                    "auth_style": "basic",
                } } }),
            ),
            (json!({ "proxy": "http://u:canary@h" }), json!({ "proxy": "•••" })),
            (json!({ "proxy": "env:PROXY" }), json!({ "proxy": "env:PROXY" })),
            (
                json!({ "tls": { "client_certificate": "PEM", "client_key": "canary" } }),
                json!({ "tls": { "client_certificate": "PEM", "client_key": "•••" } }),
            ),
            (
                json!({ "tls": { "client_certificate": "PEM", "client_key": "file:/key" } }),
                json!({ "tls": { "client_certificate": "PEM", "client_key": "file:/key" } }),
            ),
            (
                json!({ "sign_as": { "provider": "stripe", "secret": "canary" } }),
                json!({ "sign_as": { "provider": "stripe", "secret": "•••" } }),
            ),
            (
                json!({ "exec": { "command": ["/a"], "env": { "A": "canary", "B": "env:B" } } }),
                json!({ "exec": { "command": ["/a"], "env": { "A": "•••", "B": "env:B" } } }),
            ),
            (
                json!({ "headers": { "X-A": "canary {{event.id}}" } }),
                json!({ "headers": { "X-A": "•••" } }),
            ),
            (
                json!({ "url": "https://example.com/in?a=1&token=canary" }),
                json!({ "url": "https://example.com/in?a=1&token=•••" }),
            ),
            (
                json!({ "auth": { "oauth2": {
                    "token_url": "https://id.test/?key=canary", "client_id": "i",
                    "client_secret": "env:S",
                } } }),
                json!({ "auth": { "oauth2": {
                    "token_url": "https://id.test/?key=•••", "client_id": "i",
                    "client_secret": "env:S", "auth_style": "basic",
                } } }),
            ),
        ];
        for (fields, expected) in cases {
            let mut written = base.clone();
            for (name, value) in fields.as_object().unwrap() {
                written[name] = value.clone();
            }
            let shown = spec(&serde_json::from_value::<DestinationSpec>(written).unwrap());
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&shown[name], value, "case: {fields}");
            }
            assert!(!shown.to_string().contains("canary"), "case: {fields}");
        }
    }
}
