//! Rules for the requests of every channel.

use proptest::prelude::*;
use serde_json::{Value, json};
use surehook_types::secret::Secret;

use super::{account, ambiguous, channel, classification, message, transient};
use crate::{
    AccountSpecError, CHANNELS, ErrorScope, Message, MessageSpec, ResendPolicy, find_channel,
};

#[test]
fn every_channel_is_found_by_name() {
    let names: Vec<&str> = CHANNELS.iter().map(|channel| channel.name()).collect();
    assert_eq!(names, ["evolution-api", "evolution-go", "whatsapp-cloud"]);
    assert!(find_channel("whatsapp").is_none());
}

#[test]
fn missing_response_after_sending_is_ambiguous() {
    for channel in CHANNELS {
        assert_eq!(classification(&channel.timeout_response(true)), ambiguous(), "{channel:?}");
        assert_eq!(
            classification(&channel.timeout_response(false)),
            transient(ErrorScope::Channel),
            "{channel:?}"
        );
    }
}

#[test]
fn resend_policy_and_timeout_of_every_channel() {
    let text = message(&json!({ "to": "5511987654321", "text": "hi" }));
    let reaction = json!({ "message_id": "A", "emoji": "👍" });
    let reaction = message(&json!({ "to": "5511987654321", "reaction": reaction }));
    let cases = [
        ("evolution-api", 60, ResendPolicy::Unsafe),
        ("evolution-go", 120, ResendPolicy::SameId),
        ("whatsapp-cloud", 30, ResendPolicy::WaitForStatus),
    ];
    for (name, seconds, resend) in cases {
        let channel = channel(name);
        let composed = channel.compose(&account(channel), &text, "msg_1").unwrap();
        assert_eq!(composed.timeout_min.as_secs(), seconds, "{name}");
        assert_eq!(composed.resend, resend, "{name}");
        let composed = channel.compose(&account(channel), &reaction, "msg_1").unwrap();
        assert_eq!(composed.resend, ResendPolicy::Harmless, "{name}");
    }
}

#[test]
fn debug_output_has_no_token_and_no_phone_number() {
    let text = message(&json!({ "to": "5511987654321", "text": "hi" }));
    for channel in CHANNELS {
        let account = account(*channel);
        let composed = channel.compose(&account, &text, "msg_1").unwrap();
        let printed = format!("{account:?} {composed:?} {:?}", composed.headers);
        assert!(!printed.contains("t0ken"), "{printed}");
        assert!(!printed.contains("5511987654321"), "{printed}");
    }
}

#[test]
fn account_settings_are_checked_per_channel() {
    let built = |name: &str, base: Option<&str>, sender: Option<&str>, token: &str| {
        let result = channel(name).build_account(base, sender, Secret::new(token));
        result.map(|account| account.url(["a", account.sender()]).to_string())
    };
    let base = Some("http://evolution:8080");
    let ok = |url: &str| Ok(url.to_owned());
    let cases = [
        (
            built("whatsapp-cloud", None, Some("1055"), "t"),
            ok("https://graph.facebook.com/v25.0/a/1055"),
        ),
        (
            built("whatsapp-cloud", Some("https://proxy.test"), Some("1"), "t"),
            ok("https://proxy.test/v25.0/a/1"),
        ),
        (
            built("whatsapp-cloud", Some("https://proxy.test/v13.0/"), Some("1"), "t"),
            ok("https://proxy.test/v13.0/a/1"),
        ),
        (
            built("evolution-api", base, Some("my shop/1"), "t"),
            ok("http://evolution:8080/a/my%20shop%2F1"),
        ),
        (built("evolution-go", base, None, "t"), ok("http://evolution:8080/a/")),
        (built("evolution-go", None, None, "t"), Err(AccountSpecError::NoUrl)),
        (built("evolution-go", Some("ftp://a"), None, "t"), Err(AccountSpecError::Url)),
        (built("evolution-go", Some("http://u:p@a"), None, "t"), Err(AccountSpecError::Url)),
        (built("evolution-go", Some("http://a?b"), None, "t"), Err(AccountSpecError::Url)),
        (built("evolution-api", base, None, "t"), Err(AccountSpecError::NoSender("instance"))),
        (built("evolution-api", base, Some(".."), "t"), Err(AccountSpecError::Sender("instance"))),
        (
            built("whatsapp-cloud", None, Some(" "), "t"),
            Err(AccountSpecError::Sender("phone_number_id")),
        ),
        (built("evolution-go", base, None, ""), Err(AccountSpecError::Token)),
        (built("evolution-go", base, None, "a\nb"), Err(AccountSpecError::Token)),
    ];
    for (index, (found, expected)) in cases.into_iter().enumerate() {
        assert_eq!(found, expected, "case {index}");
    }
}

