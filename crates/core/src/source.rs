//! Sources: where events come from, how requests are verified and deduplicated.
//!
//! [`SourceSpec`] is the setting, as written in TOML, sent to the API and stored. [`Source`] is resolved:
//! secrets looked up, rules compiled. The receive path uses only [`Source`].

use std::{borrow::Cow, time::Duration};

use http::HeaderName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use surehook_types::{
    ids::SourceId,
    name::Name,
    object,
    redact::{SecretNames, SecretNamesSpecError},
    secret::{Env, SHARED_SECRET_BYTES_MIN, Secret, SecretError, SecretRef},
    string_enum,
    time::HumanDuration,
};
use surehook_webhooks::{
    attribute::EventKind,
    key::{KeyOrigin, KeyRules, ParseKeyRuleError, json_fingerprint},
    provider::{
        self, BODY_BYTES_CEILING, DEFAULT_DEDUP_WINDOW, EventKey, ParsedRequest, Provider,
        RefusalPolicy, preset_names,
    },
    request::IncomingRequest,
    verify::{UNVERIFIED, VerifiedRequest, Verifier, VerifySpec, VerifySpecError},
};
use url::Url;

use crate::{
    event::ConflictPolicy,
    outbox::{OUTBOX, OUTBOX_PROVIDER},
    retention::{RetentionSpec, RetentionSpecError},
    sync::SyncSpec,
};

string_enum! {
    /// How bodies under one dedup key are compared.
    pub enum BodyComparison {
        Bytes = "bytes",
        /// As JSON: order of members, white space and escapes do not matter. Other bodies by their bytes.
        Json = "json",
    }
}

/// Counts by minute are kept for a little longer.
const SILENT_AFTER: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(7 * 86_400);

/// A longer window would only grow the key table.
const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(400 * 86_400);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting that people write")]
pub struct SourceSpec {
    /// Name of the source; its URL is `/in/{name}`.
    pub name: Name,
    /// Provider preset.
    #[serde(default = "generic")]
    #[schemars(with = "ProviderName")]
    pub provider: String,
    /// Signature verification, if it differs from the provider's. Required for a generic source;
    /// `"none"` accepts every request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// Secrets for verification, newest first; several during rotation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRef>,
    /// Accepts secrets of fewer than 16 bytes, which can be guessed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_short_secrets: bool,
    /// Token of the provider's verification handshake (`hub.verify_token` of Meta).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_token: Option<SecretRef>,
    /// The URL before `/in/` that the provider calls, for signatures over the URL; the server's
    /// `public_url` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<PublicUrl>,
    /// Where to find the dedup key, in this order; by default the provider's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Where to find the event type, in this order; by default the provider's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// How a request with a known dedup key but another body is treated. When left out, it is accepted
    /// if the key is guessed or the signature does not cover it, and a duplicate otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<ConflictPolicy>,
    /// How bodies under one dedup key are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare_bodies: Option<BodyComparison>,
    /// Whether the same signed bytes under another dedup key are a duplicate, if the key is in a header
    /// that the signature does not cover; the provider's default when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_guard: Option<bool>,
    /// How long a dedup key is remembered; longer than the provider retries when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_window: Option<HumanDuration>,
    /// Uses a hash of the body as the key of requests without one, for this (short) time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash_window: Option<HumanDuration>,
    /// Whether a duplicate of an event whose deliveries are all dead redelivers it.
    #[serde(default = "yes")]
    pub revive_dead: bool,
    /// In bytes; by default the server's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = BODY_BYTES_CEILING))]
    pub max_body_bytes: Option<usize>,
    /// Synchronous delivery: the sender waits for the answer of one destination.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub sync: Option<SyncSpec>,
    /// What happens to a request that fails verification; the provider's default when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_refusal: Option<RefusalPolicy>,
    /// Whether the bodies of sampled refused requests are stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_refused_bodies: bool,
    /// Additional names of fields whose values are masked wherever a body is shown, at any depth; case,
    /// `-` and `_` are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
    /// Whether secret fields are also masked in what destinations get. Bodies that cannot be searched
    /// reliably are then not sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strip_secrets: bool,
    #[serde(
        default,
        skip_serializing_if = "RetentionSpec::is_empty",
        deserialize_with = "object::required"
    )]
    pub retention: RetentionSpec,
    /// Raises an alert if the source gets no event for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_after: Option<HumanDuration>,
    /// Accepts requests.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// The schema of a provider's name: all presets, and the built-in outbox.
