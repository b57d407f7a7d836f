//! The key of one event: the provider's own, or the one that the key rules find.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use http::HeaderMap;

use super::{
    DedupKey, KeyError, KeyNamespace, KeyOrigin, KeyRule, KeyRules, ParseKeyRuleError,
    content_hash_key,
};
use crate::{
    provider::{EventKey, Provider},
    verify::Verifier,
};

/// The label of a key that is a hash of the body.
static CONTENT_HASH: LazyLock<Arc<str>> = LazyLock::new(|| "content_hash".into());

/// The key of an event, where it comes from, and how far it can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKeyMatch {
    /// The key.
    pub key: DedupKey,
    /// Keeps header values and body values apart.
    pub namespace: KeyNamespace,
    /// Whether the value is meant as a key.
    pub origin: KeyOrigin,
    /// Whether the key is as trustworthy as the rest of a verified request.
    pub is_signed: bool,
    /// The label of the rule that found it.
    pub found_by: Option<Arc<str>>,
    /// For the hash of a body: how long equal bytes are the same event.
    pub window: Option<Duration>,
}

impl EventKeyMatch {
    fn explicit(key: DedupKey, from: &str, is_signed: bool) -> Self {
        Self {
            key,
            namespace: KeyNamespace::Body,
            origin: KeyOrigin::Explicit,
            is_signed,
            found_by: Some(from.into()),
            window: None,
        }
    }

    /// The hash of a body as its key within `window`.
    pub fn content_hash(body: &[u8], window: Duration) -> Self {
        Self {
            key: content_hash_key(body),
            namespace: KeyNamespace::Body,
            origin: KeyOrigin::Explicit,
            is_signed: true,
            found_by: Some(Arc::clone(&CONTENT_HASH)),
            window: Some(window),
        }
    }
}

impl KeyRules {
    /// The rules for requests of a provider: the `configured` ones, otherwise the provider's, otherwise
    /// the defaults. Of these, rules for headers that the signature does not cover are left out.
    pub fn for_provider(
        configured: Option<&[String]>,
        provider: &Provider,
        verifier: &Verifier,
    ) -> Result<Self, ParseKeyRuleError> {
        let rules = match (configured, provider.key_rules) {
            (None, preset @ [_, ..]) => Self::of_preset(preset)?,
            (configured, _) => Self::new(configured)?,
        };
        Ok(match provider.has_unsigned_id {
            true => rules,
            false => rules.for_signed_requests(|header| verifier.vouches_for_header(header)),
        })
    }

    /// Whether a rule reads a header that the signature does not cover.
    pub fn has_unsigned_header_rule(&self, verifier: &Verifier) -> bool {
        self.headers().any(|header| !verifier.vouches_for_header(header))
    }

    /// The key of an event with these headers and this decompressed body. `key` is what the provider says
    /// about it.
    pub fn find_event_key(
        &self,
        verifier: &Verifier,
        headers: &HeaderMap,
        body: &[u8],
        key: &EventKey,
    ) -> Result<Option<EventKeyMatch>, KeyError> {
        Ok(match key {
            EventKey::Known(key, from) => Some(EventKeyMatch::explicit(key.clone(), from, true)),
            EventKey::Unsigned(Some(key), from) => {
                let is_signed = !verifier.signs_content();
                Some(EventKeyMatch::explicit(key.clone(), from, is_signed))
            }
            EventKey::ContentHash(window) => Some(EventKeyMatch::content_hash(body, *window)),
            EventKey::None | EventKey::Unsigned(None, _) => None,
            EventKey::Rules => self.extract(headers, body)?.map(|found| EventKeyMatch {
                is_signed: self.is_signed_rule(found.rule, verifier),
                found_by: self.label(found.rule),
                key: found.key,
                namespace: found.namespace,
                origin: found.origin,
                window: None,
            }),
        })
    }

    /// Whether the value that a rule found is as trustworthy as the rest of the request.
    fn is_signed_rule(&self, rule: usize, verifier: &Verifier) -> bool {
        match self.rules().get(rule) {
            Some(KeyRule::Header(name)) => verifier.vouches_for_header(name),
            // Another body can be made for a signed checksum.
            Some(KeyRule::Pointer(_) | KeyRule::Jq(_)) | None => !verifier.signs_checksum(),
        }
    }
}

impl EventKey {
    /// Whether the same signed bytes could be sent under another key, or without one.
    pub fn may_be_unsigned(&self, rules_read_unsigned: bool, verifier: &Verifier) -> bool {
        match self {
            Self::Rules => rules_read_unsigned,
            Self::Unsigned(..) => verifier.signs_content(),
            // The provider may retry under another id.
            Self::Known(..) => verifier.signs_checksum(),
            Self::ContentHash(_) | Self::None => false,
        }
    }
}
