//! Requests to Evolution Go and Evolution API, field by field.

use serde_json::{Value, json};

use super::{account, channel, message};

const FILE: &str = "https://files.test/a";
/// The message id for the send id `msg_1`.
const STANZA: &str = "3EB0116B88F173007BE5E0";

/// Path and body, or the error text.
fn compose(name: &str, spec: &Value) -> Result<(String, Value), String> {
    let channel = channel(name);
    let composed = channel
        .compose(&account(channel), &message(spec), "msg_1")
        .map_err(|error| error.to_string())?;
    assert_eq!(composed.method, "POST");
    assert_eq!(composed.headers["apikey"], "t0ken");
    assert_eq!(composed.headers["content-type"], "application/json");
    Ok((composed.url.path().to_owned(), composed.body))
}

fn sent(path: &str, body: Value) -> Result<(String, Value), String> {
    Ok((format!("/base{path}"), body))
}

#[test]
fn every_type_has_the_format_of_evolution_go() {
    let number = "5511987654321";
    let location =
        json!({ "latitude": -23.5, "longitude": -46.5, "name": "Loja", "address": "Rua 1" });
    let person = json!({ "name": "Ana", "phone": "+55 11 91234-5678", "organization": "Loja" });
    let file = json!({ "url": FILE, "caption": "c", "filename": "a.pdf" });
    let cases = [
        ("text", json!("Olá"), "/send/text", json!({ "text": "Olá" })),
        (
            "document",
            file,
            "/send/media",
            json!({ "url": FILE, "type": "document", "caption": "c", "filename": "a.pdf" }),
        ),
        ("image", json!({ "url": FILE }), "/send/media", json!({ "url": FILE, "type": "image" })),
        ("video", json!({ "url": FILE }), "/send/media", json!({ "url": FILE, "type": "video" })),
        (
            "audio",
            json!({ "url": FILE, "voice": true }),
            "/send/media",
            json!({ "url": FILE, "type": "audio" }),
        ),
        ("sticker", json!({ "url": FILE }), "/send/sticker", json!({ "sticker": FILE })),
        ("location", location.clone(), "/send/location", location),
        (
            "contact",
            person,
            "/send/contact",
            json!({ "vcard": { "fullName": "Ana", "phone": "5511912345678", "organization": "Loja" } }),
        ),
    ];
    for (field, spec, path, mut expected) in cases {
        expected["number"] = json!(number);
        expected["id"] = json!(STANZA);
        let composed = compose("evolution-go", &json!({ "to": "+55 11 98765-4321", field: spec }));
        assert_eq!(composed, sent(path, expected), "case: {spec}");
    }
}

#[test]
fn evolution_go_reaction_has_only_id_of_its_message() {
    let react = |reaction: Value| {
        compose("evolution-go", &json!({ "to": "120363404694233820@g.us", "reaction": reaction }))
    };
    let put = json!({ "message_id": "A", "emoji": "👍", "from_me": true, "participant": "1@lid" });
    let expected = json!({
        "number": "120363404694233820@g.us", "id": "A", "reaction": "👍", "fromMe": true,
        "participant": "1@lid",
    });
    assert_eq!(react(put), sent("/message/react", expected));
    let taken_back = react(json!({ "message_id": "A", "emoji": "" })).unwrap().1;
    assert_eq!(taken_back["reaction"], "remove");
    assert_eq!(taken_back["fromMe"], false);
}

#[test]
fn evolution_go_reply_names_author_of_quoted_message() {
    let reply = |to: &str, reply: Value| {
        let spec = json!({ "to": to, "text": "a", "reply_to": reply });
        compose("evolution-go", &spec).map(|(_, body)| body["quoted"].clone())
    };
    let group = "120363404694233820@g.us";
    let author = "5511912345678@s.whatsapp.net";
    assert_eq!(
        reply("5511987654321", json!("A")),
        Ok(json!({ "messageId": "A", "participant": "5511987654321@s.whatsapp.net" }))
    );
    assert_eq!(
        reply(group, json!({ "message_id": "A", "participant": author })),
        Ok(json!({ "messageId": "A", "participant": author }))
    );
    assert!(reply(group, json!("A")).unwrap_err().contains("participant"));
}

