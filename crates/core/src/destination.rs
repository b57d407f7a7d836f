//! Destinations: where events are delivered, with their limits and secrets.
//!
//! [`DestinationSpec`] is the JSON of the API and the settings file, [`Destination`] the checked value.
//! How responses are classified is in [`mod@crate::delivery`].

pub mod auth;
pub mod email;
pub mod exec;
pub mod header;
pub mod kind;
pub mod listen;
pub mod oauth2;
pub mod receivers;
pub mod sign_as;
pub mod status_source;
pub mod stream;
pub mod tls;

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderName, Uri, header::AUTHORIZATION};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_guard::{
    address::{DestinationUrlError, check_url},
    proxy::{Proxy, ProxySpecError},
};
use surehook_messaging::{
    send_limits::SendLimits,
    sender::{AccountSpec, MessageSender, SendingSpec, SendingSpecError},
};
use surehook_retry::{
    RetryPolicy, RetrySpec, RetrySpecError, RetryTerms, STATUS_RULES_MAX, StatusRule,
    StatusRuleError, StatusRules,
    circuit::{CircuitSpec, CircuitSpecError},
    rate::Rate,
};
use surehook_types::{
    ids::DestinationId,
    name::Name,
    object,
    secret::{Env, SecretError, SecretRef},
    time::HumanDuration,
};
use surehook_webhooks::{
    key::ParseKeyRuleError,
    sign::{ParseSigningSecretError, SigningSecret},
};
use url::Url;

use self::{
    auth::{AuthConfig, AuthSpec, AuthSpecError},
    email::{EmailSpec, EmailSpecError, Mailbox},
    exec::{ExecConfig, ExecSpec, ExecSpecError},
    header::{HeaderTemplateError, HeaderValueSource},
    kind::{DestinationFamily, DestinationKind},
    listen::{ListenConfig, ListenSpec, ListenSpecError},
    sign_as::{ProviderSigner, SignAsSpec, SignAsSpecError},
    stream::{RedisStream, StreamSpec, StreamSpecError},
    tls::{TlsConfig, TlsSpec, TlsSpecError},
};
use crate::{
    alert::message::{AlertChannel, AlertChannelSpec, AlertChannelSpecError},
    lane::{LaneConfig, OrderingSpec, SHARDS_MAX, Shard},
};

/// URL of the built-in inbox, which accepts everything and shows the latest deliveries.
pub const BUILTIN_INBOX: &str = "builtin:inbox";

/// Default timeout of one attempt.
pub const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DestinationSpec {
    pub name: Name,
    #[serde(default, skip_serializing_if = "DestinationKind::is_default")]
    pub kind: DestinationKind,
    /// URL to which events are posted: `http://…`, `https://…`, or `builtin:inbox`. For the kind `origin`:
    /// scheme, host and port. For a messaging
    /// destination: the base URL of the service, if it has no fixed one. For a stream:
    /// `redis://host:6379/0`, `rediss://…`, or `env:NAME` of a variable with the URL. For mail:
    /// `smtp://host:587` or `smtps://host:465`. Secret query
    /// parameters, and tokens in the path (Slack, Discord …), are shown as `•••`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Account that messages are sent from.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub account: Option<AccountSpec>,
    /// Sending limits and policies for messages.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub sending: Option<Box<SendingSpec>>,
    /// Program to run, for the kind `exec`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub exec: Option<Box<ExecSpec>>,
    /// Stream to append to, for the kind `redis-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub stream: Option<Box<StreamSpec>>,
    /// What happens without a listener, for the kind `listen`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub listen: Option<ListenSpec>,
    /// Sender and recipients, for the kind `email`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub email: Option<Box<EmailSpec>>,
    /// Makes it an alert channel: it gets messages about alerts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub alerts: Option<Box<AlertChannelSpec>>,
    /// Retry policy.
    #[serde(default)]
    pub retry: RetrySpec,
    /// Concurrent attempts, 1 to 1024.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: u32,
    /// Lanes that share the deliveries, so that several nodes can deliver at once, 1 to 64. Each has its
    /// part of `concurrency` and `rate`.
    #[serde(default = "default_shards", skip_serializing_if = "is_default_shards")]
    #[schemars(range(min = 1, max = SHARDS_MAX))]
    pub shards: u16,
    /// Rate limit of attempts, such as `50/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Delay before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
    /// Ordered delivery: which deliveries are sent one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub order: Option<OrderingSpec>,
    /// Circuit breaker after repeated failures, or `off`.
    #[serde(default, skip_serializing_if = "is_default_circuit")]
    pub circuit: CircuitSpec,
    /// Pauses the destination after this many `config` failures in a row; 0 disables it.
    #[serde(default = "default_pause_after")]
    pub pause_after_config_failures: u32,
    /// Timeout of one attempt. The default `30s` stands for the timeout of the kind, which is longer for
    /// messaging services.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// Headers to add to each request. A value may contain placeholders such as `{{event.id}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, SecretRef>,
    /// Secrets (`whsec_…`) for Standard Webhooks signatures; several during rotation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signing_secrets: Vec<SecretRef>,
    /// Signs each request in the format of a provider.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub sign_as: Option<SignAsSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Box<AuthSpec>>,
    /// Proxy: `http://…`, `socks5://…` or `socks5h://…`, optionally with user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<SecretRef>,
    /// Trusted certificates and client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub tls: Option<Box<TlsSpec>>,
    /// Name of a destination of kind `http` that gets a report of each delivery that dies here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_dead: Option<Name>,
    /// Status rules that take precedence over the default classification; the first match decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::each")]
    #[schemars(length(max = STATUS_RULES_MAX))]
    pub rules: Vec<StatusRule>,
}

