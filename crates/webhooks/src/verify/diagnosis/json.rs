//! Respells JSON as common serializers do. The order of members and the spelling of numbers stay.

use serde::de::IgnoredAny;

/// The text with one member or item per line, names and values spelled as they are; `None` if it is not
/// JSON.
pub fn indent_json(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    Some(respace(text, &JsonSpacing::Indented))
}

/// Each spelling with its description; empty if the body is not JSON.
pub(super) fn spellings(body: &[u8]) -> Vec<(&'static str, String)> {
    let Ok(text) = std::str::from_utf8(body) else { return Vec::new() };
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Vec::new();
    }
    let compact = respace(text, &JsonSpacing::None);
    let spaced = respace(text, &JsonSpacing::AfterSeparators);
    let plain = unescape_characters(&compact);
    vec![
        ("with two spaces of indentation", respace(text, &JsonSpacing::Indented)),
        ("in ASCII, without spaces", escape_non_ascii(&compact)),
        ("in ASCII, with a space after each comma and colon", escape_non_ascii(&spaced)),
        (
            "as Meta escapes it: in ASCII, slashes escaped",
            escape_non_ascii(&escape_slashes(&compact)),
        ),
        ("slashes escaped, without spaces", escape_slashes(&compact)),
        ("nothing escaped that need not be, without spaces", plain),
        ("without spaces", compact),
        ("with a space after each comma and colon", spaced),
    ]
}

enum JsonSpacing {
    None,
    AfterSeparators,
    Indented,
}

/// Replaces the white space between tokens.
fn respace(text: &str, spaces: &JsonSpacing) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut in_string, mut escaped, mut depth) = (false, false, 0_usize);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if in_string {
            out.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        if character.is_ascii_whitespace() {
            continue;
        }
        let indent = |out: &mut String, depth: usize| {
            if matches!(spaces, JsonSpacing::Indented) {
                out.push('\n');
                out.push_str(&"  ".repeat(depth));
            }
        };
        match character {
            '{' | '[' => {
                out.push(character);
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                if matches!(characters.peek(), Some('}' | ']')) {
                    out.extend(characters.next());
                } else {
                    depth += 1;
                    indent(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                indent(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(character);
                if matches!(spaces, JsonSpacing::AfterSeparators) {
                    out.push(' ');
                }
                indent(&mut out, depth);
            }
            ':' => {
                out.push(character);
                if !matches!(spaces, JsonSpacing::None) {
                    out.push(' ');
                }
            }
            _ => {
                in_string = character == '"';
                out.push(character);
            }
        }
    }
    out
}

fn escape_slashes(json: &str) -> String {
    json.replace("\\/", "/").replace('/', "\\/")
}

/// Escapes non-ASCII characters as `\u`.
fn escape_non_ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            ascii.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            ascii.push_str(&format!("\\u{unit:04x}"));
        }
    }
    ascii
}

/// Unescapes `\/` and the `\u` escapes of non-ASCII characters.
fn unescape_characters(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.as_bytes().get(1) {
            Some(b'/') => {
                out.push('/');
                2
            }
            Some(b'u') => match decode_escape(rest) {
                Some((character, length)) => {
                    out.push(character);
                    length
                }
                None => 0,
            },
            _ => 0,
        };
        if taken == 0 {
            let keep = rest.len().min(2);
            out.push_str(&rest[..keep]);
            rest = &rest[keep..];
        } else {
            rest = &rest[taken..];
        }
    }
    out.push_str(rest);
    out
}

/// The non-ASCII character of a `\u` escape at the start, and the length of the escape.
fn decode_escape(text: &str) -> Option<(char, usize)> {
    let unit = |at: usize| u16::from_str_radix(text.get(at..at + 4)?, 16).ok();
    let first = unit(2)?;
    let is_pair = (0xd800..0xdc00).contains(&first) && text.get(6..8) == Some("\\u");
    let units = if is_pair { vec![first, unit(8)?] } else { vec![first] };
    let length = if is_pair { 12 } else { 6 };
    let character = char::decode_utf16(units).next()?.ok()?;
    (!character.is_ascii()).then_some((character, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_respelled_in_common_ways() {
        let body = "{ \"z\" : [1.50,{ },[ ]],\n\"a\": \"x, \\u00e9\\ud83d\\ude00 \\/ \\\" \\n\" }";
        let found = spellings(body.as_bytes());
        let get = |name: &str| found.iter().find(|(other, _)| *other == name).unwrap().1.as_str();
        assert_eq!(
            get("as Meta escapes it: in ASCII, slashes escaped"),
            r#"{"z":[1.50,{},[]],"a":"x, \u00e9\ud83d\ude00 \/ \" \n"}"#
        );
        assert_eq!(
            get("without spaces"),
            r#"{"z":[1.50,{},[]],"a":"x, \u00e9\ud83d\ude00 \/ \" \n"}"#
        );
        assert_eq!(
            get("with a space after each comma and colon"),
            r#"{"z": [1.50, {}, []], "a": "x, \u00e9\ud83d\ude00 \/ \" \n"}"#
        );
        assert_eq!(
            get("nothing escaped that need not be, without spaces"),
            "{\"z\":[1.50,{},[]],\"a\":\"x, é😀 / \\\" \\n\"}"
        );
        assert_eq!(
            get("with two spaces of indentation"),
            "{\n  \"z\": [\n    1.50,\n    {},\n    []\n  ],\n  \"a\": \"x, \\u00e9\\ud83d\\ude00 \\/ \\\" \\n\"\n}"
        );
        for (name, text) in &found {
            let (one, other): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(text).unwrap(), serde_json::from_str(body).unwrap());
            assert_eq!(one, other, "case: {name}");
        }
        assert!(spellings(b"not json").is_empty());
    }
}
