//! A source: where events come from, how they are verified and told apart.
//!
//! [`SourceSpec`] is what people write in TOML or send to the API, and what is stored.
//! [`Source`] is what it means: secrets looked up, rules compiled. The door only sees the latter.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    attribute::EventKind,
    ids::SourceId,
    key::{KeyRules, ParseKeyRuleError},
    name::Name,
    outbox::{OUTBOX, Outbox},
    provider::{self, EventKey, ParsedRequest, Provider, RefusalPolicy, preset_names},
    redact::{SecretNames, SecretNamesSpecError},
    request::IncomingRequest,
    retention::{RetentionSpec, RetentionSpecError},
    secret::{Secret, SecretError, SecretRef},
    sync::SyncSpec,
    time::HumanDuration,
    verify::{UNVERIFIED, VerifiedRequest, Verifier, VerifySpec, VerifySpecError},
};

/// How long a key is remembered unless the source says otherwise: longer than any provider's
/// retries (Meta goes on for seven days).
pub const DEDUP_WINDOW: HumanDuration = HumanDuration::from_secs(8 * 86_400);
/// A window longer than this would make the key table grow without sense.
const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(400 * 86_400);
/// The largest body that a source may allow.
pub const BODY_BYTES_CEILING: usize = 25 * 1024 * 1024;

/// A source as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting that people write")]
pub struct SourceSpec {
    /// Its name, also in its URL: `/in/{name}`.
    pub name: Name,
    /// Whose webhooks these are.
    #[serde(default = "generic")]
    #[schemars(extend("enum" = known_providers()))]
    pub provider: String,
    /// How a request proves that it comes from the provider, if not in the provider's own way. Must
    /// be written out for a generic source; `"none"` accepts everybody who knows the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// The secrets for it, newest first; several while one is being rotated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRef>,
    /// What a provider's question at the address must hold (`hub.verify_token` of Meta).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_token: Option<SecretRef>,
    /// What stands before `/in/` in the address that the provider calls, for signatures over it;
    /// the server's `public_url` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<PublicUrl>,
    /// Where the dedup key is looked for, in this order; the provider's rule when left out, or the
    /// usual places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Where the kind of an event is looked for, in this order; the provider's rule when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// How long a key is remembered; longer than the provider sends again when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_window: Option<HumanDuration>,
    /// Takes the hash of the body as the key of requests without one, for this (short) time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash_window: Option<HumanDuration>,
    /// Whether a duplicate of an event whose deliveries are all dead sends it again.
    #[serde(default = "yes")]
    pub revive_dead: bool,
    /// The largest body taken, in bytes; the server's limit when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = BODY_BYTES_CEILING))]
    pub max_body_bytes: Option<usize>,
    /// Makes the sender wait for one destination.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub sync: Option<SyncSpec>,
    /// What happens to a request that does not verify; the provider's way when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_refusal: Option<RefusalPolicy>,
    /// Whether the sample of refused requests keeps their bodies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_refused_bodies: bool,
    /// Further names of fields whose values are hidden wherever a body is shown, at any depth; case,
    /// `-` and `_` do not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
    /// Whether the values of secret fields are also taken out of what destinations get. What cannot
    /// be read for sure is then not sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strip_secrets: bool,
    /// How long what came in is kept.
    #[serde(
        default,
        skip_serializing_if = "RetentionSpec::is_empty",
        deserialize_with = "crate::object::required"
    )]
    pub retention: RetentionSpec,
    /// Whether it takes requests at all.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// Every preset, and the source that is built in.
fn known_providers() -> Vec<&'static str> {
    preset_names().into_iter().chain([OUTBOX]).collect()
}

fn generic() -> String {
    "generic".to_owned()
}

fn yes() -> bool {
    true
}

