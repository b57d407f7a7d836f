//! TLS of the listener: a certificate and its key from files, replaced while the server runs.
//!
//! `serve` accepts connections with it, `follow_files` replaces the certificate when its files change,
//! and a reload of the settings replaces it too. A certificate that cannot be used never replaces one
//! that can. Only HTTP/1.1 is offered (docs/decisions/0010).

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use surehook_engine::tls::{TlsConfigError, read_server_identity};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The files of a certificate with its chain, and of its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error(transparent)]
    Read(#[from] TlsConfigError),
    #[error("tls.key: the key does not belong to the certificate in tls.cert")]
    Mismatch,
}

/// A certificate that was read and checked.
#[derive(Debug)]
pub struct LoadedCertificate {
    files: CertificateFiles,
    fingerprint: Fingerprint,
    key: Arc<CertifiedKey>,
}

/// What shows that files have changed. A certificate manager replaces them, or the link to their folder.
type Fingerprint = [Option<(u64, u64, SystemTime)>; 2];

impl CertificateFiles {
    /// Reads the files and checks that they belong together.
    pub fn load(&self) -> Result<LoadedCertificate, CertificateError> {
        // Before reading: what changes later is noticed.
        let fingerprint = self.fingerprint();
        let (chain, key) = read_server_identity(&self.cert, &self.key)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|_| CertificateError::Mismatch)?;
        Ok(LoadedCertificate { files: self.clone(), fingerprint, key: Arc::new(key) })
    }

    fn fingerprint(&self) -> Fingerprint {
        [&self.cert, &self.key].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.ino(), metadata.len(), metadata.modified().ok()?))
        })
    }
}

/// TLS of the listener.
pub struct ListenerTls {
    acceptor: TlsAcceptor,
    current: Arc<CurrentCertificate>,
    /// The files in use, as they were when they were last read.
    files: Mutex<(CertificateFiles, Fingerprint)>,
}

impl std::fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl ListenerTls {
    pub fn new(certificate: LoadedCertificate) -> Arc<Self> {
        let LoadedCertificate { files, fingerprint, key } = certificate;
        let current = Arc::new(CurrentCertificate(RwLock::new(key)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("ring has cipher suites for both versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Arc::new(Self { acceptor, current, files: Mutex::new((files, fingerprint)) })
    }

    /// Presents another certificate from now on.
    pub fn replace(&self, certificate: LoadedCertificate) {
        let LoadedCertificate { files, fingerprint, key } = certificate;
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = key;
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = (files, fingerprint);
    }

    /// Replaces the certificate whenever its files change, until `stop`. While they cannot be used, the
    /// old one stays.
    pub async fn follow_files(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let Some(files) = self.changed_files() else { continue };
            match files.load() {
                Ok(certificate) => {
                    self.replace(certificate);
                    tracing::info!(cert = %files.cert.display(), "the certificate was replaced");
                }
                Err(error) => tracing::error!(
                    %error,
                    "the changed certificate cannot be used; the old one stays in use"
                ),
            }
        }
    }

    /// The files, if they have changed since this was last asked.
    fn changed_files(&self) -> Option<CertificateFiles> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = files.0.fingerprint();
        if files.1 == fingerprint {
            return None;
        }
        files.1 = fingerprint;
        Some(files.0.clone())
    }

    /// Completes the handshake of a connection within a time.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        timeout: Duration,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let handshake = tokio::time::timeout(timeout, self.acceptor.accept(stream));
        handshake.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }
}
