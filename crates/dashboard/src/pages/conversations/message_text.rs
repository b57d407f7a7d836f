//! Extracts the text of a message from the body of any supported provider.

use serde_json::Value;

use crate::format::truncate;

/// JSON pointers to the text, by provider.
const TEXT_POINTERS: [&str; 14] = [
    "/entry/0/changes/0/value/messages/0/text/body",
    "/entry/0/changes/0/value/messages/0/button/text",
    "/entry/0/changes/0/value/messages/0/interactive/button_reply/title",
    "/entry/0/changes/0/value/messages/0/image/caption",
    "/data/message/conversation",
    "/data/message/extendedTextMessage/text",
    "/data/message/imageMessage/caption",
    "/data/Message/conversation",
    "/data/Message/extendedTextMessage/text",
    "/message/text",
    "/event/text",
    "/content",
    "/text/body",
    "/text",
];

const CHARS_MAX: usize = 600;

/// The text, or `None` if the body contains no known text field.
pub(in crate::pages) fn extract(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let text = TEXT_POINTERS.iter().find_map(|pointer| body.pointer(pointer)?.as_str())?;
    Some(truncate(text, CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_text_is_found_for_every_provider() {
        for (body, expected) in [
            (r#"{"text":"hi"}"#, Some("hi")),
            (r#"{"text":{"body":"hi"}}"#, Some("hi")),
            (r#"{"content":"olá"}"#, Some("olá")),
            (r#"{"data":{"message":{"conversation":"oi"}}}"#, Some("oi")),
            (
                r#"{"entry":[{"changes":[{"value":{"messages":[{"text":{"body":"<b>"}}]}}]}]}"#,
                Some("<b>"),
            ),
            (r#"{"text":7}"#, None),
            ("not json", None),
        ] {
            assert_eq!(extract(body.as_bytes()).as_deref(), expected, "case: {body}");
        }
        let long = format!(r#"{{"text":"{}"}}"#, "é".repeat(1000));
        assert_eq!(extract(long.as_bytes()).unwrap().chars().count(), CHARS_MAX + 1);
    }
}