#[test]
fn evolution_go_rejects_unsupported_messages_with_reason() {
    let location = |latitude: f64, name: Option<&str>| json!({ "latitude": latitude, "longitude": 1, "name": name, "address": "Rua 1" });
    let people =
        json!([{ "name": "A", "phone": "551191234567" }, { "name": "B", "phone": "551191234568" }]);
    let phone = "5511987654321";
    let cases = [
        (phone, "template", json!({ "name": "a", "language": "b" }), "does not support templates"),
        (phone, "image", json!({ "media_id": "7" }), "does not support `media_id`"),
        (phone, "sticker", json!({ "media_id": "7" }), "does not support `media_id`"),
        (phone, "location", location(1.0, None), "requires `name` and `address`"),
        (phone, "location", location(0.0, Some("Loja")), "of 0 as missing"),
        (phone, "contact", people, "one contact per message"),
        ("BR.1502576394655843", "text", json!("a"), "cannot send to a BSUID"),
        ("Y2FwaV9ncm91cDoxNzA1NTU1MDEzOTox", "text", json!("a"), "…@g.us"),
    ];
    for (to, field, spec, part) in cases {
        let error = compose("evolution-go", &json!({ "to": to, field: spec })).unwrap_err();
        assert!(error.starts_with("evolution-go ") && error.contains(part), "{error}");
    }
}

#[test]
fn every_type_has_the_format_of_evolution_api() {
    let person = json!({ "name": "Ana", "phone": "+55 11 91234-5678", "email": "a@b.c" });
    let file =
        json!({ "url": FILE, "caption": "c", "filename": "a.pdf", "mime_type": "application/pdf" });
    let components = json!([{ "type": "body" }]);
    let cases = [
        ("text", json!("Olá"), "sendText", json!({ "text": "Olá" })),
        (
            "text",
            json!({ "body": "a", "preview_url": false }),
            "sendText",
            json!({ "text": "a", "linkPreview": false }),
        ),
        (
            "document",
            file,
            "sendMedia",
            json!({
                "mediatype": "document", "media": FILE, "caption": "c", "fileName": "a.pdf",
                "mimetype": "application/pdf",
            }),
        ),
        (
            "image",
            json!({ "url": FILE }),
            "sendMedia",
            json!({ "mediatype": "image", "media": FILE }),
        ),
        (
            "audio",
            json!({ "url": FILE }),
            "sendMedia",
            json!({ "mediatype": "audio", "media": FILE }),
        ),
        (
            "audio",
            json!({ "url": FILE, "voice": true }),
            "sendWhatsAppAudio",
            json!({ "audio": FILE }),
        ),
        ("sticker", json!({ "url": FILE }), "sendSticker", json!({ "sticker": FILE })),
        (
            "location",
            json!({ "latitude": 0, "longitude": 1 }),
            "sendLocation",
            json!({ "latitude": 0.0, "longitude": 1.0, "name": "", "address": "" }),
        ),
        (
            "contact",
            json!([person]),
            "sendContact",
            json!({ "contact": [{
                "fullName": "Ana", "wuid": "5511912345678", "phoneNumber": "+5511912345678",
                "email": "a@b.c",
            }] }),
        ),
        (
            "template",
            json!({ "name": "a", "language": "pt_BR", "components": components }),
            "sendTemplate",
            json!({ "name": "a", "language": "pt_BR", "components": components }),
        ),
    ];
    for (field, spec, call, mut expected) in cases {
        expected["number"] = json!("5511987654321");
        let composed = compose("evolution-api", &json!({ "to": "5511987654321", field: spec }));
        assert_eq!(composed, sent(&format!("/message/{call}/1055"), expected), "case: {spec}");
    }
}

#[test]
fn evolution_api_replies_and_reactions_have_a_key() {
    let reply = json!({ "to": "5511987654321", "text": "a", "reply_to": "A" });
    let body = compose("evolution-api", &reply).unwrap().1;
    assert_eq!(body["quoted"], json!({ "key": { "id": "A" } }));

    let reaction = json!({ "message_id": "A", "emoji": "" });
    let key = json!({ "id": "A", "remoteJid": "5511987654321@s.whatsapp.net", "fromMe": false });
    let expected = json!({ "key": key, "reaction": "" });
    assert_eq!(
        compose("evolution-api", &json!({ "to": "5511987654321", "reaction": reaction })),
        sent("/message/sendReaction/1055", expected)
    );
}

#[test]
fn evolution_api_rejects_unsupported_messages_with_reason() {
    let cases = [
        ("5511987654321", "video", json!({ "media_id": "7" }), "does not support `media_id`"),
        ("US.ENT.11815799212886844830", "text", json!("a"), "cannot send to a BSUID"),
    ];
    for (to, field, spec, part) in cases {
        let error = compose("evolution-api", &json!({ "to": to, field: spec })).unwrap_err();
        assert!(error.starts_with("evolution-api ") && error.contains(part), "{error}");
    }
}
