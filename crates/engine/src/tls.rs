//! Whom we trust when we call, and who we are: the settings of TLS, for all destinations and for
//! those that have their own.
//!
//! Certificates are always checked. A destination may trust more roots, or other ones, and may
//! show a certificate of ours; it may not switch anything off.

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
use surehook_core::secret::{Secret, digest_parts};

/// A file with certificates or a key is not larger than this.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// What all destinations share.
#[derive(Debug, Clone)]
pub struct TrustStore {
    roots: Arc<RootCertStore>,
    usual: Arc<ClientConfig>,
}

impl TrustStore {
    /// What the system trusts, or Mozilla's list if the system has none, as in a bare container.
    pub fn from_system() -> Self {
        Self::only(system_roots())
    }

    fn only(roots: RootCertStore) -> Self {
        let roots = Arc::new(roots);
        Self { usual: Arc::new(with_roots(Arc::clone(&roots), None)), roots }
    }

    /// Who may be at the end of a chain of certificates.
    pub(crate) fn roots(&self) -> &[TrustAnchor<'static>] {
        &self.roots.roots
    }

    /// The settings of a destination that has none of its own.
    pub fn default_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.usual)
    }
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
fn try_with_roots(
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

fn with_roots(roots: Arc<RootCertStore>, identity: Option<ClientIdentity>) -> ClientConfig {
    try_with_roots(roots, identity).expect("without an identity there is nothing to refuse")
}

/// Certificates or keys that cannot be used. The words are our own: those of the libraries quote
/// lines of the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// The file cannot be read.
    #[error("tls.{field}: {place} cannot be read: {why}")]
    Read {
        /// Which setting.
        field: &'static str,
        /// Where it is.
        place: PemLocation,
        /// What is in the way.
        why: &'static str,
    },
    /// It holds something else.
    #[error("tls.{field}: {place} {what}")]
    Content {
        /// Which setting.
        field: &'static str,
        /// Where it is.
        place: PemLocation,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Two halves of different things.
    #[error("tls: client_certificate and client_key do not belong together")]
    NotAPair,
}

/// Where PEM text is, as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PemLocation {
    /// A file.
    File(std::path::PathBuf),
    /// The setting itself, or a variable.
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

/// The settings of one destination, and a digest of all that they were made of: as long as it is
/// the same, connections that are open may be used on.
#[derive(Debug)]
pub(crate) struct DestinationTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) digest: [u8; 32],
}

/// Reads what `tls` names, and makes settings of it.
pub(crate) fn own(
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
    let text =
        |loaded: &Option<&LoadedPem>| loaded.map_or(Vec::new(), |l| l.text.expose().to_vec());
    let (certificate, key) = (identity.as_ref().map(|i| &i.0), identity.as_ref().map(|i| &i.1));
    let digest = digest_parts([
        &[u8::from(tls.ca_only)][..],
        &text(&ca.as_ref()),
        &text(&certificate),
        &text(&key),
    ]);
    let roots = match &ca {
        Some(ca) => Arc::new(roots_with(ca, tls.ca_only, trust)?),
        None => Arc::clone(&trust.roots),
    };
    let identity =
        identity.map(|(certificate, key)| read_identity(&certificate, &key)).transpose()?;
    let config = try_with_roots(roots, identity).map_err(|_| TlsConfigError::NotAPair)?;
    Ok(DestinationTls { config: Arc::new(config), digest })
}

/// PEM text, and where it came from.
struct LoadedPem {
    field: &'static str,
    place: PemLocation,
    text: Secret,
}

impl LoadedPem {
    fn problem(&self, what: &'static str) -> TlsConfigError {
        TlsConfigError::Content { field: self.field, place: self.place.clone(), what }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        let found =
            CertificateDer::pem_slice_iter(self.text.expose()).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|_| self.problem("is not PEM"))?;
        if found.is_empty() {
            return Err(self.problem("holds no certificate in PEM"));
        }
        Ok(found)
    }
}

fn load(field: &'static str, pem: &PemSource) -> Result<LoadedPem, TlsConfigError> {
    match pem {
        PemSource::Text(text) => {
            Ok(LoadedPem { field, place: PemLocation::Text, text: text.clone() })
        }
        PemSource::File(path) => {
            let place = PemLocation::File(path.clone());
            match read_file(path) {
                Ok(text) => Ok(LoadedPem { field, place, text: Secret::new(text) }),
                Err(error) => Err(TlsConfigError::Read { field, place, why: plain_words(&error) }),
            }
        }
    }
}

/// Reads a plain file, within its bound. A device or a pipe could make us wait for ever.
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

fn plain_words(error: &io::Error) -> &'static str {
    let known = IO_KINDS.into_iter().find(|(kind, _)| *kind == error.kind());
    known.map_or("the system reports an error", |(_, words)| words)
}

const IO_KINDS: [(io::ErrorKind, &str); 4] = [
    (io::ErrorKind::NotFound, "there is no such file"),
    (io::ErrorKind::PermissionDenied, "the gateway may not read it"),
    (io::ErrorKind::InvalidInput, "it is not a plain file"),
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
        added.map_err(|_| ca.problem("holds a certificate that cannot be a root"))?;
    }
    Ok(roots)
}

fn read_identity(
    certificate: &LoadedPem,
    key: &LoadedPem,
) -> Result<ClientIdentity, TlsConfigError> {
    let certificates = certificate.certificates()?;
    let key = PrivateKeyDer::from_pem_slice(key.text.expose())
        .map_err(|_| key.problem("holds no private key in PEM"))?;
    Ok((certificates, key))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Trusts these certificates and nobody else's.
    pub(crate) fn trusting(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> TrustStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        TrustStore::only(roots)
    }
}
