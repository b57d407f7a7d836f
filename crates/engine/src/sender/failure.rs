//! Names what went wrong in an exchange, whichever of the libraries below it went wrong in.
//!
//! The error that arrives is a chain, and the link that tells the story may be anywhere in it.

use std::error::Error;
use std::io;

use rustls::pki_types::InvalidDnsNameError;
use surehook_core::delivery::AttemptFailure;

use crate::connect::ConnectError;

/// A certificate may have hundreds of names, and the TLS library quotes them all.
const DETAIL_CHARS_MAX: usize = 300;

/// An exchange that did not come to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExchangeError {
    pub(crate) failure: AttemptFailure,
    /// For the operator. Made of our own words and those of the TLS and HTTP libraries. Never of
    /// the system's, which tell somebody who may not see the network what is in it.
    pub(crate) detail: String,
    /// The request was certainly not taken: there was no connection that it could have been written
    /// to, or whoever is at the other end of it does not want us.
    pub(super) before_sending: bool,
}

impl From<hyper_util::client::legacy::Error> for ExchangeError {
    fn from(error: hyper_util::client::legacy::Error) -> Self {
        let is_connect = error.is_connect();
        let otherwise =
            if is_connect { AttemptFailure::Unreachable } else { AttemptFailure::Reset };
        let broken = Self::from_chain(&error, otherwise);
        Self { before_sending: is_connect || broken.before_sending, ..broken }
    }
}

impl From<hyper::Error> for ExchangeError {
    fn from(error: hyper::Error) -> Self {
        Self::from_chain(&error, AttemptFailure::Reset)
    }
}

