//! A destination: where events go, its limits and its secret.
//!
//! - [`kind`]: what it is; [`sender`]: what is only for those that send messages; [`limits`], [`quiet`]:
//!   how much they send in a day, and when nothing.
//! - [`auth`], [`oauth2`]: how it is told who calls.
//! - [`header`]: what is added to each request.
//! - [`proxy`], [`tls`]: the way to it.
//! - [`sign_as`]: whose signature it expects.
//! - [`exec`]: a program on this machine. [`stream`]: a stream in Redis.
//!
//! What its answers mean is in [`mod@crate::delivery::judge`].

pub mod auth;
pub mod exec;
pub mod header;
pub mod kind;
pub mod oauth2;
pub mod proxy;
pub mod send_limits;
pub mod sender;
pub mod sign_as;
pub mod status_source;
pub mod stream;
pub mod tls;

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderName, Uri, header::AUTHORIZATION};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use self::{
    auth::{AuthConfig, AuthSpec, AuthSpecError},
    exec::{ExecConfig, ExecSpec, ExecSpecError},
    header::{HeaderTemplateError, HeaderValueSource},
    kind::{DestinationFamily, DestinationKind},
    proxy::{Proxy, ProxySpecError},
    send_limits::SendLimits,
    sender::{AccountSpec, MessageSender, SendingSpec, SendingSpecError},
    sign_as::{ProviderSigner, SignAsSpec, SignAsSpecError},
    stream::{RedisStream, StreamSpec, StreamSpecError},
    tls::{TlsConfig, TlsSpec, TlsSpecError},
};
use crate::{
    address::{DestinationUrlError, check_url},
    delivery::{
        RetryPolicy, RetrySpec, RetryTerms,
        retry::RetrySpecError,
        retry::{STATUS_RULES_MAX, StatusRule, StatusRuleError, StatusRules},
    },
    ids::DestinationId,
    key::ParseKeyRuleError,
    lane::{CircuitSpec, LaneRules, OrderingSpec, Rate, circuit::CircuitSpecError},
    name::Name,
    secret::{SecretError, SecretRef},
    sign::{ParseSigningSecretError, SigningSecret},
    time::HumanDuration,
};

/// The destination inside the gateway that takes everything and keeps the latest for a look.
pub const BUILTIN_INBOX: &str = "builtin:inbox";

/// How long one attempt may take, unless somebody says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A destination as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DestinationSpec {
    /// Its name.
    pub name: Name,
    /// What it is.
    #[serde(default, skip_serializing_if = "DestinationKind::is_usual")]
    pub kind: DestinationKind,
    /// Where events are posted to: `http://…`, `https://…`, or `builtin:inbox`. For a destination that
    /// sends messages: where its service is, if that is not always the same place. For a stream:
    /// `redis://host:6379/0`, `rediss://…`, or `env:NAME` for a variable that holds it. Values of its
    /// query that are secrets by their names are shown as `•••`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// As whom messages are sent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub account: Option<AccountSpec>,
    /// How messages are sent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub sending: Option<Box<SendingSpec>>,
    /// The program to run, for the kind `exec`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub exec: Option<Box<ExecSpec>>,
    /// The stream to add to, for the kind `redis-stream`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub stream: Option<Box<StreamSpec>>,
    /// How often and when a delivery is tried: `quick`, `short`, `standard`, or own numbers.
    #[serde(default)]
    pub retry: RetrySpec,
    /// How many attempts may run at once, 1 to 1024.
    #[serde(default = "concurrency")]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: u32,
    /// The most attempts in a time, such as `50/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How long a fresh delivery waits before its first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
    /// Which deliveries must come one after the other.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub order: Option<OrderingSpec>,
    /// When the destination is left alone because it fails again and again, or `off`.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub circuit: CircuitSpec,
    /// So many `config` failures in a row pause the destination; 0 is never.
    #[serde(default = "pause_after")]
    pub pause_after_config_failures: u32,
    /// How long one attempt may take in all. `30s` is as long as the kind of destination needs, which is
    /// more for a service that sends messages.
    #[serde(default = "timeout")]
    pub timeout: HumanDuration,
    /// Headers to add to each request; a value may hold placeholders such as `{{event.id}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, SecretRef>,
    /// Secrets (`whsec_…`) to sign with as Standard Webhooks says; several while rotating.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signing_secrets: Vec<SecretRef>,
    /// Signs each request as a provider does, over what is sent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub sign_as: Option<SignAsSpec>,
    /// How it is told who calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Box<AuthSpec>>,
    /// A proxy on the way: `http://…`, `socks5://…` or `socks5h://…`, with user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<SecretRef>,
    /// Whom we trust there, and who we are.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::object::optional"
    )]
    pub tls: Option<Box<TlsSpec>>,
    /// What single statuses mean, before the table; the first one that fits.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "crate::object::each"
    )]
    #[schemars(length(max = STATUS_RULES_MAX))]
    pub rules: Vec<StatusRule>,
}

