//! Form fields of each destination kind.

use serde_json::Value;
use surehook_api::percent_encode;
use surehook_core::destination::kind::{DestinationFamily, DestinationKind};

use super::super::{EditableResource, ResourceChoice};
use crate::{
    form_fields::{Control, FormField},
    lang::Lang,
    page::NavItem,
    translations::{DestinationTexts, FormTexts},
};

pub(super) struct DestinationResource;

const KINDS: [DestinationKind; 9] = [
    DestinationKind::Http,
    DestinationKind::Origin,
    DestinationKind::WhatsappCloud,
    DestinationKind::EvolutionGo,
    DestinationKind::EvolutionApi,
    DestinationKind::Exec,
    DestinationKind::RedisStream,
    DestinationKind::Listen,
    DestinationKind::Email,
];

/// The kind in a spec, or the default.
pub(super) fn kind_of(spec: &Value) -> DestinationKind {
    let name = spec["kind"].as_str().unwrap_or_default();
    KINDS.into_iter().find(|kind| kind.as_str() == name).unwrap_or_default()
}

impl EditableResource for DestinationResource {
    const PATH: &'static str = "destinations";
    const NAV: NavItem = NavItem::Destinations;
    const CHOICE_FIELD: &'static str = "kind";
    const DEFAULT_CHOICE: &'static str = "http";

    fn new_page_texts(lang: Lang) -> (&'static str, &'static str) {
        let t = DestinationTexts::of(lang);
        (t.new, t.choose)
    }

    fn choices(lang: Lang) -> Vec<ResourceChoice> {
        let t = DestinationTexts::of(lang);
        let about = |kind| match kind {
            DestinationKind::Http => t.about_http,
            DestinationKind::Origin => t.about_origin,
            DestinationKind::WhatsappCloud => t.about_whatsapp,
            DestinationKind::EvolutionGo | DestinationKind::EvolutionApi => t.about_evolution,
            DestinationKind::Exec => t.about_exec,
            DestinationKind::RedisStream => t.about_redis,
            DestinationKind::Listen => t.about_listen,
            DestinationKind::Email => t.about_email,
        };
        let choice = |kind: DestinationKind| ResourceChoice {
            href: format!("/destinations/new?choice={}", percent_encode(kind.as_str())),
            name: kind.as_str(),
            about: about(kind),
        };
        KINDS.into_iter().map(choice).collect()
    }

    fn fields(spec: &Value, lang: Lang) -> Vec<FormField> {
        let (t, e) = (DestinationTexts::of(lang), FormTexts::of(lang));
        let kind = kind_of(spec);
        let mut fields = vec![
            FormField::new("/name", e.name, Control::Text)
                .hint(e.name_hint)
                .example("crm")
                .required(),
        ];
        fields.extend(match kind.family() {
            DestinationFamily::Webhook => webhook_fields(spec, t, e),
            DestinationFamily::Channel => channel_fields(kind, t, e),
            DestinationFamily::Program => vec![
                FormField::new("/exec/command", t.command, Control::Lines)
                    .hint(t.command_hint)
                    .example("/opt/hooks/act"),
            ],
            DestinationFamily::Stream => stream_fields(t, e),
            DestinationFamily::Listener => vec![
                FormField::new("/listen/remove_after", t.remove_after, Control::Text)
                    .hint(t.remove_after_hint)
                    .value("24h"),
            ],
            DestinationFamily::Mail => mail_fields(t, e),
        });
        fields.extend(common_fields(kind, t));
        fields
    }
}

fn webhook_fields(
    spec: &Value,
    t: &'static DestinationTexts,
    e: &'static FormTexts,
) -> Vec<FormField> {
    let mut fields = vec![
        FormField::new("/url", t.url, Control::Text)
            .hint(t.url_hint)
            .example("https://crm.example.com/hook")
            .required(),
        FormField::new("/signing_secrets", t.signing, Control::Secrets).hint(t.signing_hint),
    ];
    // Other authentication methods are edited as JSON; the API rejects two of them.
    if spec["auth"].is_null() || spec["auth"]["bearer"].is_string() {
        fields.push(FormField::new("/auth/bearer", t.bearer, Control::Secret).hint(e.secret_hint));
    }
    fields
}

fn channel_fields(
    kind: DestinationKind,
    t: &'static DestinationTexts,
    e: &'static FormTexts,
) -> Vec<FormField> {
    let mut fields = Vec::new();
    if kind != DestinationKind::WhatsappCloud {
        fields.push(
            FormField::new("/url", t.service_url, Control::Text)
                .example("https://evolution.example.com")
                .required(),
        );
    }
    let sender = match kind {
        DestinationKind::WhatsappCloud => Some(t.phone_number_id),
        DestinationKind::EvolutionApi => Some(t.instance),
        DestinationKind::Http
        | DestinationKind::Origin
        | DestinationKind::EvolutionGo
        | DestinationKind::Exec
        | DestinationKind::RedisStream
        | DestinationKind::Listen
        | DestinationKind::Email => None,
    };
    let field = |label| FormField::new("/account/sender", label, Control::Text).required();
    fields.extend(sender.map(field));
    fields.extend([
        FormField::new("/account/token", t.token, Control::Secret).hint(e.secret_hint),
        FormField::new("/sending/warn_at", t.warn_at, Control::Number).hint(t.warn_at_hint),
        FormField::new("/sending/stop_at", t.stop_at, Control::Number).hint(t.stop_at_hint),
        FormField::new("/sending/quiet_hours", t.quiet_hours, Control::Text).example("22:00-08:00"),
        FormField::new("/sending/time_zone", t.time_zone, Control::Text)
            .hint(t.time_zone_hint)
            .example("America/Sao_Paulo"),
        FormField::new("/sending/utc_offset", t.utc_offset, Control::Text)
            .hint(t.utc_offset_hint)
            .example("-03:00"),
    ]);
    fields
}

