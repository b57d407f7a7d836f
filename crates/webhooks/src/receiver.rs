//! Receives the webhooks of one provider: method, handshake, signature, events, keys.
//!
//! [`Receiver::accept`] is the whole way from a raw request to its events. It does no I/O and reads no
//! clock. What must hold: nothing of a request is parsed before its signature is verified, and a
//! [`Rejection`] carries the status at which the provider does what helps most, which is usually to
//! retry.

use std::{cell::LazyCell, fmt, marker::PhantomData, sync::Arc, time::Duration};
#[cfg(feature = "axum")]
use std::{pin::Pin, time::SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
#[cfg(feature = "axum")]
use rustls_pki_types::TrustAnchor;
use serde::{Serialize, de::DeserializeOwned};
use surehook_types::{inflate::DecodedRequest, secret::Secret, time::Timestamp};
use url::Url;

use crate::{
    attribute::{Attributes, EventKind},
    key::{DedupKey, KeyError, KeyRules, ParseKeyRuleError, signed_bytes_key},
    provider::{
        self, BODY_BYTES_CEILING, EventPart, HandshakeRequest, ParsedRequest, Preset, Provider,
        ProviderReply, RefusalPolicy, preset_names,
    },
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        CertificateChain, SignError, VerifiedRequest, Verifier, VerifyError, VerifySpec,
        VerifySpecError,
    },
};

/// Largest body, unless the provider sends larger ones or the builder sets another limit.
const BODY_BYTES_MAX: usize = 1 << 20;
/// When a sender should retry after 503.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Stands for a preset that is chosen by its name at run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyProvider;

/// Receives the webhooks of one provider. Cheap to clone.
///
/// `P` is the preset, so that a program with several providers cannot confuse their receivers.
pub struct Receiver<P = AnyProvider> {
    config: Arc<ReceiverConfig>,
    preset: PhantomData<fn() -> P>,
}

struct ReceiverConfig {
    provider: &'static Provider,
    verifier: Verifier,
    secrets: Vec<Secret>,
    verify_token: Option<Secret>,
    keys: KeyRules,
    reads_unsigned_keys: bool,
    /// Without a trailing slash.
    public_url: Option<String>,
    /// Without a trailing slash.
    path: Option<String>,
    max_body_bytes: usize,
    dedup_window: Duration,
    #[cfg(feature = "axum")]
    runtime: RuntimeConfig,
}

/// The certificates and the clock of [`Receiver::receive`].
#[cfg(feature = "axum")]
#[derive(Default)]
struct RuntimeConfig {
    certificates: Option<CertificateSource>,
    clock: Option<Box<dyn Fn() -> SystemTime + Send + Sync>>,
}

#[cfg(feature = "axum")]
impl RuntimeConfig {
    fn now(&self) -> SystemTime {
        #[expect(clippy::disallowed_methods, reason = "the clock of a program that sets no other")]
        self.clock.as_ref().map_or_else(SystemTime::now, |clock| clock())
    }
}

#[cfg(feature = "axum")]
type CertificateFuture = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;

#[cfg(feature = "axum")]
struct CertificateSource {
    roots: Vec<TrustAnchor<'static>>,
    fetch: Box<dyn Fn(Url) -> CertificateFuture + Send + Sync>,
}

/// The settings of a [`Receiver`].
#[must_use]
pub struct ReceiverBuilder<P = AnyProvider> {
    provider: Result<&'static Provider, String>,
    secrets: Vec<Secret>,
    verify_token: Option<Secret>,
    verify: Option<VerifySpec>,
    keys: Option<Vec<String>>,
    public_url: Option<String>,
    path: Option<String>,
    max_body_bytes: Option<usize>,
    #[cfg(feature = "axum")]
    runtime: RuntimeConfig,
    preset: PhantomData<fn() -> P>,
}

