//! Slack: events, slash commands and interactivity, all signed in the same way.

#[cfg(test)]
mod tests;

use http::StatusCode;
use surehook_types::time::HumanDuration;

use super::{
    EventKey, EventPart, HandshakeKind, JSON, ParsedRequest, Provider, ProviderReply, SampleEvent,
    SampleHeaders,
    fields::{EventReader, EventTemplate},
    form,
};
use crate::{
    attribute::{
        AttributeName::{Account, Chat, Conversation, MessageId, Object, User},
        Attributes, EventKind,
    },
    key::DedupKey,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier},
};

const FORM: SampleHeaders = &[("content-type", "application/x-www-form-urlencoded")];

pub(super) static SLACK: Provider = Provider {
    name: "slack",
    verifier: |secrets| {
        let spec = HmacSpec {
            prefix: "v0=".to_owned(),
            template: "v0:{timestamp}:{body}".to_owned(),
            timestamp_header: Some("x-slack-request-timestamp".to_owned()),
            ..HmacSpec::new("x-slack-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["x-slack-signature", "x-slack-request-timestamp"],
    // Slack retries for six minutes; with delayed events for a day.
    handshake: HandshakeKind::Automatic,
    dedup_window: HumanDuration::from_secs(2 * 86_400),
    parse_request: |request, _| parse_request(request),
    // Empty, because the reply to a slash command is shown to its user.
    success_reply: |_| Some(ProviderReply::empty(StatusCode::OK)),
    samples: &[
        sample!(JSON, "event_callback.message", "slack.event_callback.message.json"),
        sample!(JSON, "event_callback.app_mention", "slack.event_callback.app_mention.json"),
        sample!(JSON, "event_callback.reaction_added", "slack.event_callback.reaction_added.json"),
        sample!(FORM, "slash_command", "slack.slash_command.form"),
        sample!(FORM, "block_actions", "slack.block_actions.form"),
        SampleEvent::json(
            "url_verification",
            r#"{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"{{id}}","type":"url_verification"}"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// A request of the Events API.
static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}.{/event/type}", "{/type}"],
    key: &["slack:{/team_id|/enterprise_id|/api_app_id}:{/event_id}"],
    key_label: "slack:event_id",
    are_key_headers_signed: false,
    ordering_key: &["{/team_id|/enterprise_id|/api_app_id}\
         :{/event/channel|/event/channel/id|/event/channel_id|/event/item/channel}"],
    attributes: &[
        (Account, &["/team_id", "/enterprise_id"]),
        (Chat, &["/event/channel", "/event/channel/id"]),
        (Chat, &["/event/channel_id", "/event/item/channel"]),
        (User, &["/event/user", "/event/user/id", "/event/user_id"]),
        (MessageId, &["/event/ts", "/event/item/ts", "/event/message/ts"]),
        (Conversation, &["/event/thread_ts"]),
    ],
    extra_fields: &["/challenge"],
});

/// The JSON in `payload=` of interactions such as buttons and views.
static INTERACTION: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}"],
    key: &["slack:{/team/id|/enterprise/id}:{/trigger_id}"],
    key_label: "slack:trigger_id",
    ordering_key: &["{/team/id|/enterprise/id}:{/channel/id|/container/channel_id|/user/id}"],
    attributes: &[
        (Account, &["/team/id", "/enterprise/id"]),
        (Chat, &["/channel/id", "/container/channel_id"]),
        (User, &["/user/id"]),
        (MessageId, &["/container/message_ts"]),
        (Conversation, &["/message/thread_ts"]),
        (Object, &["/view/callback_id", "/callback_id"]),
    ],
    ..EventTemplate::EMPTY
});

/// A retry (`X-Slack-Retry-Num`) is parsed like any other request: the first attempt may never have
/// arrived, and if it has, the key shows the duplicate.
fn parse_request(request: &IncomingRequest<'_>) -> ParsedRequest {
    // A form is one whatever the content type says, which is not signed.
    let is_json = request.body.trim_ascii_start().starts_with(b"{");
    if !is_json && (form::is_form(request.headers) || has_form_fields(request.body)) {
        return match form::field(request.body, "payload") {
            None => ParsedRequest::single(parse_command(request.body)),
            Some(json) => {
                let body = json.as_bytes();
                INTERACTION.parse(&IncomingRequest { body, ..*request })
            }
        };
    }
    let found = EVENT.read(request);
    if let (Some("url_verification"), Some(challenge)) =
        (found.get("/type"), found.get("/challenge"))
    {
        return ParsedRequest::Handshake(ProviderReply::text(challenge.to_owned()));
    }
    ParsedRequest::single(found.event())
}

/// Whether a body has a field that every form of Slack has one of.
fn has_form_fields(body: &[u8]) -> bool {
    ["payload", "command", "ssl_check"].iter().any(|name| form::field(body, name).is_some())
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
    attributes.push_some(Account, team.as_deref());
    attributes.push_some(Chat, get("channel_id"));
    attributes.push_some(User, get("user_id"));
    attributes.push_some(Object, command.as_deref());
    EventPart {
        kind: command.and_then(|_| EventKind::new("slash_command")),
        key: EventKey::known_or_none(key("slack:", "trigger_id"), "slack:trigger_id"),
        ordering_key: key("", "channel_id"),
        attributes,
        ..EventPart::default()
    }
}
