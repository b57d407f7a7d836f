//! Form fields of a source.

use serde_json::{Map, Value};
use surehook_api::percent_encode;
use surehook_core::{event::ConflictPolicy, source::BodyComparison};
use surehook_webhooks::provider::{self, HandshakeKind, PROVIDERS};

use super::super::{EditableResource, ResourceChoice};
use crate::{
    form_fields::{self, Control, FormField, FormValues},
    lang::Lang,
    page::NavItem,
    translations::{FormTexts, SourceTexts},
};

pub(super) struct SourceResource;

/// The provider for senders without built-in support.
const GENERIC: &str = "generic";
/// Verification methods, and the setting each needs besides the secret.
const VERIFY_METHODS: [(&str, Option<&str>); 4] =
    [("none", None), ("hmac", Some("header")), ("token", Some("header")), ("basic", Some("user"))];

impl EditableResource for SourceResource {
    const PATH: &'static str = "sources";
    const NAV: NavItem = NavItem::Sources;
    const CHOICE_FIELD: &'static str = "provider";
    const DEFAULT_CHOICE: &'static str = GENERIC;

    fn new_page_texts(lang: Lang) -> (&'static str, &'static str) {
        let t = SourceTexts::of(lang);
        (t.new, t.choose)
    }

    fn choices(lang: Lang) -> Vec<ResourceChoice> {
        let t = SourceTexts::of(lang);
        let choice = |name: &'static str| ResourceChoice {
            href: format!("/sources/new?choice={}", percent_encode(name)),
            name,
            about: if name == GENERIC { t.about_generic } else { "" },
        };
        let others = PROVIDERS.iter().map(|provider| provider.name);
        let others = others.filter(|name| *name != GENERIC);
        [GENERIC].into_iter().chain(others).map(choice).collect()
    }

    fn fields(spec: &Value, lang: Lang) -> Vec<FormField> {
        let (t, e) = (SourceTexts::of(lang), FormTexts::of(lang));
        let known =
            provider::preset_names().into_iter().map(|name| (name.to_owned(), name.to_owned()));
        let provider = spec["provider"].as_str().unwrap_or(GENERIC);
        let is_generic = provider == GENERIC;
        let methods = [
            ("", t.verify_provider),
            ("hmac", t.verify_hmac),
            ("token", t.verify_token),
            ("basic", t.verify_basic),
            ("none", t.verify_none),
        ];
        // Providers have their own method. Other methods must be set as JSON.
        let has_custom_method = spec["verify"].is_object();
        let is_available = |method: &str| match is_generic || has_custom_method {
            true => !(is_generic && method.is_empty()),
            false => matches!(method, "" | "none"),
        };
        let methods = methods.into_iter().filter(|(method, _)| is_available(method));
        let methods = methods.map(|(method, text)| (method.to_owned(), text.to_owned()));
        let mut fields = vec![
            FormField::new("/name", e.name, Control::Text)
                .hint(e.name_hint)
                .example("shop")
                .required(),
            FormField::new("/provider", t.provider, Control::Choice(known.collect())),
            FormField::custom("verify", t.verify, Control::Choice(methods.collect()))
                .hint(t.verify_hint),
        ];
        if is_generic || has_custom_method {
            fields.push(
                FormField::custom("verify_with", t.verify_with, Control::Text)
                    .hint(t.verify_with_hint)
                    .example("x-signature"),
            );
        }
        fields.push(FormField::new("/secrets", t.secrets, Control::Secrets).hint(e.secret_hint));
        let has_verify_token = provider::find(provider)
            .is_some_and(|preset| preset.handshake == HandshakeKind::VerifyToken);
        if has_verify_token || spec.get("verify_token").is_some() {
            fields.push(
                FormField::new("/verify_token", t.challenge, Control::Secret)
                    .hint(t.challenge_hint),
            );
        }
        fields.extend([
            FormField::new("/dedup_window", t.window, Control::Text)
                .hint(t.window_hint)
                .example(default_window(provider)),
            FormField::new("/on_conflict", t.on_conflict, conflict_choices(t))
                .hint(t.on_conflict_hint),
            FormField::new("/compare_bodies", t.compare, comparison_choices(t)),
            FormField::custom("replay_guard", t.guard, guard_choices(t)).hint(t.guard_hint),
            FormField::new("/retention/events", t.keep_events, Control::Text)
                .hint(t.keep_events_hint)
                .example("30d"),
            FormField::new("/retention/bodies", t.keep_bodies, Control::Text)
                .hint(t.keep_bodies_hint)
                .example("7d"),
            FormField::new("/redact", t.redact, Control::Lines).hint(t.redact_hint).example("cpf"),
            FormField::new("/silent_after", t.silent, Control::Text)
                .hint(t.silent_hint)
                .example("2h"),
            FormField::new("/enabled", t.enabled, Control::Check).value("true"),
        ]);
        fields
    }

    fn fill_special_fields(all: &mut [FormField], spec: &Value) {
        let custom = spec["verify"].as_object().and_then(|method| method.iter().next());
        let method = custom
            .map(|(method, _)| method.as_str())
            .or(spec["verify"].as_str())
            .unwrap_or_default();
        let header_or_user =
            custom.and_then(|(method, settings)| settings.get(required_setting(method)?)?.as_str());
        let header_or_user = header_or_user.unwrap_or_default();
        for field in all {
            match field.name.as_str() {
                "verify" => method.clone_into(&mut field.value),
                "verify_with" => header_or_user.clone_into(&mut field.value),
                "replay_guard" => {
                    field.value =
                        spec["replay_guard"].as_bool().map(|on| on.to_string()).unwrap_or_default();
                }
                _ => {}
            }
        }
    }

    fn write_special_fields(values: &FormValues, spec: &mut Value) {
        let value = |name: &str| values.get(name).map(|text| text.trim()).unwrap_or_default();
        let replay_guard = value("replay_guard").parse::<bool>().ok();
        form_fields::set_at(spec, "/replay_guard", replay_guard.map(Value::from));
        match value("verify") {
            "" => form_fields::set_at(spec, "/verify", None),
            "none" => {
                // The API rejects secrets without verification, so they are removed.
                form_fields::set_at(spec, "/secrets", None);
                form_fields::set_at(spec, "/verify", Some("none".into()));
            }
            method => {
                // Other settings of the same method stay.
                let stored = spec["verify"].get(method).cloned();
                let mut settings = stored.unwrap_or_else(|| Map::new().into());
                if let Some(setting) = required_setting(method) {
                    let header_or_user = value("verify_with");
                    let is_list = settings.get(setting).is_some_and(Value::is_array);
                    if !(header_or_user.is_empty() && is_list) {
                        form_fields::set_at(&mut settings, setting, Some(header_or_user.into()));
                    }
                }
                let method = Map::from_iter([(method.to_owned(), settings)]);
                form_fields::set_at(spec, "/verify", Some(method.into()));
            }
        }
    }
}

