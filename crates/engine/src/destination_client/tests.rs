//! Tests of what one way out leaves to the next, and of the token that it shares.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use surehook_core::address::AddressPolicy;
use surehook_core::destination::{DestinationSpec, Transport};
use surehook_core::ids::DestinationId;
use surehook_core::time::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::*;
use crate::connect::Resolver;
use crate::tls::tests::trusting;

/// Every name is this machine.
#[derive(Debug)]
struct Here;

#[async_trait]
impl Resolver for Here {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![IpAddr::from([127, 0, 0, 1])])
    }
}

/// A server that answers each request with what `script` says to its number.
struct Server {
    address: SocketAddr,
    authorizations: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
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
                        let answer = Response::builder().status(status);
                        Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body))).unwrap())
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

fn prepared(server: &Server, more: &str) -> PreparedDestination {
    let json = format!(r#"{{"name":"out","url":"http://{}/"{more}}}"#, server.address);
    let spec: DestinationSpec = serde_json::from_str(&json).unwrap();
    let id = DestinationId::new(Timestamp::from_millis(0), 1);
    PreparedDestination::new(spec.build(id, &|_| None).unwrap(), &trusting([])).unwrap()
}

fn oauth2(tokens: &Server, more: &str) -> String {
    format!(
        r#","auth":{{"oauth2":{{"token_url":"http://{}/","client_id":"a","client_secret":"b"{more}}}}}"#,
        tokens.address
    )
}

fn outlet(prepared: PreparedDestination, before: Option<&DestinationClient>) -> DestinationClient {
    let config = HttpSenderConfig {
        policy: Arc::new(AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()])),
        resolver: Arc::new(Here),
        tls: trusting([]).default_config(),
        proxy: None,
        pool_idle_max: 4,
    };
    DestinationClient::new(prepared, &config, before)
}

async fn send(outlet: &DestinationClient) -> SendReport {
    let Transport::Http(url) = &outlet.destination.transport else { panic!("not over HTTP") };
    outlet.send(url, HeaderMap::new(), Bytes::from_static(b"{}")).await
}

fn status(report: &SendReport) -> Option<u16> {
    report.outcome.status()
}

#[tokio::test]
async fn connections_are_kept_as_long_as_the_way_is_the_same() {
    let server = Server::start(|_| (200, String::new())).await;
    let first = outlet(prepared(&server, ""), None);
    send(&first).await;

    let same_way = outlet(
        prepared(&server, r#","timeout":"9s","auth":{"bearer":"x"},"rules":[]"#),
        Some(&first),
    );
    assert_eq!(status(&send(&same_way).await), Some(200));
    assert_eq!(server.connections(), 1, "the connection is used on");

    let other_way = outlet(prepared(&server, r#","tls":{}"#), Some(&same_way));
    assert_eq!(status(&send(&other_way).await), Some(200));
    assert_eq!(server.connections(), 2, "other settings of TLS need another connection");

    // The proxy is the server itself, which takes whole URLs too.
    let proxy = format!(r#","proxy":"http://{}""#, server.address);
    let through_proxy = outlet(prepared(&server, &proxy), Some(&other_way));
    assert_eq!(status(&send(&through_proxy).await), Some(200));
    assert_eq!(server.connections(), 3, "what goes through a proxy does not go past it");
}

#[tokio::test]
async fn a_token_outlives_a_change_of_other_settings_and_no_change_of_its_own() {
    let server = Server::start(|_| (200, String::new())).await;
    let tokens = Server::start(|number| token(number, 3600)).await;
    let first = outlet(prepared(&server, &oauth2(&tokens, "")), None);
    send(&first).await;

    let same = format!(r#"{},"timeout":"9s""#, oauth2(&tokens, ""));
    let same = outlet(prepared(&server, &same), Some(&first));
    send(&same).await;
    let other = oauth2(&tokens, r#","scopes":["more"]"#);
    let other = outlet(prepared(&server, &other), Some(&same));
    send(&other).await;

    assert_eq!(server.authorizations(), ["Bearer t0", "Bearer t0", "Bearer t1"]);
}

#[tokio::test]
async fn of_many_at_once_one_fetches_and_all_get_the_token() {
    let server = Server::start(|_| (200, String::new())).await;
    let gate = Arc::new(Semaphore::new(0));
    let tokens = Server::start_behind(Arc::clone(&gate), |number| token(number, 3600)).await;
    let outlet = Arc::new(outlet(prepared(&server, &oauth2(&tokens, "")), None));

    let sends: Vec<_> = (0..16)
        .map(|_| {
            let outlet = Arc::clone(&outlet);
            tokio::spawn(async move { status(&send(&outlet).await) })
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
async fn an_attempt_that_gives_up_leaves_the_fetch_to_the_others() {
    let server = Server::start(|_| (200, String::new())).await;
    let gate = Arc::new(Semaphore::new(0));
    let tokens = Server::start_behind(Arc::clone(&gate), |number| token(number, 3600)).await;
    let hasty = format!(r#"{},"timeout":"100ms""#, oauth2(&tokens, ""));
    let hasty = outlet(prepared(&server, &hasty), None);

    let report = send(&hasty).await;
    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Timeout));
    assert!(report.detail.unwrap().contains("token endpoint"));
    gate.add_permits(1);
    let patient = outlet(prepared(&server, &oauth2(&tokens, "")), Some(&hasty));

    assert_eq!(status(&send(&patient).await), Some(200));
    assert_eq!(tokens.authorizations().len(), 1, "the fetch that was begun was enough");
}

#[tokio::test]
async fn a_token_without_a_future_is_used_once() {
    let server = Server::start(|_| (200, String::new())).await;
    let tokens = Server::start(|number| token(number, 0)).await;
    let outlet = outlet(prepared(&server, &oauth2(&tokens, "")), None);

    send(&outlet).await;
    send(&outlet).await;

    assert_eq!(server.authorizations(), ["Bearer t0", "Bearer t1"]);
}

#[tokio::test]
async fn an_endpoint_that_insists_on_a_refused_token_is_not_believed() {
    // The token is good for one request, and the endpoint has no other.
    let server = Server::start(|number| (if number == 0 { 200 } else { 401 }, String::new())).await;
    let tokens = Server::start(|_| token(7, 3600)).await;
    let outlet = outlet(prepared(&server, &oauth2(&tokens, "")), None);

    assert_eq!(status(&send(&outlet).await), Some(200));
    assert_eq!(status(&send(&outlet).await), Some(401));

    assert_eq!(server.authorizations().len(), 2, "the same token is not sent twice for one event");
    assert_eq!(tokens.authorizations().len(), 2);
}

#[tokio::test]
async fn a_new_token_that_cannot_be_had_is_what_is_reported() {
    let server = Server::start(|number| (if number == 0 { 200 } else { 401 }, String::new())).await;
    let tokens =
        Server::start(|number| if number == 0 { token(0, 3600) } else { (503, String::new()) })
            .await;
    let outlet = outlet(prepared(&server, &oauth2(&tokens, "")), None);

    send(&outlet).await;
    let report = send(&outlet).await;

    // Not the 401, which would bury the delivery: the endpoint may have a token later.
    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Token));
}
