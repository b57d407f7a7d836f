//! The messages about alerts, in the format of each channel.

use std::{collections::BTreeMap, fmt::Write as _};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_messaging::{MessageSpec, message::TemplateContent};
use surehook_types::{
    string_enum,
    time::{HumanDuration, Timestamp},
};

use super::{
    AlertFigures, AlertRule, AlertStatus, AlertSubjectKind,
    log::{Alert, AlertNotice},
};
use crate::{
    destination::{
        email::EmailBody,
        kind::{DestinationFamily, DestinationKind},
    },
    outbox::{OutboxPost, OutboxPostError},
};

/// Alerts that a message lists; the rest is a number.
const LINES_MAX: usize = 20;
/// Longest last error or reason in a message.
const ERROR_CHARS_MAX: usize = 160;
/// Longest message of Discord.
const DISCORD_CHARS_MAX: usize = 2000;
/// Longest parameter of a WhatsApp template that is sure to be accepted.
const TEMPLATE_CHARS_MAX: usize = 900;
/// Recipients of WhatsApp messages.
const RECIPIENTS_MAX: usize = 20;

string_enum! {
    /// The format of messages about alerts.
    #[derive(Default)]
    pub enum AlertFormat {
        /// That of the kind; for a webhook, that of the service that the URL belongs to.
        #[default]
        Auto = "auto",
        /// JSON, as a Standard Webhook.
        Webhook = "webhook",
        Slack = "slack",
        Discord = "discord",
        /// A mail; destinations of kind `email` only.
        Email = "email",
        /// A WhatsApp message; messaging destinations only.
        Whatsapp = "whatsapp",
    }
}

/// Makes a destination an alert channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlertChannelSpec {
    /// Format of the messages.
    pub format: AlertFormat,
    /// Recipients, for messaging destinations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// An approved template with one parameter in its body, for the WhatsApp Cloud API, which takes
    /// other texts only within 24 hours after a message of the recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<AlertTemplateSpec>,
}

/// A template with one parameter in its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertTemplateSpec {
    pub name: String,
    /// Language code, such as `pt_BR`.
    pub language: String,
}

/// Why the settings of a channel are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertChannelSpecError {
    #[error("format `{0}` is not supported by destinations of kind {1}; remove it")]
    Format(&'static str, &'static str),
    #[error("to must name 1 to {RECIPIENTS_MAX} recipients of the messages")]
    Recipients,
    #[error("to: `{0}` is not a valid recipient; write a phone number with its country")]
    Recipient(String),
    #[error("`{0}` is only for messaging destinations; remove it")]
    OnlyMessages(&'static str),
    #[error("a destination of kind origin stands for all URLs of a host; use kind http")]
    Origin,
}

/// A destination that gets messages about alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertChannel {
    /// Never `auto`.
    pub format: AlertFormat,
    /// For messaging destinations.
    to: Vec<String>,
    template: Option<AlertTemplateSpec>,
}

impl AlertChannelSpec {
    pub fn build(
        &self,
        kind: DestinationKind,
        url: &str,
    ) -> Result<AlertChannel, AlertChannelSpecError> {
        use AlertFormat::{Discord, Email, Slack, Webhook, Whatsapp};
        if kind == DestinationKind::Origin {
            return Err(AlertChannelSpecError::Origin);
        }
        let (default, others): (_, &[AlertFormat]) = match kind.family() {
            DestinationFamily::Webhook => (service_of(url), &[Webhook, Slack, Discord]),
            DestinationFamily::Program
            | DestinationFamily::Stream
            | DestinationFamily::Listener => (Webhook, &[Webhook]),
            DestinationFamily::Mail => (Email, &[Email]),
            DestinationFamily::Channel => (Whatsapp, &[Whatsapp]),
        };
        let format = match self.format {
            AlertFormat::Auto => default,
            Webhook | Slack | Discord | Email | Whatsapp => self.format,
        };
        if !others.contains(&format) {
            return Err(AlertChannelSpecError::Format(format.as_str(), kind.as_str()));
        }
        if format == Whatsapp {
            if !(1..=RECIPIENTS_MAX).contains(&self.to.len()) {
                return Err(AlertChannelSpecError::Recipients);
            }
            let is_invalid = |to: &&String| text_message(to, "x", None).build().is_err();
            if let Some(invalid) = self.to.iter().find(is_invalid) {
                return Err(AlertChannelSpecError::Recipient(invalid.clone()));
            }
        } else if !self.to.is_empty() {
            return Err(AlertChannelSpecError::OnlyMessages("to"));
        } else if self.template.is_some() {
            return Err(AlertChannelSpecError::OnlyMessages("template"));
        }
        Ok(AlertChannel { format, to: self.to.clone(), template: self.template.clone() })
    }
}

