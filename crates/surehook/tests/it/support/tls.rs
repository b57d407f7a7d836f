//! A destination with TLS, its certificate authority, and client certificates.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use data_encoding::BASE64;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject as _,
    },
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::client::HttpResponse;

pub(crate) struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

impl CertificateAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // OpenSSL takes a certificate whose issuer has its own name for a self-signed one.
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// The certificate of the authority in PEM.
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", self.0.der())
    }

    fn sign(
        &self,
        names: &[&str],
        purpose: ExtendedKeyUsagePurpose,
    ) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    /// A server certificate for this name and its key.
    fn sign_server(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let (certificate, key) = self.sign(&[name], ExtendedKeyUsagePurpose::ServerAuth);
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), PrivateKeyDer::from(key))
    }

    /// A client certificate and its key in PEM.
    pub(crate) fn issue_client_certificate(&self) -> (String, String) {
        let (certificate, key) = self.sign(&["gateway"], ExtendedKeyUsagePurpose::ClientAuth);
        (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()))
    }

    /// A server certificate for these names and its key in PEM.
    pub(crate) fn issue_server_certificate(&self, names: &[&str]) -> (String, String) {
        let (certificate, key) = self.sign(names, ExtendedKeyUsagePurpose::ServerAuth);
        (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()))
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64.encode(der))
}

/// A client that trusts the certificates of one authority.
pub(crate) struct TlsClient(TlsConnector);

impl TlsClient {
    /// `root` is the certificate of the authority in PEM.
    pub(crate) fn new(root: &str, protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        // A resumed session would show the certificate of its first connection.
        config.resumption = Resumption::disabled();
        Self(TlsConnector::from(Arc::new(config)))
    }

    /// Sends one HTTP/1.1 request over a new connection to the server of this name; returns the head of
    /// the response with its body to read, and the certificate of the server.
    pub(crate) async fn open(
        &self,
        address: SocketAddr,
        name: &str,
        mut request: Request<Full<Bytes>>,
    ) -> std::io::Result<(Response<Incoming>, Vec<u8>)> {
        let stream = TcpStream::connect(address).await?;
        let server = ServerName::try_from(name.to_owned()).unwrap();
        let stream = self.0.connect(server, stream).await?;
        let session = stream.get_ref().1;
        assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
        let certificate = session.peer_certificates().unwrap()[0].to_vec();
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        request.headers_mut().entry("host").or_insert(name.parse().unwrap());
        let response = sender.send_request(request).await.map_err(std::io::Error::other)?;
        Ok((response, certificate))
    }

    /// Like [`Self::open`], and reads the body.
    pub(crate) async fn send(
        &self,
        address: SocketAddr,
        name: &str,
        request: Request<Full<Bytes>>,
    ) -> std::io::Result<(HttpResponse, Vec<u8>)> {
        let (response, certificate) = self.open(address, name, request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        Ok((HttpResponse { status: head.status, headers: head.headers, body }, certificate))
    }
}

/// A destination at `https://127.0.0.1` that responds 200. Stops when dropped.
#[derive(Debug)]
pub(crate) struct TlsSink {
    port: u16,
    requests: Arc<AtomicUsize>,
    accept_task: JoinHandle<()>,
}

impl TlsSink {
    /// Starts with HTTP/2 and HTTP/1.1; requires client certificates issued by `clients`, if given.
    pub(crate) async fn start(
        authority: &CertificateAuthority,
        clients: Option<&CertificateAuthority>,
    ) -> Self {
        Self::start_with_protocols(&["h2", "http/1.1"], authority, clients).await
    }

    /// Like [`Self::start`], with these protocols.
    pub(crate) async fn start_with_protocols(
        protocols: &[&str],
        authority: &CertificateAuthority,
        clients: Option<&CertificateAuthority>,
    ) -> Self {
        let (certificate, key) = authority.sign_server("127.0.0.1");
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match clients {
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.0.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let accept_task = tokio::spawn(accept(listener, config, Arc::clone(&requests)));
        Self { port, requests, accept_task }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}/hook", self.port)
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for TlsSink {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

async fn accept(listener: TcpListener, config: ServerConfig, requests: Arc<AtomicUsize>) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, requests) = (acceptor.clone(), Arc::clone(&requests));
        tokio::spawn(async move {
            let stream = match acceptor.accept(stream).into_fallible().await {
                Ok(stream) => stream,
                Err((_, mut refused)) => {
                    // Closing with unread bytes would reset the connection, and the alert with the
                    // reason could be lost.
                    refused.shutdown().await.ok();
                    tokio::io::copy(&mut refused, &mut tokio::io::sink()).await.ok();
                    return;
                }
            };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |_: Request<Incoming>| {
                requests.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::new()))) }
            });
            let stream = TokioIo::new(stream);
            // Some tests break the connection on purpose.
            if is_http2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ended = builder.serve_connection(stream, service).await;
            } else {
                let builder = hyper::server::conn::http1::Builder::new();
                let _ended = builder.serve_connection(stream, service).await;
            }
        });
    }
}

/// Terminates TLS at `https://127.0.0.1` in front of a server, as a proxy in production does. Stops when
/// dropped.
#[derive(Debug)]
pub(crate) struct TlsProxy {
    port: u16,
    accept_task: JoinHandle<()>,
}

impl TlsProxy {
    pub(crate) async fn start(authority: &CertificateAuthority, server: SocketAddr) -> Self {
        Self::start_for("127.0.0.1", 0, authority, server).await
    }

    /// Like [`Self::start`], as the server of this name on a port of 127.0.0.1.
    pub(crate) async fn start_for(
        name: &str,
        port: u16,
        authority: &CertificateAuthority,
        server: SocketAddr,
    ) -> Self {
        let (certificate, key) = authority.sign_server(name);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accept_task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                // A client that refuses the certificate ends only its own connection.
                tokio::spawn(async move {
                    let mut client = acceptor.accept(stream).await?;
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { port, accept_task }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}
