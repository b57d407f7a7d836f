//! A source: where events come from, how they are verified and told apart.
//!
//! [`SourceSpec`] is what people write in TOML or send to the API, and what is stored.
//! [`Source`] is what it means: secrets looked up, rules compiled. The door only sees the latter.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::SourceId,
    key::{KeyRuleError, KeyRules},
    name::Name,
    retention::{InvalidRetention, RetentionSpec},
    secret::{Secret, SecretError, SecretRef},
    sync::SyncSpec,
    time::Span,
    verify::{Verifier, VerifySpec, VerifySpecError},
};

/// How long a key is remembered unless the source says otherwise: longer than any provider's
/// retries (Meta goes on for seven days).
pub const DEDUP_WINDOW: Span = Span::from_secs(8 * 86_400);
/// A window longer than this would make the key table grow without sense.
const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(400 * 86_400);
/// The largest body that a source may allow.
pub const BODY_BYTES_CEILING: usize = 25 * 1024 * 1024;

/// A source as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// Its name, also in its URL: `/in/{name}`.
    pub name: Name,
    /// Whose webhooks these are. Known so far: `generic`.
    #[serde(default = "generic")]
    pub provider: String,
    /// How a request proves that it comes from the provider. Must be written out for a generic
    /// source; `"none"` accepts everybody who knows the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// The secrets for it, newest first; several while one is being rotated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRef>,
    /// Where the dedup key is looked for, in this order; the usual places when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// How long a key is remembered.
    #[serde(default = "dedup_window")]
    pub dedup_window: Span,
    /// Takes the hash of the body as the key of requests without one, for this (short) time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash_window: Option<Span>,
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
    /// Whether the sample of refused requests keeps their bodies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_refused_bodies: bool,
    /// How long what came in is kept.
    #[serde(
        default,
        skip_serializing_if = "RetentionSpec::is_silent",
        deserialize_with = "crate::object::required"
    )]
    pub retention: RetentionSpec,
    /// Whether it takes requests at all.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn generic() -> String {
    "generic".to_owned()
}

fn dedup_window() -> Span {
    DEDUP_WINDOW
}

fn yes() -> bool {
    true
}

/// A source that cannot be used as it is written.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSource {
    /// The provider is not known.
    #[error("provider `{0}` is not known; known is: generic")]
    UnknownProvider(String),
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
    #[error("keys: {0}")]
    Keys(#[from] KeyRuleError),
    /// A window is out of its range.
    #[error("{0} must be between 1s and 400d")]
    Window(&'static str),
    /// The body limit is out of its range.
    #[error("max_body_bytes must be between 1 and {BODY_BYTES_CEILING}")]
    BodyLimit,
    /// Nobody waits that long, or that short.
    #[error("sync: deadline must be between 100ms and 2m")]
    Deadline,
    /// What is kept for how long makes no sense.
    #[error("retention: {0}")]
    Retention(#[from] InvalidRetention),
}

/// A source as it is meant.
#[derive(Debug)]
pub struct Source {
    /// Its id.
    pub id: SourceId,
    /// Its name.
    pub name: Name,
    /// Checks the signature.
    pub verifier: Verifier,
    /// Finds the key.
    pub keys: KeyRules,
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
    /// Whether bodies of refused requests are kept.
    pub keep_refused_bodies: bool,
    /// How long what came in is kept.
    pub retention: RetentionSpec,
    /// Whether it takes requests.
    pub enabled: bool,
}

impl SourceSpec {
    /// Looks the secrets up through `env` and compiles the rules.
    pub fn build(
        &self,
        id: SourceId,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Source, InvalidSource> {
        if self.provider != "generic" {
            return Err(InvalidSource::UnknownProvider(self.provider.clone()));
        }
        let verify = self.verify.as_ref().ok_or(InvalidSource::VerifyMissing)?;
        let secrets = self
            .secrets
            .iter()
            .map(|secret| secret.resolve(env))
            .collect::<Result<Vec<Secret>, _>>()?;
        let window = |field, span: Span| {
            let good = (Duration::from_secs(1)..=DEDUP_WINDOW_MAX).contains(&span.0);
            if good { Ok(span.0) } else { Err(InvalidSource::Window(field)) }
        };
        if self.max_body_bytes.is_some_and(|limit| !(1..=BODY_BYTES_CEILING).contains(&limit)) {
            return Err(InvalidSource::BodyLimit);
        }
        if self.sync.as_ref().is_some_and(|sync| !sync.is_within_bounds()) {
            return Err(InvalidSource::Deadline);
        }
        self.retention.check()?;
        Ok(Source {
            id,
            name: self.name.clone(),
            verifier: Verifier::new(verify, secrets)?,
            keys: KeyRules::new(self.keys.as_deref())?,
            dedup_window: window("dedup_window", self.dedup_window)?,
            content_hash_window: self
                .content_hash_window
                .map(|span| window("content_hash_window", span))
                .transpose()?,
            revive_dead: self.revive_dead,
            max_body_bytes: self.max_body_bytes,
            sync: self.sync.clone(),
            keep_refused_bodies: self.keep_refused_bodies,
            retention: self.retention,
            enabled: self.enabled,
        })
    }
}
