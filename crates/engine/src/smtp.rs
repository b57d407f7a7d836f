//! Sends mails: one connection for each, through the [`GuardedConnector`].
//!
//! A mail whose last reply is lost may have been sent. It is sent again, with the same `Message-ID`.

use std::{fmt::Write as _, io, sync::Arc, time::Duration};

use data_encoding::BASE64;
use rustls::{ClientConfig, pki_types::ServerName};
use surehook_core::destination::email::{MailAddress, MailEncryption, MailLogin, Mailbox};
use surehook_guard::connect::GuardedConnector;
use surehook_retry::{AttemptFailure, FailureClass};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader,
    },
    time::timeout,
};
use tokio_rustls::TlsConnector;
use url::Host;

use crate::{
    non_http::NonHttpResult,
    sender::{
        RESPONSE_BYTES_KEPT,
        exchange_error::{ErrorLink, ExchangeError},
    },
    sockets::SocketBudget,
};

/// Longest reply line, and most lines of a reply.
const LINE_BYTES_MAX: u64 = 1024;
const LINES_MAX: usize = 64;

/// Sends the mails of a destination.
#[derive(Debug)]
pub(crate) struct MailSender<'a> {
    pub(crate) mailbox: &'a Mailbox,
    pub(crate) connector: GuardedConnector,
    pub(crate) tls: &'a ClientConfig,
    pub(crate) sockets: &'a SocketBudget,
}

/// A complete reply of the server.
#[derive(Debug, PartialEq, Eq)]
struct SmtpReply {
    code: u16,
    lines: Vec<String>,
}

impl SmtpReply {
    fn is_positive(&self) -> bool {
        self.code < 400
    }

    fn offers(&self, extension: &str) -> bool {
        let mut words = self.lines.iter().filter_map(|line| line.split_ascii_whitespace().next());
        words.any(|word| word.eq_ignore_ascii_case(extension))
    }

    fn offers_login(&self, mechanism: &str) -> bool {
        self.lines.iter().any(|line| {
            let mut words = line.split(|char: char| char.is_ascii_whitespace() || char == '=');
            words.next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH"))
                && words.any(|word| word.eq_ignore_ascii_case(mechanism))
        })
    }

    /// The result of an attempt that ends with this refusal.
    fn into_failure(self, step: &str) -> NonHttpResult {
        let class = match self.code {
            // Authentication required, or refused.
            530 | 534 | 535 | 538 => FailureClass::Config,
            500..=599 => FailureClass::Permanent,
            _ => FailureClass::Transient,
        };
        let detail = format!("the mail server answered {} to {step}", self.code);
        let mut output = format!("{} {}", self.code, self.lines.join("\n")).into_bytes();
        output.truncate(RESPONSE_BYTES_KEPT);
        NonHttpResult::failed(AttemptFailure::ErrorReply, class, detail).with_output(output)
    }
}

