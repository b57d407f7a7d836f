use std::convert::Infallible;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use data_encoding::BASE64;
use futures_util::future::join_all;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use surehook_guard::{address::AddressPolicy, connect::StaticResolver};
use surehook_types::secret::Secret;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::sockets::SocketBudget;
use crate::tls::tests::trusting;

pub(crate) const CHAIN: &[u8] = include_bytes!("../../../../testdata/paypal/chain.pem");
const OTHER_NAME: &[u8] = include_bytes!("../../../../testdata/paypal/other-name.pem");
const ROOT: &[u8] = include_bytes!("../../../../testdata/paypal/root.pem");
const KEY: &[u8] = include_bytes!("../../../../testdata/paypal/signing-key.pk8");

/// Returns a fixed answer, once there is a permit for it, and counts the fetches.
#[derive(Debug)]
struct CountingFetcher {
    response: Mutex<Result<Bytes, String>>,
    gate: Semaphore,
    fetches: AtomicUsize,
}

impl CountingFetcher {
    fn new(response: Result<&'static [u8], &str>) -> Arc<Self> {
        let response = Mutex::new(response.map(Bytes::from_static).map_err(str::to_owned));
        let gate = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { response, gate, fetches: AtomicUsize::new(0) })
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl FetchCertificate for CountingFetcher {
    async fn fetch(&self, _: &Url) -> Result<Bytes, String> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.response.lock().unwrap().clone()
    }
}

/// Trusts the root of [`CHAIN`].
pub(crate) fn trusting_root() -> TrustStore {
    trusting([CertificateDer::from_pem_slice(ROOT).unwrap()])
}

fn certificates(fetcher: &Arc<CountingFetcher>) -> CertificateCache {
    CertificateCache::new(Arc::clone(fetcher) as Arc<dyn FetchCertificate>, trusting_root())
}

