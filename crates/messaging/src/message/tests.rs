//! Accepted messages, and the errors of rejected ones.

use serde_json::{Value, json};

use super::{
    CONTACTS_MAX, MediaKind, MediaLocation, Message, MessageContent, MessageSpec, MessageSpecError,
    MessageType, ReplyTo, TEXT_CHARS_MAX, TextContent,
};

const TO: &str = "+55 11 98765-4321";

fn parse(json_message: &Value) -> Result<Message, MessageSpecError> {
    Message::parse(json_message.to_string().as_bytes())
}

fn message_with(field: &str, value: &Value) -> Value {
    json!({ "to": TO, field: value })
}

#[test]
fn text_is_accepted_as_string_or_object() {
    let text = |body: &str, preview_url| {
        MessageContent::Text(TextContent { body: body.to_owned(), preview_url })
    };
    let cases = [
        (json!({ "to": TO, "text": "hi" }), text("hi", None)),
        (json!({ "to": TO, "text": { "body": "hi" } }), text("hi", None)),
        (
            json!({ "to": TO, "type": "text", "text": { "body": "hi", "preview_url": true } }),
            text("hi", Some(true)),
        ),
        (json!({ "to": TO, "text": "hi", "image": null, "contact": null }), text("hi", None)),
    ];
    for (json_message, expected) in cases {
        assert_eq!(
            parse(&json_message).map(|message| message.content),
            Ok(expected),
            "{json_message}"
        );
    }
}

#[test]
fn content_field_determines_message_type() {
    use MessageType::{
        Audio, Contact, Document, Image, Location, Reaction, Sticker, Template, Video,
    };
    let file = json!({ "url": "https://files.test/a?b=c" });
    let cases = [
        (Image, file.clone()),
        (Video, file.clone()),
        (Audio, file.clone()),
        (Document, file.clone()),
        (Sticker, file),
        (Location, json!({ "latitude": -90, "longitude": 180 })),
        (Contact, json!({ "name": "Ana", "phone": TO })),
        (Contact, json!([{ "name": "Ana", "phone": TO }])),
        (Reaction, json!({ "message_id": "A", "emoji": "" })),
        (Template, json!({ "name": "a", "language": "pt_BR" })),
    ];
    for (kind, value) in cases {
        let mut json_message = message_with(kind.as_str(), &value);
        assert_eq!(parse(&json_message).map(|message| message.kind()), Ok(kind), "{json_message}");
        json_message["type"] = json!(kind.as_str());
        assert_eq!(parse(&json_message).map(|message| message.kind()), Ok(kind), "{json_message}");
    }
}

#[test]
fn media_is_located_by_id_or_uploaded_file() {
    let id = parse(&message_with("image", &json!({ "media_id": "7", "caption": "" }))).unwrap();
    let MessageContent::Media(media) = id.content else { panic!("no file") };
    assert_eq!(media.location, MediaLocation::Id("7".to_owned()));
    assert_eq!((media.kind, media.caption), (MediaKind::Image, None));
    let file = "med_01h455vb4pex5vsknk084sn02q";
    let upload = parse(&message_with("video", &json!({ "file": file }))).unwrap();
    let MessageContent::Media(media) = upload.content else { panic!("no file") };
    assert_eq!(media.location, MediaLocation::File(file.parse().unwrap()));
}

#[test]
fn reply_is_accepted_as_id_or_object() {
    let id = || "wamid.A".to_owned();
    let author = "5511912345678@s.whatsapp.net".to_owned();
    let full = json!({ "message_id": "wamid.A", "participant": author });
    let cases = [
        (json!("wamid.A"), ReplyTo { message_id: id(), participant: None }),
        (full, ReplyTo { message_id: id(), participant: Some(author) }),
    ];
    for (reply, expected) in cases {
        let json_message = json!({ "to": TO, "text": "a", "reply_to": reply });
        assert_eq!(
            parse(&json_message).map(|message| message.reply_to),
            Ok(Some(expected)),
            "{json_message}"
        );
    }
}

