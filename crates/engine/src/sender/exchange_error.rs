//! The error of an exchange, read from the errors of the connector, rustls, hyper and the operating
//! system.
//!
//! An error is a chain of sources, and the relevant one may be anywhere in it.

use std::error::Error;
use std::io;

use rustls::pki_types::InvalidDnsNameError;
use surehook_guard::connect::ConnectError;
use surehook_retry::AttemptFailure;

/// A certificate may have hundreds of names, and the TLS library lists them all.
const DETAIL_CHARS_MAX: usize = 300;

/// Why an exchange was not completed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExchangeError {
    pub(crate) failure: AttemptFailure,
    /// Text for people: our own or that of the TLS and HTTP libraries, never that of the operating system,
    /// which could reveal details of the network.
    pub(crate) detail: String,
    /// Whether the request may have been accepted. It was not if there was no connection to write it to, or
    /// if the other side refused to talk to us.
    pub(super) may_be_accepted: bool,
}

impl From<hyper_util::client::legacy::Error> for ExchangeError {
    fn from(error: hyper_util::client::legacy::Error) -> Self {
        let is_connect = error.is_connect();
        let fallback = if is_connect { AttemptFailure::Unreachable } else { AttemptFailure::Reset };
        let error = Self::from_chain(&error, fallback);
        Self { may_be_accepted: error.may_be_accepted && !is_connect, ..error }
    }
}

impl From<hyper::Error> for ExchangeError {
    fn from(error: hyper::Error) -> Self {
        Self::from_chain(&error, AttemptFailure::Reset)
    }
}

impl ExchangeError {
    /// Reads the most specific error of the chain; if none is known, the failure is `fallback`.
    pub(crate) fn from_chain(error: &ErrorLink, fallback: AttemptFailure) -> Self {
        let specific = READERS.iter().find_map(|read| links(error).find_map(read));
        specific.unwrap_or_else(|| Self::new(fallback, describe(fallback)))
    }

    /// Replaces an unspecific error by the TLS error on the connection, if there was one.
    pub(super) fn or_tls_error(self, tls: Option<rustls::Error>) -> Self {
        match (self.failure, tls) {
            (AttemptFailure::Reset | AttemptFailure::Protocol, Some(tls)) => {
                let may_be_accepted = self.may_be_accepted && !is_peer_refusal(&tls);
                Self { may_be_accepted, ..Self::new(AttemptFailure::Tls, tls) }
            }
            _ => self,
        }
    }

    pub(super) fn new(failure: AttemptFailure, detail: impl ToString) -> Self {
        let detail = detail.to_string().chars().take(DETAIL_CHARS_MAX).collect();
        Self { failure, detail, may_be_accepted: true }
    }
}

/// One error of a chain.
pub(crate) type ErrorLink = dyn Error + 'static;

type ErrorReader = fn(&ErrorLink) -> Option<ExchangeError>;

/// One reader for each library, the most specific first: a TLS error arrives inside an I/O error, and a failed
/// lookup contains one.
const READERS: [ErrorReader; 4] = [read_connect, read_tls, read_http, read_io];

fn read_connect(link: &ErrorLink) -> Option<ExchangeError> {
    let error = link.downcast_ref::<ConnectError>()?;
    Some(ExchangeError::new(connect_failure(error), error))
}

fn connect_failure(error: &ConnectError) -> AttemptFailure {
    match error {
        ConnectError::Blocked(_) => AttemptFailure::Blocked,
        ConnectError::Dns(_) => AttemptFailure::Dns,
        ConnectError::Refused => AttemptFailure::Refused,
        ConnectError::Timeout { .. } => AttemptFailure::Timeout,
        ConnectError::Unreachable(_) => AttemptFailure::Unreachable,
        ConnectError::NoResources => AttemptFailure::NoResources,
        ConnectError::AtProxy(error) => connect_failure(error),
        ConnectError::Proxy(_) => AttemptFailure::Proxy,
        ConnectError::ProxyRefused(_) => AttemptFailure::ProxyRefused,
    }
}

fn read_tls(link: &ErrorLink) -> Option<ExchangeError> {
    if let Some(error) = link.downcast_ref::<rustls::Error>() {
        return Some(ExchangeError {
            may_be_accepted: !is_peer_refusal(error),
            ..ExchangeError::new(AttemptFailure::Tls, error)
        });
    }
    let name = link.downcast_ref::<InvalidDnsNameError>()?;
    Some(ExchangeError::new(AttemptFailure::Tls, name))
}

