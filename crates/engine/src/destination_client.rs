//! The client of one destination: its settings, its connections and its access token.
//!
//! A client is never changed, only replaced: an attempt uses one from beginning to end. The next client
//! takes over the connections and the token if its settings for them are the same: a change of the retry
//! policy keeps the connections, a change of the proxy keeps none.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{StatusCode, Uri};
use surehook_core::{
    destination::{
        Destination, Transport,
        auth::AuthConfig,
        email::Mailbox,
        oauth2::{Oauth2Config, TokenError},
        stream::RedisStream,
    },
    store::ClaimedDelivery,
};
use surehook_guard::{connect::GuardedConnector, proxy::Proxy};
use surehook_retry::{AttemptFailure, AttemptOutcome, FailureClass};
use surehook_types::secret::digest_parts;
use tokio::time::{Instant, timeout};

use crate::{
    media::MediaFileBody,
    non_http::NonHttpResult,
    redis::StreamSender,
    sender::{HttpOutboundRequest, HttpSender, HttpSenderConfig, SendReport},
    smtp::MailSender,
    tls::{self, DestinationTls, TlsConfigError, TrustStore},
    token::{TokenCache, TokenGrant},
};

/// A destination with its certificates and keys loaded.
#[derive(Clone, Debug)]
pub(crate) struct PreparedDestination {
    pub(crate) destination: Arc<Destination>,
    tls: DestinationTls,
}

impl PreparedDestination {
    /// Reads the certificates and keys that the destination names.
    pub(crate) fn new(
        destination: Destination,
        trust: &TrustStore,
    ) -> Result<Self, TlsConfigError> {
        let tls = tls::load_destination_tls(destination.tls.as_ref(), trust)?;
        Ok(Self { destination: Arc::new(destination), tls })
    }

    /// The same destination as another value of it, such as one of its shards, sees it.
    pub(crate) fn with_destination(&self, destination: Destination) -> Self {
        Self { destination: Arc::new(destination), tls: self.tls.clone() }
    }
}

#[derive(Debug)]
pub(crate) struct DestinationClient {
    pub(crate) destination: Arc<Destination>,
    http: HttpSender,
    /// For connections of other senders, such as uploads.
    config: HttpSenderConfig,
    /// A digest of everything that the connections depend on.
    connection_digest: [u8; 32],
    token_cache: Option<Arc<TokenCache>>,
    /// For Redis streams, with a digest of the server and the TLS settings.
    stream: Option<(Arc<StreamSender>, [u8; 32])>,
}

impl DestinationClient {
    /// A client that takes over the connections and the token of `previous` if they fit its settings.
    pub(crate) fn new(
        prepared: PreparedDestination,
        config: &HttpSenderConfig,
        previous: Option<&Self>,
    ) -> Self {
        let PreparedDestination { destination, tls } = prepared;
        let proxy = destination.proxy.as_ref().map(Proxy::digest);
        let connection_digest =
            digest_parts([&tls.digest[..], proxy.as_ref().map_or(&[], |digest| digest)]);
        let stream = stream_sender(&destination, &tls, config, previous);
        let config = HttpSenderConfig {
            tls: tls.config,
            proxy: destination.proxy.clone(),
            ..config.clone()
        };
        let http = match previous {
            Some(previous) if previous.connection_digest == connection_digest => {
                previous.http.clone()
            }
            Some(_) | None => HttpSender::new(config.clone()),
        };
        let token_cache = oauth2_config(&destination).map(|oauth2| {
            let reusable = previous
                .and_then(|previous| previous.token_cache.clone())
                .filter(|cache| cache.is_for(oauth2));
            reusable.unwrap_or_else(|| Arc::new(TokenCache::new(oauth2)))
        });
        Self { destination, http, config, connection_digest, token_cache, stream }
    }

    /// Adds an event to the Redis stream of the destination.
    pub(crate) async fn add_to_stream(
        &self,
        stream: &RedisStream,
        claimed: &ClaimedDelivery,
    ) -> NonHttpResult {
        match &self.stream {
            Some((sender, _)) => sender.add(stream, claimed, self.destination.timeout).await,
            None => NonHttpResult::failed(
                AttemptFailure::ErrorReply,
                FailureClass::Config,
                "the destination is not a Redis stream",
            ),
        }
    }

    /// Sends a composed mail.
    pub(crate) async fn send_mail(&self, mailbox: &Mailbox, mail: &str) -> NonHttpResult {
        let HttpSenderConfig { policy, resolver, tls, sockets, .. } = &self.config;
        let connector = GuardedConnector::new(Arc::clone(policy), Arc::clone(resolver));
        let sender = MailSender { mailbox, connector, tls, sockets };
        sender.send(mail, self.destination.timeout).await
    }

