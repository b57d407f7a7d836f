//! Tests of the sender against scripted servers on real sockets.
//!
//! Deadlines are short where a test waits for one to pass, and long everywhere else.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use surehook_types::time::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tls::{TrustStore, tests::trusting};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(150);

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const PROCESSING: &str = "HTTP/1.1 102 Processing\r\n\r\n";
const OK_ENDLESS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// The response of the server to a request that it has read.
#[derive(Debug, Clone)]
enum ServerAction {
    Reply(String),
    ReplyAndClose(String),
    /// Sends this much and then nothing more, with the connection open.
    Hang(String),
    Reset,
    /// Sends chunks until the client closes the connection.
    Endless,
    /// Sends interim responses until the client closes the connection.
    EndlessInterim,
}

/// A scripted server.
#[derive(Debug)]
struct ScriptedServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    closed: mpsc::UnboundedReceiver<()>,
}

impl ScriptedServer {
    /// Follows `script`, one action per request, and then answers 200.
    async fn start(script: impl IntoIterator<Item = ServerAction>) -> Self {
        Self::start_on("127.0.0.1:0", script).await
    }

    async fn start_on(address: &str, script: impl IntoIterator<Item = ServerAction>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (closing, closed) = mpsc::unbounded_channel();
        let sink = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
            closed,
        };
        let script = Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
        let (requests, connections) = (Arc::clone(&sink.requests), Arc::clone(&sink.connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
                let closing = closing.clone();
                tokio::spawn(async move {
                    // Many of these tests close the connection early.
                    serve(stream, &script, &requests).await.ok();
                    closing.send(()).ok();
                });
            }
        });
        sink
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Waits until a connection is closed by either side.
    async fn closed(&mut self) {
        timeout(LONG, self.closed.recv()).await.expect("a connection is closed");
    }
}

async fn serve(
    stream: TcpStream,
    script: &Mutex<VecDeque<ServerAction>>,
    requests: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await? {
        requests.lock().unwrap().push(request);
        let action =
            script.lock().unwrap().pop_front().unwrap_or(ServerAction::Reply(OK.to_owned()));
        match action {
            ServerAction::Reply(text) => stream.write_all(text.as_bytes()).await?,
            ServerAction::ReplyAndClose(text) => return stream.write_all(text.as_bytes()).await,
            ServerAction::Hang(text) => {
                stream.write_all(text.as_bytes()).await?;
                // Ends when the client closes the connection.
                return stream.read_u8().await.map(drop);
            }
            ServerAction::Reset => return stream.get_ref().set_zero_linger(),
            ServerAction::EndlessInterim => loop {
                stream.write_all(PROCESSING.repeat(10).as_bytes()).await?;
            },
            ServerAction::Endless => {
                stream.write_all(OK_ENDLESS.as_bytes()).await?;
                loop {
                    stream
                        .write_all(format!("1000\r\n{}\r\n", "x".repeat(0x1000)).as_bytes())
                        .await?;
                }
            }
        }
    }
    Ok(())
}

/// Reads one request, head and body. `None` when the client closed the connection instead.
async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut request = String::new();
    let mut body_bytes = 0;
    loop {
        let start = request.len();
        if stream.read_line(&mut request).await? == 0 {
            return Ok(None);
        }
        let line = request[start..].trim_end();
        if let Some(length) = line.strip_prefix("content-length: ") {
            body_bytes = length.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; body_bytes];
    stream.read_exact(&mut body).await?;
    request.push_str(&String::from_utf8_lossy(&body));
    Ok(Some(request))
}

/// Answers each lookup with the next of its addresses, in a cycle. Fails without addresses.
#[derive(Debug)]
struct CyclingResolver {
    addresses: Vec<IpAddr>,
    lookups: AtomicUsize,
}