/// The format that the service at a URL understands.
fn service_of(url: &str) -> AlertFormat {
    let url = url::Url::parse(url).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    match host {
        "hooks.slack.com" | "hooks.slack-gov.com" => AlertFormat::Slack,
        "discord.com" | "discordapp.com" | "ptb.discord.com" | "canary.discord.com" => {
            AlertFormat::Discord
        }
        _ => AlertFormat::Webhook,
    }
}

impl AlertRule {
    /// What has happened, after the name of the subject.
    pub const fn title(self) -> &'static str {
        match self {
            Self::DestinationUnusable => "cannot deliver",
            Self::CircuitOpen => "circuit open",
            Self::DestinationFailing => "failing",
            Self::FailureRatio => "high failure rate",
            Self::OldestPending => "deliveries overdue",
            Self::DeadLetters => "new dead letters",
            Self::DeadLetterCount => "many dead letters",
            Self::SilentSource => "no events",
            Self::SignatureFailures => "invalid signatures",
            Self::DiskSpace => "low disk space",
            Self::SendQuota => "daily message limit",
            Self::NodeLost => "node lost",
        }
    }
}

impl AlertFigures {
    /// The figures in words.
    pub fn describe(&self, rule: AlertRule) -> String {
        let Self { count, of, seconds, text } = self;
        let span = HumanDuration::from_secs(*seconds);
        let error = text.as_ref().map(|text| shorten(text, ERROR_CHARS_MAX));
        let with_error = |sentence: String| match &error {
            Some(error) => format!("{sentence}; last error: {error}"),
            None => sentence,
        };
        match rule {
            AlertRule::DestinationUnusable => {
                let reason = error.as_deref().unwrap_or("its settings are invalid");
                format!("{reason}; {count} deliveries wait")
            }
            AlertRule::CircuitOpen => {
                with_error(format!("held after repeated failures, {count} deliveries wait"))
            }
            AlertRule::DestinationFailing | AlertRule::FailureRatio => {
                with_error(format!("{count} of {of} attempts failed in the last {span}"))
            }
            AlertRule::OldestPending => with_error(format!(
                "the oldest due delivery has waited for {}, {count} deliveries wait",
                minutes(*seconds)
            )),
            AlertRule::DeadLetters => {
                with_error(format!("{count} deliveries became dead in the last {span}"))
            }
            AlertRule::DeadLetterCount => format!("{count} dead letters (threshold {of})"),
            AlertRule::SilentSource => {
                format!("no event for {}, expected every {}", minutes(*seconds), minutes(*of))
            }
            AlertRule::SignatureFailures => {
                format!("{count} requests without a valid signature in the last {span}")
            }
            AlertRule::DiskSpace => {
                format!("{} MiB free (threshold {} MiB)", count >> 20, of >> 20)
            }
            AlertRule::SendQuota => format!("{count} of {of} messages of today are sent"),
            AlertRule::NodeLost => format!("no sign of life for {}", minutes(*seconds)),
        }
    }
}