/// Why a [`Receiver`] cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiverBuildError {
    /// No preset has this name.
    #[error("unknown provider `{0}`; available: {known}", known = preset_names().join(", "))]
    UnknownProvider(String),
    /// Without a secret nothing can be verified.
    #[error(
        "{0} signs its webhooks; set the secret with `secret`, or accept unsigned requests with `verify(VerifySpec::None)`"
    )]
    SecretMissing(&'static str),
    /// Anyone could sign with an empty secret. Often an environment variable that is not set.
    #[error("the secret or the verify token is empty; check where it comes from")]
    EmptySecret,
    /// The preset has no signature of its own.
    #[error("the preset `{0}` has no default verification; set it with `verify`")]
    VerifyMissing(&'static str),
    /// The verification or a secret is invalid.
    #[error("{0}")]
    Verify(#[from] VerifySpecError),
    /// A key rule is invalid.
    #[error("keys: {0}")]
    Keys(#[from] ParseKeyRuleError),
    /// The signature covers the URL.
    #[error("{0} signs the URL that it calls; set it with `public_url`")]
    PublicUrlMissing(&'static str),
    /// The URL has the wrong form.
    #[error(
        "`{0}` is not the URL of a webhook; write https://host/path without query and fragment"
    )]
    InvalidPublicUrl(String),
    /// Zero, or more than 25 MiB.
    #[error("max_body_bytes must be between 1 and {BODY_BYTES_CEILING}")]
    BodyLimit,
}

impl Receiver<AnyProvider> {
    /// Starts a receiver for the preset with this name, such as `stripe`; see
    /// [`preset_names`].
    pub fn for_provider(name: &str) -> ReceiverBuilder<AnyProvider> {
        ReceiverBuilder::new(provider::find(name).ok_or_else(|| name.to_owned()))
    }
}

impl<P: Preset> Receiver<P> {
    /// Starts a receiver for a preset of [`crate::preset`].
    pub fn of(_: P) -> ReceiverBuilder<P> {
        ReceiverBuilder::new(Ok(P::provider()))
    }
}

impl<P> ReceiverBuilder<P> {
    fn new(provider: Result<&'static Provider, String>) -> Self {
        Self {
            provider,
            secrets: Vec::new(),
            verify_token: None,
            verify: None,
            keys: None,
            public_url: None,
            path: None,
            max_body_bytes: None,
            #[cfg(feature = "axum")]
            runtime: RuntimeConfig::default(),
            preset: PhantomData,
        }
    }

    /// The secret that the provider signs with, as the provider shows it. Call it again for the previous
    /// secret during a rotation.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secrets.push(Secret::new(secret));
        self
    }

    /// The token of the provider's GET handshake (`hub.verify_token` of Meta).
    pub fn verify_token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.verify_token = Some(Secret::new(token));
        self
    }

    /// Replaces the provider's verification. Required for the preset `generic`.
    pub fn verify(mut self, verify: VerifySpec) -> Self {
        self.verify = Some(verify);
        self
    }

    /// Replaces the provider's rules for the dedup key by these, of which the first that finds one counts:
    /// `header:NAME`, `pointer:/a/b` or `jq:EXPRESSION`.
    pub fn keys<T: Into<String>>(mut self, rules: impl IntoIterator<Item = T>) -> Self {
        self.keys = Some(rules.into_iter().map(Into::into).collect());
        self
    }

    /// The URL as entered at the provider, for signatures that cover it. Headers such as `Host` are not
    /// trusted.
    pub fn public_url(mut self, url: impl Into<String>) -> Self {
        self.public_url = Some(url.into());
        self
    }

    /// The path at which requests arrive, for providers that can carry the secret in the path after it.
    /// The path of the public URL when left out.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The largest body. 1 MiB when left out, or more if the provider sends more.
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = Some(bytes);
        self
    }

    /// Sets how [`Receiver::receive`] gets the certificates that `PayPal` signs with. `fetch` gets a URL of
    /// `PayPal` and returns the PEM file; keep it for a day, it rarely changes. `roots` are the authorities
    /// to trust, for instance those of `webpki-roots`.
    #[cfg(feature = "axum")]
    pub fn certificates<F>(
        mut self,
        roots: Vec<TrustAnchor<'static>>,
        fetch: impl Fn(Url) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Bytes, String>> + Send + 'static,
    {
        let fetch = Box::new(move |url| -> CertificateFuture { Box::pin(fetch(url)) });
        self.runtime.certificates = Some(CertificateSource { roots, fetch });
        self
    }

    /// The clock of [`Receiver::receive`], instead of that of the system: for tests with recorded requests,
    /// whose signatures are old.
    #[cfg(feature = "axum")]
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.runtime.clock = Some(Box::new(clock));
        self
    }

    /// Checks the settings.
    pub fn build(self) -> Result<Receiver<P>, ReceiverBuildError> {
        let provider = self.provider.map_err(ReceiverBuildError::UnknownProvider)?;
        let mut all_secrets = self.secrets.iter().chain(&self.verify_token);
        if all_secrets.any(|secret| secret.expose().trim_ascii().is_empty()) {
            return Err(ReceiverBuildError::EmptySecret);
        }
        let secrets = self.secrets.clone();
        let verifier = match &self.verify {
            Some(verify) => Verifier::new(verify, secrets)?,
            None if provider.name == GENERIC => {
                return Err(ReceiverBuildError::VerifyMissing(provider.name));
            }
            None if secrets.is_empty() => {
                return Err(ReceiverBuildError::SecretMissing(provider.name));
            }
            None => provider.verifier(secrets)?,
        };
        let public_url = self.public_url.map(|url| parse_public_url(&url)).transpose()?;
        if verifier.covers_url() && public_url.is_none() {
            return Err(ReceiverBuildError::PublicUrlMissing(provider.name));
        }
        let limit = self.max_body_bytes.or(provider.max_body_bytes).unwrap_or(BODY_BYTES_MAX);
        if !(1..=BODY_BYTES_CEILING).contains(&limit) {
            return Err(ReceiverBuildError::BodyLimit);
        }
        let keys = KeyRules::for_provider(self.keys.as_deref(), provider, &verifier)?;
        let path = self.path.or_else(|| public_url.as_ref().map(|url| url.path().to_owned()));
        let without_slash = |text: String| text.trim_end_matches('/').to_owned();
        let config = ReceiverConfig {
            provider,
            reads_unsigned_keys: keys.has_unsigned_header_rule(&verifier),
            dedup_window: provider.dedup_window.0.max(verifier.max_age().unwrap_or_default()),
            verifier,
            secrets: self.secrets,
            verify_token: self.verify_token,
            keys,
            public_url: public_url.map(|url| without_slash(url.into())),
            path: path.map(without_slash),
            max_body_bytes: limit,
            #[cfg(feature = "axum")]
            runtime: self.runtime,
        };
        Ok(Receiver { config: Arc::new(config), preset: PhantomData })
    }
}