impl CyclingResolver {
    fn new(addresses: &[&str]) -> Arc<Self> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self { addresses, lookups: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Resolver for CyclingResolver {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let turn = self.lookups.fetch_add(1, Ordering::SeqCst);
        let mut round = self.addresses.iter().cycle().skip(turn);
        round.next().map(|address| vec![*address]).ok_or_else(|| io::Error::other("no such host"))
    }
}

fn config(allow: &[&str]) -> HttpSenderConfig {
    let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
    HttpSenderConfig {
        policy: Arc::new(AddressPolicy::new(allow)),
        resolver: CyclingResolver::new(&["127.0.0.1"]),
        tls: tls_trusting([]),
        proxy: None,
        sockets: SocketBudget::new(100),
        pool_idle_max: 4,
    }
}

/// Trusts only these certificates.
fn tls_trusting(
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Arc<ClientConfig> {
    trusting(certificates).default_config()
}

/// A sender that may call localhost.
fn sender() -> HttpSender {
    HttpSender::new(config(&["127.0.0.0/8"]))
}

fn request(url: &str) -> HttpOutboundRequest {
    HttpOutboundRequest {
        url: url.parse().unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
    }
}

fn answered(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered { status, retry_after: None }
}

async fn send_to(script: ServerAction, deadline: Duration) -> SendReport {
    let sink = ScriptedServer::start([script]).await;
    sender().send(request(&sink.url()), deadline).await
}

#[tokio::test]
async fn response_is_reported_with_its_status() {
    let reply =
        |head: &str| ServerAction::Reply(format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n"));
    let early = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let cases = [
        ("ok", ServerAction::Reply(OK.to_owned()), 200),
        ("no content", ServerAction::Reply("HTTP/1.1 204 No Content\r\n\r\n".to_owned()), 204),
        ("not found", reply("404 Not Found"), 404),
        ("gone", reply("410 Gone"), 410),
        ("server error", reply("500 Oops"), 500),
        ("unknown status", reply("600 Whatever"), 600),
        ("no reason phrase", reply("200"), 200),
        ("old version", ServerAction::ReplyAndClose("HTTP/1.0 200 OK\r\n\r\nbye".to_owned()), 200),
        ("after an early hint", ServerAction::Reply(format!("{early}{OK}")), 200),
    ];
    for (name, action, status) in cases {
        assert_eq!(send_to(action, LONG).await.outcome, answered(status), "case: {name}");
    }
}

#[tokio::test]
async fn retry_after_is_reported_in_both_forms() {
    let at = Timestamp::from_millis(1_445_412_480_000);
    let cases = [
        ("seconds", "120", Some(RetryAfter::Delay(Duration::from_secs(120)))),
        ("date", "Wed, 21 Oct 2015 07:28:00 GMT", Some(RetryAfter::At(at))),
        ("neither", "soon", None),
        ("not text", "\u{e9}", None),
    ];
    for (name, value, retry_after) in cases {
        let head =
            format!("HTTP/1.1 503 Busy\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        let report = send_to(ServerAction::Reply(head), LONG).await;
        assert_eq!(
            report.outcome,
            AttemptOutcome::Answered { status: 503, retry_after },
            "case: {name}"
        );
    }
}

#[tokio::test]
async fn incomplete_or_invalid_response_is_a_named_failure() {
    let hang = |text: &str| ServerAction::Hang(text.to_owned());
    let close = |text: &str| ServerAction::ReplyAndClose(text.to_owned());
    let long_header = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "x".repeat(100_000));
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    let cases = [
        ("silence", hang(""), AttemptFailure::Timeout),
        ("half a head", hang("HTTP/1.1 200 OK\r\n"), AttemptFailure::Timeout),
        (
            "half a body",
            hang("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhal"),
            AttemptFailure::Timeout,
        ),
        ("reset", ServerAction::Reset, AttemptFailure::Reset),
        ("closed without a response", close(""), AttemptFailure::Reset),
        ("closed in the head", close("HTTP/1.1 200 OK\r\n"), AttemptFailure::Reset),
        (
            "closed in the body",
            close("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhal"),
            AttemptFailure::Reset,
        ),
        ("not HTTP", close("SSH-2.0-OpenSSH_9.9\r\n"), AttemptFailure::Protocol),
        (
            "a bare body, as in HTTP/0.9",
            close("<html>hello</html>\r\n\r\n"),
            AttemptFailure::Protocol,
        ),
        ("invalid chunks", close(&format!("{OK_ENDLESS}xyz\r\n")), AttemptFailure::Protocol),
        ("long headers", close(&long_header), AttemptFailure::Protocol),
        ("many headers", close(&many_headers), AttemptFailure::Protocol),
    ];
    for (name, action, failure) in cases {
        let deadline = if matches!(action, ServerAction::Hang(_)) { SHORT } else { LONG };
        let report = send_to(action, deadline).await;
        assert_eq!(
            report.outcome,
            AttemptOutcome::Failed(failure),
            "case: {name}: {:?}",
            report.detail
        );
        assert!(report.detail.is_some(), "case: {name}");
    }
}

#[tokio::test]
async fn error_status_counts_even_if_its_body_never_ends() {
    let broken = "HTTP/1.1 410 Gone\r\ncontent-length: 9\r\n\r\ngone";

    let report = send_to(ServerAction::Hang(broken.to_owned()), SHORT).await;

    assert_eq!(report.outcome, answered(410));
    assert_eq!(report.response_body, b"gone");
}

#[tokio::test]
async fn endless_success_body_is_a_success_and_is_cut_off() {
    let mut sink = ScriptedServer::start([ServerAction::Endless]).await;

    let report = sender().send(request(&sink.url()), LONG).await;

    assert_eq!(report.outcome, answered(200));
    assert_eq!(report.response_body, vec![b'x'; RESPONSE_BYTES_KEPT]);
    sink.closed().await;
}

#[tokio::test]
async fn long_response_is_stored_in_part_and_its_connection_reused() {
    let body = "y".repeat(RESPONSE_BYTES_KEPT + 1000);
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let sink = ScriptedServer::start([ServerAction::Reply(reply)]).await;
    let sender = sender();

    let first = sender.send(request(&sink.url()), LONG).await;
    let second = sender.send(request(&sink.url()), LONG).await;

    assert_eq!(first.response_body, body.as_bytes()[..RESPONSE_BYTES_KEPT]);
    assert_eq!(second.response_body, b"ok");
    assert_eq!(sink.connections(), 1);
}

#[tokio::test]
async fn full_response_is_kept_up_to_the_read_limit() {
    let body = "y".repeat(RESPONSE_BYTES_KEPT + 1000);
    let reply = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let sink = ScriptedServer::start([ServerAction::Reply(reply), ServerAction::Endless]).await;
    let sender = sender();

    let long = sender.send_for_full_response(request(&sink.url()), LONG).await;
    let endless = sender.send_for_full_response(request(&sink.url()), LONG).await;

    assert_eq!(long.response_body, body.as_bytes());
    assert_eq!(endless.outcome, answered(200));
    assert_eq!(endless.response_body.len(), RESPONSE_BYTES_MAX);
}

#[tokio::test]
async fn proxy_authentication_failure_means_the_request_was_not_forwarded() {
    let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
    let sink = ScriptedServer::start([ServerAction::Reply(refusal.to_owned())]).await;
    let proxy = Proxy::parse(&format!("http://{}", sink.address)).unwrap();
    let sender: HttpSender =
        HttpSender::new(HttpSenderConfig { proxy: Some(proxy), ..config(&["127.0.0.0/8"]) });

    let report = sender.send(request("http://hook.test/"), LONG).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::ProxyRefused));
    assert!(!report.may_have_arrived);
}

#[tokio::test]
async fn timed_out_attempt_closes_its_connection() {
    let mut sink = ScriptedServer::start([ServerAction::Hang(String::new())]).await;

    let report = sender().send(request(&sink.url()), SHORT).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Timeout));
    assert!(report.elapsed >= SHORT);
    sink.closed().await;
}

