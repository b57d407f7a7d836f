//! The input of jq filters: a body parsed once and shared by all filters of an event.

use std::{cell::OnceCell, fmt, sync::Arc};

use http::{HeaderMap, HeaderName};
use jaq_json::{Map, Val, read};
use serde::de::IgnoredAny;
use url::form_urlencoded;

use crate::provider::is_form;

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
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    Syntax(String),
    /// The body is nested too deeply.
    #[error("the body is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// A number has too many digits.
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

    /// Parses the body of a request: JSON, or a form if the headers say so. Of a form, each field is a
    /// string, or an array if it is repeated; the field `payload` is its JSON, if it has some.
    pub fn parse_request(headers: &HeaderMap, body: &[u8]) -> Result<Self, ParseJsonInputError> {
        match Self::parse(body) {
            // Many senders declare JSON to be a form.
            Err(ParseJsonInputError::Syntax(_) | ParseJsonInputError::NotUtf8)
                if is_form(headers) =>
            {
                Ok(Self::parse_form(body))
            }
            parsed => parsed,
        }
    }

    fn parse_form(body: &[u8]) -> Self {
        let mut fields = Map::default();
        for (name, value) in form_urlencoded::parse(body) {
            let (name, value) = (Val::from(name.into_owned()), Val::from(value.into_owned()));
            match fields.get_mut(&name) {
                None => drop(fields.insert(name, value)),
                Some(Val::Arr(values)) => Arc::make_mut(values).push(value),
                Some(first) => *first = [std::mem::take(first), value].into_iter().collect(),
            }
        }
        let mut depth = 2;
        if let Some(Val::TStr(text)) = fields.get(&Val::from("payload".to_owned()))
            && let Ok(payload) = Self::parse(text)
            && matches!(payload.val, Val::Obj(_) | Val::Arr(_))
        {
            depth += payload.depth;
            fields.insert(Val::from("payload".to_owned()), payload.val);
        }
        Self { val: Val::obj(fields), depth }
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

/// The names of [`EventVariables`], in the order of their values.
pub(super) const VARIABLES: [&str; 3] = ["$kind", "$source", "$headers"];

/// Whether a filter may see the header of this name.
type HeaderPredicate<'e> = &'e dyn Fn(&HeaderName) -> bool;

/// The variables that the filter and the transform of a route see beside the body of an event.
///
/// `$kind` is a string or `null`, `$source` the name of the source, `$headers` an object: names in
/// lower case, a repeated header joined by commas.
#[derive(Default)]
pub struct EventVariables<'e> {
    kind: Option<&'e str>,
    source: Option<&'e str>,
    headers: Option<(&'e HeaderMap, HeaderPredicate<'e>)>,
    header_object: OnceCell<Val>,
}

impl<'e> EventVariables<'e> {
    /// `is_visible` tells which headers a filter may see.
    pub fn new(
        kind: Option<&'e str>,
        source: Option<&'e str>,
        headers: &'e HeaderMap,
        is_visible: HeaderPredicate<'e>,
    ) -> Self {
        let headers = Some((headers, is_visible));
        Self { kind, source, headers, header_object: OnceCell::new() }
    }

    pub(super) fn values(&self) -> [JsonInput; 3] {
        let text = |text: Option<&str>| text.map_or(Val::Null, |text| Val::from(text.to_owned()));
        let headers = self.header_object.get_or_init(|| self.build_header_object()).clone();
        [
            JsonInput { val: text(self.kind), depth: 0 },
            JsonInput { val: text(self.source), depth: 0 },
            JsonInput { val: headers, depth: 1 },
        ]
    }

    fn build_header_object(&self) -> Val {
        let mut object = Map::default();
        let Some((headers, is_visible)) = self.headers else { return Val::obj(object) };
        for name in headers.keys().filter(|name| is_visible(name)) {
            let values = headers.get_all(name).iter();
            let values: Vec<_> =
                values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            object.insert(Val::from(name.as_str().to_owned()), Val::from(values.join(", ")));
        }
        Val::obj(object)
    }
}

impl fmt::Debug for EventVariables<'_> {
    // Headers must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventVariables")
            .field("kind", &self.kind)
            .field("source", &self.source)
            .finish_non_exhaustive()
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
