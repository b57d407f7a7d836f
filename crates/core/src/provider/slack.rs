//! Slack: events, slash commands and interactivity, all signed in the same way.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use http::StatusCode;

use super::{
    BodyFields, EventKey, EventPart, FieldValues, ParsedRequest, Provider, ProviderReply,
    SampleEvent, form,
};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

/// What an event of the Events API has.
static EVENT: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/type",
        "/challenge",
        "/event_id",
        "/team_id",
        "/enterprise_id",
        "/api_app_id",
        "/event/type",
        // A channel that was made or renamed is an object.
        "/event/channel",
        "/event/channel/id",
        "/event/channel_id",
        "/event/item/channel",
        "/event/user",
        "/event/user/id",
        "/event/user_id",
        "/event/ts",
        "/event/item/ts",
        "/event/message/ts",
        "/event/thread_ts",
    ])
});

const EVENT_ABOUT: [(AttributeName, usize); 13] = [
    (AttributeName::Account, 3),
    (AttributeName::Account, 4),
    (AttributeName::Chat, 7),
    (AttributeName::Chat, 8),
    (AttributeName::Chat, 9),
    (AttributeName::Chat, 10),
    (AttributeName::User, 11),
    (AttributeName::User, 12),
    (AttributeName::User, 13),
    (AttributeName::MessageId, 14),
    (AttributeName::MessageId, 15),
    (AttributeName::MessageId, 16),
    (AttributeName::Conversation, 17),
];

/// What the JSON in `payload=` has when somebody pressed a button or sent a form of a view.
static INTERACTION: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/type",
        "/trigger_id",
        "/team/id",
        "/enterprise/id",
        "/channel/id",
        "/container/channel_id",
        "/user/id",
        "/container/message_ts",
        "/message/thread_ts",
        "/view/callback_id",
        "/callback_id",
    ])
});

const INTERACTION_ABOUT: [(AttributeName, usize); 9] = [
    (AttributeName::Account, 2),
    (AttributeName::Account, 3),
    (AttributeName::Chat, 4),
    (AttributeName::Chat, 5),
    (AttributeName::User, 6),
    (AttributeName::MessageId, 7),
    (AttributeName::Conversation, 8),
    (AttributeName::Object, 9),
    (AttributeName::Object, 10),
];

#[derive(Debug)]
pub(super) struct Slack;

impl Provider for Slack {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            prefix: "v0=".to_owned(),
            template: "v0:{timestamp}:{body}".to_owned(),
            timestamp_header: Some("x-slack-request-timestamp".to_owned()),
            ..HmacSpec::new("x-slack-signature")
        };
        Verifier::hmac(spec, secrets)
    }

    /// A request with `X-Slack-Retry-Num` is read like any other: the first one may never have
    /// arrived, and if it has, the key says so.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        if !form::is_form(request) {
            return event(request.body);
        }
        let json = form::json(request);
        ParsedRequest::one(if json.is_empty() { command(request.body) } else { interaction(&json) })
    }

    /// It ends after six minutes; with delayed events it goes on for a day.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(2 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-slack-signature", "x-slack-request-timestamp"]
    }

    /// Empty: what a slash command is answered with is shown to whoever typed it.
    fn success_reply(&self, _: &IncomingRequest<'_>) -> Option<ProviderReply> {
        Some(ProviderReply::empty(StatusCode::OK))
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

fn event(body: &[u8]) -> ParsedRequest {
    let found = EVENT.read(body);
    if let (Some("url_verification"), Some(challenge)) = (found.get(0), found.get(1)) {
        return ParsedRequest::Handshake(ProviderReply::text(challenge.to_owned()));
    }
    let kind = match (found.get(0), found.get(6)) {
        (Some(outer), Some(inner)) => EventKind::new(&format!("{outer}.{inner}")),
        (outer, _) => outer.and_then(EventKind::new),
    };
    let scope = [3, 4, 5].into_iter().find(|place| found.get(*place).is_some());
    let key = scope.and_then(|scope| found.key("slack", &[scope, 2]));
    ParsedRequest::one(EventPart {
        kind,
        key: EventKey::known(key, "slack:event_id"),
        order: scope.and_then(|scope| line(&found, scope, &[7, 8, 9, 10])),
        attributes: found.attributes(&EVENT_ABOUT),
        ..EventPart::default()
    })
}

fn interaction(json: &[u8]) -> EventPart {
    let found = INTERACTION.read(json);
    let scope = [2, 3].into_iter().find(|place| found.get(*place).is_some());
    let key = scope.and_then(|scope| found.key("slack", &[scope, 1]));
    EventPart {
        kind: found.get(0).and_then(EventKind::new),
        key: EventKey::known(key, "slack:trigger_id"),
        order: scope.and_then(|scope| line(&found, scope, &[4, 5, 6])),
        attributes: found.attributes(&INTERACTION_ABOUT),
        ..EventPart::default()
    }
}

/// The workspace and the first of these places.
fn line(found: &FieldValues<'_>, scope: usize, places: &[usize]) -> Option<DedupKey> {
    let place = places.iter().copied().find(|place| found.get(*place).is_some())?;
    found.key("", &[scope, place])
}

fn command(form: &[u8]) -> EventPart {
    let get = |name| form::field(form, name);
    if get("ssl_check").is_some() {
        let kind = EventKind::new("ssl_check");
        return EventPart { kind, key: EventKey::None, is_ping: true, ..EventPart::default() };
    }
    let command = get("command");
    let team = get("team_id").or_else(|| get("enterprise_id"));
    let key =
        |prefix: &str, name| DedupKey::new(&format!("{prefix}{}:{}", team.as_deref()?, get(name)?));
    let mut attributes = Attributes::default();
    attributes.push_some(AttributeName::Account, team.as_deref());
    attributes.push_some(AttributeName::Chat, get("channel_id"));
    attributes.push_some(AttributeName::User, get("user_id"));
    attributes.push_some(AttributeName::Object, command.as_deref());
    EventPart {
        kind: command.and_then(|_| EventKind::new("slash_command")),
        key: EventKey::known(key("slack:", "trigger_id"), "slack:trigger_id"),
        order: key("", "channel_id"),
        attributes,
        ..EventPart::default()
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const FORM: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded")];

static SAMPLES: &[SampleEvent] = &[
    SampleEvent {
        kind: "event_callback.message",
        headers: JSON,
        target: "",
        body: include_str!("samples/slack.event_callback.message.json"),
    },
    SampleEvent {
        kind: "event_callback.app_mention",
        headers: JSON,
        target: "",
        body: include_str!("samples/slack.event_callback.app_mention.json"),
    },
    SampleEvent {
        kind: "event_callback.reaction_added",
        headers: JSON,
        target: "",
        body: include_str!("samples/slack.event_callback.reaction_added.json"),
    },
    SampleEvent {
        kind: "slash_command",
        headers: FORM,
        target: "",
        body: include_str!("samples/slack.slash_command.form"),
    },
    SampleEvent {
        kind: "block_actions",
        headers: FORM,
        target: "",
        body: include_str!("samples/slack.block_actions.form"),
    },
    SampleEvent {
        kind: "url_verification",
        headers: JSON,
        target: "",
        body: r#"{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"{{id}}","type":"url_verification"}"#,
    },
];
