//! Slack: events, slash commands and interactivity, all signed in the same way.

#[cfg(test)]
mod tests;

use http::StatusCode;
use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, EventPart, FieldValues, ParsedRequest, Provider, ProviderReply, SampleEvent,
    fields::body_fields, form,
};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

body_fields! {
    /// Fields of the Events API.
    static EVENT {
        TYPE = "/type",
        CHALLENGE = "/challenge",
        EVENT_ID = "/event_id",
        TEAM_ID = "/team_id",
        ENTERPRISE_ID = "/enterprise_id",
        API_APP_ID = "/api_app_id",
        EVENT_TYPE = "/event/type",
        CHANNEL = "/event/channel",
        CHANNEL_OBJECT_ID = "/event/channel/id",
        CHANNEL_ID = "/event/channel_id",
        ITEM_CHANNEL = "/event/item/channel",
        USER = "/event/user",
        USER_OBJECT_ID = "/event/user/id",
        USER_ID = "/event/user_id",
        TS = "/event/ts",
        ITEM_TS = "/event/item/ts",
        MESSAGE_TS = "/event/message/ts",
        THREAD_TS = "/event/thread_ts",
    }
}

const EVENT_ATTRIBUTES: [(AttributeName, usize); 13] = [
    (AttributeName::Account, TEAM_ID),
    (AttributeName::Account, ENTERPRISE_ID),
    (AttributeName::Chat, CHANNEL),
    (AttributeName::Chat, CHANNEL_OBJECT_ID),
    (AttributeName::Chat, CHANNEL_ID),
    (AttributeName::Chat, ITEM_CHANNEL),
    (AttributeName::User, USER),
    (AttributeName::User, USER_OBJECT_ID),
    (AttributeName::User, USER_ID),
    (AttributeName::MessageId, TS),
    (AttributeName::MessageId, ITEM_TS),
    (AttributeName::MessageId, MESSAGE_TS),
    (AttributeName::Conversation, THREAD_TS),
];

body_fields! {
    /// Fields of the JSON in `payload=` of interactions such as buttons and views.
    static INTERACTION {
        INTERACTION_TYPE = "/type",
        TRIGGER_ID = "/trigger_id",
        INTERACTION_TEAM = "/team/id",
        INTERACTION_ENTERPRISE = "/enterprise/id",
        INTERACTION_CHANNEL = "/channel/id",
        CONTAINER_CHANNEL = "/container/channel_id",
        INTERACTION_USER = "/user/id",
        CONTAINER_MESSAGE = "/container/message_ts",
        INTERACTION_THREAD = "/message/thread_ts",
        VIEW_CALLBACK = "/view/callback_id",
        CALLBACK = "/callback_id",
    }
}

const INTERACTION_ATTRIBUTES: [(AttributeName, usize); 9] = [
    (AttributeName::Account, INTERACTION_TEAM),
    (AttributeName::Account, INTERACTION_ENTERPRISE),
    (AttributeName::Chat, INTERACTION_CHANNEL),
    (AttributeName::Chat, CONTAINER_CHANNEL),
    (AttributeName::User, INTERACTION_USER),
    (AttributeName::MessageId, CONTAINER_MESSAGE),
    (AttributeName::Conversation, INTERACTION_THREAD),
    (AttributeName::Object, VIEW_CALLBACK),
    (AttributeName::Object, CALLBACK),
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

    /// A retry (`X-Slack-Retry-Num`) is parsed like any other request: the first attempt may never have
    /// arrived, and if it has, the key shows the duplicate.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        if !form::is_form(request) {
            return parse_event(request.body);
        }
        let json = form::payload_json(request);
        ParsedRequest::single(if json.is_empty() {
            parse_command(request.body)
        } else {
            parse_interaction(&json)
        })
    }

    /// Slack retries for six minutes; with delayed events for a day.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(2 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-slack-signature", "x-slack-request-timestamp"]
    }

    /// Empty, because the reply to a slash command is shown to its user.
    fn success_reply(&self, _: &IncomingRequest<'_>) -> Option<ProviderReply> {
        Some(ProviderReply::empty(StatusCode::OK))
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

fn parse_event(body: &[u8]) -> ParsedRequest {
    let found = EVENT.read(body);
    if let (Some("url_verification"), Some(challenge)) = (found.get(TYPE), found.get(CHALLENGE)) {
        return ParsedRequest::Handshake(ProviderReply::text(challenge.to_owned()));
    }
    let kind = match (found.get(TYPE), found.get(EVENT_TYPE)) {
        (Some(outer), Some(inner)) => EventKind::new(&format!("{outer}.{inner}")),
        (outer, _) => outer.and_then(EventKind::new),
    };
    let scope =
        [TEAM_ID, ENTERPRISE_ID, API_APP_ID].into_iter().find(|field| found.get(*field).is_some());
    let key = scope.and_then(|scope| found.key("slack", &[scope, EVENT_ID]));
    ParsedRequest::single(EventPart {
        kind,
        key: EventKey::known(key, "slack:event_id"),
        order: scope.and_then(|scope| {
            order_key(&found, scope, &[CHANNEL, CHANNEL_OBJECT_ID, CHANNEL_ID, ITEM_CHANNEL])
        }),
        attributes: found.attributes(&EVENT_ATTRIBUTES),
        ..EventPart::default()
    })
}

fn parse_interaction(json: &[u8]) -> EventPart {
    let found = INTERACTION.read(json);
    let scope = [INTERACTION_TEAM, INTERACTION_ENTERPRISE]
        .into_iter()
        .find(|field| found.get(*field).is_some());
    let key = scope.and_then(|scope| found.key("slack", &[scope, TRIGGER_ID]));
    EventPart {
        kind: found.get(INTERACTION_TYPE).and_then(EventKind::new),
        key: EventKey::known(key, "slack:trigger_id"),
        order: scope.and_then(|scope| {
            order_key(&found, scope, &[INTERACTION_CHANNEL, CONTAINER_CHANNEL, INTERACTION_USER])
        }),
        attributes: found.attributes(&INTERACTION_ATTRIBUTES),
        ..EventPart::default()
    }
}

/// A key of the workspace and the first of these fields that is present.
fn order_key(found: &FieldValues<'_>, scope: usize, fields: &[usize]) -> Option<DedupKey> {
    let field = fields.iter().copied().find(|field| found.get(*field).is_some())?;
    found.key("", &[scope, field])
}

fn parse_command(form: &[u8]) -> EventPart {
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