#[test]
fn message_that_no_channel_can_send_is_rejected() {
    use MessageSpecError::{
        Caption, ContactPhone, Coordinates, Empty, NoContent, NoFile, ReactionReply, To, TooLong,
        TooManyContacts, TwoContents, TwoFiles, TypeMismatch, Voice,
    };
    let file = "https://files.test/a";
    let upload = "med_01h455vb4pex5vsknk084sn02q";
    let long = "é".repeat(TEXT_CHARS_MAX + 1);
    let too_many_contacts = vec![json!({ "name": "Ana", "phone": TO }); CONTACTS_MAX + 1];
    let reaction = json!({ "message_id": "A", "emoji": "👍" });
    let mut reply = message_with("reaction", &reaction);
    reply["reply_to"] = json!("B");
    let cases = [
        (json!({ "to": "maria", "text": "a" }), To),
        (json!({ "text": "a" }), To),
        (json!({ "to": TO }), NoContent),
        (json!({ "to": TO, "type": "text" }), NoContent),
        (json!({ "to": TO, "text": "a", "image": { "url": file } }), TwoContents("text", "image")),
        (
            json!({ "to": TO, "type": "image", "text": "a" }),
            TypeMismatch { declared: "image", found: "text" },
        ),
        (message_with("text", &json!("")), Empty("text.body")),
        (message_with("text", &json!({ "body": " \n" })), Empty("text.body")),
        (message_with("text", &json!(long)), TooLong { field: "text.body", max: TEXT_CHARS_MAX }),
        (message_with("image", &json!({})), NoFile("image")),
        (message_with("video", &json!({ "url": file, "media_id": "7" })), TwoFiles("video")),
        (message_with("video", &json!({ "url": file, "file": upload })), TwoFiles("video")),
        (message_with("video", &json!({ "media_id": "7", "file": upload })), TwoFiles("video")),
        (message_with("audio", &json!({ "url": "files.test" })), MessageSpecError::Url("audio")),
        (
            message_with("audio", &json!({ "url": "file:///etc/passwd" })),
            MessageSpecError::Url("audio"),
        ),
        (message_with("image", &json!({ "media_id": " " })), Empty("media_id")),
        (message_with("audio", &json!({ "url": file, "caption": "c" })), Caption("audio")),
        (message_with("sticker", &json!({ "url": file, "caption": "c" })), Caption("sticker")),
        (
            message_with("image", &json!({ "url": file, "caption": long })),
            TooLong { field: "caption", max: 1024 },
        ),
        (message_with("video", &json!({ "url": file, "voice": true })), Voice("video")),
        (message_with("location", &json!({ "latitude": 90.1, "longitude": 0 })), Coordinates),
        (message_with("location", &json!({ "latitude": 0, "longitude": -181 })), Coordinates),
        (message_with("contact", &json!([])), Empty("contact")),
        (message_with("contact", &json!({ "name": " ", "phone": TO })), Empty("contact.name")),
        (message_with("contact", &json!({ "name": "Ana", "phone": "1@g.us" })), ContactPhone),
        (message_with("contact", &json!(too_many_contacts)), TooManyContacts),
        (
            message_with("reaction", &json!({ "message_id": "", "emoji": "" })),
            Empty("reaction.message_id"),
        ),
        (reply, ReactionReply),
        (
            message_with("template", &json!({ "name": "", "language": "pt" })),
            Empty("template.name"),
        ),
        (
            message_with("template", &json!({ "name": "a", "language": "" })),
            Empty("template.language"),
        ),
        (json!({ "to": TO, "text": "a", "reply_to": "" }), Empty("reply_to")),
    ];
    for (json_message, expected) in cases {
        assert_eq!(parse(&json_message), Err(expected), "{}", &json_message.to_string()[..40]);
    }
    assert!(parse(&message_with("text", &json!("é".repeat(TEXT_CHARS_MAX)))).is_ok());
}

#[test]
fn malformed_message_error_names_the_wrong_field() {
    let cases = [
        (r#"{"to":"5511987654321","txt":"a"}"#, "unknown field `txt`"),
        (r#"{"to":"5511987654321","text":{"bdy":"a"}}"#, "unknown field `bdy`"),
        (r#"{"to":"5511987654321","text":7}"#, "expected a text or an object"),
        (r#"{"to":"5511987654321","text":["a"]}"#, "expected a text or an object"),
        (r#"{"to":"5511987654321","image":["https://a.b"]}"#, "expected an object"),
        (r#"{"to":"5511987654321","image":{"file":"7"}}"#, "starts with `med_`"),
        (r#"{"to":"5511987654321","contact":"Ana"}"#, "expected an object or a list of them"),
        (r#"{"to":"5511987654321","contact":[["Ana","1"]]}"#, "expected an object"),
        (r#"{"to":"5511987654321","contact":{"name":"Ana"}}"#, "missing field `phone`"),
        (r#"{"to":"5511987654321","type":"poll"}"#, "unknown variant `poll`"),
        (r#"{"to":"5511987654321","reply_to":{"id":"A"}}"#, "unknown field `id`"),
        (r#"["5511987654321"]"#, "expected an object"),
        (r#"{"to":"5511987654321","text":"a"} x"#, "trailing characters"),
        ("", "EOF"),
    ];
    for (json_message, part) in cases {
        let refused = Message::parse(json_message.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(part), "{json_message}: {refused}");
    }
}

#[test]
fn schema_shows_both_forms_of_text() {
    let schema = schemars::schema_for!(MessageSpec).to_value();
    assert_eq!(schema["additionalProperties"], false);
    let text = schema["properties"]["text"].to_string();
    assert!(text.contains("TextForms") || text.contains("anyOf"), "{text}");
    assert!(schema["properties"]["type"].is_object());
}
