//! Certificates that a provider signs its requests with.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject};
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage, ring::RSA_PKCS1_2048_8192_SHA256,
};

use super::VerifyError;
use crate::time::Timestamp;

/// A chain has three or four. More only serve to make us work.
const CERTIFICATES_MAX: usize = 8;

/// A certificate that was fetched from its provider, and whom we trust.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'c> {
    /// The certificate in PEM, and perhaps those of its issuers.
    pub pem: &'c [u8],
    /// Who may be at the end of a chain.
    pub roots: &'c [TrustAnchor<'static>],
}

impl Certificate<'_> {
    /// Checks that `signature` over `text` was made with RSA and SHA-256 by the holder of the
    /// certificate for a name that `is_wanted`, and that the certificate is good now.
    ///
    /// Where the issuers are served with it, they must lead to a root. A certificate that stands
    /// alone cannot be followed: it is as good as the connection that it came through.
    pub(crate) fn check(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        (text, signature): (&[u8], &[u8]),
        now: Timestamp,
    ) -> Result<(), VerifyError> {
        let all = CertificateDer::pem_slice_iter(self.pem)
            .take(CERTIFICATES_MAX + 1)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| VerifyError::UntrustedCertificate("it is not PEM"))?;
        if all.len() > CERTIFICATES_MAX {
            return Err(VerifyError::UntrustedCertificate("its chain is too long"));
        }
        let wanted = all.iter().enumerate().find_map(|(place, der)| {
            let certificate = EndEntityCert::try_from(der).ok()?;
            let is_it = certificate.valid_dns_names().any(&is_wanted);
            is_it.then_some((place, certificate))
        });
        let (place, certificate) =
            wanted.ok_or(VerifyError::UntrustedCertificate("it is for another name"))?;
        let issuers: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != place)
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
            // All but the issuer was good, the time among it.
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
