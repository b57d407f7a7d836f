//! Event filters by a value in the body, such as `body.data.object.id=42`.

use std::borrow::Cow;

use http::HeaderMap;
use serde_json::value::RawValue;
use surehook_types::inflate;

use crate::key::{JsonPointer, JsonPointerSet, ParseJsonPointerError, scalar_text};

/// The longest value to compare.
pub const VALUE_BYTES_MAX: usize = 1024;
/// The largest decoded body that is searched: one query reads many bodies.
pub const BODY_BYTES_MAX: usize = 128 << 10;

/// A path in a body and the text expected there.
///
/// Strings are compared by content, everything else by spelling: `42` is not `42.0`, and every digit of
/// a long number counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyValueFilter {
    pointer: JsonPointer,
    text: String,
}

/// Why a filter by body value is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBodyValueFilterError {
    /// The text is not a path.
    #[error("`body.{0}` is not a path; write one such as body.data.object.id")]
    Path(String),
    /// The path is not a JSON pointer.
    #[error(transparent)]
    InvalidPointer(#[from] ParseJsonPointerError),
    /// The value is too long.
    #[error("the value of a body filter is longer than {VALUE_BYTES_MAX} bytes")]
    Long,
}

impl BodyValueFilter {
    /// `path` is dotted, such as `data.items.0.id`, or a JSON pointer, for names that contain a dot.
    pub fn new(path: &str, text: &str) -> Result<Self, ParseBodyValueFilterError> {
        if text.len() > VALUE_BYTES_MAX {
            return Err(ParseBodyValueFilterError::Long);
        }
        let pointer = if path.starts_with('/') {
            path.parse()?
        } else if path.is_empty() || path.split('.').any(str::is_empty) {
            return Err(ParseBodyValueFilterError::Path(path.to_owned()));
        } else {
            let escaped = path.replace('~', "~0").replace('/', "~1").replace('.', "/");
            format!("/{escaped}").parse()?
        };
        Ok(Self { pointer, text: text.to_owned() })
    }

    /// Whether the body, decoded up to [`BODY_BYTES_MAX`], has all of these values.
    pub fn all_match(filters: &[Self], headers: &HeaderMap, body: &[u8]) -> bool {
        let mut pointers = JsonPointerSet::default();
        for value in filters {
            pointers.push(&value.pointer);
        }
        let decoded = inflate::decode_body_within(headers, body, BODY_BYTES_MAX)
            .unwrap_or(Cow::Borrowed(body));
        let found = pointers.find(&decoded);
        filters.iter().zip(found).all(|(value, found)| {
            found.is_some_and(|found| value_text(found).is_some_and(|text| text == value.text))
        })
    }
}

/// The text of a scalar; `None` for an array or object.
fn value_text(value: &RawValue) -> Option<Cow<'_, str>> {
    let word = value.get();
    match word {
        "true" | "false" | "null" => Some(Cow::Borrowed(word)),
        _ => scalar_text(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_matches_by_path_and_spelling() {
        let body = br#"{"id":"a.b","n":42,"big":123456789012345678901234567890,"f":1.50,
            "ok":true,"none":null,"data":{"list":[{"id":"x"},{"id":"caf\u00e9"}],"a.b":"dotted"},
            "0":"zero","twice":1,"twice":2,"a/b":"slash","t~":"tilde"}"#;
        for (path, text, expected) in [
            ("id", "a.b", true),
            ("id", "a", false),
            ("n", "42", true),
            ("n", "42.0", false),
            ("big", "123456789012345678901234567890", true),
            ("big", "123456789012345678901234567891", false),
            ("f", "1.50", true),
            ("f", "1.5", false),
            ("ok", "true", true),
            ("none", "null", true),
            ("missing", "null", false),
            ("data.list.1.id", "caf\u{e9}", true),
            ("data.list.0.id", "x", true),
            ("data.list.2.id", "x", false),
            ("data.list", "[]", false),
            ("data.a.b", "dotted", false),
            ("/data/a.b", "dotted", true),
            ("0", "zero", true),
            ("twice", "2", true),
            ("twice", "1", false),
            ("a/b", "slash", true),
            ("t~", "tilde", true),
        ] {
            let wanted = [BodyValueFilter::new(path, text).unwrap()];
            let found = BodyValueFilter::all_match(&wanted, &HeaderMap::new(), body);
            assert_eq!(found, expected, "case: {path}={text}");
        }
        let both = [
            BodyValueFilter::new("n", "42").unwrap(),
            BodyValueFilter::new("ok", "false").unwrap(),
        ];
        assert!(!BodyValueFilter::all_match(&both, &HeaderMap::new(), body));
        assert!(!BodyValueFilter::all_match(&both[..1], &HeaderMap::new(), b"n=42"));
    }

    #[test]
    fn compressed_body_is_searched_up_to_a_limit() {
        use std::io::Write as _;

        use flate2::{Compression, write::GzEncoder};
        use http::{HeaderValue, header::CONTENT_ENCODING};

        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let wanted = [BodyValueFilter::new("n", "42").unwrap()];
        for (bytes, expected) in [(BODY_BYTES_MAX, true), (BODY_BYTES_MAX + 1, false)] {
            // Numbers, so that the compression ratio stays below the limit.
            let filler: String = (0..bytes).map(|n| format!("{n},")).collect();
            let (head, tail) = (r#"{"n":42,"x":""#, r#""}"#);
            let body = format!("{head}{}{tail}", &filler[..bytes - head.len() - tail.len()]);
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(body.as_bytes()).unwrap();
            let packed = encoder.finish().unwrap();
            assert_eq!(
                BodyValueFilter::all_match(&wanted, &headers, &packed),
                expected,
                "{bytes} bytes"
            );
        }
    }

    #[test]
    fn invalid_path_is_refused() {
        for path in ["", ".", "a.", ".a", "a..b", "/a~2"] {
            assert!(BodyValueFilter::new(path, "x").is_err(), "case: {path}");
        }
        let deep = ["a"; 33].join(".");
        assert!(BodyValueFilter::new(&deep, "x").is_err());
        assert_eq!(
            BodyValueFilter::new("a", &"x".repeat(1025)),
            Err(ParseBodyValueFilterError::Long)
        );
    }
}
