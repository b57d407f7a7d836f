//! Meta's error codes with their classification.

use serde_json::{Value, json};
use surehook_retry::DeadReason::{PayloadError, Unrecoverable};

use super::{
    Classification, ErrorScope, ambiguous, channel, classification, config, permanent, sent,
    throttled, transient,
};
use crate::{ChannelResponse, meta_errors};

fn respond(status: u16, body: &Value) -> ChannelResponse {
    channel("whatsapp-cloud").parse_response(status, body.to_string().as_bytes())
}

fn error(code: u32, details: &str) -> Value {
    json!({ "error": {
        "message": format!("(#{code}) something"), "type": "OAuthException", "code": code,
        "error_data": { "messaging_product": "whatsapp", "details": details },
        "fbtrace_id": "A1",
    } })
}

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// Code, status and classification, for general and messaging errors.
fn messaging_codes() -> Vec<(u32, u16, Classification)> {
    use ErrorScope::{
        Account, App, Channel, Conversation, Country, Marketing, Message, Number, Pair, Recipient,
    };
    vec![
        (0, 401, config(Account)),
        (1, 400, transient(Message).attempts_max(3)),
        (2, 503, transient(Channel).growing_backoff()),
        (3, 500, config(Account)),
        (4, 429, throttled(App).fixed_backoff(5 * MINUTE)),
        (4, 400, throttled(App).fixed_backoff(5 * MINUTE)),
        (10, 403, config(Account)),
        (33, 400, config(Number)),
        (100, 400, permanent(PayloadError, Message)),
        (190, 401, config(Account)),
        (200, 403, config(Account)),
        (250, 403, config(Account)),
        (299, 403, config(Account)),
        (368, 403, config(Account)),
        (80007, 429, throttled(Account).fixed_backoff(5 * MINUTE)),
        (80007, 400, throttled(Account).fixed_backoff(5 * MINUTE)),
        (130_429, 429, throttled(Number).fixed_backoff(5)),
        (130_429, 400, throttled(Number).fixed_backoff(5)),
        (130_472, 400, permanent(Unrecoverable, Recipient)),
        (130_497, 403, permanent(Unrecoverable, Country)),
        (131_000, 500, transient(Message).attempts_max(5)),
        (131_005, 403, config(Account)),
        (131_008, 400, permanent(PayloadError, Message)),
        (131_009, 400, permanent(PayloadError, Message)),
        (131_016, 500, transient(Channel)),
        (131_016, 503, transient(Channel)),
        (131_021, 400, permanent(PayloadError, Message)),
        (131_026, 400, permanent(Unrecoverable, Recipient)),
        (131_030, 400, permanent(Unrecoverable, Recipient)),
        (131_031, 403, config(Account)),
        (131_037, 400, config(Number)),
        (131_042, 400, config(Account)),
        (131_045, 500, config(Number)),
        (131_047, 400, permanent(Unrecoverable, Conversation)),
        (131_048, 429, config(Number)),
        (131_048, 400, config(Number)),
        (131_049, 400, throttled(Marketing).fixed_backoff(24 * HOUR)),
        (131_050, 400, permanent(Unrecoverable, Marketing)),
        (131_051, 400, permanent(PayloadError, Message)),
        (131_052, 400, transient(Message).attempts_max(2)),
        (131_053, 400, permanent(PayloadError, Message)),
        (131_055, 400, permanent(PayloadError, Message)),
        (131_056, 429, throttled(Pair).growing_backoff()),
        (131_056, 400, throttled(Pair).growing_backoff()),
        (131_057, 500, transient(Number).fixed_backoff(MINUTE)),
        (131_060, 400, permanent(Unrecoverable, Message)),
        (131_062, 400, permanent(PayloadError, Message)),
    ]
}

