//! Evolution API: `POST /message/send…/{instance}`.
//!
//! - Every failure while sending is a 400 with the text of the exception, including temporary failures
//!   and failures after the message was sent.
//! - An instance on the Cloud API answers 201 with Meta's error as the body. Only `key.id` means success.
//! - A message that WhatsApp refused is answered 201 with its id and the status `ERROR`.
//! - A request carries no id of ours, so it is not safe to send again.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use surehook_retry::DeadReason::Unrecoverable;

use super::{
    AccountRequirements, Channel, ChannelAccount, ChannelResponse, ComposedRequest, ErrorScope,
    Message, ResendPolicy,
    evolution::{API_KEY, media_link, recipient_number},
    message::{
        ContactCard, MediaContent, MediaKind, MessageContent, ReactionContent, TextContent,
        add_field,
    },
    meta_errors,
    response::{classify_status, extract_sent_id, extract_text, parse_json},
};

const NAME: &str = "evolution-api";
/// The server looks up the number, downloads the file and waits for WhatsApp.
const TIMEOUT_MIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct EvolutionApiChannel;

impl Channel for EvolutionApiChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn requirements(&self) -> AccountRequirements {
        AccountRequirements { base_url: None, version: None, sender: Some("instance") }
    }

    fn is_unofficial(&self) -> bool {
        true
    }

    fn compose_request(
        &self,
        account: &ChannelAccount,
        message: &Message,
        _: &str,
    ) -> Result<ComposedRequest, &'static str> {
        let number = recipient_number(message)?;
        let (endpoint, mut body) = compose_content(message)?;
        let is_reaction = matches!(message.content, MessageContent::Reaction(_));
        // A reaction names its chat in `key`.
        if !is_reaction {
            body["number"] = json!(number);
        }
        if let Some(reply) = &message.reply_to {
            body["quoted"] = json!({ "key": { "id": reply.message_id } });
        }
        Ok(ComposedRequest {
            method: Method::POST,
            url: account.url(["message", endpoint, account.sender()]),
            headers: account.headers(API_KEY.clone(), ""),
            body,
            timeout_min: TIMEOUT_MIN,
            resend: if is_reaction { ResendPolicy::Harmless } else { ResendPolicy::Unsafe },
        })
    }

    fn parse_response(&self, status: u16, body: &[u8]) -> ChannelResponse {
        if let Some(id) = extract_sent_id(status, body, &["key", "id"]) {
            return match extract_text(body, &["status"]) {
                Some(state) if state.eq_ignore_ascii_case(REFUSED) => refused_by_whatsapp(),
                Some(_) | None => ChannelResponse::sent(&id, "accepted"),
            };
        }
        let body = parse_json(body);
        // Meta's error is the body itself, or its `error` field.
        let error = body.get("error").filter(|error| error.is_object()).unwrap_or(&body);
        if let Some(response) = meta_errors::parse_error(error, status) {
            return response;
        }
        let messages = body.pointer("/response/message").or_else(|| body.get("message"));
        classify_messages(status, messages.unwrap_or(&Value::Null))
    }
}

