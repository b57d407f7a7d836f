//! The codes of Meta's list, each with what follows from it.

use serde_json::{Value, json};

use super::{
    ErrorScope, Meaning, again, ambiguous, at_most, channel, ends, growing, held, later, meaning,
    sent, waiting,
};
use crate::{
    channel::{ChannelResponse, meta},
    delivery::{
        DeadReason::{PayloadError, Unrecoverable},
        FailureClass,
    },
};

fn read(status: u16, body: &Value) -> ChannelResponse {
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

/// Code, status, and what follows. The first half of the list.
fn general() -> Vec<(u32, u16, Meaning)> {
    use ErrorScope::{
        Account, App, Channel, Conversation, Country, Marketing, Message, Number, Pair, Recipient,
    };
    vec![
        (0, 401, held(Account)),
        (1, 400, at_most(3, again(Message))),
        (2, 503, growing(again(Channel))),
        (3, 500, held(Account)),
        (4, 429, later(5 * MINUTE, App)),
        (4, 400, later(5 * MINUTE, App)),
        (10, 403, held(Account)),
        (33, 400, held(Number)),
        (100, 400, ends(PayloadError, Message)),
        (190, 401, held(Account)),
        (200, 403, held(Account)),
        (250, 403, held(Account)),
        (299, 403, held(Account)),
        (368, 403, held(Account)),
        (80007, 429, later(5 * MINUTE, Account)),
        (80007, 400, later(5 * MINUTE, Account)),
        (130_429, 429, later(5, Number)),
        (130_429, 400, later(5, Number)),
        (130_472, 400, ends(Unrecoverable, Recipient)),
        (130_497, 403, ends(Unrecoverable, Country)),
        (131_000, 500, at_most(5, again(Message))),
        (131_005, 403, held(Account)),
        (131_008, 400, ends(PayloadError, Message)),
        (131_009, 400, ends(PayloadError, Message)),
        (131_016, 500, again(Channel)),
        (131_016, 503, again(Channel)),
        (131_021, 400, ends(PayloadError, Message)),
        (131_026, 400, ends(Unrecoverable, Recipient)),
        (131_030, 400, ends(Unrecoverable, Recipient)),
        (131_031, 403, held(Account)),
        (131_037, 400, held(Number)),
        (131_042, 400, held(Account)),
        (131_045, 500, held(Number)),
        (131_047, 400, ends(Unrecoverable, Conversation)),
        (131_048, 429, held(Number)),
        (131_048, 400, held(Number)),
        (131_049, 400, later(24 * HOUR, Marketing)),
        (131_050, 400, ends(Unrecoverable, Marketing)),
        (131_051, 400, ends(PayloadError, Message)),
        (131_052, 400, at_most(2, again(Message))),
        (131_053, 400, ends(PayloadError, Message)),
        (131_055, 400, ends(PayloadError, Message)),
        (131_056, 429, growing(later(0, Pair))),
        (131_056, 400, growing(later(0, Pair))),
        (131_057, 500, waiting(MINUTE, again(Number))),
        (131_060, 400, ends(Unrecoverable, Message)),
        (131_062, 400, ends(PayloadError, Message)),
    ]
}

/// Templates, registration, and what is not about sending.
fn special() -> Vec<(u32, u16, Meaning)> {
    use ErrorScope::{Account, Flow, Message, Number, Template};
    vec![
        (132_000, 400, ends(PayloadError, Message)),
        (132_001, 404, ends(Unrecoverable, Template)),
        (132_005, 400, ends(PayloadError, Message)),
        (132_007, 400, ends(Unrecoverable, Template)),
        (132_012, 400, ends(PayloadError, Message)),
        (132_015, 400, waiting(HOUR, held(Template))),
        (132_016, 400, ends(Unrecoverable, Template)),
        (132_068, 400, waiting(HOUR, held(Flow))),
        (132_069, 400, later(HOUR, Flow)),
        (133_000, 500, held(Number)),
        (133_004, 503, again(Number)),
        (133_005, 400, held(Number)),
        (133_006, 400, held(Number)),
        (133_008, 400, held(Number)),
        (133_009, 400, held(Number)),
        (133_010, 400, held(Number)),
        (133_015, 400, waiting(5 * MINUTE, again(Number))),
        (133_016, 429, waiting(72 * HOUR, held(Number))),
        (133_016, 400, waiting(72 * HOUR, held(Number))),
        (134_100, 400, ends(Unrecoverable, Template)),
        (134_101, 400, waiting(10 * MINUTE, again(Template))),
        (134_102, 400, ends(Unrecoverable, Template)),
        (135_000, 400, at_most(2, again(Message))),
        (1_752_041, 400, held(Account)),
        (2_388_000, 400, held(Account)),
        (2_388_999, 400, held(Account)),
        (2_494_100, 400, held(Account)),
        (2_593_000, 400, held(Account)),
        (2_593_999, 400, held(Account)),
    ]
}

#[test]
fn every_code_has_its_meaning() {
    let cases = [general(), special()].concat();
    for (code, status, expected) in &cases {
        let answer = read(*status, &error(*code, ""));
        assert_eq!(meaning(&answer), *expected, "code {code}, status {status}");
        assert_eq!(answer.code, Some(code.to_string()));
    }
    for rule in meta::RULES {
        let is_tested = cases.iter().any(|(code, ..)| rule.codes.contains(code));
        assert!(is_tested, "{:?} is not in the table of this test", rule.codes);
    }
}

#[test]
fn the_status_does_not_change_what_a_known_code_means() {
    for rule in meta::RULES {
        let code = *rule.codes.start();
        let meanings = [200, 400, 401, 429, 500, 503].map(|status| {
            let answer = read(status, &error(code, ""));
            meaning(&answer)
        });
        assert!(meanings.iter().all(|one| *one == meanings[0]), "code {code}");
    }
}

#[test]
fn the_table_is_in_order_and_names_each_code_once() {
    let codes = || meta::RULES.iter().map(|rule| &rule.codes);
    for (first, second) in codes().zip(codes().skip(1)) {
        assert!(first.end() < second.start(), "{first:?} and {second:?}");
    }
    // Of other products; they must not get in here.
    assert!(meta::find_rule(470).is_none());
    assert!(meta::find_rule(63016).is_none());
}

#[test]
fn a_sender_that_does_not_exist_is_no_fault_of_the_message() {
    let said = |subcode: Value| {
        json!({ "error": {
            "message": "Unsupported post request. Object with ID '1' does not exist, cannot be \
                        loaded due to missing permissions, or does not support this operation.",
            "type": "GraphMethodException", "code": 100, "error_subcode": subcode,
        } })
    };
    let answer = read(400, &said(json!(33)));
    assert_eq!(meaning(&answer), held(ErrorScope::Number));
    assert_eq!(answer.code.as_deref(), Some("100"));
    for other in [Value::Null, json!(2_494_010), json!("33x")] {
        let answer = read(400, &said(other));
        assert_eq!(meaning(&answer), ends(PayloadError, ErrorScope::Message));
    }
}

#[test]
fn media_that_could_not_be_fetched_are_tried_once_more() {
    let cases = [
        ("Downloading media from weblink failed with http code 404", true),
        ("Unable to DOWNLOAD the media", true),
        ("Media file mime type is not supported", false),
        ("", false),
    ];
    for (details, is_again) in cases {
        let answer = read(400, &error(131_053, details));
        let expected = if is_again {
            at_most(2, again(ErrorScope::Message))
        } else {
            ends(PayloadError, ErrorScope::Message)
        };
        assert_eq!(meaning(&answer), expected, "case: {details}");
    }
}

#[test]
fn unknown_codes_are_tried_again_only_if_meta_says_so() {
    let unknown = |more: Value| {
        let mut body = error(999_999, "new");
        body["error"]["is_transient"] = more;
        body
    };
    let final_answer = ends(Unrecoverable, ErrorScope::Message);
    let throttled = (Some(FailureClass::Throttled), None, None, ErrorScope::Number, None);
    let cases = [
        (400, unknown(Value::Null), final_answer),
        (400, unknown(json!(false)), final_answer),
        (400, unknown(json!(true)), again(ErrorScope::Message)),
        (403, unknown(Value::Null), final_answer),
        (429, unknown(Value::Null), throttled),
        (500, unknown(Value::Null), again(ErrorScope::Message)),
        (503, unknown(Value::Null), again(ErrorScope::Message)),
    ];
    for (status, body, expected) in cases {
        let answer = read(status, &body);
        assert_eq!(meaning(&answer), expected, "status {status}: {body}");
        assert_eq!(answer.code.as_deref(), Some("999999"));
    }
}

#[test]
fn answers_without_a_code() {
    let taken = json!({
        "messaging_product": "whatsapp",
        "contacts": [{ "input": "5511987654321", "wa_id": "5511987654321" }],
        "messages": [{ "id": "wamid.A" }],
    });
    let mut waits = taken.clone();
    waits["messages"][0]["message_status"] = json!("held_for_quality_assessment");
    let cases: [(&str, u16, String, Meaning, Option<&str>); 12] = [
        ("taken", 200, taken.to_string(), sent(), Some("wamid.A")),
        ("a template that waits", 200, waits.to_string(), sent(), Some("wamid.A")),
        ("no id", 200, r#"{"messages":[]}"#.to_owned(), ambiguous(), None),
        ("not JSON", 200, "<html>".to_owned(), ambiguous(), None),
        ("a proxy broke down", 502, "<html>".to_owned(), ambiguous(), None),
        ("nothing", 504, String::new(), ambiguous(), None),
        ("a server broke down", 500, "{}".to_owned(), ambiguous(), None),
        ("not allowed", 401, String::new(), held(ErrorScope::Account), None),
        ("wrong address", 404, String::new(), held(ErrorScope::Account), None),
        ("refused", 400, String::new(), ends(PayloadError, ErrorScope::Message), None),
        ("too slow", 408, String::new(), again(ErrorScope::Channel), None),
        (
            "an id, but refused",
            400,
            taken.to_string(),
            ends(PayloadError, ErrorScope::Message),
            None,
        ),
    ];
    for (name, status, body, expected, id) in cases {
        let answer = channel("whatsapp-cloud").parse_response(status, body.as_bytes());
        assert_eq!(meaning(&answer), expected, "case: {name}");
        assert_eq!(answer.sent_id.as_deref(), id, "case: {name}");
    }
    assert_eq!(read(200, &waits).text, "held_for_quality_assessment");
}

#[test]
fn a_text_tells_what_to_do_and_no_number() {
    let answer = read(400, &error(131_026, "Receiver 5511987654321 is incapable"));
    assert!(answer.text.starts_with("it cannot be delivered"), "{}", answer.text);
    assert!(answer.text.contains("Receiver ••• is incapable"), "{}", answer.text);
}

#[test]
fn only_what_is_about_the_whole_sender_stops_it() {
    let cases = [(190, true), (131_042, true), (131_048, true), (132_015, false), (131_056, false)];
    for (code, stops) in cases {
        assert_eq!(read(400, &error(code, "")).stops_sender(), stops, "code {code}");
    }
}

#[test]
fn an_error_of_a_status_is_read_by_the_same_table() {
    let status = json!({ "code": 131_049, "title": "This message was not delivered" });
    let answer = meta::parse_error(&status, 200).unwrap();
    assert_eq!(meaning(&answer), later(24 * HOUR, ErrorScope::Marketing));
    assert_eq!(meta::parse_error(&json!({ "title": "no code" }), 200), None);
    let text = json!({ "code": "131056" });
    assert_eq!(meta::parse_error(&text, 400).unwrap().scope, ErrorScope::Pair);
}
