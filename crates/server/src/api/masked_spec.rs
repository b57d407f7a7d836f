//! Sources, destinations and routes in API responses, with their secrets masked; and the reverse, for
//! changes that send a mask back.
//!
//! A response never contains a configured secret. `surehook config` uses [`mask_spec`] as well.

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use surehook_api::resources::{NoRuntimeState, StoredSpecResponse};
use surehook_core::{
    destination::{DestinationSpec, auth::AuthSpec, receivers::receivers},
    route::RouteSpec,
    source::SourceSpec,
    store::StoredObject,
};
use surehook_types::{
    redact::{self, MASK},
    secret::SecretRef,
};

use crate::problem::Problem;

/// A spec whose secrets can be masked.
pub trait MaskSecrets: Serialize {
    /// Masks the secrets in `json`, the JSON form of `self`.
    fn mask(&self, json: &mut Value);
}

fn mask_all(secrets: &[SecretRef]) -> Value {
    secrets.iter().map(ToString::to_string).collect()
}

impl MaskSecrets for SourceSpec {
    fn mask(&self, json: &mut Value) {
        if !self.secrets.is_empty() {
            json["secrets"] = mask_all(&self.secrets);
        }
        if let Some(token) = &self.verify_token {
            json["verify_token"] = json!(token.to_string());
        }
    }
}

impl MaskSecrets for DestinationSpec {
    fn mask(&self, json: &mut Value) {
        if !self.url.is_empty() {
            json["url"] = json!(redact::mask_url(&self.url));
        }
        if !self.signing_secrets.is_empty() {
            json["signing_secrets"] = mask_all(&self.signing_secrets);
        }
        if !self.headers.is_empty() {
            json["headers"] = self
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), json!(value.to_string())))
                .collect();
        }
        if let Some(exec) = self.exec.as_ref().filter(|exec| !exec.env.is_empty()) {
            let masked =
                exec.env.iter().map(|(name, value)| (name.clone(), json!(value.to_string())));
            json["exec"]["env"] = masked.collect();
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
        // Certificates are public; the key is not.
        if let Some(key) = self.tls.as_ref().and_then(|tls| tls.client_key.as_ref()) {
            json["tls"]["client_key"] = json!(key.to_string());
        }
    }
}

impl MaskSecrets for RouteSpec {
    fn mask(&self, _: &mut Value) {}
}

/// The JSON form of a spec, secrets masked.
pub fn mask_spec<S: MaskSecrets>(spec: &S) -> Value {
    // Specs always serialize.
    let mut json = serde_json::to_value(spec).unwrap_or_default();
    spec.mask(&mut json);
    json
}

/// A stored spec as JSON, secrets masked. Its `ETag` is computed from this.
pub(crate) fn mask_stored<I: Serialize, S: MaskSecrets>(stored: &StoredObject<I, S>) -> Value {
    mask_stored_with_state(stored, NoRuntimeState {})
}

/// A stored spec and its runtime state as JSON, secrets masked.
pub(crate) fn mask_stored_with_state<I: Serialize, S: MaskSecrets, T: Serialize>(
    stored: &StoredObject<I, S>,
    state: T,
) -> Value {
    let StoredObject { id, spec, created_at, updated_at } = stored;
    let response =
        StoredSpecResponse { id, created_at: *created_at, updated_at: *updated_at, spec, state };
    let mut json = serde_json::to_value(response).unwrap_or_default();
    spec.mask(&mut json);
    json
}

