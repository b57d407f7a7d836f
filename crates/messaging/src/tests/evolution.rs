//! Responses of Evolution Go and Evolution API with their classification.

use serde_json::{Value, json};
use surehook_retry::DeadReason::{PayloadError, Unrecoverable};

use super::{
    Classification, ErrorScope, ambiguous, channel, classification, config, permanent, sent,
    throttled, transient,
};

#[test]
fn evolution_go_error_texts_are_classified() {
    let unknown_recipient = permanent(Unrecoverable, ErrorScope::Recipient);
    let refused = permanent(PayloadError, ErrorScope::Message);
    let down = transient(ErrorScope::Number);
    let stopped = config(ErrorScope::Number);
    let cases: [(u16, &str, Classification); 27] = [
        (500, "number 5511987654321 is not registered on WhatsApp", unknown_recipient),
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
        (500, "something new", transient(ErrorScope::Message)),
        (404, "404 page not found", config(ErrorScope::Account)),
        (429, "slow down", throttled(ErrorScope::Number)),
        (200, "client disconnected", down),
        (200, "something new", ambiguous()),
    ];
    for (status, text, expected) in cases {
        let body = json!({ "error": text }).to_string();
        let response = channel("evolution-go").parse_response(status, body.as_bytes());
        assert_eq!(classification(&response), expected, "case: {status} {text}");
        assert!(!response.text.contains("5511987654321"), "case: {text}");
    }
}

#[test]
fn evolution_go_responses_without_error_text_are_classified() {
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
            config(ErrorScope::Number),
            None,
            Some("LICENSE_REQUIRED"),
        ),
        ("no id", 200, r#"{"message":"success"}"#.to_owned(), ambiguous(), None, None),
        ("a proxy broke down", 502, "<html>".to_owned(), ambiguous(), None, None),
        ("a proxy gave up", 504, String::new(), ambiguous(), None, None),
        ("wrong server", 404, "<html>".to_owned(), config(ErrorScope::Account), None, None),
    ];
    for (name, status, body, expected, id, code) in cases {
        let response = channel("evolution-go").parse_response(status, body.as_bytes());
        assert_eq!(classification(&response), expected, "case: {name}");
        assert_eq!(response.sent_id.as_deref(), id, "case: {name}");
        assert_eq!(response.code.as_deref(), code, "case: {name}");
    }
}

fn failed(status: u16, message: Value) -> Value {
    json!({ "status": status, "error": "Bad Request", "response": { "message": message } })
}

#[test]
fn evolution_api_responses_are_classified() {
    let unknown_recipient = permanent(Unrecoverable, ErrorScope::Recipient);
    let refused = permanent(PayloadError, ErrorScope::Message);
    let down = transient(ErrorScope::Number);
    let number = json!([{ "jid": "5511987654321@s.whatsapp.net", "exists": false }]);
    let schema = json!([["instance requires property \"text\""]]);
    let missing = json!(["The \"shop\" instance does not exist"]);
    let type_error = "TypeError: Cannot read properties of undefined (reading 'data')";
    // Failures after sending have similar texts.
    let database = "PrismaClientKnownRequestError: Invalid `prisma.message.create()` invocation: \
                    Timed out fetching a new connection from the connection pool.";
    let cases: [(u16, Value, Classification); 23] = [
        (400, failed(400, json!(["Error: Connection Closed"])), down),
        (400, failed(400, json!("Error: Connection Closed")), down),
        (400, failed(400, json!(["Error: Timed Out"])), down),
        (400, failed(400, json!(["Error: Connection Terminated"])), down),
        (400, failed(400, json!([["Error: Timed Out"]])), down),
        (400, failed(400, json!([database])), ambiguous()),
        (400, failed(400, json!(["Error: Connection terminated unexpectedly"])), ambiguous()),
        (400, failed(400, json!(["Error: Timed Out", "Error: no space left"])), ambiguous()),
        (400, failed(400, json!(["Error: Stream Errored (restart required)"])), ambiguous()),
        (400, failed(400, number.clone()), unknown_recipient),
        (400, failed(400, json!([number])), unknown_recipient),
        (400, failed(400, json!(["[object Object]"])), unknown_recipient),
        (400, failed(400, json!(["Group not found"])), unknown_recipient),
        (400, failed(400, json!([type_error])), ambiguous()),
        (400, failed(400, json!(["PrismaClientKnownRequestError: too many"])), ambiguous()),
        (400, failed(400, schema), refused),
        (400, failed(400, json!(["Owned media must be a url or base64"])), refused),
        (404, failed(404, missing), config(ErrorScope::Number)),
        (401, json!({ "status": 401, "error": "Unauthorized" }), config(ErrorScope::Account)),
        (500, failed(500, json!("Internal server error")), ambiguous()),
        (201, failed(400, json!(["Error: Connection Closed"])), down),
        (201, json!({ "key": { "remoteJid": "5511987654321@s.whatsapp.net" } }), ambiguous()),
        (201, json!({}), ambiguous()),
    ];
    for (status, body, expected) in cases {
        let response = channel("evolution-api").parse_response(status, body.to_string().as_bytes());
        assert_eq!(classification(&response), expected, "case: {status} {body}");
        assert_eq!(response.sent_id, None);
    }
}

