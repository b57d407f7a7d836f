//! Evolution Go: `POST /send/…`, with the token of the instance.
//!
//! - The optional `id` becomes the WhatsApp message id, so a message can be sent again and arrives once.
//!   In a reaction `id` is the other message; a reaction needs no id of its own.
//! - Every failure is a 500; only the text tells them apart.
//! - The server tries three times with reconnections and then waits up to 75 s for WhatsApp. A shorter
//!   timeout would send again while the server is still trying.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use surehook_retry::DeadReason::{PayloadError, Unrecoverable};

use super::{
    AccountRequirements, Channel, ChannelAccount, ChannelResponse, ComposedRequest, ErrorScope,
    Message, ResendPolicy,
    evolution::{API_KEY, media_link, recipient_number},
    message::{
        ContactCard, LocationContent, MediaContent, MediaKind, MessageContent, ReactionContent,
        add_field,
    },
    response::{classify_status, extract_sent_id, parse_json},
};

const NAME: &str = "evolution-go";
/// Prefix of the message ids of the WhatsApp library; 9 bytes in hexadecimal follow.
const ID_PREFIX: &str = "3EB0";
const ID_BYTES: usize = 9;
/// Three attempts of 8 s or more, then 75 s for the response of WhatsApp.
const TIMEOUT_MIN: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct EvolutionGoChannel;

impl Channel for EvolutionGoChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn requirements(&self) -> AccountRequirements {
        // The token belongs to one instance, so it identifies the sender.
        AccountRequirements { base_url: None, version: None, sender: None }
    }

    fn is_unofficial(&self) -> bool {
        true
    }

    fn compose_request(
        &self,
        account: &ChannelAccount,
        message: &Message,
        send_id: &str,
    ) -> Result<ComposedRequest, &'static str> {
        let number = recipient_number(message)?;
        let (path, mut body) = compose_content(&message.content)?;
        body["number"] = json!(number);
        let is_reaction = matches!(message.content, MessageContent::Reaction(_));
        if !is_reaction {
            body["id"] = json!(stanza_id(send_id));
        }
        if let Some(quoted) = compose_quoted(message)? {
            body["quoted"] = quoted;
        }
        Ok(ComposedRequest {
            method: Method::POST,
            url: account.url(path),
            headers: account.headers(API_KEY.clone(), ""),
            body,
            timeout_min: TIMEOUT_MIN,
            resend: if is_reaction { ResendPolicy::Harmless } else { ResendPolicy::SameId },
        })
    }

    fn parse_response(&self, status: u16, body: &[u8]) -> ChannelResponse {
        if let Some(id) = extract_sent_id(status, body, &["data", "Info", "ID"]) {
            return ChannelResponse::sent(&id, "success");
        }
        let body = parse_json(body);
        let Some(text) = body.get("error").and_then(Value::as_str) else {
            return classify_status(status, "");
        };
        let code = body.get("code").and_then(Value::as_str).map(str::to_owned);
        ChannelResponse { code, ..classify_text(status, text) }
    }
}

/// The WhatsApp message id, derived from the send id.
fn stanza_id(send_id: &str) -> String {
    let digest = Sha256::digest(send_id.as_bytes());
    let hex = data_encoding::HEXUPPER.encode(&digest[..ID_BYTES]);
    format!("{ID_PREFIX}{hex}")
}

fn compose_content(content: &MessageContent) -> Result<([&'static str; 2], Value), &'static str> {
    Ok(match content {
        MessageContent::Text(text) => (["send", "text"], json!({ "text": text.body })),
        MessageContent::Media(file) if file.kind == MediaKind::Sticker => {
            (["send", "sticker"], json!({ "sticker": media_link(file)? }))
        }
        MessageContent::Media(file) => (["send", "media"], compose_media(file)?),
        MessageContent::Location(location) => (["send", "location"], compose_location(location)?),
        MessageContent::Contacts(contacts) => (["send", "contact"], compose_contact(contacts)?),
        MessageContent::Reaction(reaction) => (["message", "react"], compose_reaction(reaction)),
        MessageContent::Template(_) => {
            return Err("does not support templates; use whatsapp-cloud or evolution-api");
        }
    })
}

fn compose_media(file: &MediaContent) -> Result<Value, &'static str> {
    let mut body = json!({ "url": media_link(file)?, "type": file.kind.as_str() });
    add_field(&mut body, "caption", file.caption.as_ref());
    add_field(&mut body, "filename", file.filename.as_ref());
    Ok(body)
}

fn compose_location(location: &LocationContent) -> Result<Value, &'static str> {
    let (Some(name), Some(address)) = (&location.name, &location.address) else {
        return Err("requires `name` and `address` of a location; set both");
    };
    if location.latitude == 0.0 || location.longitude == 0.0 {
        return Err("treats a latitude or longitude of 0 as missing; use 0.00001 instead");
    }
    Ok(json!({
        "latitude": location.latitude,
        "longitude": location.longitude,
        "name": name,
        "address": address,
    }))
}