fn choices<const N: usize>(all: [(&str, &str); N]) -> Control {
    Control::Choice(all.map(|(value, text)| (value.to_owned(), text.to_owned())).into())
}

fn conflict_choices(t: &SourceTexts) -> Control {
    choices([
        ("", t.conflict_default),
        (ConflictPolicy::Accept.as_str(), t.conflict_accept),
        (ConflictPolicy::Duplicate.as_str(), t.conflict_duplicate),
    ])
}

fn comparison_choices(t: &SourceTexts) -> Control {
    choices([
        ("", t.compare_default),
        (BodyComparison::Bytes.as_str(), t.compare_bytes),
        (BodyComparison::Json.as_str(), t.compare_json),
    ])
}

fn guard_choices(t: &SourceTexts) -> Control {
    choices([("", t.guard_default), ("true", t.guard_on), ("false", t.guard_off)])
}

fn required_setting(method: &str) -> Option<&'static str> {
    VERIFY_METHODS.iter().find(|(name, _)| *name == method).and_then(|(_, with)| *with)
}

/// Dedup window used if none is set.
fn default_window(provider: &str) -> &'static str {
    if provider == GENERIC { "8d" } else { "" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn verification_method_round_trips_through_the_form() {
        for verify in [
            json!({ "hmac": { "header": "x-sig", "prefix": "sha256=" } }),
            json!({ "hmac": { "header": ["a", "b"] } }),
            json!({ "token": { "header": "x-token" } }),
            json!({ "basic": { "user": "me" } }),
            json!("none"),
            Value::Null,
        ] {
            let mut spec = json!({ "name": "a" });
            if !verify.is_null() {
                spec["verify"] = verify.clone();
            }
            let mut fields = SourceResource::fields(&spec, Lang::En);
            SourceResource::fill_special_fields(&mut fields, &spec);
            let values = fields.iter().map(|f| (f.name.clone(), f.value.clone())).collect();
            let before = spec.clone();
            SourceResource::write_special_fields(&values, &mut spec);
            assert_eq!(spec, before, "case: {verify}");
        }
    }

    #[test]
    fn dedup_settings_round_trip_through_the_form() {
        for settings in [
            json!({}),
            json!({ "on_conflict": "accept", "compare_bodies": "json", "replay_guard": false }),
            json!({ "on_conflict": "duplicate", "compare_bodies": "bytes", "replay_guard": true }),
        ] {
            let mut spec = json!({ "name": "a", "verify": "none" });
            spec.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
            let mut fields = SourceResource::fields(&spec, Lang::En);
            form_fields::fill_from_spec(&mut fields, &spec);
            SourceResource::fill_special_fields(&mut fields, &spec);
            let values: FormValues =
                fields.iter().map(|field| (field.name.clone(), field.value.clone())).collect();
            let mut written_spec = json!({ "name": "a" });
            form_fields::write_to_spec(&fields, &values, &mut written_spec);
            SourceResource::write_special_fields(&values, &mut written_spec);
            for name in ["on_conflict", "compare_bodies", "replay_guard"] {
                assert_eq!(written_spec.get(name), spec.get(name), "{name} of {settings}");
            }
        }
    }
}