/// A time span in the largest unit that is not too coarse.
fn minutes(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn shorten(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut short: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// A message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMessage {
    /// The kind of its event.
    kind: &'static str,
    at: Timestamp,
    title: String,
    /// Each with the page about it.
    lines: Vec<MessageLine>,
    /// The page with all alerts.
    url: Option<String>,
    /// For programs.
    alerts: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MessageLine {
    subject: String,
    url: Option<String>,
    text: String,
}

impl AlertMessage {
    /// The message of a notice. Links begin with `base`, the public URL of the gateway.
    pub fn of_notice(notice: &AlertNotice, base: Option<&str>) -> Self {
        let link = |path: &str| base.map(|base| format!("{base}{path}"));
        let mut lines: Vec<MessageLine> = notice
            .alerts
            .iter()
            .take(LINES_MAX)
            .map(|alert| MessageLine {
                subject: subject_name(alert),
                url: link(&alert.subject.path()),
                text: line_text(alert),
            })
            .collect();
        if let Some(more) = notice.alerts.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
            let text = format!("and {more} more");
            lines.push(MessageLine { subject: "…".to_owned(), url: None, text });
        }
        let alerts = notice.alerts.iter().map(|alert| {
            json!({
                "id": alert.number,
                "rule": alert.rule,
                "status": alert.status(),
                "subject": alert.subject,
                "summary": alert.figures.describe(alert.rule),
                "fired_at": alert.fired_at,
                "resolved_at": alert.resolved_at,
                "url": link(&alert.subject.path()),
            })
        });
        Self {
            kind: match notice.status {
                AlertStatus::Firing => "alert.firing",
                AlertStatus::Resolved => "alert.resolved",
            },
            at: notice.at,
            title: title(notice),
            lines,
            url: link("/alerts"),
            alerts: alerts.collect(),
        }
    }

    /// A message that only shows that a channel works.
    pub fn test(channel: &str, at: Timestamp, base: Option<&str>) -> Self {
        let text = "alerts of this gateway arrive here".to_owned();
        Self {
            kind: "alert.test",
            at,
            title: format!("Surehook test: {channel} works"),
            lines: vec![MessageLine { subject: channel.to_owned(), url: None, text }],
            url: base.map(|base| format!("{base}/alerts")),
            alerts: Vec::new(),
        }
    }

    /// The events that carry the message to a channel: one, or one for each recipient.
    pub fn posts(&self, channel: &AlertChannel) -> Result<Vec<OutboxPost>, OutboxPostError> {
        let body = match channel.format {
            AlertFormat::Webhook | AlertFormat::Auto => self.webhook_body(),
            AlertFormat::Slack => self.slack_body(),
            AlertFormat::Discord => self.discord_body(),
            AlertFormat::Email => {
                json!(EmailBody { subject: self.title.clone(), text: self.plain_text() })
            }
            AlertFormat::Whatsapp => return Ok(self.messages(channel)),
        };
        let body = Bytes::from(body.to_string());
        Ok(vec![OutboxPost::webhook(Some(self.kind), &BTreeMap::new(), body)?])
    }

    fn webhook_body(&self) -> Value {
        json!({
            "type": self.kind,
            "timestamp": self.at,
            "data": {
                "title": self.title,
                "text": self.plain_text(),
                "url": self.url,
                "alerts": self.alerts,
            },
        })
    }

    fn slack_body(&self) -> Value {
        let escape =
            |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let mut text = format!("*{}*", escape(&self.title));
        for line in &self.lines {
            let subject = escape(&line.subject);
            let subject = match &line.url {
                Some(url) => format!("<{url}|{subject}>"),
                None => subject,
            };
            let _infallible = write!(text, "\n• {subject}: {}", escape(&line.text));
        }
        if let Some(url) = &self.url {
            let _infallible = write!(text, "\n<{url}|All alerts>");
        }
        json!({ "text": text })
    }

    fn discord_body(&self) -> Value {
        let plain = |text: &str| {
            text.chars()
                .flat_map(|char| ["*_~`|[]()<>#".contains(char).then_some('\\'), Some(char)])
                .flatten()
                .collect::<String>()
        };
        let mut text = format!("**{}**", plain(&self.title));
        let end = self.url.as_ref().map(|url| format!("\n<{url}>")).unwrap_or_default();
        for line in &self.lines {
            let line = format!("\n• {}: {}", plain(&line.subject), plain(&line.text));
            if text.chars().count() + line.chars().count() + end.chars().count() + 2
                > DISCORD_CHARS_MAX
            {
                text.push_str("\n…");
                break;
            }
            text.push_str(&line);
        }
        text.push_str(&end);
        json!({ "content": text, "allowed_mentions": { "parse": [] } })
    }

    fn plain_text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for line in &self.lines {
            let _infallible = write!(text, "\n- {}: {}", line.subject, line.text);
            if let Some(url) = &line.url {
                let _infallible = write!(text, "\n  {url}");
            }
        }
        if let Some(url) = &self.url {
            let _infallible = write!(text, "\n\nAll alerts: {url}");
        }
        text.push('\n');
        text
    }

    fn messages(&self, channel: &AlertChannel) -> Vec<OutboxPost> {
        // A parameter of a template must not have line breaks.
        let lines: Vec<String> =
            self.lines.iter().map(|line| format!("{}: {}", line.subject, line.text)).collect();
        let parameter =
            shorten(&format!("{} | {}", self.title, lines.join(" | ")), TEMPLATE_CHARS_MAX);
        let text = self.plain_text();
        let text = match &channel.template {
            Some(_) => &parameter,
            None => text.trim_end(),
        };
        channel
            .to
            .iter()
            .map(|to| text_message(to, text, channel.template.as_ref()))
            .filter_map(|spec| {
                let message = spec.clone().build().ok()?;
                Some(OutboxPost::message(&spec, &message))
            })
            .collect()
    }
}

