//! Evolution API: `POST /message/send…/{instance}`.
//!
//! - Whatever goes wrong while it sends is 400 with the text of the exception, also what passes by
//!   itself, and also what goes wrong after the message went out.
//! - An instance that uses the Cloud API answers 201 with Meta's error as the body. Only `key.id` is a
//!   success.
//! - There is no id of ours in it, so nothing makes it safe to send again.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{
    AccountRequirements, Channel, ChannelAccount, ChannelResponse, ComposedRequest, ErrorScope,
    Message, ResendPolicy, UnsupportedMessageError,
    answer::{by_status, json},
    evolution::{API_KEY, add, link, number},
    message::{Contact, Media, MediaKind, MessageContent, Reaction, Text},
    meta,
    sent_id::sent_id,
};
use crate::delivery::DeadReason::Unrecoverable;

const NAME: &str = "evolution-api";
/// It looks the number up, fetches the file and waits for WhatsApp.
const TIMEOUT_MIN: Duration = Duration::from_secs(60);

/// Evolution API.
#[derive(Debug)]
pub(super) struct EvolutionApi;

impl Channel for EvolutionApi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn requirements(&self) -> AccountRequirements {
        AccountRequirements { base_url: None, version: None, sender: Some("instance") }
    }

    fn compose(
        &self,
        account: &ChannelAccount,
        message: &Message,
        _: &str,
    ) -> Result<ComposedRequest, UnsupportedMessageError> {
        let number = number(NAME, message)?;
        let (call, mut body) = content(message)?;
        let is_reaction = matches!(message.content, MessageContent::Reaction(_));
        // The key of a reaction says where it goes.
        if !is_reaction {
            body["number"] = json!(number);
        }
        if let Some(reply) = &message.reply_to {
            body["quoted"] = json!({ "key": { "id": reply.message_id } });
        }
        Ok(ComposedRequest {
            method: Method::POST,
            url: account.url(["message", call, account.sender()]),
            headers: account.headers(API_KEY.clone(), ""),
            body,
            timeout_min: TIMEOUT_MIN,
            resend: if is_reaction { ResendPolicy::Harmless } else { ResendPolicy::Unsafe },
        })
    }

    fn parse_response(&self, status: u16, body: &[u8]) -> ChannelResponse {
        if let Some(id) = sent_id(status, body, &["key", "id"]) {
            return ChannelResponse::sent(&id, "accepted");
        }
        let body = json(body);
        // Meta's error is the body itself, or within it.
        let error = body.get("error").filter(|error| error.is_object()).unwrap_or(&body);
        if let Some(answer) = meta::parse_error(error, status) {
            return answer;
        }
        let messages = body.pointer("/response/message").or_else(|| body.get("message"));
        by_messages(status, messages.unwrap_or(&Value::Null))
    }
}

fn content(message: &Message) -> Result<(&'static str, Value), UnsupportedMessageError> {
    Ok(match &message.content {
        MessageContent::Text(said) => ("sendText", text(said)),
        MessageContent::Media(file) => media(file)?,
        MessageContent::Location(place) => {
            // Both must be there, and may be empty.
            let name = place.name.as_deref().unwrap_or_default();
            let address = place.address.as_deref().unwrap_or_default();
            let (latitude, longitude) = (place.latitude, place.longitude);
            let body = json!({
                "latitude": latitude, "longitude": longitude, "name": name, "address": address,
            });
            ("sendLocation", body)
        }
        MessageContent::Contacts(people) => {
            let people: Vec<Value> = people.iter().map(contact).collect();
            ("sendContact", json!({ "contact": people }))
        }
        MessageContent::Reaction(emoji) => ("sendReaction", reaction(message, emoji)),
        MessageContent::Template(template) => {
            let body = json!({
                "name": template.name,
                "language": template.language,
                "components": template.components,
            });
            ("sendTemplate", body)
        }
    })
}

fn text(text: &Text) -> Value {
    let mut body = json!({ "text": text.body });
    if let Some(preview) = text.preview_url {
        body["linkPreview"] = json!(preview);
    }
    body
}

fn media(file: &Media) -> Result<(&'static str, Value), UnsupportedMessageError> {
    let link = link(NAME, file)?;
    if file.kind == MediaKind::Sticker {
        return Ok(("sendSticker", json!({ "sticker": link })));
    }
    if file.voice {
        return Ok(("sendWhatsAppAudio", json!({ "audio": link })));
    }
    let mut body = json!({ "mediatype": file.kind.as_str(), "media": link });
    add(&mut body, "mimetype", file.mime_type.as_ref());
    add(&mut body, "caption", file.caption.as_ref());
    add(&mut body, "fileName", file.filename.as_ref());
    Ok(("sendMedia", body))
}

fn contact(person: &Contact) -> Value {
    let mut value = json!({
        "fullName": person.name,
        "wuid": person.phone,
        "phoneNumber": format!("+{}", person.phone),
    });
    add(&mut value, "organization", person.organization.as_ref());
    add(&mut value, "email", person.email.as_ref());
    add(&mut value, "url", person.url.as_ref());
    value
}

fn reaction(message: &Message, reaction: &Reaction) -> Value {
    let mut key = json!({
        "id": reaction.message_id,
        "remoteJid": message.to.jid(),
        "fromMe": reaction.from_me.unwrap_or_default(),
    });
    add(&mut key, "participant", reaction.participant.as_ref());
    json!({ "key": key, "reaction": reaction.emoji })
}

/// What its library for WhatsApp says when the connection was not there, and nothing more. It passes by
/// itself, and nothing was sent. The same words within a longer text may be about its database, to which
/// it writes after it has sent.
static TRANSIENT: [&str; 3] =
    ["Error: Connection Closed", "Error: Timed Out", "Error: Connection Terminated"];
/// An exception while it sent, of which nobody knows whether the message was out already. That a
/// request to Meta got no answer ends in a `TypeError`.
const EXCEPTION: &str = "Error:";
/// An exception that is no `Error`: a refusal of its own before it sends, of a group that is not there
/// or a number that nobody has.
const REFUSAL: &str = "[object Object]";

fn by_messages(status: u16, messages: &Value) -> ChannelResponse {
    let mut texts = Vec::new();
    if collect(messages, &mut texts) {
        return ChannelResponse::permanent(
            Unrecoverable,
            ErrorScope::Recipient,
            "the number is not on WhatsApp",
        );
    }
    let text = texts.join("; ");
    if !texts.is_empty() && texts.iter().all(|text| TRANSIENT.contains(text)) {
        return ChannelResponse::transient(ErrorScope::Number, &text);
    }
    let is_exception =
        |text: &&str| text.split_whitespace().next().is_some_and(|word| word.ends_with(EXCEPTION));
    if texts.iter().any(is_exception) {
        return ChannelResponse::ambiguous(&text);
    }
    if text.contains(REFUSAL) || text.to_lowercase().contains("group not found") {
        return ChannelResponse::permanent(Unrecoverable, ErrorScope::Recipient, &text);
    }
    match status {
        // The instance is not there.
        404 => ChannelResponse::config(ErrorScope::Number, &text),
        _ => by_status(status, &text),
    }
}

/// Takes the texts out of a list in lists. If one of its items is a number that does not exist, that
/// says it all: the answer is yes, and the texts do not matter.
pub(super) fn collect<'v>(value: &'v Value, texts: &mut Vec<&'v str>) -> bool {
    match value {
        Value::String(text) => {
            texts.push(text);
            false
        }
        Value::Array(items) => items.iter().any(|item| collect(item, texts)),
        Value::Object(item) => item.get("exists") == Some(&Value::Bool(false)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
