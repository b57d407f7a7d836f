//! Signatures by a certificate that the provider publishes.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject};
use surehook_types::time::Timestamp;
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage, ring::RSA_PKCS1_2048_8192_SHA256,
};

use super::VerifyError;

/// A chain has three or four certificates. More would only make us compute.
const CERTIFICATES_MAX: usize = 8;

/// A certificate fetched from its provider, with the trusted roots.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'c> {
    /// The certificate in PEM, possibly with those of its issuers.
    pub pem: &'c [u8],
    /// Trust anchors.
    pub roots: &'c [TrustAnchor<'static>],
}

impl Certificate<'_> {
    /// Verifies the RSA-SHA-256 `signature` over `text` with the certificate for a name that
    /// `is_expected_name` accepts, and that the certificate is valid now.
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
        let all = CertificateDer::pem_slice_iter(self.pem)
            .take(CERTIFICATES_MAX + 1)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| VerifyError::UntrustedCertificate("it is not PEM"))?;
        if all.len() > CERTIFICATES_MAX {
            return Err(VerifyError::UntrustedCertificate("its chain is too long"));
        }
        let expected = all.iter().enumerate().find_map(|(position, der)| {
            let certificate = EndEntityCert::try_from(der).ok()?;
            let is_expected = certificate.valid_dns_names().any(&is_expected_name);
            is_expected.then_some((position, certificate))
        });
        let (position, certificate) =
            expected.ok_or(VerifyError::UntrustedCertificate("it is for another name"))?;
        let issuers: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != position)
            .map(|(_, der)| der.clone())
            .collect();
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
                return Err(VerifyError::UntrustedCertificate("it is not valid at this time"));
            }
            Err(_) => return Err(VerifyError::UntrustedCertificate("its issuer is not trusted")),
        }
        certificate
            .verify_signature(RSA_PKCS1_2048_8192_SHA256, text, signature)
            .map_err(|_| VerifyError::Mismatch)
    }
}
