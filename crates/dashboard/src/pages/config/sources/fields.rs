//! The form of a source.

use serde_json::{Map, Value};
use surehook_core::provider::{self, PROVIDERS};

use super::super::{Choice, Thing};
use crate::{
    client::encode,
    fields::{self, Control, Field, Typed},
    lang::Lang,
    page::Nav,
    words::{Edit, Sources},
};

pub(super) struct Source;

/// The provider about which nothing is known.
const GENERIC: &str = "generic";
/// How a request proves where it comes from: the word, and what it needs beside a secret.
const WAYS: [(&str, Option<&str>); 4] =
    [("none", None), ("hmac", Some("header")), ("token", Some("header")), ("basic", Some("user"))];

impl Thing for Source {
    const PATH: &'static str = "sources";
    const NAV: Nav = Nav::Sources;
    const CHOICE: &'static str = "provider";
    const USUAL: &'static str = GENERIC;

    fn begin(lang: Lang) -> (&'static str, &'static str) {
        let t = Sources::of(lang);
        (t.new, t.choose)
    }

    fn choices(lang: Lang) -> Vec<Choice> {
        let t = Sources::of(lang);
        let choice = |name: &'static str| Choice {
            href: format!("/sources/new?choice={}", encode(name)),
            name,
            about: if name == GENERIC { t.about_generic } else { "" },
        };
        let others = PROVIDERS.iter().map(|provider| provider.name());
        let others = others.filter(|name| *name != GENERIC);
        [GENERIC].into_iter().chain(others).map(choice).collect()
    }

    fn fields(spec: &Value, lang: Lang) -> Vec<Field> {
        let (t, e) = (Sources::of(lang), Edit::of(lang));
        let known =
            provider::preset_names().into_iter().map(|name| (name.to_owned(), name.to_owned()));
        let provider = spec["provider"].as_str().unwrap_or(GENERIC);
        let is_generic = provider == GENERIC;
        let ways = [
            ("", t.verify_provider),
            ("hmac", t.verify_hmac),
            ("token", t.verify_token),
            ("basic", t.verify_basic),
            ("none", t.verify_none),
        ];
        // A provider has a way of its own; whoever wants another one than that or none writes JSON.
        let own_way = spec["verify"].is_object();
        let is_offered = |way: &str| match is_generic || own_way {
            true => !(is_generic && way.is_empty()),
            false => matches!(way, "" | "none"),
        };
        let ways = ways.into_iter().filter(|(way, _)| is_offered(way));
        let ways = ways.map(|(way, text)| (way.to_owned(), text.to_owned()));
        let mut fields = vec![
            Field::new("/name", e.name, Control::Text).hint(e.name_hint).example("shop").required(),
            Field::new("/provider", t.provider, Control::Choice(known.collect())),
            Field::own("verify", t.verify, Control::Choice(ways.collect())).hint(t.verify_hint),
        ];
        if is_generic || own_way {
            fields.push(
                Field::own("verify_with", t.verify_with, Control::Text)
                    .hint(t.verify_with_hint)
                    .example("x-signature"),
            );
        }
        fields.push(Field::new("/secrets", t.secrets, Control::Secrets).hint(e.secret_hint));
        let is_greeted =
            provider::find(provider).is_some_and(|it| it.answer_handshake(None, None).is_some());
        if is_greeted || spec.get("verify_token").is_some() {
            fields.push(
                Field::new("/verify_token", t.challenge, Control::Secret).hint(t.challenge_hint),
            );
        }
        fields.extend([
            Field::new("/dedup_window", t.window, Control::Text)
                .hint(t.window_hint)
                .example(window(provider)),
            Field::new("/retention/events", t.keep_events, Control::Text)
                .hint(t.keep_events_hint)
                .example("30d"),
            Field::new("/retention/bodies", t.keep_bodies, Control::Text)
                .hint(t.keep_bodies_hint)
                .example("7d"),
            Field::new("/redact", t.redact, Control::Lines).hint(t.redact_hint).example("cpf"),
            Field::new("/enabled", t.enabled, Control::Check).value("true"),
        ]);
        fields
    }

    fn fill_own(all: &mut [Field], spec: &Value) {
        let said = spec["verify"].as_object().and_then(|way| way.iter().next());
        let way = said.map(|(way, _)| way.as_str()).or(spec["verify"].as_str()).unwrap_or_default();
        let with = said.and_then(|(way, settings)| settings.get(needs(way)?)?.as_str());
        let with = with.unwrap_or_default();
        for field in all {
            match field.name.as_str() {
                "verify" => way.clone_into(&mut field.value),
                "verify_with" => with.clone_into(&mut field.value),
                _ => {}
            }
        }
    }

    fn write_own(typed: &Typed, spec: &mut Value) {
        let said = |name: &str| typed.get(name).map(|text| text.trim()).unwrap_or_default();
        match said("verify") {
            "" => fields::put(spec, "/verify", None),
            "none" => {
                // Secrets that nothing is checked with are refused: who chooses this lets go of them.
                fields::put(spec, "/secrets", None);
                fields::put(spec, "/verify", Some("none".into()));
            }
            way => {
                // What else is said of the same way stays.
                let there = spec["verify"].get(way).cloned();
                let mut settings = there.unwrap_or_else(|| Map::new().into());
                if let Some(with) = needs(way) {
                    let value = said("verify_with");
                    let is_list = settings.get(with).is_some_and(Value::is_array);
                    if !(value.is_empty() && is_list) {
                        fields::put(&mut settings, with, Some(value.into()));
                    }
                }
                let way = Map::from_iter([(way.to_owned(), settings)]);
                fields::put(spec, "/verify", Some(way.into()));
            }
        }
    }
}

fn needs(way: &str) -> Option<&'static str> {
    WAYS.iter().find(|(name, _)| *name == way).and_then(|(_, with)| *with)
}

/// How long keys are remembered if nobody says.
fn window(provider: &str) -> &'static str {
    if provider == GENERIC { "8d" } else { "" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_way_to_verify_is_read_and_written_back() {
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
            let mut fields = Source::fields(&spec, Lang::En);
            Source::fill_own(&mut fields, &spec);
            let typed = fields.iter().map(|f| (f.name.clone(), f.value.clone())).collect();
            let before = spec.clone();
            Source::write_own(&typed, &mut spec);
            assert_eq!(spec, before, "case: {verify}");
        }
    }
}
