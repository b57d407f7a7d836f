//! Displays a body as text, or as a hex dump of its first bytes. A large body is shown in part.

use std::fmt::Write as _;

use surehook_webhooks::{
    provider::{DecodedField, form_fields, is_form_type},
    verify::diagnosis::indent_json,
};

/// Fields of a form that are shown; all are in the text.
const FORM_FIELDS_MAX: usize = 200;

/// A field of a form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FormFieldView {
    pub(crate) name: String,
    /// JSON has one member per line.
    pub(crate) value: String,
    pub(crate) is_json: bool,
}

/// The part of a body included in a page; the rest can be downloaded.
pub(crate) const INLINE_BYTES_MAX: usize = 256 * 1024;
const HEX_BYTES_MAX: usize = 512;
const HEX_BYTES_PER_LINE: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyView {
    /// Removed by retention.
    Removed,
    /// The content encoding cannot be decoded, so secrets in it cannot be masked.
    Undecodable,
    Empty,
    Text {
        text: String,
        /// Starts like JSON, so the browser may show it as a tree.
        is_json: bool,
        is_cut: bool,
    },
    Binary {
        /// Sixteen bytes per line.
        hex: String,
    },
}

impl BodyView {
    /// The view of a body, or of its first [`INLINE_BYTES_MAX`] bytes.
    pub(crate) fn new(body: &[u8]) -> Self {
        let shown = body.len().min(INLINE_BYTES_MAX);
        Self::from_bytes(&body[..shown], shown < body.len())
    }

    /// The view of the first bytes of a body; `is_cut` if there are more.
    fn from_bytes(bytes: &[u8], is_cut: bool) -> Self {
        if bytes.is_empty() {
            return Self::Empty;
        }
        match decode_text(bytes, is_cut) {
            Some(text) => {
                let first = text.trim_start().as_bytes().first();
                let is_json = first.is_some_and(|byte| {
                    matches!(byte, b'{' | b'[' | b'"' | b'-' | b't' | b'f' | b'n')
                        || byte.is_ascii_digit()
                });
                Self::Text { text: text.to_owned(), is_json, is_cut }
            }
            None => Self::Binary { hex: hex_dump(bytes) },
        }
    }

    /// The fields, if the body is a complete form.
    pub(crate) fn form(&self, content_type: Option<&str>) -> Vec<FormFieldView> {
        let text = match self.full_text() {
            Some(text) if content_type.is_some_and(is_form_type) => text,
            Some(_) | None => return Vec::new(),
        };
        let view = |field: DecodedField| {
            let has_json_form = field.value.trim_start().starts_with(['{', '[']);
            let json = has_json_form.then(|| indent_json(&field.value)).flatten();
            let is_json = json.is_some();
            FormFieldView { name: field.name, value: json.unwrap_or(field.value), is_json }
        };
        form_fields(text).take(FORM_FIELDS_MAX).map(view).collect()
    }

    /// The text, if it is complete.
    pub(crate) fn full_text(&self) -> Option<&str> {
        match self {
            Self::Empty => Some(""),
            Self::Text { text, is_cut: false, .. } => Some(text),
            Self::Removed | Self::Undecodable | Self::Text { .. } | Self::Binary { .. } => None,
        }
    }
}

/// Decodes UTF-8. A character cut at the end is left out.
fn decode_text(bytes: &[u8], is_cut: bool) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    // NUL is valid UTF-8, but does not occur in text.
    (!text.contains('\0')).then_some(text)
}

fn hex_dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    let lines = bytes[..bytes.len().min(HEX_BYTES_MAX)].chunks(HEX_BYTES_PER_LINE);
    for (number, line) in lines.enumerate() {
        let _ = write!(text, "{:06x} ", number * HEX_BYTES_PER_LINE);
        for column in 0..HEX_BYTES_PER_LINE {
            match line.get(column) {
                Some(byte) => drop(write!(text, " {byte:02x}")),
                None => text.push_str("   "),
            }
        }
        text.push_str("  ");
        text.extend(line.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_shown_as_text_json_or_binary() {
        let text =
            |text: &str, is_json, is_cut| BodyView::Text { text: text.to_owned(), is_json, is_cut };
        for (name, bytes, is_cut, expected) in [
            ("nothing", b"".as_slice(), false, BodyView::Empty),
            ("an object", b" {\"a\":1}", false, text(" {\"a\":1}", true, false)),
            ("a form", b"a=1&b=2", false, text("a=1&b=2", false, false)),
            ("cut within a character", b"\xc3\xa9\xc3", true, text("é", false, true)),
        ] {
            assert_eq!(BodyView::from_bytes(bytes, is_cut), expected, "case: {name}");
        }
        for bytes in [b"\xc3\xa9\xc3".as_slice(), b"a\0b", b"\xff\xfe"] {
            assert!(
                matches!(BodyView::from_bytes(bytes, false), BodyView::Binary { .. }),
                "case: {bytes:?}"
            );
        }
    }

    #[test]
    fn form_is_shown_field_by_field_with_indented_json() {
        let body = BodyView::new(
            b"command=%2Fdeploy+now&payload=%7B%22id%22%3A1.0%2C%22a%22%3A%5B%5D%7D&x=%7Bno",
        );
        let kind = Some("application/x-www-form-urlencoded; charset=utf-8");
        let field = |name: &str, value: &str, is_json| FormFieldView {
            name: name.to_owned(),
            value: value.to_owned(),
            is_json,
        };
        let expected = [
            field("command", "/deploy now", false),
            field("payload", "{\n  \"id\": 1.0,\n  \"a\": []\n}", true),
            field("x", "{no", false),
        ];
        assert_eq!(body.form(kind), expected);
        assert!(body.form(Some("text/plain")).is_empty() && body.form(None).is_empty());
        assert!(BodyView::Empty.form(kind).is_empty());
    }

    #[test]
    fn hex_dump_has_sixteen_bytes_per_line() {
        let BodyView::Binary { hex } = BodyView::from_bytes(b"0123456789abcdef\0<\xff", false)
        else {
            panic!()
        };
        let expected = "000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n\
                        000010  00 3c ff                                         .<.\n";
        assert_eq!(hex, expected);
    }
}
