//! The form of a destination: each kind has a few fields of its own.

use serde_json::Value;
use surehook_core::destination::kind::{DestinationKind, Family};

use super::super::{Choice, Thing};
use crate::{
    client::encode,
    fields::{Control, Field},
    lang::Lang,
    page::Nav,
    words::{Destinations, Edit},
};

pub(super) struct Destination;

const KINDS: [DestinationKind; 6] = [
    DestinationKind::Http,
    DestinationKind::WhatsappCloud,
    DestinationKind::EvolutionGo,
    DestinationKind::EvolutionApi,
    DestinationKind::Exec,
    DestinationKind::RedisStream,
];

/// The kind that a spec names; the usual one if it names none.
pub(super) fn kind_of(spec: &Value) -> DestinationKind {
    let word = spec["kind"].as_str().unwrap_or_default();
    KINDS.into_iter().find(|kind| kind.as_str() == word).unwrap_or_default()
}

impl Thing for Destination {
    const PATH: &'static str = "destinations";
    const NAV: Nav = Nav::Destinations;
    const CHOICE: &'static str = "kind";
    const USUAL: &'static str = "http";

    fn begin(lang: Lang) -> (&'static str, &'static str) {
        let t = Destinations::of(lang);
        (t.new, t.choose)
    }

    fn choices(lang: Lang) -> Vec<Choice> {
        let t = Destinations::of(lang);
        let about = |kind| match kind {
            DestinationKind::Http => t.about_http,
            DestinationKind::WhatsappCloud => t.about_whatsapp,
            DestinationKind::EvolutionGo | DestinationKind::EvolutionApi => t.about_evolution,
            DestinationKind::Exec => t.about_exec,
            DestinationKind::RedisStream => t.about_redis,
        };
        let choice = |kind: DestinationKind| Choice {
            href: format!("/destinations/new?choice={}", encode(kind.as_str())),
            name: kind.as_str(),
            about: about(kind),
        };
        KINDS.into_iter().map(choice).collect()
    }

    fn fields(spec: &Value, lang: Lang) -> Vec<Field> {
        let (t, e) = (Destinations::of(lang), Edit::of(lang));
        let kind = kind_of(spec);
        let mut fields = vec![
            Field::new("/name", e.name, Control::Text).hint(e.name_hint).example("crm").required(),
        ];
        fields.extend(match kind.family() {
            Family::Webhook => webhook(spec, t, e),
            Family::Service => service(kind, t, e),
            Family::Program => vec![
                Field::new("/exec/command", t.command, Control::Lines)
                    .hint(t.command_hint)
                    .example("/opt/hooks/act"),
            ],
            Family::Stream => stream(t, e),
        });
        fields.extend(common(kind, t));
        fields
    }
}

fn webhook(spec: &Value, t: &'static Destinations, e: &'static Edit) -> Vec<Field> {
    let mut fields = vec![
        Field::new("/url", t.url, Control::Text)
            .hint(t.url_hint)
            .example("https://crm.example.com/hook")
            .required(),
        Field::new("/signing_secrets", t.signing, Control::Secrets).hint(t.signing_hint),
    ];
    // Another way to say who calls is edited as JSON: two of them would be refused.
    if spec["auth"].is_null() || spec["auth"]["bearer"].is_string() {
        fields.push(Field::new("/auth/bearer", t.bearer, Control::Secret).hint(e.secret_hint));
    }
    fields
}

fn service(kind: DestinationKind, t: &'static Destinations, e: &'static Edit) -> Vec<Field> {
    let mut fields = Vec::new();
    if kind != DestinationKind::WhatsappCloud {
        fields.push(
            Field::new("/url", t.service_url, Control::Text)
                .example("https://evolution.example.com")
                .required(),
        );
    }
    let sender = match kind {
        DestinationKind::WhatsappCloud => Some(t.phone_number_id),
        DestinationKind::EvolutionApi => Some(t.instance),
        DestinationKind::Http
        | DestinationKind::EvolutionGo
        | DestinationKind::Exec
        | DestinationKind::RedisStream => None,
    };
    let field = |label| Field::new("/account/sender", label, Control::Text).required();
    fields.extend(sender.map(field));
    fields.extend([
        Field::new("/account/token", t.token, Control::Secret).hint(e.secret_hint),
        Field::new("/sending/warn_at", t.warn_at, Control::Number).hint(t.warn_at_hint),
        Field::new("/sending/stop_at", t.stop_at, Control::Number).hint(t.stop_at_hint),
        Field::new("/sending/quiet_hours", t.quiet_hours, Control::Text).example("22:00-08:00"),
        Field::new("/sending/utc_offset", t.utc_offset, Control::Text)
            .hint(t.utc_offset_hint)
            .example("-03:00"),
    ]);
    fields
}

fn stream(t: &'static Destinations, e: &'static Edit) -> Vec<Field> {
    vec![
        Field::new("/url", t.redis_url, Control::Text)
            .hint(t.redis_url_hint)
            .example("redis://redis.example.com:6379/0")
            .required(),
        Field::new("/stream/key", t.stream_key, Control::Text).example("events").required(),
        Field::new("/stream/max_length", t.max_length, Control::Number),
        Field::new("/auth/basic/user", t.user, Control::Text).example("default"),
        Field::new("/auth/basic/password", t.password, Control::Secret).hint(e.secret_hint),
    ]
}

fn common(kind: DestinationKind, t: &'static Destinations) -> Vec<Field> {
    let retries =
        [("standard", t.retry_standard), ("short", t.retry_short), ("quick", t.retry_quick)];
    let retries = retries.map(|(word, text)| (word.to_owned(), text.to_owned()));
    let mut fields = vec![
        Field::new("/retry", t.retry, Control::Choice(retries.to_vec())).value("standard"),
        Field::new("/rate", t.rate, Control::Text).hint(t.rate_hint).example("50/s"),
        Field::new("/concurrency", t.concurrency, Control::Number).value("32"),
        Field::new("/timeout", t.timeout, Control::Text).value("30s"),
    ];
    if kind.family() != Family::Service {
        fields.push(Field::new("/delay", t.delay, Control::Text).hint(t.delay_hint).example("30s"));
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::destination::DestinationSpec;

    use super::*;
    use crate::fields::{self, Typed};

    #[test]
    fn each_kind_can_be_made_with_its_fields() {
        let cases: [(&str, &[(&str, &str)]); 6] = [
            ("http", &[("url", "https://a.example/"), ("auth.bearer", "t")]),
            ("whatsapp-cloud", &[("account.sender", "106540352242922"), ("account.token", "t")]),
            ("evolution-go", &[("url", "https://a.example"), ("account.token", "t")]),
            (
                "evolution-api",
                &[("url", "https://a.example"), ("account.sender", "i"), ("account.token", "t")],
            ),
            ("exec", &[("exec.command", "/opt/hooks/act\n--flag")]),
            ("redis-stream", &[("url", "redis://a.example:6379/0"), ("stream.key", "k")]),
        ];
        for (kind, filled) in cases {
            let mut spec = json!({ "name": "", "kind": kind });
            let table = Destination::fields(&spec, Lang::En);
            let mut typed: Typed =
                table.iter().map(|field| (field.name.clone(), field.value.clone())).collect();
            let filled = filled.iter().chain([&("name", "it")]);
            typed.extend(filled.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            fields::write(&table, &typed, &mut spec);
            let read: Result<DestinationSpec, _> = serde_json::from_value(spec.clone());
            assert!(read.is_ok(), "case: {kind}: {read:?} of {spec}");
        }
    }
}
