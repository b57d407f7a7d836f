//! The texts of Evolution Go and Evolution API, each with what follows from it.

use serde_json::{Value, json};

use super::{
    ErrorScope, Meaning, again, ambiguous, channel, ends, growing, held, later, meaning, sent,
};
use crate::delivery::{
    DeadReason::{PayloadError, Unrecoverable},
    FailureClass,
};

#[test]
fn every_text_of_evolution_go_has_its_meaning() {
    let nobody = ends(Unrecoverable, ErrorScope::Recipient);
    let refused = ends(PayloadError, ErrorScope::Message);
    let down = again(ErrorScope::Number);
    let stopped = held(ErrorScope::Number);
    let cases: [(u16, &str, Meaning); 27] = [
        (500, "number 5511987654321 is not registered on WhatsApp", nobody),
        (500, "Invalid file format: 'text/html'. Only 'video/mp4' is accepted", refused),
        (500, "invalid media type", refused),
        (500, "could not parse phone: 12", refused),
        (500, "could not parse formatted phone", refused),
        (500, "documentos não são suportados em canais do WhatsApp", refused),
        (500, "client disconnected", down),
        (400, "client disconnected", down),
        (500, "no active session found", down),
        (500, "failed to connect client: client disconnected", down),
        (500, "failed to connect client after 2 attempts", down),
        (500, "websocket not connected", down),
        (500, "failed to get device list: info query timed out", down),
        (500, "failed to send text after 3 attempts", down),
        (500, "failed to send link after 3 attempts", down),
        (500, "timed out waiting for message send response", ambiguous()),
        (500, "server returned error 479", ambiguous()),
        (500, "the store doesn't contain a device JID", stopped),
        (503, "service not activated", stopped),
        (401, "not authorized", stopped),
        (400, "phone number is required", refused),
        (400, "latitude is required", refused),
        (500, "something new", again(ErrorScope::Message)),
        (404, "404 page not found", held(ErrorScope::Account)),
        (429, "slow down", (Some(FailureClass::Throttled), None, None, ErrorScope::Number, None)),
        (200, "client disconnected", down),
        (200, "something new", ambiguous()),
    ];
    for (status, text, expected) in cases {
        let body = json!({ "error": text }).to_string();
        let answer = channel("evolution-go").parse_response(status, body.as_bytes());
        assert_eq!(meaning(&answer), expected, "case: {status} {text}");
        assert!(!answer.text.contains("5511987654321"), "case: {text}");
    }
}

