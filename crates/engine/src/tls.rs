//! TLS settings of outgoing connections: the default ones, and those of single destinations.
//!
//! Certificates are always verified. A destination may trust more roots, or other ones, and may present a
//! client certificate; it cannot disable verification.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use surehook_core::destination::tls::{PemSource, TlsConfig};
use surehook_types::secret::{Secret, digest_parts};

/// The limit on a file with certificates or a key.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// The root certificates and the default settings.
#[derive(Debug, Clone)]
pub struct TrustStore {
    roots: Arc<RootCertStore>,
    default_config: Arc<ClientConfig>,
}

impl TrustStore {
    /// The roots of the system, or Mozilla's if the system has none, as in a minimal container.
    pub fn from_system() -> Self {
        Self::with_roots(system_roots())
    }

    fn with_roots(roots: RootCertStore) -> Self {
        let roots = Arc::new(roots);
        Self { default_config: Arc::new(build_default_config(Arc::clone(&roots))), roots }
    }

    /// The trust anchors.
    pub(crate) fn roots(&self) -> &[TrustAnchor<'static>] {
        &self.roots.roots
    }

    /// The settings of a destination without its own.
    pub fn default_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.default_config)
    }
}

/// The settings for a server that is no destination: it is trusted by the roots of the system, or only by
/// the authorities in a file.
pub fn client_config_of_file(ca_file: Option<&Path>) -> Result<ClientConfig, TlsConfigError> {
    let trust = TrustStore::from_system();
    let roots = match ca_file {
        Some(file) => {
            roots_with(&load("ca", &PemSource::File(file.to_owned()))?, true, &trust)?.into()
        }
        None => trust.roots,
    };
    Ok(build_default_config(roots))
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        tracing::warn!("the system has no root certificates; using the built-in ones");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// TLS 1.2 or 1.3, and HTTP/2 where it is offered.
fn build_config(
    roots: Arc<RootCertStore>,
    identity: Option<ClientIdentity>,
) -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring has cipher suites for both versions")
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((certificates, key)) => config.with_client_auth_cert(certificates, key)?,
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn build_default_config(roots: Arc<RootCertStore>) -> ClientConfig {
    build_config(roots, None).expect("without a client certificate nothing can be refused")
}

/// Why certificates or keys cannot be used. With our own texts: those of the libraries quote lines of the
/// file.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    #[error("tls.{field}: {location} cannot be read: {reason}")]
    Read { field: &'static str, location: PemLocation, reason: &'static str },
    #[error("tls.{field}: {location} {what}")]
    Content { field: &'static str, location: PemLocation, what: &'static str },
    #[error("tls: client_certificate and client_key do not match")]
    KeyMismatch,
}

/// Where PEM text was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PemLocation {
    File(std::path::PathBuf),
    /// The setting itself, or an environment variable.
    Text,
}

impl fmt::Display for PemLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "`{}`", path.display()),
            Self::Text => f.write_str("the text"),
        }
    }
}

/// The TLS settings of one destination, and a digest of everything they were built from: while it is the
/// same, open connections may be reused.
#[derive(Clone, Debug)]
pub(crate) struct DestinationTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) digest: [u8; 32],
}

/// Loads the files that `tls` names and builds the settings.
pub(crate) fn load_destination_tls(
    tls: Option<&TlsConfig>,
    trust: &TrustStore,
) -> Result<DestinationTls, TlsConfigError> {
    let Some(tls) = tls else {
        return Ok(DestinationTls { config: trust.default_config(), digest: [0; 32] });
    };
    let ca = tls.ca.as_ref().map(|pem| load("ca", pem)).transpose()?;
    let identity = match &tls.identity {
        Some((certificate, key)) => {
            Some((load("client_certificate", certificate)?, load("client_key", key)?))
        }
        None => None,
    };
    let (certificate, key) = identity.as_ref().map(|(certificate, key)| (certificate, key)).unzip();
    let ca_only = [u8::from(tls.ca_only)];
    let digest =
        digest_parts([&ca_only[..], pem_text(ca.as_ref()), pem_text(certificate), pem_text(key)]);
    let roots = match &ca {
        Some(ca) => Arc::new(roots_with(ca, tls.ca_only, trust)?),
        None => Arc::clone(&trust.roots),
    };
    let identity =
        identity.map(|(certificate, key)| read_identity(&certificate, &key)).transpose()?;
    let config = build_config(roots, identity).map_err(|_| TlsConfigError::KeyMismatch)?;
    Ok(DestinationTls { config: Arc::new(config), digest })
}