/// Parses the spec that replaces `stored`. A mask keeps the secret that is stored in the same place.
pub(super) fn parse_replacement<S: MaskSecrets + serde::de::DeserializeOwned>(
    written: &RawValue,
    stored: &S,
) -> Result<S, Problem> {
    let invalid = |error: serde_json::Error| Problem::invalid(error.to_string());
    let mut json: Value = serde_json::from_str(written.get()).map_err(invalid)?;
    // Specs always serialize.
    let plain = serde_json::to_value(stored).unwrap_or_default();
    if !restore_secrets(&mut json, &plain, &mask_spec(stored)) {
        return serde_json::from_str(written.get()).map_err(invalid);
    }
    if receivers(&json) != receivers(&plain) {
        return Err(Problem::invalid(format!(
            "The target changes, so masked secrets are not kept. Enter the secrets shown as `{MASK}` \
             again."
        )));
    }
    serde_json::from_value(json).map_err(invalid)
}

/// Replaces each mask in `written` by the stored secret, where `masked` shows the same mask. In a list,
/// masks match masked secrets in order, so that a new secret can be put before them. Returns whether
/// any mask was replaced.
fn restore_secrets(written: &mut Value, plain: &Value, masked: &Value) -> bool {
    match (written, plain, masked) {
        (written @ Value::String(_), Value::String(_), Value::String(mask))
            if *written == MASK && mask == MASK =>
        {
            *written = plain.clone();
            true
        }
        // In a URL only parts of the path and of the query are masked.
        (Value::String(written), Value::String(plain), Value::String(masked))
            if plain != masked && *masked == redact::mask_url(plain) =>
        {
            let restored = redact::unmask_url(written, plain);
            let is_restored = *written != restored;
            *written = restored;
            is_restored
        }
        (Value::Object(written), Value::Object(plain), Value::Object(masked)) => {
            let mut is_restored = false;
            for (name, written) in written {
                if let (Some(plain), Some(masked)) = (plain.get(name), masked.get(name)) {
                    is_restored |= restore_secrets(written, plain, masked);
                }
            }
            is_restored
        }
        (Value::Array(written), Value::Array(plain), Value::Array(masked)) => {
            let secrets = plain.iter().zip(masked).filter(|(_, masked)| **masked == MASK);
            let masks = written.iter_mut().filter(|written| **written == MASK);
            let mut is_restored = false;
            for (mask, (plain, _)) in masks.zip(secrets) {
                *mask = plain.clone();
                is_restored = true;
            }
            is_restored
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn source_secrets_are_masked() {
        let written = json!({
            "name": "in", "provider": "stripe", "secrets": ["canary", "env:S"],
            "verify_token": "canary",
        });
        let masked = mask_spec(&serde_json::from_value::<SourceSpec>(written).unwrap());
        assert_eq!(masked["secrets"], json!(["•••", "env:S"]));
        assert_eq!(masked["verify_token"], "•••");
        assert!(!masked.to_string().contains("canary"));
    }

    #[test]
    fn destination_secrets_are_masked() {
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
            let masked = mask_spec(&serde_json::from_value::<DestinationSpec>(written).unwrap());
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&masked[name], value, "case: {fields}");
            }
            assert!(!masked.to_string().contains("canary"), "case: {fields}");
        }
    }

    fn source(json: Value) -> SourceSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn mask_keeps_the_stored_secret() {
        let stored = source(json!({
            "name": "shop", "provider": "stripe", "secrets": ["old", "env:OLDER", "oldest"],
            "verify_token": "token",
        }));
        for (secrets, expected) in [
            (json!(["•••", "env:OLDER", "•••"]), Some(json!(["old", "env:OLDER", "oldest"]))),
            (json!(["new", "•••"]), Some(json!(["new", "old"]))),
            (json!(["new"]), Some(json!(["new"]))),
            (json!(["•••", "•••", "•••"]), None),
        ] {
            let written = json!({ "name": "shop", "provider": "stripe", "secrets": secrets,
                "verify_token": "•••" });
            let spec = parse_replacement(&to_raw_value(&written).unwrap(), &stored);
            let spec = spec.ok().map(|spec| serde_json::to_value(spec).unwrap());
            assert_eq!(spec.as_ref().map(|spec| spec["secrets"].clone()), expected);
            assert!(spec.is_none_or(|spec| spec["verify_token"] == "token"));
        }
        let written = json!({ "name": "•••", "provider": "stripe", "secrets": ["a"] });
        assert!(
            parse_replacement(&to_raw_value(&written).unwrap(), &stored).is_err(),
            "a name is not a secret"
        );
    }

    #[test]
    fn masked_secrets_are_refused_when_the_target_changes() {
        let original = json!({
            "name": "crm", "url": "https://a.example/in", "headers": { "X-Key": "hunter2" },
            "auth": { "bearer": "hunter3" },
        });
        let stored: DestinationSpec = serde_json::from_value(original.clone()).unwrap();
        let masked = mask_spec(&stored);
        for (field, value, is_accepted) in [
            ("url", "https://a.example/elsewhere", true),
            ("url", "https://b.example/in", false),
            ("url", "http://a.example/in", false),
            ("url", "https://a.example:8443/in", false),
            ("proxy", "http://evil.example", false),
            ("kind", "redis-stream", false),
            ("delay", "5s", true),
        ] {
            let mut written = masked.clone();
            written[field] = json!(value);
            let spec = parse_replacement(&to_raw_value(&written).unwrap(), &stored);
            assert_eq!(spec.is_ok(), is_accepted, "case: {field} {value}");
            if let Ok(spec) = spec {
                assert_eq!(serde_json::to_value(spec).unwrap()["auth"], original["auth"]);
            }
        }
    }

    #[test]
    fn mask_in_a_url_keeps_the_stored_secret() {
        let stored_url = "https://a.example/in?token=s%2B1&a=1&token=s2";
        let stored: DestinationSpec =
            serde_json::from_value(json!({ "name": "crm", "url": stored_url })).unwrap();
        for (url, expected) in [
            ("https://a.example/in?token=•••&a=1&token=•••", Some(stored_url)),
            ("https://a.example/b?a=2&token=•••", Some("https://a.example/b?a=2&token=s%2B1")),
            ("https://a.example/in?token=new", Some("https://a.example/in?token=new")),
            ("https://a.example/in", Some("https://a.example/in")),
            // URL parsers may percent-encode the mask.
            (
                "https://a.example/in?token=%E2%80%A2%E2%80%A2%E2%80%A2",
                Some("https://a.example/in?token=s%2B1"),
            ),
            ("https://b.example/in?token=•••", None),
            ("https://a.example/•••/in?token=new", Some("https://a.example/•••/in?token=new")),
            ("https://b.example/in?token=mine", Some("https://b.example/in?token=mine")),
        ] {
            let written = json!({ "name": "crm", "url": url });
            let spec = parse_replacement(&to_raw_value(&written).unwrap(), &stored)
                .ok()
                .map(|spec| spec.url);
            assert_eq!(spec.as_deref(), expected, "case: {url}");
        }
    }

    #[test]
    fn mask_in_the_path_of_a_url_keeps_the_stored_secret() {
        let slack = "https://hooks.slack.com/services/T0/B0/canary";
        let stored: DestinationSpec =
            serde_json::from_value(json!({ "name": "team", "url": slack })).unwrap();
        let masked = mask_spec(&stored);
        assert!(!masked.to_string().contains("canary"), "{masked}");
        for (url, expected) in [
            (masked["url"].as_str().unwrap(), Some(slack)),
            (
                "https://hooks.slack.com/services/T0/B0/new",
                Some("https://hooks.slack.com/services/T0/B0/new"),
            ),
            // Another service must not get it.
            ("https://hooks.slack.example/services/•••/•••/•••", None),
        ] {
            let written = json!({ "name": "team", "url": url });
            let spec = parse_replacement(&to_raw_value(&written).unwrap(), &stored);
            let url_after = spec.ok().map(|spec| spec.url);
            assert_eq!(url_after.as_deref(), expected, "case: {url}");
        }
    }
}
