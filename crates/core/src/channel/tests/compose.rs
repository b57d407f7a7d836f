//! What holds for the requests of every service.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{account, again, ambiguous, channel, meaning, message};
use crate::{
    channel::{AccountSpecError, CHANNELS, ErrorScope, Message, MessageSpec, ResendPolicy, find},
    secret::Secret,
};

#[test]
fn names_are_found() {
    let names: Vec<&str> = CHANNELS.iter().map(|channel| channel.name()).collect();
    assert_eq!(names, ["evolution-api", "evolution-go", "whatsapp-cloud"]);
    assert!(find("whatsapp").is_none());
}

#[test]
fn nobody_knows_what_became_of_a_message_that_was_handed_over() {
    for channel in CHANNELS {
        assert_eq!(meaning(&channel.timeout_response(true)), ambiguous(), "{channel:?}");
        assert_eq!(
            meaning(&channel.timeout_response(false)),
            again(ErrorScope::Channel),
            "{channel:?}"
        );
    }
}

#[test]
fn whether_it_may_be_sent_again_and_how_long_it_takes() {
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
fn neither_token_nor_number_is_printed() {
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
fn an_account_says_what_is_missing() {
    let built = |name: &str, base: Option<&str>, sender: Option<&str>, token: &str| {
        let made = channel(name).build_account(base, sender, Secret::new(token));
        made.map(|account| account.url(["a", account.sender()]).to_string())
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
            let at = if by_url { "url" } else { "media_id" };
            let place = if by_url { format!("https://files.test/{text}") } else { text.clone() };
            (name, json!({ at: place, "caption": text, "filename": text, "voice": voice }))
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
            let place = json!({ "latitude": latitude, "longitude": longitude, "name": name });
            ("location", place)
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
    /// Whatever is written, and whoever sends it: it is composed or refused with a sentence, and the
    /// same send makes the same request.
    #[test]
    fn composing_never_panics(
        to in recipients(),
        (field, content) in contents(),
        reply in proptest::option::of("\\PC{0,20}"),
        send_id in ".{0,600}",
    ) {
        let mut written = json!({ "to": to, field: content });
        if let Some(reply) = reply {
            written["reply_to"] = json!(reply);
        }
        if let Ok(message) = Message::parse(written.to_string().as_bytes()) {
            for channel in CHANNELS {
                let account = account(*channel);
                match channel.compose(&account, &message, &send_id) {
                    Ok(first) => {
                        let second = channel.compose(&account, &message, &send_id).unwrap();
                        prop_assert_eq!(first.body, second.body);
                        prop_assert_eq!(first.url, second.url);
                    }
                    Err(why) => prop_assert!(why.to_string().starts_with(channel.name())),
                }
            }
        }
    }

    #[test]
    fn reading_never_panics(status in 0..1000_u16, body in ".{0,200}", code in any::<u64>()) {
        let error = json!({ "error": { "code": code, "message": body } }).to_string();
        for channel in CHANNELS {
            channel.parse_response(status, body.as_bytes());
            let answer = channel.parse_response(status, error.as_bytes());
            prop_assert!(answer.text.chars().count() <= 200);
        }
    }

    /// Every send has an id of its own within WhatsApp, the same at every attempt.
    #[test]
    fn other_sends_have_other_ids(first in "\\PC{1,40}", second in "\\PC{1,40}") {
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
    fn what_is_written_survives_being_stored((field, content) in contents()) {
        let written = json!({ "to": "5511987654321", field: content });
        if let Ok(spec) = serde_json::from_value::<MessageSpec>(written) {
            let stored = serde_json::to_string(&spec).unwrap();
            let read: MessageSpec = serde_json::from_str(&stored).unwrap();
            prop_assert_eq!(read.build(), spec.build());
        }
    }
}
