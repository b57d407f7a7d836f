//! The rules of a source: where in a request its key is looked for, and in which order.

use std::{borrow::Cow, cell::LazyCell, fmt, str::FromStr, sync::Arc};

use data_encoding::HEXUPPER;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{DedupKey, JsonPointer, ParseJsonPointerError, json_walk::JsonPointerSet};
use crate::{
    inflate,
    jq::{JqError, JqFilter, JqOutput, JsonInput},
};

/// What well-behaved senders use, the explicit before the incidental.
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

/// One place to look for a key. Written `header:NAME`, `pointer:/a/b` or `jq:EXPRESSION`.
#[derive(Clone, Debug)]
pub enum KeyRule {
    /// The value of a header.
    Header(HeaderName),
    /// The string or number at a place in the JSON body.
    JsonPointer(JsonPointer),
    /// The first output of a jq filter on the JSON body, if it is a string or number.
    JqFilter(Arc<JqFilter>),
}

/// A text that is no rule.
#[derive(Debug, thiserror::Error)]
pub enum ParseKeyRuleError {
    /// It starts with none of the known kinds.
    #[error("`{rule}` is not a key rule; write header:NAME, pointer:/path or jq:EXPRESSION")]
    UnknownKind {
        /// What was written.
        rule: String,
    },
    /// Not the name of a header.
    #[error("`{name}` is not a header name")]
    InvalidHeader {
        /// What was written.
        name: String,
    },
    /// Not a JSON pointer.
    #[error(transparent)]
    ParseJsonPointerError(#[from] ParseJsonPointerError),
    /// Not a filter.
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
            Some(("pointer", path)) => Ok(Self::JsonPointer(path.parse()?)),
            Some(("jq", filter)) => Ok(Self::JqFilter(Arc::new(JqFilter::compile(filter)?))),
            Some(_) | None => Err(ParseKeyRuleError::UnknownKind { rule: rule.to_owned() }),
        }
    }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::JsonPointer(pointer) => write!(f, "pointer:{pointer}"),
            Self::JqFilter(jq) => write!(f, "jq:{}", jq.text()),
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
}

/// Why no key can be told, and the sender must be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Two explicit keys: taking either could swallow an event.
    #[error("the request has more than one `{header}` header")]
    Repeated {
        /// The header.
        header: HeaderName,
    },
}

/// The rules of one source, ready to be used on every request.
#[derive(Debug)]
pub struct KeyRules {
    rules: Vec<KeyRule>,
    /// All the pointers among the rules, numbered in their order.
    pointers: JsonPointerSet,
    /// Nobody has written them: they are the usual ones.
    are_usual: bool,
    /// The rules as they are written, cut where they are long; each is kept with many events.
    labels: Vec<Arc<str>>,
}

/// Enough of a rule to recognize it.
const LABEL_CHARS_MAX: usize = 64;

impl KeyRules {
    /// Reads the rules as they are written; without any setting, the usual places are looked at.
    /// An empty list is a setting too: no request has a key.
    pub fn new(written: Option<&[String]>) -> Result<Self, ParseKeyRuleError> {
        let rules: Result<Vec<_>, _> = match written {
            Some(rules) => rules.iter().map(|rule| rule.parse()).collect(),
            None => DEFAULTS.iter().map(|rule| rule.parse()).collect(),
        };
        Ok(Self { are_usual: written.is_none(), ..Self::from_rules(rules?) })
    }

    /// Makes ready rules that were read before.
    pub fn from_rules(rules: Vec<KeyRule>) -> Self {
        let mut pointers = JsonPointerSet::default();
        for rule in &rules {
            if let KeyRule::JsonPointer(pointer) = rule {
                pointers.push(pointer);
            }
        }
        let label =
            |rule: &KeyRule| -> String { rule.to_string().chars().take(LABEL_CHARS_MAX).collect() };
        let labels = rules.iter().map(|rule| label(rule).into()).collect();
        Self { rules, pointers, are_usual: false, labels }
    }

    /// Whether nobody has written any: then a provider's own rule comes first.
    pub fn are_defaults(&self) -> bool {
        self.are_usual
    }

    /// A rule by its position, for people.
    pub fn label(&self, rule: usize) -> Option<Arc<str>> {
        self.labels.get(rule).cloned()
    }

    /// The rules, in the order in which they are tried.
    pub fn rules(&self) -> &[KeyRule] {
        &self.rules
    }

    /// Looks for the key of a request. The first rule with a hit wins.
    ///
    /// A filter that fails on this body is no hit, like a pointer that leads nowhere.
    pub fn extract(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<FoundKey>, KeyError> {
        // Each is worked out when the first rule asks for it: a header often settles the matter.
        let plain = LazyCell::new(|| inflate::decode_body(headers, body));
        let pointed = LazyCell::new(|| {
            plain.as_deref().map(|body| self.pointers.look_up(body)).unwrap_or_default()
        });
        let json = LazyCell::new(|| JsonInput::parse(plain.as_deref()?).ok());
        let mut pointer_number = 0;
        for (rule, place) in self.rules.iter().enumerate() {
            let key = match place {
                KeyRule::Header(name) => header_key(headers, name)?,
                KeyRule::JsonPointer(_) => {
                    let hit = pointed.get(pointer_number).and_then(Option::as_deref);
                    pointer_number += 1;
                    hit.and_then(DedupKey::new)
                }
                KeyRule::JqFilter(jq) => json.as_ref().and_then(|json| jq_key(jq, json)),
            };
            if let Some(key) = key {
                return Ok(Some(FoundKey { key, rule }));
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
        return Ok(DedupKey::new(&unquoted(&text(first))));
    }
    // Two values that differ say nothing. Two that agree were doubled by a proxy.
    if values.any(|value| value != first) {
        return Ok(None);
    }
    Ok(DedupKey::new(&text(first)))
}

/// The value of a header as text, without the white space around it, which is not part of it.
///
/// A value that is not UTF-8 becomes `bytes:` and its bytes, all but plain ASCII written as `%XX`:
/// two different values must never become the same key, as they would with replacement characters.
fn text(value: &HeaderValue) -> Cow<'_, str> {
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

/// The content of a quoted string (RFC 9651 section 3.3.3), which is how the `Idempotency-Key` draft
/// wants it; anything else is taken as it is, which is how it is mostly sent.
fn unquoted(value: &str) -> Cow<'_, str> {
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
    match jq.first(json).ok()?? {
        JqOutput::Text(text) | JqOutput::Number(text) => DedupKey::new(&text),
        JqOutput::Null | JqOutput::Bool(_) | JqOutput::Json(_) => None,
    }
}