#[tokio::test]
async fn destination_that_does_not_read_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let body = Bytes::from(vec![b'x'; 32 * 1024 * 1024]);

    let report = sender().send(HttpOutboundRequest { body, ..request(&url) }, SHORT).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Timeout));
}

#[tokio::test]
async fn request_is_sent_unchanged_with_our_framing_headers() {
    let sink = ScriptedServer::start([]).await;
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", HeaderValue::from_static("msg_1"));
    headers.insert(header::HOST, HeaderValue::from_static("other.test"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close, webhook-id"));

    let body = Bytes::from_static(b"{ \"a\" : 1.0 }");
    sender().send(HttpOutboundRequest { headers, body, ..request(&sink.url()) }, LONG).await;

    let host = sink.address;
    let expected = format!(
        "POST /hook HTTP/1.1\r\nwebhook-id: msg_1\r\nhost: {host}\r\ncontent-length: 13\r\n\r\n\
         {{ \"a\" : 1.0 }}"
    );
    assert_eq!(sink.requests(), [expected]);
}

#[tokio::test]
async fn closed_port_is_a_refused_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);

    let report = sender().send(request(&url), LONG).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Refused));
    assert_eq!(report.detail.as_deref(), Some("the connection was refused"));
}

#[tokio::test]
async fn name_without_address_is_a_dns_failure() {
    let config = HttpSenderConfig { resolver: CyclingResolver::new(&[]), ..config(&[]) };

    let report = HttpSender::new(config).send(request("http://nowhere.test/"), LONG).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Dns));
    assert_eq!(report.detail.as_deref(), Some("the name could not be resolved"));
}

#[tokio::test]
async fn invalid_url_is_a_failure_without_panic() {
    for url in ["/only/a/path", "ftp://127.0.0.1/", "https://under_score.-bad-.test/"] {
        let report = sender().send(request(url), LONG).await;
        assert!(matches!(report.outcome, AttemptOutcome::Failed(_)), "{url}: {report:?}");
    }
}