#[test]
fn evolution_api_201_with_meta_error_is_classified_as_error() {
    let error = |code: u32| json!({ "message": "no", "type": "OAuthException", "code": code });
    let cases = [
        (201, error(131_056), throttled(ErrorScope::Pair).growing_backoff()),
        (201, error(190), config(ErrorScope::Account)),
        (201, error(131_047), permanent(Unrecoverable, ErrorScope::Conversation)),
        (201, error(999_999), permanent(Unrecoverable, ErrorScope::Message)),
        (201, json!({ "error": error(131_042) }), config(ErrorScope::Account)),
        (400, error(100), permanent(PayloadError, ErrorScope::Message)),
    ];
    for (status, body, expected) in cases {
        let response = channel("evolution-api").parse_response(status, body.to_string().as_bytes());
        assert_eq!(classification(&response), expected, "case: {status} {body}");
    }
}

#[test]
fn evolution_api_201_with_status_error_is_a_permanent_failure() {
    let file = "A".repeat(20_000);
    let body = |status: &str| {
        let key = r#"{"id":"3EB0A1","fromMe":true}"#;
        let message = format!(r#"{{"conversation":"{file}"}}"#);
        format!(r#"{{"key":{key},"pushName":"","status":"{status}","message":{message}}}"#)
    };
    let parse = |body: &[u8]| channel("evolution-api").parse_response(201, body);
    for failed in [body("ERROR"), body("error")] {
        for bytes in [failed.as_bytes(), &failed.as_bytes()[..16_384]] {
            let response = parse(bytes);
            let expected = permanent(Unrecoverable, ErrorScope::Message);
            assert_eq!(classification(&response), expected, "{} bytes", bytes.len());
            assert_eq!((response.sent_id, response.code.as_deref()), (None, Some("ERROR")));
        }
    }
    for status in ["PENDING", "SERVER_ACK", "DELIVERY_ACK", "READ", ""] {
        assert_eq!(classification(&parse(body(status).as_bytes())), sent(), "case: {status}");
    }
}

#[test]
fn truncated_response_is_success_if_it_contains_the_id() {
    let file = "A".repeat(20_000);
    let full_body = |channel: &str| match channel {
        "evolution-api" => json!({ "key": { "id": "3EB0A1" }, "message": { "base64": file } }),
        "evolution-go" => json!({ "data": { "Info": { "ID": "3EB0A1" }, "Message": file } }),
        _ => json!({ "contacts": [{}], "messages": [{ "id": "3EB0A1", "more": file }] }),
    };
    for name in ["evolution-api", "evolution-go", "whatsapp-cloud"] {
        let body = full_body(name).to_string();
        let cut = |status, length: usize| {
            channel(name).parse_response(status, &body.as_bytes()[..length])
        };
        let response = cut(201, 16_384);
        assert_eq!(classification(&response), sent(), "case: {name}");
        assert_eq!(response.sent_id.as_deref(), Some("3EB0A1"), "case: {name}");
        // A truncated id does not count.
        let within = body.find("3EB0A1").unwrap() + 4;
        assert_eq!(classification(&cut(201, within)), ambiguous(), "case: {name}");
        assert_eq!(classification(&cut(500, 16_384)), ambiguous(), "case: {name}");
    }
}

#[test]
fn evolution_api_response_without_id_is_not_success() {
    let done = json!({
        "key": { "remoteJid": "5511987654321@s.whatsapp.net", "fromMe": true, "id": "BAE5A1" },
        "status": "PENDING",
        "messageType": "conversation",
    });
    let response = channel("evolution-api").parse_response(201, done.to_string().as_bytes());
    assert_eq!(classification(&response), sent());
    assert_eq!(response.sent_id.as_deref(), Some("BAE5A1"));
    let empty = channel("evolution-api").parse_response(201, br#"{"key":{"id":""}}"#);
    assert_eq!(classification(&empty), ambiguous());
    let broken = channel("evolution-api").parse_response(502, b"<html>");
    assert_eq!(classification(&broken), ambiguous());
}
