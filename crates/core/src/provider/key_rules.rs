//! Key rules of a preset, for senders that put keys in different fields.

use crate::{
    key::{KeyRule, KeyRules},
    provider::EventKey,
    request::IncomingRequest,
};

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