    /// Makes one attempt, with an access token if the destination needs one.
    pub(crate) async fn send(&self, url: &Uri, headers: HeaderMap, body: Bytes) -> SendReport {
        let request = HttpOutboundRequest { url: url.clone(), headers, body };
        match (oauth2_config(&self.destination), &self.token_cache) {
            (Some(oauth2), Some(token_cache)) => {
                let started = Instant::now();
                let call = AuthorizedCall { client: self, oauth2, token_cache, started };
                let report = Box::pin(call.send(request)).await;
                SendReport { elapsed: call.started.elapsed(), ..report }
            }
            (Some(_) | None, Some(_) | None) => {
                self.http.send(request, self.destination.timeout).await
            }
        }
    }

    /// An HTTP sender for media files, with connections of its own.
    pub(crate) fn file_sender(&self) -> HttpSender<MediaFileBody> {
        HttpSender::new(self.config.clone())
    }

    /// Makes one attempt with its own timeout, and keeps the whole response for interpretation.
    pub(crate) async fn send_for_full_response(
        &self,
        url: &Uri,
        headers: HeaderMap,
        body: Bytes,
        time_limit: Duration,
    ) -> SendReport {
        self.http
            .send_for_full_response(
                HttpOutboundRequest { url: url.clone(), headers, body },
                time_limit,
            )
            .await
    }
}

/// The sender of a Redis stream, taken over from `previous` if nothing about its connection has changed.
fn stream_sender(
    destination: &Destination,
    tls: &DestinationTls,
    config: &HttpSenderConfig,
    previous: Option<&DestinationClient>,
) -> Option<(Arc<StreamSender>, [u8; 32])> {
    let Transport::RedisStream(stream) = &destination.transport else { return None };
    let digest = digest_parts([&tls.digest[..], &stream.server.digest()]);
    let reusable = previous
        .and_then(|previous| previous.stream.clone())
        .filter(|(_, previous_digest)| *previous_digest == digest);
    Some(reusable.unwrap_or_else(|| {
        let connector =
            GuardedConnector::new(Arc::clone(&config.policy), Arc::clone(&config.resolver));
        let sender = StreamSender::new(
            stream.server.clone(),
            connector,
            &tls.config,
            config.sockets.clone(),
        );
        (Arc::new(sender), digest)
    }))
}

fn oauth2_config(destination: &Destination) -> Option<&Oauth2Config> {
    match &destination.auth {
        Some(AuthConfig::Oauth2(oauth2)) => Some(oauth2),
        Some(AuthConfig::Fixed(_)) | None => None,
    }
}

/// One attempt that needs an access token.
struct AuthorizedCall<'a> {
    client: &'a DestinationClient,
    oauth2: &'a Oauth2Config,
    token_cache: &'a Arc<TokenCache>,
    started: Instant,
}

impl AuthorizedCall<'_> {
    /// Sends with a token. A cached token may have been revoked: if it is refused, the request was not
    /// accepted, and is sent once more with a new one.
    async fn send(&self, request: HttpOutboundRequest) -> SendReport {
        let grant = match self.get_token(None).await {
            Ok(grant) => grant,
            Err(error) => return token_error_report(error),
        };
        let report = self.send_with(request.clone(), &grant.header).await;
        if !is_unauthorized(&report) {
            return report;
        }
        if grant.is_newly_fetched {
            self.token_cache.remove(&grant.header);
            return report;
        }
        match self.get_token(Some(&grant.header)).await {
            Err(error) => token_error_report(error),
            // The token endpoint returns the same token again.
            Ok(same) if same.header == grant.header => {
                self.token_cache.remove(&grant.header);
                report
            }
            Ok(new) => {
                let report = self.send_with(request, &new.header).await;
                if is_unauthorized(&report) {
                    self.token_cache.remove(&new.header);
                }
                report
            }
        }
    }

    fn time_left(&self) -> Duration {
        self.client.destination.timeout.saturating_sub(self.started.elapsed())
    }

    async fn get_token(&self, refused: Option<&HeaderValue>) -> Result<TokenGrant, TokenError> {
        let token = self.token_cache.get(self.oauth2, &self.client.http, refused);
        timeout(self.time_left(), token).await.unwrap_or_else(|_| {
            let timeout = self.client.destination.timeout;
            let detail = format!("the token endpoint returned no token within {timeout:?}");
            Err(TokenError { failure: AttemptFailure::Timeout, detail })
        })
    }

    async fn send_with(&self, mut request: HttpOutboundRequest, token: &HeaderValue) -> SendReport {
        request.headers.insert(AUTHORIZATION, token.clone());
        self.client.http.send(request, self.time_left()).await
    }
}

fn is_unauthorized(report: &SendReport) -> bool {
    match report.outcome {
        AttemptOutcome::Answered { status, .. } => status == StatusCode::UNAUTHORIZED,
        AttemptOutcome::Failed(_) | AttemptOutcome::Interpreted(_) => false,
    }
}

fn token_error_report(error: TokenError) -> SendReport {
    SendReport::failed(error.failure, error.detail)
}