impl MailSender<'_> {
    /// Sends a composed mail within `time_limit`.
    pub(crate) async fn send(&self, mail: &str, time_limit: Duration) -> NonHttpResult {
        let sending = timeout(time_limit, self.connect_and_send(mail));
        match sending.await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(failed)) => failed,
            Err(_) => NonHttpResult::unanswered(
                AttemptFailure::Timeout,
                format!("the mail server did not accept the mail within {time_limit:?}"),
            ),
        }
    }

    async fn connect_and_send(&self, mail: &str) -> Result<NonHttpResult, NonHttpResult> {
        let Mailbox { host, port, encryption, login, .. } = self.mailbox;
        let socket = self.sockets.take(1);
        let _socket =
            socket.map_err(|error| connection_failure(&error, AttemptFailure::NoResources))?;
        let stream = self.connector.connect_tcp(&host.to_string(), *port).await;
        let stream =
            stream.map_err(|error| connection_failure(&error, AttemptFailure::Unreachable))?;
        let client_name = match stream.local_addr().map(|address| address.ip()) {
            Ok(std::net::IpAddr::V4(ip)) => format!("[{ip}]"),
            Ok(std::net::IpAddr::V6(ip)) => format!("[IPv6:{ip}]"),
            Err(_) => "localhost".to_owned(),
        };
        let login = login.as_ref();
        match encryption {
            MailEncryption::Tls => {
                let mut connection =
                    SmtpConnection::new(self.start_tls(stream).await?, client_name);
                connection.greet().await?;
                let offers = connection.hello().await?;
                connection.log_in(login, &offers).await?;
                connection.deliver(self.mailbox, mail).await
            }
            MailEncryption::Off => {
                let mut connection = SmtpConnection::new(stream, client_name);
                connection.greet().await?;
                let offers = connection.hello().await?;
                connection.log_in(login, &offers).await?;
                connection.deliver(self.mailbox, mail).await
            }
            MailEncryption::StartTls => {
                let mut connection = SmtpConnection::new(stream, client_name.clone());
                connection.greet().await?;
                if !connection.hello().await?.offers("STARTTLS") {
                    return Err(NonHttpResult::failed(
                        AttemptFailure::Tls,
                        FailureClass::Config,
                        "the mail server does not offer STARTTLS; use smtps://, or starttls = \"off\" for a relay without encryption",
                    ));
                }
                connection.command("STARTTLS", "STARTTLS").await?;
                let stream = connection.into_plain_stream()?;
                let mut connection =
                    SmtpConnection::new(self.start_tls(stream).await?, client_name);
                let offers = connection.hello().await?;
                connection.log_in(login, &offers).await?;
                connection.deliver(self.mailbox, mail).await
            }
        }
    }

    async fn start_tls<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Result<tokio_rustls::client::TlsStream<S>, NonHttpResult> {
        let name = match &self.mailbox.host {
            Host::Domain(name) => ServerName::try_from(name.clone())
                .map_err(|error| connection_failure(&error, AttemptFailure::Tls))?,
            Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
        };
        // ALPN is for HTTP only.
        let mut tls = self.tls.clone();
        tls.alpn_protocols.clear();
        let secured = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
        secured.map_err(|error| connection_failure(&error, AttemptFailure::Reset))
    }
}