#[tokio::test]
async fn blocked_address_is_not_called_by_literal_or_name() {
    let canary = ScriptedServer::start([]).await;
    let port = canary.address.port();
    let hosts = ["127.0.0.1", "[::ffff:127.0.0.1]", "evil.test", "localhost", "2130706433"];
    for host in hosts {
        let url = format!("http://{host}:{port}/");

        let report = HttpSender::new(config(&[])).send(request(&url), LONG).await;

        assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Blocked), "host: {host}");
        let detail = report.detail.unwrap();
        assert_eq!(detail, "127.0.0.1 is not allowed (loopback)", "host: {host}");
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn name_that_changes_its_address_never_reaches_a_blocked_one() {
    let sink = ScriptedServer::start_on("127.0.0.2:0", []).await;
    let port = sink.address.port();
    let canary = ScriptedServer::start_on(&format!("127.0.0.1:{port}"), []).await;
    let resolver = CyclingResolver::new(&["127.0.0.2", "127.0.0.1"]);
    // Without a pool every attempt resolves the name again.
    let config = HttpSenderConfig { resolver, pool_idle_max: 0, ..config(&["127.0.0.2/32"]) };
    let sender = HttpSender::new(config);

    for round in 0..200 {
        let report = sender.send(request(&format!("http://rebind.test:{port}/")), LONG).await;
        let blocked = AttemptOutcome::Failed(AttemptFailure::Blocked);
        let expected = if round % 2 == 0 { answered(200) } else { blocked };
        assert_eq!(report.outcome, expected, "round {round}");
    }

    assert_eq!((sink.connections(), canary.connections()), (100, 0));
}

#[tokio::test]
async fn redirect_is_reported_and_not_followed() {
    let canary = ScriptedServer::start([]).await;
    for status in [301, 302, 303, 307, 308] {
        let location = canary.url();
        let reply = format!(
            "HTTP/1.1 {status} Elsewhere\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
        );

        let report = send_to(ServerAction::Reply(reply), LONG).await;

        assert_eq!(report.outcome, answered(status));
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn idle_connection_closed_by_the_destination_fails_no_attempt() {
    let mut sink = ScriptedServer::start([ServerAction::ReplyAndClose(OK.to_owned())]).await;
    let sender = sender();

    let first = sender.send(request(&sink.url()), LONG).await;
    sink.closed().await;
    // A round trip to another server makes the runtime poll the sockets, so that the close is seen.
    send_to(ServerAction::Reply(OK.to_owned()), LONG).await;
    let second = sender.send(request(&sink.url()), LONG).await;

    assert_eq!([first.outcome, second.outcome], [answered(200); 2]);
    assert_eq!((sink.requests().len(), sink.connections()), (2, 2));
}

#[tokio::test]
async fn written_request_is_not_written_again() {
    let sink =
        ScriptedServer::start([ServerAction::Reply(OK.to_owned()), ServerAction::Reset]).await;
    let sender = sender();

    let first = sender.send(request(&sink.url()), LONG).await;
    let second = sender.send(request(&sink.url()), LONG).await;

    assert_eq!(first.outcome, answered(200));
    assert_eq!(second.outcome, AttemptOutcome::Failed(AttemptFailure::Reset));
    assert_eq!((sink.requests().len(), sink.connections()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_arrives_twice_when_connections_break() {
    let actions = [
        ServerAction::Reply(OK.to_owned()),
        ServerAction::ReplyAndClose(OK.to_owned()),
        ServerAction::Reset,
    ];
    let sink = ScriptedServer::start(actions.into_iter().cycle().take(900)).await;
    let sender = sender();

    let senders = (0..6).map(|lane| {
        let (sender, url) = (sender.clone(), sink.url());
        tokio::spawn(async move {
            for number in 0..150 {
                let url = format!("{url}/{lane}/{number}");
                sender.send(request(&url), LONG).await;
            }
        })
    });
    for lane in senders.collect::<Vec<_>>() {
        lane.await.unwrap();
    }

    let requests = sink.requests();
    let distinct: HashSet<_> = requests.iter().collect();
    assert!(!requests.is_empty());
    assert_eq!(distinct.len(), requests.len());
}

/// A server with a self-signed certificate for `hook.test` that offers the given protocols and answers with
/// the HTTP version it was called with.
async fn start_tls_sink(protocols: &[&str]) -> (u16, CertificateDer<'static>) {
    let issued = rcgen::generate_simple_self_signed(vec!["hook.test".to_owned()]).unwrap();
    let certificate = issued.cert.der().clone();
    let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            tokio::spawn(serve_tls(stream));
        }
    });
    (port, certificate)
}

async fn serve_tls(stream: tokio_rustls::server::TlsStream<TcpStream>) -> hyper::Result<()> {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(|request: Request<Incoming>| async move {
        let version = format!("{:?}", request.version());
        Ok::<_, io::Error>(Response::new(Full::new(Bytes::from(version))))
    });
    let stream = TokioIo::new(stream);
    if is_http2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.serve_connection(stream, service).await
    } else {
        hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await
    }
}

#[tokio::test]
async fn trusted_destination_is_called_with_the_best_offered_protocol() {
    let cases: [(&str, &[&str], &[u8]); 3] = [
        ("both", &["h2", "http/1.1"], b"HTTP/2.0"),
        ("only the old one", &["http/1.1"], b"HTTP/1.1"),
        ("no protocol offered", &[], b"HTTP/1.1"),
    ];
    for (name, protocols, expected) in cases {
        let (port, certificate) = start_tls_sink(protocols).await;
        let tls = tls_trusting([certificate]);
        let sender = HttpSender::new(HttpSenderConfig { tls, ..config(&["127.0.0.0/8"]) });

        let report = sender.send(request(&format!("https://hook.test:{port}/")), LONG).await;

        assert_eq!(report.outcome, answered(200), "case: {name}");
        assert_eq!(report.response_body, expected, "case: {name}");
    }
}

#[tokio::test]
async fn untrusted_certificate_is_a_tls_failure() {
    let (port, certificate) = start_tls_sink(&["h2"]).await;
    let cases = [
        ("signed by itself", tls_trusting([]), "hook.test", "UnknownIssuer"),
        ("for another name", tls_trusting([certificate]), "other.test", "not valid for name"),
        (
            "not one that the system trusts",
            TrustStore::from_system().default_config(),
            "hook.test",
            "UnknownIssuer",
        ),
    ];
    for (name, tls, host, expected) in cases {
        let sender = HttpSender::new(HttpSenderConfig { tls, ..config(&["127.0.0.0/8"]) });

        let report = sender.send(request(&format!("https://{host}:{port}/")), LONG).await;

        assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Tls), "case: {name}");
        let detail = report.detail.unwrap();
        assert!(detail.contains(expected), "case: {name}: {detail}");
    }
}

