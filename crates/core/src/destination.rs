//! A destination: where events go, its limits and its secret.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    address::{UrlProblem, check_url},
    delivery::{RetryPolicy, RetrySpec, retry::InvalidRetry},
    ids::DestinationId,
    name::Name,
    secret::{SecretError, SecretRef},
    sign::{InvalidSecret, SigningSecret},
    time::Span,
};

/// The destination inside the gateway that takes everything and keeps the latest for a look.
pub const BUILTIN_INBOX: &str = "builtin:inbox";

/// A destination as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DestinationSpec {
    /// Its name.
    pub name: Name,
    /// Where events are posted to: `http://…`, `https://…`, or `builtin:inbox`.
    pub url: String,
    /// How often and when a delivery is tried: `quick`, `short`, `standard`, or own numbers.
    #[serde(default)]
    pub retry: RetrySpec,
    /// How many attempts may run at once, 1 to 1024.
    #[serde(default = "concurrency")]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: u32,
    /// How long one attempt may take in all.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// Headers to add to each request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, SecretRef>,
    /// Secrets (`whsec_…`) to sign with as Standard Webhooks says; several while rotating.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signing_secrets: Vec<SecretRef>,
}

fn concurrency() -> u32 {
    32
}

fn timeout() -> Span {
    Span::from_secs(30)
}

/// A destination that cannot be used as it is written.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDestination {
    /// The address is not one.
    #[error("url: {0}")]
    UrlSyntax(#[from] url::ParseError),
    /// The address is not acceptable.
    #[error("url: {0}")]
    Url(#[from] UrlProblem),
    /// The policy makes no sense.
    #[error("{0}")]
    Retry(#[from] InvalidRetry),
    /// The number is out of its range.
    #[error("concurrency must be between 1 and 1024")]
    Concurrency,
    /// The span is out of its range.
    #[error("timeout must be between 100ms and 10m")]
    Timeout,
    /// A header cannot be sent.
    #[error("headers: `{0}` is not a header that can be set: {1}")]
    Header(String, &'static str),
    /// A secret cannot be looked up.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// A signing secret is not one.
    #[error("signing_secrets: {0}")]
    Signing(#[from] InvalidSecret),
}

/// How a destination is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By HTTP.
    Http(Uri),
    /// It is the inbox inside the gateway.
    Inbox,
}

/// A destination as it is meant.
#[derive(Debug)]
pub struct Destination {
    /// Its id.
    pub id: DestinationId,
    /// Its name.
    pub name: Name,
    /// How it is reached.
    pub reach: Reach,
    /// How often and when a delivery is tried.
    pub retry: RetryPolicy,
    /// How many attempts may run at once.
    pub concurrency: u32,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Headers to add.
    pub headers: HeaderMap,
    /// Keys to sign with.
    pub signing: Vec<SigningSecret>,
}

/// Headers that are ours to set, or that belong to one connection.
const RESERVED: [&str; 12] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

impl DestinationSpec {
    /// Checks the numbers, looks secrets up through `env`, and parses the address.
    pub fn build(
        &self,
        id: DestinationId,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Destination, InvalidDestination> {
        if !(1..=1024).contains(&self.concurrency) {
            return Err(InvalidDestination::Concurrency);
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&self.timeout.0) {
            return Err(InvalidDestination::Timeout);
        }
        Ok(Destination {
            id,
            name: self.name.clone(),
            reach: self.reach()?,
            retry: self.retry.policy()?,
            concurrency: self.concurrency,
            timeout: self.timeout.0,
            headers: self.header_map(env)?,
            signing: self.signing(env)?,
        })
    }

    fn reach(&self) -> Result<Reach, InvalidDestination> {
        if self.url == BUILTIN_INBOX {
            return Ok(Reach::Inbox);
        }
        let url = Url::parse(&self.url)?;
        check_url(&url)?;
        // What `url` prints after its checks is plain ASCII, so the stricter parser takes it too.
        let uri = Uri::try_from(url.as_str()).map_err(|_| url::ParseError::IdnaError)?;
        Ok(Reach::Http(uri))
    }

    fn header_map(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<HeaderMap, InvalidDestination> {
        let mut map = HeaderMap::new();
        for (text, value) in &self.headers {
            let invalid = |why| InvalidDestination::Header(text.clone(), why);
            let name: HeaderName = text.parse().map_err(|_| invalid("the name is not valid"))?;
            if RESERVED.contains(&name.as_str()) {
                return Err(invalid("it is set by the gateway"));
            }
            if map.contains_key(&name) {
                return Err(invalid("it is given twice"));
            }
            let secret = value.resolve(env)?;
            let mut value = HeaderValue::from_bytes(secret.expose())
                .map_err(|_| invalid("the value holds characters that a header cannot"))?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        Ok(map)
    }

    fn signing(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<SigningSecret>, InvalidDestination> {
        self.signing_secrets
            .iter()
            .map(|secret| {
                let secret = secret.resolve(env)?;
                // What is not UTF-8 has no `whsec_` at its start either: the parser says so.
                Ok(String::from_utf8_lossy(secret.expose()).parse()?)
            })
            .collect()
    }
}
