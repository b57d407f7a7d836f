//! Tests of what a client takes over from the one before, and of the shared token.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use surehook_core::destination::{DestinationSpec, Transport};
use surehook_guard::{address::AddressPolicy, connect::StaticResolver};
use surehook_types::{ids::DestinationId, time::Timestamp};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::*;
use crate::sockets::SocketBudget;
use crate::tls::tests::trusting;

/// A server that answers the n-th request with `script(n)`.
struct TestServer {
    address: SocketAddr,
    authorizations: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl TestServer {
    async fn start(script: impl Fn(usize) -> (u16, String) + Send + Sync + 'static) -> Self {
        let open = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self::start_behind(open, script).await
    }

    /// Answers when there is a permit of `gate` for each request.
    async fn start_behind(
        gate: Arc<Semaphore>,
        script: impl Fn(usize) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            authorizations: Arc::default(),
            connections: Arc::default(),
        };
        let (seen, connections) =
            (Arc::clone(&server.authorizations), Arc::clone(&server.connections));
        let script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (seen, script, gate) =
                    (Arc::clone(&seen), Arc::clone(&script), Arc::clone(&gate));
                let service = service_fn(move |request: Request<Incoming>| {
                    let authorization = request.headers().get(AUTHORIZATION);
                    let authorization = authorization.map_or("", |value| value.to_str().unwrap());
                    let number = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(authorization.to_owned());
                        seen.len() - 1
                    };
                    let (script, gate) = (Arc::clone(&script), Arc::clone(&gate));
                    async move {
                        gate.acquire().await.unwrap().forget();
                        let (status, body) = script(number);
                        let response = Response::builder().status(status);
                        Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
                    }
                });
                let builder = hyper::server::conn::http1::Builder::new();
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        server
    }

    fn authorizations(&self) -> Vec<String> {
        self.authorizations.lock().unwrap().clone()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn token(number: usize, expires_in: u64) -> (u16, String) {
    (200, format!(r#"{{"access_token":"t{number}","expires_in":{expires_in}}}"#))
}

fn prepared(server: &TestServer, fields: &str) -> PreparedDestination {
    let json = format!(r#"{{"name":"out","url":"http://{}/"{fields}}}"#, server.address);
    let spec: DestinationSpec = serde_json::from_str(&json).unwrap();
    let id = DestinationId::new(Timestamp::from_millis(0), 1);
    PreparedDestination::new(spec.build(id, &|_| None).unwrap(), &trusting([])).unwrap()
}

fn oauth2(tokens: &TestServer, fields: &str) -> String {
    format!(
        r#","auth":{{"oauth2":{{"token_url":"http://{}/","client_id":"a","client_secret":"b"{fields}}}}}"#,
        tokens.address
    )
}

fn client(prepared: PreparedDestination, before: Option<&DestinationClient>) -> DestinationClient {
    let config = HttpSenderConfig {
        policy: Arc::new(AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()])),
        resolver: Arc::new(StaticResolver::localhost()),
        tls: trusting([]).default_config(),
        proxy: None,
        sockets: SocketBudget::new(100),
        pool_idle_max: 4,
    };
    DestinationClient::new(prepared, &config, before)
}

async fn send(client: &DestinationClient) -> SendReport {
    let Transport::Http(url) = &client.destination.transport else { panic!("not over HTTP") };
    client.send(url, HeaderMap::new(), Bytes::from_static(b"{}")).await
}

fn status(report: &SendReport) -> Option<u16> {
    report.outcome.status()
}

#[tokio::test]
async fn connections_are_reused_until_tls_or_proxy_change() {
    let server = TestServer::start(|_| (200, String::new())).await;
    let first = client(prepared(&server, ""), None);
    send(&first).await;

    let same_transport = client(
        prepared(&server, r#","timeout":"9s","auth":{"bearer":"x"},"rules":[]"#),
        Some(&first),
    );
    assert_eq!(status(&send(&same_transport).await), Some(200));
    assert_eq!(server.connections(), 1, "the connection is reused");

    let other_tls = client(prepared(&server, r#","tls":{}"#), Some(&same_transport));
    assert_eq!(status(&send(&other_tls).await), Some(200));
    assert_eq!(server.connections(), 2, "other TLS settings need another connection");

    // The proxy is the server itself, which accepts absolute URLs too.
    let proxy = format!(r#","proxy":"http://{}""#, server.address);
    let through_proxy = client(prepared(&server, &proxy), Some(&other_tls));
    assert_eq!(status(&send(&through_proxy).await), Some(200));
    assert_eq!(server.connections(), 3, "a direct connection is not used for a proxied request");
}

#[tokio::test]
async fn token_is_kept_when_other_settings_change_and_dropped_when_its_own_do() {
    let server = TestServer::start(|_| (200, String::new())).await;
    let tokens = TestServer::start(|number| token(number, 3600)).await;
    let first = client(prepared(&server, &oauth2(&tokens, "")), None);
    send(&first).await;

    let same = format!(r#"{},"timeout":"9s""#, oauth2(&tokens, ""));
    let same = client(prepared(&server, &same), Some(&first));
    send(&same).await;
    let other = oauth2(&tokens, r#","scopes":["more"]"#);
    let other = client(prepared(&server, &other), Some(&same));
    send(&other).await;

    assert_eq!(server.authorizations(), ["Bearer t0", "Bearer t0", "Bearer t1"]);
}

#[tokio::test]
async fn concurrent_attempts_share_one_token_fetch() {
    let server = TestServer::start(|_| (200, String::new())).await;
    let gate = Arc::new(Semaphore::new(0));
    let tokens = TestServer::start_behind(Arc::clone(&gate), |number| token(number, 3600)).await;
    let client = Arc::new(client(prepared(&server, &oauth2(&tokens, "")), None));

    let sends: Vec<_> = (0..16)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { status(&send(&client).await) })
        })
        .collect();
    // More permits than one fetch needs, so that a second one would be seen and not hang.
    gate.add_permits(16);
    for sent in sends {
        assert_eq!(sent.await.unwrap(), Some(200));
    }

    assert_eq!(tokens.authorizations().len(), 1);
    assert_eq!(server.authorizations(), vec!["Bearer t0"; 16]);
}

#[tokio::test]
async fn timed_out_attempt_does_not_cancel_the_token_fetch() {
    let server = TestServer::start(|_| (200, String::new())).await;
    let gate = Arc::new(Semaphore::new(0));
    let tokens = TestServer::start_behind(Arc::clone(&gate), |number| token(number, 3600)).await;
    let hasty = format!(r#"{},"timeout":"100ms""#, oauth2(&tokens, ""));
    let hasty = client(prepared(&server, &hasty), None);

    let report = send(&hasty).await;
    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Timeout));
    assert!(report.detail.unwrap().contains("token endpoint"));
    gate.add_permits(1);
    let patient = client(prepared(&server, &oauth2(&tokens, "")), Some(&hasty));

    assert_eq!(status(&send(&patient).await), Some(200));
    assert_eq!(tokens.authorizations().len(), 1, "the first fetch was used");
}

#[tokio::test]
async fn token_that_expires_at_once_is_used_once() {
    let server = TestServer::start(|_| (200, String::new())).await;
    let tokens = TestServer::start(|number| token(number, 0)).await;
    let client = client(prepared(&server, &oauth2(&tokens, "")), None);

    send(&client).await;
    send(&client).await;

    assert_eq!(server.authorizations(), ["Bearer t0", "Bearer t1"]);
}

#[tokio::test]
async fn refused_token_returned_again_is_not_sent_again() {
    // The token is good for one request, and the endpoint has no other.
    let server =
        TestServer::start(|number| (if number == 0 { 200 } else { 401 }, String::new())).await;
    let tokens = TestServer::start(|_| token(7, 3600)).await;
    let client = client(prepared(&server, &oauth2(&tokens, "")), None);

    assert_eq!(status(&send(&client).await), Some(200));
    assert_eq!(status(&send(&client).await), Some(401));

    assert_eq!(server.authorizations().len(), 2, "the same token is not sent twice for one event");
    assert_eq!(tokens.authorizations().len(), 2);
}

#[tokio::test]
async fn failed_token_refresh_is_reported_instead_of_the_401() {
    let server =
        TestServer::start(|number| (if number == 0 { 200 } else { 401 }, String::new())).await;
    let tokens =
        TestServer::start(|number| if number == 0 { token(0, 3600) } else { (503, String::new()) })
            .await;
    let client = client(prepared(&server, &oauth2(&tokens, "")), None);

    send(&client).await;
    let report = send(&client).await;

    // Not the 401, which would make the delivery dead: the endpoint may have a token later.
    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Token));
}
