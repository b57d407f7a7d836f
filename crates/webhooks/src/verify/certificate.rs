//! Signatures by a certificate that the provider publishes.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject};
use surehook_types::time::Timestamp;
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage, ring::RSA_PKCS1_2048_8192_SHA256,
};

use super::VerifyError;

/// A chain has three or four certificates. Limits the work for a malicious file.
const CERTIFICATES_MAX: usize = 8;

/// A certificate fetched from its provider, with the trusted roots.
#[derive(Clone, Copy, Debug)]
pub struct CertificateChain<'c> {
    /// The certificate in PEM, possibly with those of its issuers.
    pub pem: &'c [u8],
    /// The authorities to trust.
    pub roots: &'c [TrustAnchor<'static>],
}

impl CertificateChain<'_> {
    /// Verifies the RSA-SHA-256 `signature` over `text`. The certificate must be valid now and be issued
    /// for a name that `is_expected_name` accepts.
    ///
    /// If issuers are served with it, the chain must lead to a root. A lone certificate cannot be
    /// traced to a root: it is as trustworthy as the TLS connection it was fetched over.
    pub(crate) fn verify_signature(
        &self,
        is_expected_name: impl Fn(&str) -> bool,
        text: &[u8],
        signature: &[u8],
        now: Timestamp,
    ) -> Result<(), VerifyError> {
        let untrusted = VerifyError::UntrustedCertificate;
        let mut issuers = CertificateDer::pem_slice_iter(self.pem)
            .take(CERTIFICATES_MAX + 1)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| untrusted("it is not PEM"))?;
        if issuers.is_empty() {
            return Err(untrusted("it is not PEM"));
        }
        if issuers.len() > CERTIFICATES_MAX {
            return Err(untrusted("its chain is too long"));
        }
        let is_expected = |der: &CertificateDer<'_>| {
            EndEntityCert::try_from(der)
                .is_ok_and(|certificate| certificate.valid_dns_names().any(&is_expected_name))
        };
        let position = issuers.iter().position(is_expected);
        let der = issuers.swap_remove(position.ok_or(untrusted("it is for another name"))?);
        let certificate =
            EndEntityCert::try_from(&der).map_err(|_| untrusted("it cannot be verified"))?;
        let millis = u64::try_from(now.as_millis()).unwrap_or_default();
        let path = certificate.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            self.roots,
            &issuers,
            UnixTime::since_unix_epoch(Duration::from_millis(millis)),
            KeyUsage::server_auth(),
            None,
            None,
        );
        match path {
            Ok(_) => {}
            // Everything but the issuer was checked, including the validity period.
            Err(Error::UnknownIssuer) if issuers.is_empty() => {}
            Err(Error::CertExpired { .. } | Error::CertNotValidYet { .. }) => {
                return Err(untrusted("it is not valid at this time"));
            }
            Err(Error::UnknownIssuer) => {
                return Err(untrusted("its issuer is not trusted"));
            }
            Err(_) => return Err(untrusted("it cannot be verified")),
        }
        certificate
            .verify_signature(RSA_PKCS1_2048_8192_SHA256, text, signature)
            .map_err(|_| VerifyError::Mismatch)
    }
}