impl ExchangeError {
    pub(crate) fn from_chain(error: &(dyn Error + 'static), otherwise: AttemptFailure) -> Self {
        let known = READERS.iter().find_map(|read| links(error).find_map(read));
        known.unwrap_or_else(|| Self::new(otherwise, plain_words(otherwise)))
    }

    /// The same, if TLS has nothing to say about it; otherwise what it says.
    pub(super) fn unless_tls_said(self, said: Option<rustls::Error>) -> Self {
        match (self.failure, said) {
            (AttemptFailure::Reset | AttemptFailure::Protocol, Some(said)) => {
                let before_sending = self.before_sending || refuses_us(&said);
                Self { before_sending, ..Self::new(AttemptFailure::Tls, said) }
            }
            _ => self,
        }
    }

    pub(super) fn new(failure: AttemptFailure, detail: impl ToString) -> Self {
        let detail = detail.to_string().chars().take(DETAIL_CHARS_MAX).collect();
        Self { failure, detail, before_sending: false }
    }
}

type Reader = fn(&(dyn Error + 'static)) -> Option<ExchangeError>;

/// Each knows one library. Those that tell most come first: a TLS error arrives inside an I/O
/// error, and a failed lookup has one inside.
const READERS: [Reader; 4] = [read_connect, read_tls, read_http, read_io];

fn read_connect(link: &(dyn Error + 'static)) -> Option<ExchangeError> {
    let error = link.downcast_ref::<ConnectError>()?;
    Some(ExchangeError::new(failure_of(error), error))
}

fn failure_of(error: &ConnectError) -> AttemptFailure {
    match error {
        ConnectError::Blocked(_) => AttemptFailure::Blocked,
        ConnectError::Dns(_) => AttemptFailure::Dns,
        ConnectError::Refused => AttemptFailure::Refused,
        ConnectError::Timeout { .. } => AttemptFailure::Timeout,
        ConnectError::Unreachable(_) => AttemptFailure::Unreachable,
        ConnectError::AtProxy(error) => failure_of(error),
        ConnectError::Proxy(_) => AttemptFailure::Proxy,
        ConnectError::ProxyRefused(_) => AttemptFailure::ProxyRefused,
    }
}

fn read_tls(link: &(dyn Error + 'static)) -> Option<ExchangeError> {
    if let Some(said) = link.downcast_ref::<rustls::Error>() {
        let before_sending = refuses_us(said);
        return Some(ExchangeError {
            before_sending,
            ..ExchangeError::new(AttemptFailure::Tls, said)
        });
    }
    let name = link.downcast_ref::<InvalidDnsNameError>()?;
    Some(ExchangeError::new(AttemptFailure::Tls, name))
}

/// Whether the other end says that it does not want to speak with us. With TLS 1.3 this comes after our
/// side of the handshake, and the request may have been written by then; but who does not accept our
/// certificate has not taken a request from us. Other errors may come in the middle of an answer.
fn refuses_us(said: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;

    let rustls::Error::AlertReceived(alert) = said else { return false };
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

fn read_http(link: &(dyn Error + 'static)) -> Option<ExchangeError> {
    let error = link.downcast_ref::<hyper::Error>().filter(|error| error.is_parse())?;
    Some(ExchangeError::new(AttemptFailure::Protocol, error))
}

fn read_io(link: &(dyn Error + 'static)) -> Option<ExchangeError> {
    let kind = link.downcast_ref::<io::Error>()?.kind();
    let (_, failure) = IO_KINDS.into_iter().find(|(known, _)| *known == kind)?;
    Some(ExchangeError::new(failure, plain_words(failure)))
}

/// What an I/O error on an open connection means. The kinds that are missing here say nothing.
const IO_KINDS: [(io::ErrorKind, AttemptFailure); 10] = [
    (io::ErrorKind::ConnectionReset, AttemptFailure::Reset),
    (io::ErrorKind::ConnectionAborted, AttemptFailure::Reset),
    (io::ErrorKind::BrokenPipe, AttemptFailure::Reset),
    (io::ErrorKind::NotConnected, AttemptFailure::Reset),
    (io::ErrorKind::UnexpectedEof, AttemptFailure::Reset),
    (io::ErrorKind::TimedOut, AttemptFailure::Timeout),
    (io::ErrorKind::HostUnreachable, AttemptFailure::Unreachable),
    (io::ErrorKind::NetworkUnreachable, AttemptFailure::Unreachable),
    // These two are how hyper reports a chunked body that is none.
    (io::ErrorKind::InvalidData, AttemptFailure::Protocol),
    (io::ErrorKind::InvalidInput, AttemptFailure::Protocol),
];

/// The error and its causes, outermost first.
fn links<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&link| {
        // The source of an I/O error that wraps another error is not that error but its source:
        // following sources alone would pass over the TLS error inside.
        let wrapped = link.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| link.source())
    })
}

fn plain_words(failure: AttemptFailure) -> &'static str {
    match failure {
        AttemptFailure::Dns => "the name could not be resolved",
        AttemptFailure::Refused => "the connection was refused",
        AttemptFailure::Unreachable => "the address cannot be reached",
        AttemptFailure::Reset => "the connection broke before the whole answer was there",
        AttemptFailure::Timeout => "the connection timed out",
        AttemptFailure::Tls => "the TLS handshake failed",
        AttemptFailure::Blocked => "the address may not be called",
        AttemptFailure::Protocol => "the answer is not HTTP",
        AttemptFailure::Proxy => "the proxy could not carry the request on",
        AttemptFailure::ProxyRefused => "the proxy does not let the request through",
        AttemptFailure::Token => "the token endpoint gave no token",
        AttemptFailure::TokenRefused => "the token endpoint refused to give a token",
        AttemptFailure::Interrupted => "the gateway was shut down",
        AttemptFailure::Transform => "the transform of the route failed",
        AttemptFailure::Unsignable => "the request could not be signed as `sign_as` wants it",
        AttemptFailure::Unsendable => "the service cannot send this message",
        AttemptFailure::NotStarted => "the program could not be started",
        AttemptFailure::Exit => "the program failed",
        AttemptFailure::ErrorReply => "it answered with an error",
    }
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription as Alert;
    use rustls::Error as Tls;

    use super::*;

    #[test]
    fn a_server_that_does_not_want_us_has_not_taken_the_request() {
        let cases = [
            (Tls::AlertReceived(Alert::CertificateRequired), true),
            (Tls::AlertReceived(Alert::UnknownCA), true),
            (Tls::AlertReceived(Alert::HandshakeFailure), true),
            (Tls::AlertReceived(Alert::AccessDenied), true),
            // The request may have been taken, and its answer was lost.
            (Tls::AlertReceived(Alert::InternalError), false),
            (Tls::AlertReceived(Alert::BadRecordMac), false),
            (Tls::DecryptError, false),
        ];
        for (said, before_sending) in cases {
            let broken = ExchangeError::new(AttemptFailure::Reset, "gone")
                .unless_tls_said(Some(said.clone()));
            assert_eq!(broken.failure, AttemptFailure::Tls, "case: {said:?}");
            assert_eq!(broken.before_sending, before_sending, "case: {said:?}");
            let inside = io::Error::other(said.clone());
            let broken = ExchangeError::from_chain(&inside, AttemptFailure::Reset);
            assert_eq!(broken.before_sending, before_sending, "case: {said:?}, in a chain");
        }
    }
}