/// A source that cannot be used as it is written.
#[derive(Debug, thiserror::Error)]
pub enum SourceSpecError {
    /// The provider is not known.
    #[error("provider `{0}` is not known; known are: {known}", known = preset_names().join(", "))]
    UnknownProvider(String),
    /// A provider signs, and there is nothing to check that with.
    #[error(
        "`secrets` is missing: {0} signs its webhooks, and its secret is needed to check that; or write verify = \"none\" to accept unsigned ones"
    )]
    SecretMissing(&'static str),
    /// Nothing says how to verify.
    #[error(
        "`verify` is missing: say how requests are signed, for example verify = {{ hmac = {{ header = \"x-signature\" }} }}, or write verify = \"none\" to accept unsigned ones"
    )]
    VerifyMissing,
    /// The verification makes no sense.
    #[error("verify: {0}")]
    Verify(#[from] VerifySpecError),
    /// A secret cannot be looked up.
    #[error("secrets: {0}")]
    Secret(#[from] SecretError),
    /// A key rule makes no sense.
    #[error("{0}: {1}")]
    Keys(&'static str, #[source] ParseKeyRuleError),
    /// A window is out of its range.
    #[error("{0} must be between 1s and 400d")]
    Window(&'static str),
    /// The body limit is out of its range.
    #[error("max_body_bytes must be between 1 and {BODY_BYTES_CEILING}")]
    BodyLimit,
    /// Nobody waits that long, or that short.
    #[error("sync: deadline must be between 100ms and 2m")]
    Deadline,
    /// A further name of a secret makes no sense.
    #[error("redact: {0}")]
    Redact(#[from] SecretNamesSpecError),
    /// The outbox cannot be told that.
    #[error(
        "`outbox` is built in: its name stays, and only redact, strip_secrets, retention and enabled can be set"
    )]
    Outbox,
    /// What is kept for how long makes no sense.
    #[error("retention: {0}")]
    Retention(#[from] RetentionSpecError),
}

/// A source as it is meant.
#[derive(Debug)]
pub struct Source {
    /// Its id.
    pub id: SourceId,
    /// Its name.
    pub name: Name,
    /// Knows what its webhooks are like.
    pub provider: &'static dyn Provider,
    /// Checks the signature.
    pub verifier: Verifier,
    /// What the signature is checked with, the current one first.
    secrets: Vec<Secret>,
    /// What a provider's question must hold.
    pub verify_token: Option<Secret>,
    /// What stands before `/in/` in the address that the provider calls.
    pub public_url: Option<PublicUrl>,
    /// Finds the key, where the provider has no rule of its own or it was replaced.
    pub keys: KeyRules,
    /// Finds the kind, where the source says so.
    kinds: Option<KeyRules>,
    /// How long a key is remembered.
    pub dedup_window: Duration,
    /// How long a content hash is remembered, if it is used.
    pub content_hash_window: Option<Duration>,
    /// Whether a duplicate revives what is dead.
    pub revive_dead: bool,
    /// The largest body taken, if the source has its own limit.
    pub max_body_bytes: Option<usize>,
    /// Makes the sender wait for one destination.
    pub sync: Option<SyncSpec>,
    /// What happens to a request that does not verify.
    pub on_refusal: RefusalPolicy,
    /// Whether bodies of refused requests are kept.
    pub keep_refused_bodies: bool,
    /// How long what came in is kept.
    pub retention: RetentionSpec,
    /// Whether it takes requests.
    pub enabled: bool,
}

impl SourceSpec {
    /// A source about which nothing is said but its name.
    pub(crate) fn named(name: Name) -> Self {
        Self {
            name,
            provider: generic(),
            verify: None,
            secrets: Vec::new(),
            verify_token: None,
            public_url: None,
            keys: None,
            kinds: None,
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
            enabled: yes(),
        }
    }

    /// The header in which its requests carry the secret itself.
    pub fn token_header(&self) -> Option<&str> {
        match &self.verify {
            Some(VerifySpec::Token { header }) => Some(header),
            Some(VerifySpec::None | VerifySpec::Hmac(_) | VerifySpec::Basic { .. }) | None => None,
        }
    }

    /// The headers in which its requests carry a secret itself, in lower case: destinations do not
    /// get them.
    pub fn secret_headers(&self) -> Vec<String> {
        let of_provider = provider::find(&self.provider).and_then(Provider::secret_header);
        let all = self.token_header().into_iter().chain(of_provider);
        all.map(str::to_ascii_lowercase).collect()
    }

    /// What is secret in its requests.
    pub fn secret_names(&self) -> SecretNames {
        let mut names = SecretNames::builtin();
        names.add_fields(&self.redact);
        if let Some(header) = self.token_header() {
            names.add_header(header);
        }
        names
    }

    /// Whether a request has to prove where it comes from.
    pub fn is_verified(&self) -> bool {
        self.verify != Some(VerifySpec::None)
    }

    /// Looks the secrets up through `env` and compiles the rules.
    pub fn build(
        &self,
        id: SourceId,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Source, SourceSpecError> {
        let provider = match self.is_outbox() {
            true => {
                self.check_outbox()?;
                &Outbox
            }
            false => provider::find(&self.provider)
                .ok_or_else(|| SourceSpecError::UnknownProvider(self.provider.clone()))?,
        };
        let secrets = self
            .secrets
            .iter()
            .map(|secret| secret.resolve(env))
            .collect::<Result<Vec<Secret>, _>>()?;
        let window = |field, span: HumanDuration| {
            let good = (Duration::from_secs(1)..=DEDUP_WINDOW_MAX).contains(&span.0);
            if good { Ok(span.0) } else { Err(SourceSpecError::Window(field)) }
        };
        if self.max_body_bytes.is_some_and(|limit| !(1..=BODY_BYTES_CEILING).contains(&limit)) {
            return Err(SourceSpecError::BodyLimit);
        }
        if self.sync.as_ref().is_some_and(|sync| !sync.is_within_bounds()) {
            return Err(SourceSpecError::Deadline);
        }
        SecretNames::check(&self.redact)?;
        let on_refusal = self.on_refusal.unwrap_or_else(|| provider.on_refusal());
        self.retention.check()?;
        Ok(Source {
            id,
            name: self.name.clone(),
            provider,
            verifier: self.verifier(provider, secrets.clone())?,
            secrets,
            verify_token: self.verify_token.as_ref().map(|token| token.resolve(env)).transpose()?,
            public_url: self.public_url.clone(),
            keys: rules("keys", self.keys.as_deref())?,
            kinds: self.kinds.as_deref().map(|kinds| rules("kinds", Some(kinds))).transpose()?,
            dedup_window: window(
                "dedup_window",
                self.dedup_window.unwrap_or_else(|| usual_window(provider, on_refusal)),
            )?,
            content_hash_window: self
                .content_hash_window
                .map(|span| window("content_hash_window", span))
                .transpose()?,
            revive_dead: self.revive_dead,
            max_body_bytes: self.max_body_bytes.or_else(|| provider.max_body_bytes()),
            sync: self.sync.clone(),
            on_refusal,
            keep_refused_bodies: self.keep_refused_bodies,
            retention: self.retention,
            enabled: self.enabled,
        })
    }

    /// In the way that is written out, or in the provider's own.
    fn verifier(
        &self,
        provider: &'static dyn Provider,
        secrets: Vec<Secret>,
    ) -> Result<Verifier, SourceSpecError> {
        match &self.verify {
            Some(verify) => Ok(Verifier::new(verify, secrets)?),
            None if self.is_outbox() => Ok(provider.verifier(secrets)?),
            None if self.provider == generic() => Err(SourceSpecError::VerifyMissing),
            None if secrets.is_empty() => Err(SourceSpecError::SecretMissing(provider.name())),
            None => Ok(provider.verifier(secrets)?),
        }
    }
}

/// What is released late must meet the key of what its sender brought in meanwhile, so that such a
/// key outlives the quarantine.
fn usual_window(provider: &dyn Provider, on_refusal: RefusalPolicy) -> HumanDuration {
    let window = provider.dedup_window();
    match on_refusal {
        RefusalPolicy::Quarantine => HumanDuration(window.0.max(DEDUP_WINDOW.0)),
        RefusalPolicy::Unauthorized | RefusalPolicy::Keep => window,
    }
}

fn rules(field: &'static str, written: Option<&[String]>) -> Result<KeyRules, SourceSpecError> {
    KeyRules::new(written).map_err(|error| SourceSpecError::Keys(field, error))
}

impl Source {
    /// Reads a request that was verified: the provider's rules, and what the source has instead.
    pub fn read(&self, request: &IncomingRequest<'_>, verified: VerifiedRequest) -> ParsedRequest {
        let reading = self.provider.parse_request(request, self.secrets.get(verified.secret_index));
        let ParsedRequest::Events(mut parts) = reading else { return reading };
        for part in &mut parts {
            if !self.keys.are_defaults() {
                part.key = EventKey::Rules;
            }
            if let Some(kinds) = &self.kinds {
                let body = part.body.as_deref().unwrap_or(request.body);
                let found = kinds.extract(request.headers, body).ok().flatten();
                part.kind = found.and_then(|found| EventKind::new(found.key.as_str()));
            }
        }
        ParsedRequest::Events(parts)
    }

    /// What works and is still not wise, in sentences for the operator. `knows_address` says whether
    /// the server has a `public_url` of its own.
    pub fn warnings(&self, knows_address: bool) -> Vec<String> {
        let mut warnings = self.verifier.warnings().to_vec();
        if self.verifier.covers_url() && self.public_url.is_none() && !knows_address {
            warnings.push(
                "the signature covers the address that was called, and without `public_url` the \
                 `Host` header of the request is believed about that; set `public_url`"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Whether there is no preset for it.
    pub fn is_generic(&self) -> bool {
        self.provider.name() == generic()
    }

    /// Whether it is the outbox, which takes no webhooks.
    pub fn is_outbox(&self) -> bool {
        self.provider.name() == OUTBOX
    }

    /// Whether anything is checked at all.
    pub fn is_verified(&self) -> bool {
        self.verifier.name() != UNVERIFIED
    }
}

/// The beginning of an address, such as `https://hooks.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct PublicUrl(String);

/// Not the beginning of an address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the beginning of an address; write it as https://hooks.example.com")]
pub struct ParsePublicUrlError(String);

impl PublicUrl {
    /// As it was written, without a slash at its end.
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
        // What is signed is the spelling, so the spelling is kept.
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
    use super::*;
    use crate::{quarantine::QUARANTINE_RETENTION, time::Timestamp};

    #[test]
    fn a_key_outlives_the_quarantine_unless_the_source_says_otherwise() {
        let cases = [
            (r#"{"name":"in","provider":"hubspot","secrets":["s"]}"#, 8),
            (r#"{"name":"in","provider":"evolution-api","secrets":["s"]}"#, 8),
            (r#"{"name":"in","provider":"linear","secrets":["s"]}"#, 1),
            (r#"{"name":"in","provider":"linear","secrets":["s"],"on_refusal":"quarantine"}"#, 8),
            (r#"{"name":"in","provider":"hubspot","secrets":["s"],"dedup_window":"2d"}"#, 2),
        ];
        for (written, days) in cases {
            let spec: SourceSpec = serde_json::from_str(written).unwrap();
            let source = spec.build(SourceId::new(Timestamp::default(), 1), &|_| None).unwrap();
            assert_eq!(source.dedup_window, Duration::from_secs(days * 86_400), "{written}");
        }
        assert!(QUARANTINE_RETENTION < DEDUP_WINDOW.0);
    }
}