fn url(name: &str) -> Url {
    format!("https://api.paypal.com/v1/notifications/certs/{name}").parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_fetch() {
    let fetcher = CountingFetcher::new(Ok(b"pem"));
    let certificates = certificates(&fetcher);
    let first = url("a");
    let all = join_all((0..50).map(|_| certificates.get(&first))).await;
    assert!(all.iter().all(|fetched| fetched.as_deref() == Ok(b"pem")));
    assert_eq!(fetcher.fetches(), 1);
    certificates.get(&url("b")).await.unwrap();
    assert_eq!(fetcher.fetches(), 2, "another address");
    tokio::time::advance(CACHED_FOR).await;
    certificates.get(&first).await.unwrap();
    assert_eq!(fetcher.fetches(), 3, "after a day");
}

#[tokio::test(start_paused = true)]
async fn failed_fetch_is_cached_briefly_and_then_retried() {
    let fetcher = CountingFetcher::new(Err("the answer was 500"));
    let certificates = certificates(&fetcher);
    for _ in 0..10 {
        assert_eq!(certificates.get(&url("a")).await.unwrap_err().as_ref(), "the answer was 500");
    }
    assert_eq!(fetcher.fetches(), 1);
    *fetcher.response.lock().unwrap() = Ok(Bytes::from_static(b"pem"));
    tokio::time::advance(FAILURE_CACHED_FOR).await;
    assert_eq!(certificates.get(&url("a")).await.as_deref(), Ok(b"pem".as_slice()));
    assert_eq!(fetcher.fetches(), 2);
}

#[tokio::test]
async fn flood_of_urls_is_bounded_and_evicts_no_certificate() {
    let fetcher = CountingFetcher::new(Ok(b"pem"));
    let certificates = certificates(&fetcher);
    certificates.get(&url("good")).await.unwrap();
    *fetcher.response.lock().unwrap() = Err("the answer was 404".to_owned());
    for number in 0..2 * FAILURES_MAX {
        certificates.get(&url(&number.to_string())).await.unwrap_err();
    }
    let held = {
        let state = lock(&certificates.state);
        (state.cached.len(), state.failed.len())
    };
    assert_eq!(held, (1, FAILURES_MAX));
    let before = fetcher.fetches();
    certificates.get(&url("good")).await.unwrap();
    assert_eq!(fetcher.fetches(), before);

    // While the allowed number of fetches hangs, further ones are refused.
    fetcher.gate.forget_permits(usize::MAX);
    let names: Vec<_> = (0..=FETCHES_MAX).map(|number| url(&format!("h{number}"))).collect();
    let waiting = join_all(names[..FETCHES_MAX].iter().map(|name| certificates.get(name)));
    let late = async {
        let refused = certificates.get(&names[FETCHES_MAX]).await;
        fetcher.gate.add_permits(FETCHES_MAX);
        refused
    };
    let (waited, refused) = tokio::join!(waiting, late);
    assert_eq!(refused.unwrap_err().as_ref(), "too many certificates are being fetched");
    assert_eq!(waited.len(), FETCHES_MAX);
}

#[test]
fn full_cache_evicts_the_oldest_certificate() {
    let mut state = CertificateCacheState::default();
    let now = Instant::now();
    for number in 0..=CACHED_MAX {
        let at = now + Duration::from_secs(number as u64);
        state.store(number.to_string(), Ok(Bytes::new()), at);
    }
    assert_eq!(state.cached.len(), CACHED_MAX);
    assert!(state.find("0", now).is_none() && state.find("1", now).is_some());
}

static SIGNING_KEY: LazyLock<RsaKeyPair> = LazyLock::new(|| RsaKeyPair::from_pkcs8(KEY).unwrap());

/// The headers that `PayPal` would send with a body, signed by the certificate of [`CHAIN`].
pub(crate) fn paypal_headers(id: &str, at: Timestamp, webhook: &str, body: &[u8]) -> HeaderMap {
    let line = format!("{id}|{at}|{webhook}|{}", crc32fast::hash(body));
    let mut signature = vec![0; SIGNING_KEY.public().modulus_len()];
    let random = SystemRandom::new();
    SIGNING_KEY.sign(&RSA_PKCS1_SHA256, &random, line.as_bytes(), &mut signature).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("paypal-transmission-id", id.parse().unwrap());
    headers.insert("paypal-transmission-time", at.to_string().parse().unwrap());
    headers.insert("paypal-cert-url", url("CERT-1").as_str().parse().unwrap());
    headers.insert("paypal-transmission-sig", BASE64.encode(&signature).parse().unwrap());
    headers
}

#[tokio::test]
async fn request_is_verified_with_the_certificate_it_names() {
    let cases = [
        ("good", Ok(CHAIN), "9XL90610J3647323C", Ok(())),
        ("another webhook", Ok(CHAIN), "OTHER", Err("mismatch")),
        (
            "another's certificate",
            Ok(OTHER_NAME),
            "9XL90610J3647323C",
            Err("untrusted_certificate"),
        ),
        // The provider retries after 503; after 401 it may give up.
        (
            "cannot be fetched",
            Err("the answer was 500"),
            "9XL90610J3647323C",
            Err("certificate_unavailable"),
        ),
    ];
    let now = Timestamp::from_millis(1_800_000_000_000);
    let headers = paypal_headers("t1", now, "9XL90610J3647323C", b"{}");
    let request = IncomingRequest {
        source: "s",
        path: "",
        query: None,
        headers: &headers,
        body: b"{}",
        origin: None,
    };
    for (name, response, webhook, expected) in cases {
        let provider = surehook_webhooks::provider::find("paypal").unwrap();
        let verifier = provider.verifier(vec![Secret::new(webhook)]).unwrap();
        let url = verifier.certificate_url(&request).unwrap().unwrap();
        let certificates = certificates(&CountingFetcher::new(response));
        let verified = certificates.verify(&verifier, &url, &request, now).await;
        let result = verified.map(|_| ()).map_err(|error| error.code());
        assert_eq!(result, expected, "case: {name}");
    }
}

/// Serves `https://certs.test`; returns the port and a store that trusts its certificate.
async fn serve() -> (u16, TrustStore) {
    let issued = rcgen::generate_simple_self_signed(["certs.test".to_owned()]).unwrap();
    let certificate = issued.cert.der().clone();
    let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                let (status, body) = match (request.method().as_str(), request.uri().path()) {
                    ("GET", "/good") => (200, Bytes::from_static(CHAIN)),
                    ("GET", "/long") => (200, Bytes::from(vec![b'a'; RESPONSE_BYTES_KEPT])),
                    ("GET", "/moved") => (302, Bytes::new()),
                    _ => (404, Bytes::new()),
                };
                let response = Response::builder().status(status).header("location", "/good");
                Ok::<_, Infallible>(response.body(Full::new(body)).unwrap())
            });
            let stream = TokioIo::new(stream);
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service),
            );
        }
    });
    (port, trusting([certificate]))
}

#[tokio::test]
async fn certificate_is_fetched_through_the_address_guard() {
    let (port, trust) = serve().await;
    let fetcher = |allow: &[&str], trust: &TrustStore| {
        HttpCertificateFetcher::new(&HttpSenderConfig {
            policy: Arc::new(AddressPolicy::new(
                allow.iter().map(|net| net.parse().unwrap()).collect(),
            )),
            resolver: Arc::new(StaticResolver::localhost()),
            tls: trust.default_config(),
            proxy: None,
            sockets: SocketBudget::new(100),
            pool_idle_max: 1,
        })
    };
    let open = fetcher(&["127.0.0.0/8"], &trust);
    let at = |host: &str, path: &str| format!("https://{host}:{port}{path}").parse().unwrap();
    let good: Url = at("certs.test", "/good");
    assert_eq!(open.fetch(&good).await.as_deref(), Ok(CHAIN));
    let cases: [(&str, &HttpCertificateFetcher, Url, &str); 6] = [
        ("no certificate", &open, at("certs.test", "/none"), "404"),
        ("a redirect is not followed", &open, at("certs.test", "/moved"), "302"),
        ("too long", &open, at("certs.test", "/long"), "too long"),
        ("certificate of another host", &open, at("other.test", "/good"), "certificate"),
        ("a private address", &fetcher(&[], &trust), good.clone(), "127.0.0.1"),
        ("not trusted", &fetcher(&["127.0.0.0/8"], &trusting([])), good, "certificate"),
    ];
    for (name, fetcher, url, expected) in cases {
        let reason = fetcher.fetch(&url).await.unwrap_err();
        assert!(reason.contains(expected), "case: {name}: {reason}");
    }
}