/// Template, registration and account setup errors.
fn template_and_account_codes() -> Vec<(u32, u16, Classification)> {
    use ErrorScope::{Account, Flow, Message, Number, Template};
    vec![
        (132_000, 400, permanent(PayloadError, Message)),
        (132_001, 404, permanent(Unrecoverable, Template)),
        (132_005, 400, permanent(PayloadError, Message)),
        (132_007, 400, permanent(Unrecoverable, Template)),
        (132_012, 400, permanent(PayloadError, Message)),
        (132_015, 400, config(Template).fixed_backoff(HOUR)),
        (132_016, 400, permanent(Unrecoverable, Template)),
        (132_068, 400, config(Flow).fixed_backoff(HOUR)),
        (132_069, 400, throttled(Flow).fixed_backoff(HOUR)),
        (133_000, 500, config(Number)),
        (133_004, 503, transient(Number)),
        (133_005, 400, config(Number)),
        (133_006, 400, config(Number)),
        (133_008, 400, config(Number)),
        (133_009, 400, config(Number)),
        (133_010, 400, config(Number)),
        (133_015, 400, transient(Number).fixed_backoff(5 * MINUTE)),
        (133_016, 429, config(Number).fixed_backoff(72 * HOUR)),
        (133_016, 400, config(Number).fixed_backoff(72 * HOUR)),
        (134_100, 400, permanent(Unrecoverable, Template)),
        (134_101, 400, transient(Template).fixed_backoff(10 * MINUTE)),
        (134_102, 400, permanent(Unrecoverable, Template)),
        (135_000, 400, transient(Message).attempts_max(2)),
        (1_752_041, 400, config(Account)),
        (2_388_000, 400, config(Account)),
        (2_388_999, 400, config(Account)),
        (2_494_100, 400, config(Account)),
        (2_593_000, 400, config(Account)),
        (2_593_999, 400, config(Account)),
    ]
}

#[test]
fn every_meta_code_is_classified() {
    let cases = [messaging_codes(), template_and_account_codes()].concat();
    for (code, status, expected) in &cases {
        let response = respond(*status, &error(*code, ""));
        assert_eq!(classification(&response), *expected, "code {code}, status {status}");
        assert_eq!(response.code, Some(code.to_string()));
    }
    for rule in meta_errors::RULES {
        let is_tested = cases.iter().any(|(code, ..)| rule.codes.contains(code));
        assert!(is_tested, "{:?} is not in the table of this test", rule.codes);
    }
}

#[test]
fn http_status_does_not_change_class_of_known_code() {
    for rule in meta_errors::RULES {
        let code = *rule.codes.start();
        let meanings = [200, 400, 401, 429, 500, 503].map(|status| {
            let response = respond(status, &error(code, ""));
            classification(&response)
        });
        assert!(meanings.iter().all(|meaning| *meaning == meanings[0]), "code {code}");
    }
}

#[test]
fn rules_are_sorted_and_do_not_overlap() {
    let codes = || meta_errors::RULES.iter().map(|rule| &rule.codes);
    for (first, second) in codes().zip(codes().skip(1)) {
        assert!(first.end() < second.start(), "{first:?} and {second:?}");
    }
    // Codes of other products must not be in the table.
    assert!(meta_errors::find_rule(470).is_none());
    assert!(meta_errors::find_rule(63016).is_none());
}

#[test]
fn unknown_sender_is_config_error_of_the_number() {
    let body = |subcode: Value| {
        json!({ "error": {
            "message": "Unsupported post request. Object with ID '1' does not exist, cannot be \
                        loaded due to missing permissions, or does not support this operation.",
            "type": "GraphMethodException", "code": 100, "error_subcode": subcode,
        } })
    };
    let response = respond(400, &body(json!(33)));
    assert_eq!(classification(&response), config(ErrorScope::Number));
    assert_eq!(response.code.as_deref(), Some("100"));
    for other in [Value::Null, json!(2_494_010), json!("33x")] {
        let response = respond(400, &body(other));
        assert_eq!(classification(&response), permanent(PayloadError, ErrorScope::Message));
    }
}

#[test]
fn media_download_failure_is_retried_once() {
    let cases = [
        ("Downloading media from weblink failed with http code 404", true),
        ("Unable to DOWNLOAD the media", true),
        ("Media file mime type is not supported", false),
        ("", false),
    ];
    for (details, is_retried) in cases {
        let response = respond(400, &error(131_053, details));
        let expected = if is_retried {
            transient(ErrorScope::Message).attempts_max(2)
        } else {
            permanent(PayloadError, ErrorScope::Message)
        };
        assert_eq!(classification(&response), expected, "case: {details}");
    }
}