fn stream_fields(t: &'static DestinationTexts, e: &'static FormTexts) -> Vec<FormField> {
    vec![
        FormField::new("/url", t.redis_url, Control::Text)
            .hint(t.redis_url_hint)
            .example("redis://redis.example.com:6379/0")
            .required(),
        FormField::new("/stream/key", t.stream_key, Control::Text).example("events").required(),
        FormField::new("/stream/max_length", t.max_length, Control::Number),
        FormField::new("/auth/basic/user", t.user, Control::Text).example("default"),
        FormField::new("/auth/basic/password", t.password, Control::Secret).hint(e.secret_hint),
    ]
}

fn mail_fields(t: &'static DestinationTexts, e: &'static FormTexts) -> Vec<FormField> {
    vec![
        FormField::new("/url", t.mail_url, Control::Text)
            .hint(t.mail_url_hint)
            .example("smtp://mail.example.com:587")
            .required(),
        FormField::new("/email/from", t.mail_from, Control::Text)
            .example("Surehook <alerts@example.com>")
            .required(),
        FormField::new("/email/to", t.mail_to, Control::Lines)
            .hint(t.mail_to_hint)
            .example("ops@example.com"),
        FormField::new("/auth/basic/user", t.user, Control::Text),
        FormField::new("/auth/basic/password", t.password, Control::Secret).hint(e.secret_hint),
    ]
}

/// Whether the destination is an alert channel; a destination of kind origin cannot be one.
fn alert_fields(kind: DestinationKind, t: &'static DestinationTexts) -> Vec<FormField> {
    let mut choices = vec![("", t.alerts_no), ("auto", t.alerts_auto)];
    if kind == DestinationKind::Http {
        choices.extend([
            ("webhook", t.alerts_json),
            ("slack", t.alerts_slack),
            ("discord", t.alerts_discord),
        ]);
    }
    let choices = choices.into_iter().map(|(value, text)| (value.to_owned(), text.to_owned()));
    let choice = FormField::new("/alerts/format", t.alerts, Control::Choice(choices.collect()));
    let mut fields = vec![choice.hint(t.alerts_hint)];
    if kind.family() == DestinationFamily::Channel {
        fields
            .push(FormField::new("/alerts/to", t.alerts_to, Control::Lines).hint(t.alerts_to_hint));
    }
    fields
}

fn common_fields(kind: DestinationKind, t: &'static DestinationTexts) -> Vec<FormField> {
    let retries =
        [("standard", t.retry_standard), ("short", t.retry_short), ("quick", t.retry_quick)];
    let retries = retries.map(|(value, text)| (value.to_owned(), text.to_owned()));
    let mut fields = vec![
        FormField::new("/retry", t.retry, Control::Choice(retries.to_vec())).value("standard"),
        FormField::new("/rate", t.rate, Control::Text).hint(t.rate_hint).example("50/s"),
        FormField::new("/concurrency", t.concurrency, Control::Number).value("32"),
        FormField::new("/timeout", t.timeout, Control::Text).value("30s"),
    ];
    if kind.family() != DestinationFamily::Channel {
        fields.push(
            FormField::new("/delay", t.delay, Control::Text).hint(t.delay_hint).example("30s"),
        );
    }
    if kind.can_have_shards() {
        fields.push(
            FormField::new("/shards", t.shards, Control::Number).hint(t.shards_hint).value("1"),
        );
    }
    if kind != DestinationKind::Origin {
        fields.extend(alert_fields(kind, t));
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::destination::DestinationSpec;

    use super::*;
    use crate::form_fields::{self, FormValues};

    #[test]
    fn each_destination_kind_can_be_created_from_its_form() {
        let cases: [(&str, &[(&str, &str)]); 7] = [
            ("http", &[("url", "https://a.example/"), ("auth.bearer", "t")]),
            ("whatsapp-cloud", &[("account.sender", "106540352242922"), ("account.token", "t")]),
            ("evolution-go", &[("url", "https://a.example"), ("account.token", "t")]),
            (
                "evolution-api",
                &[("url", "https://a.example"), ("account.sender", "i"), ("account.token", "t")],
            ),
            ("exec", &[("exec.command", "/opt/hooks/act\n--flag")]),
            (
                "email",
                &[
                    ("url", "smtp://a.example"),
                    ("email.from", "a@b.example"),
                    ("email.to", "c@d.example"),
                    ("alerts.format", "auto"),
                ],
            ),
            ("redis-stream", &[("url", "redis://a.example:6379/0"), ("stream.key", "k")]),
        ];
        for (kind, inputs) in cases {
            let mut spec = json!({ "name": "", "kind": kind });
            let table = DestinationResource::fields(&spec, Lang::En);
            let mut values: FormValues =
                table.iter().map(|field| (field.name.clone(), field.value.clone())).collect();
            let inputs = inputs.iter().chain([&("name", "it")]);
            values.extend(inputs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            form_fields::write_to_spec(&table, &values, &mut spec);
            let parsed: Result<DestinationSpec, _> = serde_json::from_value(spec.clone());
            assert!(parsed.is_ok(), "case: {kind}: {parsed:?} of {spec}");
        }
    }
}