pub(crate) struct ProviderName;

impl JsonSchema for ProviderName {
    fn schema_name() -> Cow<'static, str> {
        "ProviderName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = preset_names().into_iter().chain([OUTBOX]).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

fn generic() -> String {
    "generic".to_owned()
}

fn yes() -> bool {
    true
}

/// An invalid source.
#[derive(Debug, thiserror::Error)]
pub enum SourceSpecError {
    #[error("unknown provider `{0}`; available: {known}", known = preset_names().join(", "))]
    UnknownProvider(String),
    #[error(
        "`secrets` is missing: {0} signs its webhooks and the secret is needed to verify them; or write verify = \"none\" to accept unsigned requests"
    )]
    SecretMissing(&'static str),
    #[error(
        "`verify` is missing: configure how requests are signed, for example verify = {{ hmac = {{ header = \"x-signature\" }} }}, or write verify = \"none\" to accept unsigned requests"
    )]
    VerifyMissing,
    #[error("verify: {0}")]
    Verify(#[from] VerifySpecError),
    #[error("secrets: {0}")]
    Secret(#[from] SecretError),
    #[error("{0}: {1}")]
    Keys(&'static str, #[source] ParseKeyRuleError),
    #[error("{0} must be between 1s and 400d")]
    Window(&'static str),
    #[error(
        "`public_url` is missing: the signature covers the URL that the sender calls, and headers such as `Host` are not trusted for it; set `public_url` for this source or for the server, for example https://hooks.example.com"
    )]
    PublicUrlMissing,
    #[error(
        "dedup_window ({window}) is shorter than the time for which a signature is valid ({max_age}): a captured request could be accepted twice; set dedup_window to {max_age} or more"
    )]
    WindowTooShort { window: HumanDuration, max_age: HumanDuration },
    #[error("max_body_bytes must be between 1 and {BODY_BYTES_CEILING}")]
    BodyLimit,
    #[error("silent_after must be between 1m and 7d")]
    SilentAfter,
    #[error("sync: deadline must be between 100ms and 2m")]
    Deadline,
    #[error("redact: {0}")]
    Redact(#[from] SecretNamesSpecError),
    #[error(
        "`outbox` is built in: only redact, strip_secrets, retention and enabled can be changed"
    )]
    Outbox,
    #[error("retention: {0}")]
    Retention(#[from] RetentionSpecError),
}

/// A resolved source.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of the source")]
pub struct Source {
    pub id: SourceId,
    pub name: Name,
    pub provider: &'static Provider,
    pub verifier: Verifier,
    /// Secrets for verification, the current one first.
    secrets: Vec<Secret>,
    /// Token of the provider's verification handshake.
    pub verify_token: Option<Secret>,
    /// The URL before `/in/` that the provider calls.
    pub public_url: Option<PublicUrl>,
    /// Whether it is older than the rules of [`Self::check_new`] and exempt from them until it is changed:
    /// then the `Host` header is trusted if the signature covers the URL and no URL is configured.
    pub is_lenient: bool,
    /// Used where the provider has no key rule or the source replaces it.
    pub keys: KeyRules,
    /// Whether `keys` reads headers that the signature does not cover.
    pub reads_unsigned_keys: bool,
    /// Rules for the event type that replace the provider's.
    kinds: Option<KeyRules>,
    pub dedup_window: Duration,
    pub content_hash_window: Option<Duration>,
    pub on_conflict: Option<ConflictPolicy>,
    compare_bodies: BodyComparison,
    pub replay_guard: bool,
    pub revive_dead: bool,
    /// `None` is the limit of the server.
    pub max_body_bytes: Option<usize>,
    /// Synchronous delivery: the sender waits for the answer of one destination.
    pub sync: Option<SyncSpec>,
    pub on_refusal: RefusalPolicy,
    pub keep_refused_bodies: bool,
    pub retention: RetentionSpec,
    pub enabled: bool,
}