fn compose_contact(contacts: &[ContactCard]) -> Result<Value, &'static str> {
    let [contact] = contacts else {
        return Err("sends one contact per message; send one message for each");
    };
    let mut vcard = json!({ "fullName": contact.name, "phone": contact.phone });
    add_field(&mut vcard, "organization", contact.organization.as_ref());
    Ok(json!({ "vcard": vcard }))
}

fn compose_reaction(reaction: &ReactionContent) -> Value {
    let emoji = if reaction.emoji.is_empty() { "remove" } else { &reaction.emoji };
    let from_me = reaction.from_me.unwrap_or_default();
    let mut body = json!({ "id": reaction.message_id, "reaction": emoji, "fromMe": from_me });
    add_field(&mut body, "participant", reaction.participant.as_ref());
    body
}

/// The message to reply to and its author, which in a direct chat is the recipient.
fn compose_quoted(message: &Message) -> Result<Option<Value>, &'static str> {
    let Some(reply) = &message.reply_to else { return Ok(None) };
    let author = match &reply.participant {
        Some(participant) => participant.clone(),
        None if message.to.is_group() => {
            return Err("needs the author of the message to reply to in a group; set \
                 `reply_to` with `message_id` and `participant`");
        }
        None => message.to.jid().unwrap_or_default(),
    };
    Ok(Some(json!({ "messageId": reply.message_id, "participant": author })))
}

/// Classifies an error text.
type TextClassifier = fn(&str) -> ChannelResponse;

/// Known error texts in lower case, with their class. The first match decides.
static TEXTS: &[(&str, TextClassifier)] = &[
    ("service not activated", config_error),
    ("the store doesn't contain a device jid", config_error),
    ("not authorized", config_error),
    ("is not registered on whatsapp", unknown_recipient),
    ("invalid file format", payload_error),
    ("invalid media type", payload_error),
    ("could not parse phone", payload_error),
    ("could not parse formatted phone", payload_error),
    ("documentos não são suportados", payload_error),
    ("timed out waiting for message send response", ChannelResponse::ambiguous),
    ("server returned error", ChannelResponse::ambiguous),
    ("client disconnected", disconnected),
    ("no active session found", disconnected),
    ("failed to connect client", disconnected),
    ("websocket not connected", disconnected),
    ("info query timed out", disconnected),
    ("failed to send ", disconnected),
];

fn config_error(text: &str) -> ChannelResponse {
    ChannelResponse::config(ErrorScope::Number, text)
}

fn unknown_recipient(text: &str) -> ChannelResponse {
    ChannelResponse::permanent(Unrecoverable, ErrorScope::Recipient, text)
}

fn payload_error(text: &str) -> ChannelResponse {
    ChannelResponse::permanent(PayloadError, ErrorScope::Message, text)
}

/// The instance is not connected: nothing is sent until it is.
fn disconnected(text: &str) -> ChannelResponse {
    ChannelResponse::transient(ErrorScope::Number, text)
}

fn classify_text(status: u16, text: &str) -> ChannelResponse {
    let lower = text.to_lowercase();
    let known = TEXTS.iter().find(|(part, _)| lower.contains(part));
    match known {
        Some((_, classify)) => classify(text),
        // A failure of the server; the message id makes another attempt safe.
        None if status >= 500 => ChannelResponse::transient(ErrorScope::Message, text),
        None => classify_status(status, text),
    }
}
