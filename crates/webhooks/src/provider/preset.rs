//! Presets that are fully described by data: an HMAC signature and fields of the body.

use std::sync::LazyLock;

use surehook_types::{secret::Secret, time::HumanDuration};

use super::{BodyFields, EventKey, EventPart, FieldValues, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::{DedupKey, KeyRule, KeyRules},
    request::IncomingRequest,
    verify::{HmacSpec, Verifier, VerifySpecError},
};

/// A provider that sends one event per request and signs it with an HMAC.
#[derive(Debug)]
pub(super) struct HmacPreset {
    pub(super) name: &'static str,
    pub(super) signature: fn() -> HmacSpec,
    pub(super) signature_headers: &'static [&'static str],
    pub(super) dedup_window: HumanDuration,
    pub(super) fields: &'static LazyLock<BodyFields>,
    /// The fields with the event kind; the first one present counts.
    pub(super) kind: &'static [usize],
    pub(super) key: PresetKey,
    /// The fields with the ordering key; the first one present counts.
    pub(super) order: &'static [usize],
    pub(super) attributes: &'static [(AttributeName, usize)],
    pub(super) samples: &'static [SampleEvent],
}

/// Where the key of an event comes from.
#[derive(Debug)]
pub(super) enum PresetKey {
    /// The prefix and these fields, joined by colons; `label` describes it to people.
    Fields { prefix: &'static str, fields: &'static [usize], label: &'static str },
    /// The first key rule that matches, without a prefix.
    Rules(&'static LazyLock<PresetKeyRules>),
}

impl PresetKey {
    fn extract(&self, request: &IncomingRequest<'_>, found: &FieldValues<'_>) -> EventKey {
        match self {
            Self::Fields { prefix, fields, label } => {
                EventKey::known(found.key(prefix, fields), label)
            }
            Self::Rules(rules) => rules.extract(request),
        }
    }
}

impl Provider for HmacPreset {
    fn name(&self) -> &'static str {
        self.name
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Verifier::hmac((self.signature)(), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = self.fields.read(request.body);
        ParsedRequest::single(EventPart {
            kind: found.first(self.kind).and_then(EventKind::new),
            key: self.key.extract(request, &found),
            order: found.first(self.order).and_then(DedupKey::new),
            attributes: found.attributes(self.attributes),
            ..EventPart::default()
        })
    }

    fn dedup_window(&self) -> HumanDuration {
        self.dedup_window
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        self.signature_headers
    }

    fn samples(&self) -> &'static [SampleEvent] {
        self.samples
    }
}

/// Key rules in the order in which they are tried.
#[derive(Debug)]
pub(super) struct PresetKeyRules {
    written: &'static [&'static str],
    rules: KeyRules,
}

impl PresetKeyRules {
    /// # Panics
    /// If one is not a key rule: they are constants, and tests parse them all.
    pub(super) fn new(written: &'static [&'static str]) -> Self {
        let rules = written.iter().map(|rule| rule.parse::<KeyRule>().expect("a key rule"));
        Self { written, rules: KeyRules::from_rules(rules.collect()) }
    }

    /// The key without a prefix. A repeated header is left to the rules of the source, which refuse it.
    pub(super) fn extract(&self, request: &IncomingRequest<'_>) -> EventKey {
        match self.rules.extract(request.headers, request.body) {
            Ok(Some(found)) => {
                let from = self.written.get(found.rule).copied().unwrap_or_default();
                EventKey::Known(found.key, from)
            }
            Ok(None) => EventKey::None,
            Err(_) => EventKey::Rules,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{headers, incoming},
        *,
    };

    #[test]
    fn matching_rule_is_reported_with_the_key() {
        let rules = PresetKeyRules::new(&["header:x-id", "pointer:/a"]);
        let from =
            |pairs: &[(&str, &str)], body| match rules.extract(&incoming(&headers(pairs), body)) {
                EventKey::Known(key, from) => Some((key.as_str().to_owned(), from)),
                EventKey::Rules | EventKey::ContentHash(_) | EventKey::None => None,
            };
        assert_eq!(from(&[("x-id", "1")], "{}"), Some(("1".to_owned(), "header:x-id")));
        assert_eq!(from(&[], r#"{"a":2}"#), Some(("2".to_owned(), "pointer:/a")));
        assert_eq!(from(&[], "{}"), None);
    }
}