impl SourceSpec {
    /// A source with default settings.
    pub(crate) fn named(name: Name) -> Self {
        Self {
            name,
            provider: generic(),
            verify: None,
            secrets: Vec::new(),
            allow_short_secrets: false,
            verify_token: None,
            public_url: None,
            keys: None,
            kinds: None,
            on_conflict: None,
            compare_bodies: None,
            replay_guard: None,
            dedup_window: None,
            content_hash_window: None,
            revive_dead: yes(),
            max_body_bytes: None,
            sync: None,
            on_refusal: None,
            keep_refused_bodies: false,
            redact: Vec::new(),
            strip_secrets: false,
            retention: RetentionSpec::default(),
            silent_after: None,
            enabled: yes(),
        }
    }

    /// The header that carries the secret itself.
    pub fn token_header(&self) -> Option<&str> {
        match &self.verify {
            Some(VerifySpec::Token { header }) => Some(header),
            Some(VerifySpec::None | VerifySpec::Hmac(_) | VerifySpec::Basic { .. }) | None => None,
        }
    }

    /// Headers with the signature, if `verify` names them.
    pub fn signature_headers(&self) -> &[String] {
        match &self.verify {
            Some(VerifySpec::Hmac(spec)) => spec.header.names(),
            Some(VerifySpec::None | VerifySpec::Token { .. } | VerifySpec::Basic { .. }) | None => {
                &[]
            }
        }
    }

    /// Headers that carry a secret itself, in lower case. They are never forwarded.
    pub fn secret_headers(&self) -> Vec<String> {
        let provider_header =
            provider::find(&self.provider).and_then(|provider| provider.secret_header);
        let all = self.token_header().into_iter().chain(provider_header);
        all.map(str::to_ascii_lowercase).collect()
    }

    /// Headers that carry credentials which the source is verified with, in lower case. They are stored
    /// masked.
    pub fn credential_headers(&self) -> Vec<String> {
        let mut headers = self.secret_headers();
        if matches!(self.verify, Some(VerifySpec::Basic { .. })) {
            headers.push(http::header::AUTHORIZATION.as_str().to_owned());
        }
        headers
    }

    /// Names of the secrets in its requests.
    pub fn secret_names(&self) -> SecretNames {
        let mut names = SecretNames::builtin();
        names.add_fields(&self.redact);
        if let Some(header) = self.token_header() {
            names.add_header(header);
        }
        names
    }

    /// Whether requests are verified.
    pub fn is_verified(&self) -> bool {
        self.verify != Some(VerifySpec::None)
    }

