//! WhatsApp's Cloud API: `POST /{phone_number_id}/messages`.
//!
//! - A 200 means that Meta accepted the message; delivery is reported later as a status update.
//! - There is no idempotency key. The send id travels as `biz_opaque_callback_data` and comes back in
//!   every status update.

use std::time::Duration;

use http::{Method, header::AUTHORIZATION};
use serde_json::{Map, Value, json};

use super::{
    AccountRequirements, Channel, ChannelAccount, ChannelPacing, ChannelResponse, ComposedRequest,
    Message, Recipient, ResendPolicy,
    message::{
        ContactCard, LocationContent, MediaContent, MediaKind, MediaLocation, MessageContent,
        NO_LINK, ReactionContent, TemplateContent, add_field,
    },
    meta_errors,
    pacing::CLOUD_API,
    response::{classify_status, extract_sent_id, parse_json},
};

const NAME: &str = "whatsapp-cloud";
/// Longest `biz_opaque_callback_data`, in characters.
const CALLBACK_CHARS_MAX: usize = 512;
/// Meta responds within seconds.
const TIMEOUT_MIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct WhatsAppCloudChannel;

impl Channel for WhatsAppCloudChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn requirements(&self) -> AccountRequirements {
        AccountRequirements {
            base_url: Some("https://graph.facebook.com"),
            version: Some("v25.0"),
            sender: Some("phone_number_id"),
        }
    }

    fn pacing(&self) -> ChannelPacing {
        CLOUD_API
    }

    fn compose_request(
        &self,
        account: &ChannelAccount,
        message: &Message,
        send_id: &str,
    ) -> Result<ComposedRequest, &'static str> {
        let mut body = Map::new();
        body.insert("messaging_product".to_owned(), json!("whatsapp"));
        add_recipient(&mut body, message)?;
        let (kind, content) = compose_content(&message.content)?;
        body.insert("type".to_owned(), json!(kind));
        body.insert(kind.to_owned(), content);
        if let Some(reply) = &message.reply_to {
            body.insert("context".to_owned(), json!({ "message_id": reply.message_id }));
        }
        if send_id.chars().count() > CALLBACK_CHARS_MAX {
            return Err("accepts send ids of at most 512 characters; use a shorter one");
        }
        body.insert("biz_opaque_callback_data".to_owned(), json!(send_id));
        let is_reaction = matches!(message.content, MessageContent::Reaction(_));
        Ok(ComposedRequest {
            method: Method::POST,
            url: account.url([account.sender(), "messages"]),
            headers: account.headers(AUTHORIZATION, "Bearer "),
            body: Value::Object(body),
            timeout_min: TIMEOUT_MIN,
            resend: if is_reaction { ResendPolicy::Harmless } else { ResendPolicy::WaitForStatus },
        })
    }

    fn has_send_id_in_statuses(&self) -> bool {
        true
    }

    fn parse_response(&self, status: u16, body: &[u8]) -> ChannelResponse {
        let id = extract_sent_id(status, body, &["messages", "0", "id"]);
        let body = parse_json(body);
        if let Some(response) =
            body.get("error").and_then(|error| meta_errors::parse_error(error, status))
        {
            return response;
        }
        match id {
            Some(id) => {
                let text = body.pointer("/messages/0/message_status").and_then(Value::as_str);
                ChannelResponse::sent(&id, text.unwrap_or("accepted"))
            }
            None => classify_status(status, ""),
        }
    }
}

fn add_recipient(body: &mut Map<String, Value>, message: &Message) -> Result<(), &'static str> {
    let (kind, field, to) = match &message.to {
        Recipient::Phone(digits) => ("individual", "to", digits),
        Recipient::BusinessScoped(id) => ("individual", "recipient", id),
        Recipient::GroupId(id) => {
            match message.content {
                MessageContent::Text(_)
                | MessageContent::Media(_)
                | MessageContent::Template(_) => {}
                MessageContent::Location(_)
                | MessageContent::Contacts(_)
                | MessageContent::Reaction(_) => {
                    return Err("sends only text, media and templates to groups");
                }
            }
            ("group", "to", id)
        }
        Recipient::Group(_) => {
            return Err(
                "identifies groups by the id of its Groups API, not by …@g.us; use that id",
            );
        }
        Recipient::Other(_) => {
            return Err("sends only to phone numbers, BSUIDs and groups");
        }
    };
    body.insert("recipient_type".to_owned(), json!(kind));
    body.insert(field.to_owned(), json!(to));
    Ok(())
}

fn compose_content(content: &MessageContent) -> Result<(&'static str, Value), &'static str> {
    Ok(match content {
        MessageContent::Text(text) => {
            let preview = text.preview_url.unwrap_or_default();
            ("text", json!({ "body": text.body, "preview_url": preview }))
        }
        MessageContent::Media(file) => (file.kind.as_str(), compose_media(file)?),
        MessageContent::Location(location) => ("location", compose_location(location)),
        MessageContent::Contacts(contacts) => {
            ("contacts", contacts.iter().map(compose_contact).collect())
        }
        MessageContent::Reaction(ReactionContent { message_id, emoji, .. }) => {
            ("reaction", json!({ "message_id": message_id, "emoji": emoji }))
        }
        MessageContent::Template(template) => ("template", compose_template(template)),
    })
}

fn compose_media(media: &MediaContent) -> Result<Value, &'static str> {
    let mut value = match &media.location {
        MediaLocation::Url(link) => json!({ "link": link }),
        MediaLocation::Id(id) => json!({ "id": id }),
        MediaLocation::File(_) => return Err(NO_LINK),
    };
    add_field(&mut value, "caption", media.caption.as_ref());
    if media.kind == MediaKind::Document {
        add_field(&mut value, "filename", media.filename.as_ref());
    }
    if media.voice {
        value["voice"] = json!(true);
    }
    Ok(value)
}

fn compose_location(location: &LocationContent) -> Value {
    let mut value = json!({ "latitude": location.latitude, "longitude": location.longitude });
    add_field(&mut value, "name", location.name.as_ref());
    add_field(&mut value, "address", location.address.as_ref());
    value
}

fn compose_contact(contact: &ContactCard) -> Value {
    let mut value = json!({
        // Meta rejects `formatted_name` alone: one part of the name is required too.
        "name": { "formatted_name": contact.name, "first_name": contact.name },
        "phones": [{ "phone": format!("+{}", contact.phone), "wa_id": contact.phone }],
    });
    if let Some(company) = &contact.organization {
        value["org"] = json!({ "company": company });
    }
    if let Some(email) = &contact.email {
        value["emails"] = json!([{ "email": email }]);
    }
    if let Some(url) = &contact.url {
        value["urls"] = json!([{ "url": url }]);
    }
    value
}

fn compose_template(template: &TemplateContent) -> Value {
    let mut value = json!({ "name": template.name, "language": { "code": template.language } });
    if !template.components.is_empty() {
        value["components"] = json!(template.components);
    }
    value
}