fn default_concurrency() -> u32 {
    32
}

fn default_shards() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_default_shards(shards: &u16) -> bool {
    *shards == default_shards()
}

fn default_pause_after() -> u32 {
    5
}

fn is_default_circuit(circuit: &CircuitSpec) -> bool {
    *circuit == CircuitSpec::default()
}

fn default_timeout() -> HumanDuration {
    HumanDuration(TIMEOUT)
}

/// Why the settings of a destination are invalid.
#[derive(Debug, thiserror::Error)]
pub enum DestinationSpecError {
    #[error("`url` is missing; set it to http://… or https://…")]
    NoUrl,
    #[error("url: a destination of kind origin stands for all paths; remove the path")]
    OriginWithPath,
    #[error("url: {0}")]
    UrlSyntax(#[from] url::ParseError),
    #[error("url: {0}")]
    Url(#[from] DestinationUrlError),
    #[error("{0}")]
    Retry(#[from] RetrySpecError),
    #[error("concurrency must be between 1 and 1024")]
    Concurrency,
    #[error("shards must be between 1 and {SHARDS_MAX}")]
    Shards,
    #[error(
        "shards: each needs its part of {0}, and {1} cannot be divided among {2}; use at most {1} shards, or raise {0}"
    )]
    ShardsBeyond(&'static str, u32, u16),
    #[error("delay must be at most 30d")]
    Delay,
    #[error("order: {0}")]
    Order(#[from] ParseKeyRuleError),
    #[error("{0}")]
    Circuit(#[from] CircuitSpecError),
    #[error("timeout must be between 100ms and 10m")]
    Timeout,
    #[error("headers: `{0}` cannot be set: {1}")]
    Header(String, &'static str),
    #[error("headers: `{0}`: {1}")]
    HeaderValue(String, #[source] HeaderTemplateError),
    #[error("sign_as: {0}")]
    SignAs(#[from] SignAsSpecError),
    #[error("auth: {0}")]
    Auth(#[from] AuthSpecError),
    #[error("proxy: {0}")]
    Proxy(#[from] ProxySpecError),
    #[error("tls: {0}")]
    Tls(#[from] TlsSpecError),
    #[error("rules: {0}")]
    Rules(#[from] StatusRuleError),
    #[error("`{0}` has no effect on {BUILTIN_INBOX}; remove it")]
    NotForInbox(&'static str),
    #[error("`{0}` is not supported by destinations of kind {1}; remove it")]
    NotForKind(&'static str, &'static str),
    #[error("`{0}` is missing; destinations of kind {1} need it")]
    Missing(&'static str, &'static str),
    #[error("exec: {0}")]
    Exec(#[from] ExecSpecError),
    #[error("{0}")]
    Stream(#[from] StreamSpecError),
    #[error("listen: {0}")]
    Listen(#[from] ListenSpecError),
    #[error("{0}")]
    Email(#[from] EmailSpecError),
    #[error("alerts: {0}")]
    Alerts(#[from] AlertChannelSpecError),
    #[error("{0}")]
    Sending(#[from] SendingSpecError),
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("signing_secrets: {0}")]
    Signing(#[from] ParseSigningSecretError),
}

/// How a destination is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    Http(Uri),
    /// All URLs of an origin; the request names the path.
    Origin(Uri),
    /// The built-in inbox.
    Inbox,
    /// A messaging service.
    Channel(Box<MessageSender>),
    /// A program on this machine.
    Exec(Box<ExecConfig>),
    RedisStream(Box<RedisStream>),
    /// Programs that ask for their deliveries.
    Listen(ListenConfig),
    Email(Box<Mailbox>),
}

/// A checked destination.
#[derive(Debug)]
pub struct Destination {
    pub id: DestinationId,
    pub name: Name,
    pub transport: Transport,
    pub retry: RetryPolicy,
    /// Concurrent attempts.
    pub concurrency: u32,
    /// How many lanes share its deliveries.
    pub shards: u16,
    pub lane: LaneConfig,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Headers to add to each request.
    pub headers: Vec<(HeaderName, HeaderValueSource)>,
    /// Standard Webhooks secrets.
    pub signing: Vec<SigningSecret>,
    pub sign_as: Option<ProviderSigner>,
    pub auth: Option<AuthConfig>,
    pub proxy: Option<Proxy>,
    pub tls: Option<TlsConfig>,
    /// Status rules before the default classification.
    pub rules: StatusRules,
    /// If it is an alert channel.
    pub alerts: Option<AlertChannel>,
}

impl Destination {
    /// The message sender, if this is a messaging destination.
    pub fn sender(&self) -> Option<&MessageSender> {
        if let Transport::Channel(sender) = &self.transport { Some(sender) } else { None }
    }

    /// The destination as one of its lanes sees it: with its part of the limits.
    #[must_use]
    pub fn for_shard(mut self, shard: Shard) -> Self {
        self.concurrency = shard.share().part_of(self.concurrency);
        self.lane.shard = shard;
        self
    }

    /// The policies that decide about retries.
    pub fn terms(&self) -> RetryTerms<'_> {
        RetryTerms { retry: &self.retry, rules: &self.rules }
    }
}

/// Longest delay before the first attempt.
const DELAY_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Headers that the gateway sets itself or that belong to one connection.
pub(crate) const RESERVED_HEADERS: [&str; 13] = [
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
    /// The default settings, without a URL.
    pub fn named(name: Name) -> Self {
        Self {
            name,
            kind: DestinationKind::default(),
            url: String::new(),
            account: None,
            sending: None,
            exec: None,
            stream: None,
            listen: None,
            email: None,
            alerts: None,
            retry: RetrySpec::default(),
            concurrency: default_concurrency(),
            shards: default_shards(),
            rate: None,
            delay: None,
            order: None,
            circuit: CircuitSpec::default(),
            pause_after_config_failures: default_pause_after(),
            timeout: default_timeout(),
            headers: BTreeMap::new(),
            signing_secrets: Vec::new(),
            sign_as: None,
            auth: None,
            proxy: None,
            tls: None,
            on_dead: None,
            rules: Vec::new(),
        }
    }

    /// Checks the settings and resolves secrets through `env`.
    pub fn build(
        &self,
        id: DestinationId,
        env: Env<'_>,
    ) -> Result<Destination, DestinationSpecError> {
        self.check_inbox()?;
        self.check_kind()?;
        if !(1..=1024).contains(&self.concurrency) {
            return Err(DestinationSpecError::Concurrency);
        }
        self.check_shards()?;
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&self.timeout.0) {
            return Err(DestinationSpecError::Timeout);
        }
        let headers = self.build_headers(env)?;
        Ok(Destination {
            id,
            name: self.name.clone(),
            transport: self.build_transport(env)?,
            retry: self.retry.build()?,
            concurrency: self.concurrency,
            shards: self.shards,
            lane: self.lane()?,
            timeout: self.timeout.0,
            sign_as: self.build_signer(&headers, env)?,
            headers,
            signing: self.build_signing_secrets(env)?,
            auth: self.auth.as_ref().map(|auth| auth.build(env)).transpose()?,
            proxy: self.build_proxy(env)?,
            tls: self.tls.as_ref().map(|tls| tls.build(env)).transpose()?,
            rules: StatusRules::new(&self.rules)?,
            alerts: self.build_alerts()?,
        })
    }

    /// The sending limits; `None` if the destination sends no messages or the settings are invalid.
    pub fn limits(&self) -> Option<SendLimits> {
        let channel = self.kind.channel()?;
        let default = SendingSpec::default();
        SendLimits::new(channel, self.sending.as_deref().unwrap_or(&default)).ok()
    }

    /// The rules of the lane.
    pub fn lane(&self) -> Result<LaneConfig, DestinationSpecError> {
        let delay = self.delay.map_or(Duration::ZERO, |span| span.0);
        if delay > DELAY_MAX {
            return Err(DestinationSpecError::Delay);
        }
        Ok(LaneConfig {
            shard: Shard::WHOLE,
            rate: self.rate.or_else(|| self.kind.channel()?.pacing().per_number),
            delay,
            order: self.order.as_ref().map(OrderingSpec::build).transpose()?,
            circuit: self.circuit.build()?,
            pause_after: self.pause_after_config_failures,
        })
    }

    /// A lane without a part of a limit could start nothing, or would exceed the limit.
    fn check_shards(&self) -> Result<(), DestinationSpecError> {
        let shards = self.shards;
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(DestinationSpecError::Shards);
        }
        if shards > 1 && !self.kind.can_have_shards() {
            return Err(DestinationSpecError::NotForKind("shards", self.kind.as_str()));
        }
        let burst = self.rate.map(|rate| ("the burst of `rate`", rate.burst()));
        let limits = [Some(("`concurrency`", self.concurrency)), burst];
        match limits.into_iter().flatten().find(|(_, limit)| *limit < u32::from(shards)) {
            Some((name, limit)) => Err(DestinationSpecError::ShardsBeyond(name, limit, shards)),
            None => Ok(()),
        }
    }

    fn build_transport(&self, env: Env<'_>) -> Result<Transport, DestinationSpecError> {
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
            (DestinationFamily::Listener, _) => {
                Ok(Transport::Listen(self.listen.unwrap_or_default().build()?))
            }
            (DestinationFamily::Mail, _) => {
                let email = self.email.as_ref().ok_or_else(|| missing("email"))?;
                let mailbox = email.build(&self.url, self.auth.as_deref(), env)?;
                Ok(Transport::Email(Box::new(mailbox)))
            }
            (_, Some(channel)) => {
                let default = SendingSpec::default();
                let sending = self.sending.as_deref().unwrap_or(&default);
                let account = self.account.as_ref();
                let sender = MessageSender::build(channel, &self.url, account, sending, env)?;
                Ok(Transport::Channel(Box::new(sender)))
            }
            (_, None) => self.build_http(),
        }
    }

    fn build_alerts(&self) -> Result<Option<AlertChannel>, AlertChannelSpecError> {
        self.alerts.as_ref().map(|alerts| alerts.build(self.kind, &self.url)).transpose()
    }

    fn build_http(&self) -> Result<Transport, DestinationSpecError> {
        let is_origin = self.kind == DestinationKind::Origin;
        if self.url == BUILTIN_INBOX && !is_origin {
            return Ok(Transport::Inbox);
        }
        if self.url.is_empty() {
            return Err(DestinationSpecError::NoUrl);
        }
        let url = Url::parse(&self.url)?;
        check_url(&url)?;
        // A checked URL is ASCII, so the stricter parser accepts it too.
        let uri = Uri::try_from(url.as_str()).map_err(|_| url::ParseError::IdnaError)?;
        if is_origin && (url.path() != "/" || url.query().is_some()) {
            return Err(DestinationSpecError::OriginWithPath);
        }
        Ok(if is_origin { Transport::Origin(uri) } else { Transport::Http(uri) })
    }

    /// Rejects connection settings of the inbox, which is not called over the network.
    fn check_inbox(&self) -> Result<(), DestinationSpecError> {
        let fields = [
            ("auth", self.auth.is_some()),
            ("proxy", self.proxy.is_some()),
            ("tls", self.tls.is_some()),
        ];
        match fields.into_iter().find(|(_, is_set)| *is_set && self.url == BUILTIN_INBOX) {
            Some((field, _)) => Err(DestinationSpecError::NotForInbox(field)),
            None => Ok(()),
        }
    }

    /// Rejects settings of other kinds, which would silently have no effect.
    fn check_kind(&self) -> Result<(), DestinationSpecError> {
        use DestinationFamily::{Channel, Listener, Mail, Program, Stream, Webhook};
        let fields: [(_, _, &[DestinationFamily]); 14] = [
            ("url", !self.url.is_empty(), &[Webhook, Channel, Stream, Mail]),
            ("account", self.account.is_some(), &[Channel]),
            ("sending", self.sending.is_some(), &[Channel]),
            ("exec", self.exec.is_some(), &[Program]),
            ("stream", self.stream.is_some(), &[Stream]),
            ("listen", self.listen.is_some(), &[Listener]),
            ("headers", !self.headers.is_empty(), &[Webhook, Listener]),
            ("signing_secrets", !self.signing_secrets.is_empty(), &[Webhook, Listener]),
            ("sign_as", self.sign_as.is_some(), &[Webhook]),
            ("rules", !self.rules.is_empty(), &[Webhook, Listener]),
            ("email", self.email.is_some(), &[Mail]),
            ("auth", self.auth.is_some(), &[Webhook, Stream, Mail]),
            ("proxy", self.proxy.is_some(), &[Webhook, Channel]),
            ("tls", self.tls.is_some(), &[Webhook, Channel, Stream, Mail]),
        ];
        let family = self.kind.family();
        match fields.iter().find(|(_, is_set, families)| *is_set && !families.contains(&family)) {
            Some((field, ..)) => Err(DestinationSpecError::NotForKind(field, self.kind.as_str())),
            None => Ok(()),
        }
    }

    fn build_headers(
        &self,
        env: Env<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValueSource)>, DestinationSpecError> {
        let mut headers: Vec<(HeaderName, HeaderValueSource)> =
            Vec::with_capacity(self.headers.len());
        for (text, value) in &self.headers {
            let invalid = |reason| DestinationSpecError::Header(text.clone(), reason);
            let name: HeaderName = text.parse().map_err(|_| invalid("the name is invalid"))?;
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(invalid("it is set by the gateway"));
            }
            if headers.iter().any(|(other, _)| *other == name) {
                return Err(invalid("it is given twice"));
            }
            if name == AUTHORIZATION && self.auth.is_some() {
                return Err(AuthSpecError::HeaderConflict.into());
            }
            let secret = value.resolve(env)?;
            let value = HeaderValueSource::parse(value, secret.expose())
                .map_err(|error| DestinationSpecError::HeaderValue(text.clone(), error))?;
            headers.push((name, value));
        }
        Ok(headers)
    }

    fn build_signer(
        &self,
        headers: &[(HeaderName, HeaderValueSource)],
        env: Env<'_>,
    ) -> Result<Option<ProviderSigner>, DestinationSpecError> {
        let Some(spec) = &self.sign_as else { return Ok(None) };
        let signer = spec.build(&self.url, env)?;
        if let Some((name, _)) = headers.iter().find(|(name, _)| signer.sets(name)) {
            return Err(SignAsSpecError::Twice(name.to_string(), "headers").into());
        }
        let standard = HeaderName::from_static("webhook-signature");
        if !self.signing_secrets.is_empty() && signer.sets(&standard) {
            return Err(SignAsSpecError::Twice(standard.to_string(), "signing_secrets").into());
        }
        Ok(Some(signer))
    }

    fn build_proxy(&self, env: Env<'_>) -> Result<Option<Proxy>, DestinationSpecError> {
        let Some(proxy) = &self.proxy else { return Ok(None) };
        let url = proxy.resolve(env).map_err(ProxySpecError::Secret)?;
        let url = std::str::from_utf8(url.expose()).map_err(|_| ProxySpecError::Syntax)?;
        Ok(Some(Proxy::parse(url)?))
    }

    fn build_signing_secrets(
        &self,
        env: Env<'_>,
    ) -> Result<Vec<SigningSecret>, DestinationSpecError> {
        self.signing_secrets
            .iter()
            .map(|secret| {
                let secret = secret.resolve(env)?;
                // A secret that is not UTF-8 fails to parse, because `whsec_` is missing.
                Ok(String::from_utf8_lossy(secret.expose()).parse()?)
            })
            .collect()
    }
}
