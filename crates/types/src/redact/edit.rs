//! Replaces spans of a text and leaves all other bytes unchanged.

use std::{borrow::Cow, ops::Range};

use super::MASK;

/// The replacement of one span. Lists of edits are sorted and do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) span: Range<usize>,
    pub(super) replacement: Cow<'static, str>,
}

impl Edit {
    /// The mask as a JSON string.
    pub(super) fn string(span: Range<usize>) -> Self {
        Self { span, replacement: Cow::Borrowed("\"•••\"") }
    }

    /// The bare mask.
    pub(super) fn plain(span: Range<usize>) -> Self {
        Self { span, replacement: Cow::Borrowed(MASK) }
    }

    /// The same edit, shifted by `start`.
    pub(super) fn shifted(self, start: usize) -> Self {
        Self { span: self.span.start + start..self.span.end + start, replacement: self.replacement }
    }
}

/// Sorts edits and joins those that overlap.
pub(super) fn merge_overlapping(mut edits: Vec<Edit>) -> Vec<Edit> {
    edits.sort_by_key(|edit| edit.span.start);
    let mut disjoint: Vec<Edit> = Vec::with_capacity(edits.len());
    for edit in edits {
        match disjoint.last_mut() {
            Some(last) if edit.span.start < last.span.end => {
                last.span.end = last.span.end.max(edit.span.end);
            }
            Some(_) | None => disjoint.push(edit),
        }
    }
    disjoint
}

pub(super) fn apply<'t>(text: &'t [u8], edits: &[Edit]) -> Cow<'t, [u8]> {
    if edits.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut edited = Vec::with_capacity(text.len());
    let mut copied = 0;
    for Edit { span, replacement } in edits {
        edited.extend_from_slice(&text[copied..span.start]);
        edited.extend_from_slice(replacement.as_bytes());
        copied = span.end;
    }
    edited.extend_from_slice(&text[copied..]);
    Cow::Owned(edited)
}

/// How a text is encoded inside another one.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextEncoding {
    /// In a JSON string.
    Escaped,
    /// In a form value.
    Percent,
}

impl TextEncoding {
    pub(super) fn decode(self, raw: &[u8]) -> Vec<u8> {
        let mut decoded = Vec::with_capacity(raw.len());
        let mut at = 0;
        while at < raw.len() {
            at += self.decode_unit(&raw[at..], &mut decoded);
        }
        decoded
    }

    /// Maps edits of the decoded text to the raw text. Both are read once.
    pub(super) fn map_edits(self, raw: &[u8], start: usize, edits: Vec<Edit>) -> Vec<Edit> {
        let mut decoded = Vec::new();
        let (mut at, mut passed) = (0, 0);
        let mut raw_position = |decoded_position: usize| {
            while passed < decoded_position && at < raw.len() {
                decoded.clear();
                at += self.decode_unit(&raw[at..], &mut decoded);
                passed += decoded.len();
            }
            start + at
        };
        let mapped = edits.into_iter().map(|edit| Edit {
            span: raw_position(edit.span.start)..raw_position(edit.span.end),
            replacement: Cow::Owned(self.encode(&edit.replacement)),
        });
        mapped.collect()
    }

    /// Decodes the first unit of a non-empty raw text and returns its raw length. Malformed escapes
    /// are kept as they are.
    fn decode_unit(self, raw: &[u8], decoded: &mut Vec<u8>) -> usize {
        let piece = match self {
            Self::Escaped => decode_escape(raw),
            Self::Percent => match *raw {
                [b'%', high, low, ..] => {
                    hex(&[high, low]).map(|code| (3, DecodedUnit::Byte(low_8(code))))
                }
                [b'+', ..] => Some((1, DecodedUnit::Byte(b' '))),
                _ => None,
            },
        };
        match piece {
            Some((length, DecodedUnit::Byte(byte))) => {
                decoded.push(byte);
                length
            }
            Some((length, DecodedUnit::Char(letter))) => {
                decoded.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                length
            }
            None => {
                decoded.push(raw[0]);
                1
            }
        }
    }

    fn encode(self, text: &str) -> String {
        match self {
            Self::Escaped => text.replace('\\', "\\\\").replace('"', "\\\""),
            Self::Percent => {
                let encode = |byte: u8| match byte.is_ascii_alphanumeric() {
                    true => char::from(byte).to_string(),
                    false => format!("%{byte:02X}"),
                };
                text.bytes().map(encode).collect()
            }
        }
    }
}

enum DecodedUnit {
    Byte(u8),
    Char(char),
}

/// Decodes the escape that a text begins with; returns its raw length too.
fn decode_escape(raw: &[u8]) -> Option<(usize, DecodedUnit)> {
    let [b'\\', kind, rest @ ..] = raw else { return None };
    let byte = match kind {
        b'"' | b'\\' | b'/' => *kind,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => {
            let first = hex(rest.get(..4)?)?;
            let second = match rest.get(4..10) {
                Some([b'\\', b'u', low @ ..]) => hex(low),
                Some(_) | None => None,
            };
            let pair = second.and_then(|second| {
                char::decode_utf16([low_16(first), low_16(second)]).next()?.ok()
            });
            return Some(match (char::from_u32(first), pair) {
                (Some(letter), _) => (6, DecodedUnit::Char(letter)),
                (None, Some(letter)) => (12, DecodedUnit::Char(letter)),
                (None, None) => (6, DecodedUnit::Char(char::REPLACEMENT_CHARACTER)),
            });
        }
        _ => return None,
    };
    Some((2, DecodedUnit::Byte(byte)))
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))
}

fn low_8(code: u32) -> u8 {
    code.to_le_bytes()[0]
}

fn low_16(code: u32) -> u16 {
    let [first, second, ..] = code.to_le_bytes();
    u16::from_le_bytes([first, second])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_of_decoded_text_map_to_raw_text() {
        for (code, raw, decoded) in [
            (TextEncoding::Escaped, r#"a\"b\u00e9\ud83d\ude00\n\x\u12"#, "a\"bé😀\n\\x\\u12"),
            (TextEncoding::Escaped, r"\ud800\u0041\", "\u{fffd}A\\"),
            (TextEncoding::Percent, "a%22+%C3%A9%zz%2", "a\" é%zz%2"),
        ] {
            assert_eq!(code.decode(raw.as_bytes()), decoded.as_bytes(), "case: {raw}");
            let whole = vec![Edit::plain(0..decoded.len())];
            assert_eq!(code.map_edits(raw.as_bytes(), 7, whole)[0].span, 7..7 + raw.len());
        }
        let edits = vec![Edit::string(1..3), Edit::plain(4..5)];
        let placed = TextEncoding::Escaped.map_edits(br#"\"a\"b\n"#, 0, edits);
        assert_eq!(placed[0], Edit { span: 2..5, replacement: "\\\"•••\\\"".into() });
        assert_eq!(placed[1].span, 6..8);
    }
}