    /// Resolves the secrets through `env` and compiles the rules.
    pub fn build(&self, id: SourceId, env: Env<'_>) -> Result<Source, SourceSpecError> {
        let provider = match self.is_outbox() {
            true => {
                self.check_outbox()?;
                &OUTBOX_PROVIDER
            }
            false => provider::find(&self.provider)
                .ok_or_else(|| SourceSpecError::UnknownProvider(self.provider.clone()))?,
        };
        let secrets = self
            .secrets
            .iter()
            .map(|secret| secret.resolve(env))
            .collect::<Result<Vec<Secret>, _>>()?;
        let window = |field, duration: HumanDuration| {
            let is_valid = (Duration::from_secs(1)..=DEDUP_WINDOW_MAX).contains(&duration.0);
            if is_valid { Ok(duration.0) } else { Err(SourceSpecError::Window(field)) }
        };
        if self.max_body_bytes.is_some_and(|limit| !(1..=BODY_BYTES_CEILING).contains(&limit)) {
            return Err(SourceSpecError::BodyLimit);
        }
        if self.sync.as_ref().is_some_and(|sync| !sync.is_within_bounds()) {
            return Err(SourceSpecError::Deadline);
        }
        let is_valid = |span: HumanDuration| SILENT_AFTER.contains(&span.0);
        if !self.silent_after.is_none_or(is_valid) {
            return Err(SourceSpecError::SilentAfter);
        }
        SecretNames::check(&self.redact)?;
        let on_refusal = self.on_refusal.unwrap_or(provider.on_refusal);
        self.retention.check()?;
        let verifier = self.verifier(provider, secrets.clone())?;
        let keys = KeyRules::for_provider(self.keys.as_deref(), provider, &verifier)
            .map_err(|error| SourceSpecError::Keys("keys", error))?;
        let reads_unsigned_keys = keys.has_unsigned_header_rule(&verifier);
        Ok(Source {
            id,
            name: self.name.clone(),
            provider,
            verifier,
            secrets,
            verify_token: self.verify_token.as_ref().map(|token| token.resolve(env)).transpose()?,
            public_url: self.public_url.clone(),
            is_lenient: false,
            keys,
            reads_unsigned_keys,
            kinds: self.kinds.as_deref().map(|kinds| rules("kinds", Some(kinds))).transpose()?,
            dedup_window: window(
                "dedup_window",
                self.dedup_window.unwrap_or_else(|| default_window(provider, on_refusal)),
            )?,
            content_hash_window: self
                .content_hash_window
                .map(|duration| window("content_hash_window", duration))
                .transpose()?,
            on_conflict: self.on_conflict,
            compare_bodies: self.compare_bodies.unwrap_or(match provider.retry_members {
                [] => BodyComparison::Bytes,
                [..] => BodyComparison::Json,
            }),
            replay_guard: self.replay_guard.unwrap_or(provider.replay_guard),
            revive_dead: self.revive_dead,
            max_body_bytes: self.max_body_bytes.or(provider.max_body_bytes),
            sync: self.sync.clone(),
            on_refusal,
            keep_refused_bodies: self.keep_refused_bodies,
            retention: self.retention,
            enabled: self.enabled,
        })
    }

    /// Refuses secrets that can be guessed, except those that `stored`, the current settings, has.
    pub fn check_secret_lengths(
        &self,
        stored: Option<&Self>,
        env: Env<'_>,
    ) -> Result<(), SourceSpecError> {
        if self.allow_short_secrets {
            return Ok(());
        }
        let is_stored =
            |secret: &&SecretRef| stored.is_some_and(|stored| stored.secrets.contains(secret));
        let mut new = self.secrets.iter().filter(|secret| !is_stored(secret));
        Ok(new.try_for_each(|secret| secret.check_length(env, "allow_short_secrets"))?)
    }

    /// From `verify`, or the provider's.
    fn verifier(
        &self,
        provider: &'static Provider,
        secrets: Vec<Secret>,
    ) -> Result<Verifier, SourceSpecError> {
        match &self.verify {
            Some(verify) => Ok(Verifier::new(verify, secrets)?),
            None if self.is_outbox() => Ok(provider.verifier(secrets)?),
            None if self.provider == generic() => Err(SourceSpecError::VerifyMissing),
            None if secrets.is_empty() => Err(SourceSpecError::SecretMissing(provider.name)),
            None => Ok(provider.verifier(secrets)?),
        }
    }
}

/// The default window outlives the quarantine, so that a request that is released late is still a
/// duplicate of what its sender delivered meanwhile.
fn default_window(provider: &Provider, on_refusal: RefusalPolicy) -> HumanDuration {
    let window = provider.dedup_window;
    match on_refusal {
        RefusalPolicy::Quarantine => HumanDuration(window.0.max(DEFAULT_DEDUP_WINDOW.0)),
        RefusalPolicy::Unauthorized | RefusalPolicy::Keep => window,
    }
}

fn rules(field: &'static str, texts: Option<&[String]>) -> Result<KeyRules, SourceSpecError> {
    KeyRules::new(texts).map_err(|error| SourceSpecError::Keys(field, error))
}

impl Source {
    /// Parses a verified request by the provider's rules and those of the source.
    pub fn parse_request(
        &self,
        request: &IncomingRequest<'_>,
        verified: VerifiedRequest,
    ) -> ParsedRequest {
        let parsed = self.provider.parse_request(request, self.secrets.get(verified.secret_index));
        let ParsedRequest::Events(mut parts) = parsed else { return parsed };
        for part in &mut parts {
            if !self.keys.are_defaults() {
                part.key = EventKey::Rules;
            }
            if let Some(kinds) = &self.kinds {
                let body = part.body.as_deref().unwrap_or(request.body);
                let extracted = kinds.extract(request.headers, body).ok().flatten();
                part.kind = extracted.and_then(|extracted| EventKind::new(extracted.key.as_str()));
            }
        }
        ParsedRequest::Events(parts)
    }

