//! The key rules of a source: where in a request its key is searched, and in which order.

use std::{borrow::Cow, cell::LazyCell, fmt, str::FromStr, sync::Arc};

use data_encoding::HEXUPPER;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use surehook_types::inflate;

use super::{
    DedupKey, JsonPointer, KeyNamespace, KeyOrigin, ParseJsonPointerError,
    json_walk::JsonPointerSet,
};
use crate::jq::{JqError, JqFilter, JqOutput, JsonInput};

/// Where most senders put a key, explicit keys before incidental ones.
const DEFAULTS: [&str; 9] = [
    "header:idempotency-key",
    "header:webhook-id",
    "header:x-event-id",
    "pointer:/id",
    "pointer:/event_id",
    "pointer:/idempotency_key",
    "pointer:/messageId",
    "pointer:/data/idempotency_key",
    "pointer:/data/messageId",
];

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where to look for a key. Written `header:NAME`, `pointer:/a/b` or `jq:EXPRESSION`.
#[derive(Clone, Debug)]
pub enum KeyRule {
    /// The value of a header.
    Header(HeaderName),
    /// The string or number at a JSON pointer in the body.
    Pointer(JsonPointer),
    /// The first output of a jq filter on the JSON body, if it is a string or number.
    Jq(Arc<JqFilter>),
}

/// Why a text is not a key rule.
#[derive(Debug, thiserror::Error)]
pub enum ParseKeyRuleError {
    /// The text does not start like a rule.
    #[error("`{rule}` is not a key rule; write header:NAME, pointer:/path or jq:EXPRESSION")]
    UnknownKind {
        /// The text.
        rule: String,
    },
    /// The text is not a header name.
    #[error("`{name}` is not a header name")]
    InvalidHeader {
        /// The text.
        name: String,
    },
    /// The text is not a JSON pointer.
    #[error(transparent)]
    InvalidPointer(#[from] ParseJsonPointerError),
    /// The text is not a jq filter.
    #[error(transparent)]
    InvalidJq(#[from] JqError),
}

impl FromStr for KeyRule {
    type Err = ParseKeyRuleError;

    fn from_str(rule: &str) -> Result<Self, Self::Err> {
        match rule.split_once(':') {
            Some(("header", name)) => {
                let invalid = |_| ParseKeyRuleError::InvalidHeader { name: name.to_owned() };
                Ok(Self::Header(name.parse().map_err(invalid)?))
            }
            Some(("pointer", path)) => Ok(Self::Pointer(path.parse()?)),
            Some(("jq", filter)) => Ok(Self::Jq(Arc::new(JqFilter::compile(filter)?))),
            Some(_) | None => Err(ParseKeyRuleError::UnknownKind { rule: rule.to_owned() }),
        }
    }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Pointer(pointer) => write!(f, "pointer:{pointer}"),
            Self::Jq(jq) => write!(f, "jq:{}", jq.text()),
        }
    }
}

impl Serialize for KeyRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A key and the rule that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundKey {
    /// The key.
    pub key: DedupKey,
    /// The position of the rule; [`KeyRules::rules`] has its text.
    pub rule: usize,
    /// Whether a header or the body contains it.
    pub namespace: KeyNamespace,
    /// Whether the value is meant as a key.
    pub origin: KeyOrigin,
}

/// Why a request with ambiguous keys is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Two explicit keys: using either could discard an event as a duplicate.
    #[error("the request has more than one `{header}` header")]
    Repeated {
        /// The header.
        header: HeaderName,
    },
}

/// The parsed key rules of a source.
#[derive(Debug)]
pub struct KeyRules {
    rules: Vec<KeyRule>,
    /// The pointers among the rules, in order.
    pointers: JsonPointerSet,
    /// No rules are configured.
    are_defaults: bool,
    /// Values of the body are guesses: no setting says that they are keys.
    are_guesses: bool,
    /// The text of each rule, truncated; shared by the events that it matched.
    labels: Vec<Arc<str>>,
    /// Headers of default rules that do not count because the signature does not cover them.
    ignored_headers: Vec<HeaderName>,
}

/// Enough of a rule to recognize it.
const LABEL_CHARS_MAX: usize = 64;

impl KeyRules {
    /// Parses the configured rules; `None` gives the defaults. An empty list means that no request
    /// has a key.
    pub fn new(written: Option<&[String]>) -> Result<Self, ParseKeyRuleError> {
        let rules: Result<Vec<_>, _> = match written {
            Some(rules) => rules.iter().map(|rule| rule.parse()).collect(),
            None => DEFAULTS.iter().map(|rule| rule.parse()).collect(),
        };
        let are_defaults = written.is_none();
        Ok(Self { are_defaults, are_guesses: are_defaults, ..Self::from_rules(rules?) })
    }

    /// The rules of a preset, used if none are configured.
    pub fn of_preset(rules: &[&str]) -> Result<Self, ParseKeyRuleError> {
        let rules: Result<Vec<_>, _> = rules.iter().map(|rule| rule.parse()).collect();
        Ok(Self { are_defaults: true, ..Self::from_rules(rules?) })
    }

    /// Rules that are parsed already.
    pub fn from_rules(rules: Vec<KeyRule>) -> Self {
        let mut pointers = JsonPointerSet::default();
        for rule in &rules {
            if let KeyRule::Pointer(pointer) = rule {
                pointers.push(pointer);
            }
        }
        let label =
            |rule: &KeyRule| -> String { rule.to_string().chars().take(LABEL_CHARS_MAX).collect() };
        let labels = rules.iter().map(|rule| label(rule).into()).collect();
        Self {
            rules,
            pointers,
            are_defaults: false,
            are_guesses: false,
            labels,
            ignored_headers: Vec::new(),
        }
    }