fn recipients() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("+55 11 98765-4321".to_owned()),
        Just("120363404694233820@g.us".to_owned()),
        Just("BR.1502576394655843".to_owned()),
        Just("148438822404248@lid".to_owned()),
        Just("Y2FwaV9ncm91cDoxNzA1NTU1MDEzOTox".to_owned()),
        ".{0,40}",
    ]
}

fn contents() -> impl Strategy<Value = (&'static str, Value)> {
    let text = || "\\PC{0,30}|.{0,30}";
    let media = |name: &'static str| {
        (any::<bool>(), text(), any::<bool>()).prop_map(move |(by_url, text, voice)| {
            let location_field = if by_url { "url" } else { "media_id" };
            let location = if by_url { format!("https://files.test/{text}") } else { text.clone() };
            (
                name,
                json!({ location_field: location, "caption": text, "filename": text, "voice": voice }),
            )
        })
    };
    prop_oneof![
        text().prop_map(|text| ("text", json!(text))),
        media("image"),
        media("audio"),
        media("document"),
        media("sticker"),
        (-400..400_i32, -800..800_i32, text()).prop_map(|(latitude, longitude, name)| {
            let (latitude, longitude) = (f64::from(latitude) / 4.0, f64::from(longitude) / 4.0);
            let location = json!({ "latitude": latitude, "longitude": longitude, "name": name });
            ("location", location)
        }),
        (text(), text())
            .prop_map(|(name, phone)| ("contact", json!({ "name": name, "phone": phone }))),
        (text(), text())
            .prop_map(|(id, emoji)| ("reaction", json!({ "message_id": id, "emoji": emoji }))),
        (text(), text()).prop_map(|(name, language)| (
            "template",
            json!({ "name": name, "language": language })
        )),
    ]
}

proptest! {
    /// Every message is composed or rejected with a sentence, and the same send makes the same request.
    #[test]
    fn composing_requests_never_panics(
        to in recipients(),
        field_and_content in contents(),
        reply in proptest::option::of("\\PC{0,20}"),
        send_id in ".{0,600}",
    ) {
        let (field, content) = field_and_content;
        let mut message_json = json!({ "to": to, field: content });
        if let Some(reply) = reply {
            message_json["reply_to"] = json!(reply);
        }
        if let Ok(message) = Message::parse(message_json.to_string().as_bytes()) {
            for channel in CHANNELS {
                let account = account(*channel);
                match channel.compose(&account, &message, &send_id) {
                    Ok(first) => {
                        let second = channel.compose(&account, &message, &send_id).unwrap();
                        prop_assert_eq!(first.body, second.body);
                        prop_assert_eq!(first.url, second.url);
                    }
                    Err(error) => prop_assert!(error.to_string().starts_with(channel.name())),
                }
            }
        }
    }

    #[test]
    fn parsing_responses_never_panics(status in 0..1000_u16, body in ".{0,200}", code in any::<u64>()) {
        let error = json!({ "error": { "code": code, "message": body } }).to_string();
        for channel in CHANNELS {
            channel.parse_response(status, body.as_bytes());
            let response = channel.parse_response(status, error.as_bytes());
            prop_assert!(response.text.chars().count() <= 200);
        }
    }

    /// Every send has its own WhatsApp message id, the same at every attempt.
    #[test]
    fn different_sends_have_different_message_ids(first in "\\PC{1,40}", second in "\\PC{1,40}") {
        let channel = channel("evolution-go");
        let text = message(&json!({ "to": "5511987654321", "text": "hi" }));
        let id = |send_id: &str| {
            let composed = channel.compose(&account(channel), &text, send_id).unwrap();
            composed.body["id"].as_str().unwrap().to_owned()
        };
        prop_assert_eq!(id(&first), id(&first));
        prop_assert_eq!(id(&first) == id(&second), first == second);
        let is_hex = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
        prop_assert!(id(&first).len() == 22 && id(&first).starts_with("3EB0"));
        prop_assert!(id(&first).chars().all(is_hex));
    }

    #[test]
    fn message_spec_survives_json_roundtrip(field_and_content in contents()) {
        let (field, content) = field_and_content;
        let message_json = json!({ "to": "5511987654321", field: content });
        if let Ok(spec) = serde_json::from_value::<MessageSpec>(message_json) {
            let stored = serde_json::to_string(&spec).unwrap();
            let read: MessageSpec = serde_json::from_str(&stored).unwrap();
            prop_assert_eq!(read.build(), spec.build());
        }
    }
}