#[test]
fn other_answers_of_evolution_go() {
    let done = json!({
        "message": "success",
        "data": { "Info": { "ID": "3EB0A1", "Chat": "5511987654321@s.whatsapp.net" } },
    });
    let license = json!({ "code": "LICENSE_REQUIRED", "error": "service not activated" });
    let cases = [
        ("done", 200, done.to_string(), sent(), Some("3EB0A1"), None),
        (
            "no licence",
            503,
            license.to_string(),
            held(ErrorScope::Number),
            None,
            Some("LICENSE_REQUIRED"),
        ),
        ("no id", 200, r#"{"message":"success"}"#.to_owned(), ambiguous(), None, None),
        ("a proxy broke down", 502, "<html>".to_owned(), ambiguous(), None, None),
        ("a proxy gave up", 504, String::new(), ambiguous(), None, None),
        ("wrong server", 404, "<html>".to_owned(), held(ErrorScope::Account), None, None),
    ];
    for (name, status, body, expected, id, code) in cases {
        let answer = channel("evolution-go").parse_response(status, body.as_bytes());
        assert_eq!(meaning(&answer), expected, "case: {name}");
        assert_eq!(answer.sent_id.as_deref(), id, "case: {name}");
        assert_eq!(answer.code.as_deref(), code, "case: {name}");
    }
}

fn failed(status: u16, message: Value) -> Value {
    json!({ "status": status, "error": "Bad Request", "response": { "message": message } })
}

#[test]
fn every_answer_of_evolution_api_has_its_meaning() {
    let nobody = ends(Unrecoverable, ErrorScope::Recipient);
    let refused = ends(PayloadError, ErrorScope::Message);
    let down = again(ErrorScope::Number);
    let number = json!([{ "jid": "5511987654321@s.whatsapp.net", "exists": false }]);
    let schema = json!([["instance requires property \"text\""]]);
    let missing = json!(["The \"shop\" instance does not exist"]);
    let type_error = "TypeError: Cannot read properties of undefined (reading 'data')";
    // What it does after it has sent fails with words that sound the same.
    let database = "PrismaClientKnownRequestError: Invalid `prisma.message.create()` invocation: \
                    Timed out fetching a new connection from the connection pool.";
    let cases: [(u16, Value, Meaning); 23] = [
        (400, failed(400, json!(["Error: Connection Closed"])), down),
        (400, failed(400, json!("Error: Connection Closed")), down),
        (400, failed(400, json!(["Error: Timed Out"])), down),
        (400, failed(400, json!(["Error: Connection Terminated"])), down),
        (400, failed(400, json!([["Error: Timed Out"]])), down),
        (400, failed(400, json!([database])), ambiguous()),
        (400, failed(400, json!(["Error: Connection terminated unexpectedly"])), ambiguous()),
        (400, failed(400, json!(["Error: Timed Out", "Error: no space left"])), ambiguous()),
        (400, failed(400, json!(["Error: Stream Errored (restart required)"])), ambiguous()),
        (400, failed(400, number.clone()), nobody),
        (400, failed(400, json!([number])), nobody),
        (400, failed(400, json!(["[object Object]"])), nobody),
        (400, failed(400, json!(["Group not found"])), nobody),
        (400, failed(400, json!([type_error])), ambiguous()),
        (400, failed(400, json!(["PrismaClientKnownRequestError: too many"])), ambiguous()),
        (400, failed(400, schema), refused),
        (400, failed(400, json!(["Owned media must be a url or base64"])), refused),
        (404, failed(404, missing), held(ErrorScope::Number)),
        (401, json!({ "status": 401, "error": "Unauthorized" }), held(ErrorScope::Account)),
        (500, failed(500, json!("Internal server error")), ambiguous()),
        (201, failed(400, json!(["Error: Connection Closed"])), down),
        (201, json!({ "key": { "remoteJid": "5511987654321@s.whatsapp.net" } }), ambiguous()),
        (201, json!({}), ambiguous()),
    ];
    for (status, body, expected) in cases {
        let answer = channel("evolution-api").parse_response(status, body.to_string().as_bytes());
        assert_eq!(meaning(&answer), expected, "case: {status} {body}");
        assert_eq!(answer.sent_id, None);
    }
}

#[test]
fn an_instance_on_the_cloud_api_answers_201_with_metas_error() {
    let error = |code: u32| json!({ "message": "no", "type": "OAuthException", "code": code });
    let cases = [
        (201, error(131_056), growing(later(0, ErrorScope::Pair))),
        (201, error(190), held(ErrorScope::Account)),
        (201, error(131_047), ends(Unrecoverable, ErrorScope::Conversation)),
        (201, error(999_999), ends(Unrecoverable, ErrorScope::Message)),
        (201, json!({ "error": error(131_042) }), held(ErrorScope::Account)),
        (400, error(100), ends(PayloadError, ErrorScope::Message)),
    ];
    for (status, body, expected) in cases {
        let answer = channel("evolution-api").parse_response(status, body.to_string().as_bytes());
        assert_eq!(meaning(&answer), expected, "case: {status} {body}");
    }
}

#[test]
fn an_answer_that_was_cut_is_a_success_if_the_id_is_in_what_came() {
    let file = "A".repeat(20_000);
    let whole = |channel: &str| match channel {
        "evolution-api" => json!({ "key": { "id": "3EB0A1" }, "message": { "base64": file } }),
        "evolution-go" => json!({ "data": { "Info": { "ID": "3EB0A1" }, "Message": file } }),
        _ => json!({ "contacts": [{}], "messages": [{ "id": "3EB0A1", "more": file }] }),
    };
    for name in ["evolution-api", "evolution-go", "whatsapp-cloud"] {
        let body = whole(name).to_string();
        let cut = |status, length: usize| {
            channel(name).parse_response(status, &body.as_bytes()[..length])
        };
        let answer = cut(201, 16_384);
        assert_eq!(meaning(&answer), sent(), "case: {name}");
        assert_eq!(answer.sent_id.as_deref(), Some("3EB0A1"), "case: {name}");
        // Half of an id is none.
        let within = body.find("3EB0A1").unwrap() + 4;
        assert_eq!(meaning(&cut(201, within)), ambiguous(), "case: {name}");
        assert_eq!(meaning(&cut(500, 16_384)), ambiguous(), "case: {name}");
    }
}

#[test]
fn only_an_id_is_a_success_of_evolution_api() {
    let done = json!({
        "key": { "remoteJid": "5511987654321@s.whatsapp.net", "fromMe": true, "id": "BAE5A1" },
        "status": "PENDING",
        "messageType": "conversation",
    });
    let answer = channel("evolution-api").parse_response(201, done.to_string().as_bytes());
    assert_eq!(meaning(&answer), sent());
    assert_eq!(answer.sent_id.as_deref(), Some("BAE5A1"));
    let empty = channel("evolution-api").parse_response(201, br#"{"key":{"id":""}}"#);
    assert_eq!(meaning(&empty), ambiguous());
    let broken = channel("evolution-api").parse_response(502, b"<html>");
    assert_eq!(meaning(&broken), ambiguous());
}