    /// The rules for requests whose signature covers only some headers. Default rules for other headers
    /// are left out: a captured request could be sent again under any key. Rules that the
    /// operator wrote stay.
    #[must_use]
    pub fn for_signed_requests(self, is_signed: impl Fn(&HeaderName) -> bool) -> Self {
        if !self.are_defaults {
            return self;
        }
        let (rules, ignored): (Vec<_>, Vec<_>) =
            self.rules.iter().cloned().partition(|rule| match rule {
                KeyRule::Header(name) => is_signed(name),
                KeyRule::Pointer(_) | KeyRule::Jq(_) => true,
            });
        let header = |rule| if let KeyRule::Header(name) = rule { Some(name) } else { None };
        let ignored_headers = ignored.into_iter().filter_map(header).collect();
        let Self { are_defaults, are_guesses, .. } = self;
        Self { are_defaults, are_guesses, ignored_headers, ..Self::from_rules(rules) }
    }

    /// The key that versions before [`Self::for_signed_requests`] took from an ignored header.
    pub fn ignored_key(&self, headers: &HeaderMap) -> Option<DedupKey> {
        self.ignored_headers.iter().find_map(|name| header_key(headers, name).ok().flatten())
    }

    /// The headers that the rules read.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.rules.iter().filter_map(|rule| match rule {
            KeyRule::Header(name) => Some(name),
            KeyRule::Pointer(_) | KeyRule::Jq(_) => None,
        })
    }

    /// Whether no rules are configured: then the provider's own rule comes first.
    pub fn are_defaults(&self) -> bool {
        self.are_defaults
    }

    /// The text of a rule for people, by its position.
    pub fn label(&self, rule: usize) -> Option<Arc<str>> {
        self.labels.get(rule).cloned()
    }

    /// The rules, in the order in which they are tried.
    pub fn rules(&self) -> &[KeyRule] {
        &self.rules
    }

    /// Finds the key of a request. The first matching rule wins. A filter that fails on this body
    /// does not match.
    pub fn extract(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<FoundKey>, KeyError> {
        // Computed lazily: often a header matches and the body is never read.
        let decoded = LazyCell::new(|| inflate::decode_body(headers, body));
        let pointer_values = LazyCell::new(|| {
            decoded.as_deref().map(|body| self.pointers.find_scalars(body)).unwrap_or_default()
        });
        let json = LazyCell::new(|| JsonInput::parse(decoded.as_deref()?).ok());
        let mut pointer_number = 0;
        for (position, rule) in self.rules.iter().enumerate() {
            let key = match rule {
                KeyRule::Header(name) => header_key(headers, name)?,
                KeyRule::Pointer(_) => {
                    let hit = pointer_values.get(pointer_number).and_then(Option::as_deref);
                    pointer_number += 1;
                    hit.and_then(DedupKey::new)
                }
                KeyRule::Jq(jq) => json.as_ref().and_then(|json| jq_key(jq, json)),
            };
            if let Some(key) = key {
                let (namespace, is_guess) = match rule {
                    KeyRule::Header(_) => (KeyNamespace::Header, false),
                    KeyRule::Pointer(_) | KeyRule::Jq(_) => (KeyNamespace::Body, self.are_guesses),
                };
                let origin = if is_guess { KeyOrigin::Guessed } else { KeyOrigin::Explicit };
                return Ok(Some(FoundKey { key, rule: position, namespace, origin }));
            }
        }
        Ok(None)
    }
}

fn header_key(headers: &HeaderMap, name: &HeaderName) -> Result<Option<DedupKey>, KeyError> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if *name == IDEMPOTENCY_KEY {
        if values.next().is_some() {
            return Err(KeyError::Repeated { header: name.clone() });
        }
        return Ok(DedupKey::new(&unquote(&header_text(first))));
    }
    // Equal values were probably doubled by a proxy. Different values are ambiguous.
    if values.any(|value| value != first) {
        return Ok(None);
    }
    Ok(DedupKey::new(&header_text(first)))
}

/// The value of a header as text, without surrounding white space.
///
/// A value that is not UTF-8 becomes `bytes:` and its bytes with everything but printable ASCII as
/// `%XX`: replacement characters could make two different values the same key.
fn header_text(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes().trim_ascii();
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut escaped = "bytes:".to_owned();
    for byte in bytes {
        match byte {
            b' '..=b'~' if *byte != b'%' => escaped.push(char::from(*byte)),
            _ => escaped.extend(["%", &HEXUPPER.encode(&[*byte])]),
        }
    }
    Cow::Owned(escaped)
}

/// The content of a quoted string (RFC 9651 section 3.3.3), as the `Idempotency-Key` draft requires;
/// anything else is used unchanged, because most senders do not quote.
fn unquote(value: &str) -> Cow<'_, str> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else { return Cow::Borrowed(value) };
    let mut content = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => content.push(escaped),
                Some(_) | None => return Cow::Borrowed(value),
            },
            ' '..='~' if c != '"' => content.push(c),
            _ => return Cow::Borrowed(value),
        }
    }
    Cow::Owned(content)
}

fn jq_key(jq: &JqFilter, json: &JsonInput) -> Option<DedupKey> {
    match jq.first_output(json).ok()?? {
        JqOutput::Text(text) | JqOutput::Number(text) => DedupKey::new(&text),
        JqOutput::Null | JqOutput::Bool(_) | JqOutput::Json(_) => None,
    }
}
