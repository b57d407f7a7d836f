//! WhatsApp's Cloud API: `POST /{phone_number_id}/messages`.
//!
//! - An answer of 200 means that Meta took the message; whether it is delivered comes later, as a
//!   status.
//! - There is no key against sending twice. The id of the send travels as
//!   `biz_opaque_callback_data` and comes back in every status.

use std::time::Duration;

use http::{Method, header::AUTHORIZATION};
use serde_json::{Map, Value, json};

use super::{
    AccountRequirements, Channel, ChannelAccount, ChannelPacing, ChannelResponse, ComposedRequest,
    Message, Recipient, ResendPolicy, UnsupportedMessageError,
    answer::{by_status, json},
    message::{
        Contact, Location, Media, MediaKind, MediaLocation, MessageContent, NO_LINK, Reaction,
        Template,
    },
    meta,
    pace::CLOUD_API,
    sent_id::sent_id,
};

const NAME: &str = "whatsapp-cloud";
/// Longest `biz_opaque_callback_data`, in characters.
const CALLBACK_CHARS_MAX: usize = 512;
/// Meta answers within seconds; when it fetches nothing, there is nothing to wait for.
const TIMEOUT_MIN: Duration = Duration::from_secs(30);

/// WhatsApp's Cloud API.
#[derive(Debug)]
pub(super) struct WhatsAppCloud;

impl Channel for WhatsAppCloud {
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

    fn compose(
        &self,
        account: &ChannelAccount,
        message: &Message,
        send_id: &str,
    ) -> Result<ComposedRequest, UnsupportedMessageError> {
        let mut body = Map::new();
        body.insert("messaging_product".to_owned(), json!("whatsapp"));
        address(&mut body, message)?;
        let (kind, content) = content(&message.content)?;
        body.insert("type".to_owned(), json!(kind));
        body.insert(kind.to_owned(), content);
        if let Some(reply) = &message.reply_to {
            body.insert("context".to_owned(), json!({ "message_id": reply.message_id }));
        }
        if send_id.chars().count() > CALLBACK_CHARS_MAX {
            return Err(cannot("takes ids of at most 512 characters; choose a shorter one"));
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
        let id = sent_id(status, body, &["messages", "0", "id"]);
        let body = json(body);
        if let Some(answer) = body.get("error").and_then(|error| meta::parse_error(error, status)) {
            return answer;
        }
        match id {
            Some(id) => {
                let text = body.pointer("/messages/0/message_status").and_then(Value::as_str);
                ChannelResponse::sent(&id, text.unwrap_or("accepted"))
            }
            None => by_status(status, ""),
        }
    }
}

fn cannot(why: &'static str) -> UnsupportedMessageError {
    UnsupportedMessageError { channel: NAME, why }
}

fn address(
    body: &mut Map<String, Value>,
    message: &Message,
) -> Result<(), UnsupportedMessageError> {
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
                    return Err(cannot("sends texts, media and templates to groups, nothing else"));
                }
            }
            ("group", "to", id)
        }
        Recipient::Group(_) => {
            return Err(cannot(
                "knows groups by the id that its Groups API gave, not by …@g.us; write that id",
            ));
        }
        Recipient::Other(_) => {
            return Err(cannot("reaches phone numbers, BSUIDs and groups, no other addresses"));
        }
    };
    body.insert("recipient_type".to_owned(), json!(kind));
    body.insert(field.to_owned(), json!(to));
    Ok(())
}

fn content(content: &MessageContent) -> Result<(&'static str, Value), UnsupportedMessageError> {
    Ok(match content {
        MessageContent::Text(text) => {
            let preview = text.preview_url.unwrap_or_default();
            ("text", json!({ "body": text.body, "preview_url": preview }))
        }
        MessageContent::Media(file) => (file.kind.as_str(), media(file)?),
        MessageContent::Location(place) => ("location", location(place)),
        MessageContent::Contacts(people) => ("contacts", people.iter().map(contact).collect()),
        MessageContent::Reaction(Reaction { message_id, emoji, .. }) => {
            ("reaction", json!({ "message_id": message_id, "emoji": emoji }))
        }
        MessageContent::Template(template) => ("template", filled(template)),
    })
}

fn media(media: &Media) -> Result<Value, UnsupportedMessageError> {
    let mut value = match &media.location {
        MediaLocation::Url(link) => json!({ "link": link }),
        MediaLocation::Id(id) => json!({ "id": id }),
        MediaLocation::File(_) => return Err(cannot(NO_LINK)),
    };
    if let Some(caption) = &media.caption {
        value["caption"] = json!(caption);
    }
    if let (MediaKind::Document, Some(filename)) = (media.kind, &media.filename) {
        value["filename"] = json!(filename);
    }
    if media.voice {
        value["voice"] = json!(true);
    }
    Ok(value)
}

fn location(place: &Location) -> Value {
    let mut value = json!({ "latitude": place.latitude, "longitude": place.longitude });
    for (field, text) in [("name", &place.name), ("address", &place.address)] {
        if let Some(text) = text {
            value[field] = json!(text);
        }
    }
    value
}

fn contact(person: &Contact) -> Value {
    let mut value = json!({
        // A whole name alone is refused: one of its parts must be there too.
        "name": { "formatted_name": person.name, "first_name": person.name },
        "phones": [{ "phone": format!("+{}", person.phone), "wa_id": person.phone }],
    });
    if let Some(company) = &person.organization {
        value["org"] = json!({ "company": company });
    }
    if let Some(email) = &person.email {
        value["emails"] = json!([{ "email": email }]);
    }
    if let Some(url) = &person.url {
        value["urls"] = json!([{ "url": url }]);
    }
    value
}

fn filled(template: &Template) -> Value {
    let mut value = json!({ "name": template.name, "language": { "code": template.language } });
    if !template.components.is_empty() {
        value["components"] = json!(template.components);
    }
    value
}
