//! Requests to the Cloud API, field by field.

use serde_json::{Value, json};

use super::{account, channel, message};

fn compose(spec: &Value) -> Result<Value, String> {
    let channel = channel("whatsapp-cloud");
    let composed = channel.compose(&account(channel), &message(spec), "msg_1");
    composed.map(|composed| composed.body).map_err(|error| error.to_string())
}

/// The fields of every message to a phone number.
fn body(kind: &str, content: &Value) -> Value {
    json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": "5511987654321",
        "type": kind, kind: content, "biz_opaque_callback_data": "msg_1",
    })
}

#[test]
fn request_is_posted_to_messages_of_the_number() {
    let channel = channel("whatsapp-cloud");
    let text = message(&json!({ "to": "5511987654321", "text": "hi" }));
    let composed = channel.compose(&account(channel), &text, "msg_1").unwrap();
    assert_eq!(composed.method, "POST");
    assert_eq!(composed.url.as_str(), "https://graph.facebook.com/v25.0/1055/messages");
    assert_eq!(composed.headers["authorization"], "Bearer t0ken");
    assert_eq!(composed.headers["content-type"], "application/json");
}

/// Field, its value in the spec, type, and the value in the request.
type Case = (&'static str, Value, &'static str, Value);

fn check(cases: &[Case]) {
    for (field, spec, kind, expected) in cases {
        let composed = compose(&json!({ "to": "+55 11 98765-4321", *field: spec }));
        assert_eq!(composed, Ok(body(kind, expected)), "case: {spec}");
    }
}

#[test]
fn text_and_media_have_the_format_of_the_cloud_api() {
    let file = "https://files.test/a";
    let cases = [
        ("text", json!("Olá"), "text", json!({ "body": "Olá", "preview_url": false })),
        (
            "text",
            json!({ "body": "a", "preview_url": true }),
            "text",
            json!({ "body": "a", "preview_url": true }),
        ),
        (
            "image",
            json!({ "url": file, "caption": "c", "filename": "a.png", "mime_type": "image/png" }),
            "image",
            json!({ "link": file, "caption": "c" }),
        ),
        ("video", json!({ "media_id": "77" }), "video", json!({ "id": "77" })),
        ("audio", json!({ "url": file }), "audio", json!({ "link": file })),
        (
            "audio",
            json!({ "url": file, "voice": true }),
            "audio",
            json!({ "link": file, "voice": true }),
        ),
        (
            "document",
            json!({ "url": file, "caption": "c", "filename": "a.pdf" }),
            "document",
            json!({ "link": file, "caption": "c", "filename": "a.pdf" }),
        ),
        ("sticker", json!({ "media_id": "78" }), "sticker", json!({ "id": "78" })),
    ];
    check(&cases);
}

#[test]
fn other_contents_have_the_format_of_the_cloud_api() {
    let file = "https://files.test/a";
    let components =
        json!([{ "type": "body", "parameters": [{ "type": "text", "text": "4821" }] }]);
    let cases = [
        (
            "location",
            json!({ "latitude": 0, "longitude": -46.5, "name": "Loja" }),
            "location",
            json!({ "latitude": 0.0, "longitude": -46.5, "name": "Loja" }),
        ),
        (
            "contact",
            json!({ "name": "Ana Sá", "phone": "+55 11 91234-5678", "organization": "Loja", "email": "a@b.c", "url": file }),
            "contacts",
            json!([{
                "name": { "formatted_name": "Ana Sá", "first_name": "Ana Sá" },
                "phones": [{ "phone": "+5511912345678", "wa_id": "5511912345678" }],
                "org": { "company": "Loja" },
                "emails": [{ "email": "a@b.c" }],
                "urls": [{ "url": file }],
            }]),
        ),
        (
            "reaction",
            json!({ "message_id": "wamid.A", "emoji": "👍", "from_me": true }),
            "reaction",
            json!({ "message_id": "wamid.A", "emoji": "👍" }),
        ),
        (
            "template",
            json!({ "name": "pedido_enviado", "language": "pt_BR", "components": components }),
            "template",
            json!({ "name": "pedido_enviado", "language": { "code": "pt_BR" }, "components": components }),
        ),
        (
            "template",
            json!({ "name": "hello", "language": "en_US" }),
            "template",
            json!({ "name": "hello", "language": { "code": "en_US" } }),
        ),
    ];
    check(&cases);
}

#[test]
fn reply_has_context_with_message_id() {
    let spec = json!({ "to": "5511987654321", "text": "a", "reply_to": "wamid.A" });
    let mut expected = body("text", &json!({ "body": "a", "preview_url": false }));
    expected["context"] = json!({ "message_id": "wamid.A" });
    assert_eq!(compose(&spec), Ok(expected));
}

#[test]
fn recipients_without_phone_number_are_addressed_or_rejected() {
    let to = |to: &str| compose(&json!({ "to": to, "text": "a" }));
    let scoped = to("BR.1502576394655843").unwrap();
    assert_eq!(scoped["recipient"], "BR.1502576394655843");
    assert_eq!(scoped["recipient_type"], "individual");
    assert_eq!(scoped.get("to"), None);

    let id = "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM0MDQ2OTQyMzM4MjAZD";
    let group = to(id).unwrap();
    assert_eq!(group["recipient_type"], "group");
    assert_eq!(group["to"], id);

    let location = json!({ "latitude": 1, "longitude": 1 });
    let cases = [
        (to("120363404694233820@g.us"), "…@g.us"),
        (to("148438822404248@lid"), "only to phone numbers"),
        (compose(&json!({ "to": id, "location": location })), "to groups"),
    ];
    for (refused, part) in cases {
        assert!(refused.clone().unwrap_err().contains(part), "{refused:?}");
    }
}

#[test]
fn too_long_send_id_is_rejected() {
    let channel = channel("whatsapp-cloud");
    let text = message(&json!({ "to": "5511987654321", "text": "hi" }));
    let compose = |id: &str| channel.compose(&account(channel), &text, id).is_ok();
    assert!(compose(&"é".repeat(512)));
    assert!(!compose(&"é".repeat(513)));
}