fn text_message(to: &str, text: &str, template: Option<&AlertTemplateSpec>) -> MessageSpec {
    let mut spec = MessageSpec { to: to.to_owned(), ..MessageSpec::default() };
    match template {
        None => spec.text = Some(shorten_text(text).into()),
        Some(AlertTemplateSpec { name, language }) => {
            spec.template = Some(TemplateContent {
                name: name.clone(),
                language: language.clone(),
                components: vec![json!({
                    "type": "body",
                    "parameters": [{ "type": "text", "text": text }],
                })],
            });
        }
    }
    spec
}

/// A text that fits into one message.
fn shorten_text(text: &str) -> String {
    text.chars().take(4000).collect()
}

fn subject_name(alert: &Alert) -> String {
    match alert.subject.kind {
        AlertSubjectKind::Gateway => "gateway".to_owned(),
        kind @ (AlertSubjectKind::Destination
        | AlertSubjectKind::Source
        | AlertSubjectKind::Node) => format!("{} {}", kind.as_str(), alert.subject.name),
    }
}

fn line_text(alert: &Alert) -> String {
    match alert.resolved_at {
        None => format!("{}. {}", alert.rule.title(), alert.figures.describe(alert.rule)),
        Some(resolved_at) => {
            let lasted = minutes(resolved_at.since(alert.fired_at).as_secs());
            format!("{}, over after {lasted}", alert.rule.title())
        }
    }
}