const GENERIC: &str = "generic";

fn parse_public_url(text: &str) -> Result<Url, ReceiverBuildError> {
    let is_valid = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.query().is_none()
            && url.fragment().is_none()
    };
    let invalid = || ReceiverBuildError::InvalidPublicUrl(text.to_owned());
    Url::parse(text).ok().filter(is_valid).ok_or_else(invalid)
}

/// The content of a request that was not rejected.
#[derive(Clone, Debug)]
pub enum WebhookRequest {
    /// The provider checks the URL. Send this reply; there are no events.
    Handshake(ProviderReply),
    /// Events to process.
    Webhook(AcceptedWebhook),
}

/// A verified webhook.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcceptedWebhook {
    /// The events in the order of the request; some providers send several at once, or none.
    pub events: Vec<WebhookEvent>,
    /// How the request was verified, and with which secret.
    pub verified: VerifiedRequest,
    /// The reply that this provider expects after success: status 200, and a body where it needs one.
    pub reply: ProviderReply,
    /// The body, byte for byte as received.
    pub raw_body: Bytes,
}

/// One event of a webhook.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WebhookEvent {
    /// The event type, as the provider names it.
    pub kind: Option<EventKind>,
    /// The same at every retry of the provider and different for every other event of the provider.
    /// `None` if the event has no id. Remember it for [`Receiver::dedup_window`].
    pub key: Option<DedupKey>,
    /// Set if the signature does not cover `key`, so that a captured request could be sent again under
    /// another one. Remember it too and skip events whose `replay_key` is known.
    pub replay_key: Option<DedupKey>,
    /// Events with the same one belong in order, such as messages of one conversation.
    pub ordering_key: Option<DedupKey>,
    /// Ids, phone numbers and addresses in the event.
    pub attributes: Attributes,
    /// The body of this event alone, in the provider's format, decompressed.
    pub body: Bytes,
    /// A test by the provider, such as the `ping` of GitHub.
    pub is_ping: bool,
}

impl WebhookEvent {
    /// The event type as text; empty if the provider names none.
    pub fn kind(&self) -> &str {
        self.kind.as_ref().map_or("", EventKind::as_str)
    }

    /// Parses the body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// A request that must not be processed, and the status to answer it with.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Rejection {
    #[source]
    reason: RejectionReason,
    status: StatusCode,
}