    /// The policy for another body under a known key. A key that the signature does not cover may have been put
    /// on a captured request, so it must not make a duplicate of the event that it belongs to.
    pub fn conflict_policy(&self, origin: KeyOrigin, is_signed: bool) -> ConflictPolicy {
        self.on_conflict.unwrap_or(match origin {
            KeyOrigin::Explicit if is_signed => ConflictPolicy::Duplicate,
            KeyOrigin::Explicit | KeyOrigin::Guessed => ConflictPolicy::Accept,
        })
    }

    /// The fingerprint that is compared with other bodies under the key of an event, if it is not that of
    /// its bytes.
    pub fn compared_fingerprint(&self, body: &[u8]) -> Option<[u8; 32]> {
        match self.compare_bodies {
            BodyComparison::Bytes => None,
            BodyComparison::Json => json_fingerprint(body, self.provider.retry_members),
        }
    }

    /// Sets whether it is exempt from the rules of [`Self::check_new`]; see [`Self::is_lenient`].
    #[must_use]
    pub fn with_leniency(self, is_lenient: bool) -> Self {
        Self { is_lenient, ..self }
    }

    /// Checks what every new or changed source needs. `has_public_url` says whether the server has a
    /// `public_url`.
    pub fn check_new(&self, has_public_url: bool) -> Result<(), SourceSpecError> {
        if self.lacks_public_url(has_public_url) {
            return Err(SourceSpecError::PublicUrlMissing);
        }
        match self.verifier.max_age() {
            Some(max_age) if max_age > self.dedup_window => Err(SourceSpecError::WindowTooShort {
                window: HumanDuration(self.dedup_window),
                max_age: HumanDuration(max_age),
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn lacks_public_url(&self, has_public_url: bool) -> bool {
        self.verifier.covers_url() && self.public_url.is_none() && !has_public_url
    }

    /// Warnings for the operator about risky settings. `has_public_url` says whether the server has a
    /// `public_url`.
    pub fn warnings(&self, has_public_url: bool) -> Vec<String> {
        let mut warnings = self.verifier.warnings().to_vec();
        for (index, secret) in self.secrets.iter().enumerate() {
            let length = secret.expose().len();
            if length < SHARED_SECRET_BYTES_MIN {
                warnings.push(format!(
                    "secret {} has {length} bytes and can be guessed; use at least \
                     {SHARED_SECRET_BYTES_MIN}",
                    index + 1
                ));
            }
        }
        match self.check_new(has_public_url) {
            Err(SourceSpecError::PublicUrlMissing) if self.is_lenient => warnings.push(
                "the signature covers the called URL, and without `public_url` the `Host` header of the \
                 request is trusted for it; set `public_url`, which changed sources need"
                    .to_owned(),
            ),
            Err(error) => warnings.push(error.to_string()),
            Ok(()) => {}
        }
        warnings.extend(self.key_warnings());
        warnings
    }

    /// Warnings about configured keys that the signature does not cover.
    pub fn key_warnings(&self) -> Vec<String> {
        if self.keys.are_defaults() {
            return Vec::new();
        }
        if self.verifier.signs_checksum() {
            let warning = "`keys` replaces the signed id of a request, and of a body only a checksum is signed: \
                 a captured request can be sent again with another body that has the same checksum; \
                 leave `keys` out";
            return vec![warning.to_owned()];
        }
        let unsigned = self.keys.headers().filter(|name| !self.verifier.vouches_for_header(name));
        let warning = |header: &HeaderName| {
            let guard = match self.replay_guard {
                true => "; the replay guard then makes it a duplicate",
                false => ", and `replay_guard` is off; take the key from the body, or turn it on",
            };
            format!(
                "`keys` reads the header `{header}`, which the signature does not cover: a captured \
                 request can be sent again under another key{guard}"
            )
        };
        unsigned.map(warning).collect()
    }

    pub fn is_generic(&self) -> bool {
        self.provider.name == generic()
    }

    /// Whether it is the outbox, which receives no webhooks.
    pub fn is_outbox(&self) -> bool {
        self.provider.name == OUTBOX
    }

    /// Whether requests are verified.
    pub fn is_verified(&self) -> bool {
        self.verifier.name() != UNVERIFIED
    }
}

/// A base URL such as `https://hooks.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct PublicUrl(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a base URL; write for example https://hooks.example.com")]
pub struct ParsePublicUrlError(String);

impl PublicUrl {
    /// The original spelling, without a trailing slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PublicUrl {
    type Error = ParsePublicUrlError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let url = Url::parse(&text).map_err(|_| ParsePublicUrlError(text.clone()))?;
        let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
        let is_bare =
            url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        // Signatures cover the exact spelling.
        if is_web && is_bare {
            Ok(Self(text.trim_end_matches('/').to_owned()))
        } else {
            Err(ParsePublicUrlError(text))
        }
    }
}

impl From<PublicUrl> for String {
    fn from(url: PublicUrl) -> Self {
        url.0
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::time::Timestamp;

    use super::*;
    use crate::quarantine::QUARANTINE_RETENTION;

    #[test]
    fn default_dedup_window_outlives_the_quarantine() {
        let cases = [
            (r#"{"name":"in","provider":"hubspot","secrets":["s"]}"#, 8),
            (r#"{"name":"in","provider":"evolution-api","secrets":["s"]}"#, 8),
            (r#"{"name":"in","provider":"linear","secrets":["s"]}"#, 1),
            (r#"{"name":"in","provider":"linear","secrets":["s"],"on_refusal":"quarantine"}"#, 8),
            (r#"{"name":"in","provider":"hubspot","secrets":["s"],"dedup_window":"2d"}"#, 2),
        ];
        for (json, days) in cases {
            let spec: SourceSpec = serde_json::from_str(json).unwrap();
            let source = spec.build(SourceId::new(Timestamp::default(), 1), &|_| None).unwrap();
            assert_eq!(source.dedup_window, Duration::from_secs(days * 86_400), "{json}");
        }
        assert!(QUARANTINE_RETENTION < DEFAULT_DEDUP_WINDOW.0);
    }

    fn build(json: &str) -> Source {
        let spec: SourceSpec = serde_json::from_str(json).unwrap();
        spec.build(SourceId::new(Timestamp::default(), 1), &|_| None).unwrap()
    }

    #[test]
    fn signature_over_the_url_needs_a_public_url() {
        for (provider, fields, is_needed) in [
            ("twilio", "", true),
            ("square", "", true),
            ("hubspot", "", true),
            ("hubspot", r#","public_url":"https://gw.example.com""#, false),
            ("github", "", false),
            ("generic", r#","verify":{"hmac":{"header":"x-sig","template":"{url}{body}"}}"#, true),
        ] {
            let source = build(&format!(
                r#"{{"name":"in","provider":"{provider}","secrets":["0123456789abcdef"]{fields}}}"#
            ));
            let error = source.check_new(false).err().map(|error| error.to_string());
            let is_refused = error.is_some_and(|error| error.contains("`public_url` is missing"));
            assert_eq!(is_refused, is_needed, "{provider}{fields}");
            assert!(source.check_new(true).is_ok(), "{provider}{fields}");
            // One from before this rule keeps working.
            let source = source.with_leniency(true);
            let warnings = source.warnings(false);
            assert_eq!(warnings.len(), usize::from(is_needed), "{provider}{fields}: {warnings:?}");
            assert!(warnings.iter().all(|text| text.contains("`Host`")), "{warnings:?}");
            assert_eq!(source.warnings(true).len(), 0, "{provider}{fields}");
        }
    }

    #[test]
    fn signature_valid_for_longer_than_the_dedup_window_is_refused() {
        let hmac = |tolerance: &str| {
            format!(
                r#""provider":"generic","verify":{{"hmac":{{"header":"x-sig","template":"{{timestamp}}{{body}}","timestamp_header":"x-time","tolerance":"{tolerance}"}}}}"#
            )
        };
        let cases = [
            (r#""provider":"stripe""#.to_owned(), "5m", true),
            (r#""provider":"stripe""#.to_owned(), "299s", false),
            (r#""provider":"linear""#.to_owned(), "12h", true),
            (r#""provider":"linear""#.to_owned(), "11h", false),
            (r#""provider":"mercado-pago""#.to_owned(), "1d", false),
            (r#""provider":"paypal""#.to_owned(), "4d", true),
            (r#""provider":"paypal""#.to_owned(), "1d", false),
            (r#""provider":"github""#.to_owned(), "1s", true),
            (hmac("1h"), "1h", true),
            (hmac("2h"), "1h", false),
        ];
        for (preset, window, is_allowed) in cases {
            let source = build(&format!(
                r#"{{"name":"in",{preset},"secrets":["0123456789abcdef"],"dedup_window":"{window}"}}"#
            ));
            assert_eq!(source.check_new(true).is_ok(), is_allowed, "{preset} {window}");
            assert_eq!(source.warnings(true).is_empty(), is_allowed, "{preset} {window}");
        }
    }

    #[test]
    fn every_preset_remembers_keys_as_long_as_its_signatures_are_valid() {
        for preset in provider::PROVIDERS.iter().filter(|preset| preset.name != "generic") {
            let secret = match preset.name {
                "discord" => "0".repeat(64),
                // From the tests of @sendgrid/eventwebhook 8.0.0.
                "sendgrid" => "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==".to_owned(),
                "standard-webhooks" => format!("whsec_{}", "A".repeat(32)),
                _ => "0123456789abcdef".to_owned(),
            };
            let source = build(&format!(
                r#"{{"name":"in","provider":"{}","secrets":["{secret}"]}}"#,
                preset.name
            ));
            assert!(source.check_new(true).is_ok(), "{}", preset.name);
        }
    }

    #[test]
    fn key_in_an_unsigned_header_gives_a_warning() {
        let hmac = r#""verify":{"hmac":{"header":"x-sig"}},"secrets":["0123456789abcdef"]"#;
        let signed_id = r#""verify":{"hmac":{"header":"x-sig","template":"{id}.{body}","id_header":"x-own"}},"secrets":["0123456789abcdef"]"#;
        let token = r#""verify":{"token":{"header":"x-token"}},"secrets":["0123456789abcdef"]"#;
        let custom_keys = r#","keys":["header:x-own","pointer:/id"]"#;
        for (verify, keys, expected) in [
            (hmac, custom_keys, true),
            (hmac, "", false),
            (hmac, r#","keys":["pointer:/id"]"#, false),
            (signed_id, custom_keys, false),
            (token, custom_keys, false),
            (r#""verify":"none""#, custom_keys, false),
            (r#""provider":"n8n","secrets":["0123456789abcdef"]"#, "", false),
            (r#""provider":"github","secrets":["0123456789abcdef"]"#, custom_keys, true),
        ] {
            let spec = format!(r#"{{"name":"in",{verify}{keys}}}"#);
            let spec: SourceSpec = serde_json::from_str(&spec).unwrap();
            let source = spec.build(SourceId::new(Timestamp::default(), 1), &|_| None).unwrap();
            let warnings = source.warnings(true);
            let is_warned = warnings.iter().any(|text| text.contains("`x-own`"));
            assert_eq!(is_warned, expected, "{verify}{keys}: {warnings:?}");
        }
    }

    #[test]
    fn own_keys_of_a_source_that_signs_a_checksum_give_a_warning() {
        for (keys, expected) in [("", 0), (r#","keys":["pointer:/id"]"#, 1)] {
            let source = build(&format!(
                r#"{{"name":"in","provider":"paypal","secrets":["9XL90610J3647323C"]{keys}}}"#
            ));
            let warnings = source.warnings(true);
            assert_eq!(warnings.len(), expected, "{keys}: {warnings:?}");
            assert!(warnings.iter().all(|text| text.contains("checksum")), "{warnings:?}");
        }
    }
}