/// Whether the other side refused to talk to us. With TLS 1.3 this arrives after our side of the handshake,
/// and the request may have been written by then; but a server that does not accept our certificate has
/// not accepted a request. Other alerts may arrive in the middle of a response.
fn is_peer_refusal(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;

    let rustls::Error::AlertReceived(alert) = error else { return false };
    matches!(
        alert,
        Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::HandshakeFailure
            | Alert::InsufficientSecurity
            | Alert::NoApplicationProtocol
            | Alert::ProtocolVersion
            | Alert::UnknownCA
            | Alert::UnrecognisedName
            | Alert::UnsupportedCertificate
    )
}

fn read_http(link: &ErrorLink) -> Option<ExchangeError> {
    let error = link.downcast_ref::<hyper::Error>().filter(|error| error.is_parse())?;
    Some(ExchangeError::new(AttemptFailure::Protocol, error))
}

fn read_io(link: &ErrorLink) -> Option<ExchangeError> {
    let kind = link.downcast_ref::<io::Error>()?.kind();
    let (_, failure) = IO_KINDS.into_iter().find(|(io_kind, _)| *io_kind == kind)?;
    Some(ExchangeError::new(failure, describe(failure)))
}

/// The failure for an I/O error on an open connection. Other kinds are unspecific.
const IO_KINDS: [(io::ErrorKind, AttemptFailure); 10] = [
    (io::ErrorKind::ConnectionReset, AttemptFailure::Reset),
    (io::ErrorKind::ConnectionAborted, AttemptFailure::Reset),
    (io::ErrorKind::BrokenPipe, AttemptFailure::Reset),
    (io::ErrorKind::NotConnected, AttemptFailure::Reset),
    (io::ErrorKind::UnexpectedEof, AttemptFailure::Reset),
    (io::ErrorKind::TimedOut, AttemptFailure::Timeout),
    (io::ErrorKind::HostUnreachable, AttemptFailure::Unreachable),
    (io::ErrorKind::NetworkUnreachable, AttemptFailure::Unreachable),
    // hyper reports an invalid chunked body with these two.
    (io::ErrorKind::InvalidData, AttemptFailure::Protocol),
    (io::ErrorKind::InvalidInput, AttemptFailure::Protocol),
];

/// The error and its causes, outermost first.
fn links(error: &ErrorLink) -> impl Iterator<Item = &ErrorLink> {
    std::iter::successors(Some(error), |&link| {
        // The source of an I/O error that wraps another error is not that error but its source:
        // following sources alone would skip the TLS error inside.
        let wrapped = link.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &ErrorLink).or_else(|| link.source())
    })
}

/// The text for a failure of which only the kind is known. The other failures have texts of their own.
fn describe(failure: AttemptFailure) -> &'static str {
    let texts = [
        (AttemptFailure::Unreachable, "the address cannot be reached"),
        (AttemptFailure::Reset, "the connection was closed before the response was complete"),
        (AttemptFailure::Timeout, "the connection timed out"),
        (AttemptFailure::Tls, "the TLS handshake failed"),
        (AttemptFailure::Protocol, "the response is not HTTP"),
    ];
    let text = texts.into_iter().find(|(described, _)| *described == failure);
    text.map_or(failure.as_str(), |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription as Alert;
    use rustls::Error as Tls;

    use super::*;

    #[test]
    fn tls_alert_that_refuses_us_means_the_request_was_not_accepted() {
        let cases = [
            (Tls::AlertReceived(Alert::CertificateRequired), false),
            (Tls::AlertReceived(Alert::UnknownCA), false),
            (Tls::AlertReceived(Alert::HandshakeFailure), false),
            (Tls::AlertReceived(Alert::AccessDenied), false),
            // The request may have been accepted, and its response lost.
            (Tls::AlertReceived(Alert::InternalError), true),
            (Tls::AlertReceived(Alert::BadRecordMac), true),
            (Tls::DecryptError, true),
        ];
        for (error, may_be_accepted) in cases {
            let read =
                ExchangeError::new(AttemptFailure::Reset, "gone").or_tls_error(Some(error.clone()));
            assert_eq!(read.failure, AttemptFailure::Tls, "case: {error:?}");
            assert_eq!(read.may_be_accepted, may_be_accepted, "case: {error:?}");
            let wrapped = io::Error::other(error.clone());
            let read = ExchangeError::from_chain(&wrapped, AttemptFailure::Reset);
            assert_eq!(read.may_be_accepted, may_be_accepted, "case: {error:?}, in a chain");
        }
    }
}
