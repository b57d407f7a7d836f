//! Key rules that a preset has of its own, for senders that put their keys where they like.

use crate::{
    key::{KeyRule, KeyRules},
    provider::EventKey,
    request::IncomingRequest,
};

/// Places for a key, in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Rules {
    written: &'static [&'static str],
    rules: KeyRules,
}

impl Rules {
    /// The rules, each as a source would write it.
    ///
    /// # Panics
    /// If one is no rule: they are written in the code, and a test reads them all.
    pub(super) fn new(written: &'static [&'static str]) -> Self {
        let rules = written.iter().map(|rule| rule.parse::<KeyRule>().expect("a key rule"));
        Self { written, rules: KeyRules::from_rules(rules.collect()) }
    }

    /// What is found, as it is. About a header that came twice the usual rules have the last word.
    pub(super) fn key(&self, request: &IncomingRequest<'_>) -> EventKey {
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
    fn the_rule_that_found_the_key_is_told() {
        let rules = Rules::new(&["header:x-id", "pointer:/a"]);
        let from = |pairs: &[(&str, &str)], body| match rules.key(&incoming(&headers(pairs), body))
        {
            EventKey::Known(key, from) => Some((key.as_str().to_owned(), from)),
            EventKey::Rules | EventKey::ContentHash(_) | EventKey::None => None,
        };
        assert_eq!(from(&[("x-id", "1")], "{}"), Some(("1".to_owned(), "header:x-id")));
        assert_eq!(from(&[], r#"{"a":2}"#), Some(("2".to_owned(), "pointer:/a")));
        assert_eq!(from(&[], "{}"), None);
    }
}