/// Why a request is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RejectionReason {
    /// Neither POST nor a handshake.
    #[error("Method not allowed. Use POST.")]
    MethodNotAllowed,
    /// The body is larger than the limit.
    #[error("The body is larger than {limit} bytes.")]
    BodyTooLarge {
        /// The limit.
        limit: usize,
    },
    /// The body could not be read to its end.
    #[error("The body could not be read: {0}")]
    BodyUnreadable(String),
    /// The signature is missing, wrong or too old.
    #[error("The request could not be verified: {0}")]
    NotVerified(VerifyError),
    /// The handshake has the wrong token, or is malformed.
    #[error("The handshake could not be verified: {0}")]
    Handshake(VerifyError),
    /// Fetch this certificate and call [`Receiver::accept_with_certificate`].
    #[error("The certificate of the signature is not available: {0}")]
    CertificateRequired(Url),
    /// The certificate could not be fetched.
    #[error("The certificate of the signature could not be fetched: {0}")]
    CertificateUnavailable(String),
    /// The request has more than one key.
    #[error("The key of the event is ambiguous: {0}")]
    Key(KeyError),
}

impl RejectionReason {
    fn status(&self) -> StatusCode {
        match self {
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyUnreadable(_) | Self::Key(_) => StatusCode::BAD_REQUEST,
            Self::NotVerified(_) => StatusCode::UNAUTHORIZED,
            Self::Handshake(_) => StatusCode::FORBIDDEN,
            Self::CertificateRequired(_) | Self::CertificateUnavailable(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::MethodNotAllowed => "method_not_allowed",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::BodyUnreadable(_) => "bad_body",
            Self::NotVerified(error) | Self::Handshake(error) => error.code(),
            Self::CertificateRequired(_) | Self::CertificateUnavailable(_) => {
                "certificate_unavailable"
            }
            Self::Key(_) => "repeated_key",
        }
    }
}

/// The body of a [`Rejection`] (RFC 9457).
#[derive(Serialize)]
struct RejectionBody<'a> {
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: String,
}

impl Rejection {
    /// The rejection with the status for this provider: some give up for good after 4xx, although the
    /// cause may be a wrong setting here, so they get 503 and retry.
    pub(crate) fn new(provider: &Provider, reason: RejectionReason) -> Self {
        let status = match (provider.on_refusal, reason.status()) {
            (
                RefusalPolicy::Quarantine,
                StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN,
            ) => StatusCode::SERVICE_UNAVAILABLE,
            (_, status) => status,
        };
        Self { reason, status }
    }

    /// Why the request is rejected.
    pub fn reason(&self) -> &RejectionReason {
        &self.reason
    }

    /// The status to answer with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// A stable code for logs and metrics, such as `mismatch` or `stale`.
    pub fn code(&self) -> &'static str {
        self.reason.code()
    }

    /// The complete answer, with a problem document (RFC 9457) as its body.
    pub fn to_response(&self) -> Response<Bytes> {
        let problem = RejectionBody {
            title: self.status.canonical_reason().unwrap_or("Problem"),
            status: self.status.as_u16(),
            code: self.code(),
            detail: self.to_string(),
        };
        // Strings and numbers always serialize.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response =
            build_response(self.status, Some("application/problem+json"), body.into());
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}

fn build_response(
    status: StatusCode,
    content_type: Option<&'static str>,
    body: Bytes,
) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