struct SmtpConnection<S> {
    stream: BufReader<S>,
    client_name: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> SmtpConnection<S> {
    fn new(stream: S, client_name: String) -> Self {
        Self { stream: BufReader::new(stream), client_name }
    }

    /// The stream before encryption. A server that has already sent more is not trusted: what came
    /// before the handshake would be read as if it came after it.
    fn into_plain_stream(self) -> Result<S, NonHttpResult> {
        if !self.stream.buffer().is_empty() {
            return Err(not_smtp());
        }
        Ok(self.stream.into_inner())
    }

    async fn greet(&mut self) -> Result<(), NonHttpResult> {
        let greeting = self.read_reply().await?;
        if greeting.is_positive() { Ok(()) } else { Err(greeting.into_failure("the connection")) }
    }

    async fn hello(&mut self) -> Result<SmtpReply, NonHttpResult> {
        let hello = format!("EHLO {}", self.client_name);
        self.command(&hello, "EHLO").await
    }

    async fn log_in(
        &mut self,
        login: Option<&MailLogin>,
        offers: &SmtpReply,
    ) -> Result<(), NonHttpResult> {
        let Some(MailLogin { user, password }) = login else { return Ok(()) };
        if offers.offers_login("PLAIN") {
            let plain = [b"\0", user.as_bytes(), b"\0", password.expose()].concat();
            let command = format!("AUTH PLAIN {}", BASE64.encode(&plain));
            return self.command(&command, "the login").await.map(drop);
        }
        if offers.offers_login("LOGIN") {
            self.command("AUTH LOGIN", "the login").await?;
            self.command(&BASE64.encode(user.as_bytes()), "the login").await?;
            return self.command(&BASE64.encode(password.expose()), "the login").await.map(drop);
        }
        Err(NonHttpResult::failed(
            AttemptFailure::ErrorReply,
            FailureClass::Config,
            "the mail server offers no login with a password; remove `auth`, or use another port",
        ))
    }

    /// Sends the mail to all recipients that the server accepts, at least one. If it may accept another
    /// one later, none gets the mail yet, so that none gets it twice.
    async fn deliver(
        &mut self,
        mailbox: &Mailbox,
        mail: &str,
    ) -> Result<NonHttpResult, NonHttpResult> {
        self.command(&format!("MAIL FROM:<{}>", mailbox.from.address), "the sender").await?;
        let (mut accepted, mut refused) = (0, Vec::new());
        for MailAddress { address, .. } in &mailbox.to {
            self.write(&format!("RCPT TO:<{address}>\r\n")).await?;
            let reply = self.read_reply().await?;
            match reply.code {
                0..=399 => accepted += 1,
                500..=599 => refused.push(reply),
                _ => return Err(reply.into_failure("a recipient")),
            }
        }
        if accepted == 0 {
            return Err(match refused.pop() {
                Some(reply) => reply.into_failure("the recipients"),
                None => not_smtp(),
            });
        }
        self.command("DATA", "DATA").await?;
        let mut data = mail.replace("\r\n.", "\r\n..");
        data.push_str(".\r\n");
        self.write(&data).await?;
        let reply = self.read_reply().await?;
        if !reply.is_positive() {
            return Err(reply.into_failure("the mail"));
        }
        // The mail is accepted, whatever becomes of this.
        let _closed = self.write("QUIT\r\n").await;
        let mut output = format!("{} {}", reply.code, reply.lines.join("\n"));
        if !refused.is_empty() {
            let _infallible = write!(output, "\n{} of the recipients refused", refused.len());
        }
        output.truncate(output.floor_char_boundary(RESPONSE_BYTES_KEPT));
        Ok(NonHttpResult::succeeded(output.into_bytes()))
    }

    /// Sends a command that must be accepted. `step` describes it, without secrets.
    async fn command(&mut self, line: &str, step: &str) -> Result<SmtpReply, NonHttpResult> {
        self.write(&format!("{line}\r\n")).await?;
        let reply = self.read_reply().await?;
        if reply.is_positive() { Ok(reply) } else { Err(reply.into_failure(step)) }
    }

    async fn write(&mut self, text: &str) -> Result<(), NonHttpResult> {
        let stream = self.stream.get_mut();
        let written = async {
            stream.write_all(text.as_bytes()).await?;
            stream.flush().await
        };
        written.await.map_err(|error: io::Error| connection_failure(&error, AttemptFailure::Reset))
    }

    async fn read_reply(&mut self) -> Result<SmtpReply, NonHttpResult> {
        let mut lines = Vec::new();
        while lines.len() < LINES_MAX {
            let mut line = Vec::new();
            let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut line).await;
            read.map_err(|error| connection_failure(&error, AttemptFailure::Reset))?;
            let closed = || {
                NonHttpResult::unanswered(
                    AttemptFailure::Reset,
                    "the mail server closed the connection",
                )
            };
            if line.is_empty() {
                return Err(closed());
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.strip_suffix('\n').ok_or_else(not_smtp)?.trim_end();
            let code = line.get(..3).and_then(|code| code.parse().ok()).ok_or_else(not_smtp)?;
            if !(200..600).contains(&code) {
                return Err(not_smtp());
            }
            let text = line.get(4..).unwrap_or_default();
            lines.push(text.chars().filter(|char| !char.is_control()).collect());
            match line.as_bytes().get(3) {
                Some(b'-') => {}
                Some(b' ') | None => return Ok(SmtpReply { code, lines }),
                Some(_) => return Err(not_smtp()),
            }
        }
        Err(not_smtp())
    }
}

fn not_smtp() -> NonHttpResult {
    NonHttpResult::unanswered(AttemptFailure::Protocol, "the server does not speak SMTP")
}

fn connection_failure(error: &ErrorLink, otherwise: AttemptFailure) -> NonHttpResult {
    let ExchangeError { failure, detail, .. } = ExchangeError::from_chain(error, otherwise);
    NonHttpResult::unanswered(failure, detail)
}

#[cfg(test)]
mod tests {
    use surehook_core::destination::email::EmailSpec;
    use tokio::io::DuplexStream;