fn title(notice: &AlertNotice) -> String {
    let prefix = match notice.status {
        AlertStatus::Firing => "Surehook alert",
        AlertStatus::Resolved => "Surehook resolved",
    };
    let mut subjects: Vec<String> = Vec::new();
    for name in notice.alerts.iter().map(subject_name) {
        if !subjects.contains(&name) {
            subjects.push(name);
        }
    }
    let rules: std::collections::BTreeSet<AlertRule> =
        notice.alerts.iter().map(|alert| alert.rule).collect();
    let rules: Vec<&str> = rules.into_iter().map(AlertRule::title).collect();
    match &subjects[..] {
        [subject] => format!("{prefix}: {subject}: {}", rules.join(", ")),
        [first, second] => format!("{prefix}: {first}, {second}: {}", rules.join(", ")),
        [first, ..] => {
            format!("{prefix}: {first} and {} others: {}", subjects.len() - 1, rules.join(", "))
        }
        [] => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::ids::DestinationId;

    use super::{super::AlertSubject, *};

    const AT: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn alert(number: u64, rule: AlertRule, name: &str) -> Alert {
        let id = DestinationId::new(AT, u128::from(number) << 64).to_string();
        Alert {
            number,
            rule,
            subject: AlertSubject {
                kind: AlertSubjectKind::Destination,
                id,
                name: name.to_owned(),
            },
            figures: AlertFigures {
                count: 9,
                of: 10,
                seconds: 300,
                text: Some("HTTP 503: <@everyone> *down* & out\n\u{7}".to_owned()),
            },
            figures_at: AT,
            fired_at: AT,
            clear_since: None,
            resolved_at: None,
            notice: None,
            resolved_notice: None,
        }
    }

    fn message(alerts: Vec<Alert>) -> AlertMessage {
        let notice = AlertNotice { number: 9, at: AT, status: AlertStatus::Firing, alerts };
        AlertMessage::of_notice(&notice, Some("https://hooks.example.com"))
    }

    fn channel(
        kind: DestinationKind,
        url: &str,
        spec: Value,
    ) -> Result<AlertChannel, AlertChannelSpecError> {
        serde_json::from_value::<AlertChannelSpec>(spec).unwrap().build(kind, url)
    }

    fn body(message: &AlertMessage, channel: &AlertChannel) -> Value {
        let posts = message.posts(channel).unwrap();
        assert_eq!(posts.len(), 1);
        serde_json::from_slice(&posts[0].body).unwrap()
    }

    #[test]
    fn format_follows_from_kind_and_url() {
        use DestinationKind::{Email, EvolutionGo, Exec, Http, Origin, RedisStream};
        let none = json!({});
        let to = json!({ "to": ["+55 11 98765-4321"] });
        let slack = "https://hooks.slack.com/services/T/B/x";
        for (kind, url, spec, expected) in [
            (Http, "https://example.com/alerts", none.clone(), Ok("webhook")),
            (Http, slack, none.clone(), Ok("slack")),
            (Http, "https://discord.com/api/webhooks/1/x", none.clone(), Ok("discord")),
            (Http, "https://chat.example.com", json!({ "format": "slack" }), Ok("slack")),
            (Http, slack, json!({ "format": "webhook" }), Ok("webhook")),
            (Email, "smtp://mail.test", none.clone(), Ok("email")),
            (Exec, "", none.clone(), Ok("webhook")),
            (RedisStream, "redis://r", none.clone(), Ok("webhook")),
            (EvolutionGo, "", to.clone(), Ok("whatsapp")),
            (EvolutionGo, "", none.clone(), Err(AlertChannelSpecError::Recipients)),
            (
                EvolutionGo,
                "",
                json!({ "to": ["x"] }),
                Err(AlertChannelSpecError::Recipient("x".to_owned())),
            ),
            (Http, slack, to, Err(AlertChannelSpecError::OnlyMessages("to"))),
            (
                Exec,
                "",
                json!({ "format": "slack" }),
                Err(AlertChannelSpecError::Format("slack", "exec")),
            ),
            (Origin, "https://example.com", none, Err(AlertChannelSpecError::Origin)),
        ] {
            let case = format!("{kind:?} {url} {spec}");
            let built = channel(kind, url, spec).map(|channel| channel.format.as_str());
            assert_eq!(built, expected, "case: {case}");
        }
    }

    #[test]
    fn message_names_the_subjects_and_links_their_pages() {
        let message = message(vec![
            alert(1, AlertRule::DestinationFailing, "crm"),
            alert(2, AlertRule::CircuitOpen, "mail"),
        ]);
        let webhook = channel(DestinationKind::Http, "https://a.test", json!({})).unwrap();
        let body = body(&message, &webhook);
        assert_eq!(body["type"], "alert.firing");
        let title = "Surehook alert: destination crm, destination mail: circuit open, failing";
        assert_eq!(body["data"]["title"], title);
        assert_eq!(body["data"]["url"], "https://hooks.example.com/alerts");
        let first = &body["data"]["alerts"][0];
        assert_eq!((&first["rule"], &first["id"]), (&json!("destination_failing"), &json!(1)));
        let page = format!(
            "https://hooks.example.com/destinations/{}",
            first["subject"]["id"].as_str().unwrap()
        );
        assert_eq!(first["url"], page);
        assert!(
            first["summary"]
                .as_str()
                .unwrap()
                .starts_with("9 of 10 attempts failed in the last 5m")
        );
    }

    #[test]
    fn text_of_others_cannot_mention_people_or_format_the_message() {
        let message = message(vec![alert(1, AlertRule::DestinationFailing, "crm")]);
        let http = DestinationKind::Http;
        let slack = channel(http, "https://hooks.slack.com/x", json!({})).unwrap();
        let text = body(&message, &slack)["text"].to_string();
        assert!(text.contains("&lt;@everyone&gt;") && text.contains("&amp; out"), "{text}");
        let discord = channel(http, "https://discord.com/x", json!({})).unwrap();
        let posted = body(&message, &discord);
        assert_eq!(posted["allowed_mentions"], json!({ "parse": [] }));
        assert!(posted["content"].as_str().unwrap().contains(r"\*down\*"), "{posted}");
    }

    #[test]
    fn message_about_many_alerts_stays_short() {
        let alerts =
            (0..500).map(|number| alert(number, AlertRule::DestinationFailing, &"x".repeat(60)));
        let message = message(alerts.collect());
        let discord = channel(DestinationKind::Http, "https://discord.com/x", json!({})).unwrap();
        let text = body(&message, &discord)["content"].as_str().unwrap().to_owned();
        assert!(text.chars().count() <= DISCORD_CHARS_MAX, "{}", text.len());
        assert!(message.plain_text().contains("and 480 more"));
    }

    #[test]
    fn whatsapp_gets_a_message_for_each_recipient_or_a_template() {
        let message = message(vec![alert(1, AlertRule::DestinationFailing, "crm")]);
        let to = ["+55 11 98765-4321", "+55 11 98765-4322"];
        let template = json!({ "name": "alert", "language": "en" });
        for (spec, field) in
            [(json!({ "to": to }), "text"), (json!({ "to": to, "template": template }), "template")]
        {
            let channel = channel(DestinationKind::WhatsappCloud, "", spec).unwrap();
            let posts = message.posts(&channel).unwrap();
            assert_eq!(posts.len(), 2);
            let body: Value = serde_json::from_slice(&posts[0].body).unwrap();
            let text = body[field].to_string();
            assert!(text.contains("destination crm"), "{body}");
            if field == "template" {
                let parameter = &body["template"]["components"][0]["parameters"][0]["text"];
                assert!(!parameter.as_str().unwrap().contains('\n'), "{body}");
            }
        }
    }
}
