//! Telegram bots: a token in a header; each update has a number and one object.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, EventPart, JSON, ParsedRequest, Provider,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::{
        AttributeName::{Chat, Conversation, MessageId, User},
        EventKind,
    },
    key::DedupKey,
    verify::{Verifier, VerifySpec, VerifySpecError},
};

const SECRET_TOKEN: &str = "x-telegram-bot-api-secret-token";
/// The limit for secret tokens.
const SECRET_BYTES_MAX: usize = 256;

pub(super) static TELEGRAM: Provider = Provider {
    name: "telegram",
    verifier,
    secret_header: Some(SECRET_TOKEN),
    // Telegram keeps updates for a day. After a week without updates the numbers restart, so the keys
    // must expire before that.
    dedup_window: HumanDuration::from_secs(2 * 86_400),
    parse_request: |request, _| {
        let unknown = EventPart { key: EventKey::None, ..EventPart::default() };
        ParsedRequest::single(parse_update(request.body).unwrap_or(unknown))
    },
    samples: &[
        sample!(JSON, "message", "telegram.message.json"),
        sample!(JSON, "edited_message", "telegram.edited_message.json"),
        sample!(JSON, "callback_query", "telegram.callback_query.json"),
        sample!(JSON, "my_chat_member", "telegram.my_chat_member.json"),
        sample!(JSON, "inline_query", "telegram.inline_query.json"),
    ],
    ..Provider::DEFAULT
};

/// The object in an update. It is ordered by its chat; without one, by the user; a poll has only an id.
static OBJECT: EventReader = EventReader::new(&EventTemplate {
    ordering_key: &[
        "{/chat/id|/message/chat/id|/user_chat_id|/voter_chat/id|/from/id|/user/id|/id}",
    ],
    attributes: &[
        (Chat, &["/chat/id", "/message/chat/id", "/voter_chat/id"]),
        (User, &["/from/id", "/user/id", "/from/username", "/user/username"]),
        (MessageId, &["/message_id", "/message/message_id"]),
        (Conversation, &["/message_thread_id"]),
    ],
    ..EventTemplate::EMPTY
});

fn verifier(secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
    if let Some(index) = secrets.iter().position(|secret| !is_secret_token(secret.expose())) {
        let reason = "a Telegram secret token has 1 to 256 letters, digits, `_` and `-`";
        return Err(VerifySpecError::Secret { number: index + 1, reason });
    }
    Verifier::new(&VerifySpec::Token { header: SECRET_TOKEN.to_owned() }, secrets)
}

fn is_secret_token(bytes: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=SECRET_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(is_allowed)
}

/// An update has a number and one object, whose name is the kind.
fn parse_update(body: &[u8]) -> Option<EventPart> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    let number = fields.get("update_id").map(|value| value.get());
    let number = number.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let key = number.and_then(|number| DedupKey::new(&format!("telegram:{number}")));
    let object = fields.iter().find(|(_, value)| value.get().starts_with('{'));
    Some(EventPart {
        kind: object.and_then(|(name, _)| EventKind::new(name)),
        key: EventKey::known_or_none(key, "telegram:update_id"),
        ..OBJECT.read_json(object.map_or("", |(_, value)| value.get()).as_bytes()).event()
    })
}

#[cfg(test)]
mod tests {
    use surehook_types::secret::Secret;

    use super::super::testing::{assert_events, attribute_pairs, verify};
    use crate::provider::find;

    #[test]
    fn update_kind_is_the_name_of_its_object() {
        assert_events(
            "telegram",
            &[],
            r#"
            case | body | kind | key | ordering key
            a message in a group | {"update_id":7,"message":{"message_id":1,"from":{"id":5},"chat":{"id":-1001234567890123}}} | message | telegram:7 | -1001234567890123
            a button | {"update_id":8,"callback_query":{"id":"4382bfdwdsb323b2d9","from":{"id":5},"message":{"message_id":1,"chat":{"id":6}}}} | callback_query | telegram:8 | 6
            a button of an inline message | {"update_id":9,"callback_query":{"id":"4","from":{"id":5},"inline_message_id":"x"}} | callback_query | telegram:9 | 5
            a poll | {"update_id":10,"poll":{"id":"77","question":"?"}} | poll | telegram:10 | 77
            an answer to one | {"update_id":11,"poll_answer":{"poll_id":"77","user":{"id":5}}} | poll_answer | telegram:11 | 5
            unknown kind | {"update_id":12,"hologram":{"chat":{"id":6}}} | hologram | telegram:12 | 6
            no number | {"message":{"chat":{"id":6}}} | message | - | 6
            an odd number | {"update_id":"7:8","message":{}} | message | - | -
            a list | [{"update_id":7}] | - | - | -
            not JSON | x | - | - | -
            "#,
        );
    }

    #[test]
    fn attributes_include_chat_user_and_message_id() {
        let body = r#"{"update_id":7,"message":{"message_id":1365,"from":{"id":5,"username":"ana"},"chat":{"id":6},"message_thread_id":3}}"#;
        let expected = ["message_id=1365", "conversation=3", "chat=6", "user=5", "user=ana"];
        assert_eq!(attribute_pairs("telegram", &[], body), expected);
    }

    #[test]
    fn secret_token_must_be_valid_and_match() {
        let check = |value: &str| {
            let headers = [("x-telegram-bot-api-secret-token", value)];
            verify("telegram", &["tg_SECRET-1"], &headers, "{}", 0).is_ok()
        };
        assert_eq!([check("tg_SECRET-1"), check("tg_SECRET-2"), check("")], [true, false, false]);
        // A bot token used as the secret by mistake.
        for (secret, expected) in [("a", true), ("123:ABC", false), ("a b", false)] {
            let verifier = find("telegram").unwrap().verifier(vec![Secret::new(secret)]);
            assert_eq!(verifier.is_ok(), expected, "{secret}");
        }
        let long = vec![Secret::new("a".repeat(257))];
        assert!(find("telegram").unwrap().verifier(long).is_err());
    }
}