    use super::*;
    use crate::non_http::NonHttpEnd;

    fn mailbox() -> Mailbox {
        let json = r#"{"from":"a@b.test","to":["c@d.test","e@f.test"],"starttls":"off"}"#;
        let spec: EmailSpec = serde_json::from_str(json).unwrap();
        spec.build("smtp://mail.test", None, &|_| None).unwrap()
    }

    /// A connection to a server that has already sent these replies, and what is written to it.
    async fn connect(replies: &str) -> (SmtpConnection<DuplexStream>, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(replies.as_bytes()).await.unwrap();
        (SmtpConnection::new(near, "[127.0.0.1]".to_owned()), far)
    }

    async fn deliver(replies: &str) -> (NonHttpEnd, String) {
        let (mut connection, mut far) = connect(replies).await;
        let result = connection.deliver(&mailbox(), "Subject: x\r\n\r\n.y\r\n").await;
        drop(connection);
        let mut written = String::new();
        far.read_to_string(&mut written).await.unwrap();
        (result.unwrap_or_else(|failed| failed).end, written)
    }

    #[tokio::test]
    async fn temporary_refusal_of_a_recipient_sends_the_mail_to_none() {
        use FailureClass::{Config, Permanent, Transient};
        let failed = |class| NonHttpEnd::Failed(AttemptFailure::ErrorReply, class);
        let cases = [
            ("250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 done\r\n", NonHttpEnd::Succeeded, true),
            (
                "250 ok\r\n550 no\r\n250 ok\r\n354 go\r\n250-a\r\n250 b\r\n",
                NonHttpEnd::Succeeded,
                true,
            ),
            ("250 ok\r\n250 ok\r\n451 later\r\n", failed(Transient), false),
            ("250 ok\r\n550 no\r\n550 no\r\n", failed(Permanent), false),
            ("530 log in\r\n", failed(Config), false),
            ("250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n452 full\r\n", failed(Transient), true),
            ("250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n554 spam\r\n", failed(Permanent), true),
        ];
        for (replies, expected, sends_mail) in cases {
            let (end, written) = deliver(replies).await;
            assert_eq!(end, expected, "case: {replies:?}");
            // A line that begins with a dot does not end the mail.
            let has_mail = written.contains("Subject: x\r\n\r\n..y\r\n.\r\n");
            assert_eq!(has_mail, sends_mail, "case: {replies:?} {written:?}");
        }
    }

    #[tokio::test]
    async fn server_that_does_not_speak_smtp_is_noticed() {
        let long = "x".repeat(100_000);
        let endless = "250-x\r\n".repeat(1000);
        for replies in ["HTTP/1.1 400\r\n", "2\r\n", "250/x\r\n", "099 x\r\n", &long, &endless] {
            let (mut connection, _far) = connect(replies).await;
            assert_eq!(connection.read_reply().await, Err(not_smtp()), "case: {replies:.20}");
        }
    }

    #[tokio::test]
    async fn reply_before_the_handshake_is_not_taken_for_one_after_it() {
        let (mut connection, _far) = connect("220 go\r\n250 injected\r\n").await;
        assert_eq!(connection.read_reply().await.unwrap().code, 220);
        assert!(connection.into_plain_stream().is_err());
    }

    #[test]
    fn login_is_offered_in_both_spellings() {
        let reply = |line: &str| SmtpReply { code: 250, lines: vec![line.to_owned()] };
        assert!(reply("AUTH LOGIN PLAIN").offers_login("PLAIN"));
        assert!(reply("AUTH=LOGIN").offers_login("LOGIN"));
        assert!(!reply("AUTH CRAM-MD5").offers_login("PLAIN"));
        assert!(reply("STARTTLS").offers("starttls"));
    }
}