impl<P> Receiver<P> {
    /// The data of the preset.
    pub fn provider(&self) -> &'static Provider {
        self.config.provider
    }

    /// The largest body that is accepted. Stop reading there.
    pub fn max_body_bytes(&self) -> usize {
        self.config.max_body_bytes
    }

    /// How long to remember the keys of events: longer than the provider retries and than a signature is
    /// valid.
    pub fn dedup_window(&self) -> Duration {
        self.config.dedup_window
    }

    /// Warnings about weak settings, for the log.
    pub fn warnings(&self) -> &[String] {
        self.config.verifier.warnings()
    }

    /// Verifies a request and splits it into its events, or returns the reply to a handshake.
    pub fn accept(
        &self,
        request: &Request<Bytes>,
        now: impl Into<Timestamp>,
    ) -> Result<WebhookRequest, Rejection> {
        self.run(request, None, now.into()).map_err(|reason| self.reject(reason))
    }

    /// Like [`Self::accept`], with the certificate that [`RejectionReason::CertificateRequired`] asked for.
    pub fn accept_with_certificate(
        &self,
        request: &Request<Bytes>,
        certificate: &CertificateChain<'_>,
        now: impl Into<Timestamp>,
    ) -> Result<WebhookRequest, Rejection> {
        self.run(request, Some(certificate), now.into()).map_err(|reason| self.reject(reason))
    }

    /// Like [`Self::accept`], at the time of the clock and with the certificate that
    /// [`ReceiverBuilder::certificates`] fetches.
    #[cfg(feature = "axum")]
    pub async fn receive(&self, request: &Request<Bytes>) -> Result<WebhookRequest, Rejection> {
        let RuntimeConfig { certificates, .. } = &self.config.runtime;
        let now = self.config.runtime.now();
        let accepted = self.accept(request, now);
        let Err(Rejection { reason: RejectionReason::CertificateRequired(url), .. }) = &accepted
        else {
            return accepted;
        };
        let Some(CertificateSource { roots, fetch }) = certificates else { return accepted };
        let unavailable = |error| self.reject(RejectionReason::CertificateUnavailable(error));
        let pem = fetch(url.clone()).await.map_err(unavailable)?;
        self.accept_with_certificate(request, &CertificateChain { pem: &pem, roots }, now)
    }

    /// Signs a request like the provider, so that [`Self::accept`] accepts it: for tests, and for programs
    /// that send webhooks in the provider's format. `id` is the same at every attempt.
    pub fn sign(
        &self,
        request: &mut Request<Bytes>,
        id: &str,
        now: impl Into<Timestamp>,
    ) -> Result<(), SignError> {
        let incoming = self.incoming(request, request.body());
        let url = incoming.url().unwrap_or_else(|_| request.uri().to_string());
        let (headers, body) = (request.headers(), request.body());
        let outgoing = OutgoingRequest { id, url: &url, headers, body };
        let signature = self.config.verifier.sign(&outgoing, now.into())?;
        for (name, value) in &signature.headers {
            let value = HeaderValue::from_str(value)
                .map_err(|_| SignError("the signature is not a header value"))?;
            request.headers_mut().insert(name.clone(), value);
        }
        if signature.changes_url() {
            let uri = request.uri();
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            // A suffix of the path begins with a slash.
            let path = match signature.path.is_empty() {
                true => uri.path(),
                false => uri.path().trim_end_matches('/'),
            };
            let signed = signature.signed_url(&format!("{path}{query}"));
            let mut parts = uri.clone().into_parts();
            let unusable = |_| SignError("the signed path is not valid in a URL");
            parts.path_and_query = Some(signed.parse().map_err(unusable)?);
            *request.uri_mut() =
                parts.try_into().map_err(|_| SignError("the signed path is not valid in a URL"))?;
        }
        Ok(())
    }

    pub(crate) fn reject(&self, reason: RejectionReason) -> Rejection {
        Rejection::new(self.config.provider, reason)
    }

    fn run(
        &self,
        request: &Request<Bytes>,
        certificate: Option<&CertificateChain<'_>>,
        now: Timestamp,
    ) -> Result<WebhookRequest, RejectionReason> {
        if request.method() != Method::POST {
            return self
                .answer_handshake(request)
                .unwrap_or(Err(RejectionReason::MethodNotAllowed));
        }
        let limit = self.config.max_body_bytes;
        if request.body().len() > limit {
            return Err(RejectionReason::BodyTooLarge { limit });
        }
        let received = self.incoming(request, request.body());
        match self.verify(&received, certificate, now) {
            Ok(verified) => self.parse(request, &received, verified),
            Err(refused @ RejectionReason::NotVerified(_)) => {
                self.answer_handshake(request).unwrap_or(Err(refused))
            }
            Err(refused) => Err(refused),
        }
    }

    /// Answers the request with which the provider checks the URL; `None` if it is another one.
    fn answer_handshake(
        &self,
        request: &Request<Bytes>,
    ) -> Option<Result<WebhookRequest, RejectionReason>> {
        let ReceiverConfig { provider, verify_token, .. } = &*self.config;
        let handshake = HandshakeRequest {
            method: request.method(),
            query: request.uri().query(),
            headers: request.headers(),
            body: request.body(),
            verify_token: verify_token.as_ref(),
        };
        let answer = provider.answer_handshake(&handshake)?;
        Some(answer.map(WebhookRequest::Handshake).map_err(RejectionReason::Handshake))
    }

    fn verify(
        &self,
        received: &IncomingRequest<'_>,
        certificate: Option<&CertificateChain<'_>>,
        now: Timestamp,
    ) -> Result<VerifiedRequest, RejectionReason> {
        let verifier = &self.config.verifier;
        let url = verifier.certificate_url(received).map_err(RejectionReason::NotVerified)?;
        let verified = match (url, certificate) {
            (None, _) => verifier.verify(received, now),
            (Some(url), None) => return Err(RejectionReason::CertificateRequired(url)),
            (Some(_), Some(chain)) => verifier.verify_with_certificate(received, chain, now),
        };
        verified.map_err(RejectionReason::NotVerified)
    }

    fn parse(
        &self,
        request: &Request<Bytes>,
        received: &IncomingRequest<'_>,
        verified: VerifiedRequest,
    ) -> Result<WebhookRequest, RejectionReason> {
        let config = &*self.config;
        // The signature covers the bytes as received; the content is read decompressed.
        let decoded = DecodedRequest::new(received.headers, received.body);
        let (headers, body) = decoded.request(received.headers, received.body);
        let decoded_request = IncomingRequest { headers, body, ..*received };
        let secret = config.secrets.get(verified.secret_index);
        let parts = match config.provider.parse_request(&decoded_request, secret) {
            ParsedRequest::Handshake(reply) => return Ok(WebhookRequest::Handshake(reply)),
            ParsedRequest::Events(parts) => parts,
        };
        // A body that was not decompressed is shared, not copied.
        let decoded_body = match std::ptr::eq(body, &raw const **request.body()) {
            true => request.body().clone(),
            false => Bytes::copy_from_slice(body),
        };
        let reply = config.provider.success_reply(&decoded_request);
        let events = self.events(parts, headers, &decoded_body, received)?;
        Ok(WebhookRequest::Webhook(AcceptedWebhook {
            events,
            verified,
            reply: reply.unwrap_or_else(|| ProviderReply::empty(StatusCode::OK)),
            raw_body: request.body().clone(),
        }))
    }

    fn events(
        &self,
        parts: Vec<EventPart>,
        headers: &HeaderMap,
        decoded_body: &Bytes,
        received: &IncomingRequest<'_>,
    ) -> Result<Vec<WebhookEvent>, RejectionReason> {
        let ReceiverConfig { verifier, keys, reads_unsigned_keys, provider, .. } = &*self.config;
        let fingerprint = LazyCell::new(|| verifier.signed_fingerprint(received));
        let event = |(position, mut part): (usize, EventPart)| {
            if !keys.are_defaults() {
                part.key = provider::EventKey::Rules;
            }
            let body = part.body.take().unwrap_or_else(|| decoded_body.clone());
            let found = keys.find_event_key(verifier, headers, &body, &part.key);
            let is_replayable =
                provider.replay_guard && part.key.may_be_unsigned(*reads_unsigned_keys, verifier);
            // A kind in a body that is not signed is not part of the signed content.
            let signed_kind = part.kind.as_ref().filter(|_| verifier.signs_body());
            let signed_kind = signed_kind.map_or("", EventKind::as_str);
            Ok(WebhookEvent {
                key: found.map_err(RejectionReason::Key)?.map(|found| found.key),
                replay_key: is_replayable
                    .then(|| signed_bytes_key(&fingerprint, position, signed_kind)),
                kind: part.kind,
                ordering_key: part.ordering_key,
                attributes: part.attributes,
                body,
                is_ping: part.is_ping,
            })
        };
        parts.into_iter().enumerate().map(event).collect()
    }

    fn incoming<'r>(&'r self, request: &'r Request<Bytes>, body: &'r [u8]) -> IncomingRequest<'r> {
        IncomingRequest {
            source: "",
            path: self.path_suffix(request.uri().path()),
            query: request.uri().query(),
            headers: request.headers(),
            body,
            origin: self.config.public_url.as_deref(),
        }
    }

    /// The part of `path` after the configured path.
    fn path_suffix<'p>(&self, path: &'p str) -> &'p str {
        let suffix = self.config.path.as_deref().and_then(|prefix| path.strip_prefix(prefix));
        suffix.filter(|rest| rest.starts_with('/')).unwrap_or_default()
    }
}

impl<P> Clone for Receiver<P> {
    fn clone(&self) -> Self {
        Self { config: Arc::clone(&self.config), preset: PhantomData }
    }
}

impl<P> fmt::Debug for Receiver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReceiverConfig { provider, verifier, .. } = &*self.config;
        f.debug_struct("Receiver")
            .field("provider", &provider.name)
            .field("verifier", &verifier.name())
            .finish_non_exhaustive()
    }
}

impl<P> fmt::Debug for ReceiverBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let provider = self.provider.as_ref().map_or_else(String::as_str, |known| known.name);
        f.debug_struct("ReceiverBuilder").field("provider", &provider).finish_non_exhaustive()
    }
}