#[tokio::test]
async fn destination_without_tls_is_a_tls_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        // Kept open, so that the failure is the answer and not a closed connection.
        std::future::pending::<()>().await;
    });

    let report = sender().send(request(&format!("https://hook.test:{port}/")), LONG).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Tls), "{:?}", report.detail);
}

#[tokio::test]
async fn stalled_tls_handshake_ends_with_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();

    let report = sender().send(request(&format!("https://hook.test:{port}/")), SHORT).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Timeout));
}

#[tokio::test]
async fn endless_interim_responses_fail_the_attempt_with_their_own_reason() {
    let mut server = ScriptedServer::start([ServerAction::EndlessInterim]).await;
    let sender = HttpSender::new(config(&["127.0.0.0/8"]));

    let report = sender.send(request(&server.url()), LONG).await;

    assert_eq!(report.outcome, AttemptOutcome::Failed(AttemptFailure::Protocol));
    assert!(report.detail.unwrap().contains("1xx"));
    server.closed().await;
}

#[tokio::test]
async fn few_interim_responses_are_skipped() {
    let reply = PROCESSING.repeat(INTERIM_RESPONSES_MAX) + OK;
    let server = ScriptedServer::start([ServerAction::Reply(reply)]).await;
    let sender = HttpSender::new(config(&["127.0.0.0/8"]));

    let report = sender.send(request(&server.url()), LONG).await;

    assert_eq!(report.outcome.status(), Some(200));
}

#[tokio::test]
async fn attempt_without_a_free_socket_fails_as_a_shortage_of_the_gateway() {
    let server = ScriptedServer::start([ServerAction::Reply(OK.to_owned())]).await;
    let sockets = SocketBudget::new(1);
    let permit = sockets.take(1).unwrap();
    let sender = HttpSender::new(HttpSenderConfig { sockets, ..config(&["127.0.0.0/8"]) });

    let without_socket = sender.send(request(&server.url()), LONG).await;
    drop(permit);
    let sent = sender.send(request(&server.url()), LONG).await;

    assert_eq!(without_socket.outcome, AttemptOutcome::Failed(AttemptFailure::NoResources));
    assert!(!without_socket.may_have_arrived);
    assert_eq!(sent.outcome.status(), Some(200));
    assert_eq!(server.requests().len(), 1);
}