fn compose_content(message: &Message) -> Result<(&'static str, Value), &'static str> {
    Ok(match &message.content {
        MessageContent::Text(text) => ("sendText", compose_text(text)),
        MessageContent::Media(file) => compose_media(file)?,
        MessageContent::Location(location) => {
            // Both are required, and may be empty.
            let name = location.name.as_deref().unwrap_or_default();
            let address = location.address.as_deref().unwrap_or_default();
            let (latitude, longitude) = (location.latitude, location.longitude);
            let body = json!({
                "latitude": latitude, "longitude": longitude, "name": name, "address": address,
            });
            ("sendLocation", body)
        }
        MessageContent::Contacts(contacts) => {
            let contacts: Vec<Value> = contacts.iter().map(compose_contact).collect();
            ("sendContact", json!({ "contact": contacts }))
        }
        MessageContent::Reaction(reaction) => ("sendReaction", compose_reaction(message, reaction)),
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

fn compose_text(text: &TextContent) -> Value {
    let mut body = json!({ "text": text.body });
    if let Some(preview) = text.preview_url {
        body["linkPreview"] = json!(preview);
    }
    body
}

fn compose_media(file: &MediaContent) -> Result<(&'static str, Value), &'static str> {
    let link = media_link(file)?;
    if file.kind == MediaKind::Sticker {
        return Ok(("sendSticker", json!({ "sticker": link })));
    }
    if file.voice {
        return Ok(("sendWhatsAppAudio", json!({ "audio": link })));
    }
    let mut body = json!({ "mediatype": file.kind.as_str(), "media": link });
    add_field(&mut body, "mimetype", file.mime_type.as_ref());
    add_field(&mut body, "caption", file.caption.as_ref());
    add_field(&mut body, "fileName", file.filename.as_ref());
    Ok(("sendMedia", body))
}

fn compose_contact(contact: &ContactCard) -> Value {
    let mut value = json!({
        "fullName": contact.name,
        "wuid": contact.phone,
        "phoneNumber": format!("+{}", contact.phone),
    });
    add_field(&mut value, "organization", contact.organization.as_ref());
    add_field(&mut value, "email", contact.email.as_ref());
    add_field(&mut value, "url", contact.url.as_ref());
    value
}

fn compose_reaction(message: &Message, reaction: &ReactionContent) -> Value {
    let mut key = json!({
        "id": reaction.message_id,
        "remoteJid": message.to.jid(),
        "fromMe": reaction.from_me.unwrap_or_default(),
    });
    add_field(&mut key, "participant", reaction.participant.as_ref());
    json!({ "key": key, "reaction": reaction.emoji })
}

/// Exact texts of the WhatsApp library when there was no connection: temporary, and nothing was sent. The
/// same words inside a longer text may be about the database, which is written after sending.
static TRANSIENT_TEXTS: [&str; 3] =
    ["Error: Connection Closed", "Error: Timed Out", "Error: Connection Terminated"];
/// End of the first word of an exception while sending: the message may have been sent. A request to
/// Meta without a response ends in a `TypeError`.
const EXCEPTION_SUFFIX: &str = "Error:";
/// Text of an exception that is not an `Error`: the server rejected the group or number before sending.
const REJECTION: &str = "[object Object]";

/// The status of a message that WhatsApp did not take.
const REFUSED: &str = "ERROR";

/// Permanent, like the same status in a status update: WhatsApp gives no reason, and sending again could
/// send the message twice.
fn refused_by_whatsapp() -> ChannelResponse {
    let text = "WhatsApp refused the message";
    ChannelResponse {
        code: Some(REFUSED.to_owned()),
        ..ChannelResponse::permanent(Unrecoverable, ErrorScope::Message, text)
    }
}

fn classify_messages(status: u16, messages: &Value) -> ChannelResponse {
    let mut texts = Vec::new();
    if collect_texts(messages, &mut texts) {
        return ChannelResponse::permanent(
            Unrecoverable,
            ErrorScope::Recipient,
            "the number is not on WhatsApp",
        );
    }
    let text = texts.join("; ");
    if !texts.is_empty() && texts.iter().all(|text| TRANSIENT_TEXTS.contains(text)) {
        return ChannelResponse::transient(ErrorScope::Number, &text);
    }
    let is_exception = |text: &&str| {
        text.split_whitespace().next().is_some_and(|word| word.ends_with(EXCEPTION_SUFFIX))
    };
    if texts.iter().any(is_exception) {
        return ChannelResponse::ambiguous(&text);
    }
    if text.contains(REJECTION) || text.to_lowercase().contains("group not found") {
        return ChannelResponse::permanent(Unrecoverable, ErrorScope::Recipient, &text);
    }
    match status {
        // No such instance.
        404 => ChannelResponse::config(ErrorScope::Number, &text),
        _ => classify_status(status, &text),
    }
}

/// Collects the texts of nested lists. Returns true, and stops, at an item that says that the number
/// does not exist.
pub(super) fn collect_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) -> bool {
    match value {
        Value::String(text) => {
            texts.push(text);
            false
        }
        Value::Array(items) => items.iter().any(|item| collect_texts(item, texts)),
        Value::Object(item) => item.get("exists") == Some(&Value::Bool(false)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