fn pem_text(pem: Option<&LoadedPem>) -> &[u8] {
    pem.map(|pem| pem.text.expose()).unwrap_or_default()
}

/// A certificate with its chain, and its key, which the server itself presents.
pub type ServerIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads the files of the settings `tls.cert` and `tls.key`. Whether they match is not checked.
pub fn read_server_identity(cert: &Path, key: &Path) -> Result<ServerIdentity, TlsConfigError> {
    let load_file = |field, path: &Path| load(field, &PemSource::File(path.to_owned()));
    read_identity(&load_file("cert", cert)?, &load_file("key", key)?)
}

/// PEM text, and where it was read from.
struct LoadedPem {
    field: &'static str,
    location: PemLocation,
    text: Secret,
}

impl LoadedPem {
    fn content_error(&self, what: &'static str) -> TlsConfigError {
        TlsConfigError::Content { field: self.field, location: self.location.clone(), what }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        let certificates =
            CertificateDer::pem_slice_iter(self.text.expose()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|_| self.content_error("is not PEM"))?;
        if certificates.is_empty() {
            return Err(self.content_error("contains no PEM certificate"));
        }
        Ok(certificates)
    }
}

fn load(field: &'static str, pem: &PemSource) -> Result<LoadedPem, TlsConfigError> {
    match pem {
        PemSource::Text(text) => {
            Ok(LoadedPem { field, location: PemLocation::Text, text: text.clone() })
        }
        PemSource::File(path) => {
            let location = PemLocation::File(path.clone());
            match read_file(path) {
                Ok(text) => Ok(LoadedPem { field, location, text: Secret::new(text) }),
                Err(error) => {
                    Err(TlsConfigError::Read { field, location, reason: describe_io_error(&error) })
                }
            }
        }
    }
}

/// Reads a regular file up to the size limit. A device or a pipe could block forever.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    File::open(path)?.take(PEM_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > PEM_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn describe_io_error(error: &io::Error) -> &'static str {
    let known = IO_KINDS.into_iter().find(|(kind, _)| *kind == error.kind());
    known.map_or("the system reports an error", |(_, text)| text)
}

const IO_KINDS: [(io::ErrorKind, &str); 4] = [
    (io::ErrorKind::NotFound, "there is no such file"),
    (io::ErrorKind::PermissionDenied, "the gateway has no permission to read it"),
    (io::ErrorKind::InvalidInput, "it is not a regular file"),
    (io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"),
];

fn roots_with(
    ca: &LoadedPem,
    ca_only: bool,
    trust: &TrustStore,
) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = if ca_only { RootCertStore::empty() } else { (*trust.roots).clone() };
    for certificate in ca.certificates()? {
        let added = roots.add(certificate);
        added.map_err(|_| ca.content_error("contains a certificate that cannot be a root"))?;
    }
    Ok(roots)
}

fn read_identity(
    certificate: &LoadedPem,
    key: &LoadedPem,
) -> Result<ClientIdentity, TlsConfigError> {
    let certificates = certificate.certificates()?;
    let key = PrivateKeyDer::from_pem_slice(key.text.expose())
        .map_err(|_| key.content_error("contains no PEM private key"))?;
    Ok((certificates, key))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Trusts only these certificates.
    pub(crate) fn trusting(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> TrustStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        TrustStore::with_roots(roots)
    }
}