fn concurrency() -> u32 {
    32
}

fn pause_after() -> u32 {
    5
}

fn is_usual(circuit: &CircuitSpec) -> bool {
    *circuit == CircuitSpec::default()
}

fn timeout() -> HumanDuration {
    HumanDuration(TIMEOUT)
}

/// A destination that cannot be used as it is written.
#[derive(Debug, thiserror::Error)]
pub enum DestinationSpecError {
    /// There is no address.
    #[error("`url` is missing; write where events are posted to, http://… or https://…")]
    NoUrl,
    /// The address is not one.
    #[error("url: {0}")]
    UrlSyntax(#[from] url::ParseError),
    /// The address is not acceptable.
    #[error("url: {0}")]
    Url(#[from] DestinationUrlError),
    /// The policy makes no sense.
    #[error("{0}")]
    Retry(#[from] RetrySpecError),
    /// The number is out of its range.
    #[error("concurrency must be between 1 and 1024")]
    Concurrency,
    /// The span is out of its range.
    #[error("delay must be at most 30d")]
    Delay,
    /// The ordering key has no place.
    #[error("order: {0}")]
    Order(#[from] ParseKeyRuleError),
    /// The numbers make no sense.
    #[error("{0}")]
    Circuit(#[from] CircuitSpecError),
    /// The span is out of its range.
    #[error("timeout must be between 100ms and 10m")]
    Timeout,
    /// A header cannot be sent.
    #[error("headers: `{0}` is not a header that can be set: {1}")]
    Header(String, &'static str),
    /// A header's value cannot be sent.
    #[error("headers: `{0}`: {1}")]
    HeaderValue(String, #[source] HeaderTemplateError),
    /// A signature cannot be made.
    #[error("sign_as: {0}")]
    SignAs(#[from] SignAsSpecError),
    /// It cannot be told who calls.
    #[error("auth: {0}")]
    Auth(#[from] AuthSpecError),
    /// The proxy makes no sense.
    #[error("proxy: {0}")]
    Proxy(#[from] ProxySpecError),
    /// The TLS settings make no sense.
    #[error("tls: {0}")]
    Tls(#[from] TlsSpecError),
    /// A rule makes no sense.
    #[error("rules: {0}")]
    Rules(#[from] StatusRuleError),
    /// Settings of a connection where there is none.
    #[error("`{0}` is for destinations that are called over the network, not for {BUILTIN_INBOX}")]
    NotForInbox(&'static str),
    /// Settings of another kind of destination.
    #[error("`{0}` is not for destinations of the kind {1}; leave it out")]
    NotForKind(&'static str, &'static str),
    /// What makes the kind is not there.
    #[error("`{0}` is missing; a destination of the kind {1} needs it")]
    Missing(&'static str, &'static str),
    /// A program cannot be run like this.
    #[error("exec: {0}")]
    Exec(#[from] ExecSpecError),
    /// A stream cannot be added to like this.
    #[error("{0}")]
    Stream(#[from] StreamSpecError),
    /// Messages cannot be sent like this.
    #[error("{0}")]
    Sending(#[from] SendingSpecError),
    /// A secret cannot be looked up.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// A signing secret is not one.
    #[error("signing_secrets: {0}")]
    Signing(#[from] ParseSigningSecretError),
}

/// How a destination is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By HTTP.
    Http(Uri),
    /// It is the inbox inside the gateway.
    Inbox,
    /// A service that sends messages.
    Channel(Box<MessageSender>),
    /// A program that is run.
    Exec(Box<ExecConfig>),
    /// A stream that is added to.
    RedisStream(Box<RedisStream>),
}

/// A destination as it is meant.
#[derive(Debug)]
pub struct Destination {
    /// Its id.
    pub id: DestinationId,
    /// Its name.
    pub name: Name,
    /// How it is reached.
    pub transport: Transport,
    /// How often and when a delivery is tried.
    pub retry: RetryPolicy,
    /// How many attempts may run at once.
    pub concurrency: u32,
    /// How much it gets, when, and in which order.
    pub lane: LaneRules,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Headers to add.
    pub headers: Vec<(HeaderName, HeaderValueSource)>,
    /// Keys to sign with.
    pub signing: Vec<SigningSecret>,
    /// Signs as a provider does.
    pub sign_as: Option<ProviderSigner>,
    /// How it is told who calls.
    pub auth: Option<AuthConfig>,
    /// A proxy on the way.
    pub proxy: Option<Proxy>,
    /// Whom we trust there, and who we are.
    pub tls: Option<TlsConfig>,
    /// What its answers mean, before the table.
    pub rules: StatusRules,
}

impl Destination {
    /// Who sends its messages, if it takes messages.
    pub fn sender(&self) -> Option<&MessageSender> {
        if let Transport::Channel(sender) = &self.transport { Some(sender) } else { None }
    }

    /// By what its attempts are judged.
    pub fn terms(&self) -> RetryTerms<'_> {
        RetryTerms { retry: &self.retry, rules: &self.rules }
    }
}

/// The longest wait before a first attempt.
const DELAY_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Headers that are ours to set, or that belong to one connection.
pub(crate) const RESERVED: [&str; 13] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
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
    ) -> Result<Destination, DestinationSpecError> {
        self.check_inbox()?;
        self.check_kind()?;
        if !(1..=1024).contains(&self.concurrency) {
            return Err(DestinationSpecError::Concurrency);
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&self.timeout.0) {
            return Err(DestinationSpecError::Timeout);
        }
        let headers = self.header_texts(env)?;
        Ok(Destination {
            id,
            name: self.name.clone(),
            transport: self.transport(env)?,
            retry: self.retry.policy()?,
            concurrency: self.concurrency,
            lane: self.lane()?,
            timeout: self.timeout.0,
            sign_as: self.sign_as(&headers, env)?,
            headers,
            signing: self.signing(env)?,
            auth: self.auth(env)?,
            proxy: self.proxy(env)?,
            tls: self.tls.as_ref().map(|tls| tls.build(env)).transpose()?,
            rules: StatusRules::new(&self.rules)?,
        })
    }

    /// How much it sends in a day; `None` if it sends no messages, or if what is written makes no sense.
    pub fn limits(&self) -> Option<SendLimits> {
        self.kind.channel()?;
        let usual = SendingSpec::default();
        SendLimits::new(self.kind, self.sending.as_deref().unwrap_or(&usual)).ok()
    }

    /// What holds for its lane.
    pub fn lane(&self) -> Result<LaneRules, DestinationSpecError> {
        let delay = self.delay.map_or(Duration::ZERO, |span| span.0);
        if delay > DELAY_MAX {
            return Err(DestinationSpecError::Delay);
        }
        Ok(LaneRules {
            rate: self.rate.or_else(|| self.kind.channel()?.pacing().number),
            delay,
            order: self.order.as_ref().map(OrderingSpec::build).transpose()?,
            circuit: self.circuit.policy()?,
            pause_after: self.pause_after_config_failures,
        })
    }

    fn transport(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Transport, DestinationSpecError> {
        let missing = |field| DestinationSpecError::Missing(field, self.kind.as_str());
        match (self.kind.family(), self.kind.channel()) {
            (DestinationFamily::Program, _) => {
                let exec = self.exec.as_ref().ok_or_else(|| missing("exec"))?;
                Ok(Transport::Exec(Box::new(exec.build(env)?)))
            }
            (DestinationFamily::Stream, _) => {
                let stream = self.stream.as_ref().ok_or_else(|| missing("stream"))?;
                let stream = stream.build(&self.url, self.auth.as_deref(), env)?;
                Ok(Transport::RedisStream(Box::new(stream)))
            }
            (_, Some(channel)) => {
                let usual = SendingSpec::default();
                let sending = self.sending.as_deref().unwrap_or(&usual);
                let written = (self.url.as_str(), self.account.as_ref(), sending);
                let sender = MessageSender::build(self.kind, channel, written, env)?;
                Ok(Transport::Channel(Box::new(sender)))
            }
            (_, None) => self.http(),
        }
    }

    fn http(&self) -> Result<Transport, DestinationSpecError> {
        if self.url == BUILTIN_INBOX {
            return Ok(Transport::Inbox);
        }
        if self.url.is_empty() {
            return Err(DestinationSpecError::NoUrl);
        }
        let url = Url::parse(&self.url)?;
        check_url(&url)?;
        // What `url` prints after its checks is plain ASCII, so the stricter parser takes it too.
        let uri = Uri::try_from(url.as_str()).map_err(|_| url::ParseError::IdnaError)?;
        Ok(Transport::Http(uri))
    }

    /// The inbox is not called, so that nothing about calling it can mean anything.
    fn check_inbox(&self) -> Result<(), DestinationSpecError> {
        let set = [
            ("auth", self.auth.is_some()),
            ("proxy", self.proxy.is_some()),
            ("tls", self.tls.is_some()),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set && self.url == BUILTIN_INBOX) {
            Some((field, _)) => Err(DestinationSpecError::NotForInbox(field)),
            None => Ok(()),
        }
    }

    /// What belongs to another kind would be taken for something that works.
    fn check_kind(&self) -> Result<(), DestinationSpecError> {
        const WEBHOOK: &[DestinationFamily] = &[DestinationFamily::Webhook];
        const SERVICE: &[DestinationFamily] = &[DestinationFamily::Channel];
        let fields = [
            (
                "url",
                !self.url.is_empty(),
                &[
                    DestinationFamily::Webhook,
                    DestinationFamily::Channel,
                    DestinationFamily::Stream,
                ][..],
            ),
            ("account", self.account.is_some(), SERVICE),
            ("sending", self.sending.is_some(), SERVICE),
            ("exec", self.exec.is_some(), &[DestinationFamily::Program]),
            ("stream", self.stream.is_some(), &[DestinationFamily::Stream]),
            ("headers", !self.headers.is_empty(), WEBHOOK),
            ("signing_secrets", !self.signing_secrets.is_empty(), WEBHOOK),
            ("sign_as", self.sign_as.is_some(), WEBHOOK),
            ("rules", !self.rules.is_empty(), WEBHOOK),
            ("auth", self.auth.is_some(), &[DestinationFamily::Webhook, DestinationFamily::Stream]),
            (
                "proxy",
                self.proxy.is_some(),
                &[DestinationFamily::Webhook, DestinationFamily::Channel],
            ),
            (
                "tls",
                self.tls.is_some(),
                &[
                    DestinationFamily::Webhook,
                    DestinationFamily::Channel,
                    DestinationFamily::Stream,
                ],
            ),
        ];
        let family = self.kind.family();
        match fields.iter().find(|(_, is_set, of)| *is_set && !of.contains(&family)) {
            Some((field, ..)) => Err(DestinationSpecError::NotForKind(field, self.kind.as_str())),
            None => Ok(()),
        }
    }

    fn header_texts(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<(HeaderName, HeaderValueSource)>, DestinationSpecError> {
        let mut texts: Vec<(HeaderName, HeaderValueSource)> =
            Vec::with_capacity(self.headers.len());
        for (text, value) in &self.headers {
            let invalid = |why| DestinationSpecError::Header(text.clone(), why);
            let name: HeaderName = text.parse().map_err(|_| invalid("the name is not valid"))?;
            if RESERVED.contains(&name.as_str()) {
                return Err(invalid("it is set by the gateway"));
            }
            if texts.iter().any(|(other, _)| *other == name) {
                return Err(invalid("it is given twice"));
            }
            if name == AUTHORIZATION && self.auth.is_some() {
                return Err(AuthSpecError::HeaderToo.into());
            }
            let secret = value.resolve(env)?;
            let value = HeaderValueSource::read(value, secret.expose())
                .map_err(|error| DestinationSpecError::HeaderValue(text.clone(), error))?;
            texts.push((name, value));
        }
        Ok(texts)
    }

    fn sign_as(
        &self,
        headers: &[(HeaderName, HeaderValueSource)],
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<ProviderSigner>, DestinationSpecError> {
        let Some(spec) = &self.sign_as else { return Ok(None) };
        let sign_as = spec.build(&self.url, env)?;
        if let Some((name, _)) = headers.iter().find(|(name, _)| sign_as.sets(name)) {
            return Err(SignAsSpecError::Twice(name.to_string(), "headers").into());
        }
        let ours = HeaderName::from_static("webhook-signature");
        if !self.signing_secrets.is_empty() && sign_as.sets(&ours) {
            return Err(SignAsSpecError::Twice(ours.to_string(), "signing_secrets").into());
        }
        Ok(Some(sign_as))
    }

    fn auth(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<AuthConfig>, DestinationSpecError> {
        Ok(self.auth.as_ref().map(|auth| auth.build(env)).transpose()?)
    }

    fn proxy(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Proxy>, DestinationSpecError> {
        let Some(proxy) = &self.proxy else { return Ok(None) };
        let url = proxy.resolve(env).map_err(ProxySpecError::Secret)?;
        let url = std::str::from_utf8(url.expose()).map_err(|_| ProxySpecError::Syntax)?;
        Ok(Some(Proxy::parse(url)?))
    }

    fn signing(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<SigningSecret>, DestinationSpecError> {
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