#[test]
fn unknown_code_is_retried_only_if_marked_transient() {
    let unknown = |more: Value| {
        let mut body = error(999_999, "new");
        body["error"]["is_transient"] = more;
        body
    };
    let final_answer = permanent(Unrecoverable, ErrorScope::Message);
    let rate_limited = throttled(ErrorScope::Number);
    let cases = [
        (400, unknown(Value::Null), final_answer),
        (400, unknown(json!(false)), final_answer),
        (400, unknown(json!(true)), transient(ErrorScope::Message)),
        (403, unknown(Value::Null), final_answer),
        (429, unknown(Value::Null), rate_limited),
        (500, unknown(Value::Null), transient(ErrorScope::Message)),
        (503, unknown(Value::Null), transient(ErrorScope::Message)),
    ];
    for (status, body, expected) in cases {
        let response = respond(status, &body);
        assert_eq!(classification(&response), expected, "status {status}: {body}");
        assert_eq!(response.code.as_deref(), Some("999999"));
    }
}

#[test]
fn responses_without_code_are_classified_by_status() {
    let accepted = json!({
        "messaging_product": "whatsapp",
        "contacts": [{ "input": "5511987654321", "wa_id": "5511987654321" }],
        "messages": [{ "id": "wamid.A" }],
    });
    let mut held_back = accepted.clone();
    held_back["messages"][0]["message_status"] = json!("held_for_quality_assessment");
    let cases: [(&str, u16, String, Classification, Option<&str>); 12] = [
        ("accepted", 200, accepted.to_string(), sent(), Some("wamid.A")),
        (
            "template held for quality assessment",
            200,
            held_back.to_string(),
            sent(),
            Some("wamid.A"),
        ),
        ("no id", 200, r#"{"messages":[]}"#.to_owned(), ambiguous(), None),
        ("not JSON", 200, "<html>".to_owned(), ambiguous(), None),
        ("bad gateway", 502, "<html>".to_owned(), ambiguous(), None),
        ("empty body", 504, String::new(), ambiguous(), None),
        ("server error", 500, "{}".to_owned(), ambiguous(), None),
        ("not allowed", 401, String::new(), config(ErrorScope::Account), None),
        ("wrong address", 404, String::new(), config(ErrorScope::Account), None),
        ("refused", 400, String::new(), permanent(PayloadError, ErrorScope::Message), None),
        ("too slow", 408, String::new(), transient(ErrorScope::Channel), None),
        (
            "an id, but refused",
            400,
            accepted.to_string(),
            permanent(PayloadError, ErrorScope::Message),
            None,
        ),
    ];
    for (name, status, body, expected, id) in cases {
        let response = channel("whatsapp-cloud").parse_response(status, body.as_bytes());
        assert_eq!(classification(&response), expected, "case: {name}");
        assert_eq!(response.sent_id.as_deref(), id, "case: {name}");
    }
    assert_eq!(respond(200, &held_back).text, "held_for_quality_assessment");
}

#[test]
fn response_text_explains_error_without_phone_number() {
    let response = respond(400, &error(131_026, "Receiver 5511987654321 is incapable"));
    assert!(response.text.starts_with("undeliverable"), "{}", response.text);
    assert!(response.text.contains("Receiver ••• is incapable"), "{}", response.text);
}

#[test]
fn only_errors_of_whole_sender_pause_it() {
    let cases = [(190, true), (131_042, true), (131_048, true), (132_015, false), (131_056, false)];
    for (code, should_pause) in cases {
        assert_eq!(
            respond(400, &error(code, "")).should_pause_sender(),
            should_pause,
            "code {code}"
        );
    }
}

#[test]
fn error_of_status_update_uses_same_table() {
    let status = json!({ "code": 131_049, "title": "This message was not delivered" });
    let response = meta_errors::parse_error(&status, 200).unwrap();
    assert_eq!(
        classification(&response),
        throttled(ErrorScope::Marketing).fixed_backoff(24 * HOUR)
    );
    assert_eq!(meta_errors::parse_error(&json!({ "title": "no code" }), 200), None);
    let text = json!({ "code": "131056" });
    assert_eq!(meta_errors::parse_error(&text, 400).unwrap().scope, ErrorScope::Pair);
}
