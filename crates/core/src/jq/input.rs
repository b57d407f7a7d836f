//! JSON texts as filters see them: read once, shared by all filters of an event.

use std::fmt;

use jaq_json::{Val, read};
use serde::de::IgnoredAny;

/// As deep as `serde_json` goes by default, and far deeper than any payload.
const DEPTH_MAX: u16 = 128;

/// Reading a number takes time that grows with the square of its length; nothing real comes near.
const NUMBER_BYTES_MAX: usize = 1000;

/// A JSON document, ready to be given to any number of filters. Cheap to clone.
#[derive(Clone)]
pub struct JsonInput {
    pub(super) val: Val,
    pub(super) depth: u16,
}

/// Why a body cannot be given to a filter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseJsonInputError {
    /// RFC 8259 wants UTF-8.
    #[error("the body is not UTF-8")]
    NotUtf8,
    /// Not JSON, and where it stops being so.
    #[error("the body is not JSON: {0}")]
    Syntax(String),
    /// Arrays and objects within each other beyond all sense.
    #[error("the body is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// A number that no language could hold.
    #[error("the body has a number of more than {NUMBER_BYTES_MAX} digits")]
    LongNumber,
}

impl JsonInput {
    /// Reads a body. A byte order mark is passed over; of names that repeat, the last one counts;
    /// integers of any size stay exact.
    pub fn parse(body: &[u8]) -> Result<Self, ParseJsonInputError> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let text = std::str::from_utf8(body).map_err(|_| ParseJsonInputError::NotUtf8)?;
        // jaq's reader takes more than JSON and has no limits. serde_json is strict, and skips
        // values without recursion; after it, brackets and digits can simply be counted.
        let syntax = |error: &dyn fmt::Display| ParseJsonInputError::Syntax(error.to_string());
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| syntax(&error))?;
        let depth = measure(text.as_bytes())?;
        let val = read::parse_single(text.as_bytes()).map_err(|error| syntax(&error))?;
        Ok(Self { val, depth })
    }
}

impl JsonInput {
    /// The same with a `type` at the top, if it is an object that has none of its own.
    #[must_use]
    pub fn with_type(self, kind: &str) -> Self {
        let Val::Obj(object) = &self.val else { return self };
        let name = Val::from("type".to_owned());
        if object.contains_key(&name) {
            return self;
        }
        let mut object = (**object).clone();
        object.insert(name, Val::from(kind.to_owned()));
        Self { val: Val::Obj(object.into()), depth: self.depth }
    }
}

impl fmt::Debug for JsonInput {
    // A payload has no place in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonInput(depth {})", self.depth)
    }
}

/// How deep a valid JSON text is nested; refuses what is too deep or has too long a number.
fn measure(text: &[u8]) -> Result<u16, ParseJsonInputError> {
    let (mut depth, mut deepest, mut number_bytes) = (0, 0, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
                if depth > DEPTH_MAX {
                    return Err(ParseJsonInputError::TooDeep);
                }
            }
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        number_bytes = if byte.is_ascii_digit() { number_bytes + 1 } else { 0 };
        if number_bytes > NUMBER_BYTES_MAX {
            return Err(ParseJsonInputError::LongNumber);
        }
    }
    Ok(deepest)
}

/// Goes to the closing quote of a string that is known to have one.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}
