//! The input of jq filters: a body parsed once and shared by all filters of an event.

use std::fmt;

use jaq_json::{Val, read};
use serde::de::IgnoredAny;

/// The default limit of `serde_json`, far deeper than any payload.
const DEPTH_MAX: u16 = 128;

/// Parsing a number takes time quadratic in its length; no real payload comes near this limit.
const NUMBER_BYTES_MAX: usize = 1000;

/// A parsed JSON document for any number of filters. Cheap to clone.
#[derive(Clone)]
pub struct JsonInput {
    pub(super) val: Val,
    pub(super) depth: u16,
}

/// Why a body cannot be the input of a filter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseJsonInputError {
    /// RFC 8259 requires UTF-8.
    #[error("the body is not UTF-8")]
    NotUtf8,
    #[error("the body is not JSON: {0}")]
    Syntax(String),
    #[error("the body is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("the body has a number of more than {NUMBER_BYTES_MAX} digits")]
    LongNumber,
}

impl JsonInput {
    /// Parses a body. A byte order mark is skipped; of repeated names the last one counts;
    /// integers of any size stay exact.
    pub fn parse(body: &[u8]) -> Result<Self, ParseJsonInputError> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let text = std::str::from_utf8(body).map_err(|_| ParseJsonInputError::NotUtf8)?;
        // jaq's reader accepts more than JSON and has no limits. serde_json is strict and skips
        // values without recursion; after it, brackets and digits can simply be counted.
        let syntax = |error: &dyn fmt::Display| ParseJsonInputError::Syntax(error.to_string());
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| syntax(&error))?;
        let depth = measure_depth(text.as_bytes())?;
        let val = read::parse_single(text.as_bytes()).map_err(|error| syntax(&error))?;
        Ok(Self { val, depth })
    }

    /// Adds a top-level `type` if the document is an object without one.
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
    // Payloads must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonInput(depth {})", self.depth)
    }
}

/// The nesting depth of a valid JSON text; refuses deep nesting and long numbers.
fn measure_depth(text: &[u8]) -> Result<u16, ParseJsonInputError> {
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

/// Advances past the closing quote, which is known to exist.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}
