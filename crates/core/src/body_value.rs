//! A value that is looked for in a body, by where it stands.

use std::borrow::Cow;

use http::HeaderMap;
use serde_json::value::RawValue;

use crate::{
    inflate,
    key::{JsonPointer, JsonPointerSet, ParseJsonPointerError, scalar_text},
};

/// The longest value that is looked for.
pub const VALUE_BYTES_MAX: usize = 1024;
/// The largest body that is looked into, unpacked too: one question looks into many.
pub const BODY_BYTES_MAX: usize = 128 << 10;

/// A place in a body and the text that must stand there.
///
/// A string is compared by what it says, all else by how it is spelled: `42` is not `42.0`, and of
/// a number with thirty digits every digit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyValueFilter {
    at: JsonPointer,
    text: String,
}

/// Why something cannot be looked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBodyValueFilterError {
    /// The path names no place.
    #[error("`body.{0}` names no place in a body; write a path such as body.data.object.id")]
    Path(String),
    /// The place is too deep or badly written.
    #[error(transparent)]
    JsonPointer(#[from] ParseJsonPointerError),
    /// The value is too long.
    #[error("a value in a body is looked for by at most {VALUE_BYTES_MAX} bytes")]
    Long,
}

impl BodyValueFilter {
    /// `path` is dotted, such as `data.items.0.id`; one that begins with `/` is a JSON pointer, for
    /// names that have a dot in them.
    pub fn new(path: &str, text: &str) -> Result<Self, ParseBodyValueFilterError> {
        if text.len() > VALUE_BYTES_MAX {
            return Err(ParseBodyValueFilterError::Long);
        }
        let at = if path.starts_with('/') {
            path.parse()?
        } else if path.is_empty() || path.split('.').any(str::is_empty) {
            return Err(ParseBodyValueFilterError::Path(path.to_owned()));
        } else {
            let escaped = path.replace('~', "~0").replace('/', "~1").replace('.', "/");
            format!("/{escaped}").parse()?
        };
        Ok(Self { at, text: text.to_owned() })
    }

    /// Whether a body has all of these values, unpacked if it is packed and then not larger than
    /// [`BODY_BYTES_MAX`].
    pub fn all_match(wanted: &[Self], headers: &HeaderMap, body: &[u8]) -> bool {
        let mut pointers = JsonPointerSet::default();
        for value in wanted {
            pointers.push(&value.at);
        }
        let plain = inflate::decode_body_within(headers, body, BODY_BYTES_MAX)
            .unwrap_or(Cow::Borrowed(body));
        let found = pointers.find(&plain);
        wanted.iter().zip(found).all(|(value, found)| {
            found.is_some_and(|found| text_of(found).is_some_and(|text| text == value.text))
        })
    }
}

/// What stands there as text; nothing for a list or an object.
fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
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
    fn a_value_is_found_by_where_it_stands_and_how_it_is_spelled() {
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
    fn a_packed_body_is_looked_into_up_to_a_bound() {
        use std::io::Write as _;

        use flate2::{Compression, write::GzEncoder};
        use http::{HeaderValue, header::CONTENT_ENCODING};

        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let wanted = [BodyValueFilter::new("n", "42").unwrap()];
        for (bytes, expected) in [(BODY_BYTES_MAX, true), (BODY_BYTES_MAX + 1, false)] {
            // Numbers, so that it does not unpack to too many times its size.
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
    fn what_names_no_place_is_refused() {
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
