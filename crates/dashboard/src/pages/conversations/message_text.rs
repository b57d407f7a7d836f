//! What a message says, whoever its provider is: the first pointer that has a text.

use serde_json::Value;

/// Where providers put the text of a message, and the outbox too.
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

/// The longest text that is shown.
const CHARS_MAX: usize = 600;

/// The text of a message; `None` if it has none that we know.
pub(super) fn extract(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let text = TEXT_POINTERS.iter().find_map(|pointer| body.pointer(pointer)?.as_str())?;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_where_providers_put_them() {
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
