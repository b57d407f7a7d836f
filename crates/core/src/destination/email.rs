//! E-mail destinations: the mail server, and the message that an event becomes.
//!
//! An event for such a destination is a JSON object with `subject` and `text`. The `Message-ID` is that
//! of the event, so a message that was sent twice is recognized by mail programs.

use std::fmt;

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    ids::EventId,
    secret::{Env, Secret, SecretError},
    string_enum,
    time::Timestamp,
};
use url::{Host, Url};

use super::auth::AuthSpec;

/// Recipients of one destination.
const RECIPIENTS_MAX: usize = 50;
/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 254;
/// A mail with a longer text is cut off.
const TEXT_BYTES_MAX: usize = 256 * 1024;
const SUBJECT_CHARS_MAX: usize = 200;

const SUBMISSION_PORT: u16 = 587;
const SUBMISSION_TLS_PORT: u16 = 465;

string_enum! {
    /// Whether a connection to `smtp://` is encrypted with STARTTLS.
    #[derive(Default)]
    pub enum StartTlsPolicy {
        /// A server that does not offer it gets no mail.
        #[default]
        Required = "required",
        /// Not encrypted: for a relay on the same machine. No password is sent.
        Off = "off",
    }
}

impl StartTlsPolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The mail settings of a destination; `url` names the server: `smtp://host:587` (STARTTLS) or
/// `smtps://host:465` (TLS).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmailSpec {
    /// Sender: an address, or a name with an address in `<…>`.
    pub from: String,
    #[schemars(length(min = 1, max = RECIPIENTS_MAX))]
    pub to: Vec<String>,
    #[serde(default, skip_serializing_if = "StartTlsPolicy::is_default")]
    pub starttls: StartTlsPolicy,
}

/// Why mail settings are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmailSpecError {
    #[error("url: invalid URL; use smtp://host:587 (STARTTLS) or smtps://host:465 (TLS)")]
    Syntax,
    #[error(
        "url: must not contain a user or password; set `auth = {{ basic = {{ user = \"…\", password = \"env:NAME\" }} }}`"
    )]
    Password,
    #[error("auth: mail servers support only `basic`, with a user and a password")]
    Auth,
    #[error("auth: {0}")]
    AuthSecret(#[from] SecretError),
    #[error(
        "auth: a password needs an encrypted connection; remove `starttls = \"off\"` or use smtps://"
    )]
    Unencrypted,
    #[error("email: `{0}` is not an e-mail address")]
    Address(String),
    #[error("email.to must have 1 to {RECIPIENTS_MAX} addresses")]
    Recipients,
}

/// User and password of a mail server.
#[derive(Clone)]
pub struct MailLogin {
    pub user: String,
    pub password: Secret,
}

impl fmt::Debug for MailLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MailLogin(•••)")
    }
}

impl PartialEq for MailLogin {
    fn eq(&self, other: &Self) -> bool {
        self.user == other.user && self.password.expose() == other.password.expose()
    }
}

impl Eq for MailLogin {}

/// How the connection to a mail server is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailEncryption {
    /// From the first byte.
    Tls,
    StartTls,
    Off,
}

/// A checked mail destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    pub host: Host,
    pub port: u16,
    pub encryption: MailEncryption,
    pub login: Option<MailLogin>,
    pub from: MailAddress,
    pub to: Vec<MailAddress>,
}

/// An e-mail address, with the name of its owner if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress {
    name: Option<String>,
    /// `local@domain`, printable ASCII without spaces and angle brackets.
    pub address: String,
}

impl MailAddress {
    fn parse(text: &str) -> Result<Self, EmailSpecError> {
        let invalid = || EmailSpecError::Address(text.to_owned());
        let (name, address) = match text.trim().strip_suffix('>') {
            Some(rest) => rest.split_once('<').ok_or_else(invalid)?,
            None => ("", text.trim()),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"<>()[]\\,;:\"".contains(&byte);
        let (local, domain) = address.split_once('@').ok_or_else(invalid)?;
        let is_valid = !local.is_empty()
            && !domain.is_empty()
            && !domain.contains('@')
            && address.len() <= ADDRESS_BYTES_MAX
            && address.bytes().all(is_plain)
            && !name.chars().any(char::is_control);
        if !is_valid {
            return Err(invalid());
        }
        let name = name.trim().trim_matches('"').trim();
        Ok(Self { name: (!name.is_empty()).then(|| name.to_owned()), address: address.to_owned() })
    }

    fn domain(&self) -> &str {
        self.address.rsplit('@').next().unwrap_or("localhost")
    }
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} <{}>", encode_words(name), self.address),
            None => f.write_str(&self.address),
        }
    }
}

impl EmailSpec {
    pub fn build(
        &self,
        url: &str,
        auth: Option<&AuthSpec>,
        env: Env<'_>,
    ) -> Result<Mailbox, EmailSpecError> {
        let url = Url::parse(url.trim()).map_err(|_| EmailSpecError::Syntax)?;
        let (encryption, default_port) = match (url.scheme(), self.starttls) {
            ("smtps", _) => (MailEncryption::Tls, SUBMISSION_TLS_PORT),
            ("smtp", StartTlsPolicy::Required) => (MailEncryption::StartTls, SUBMISSION_PORT),
            ("smtp", StartTlsPolicy::Off) => (MailEncryption::Off, SUBMISSION_PORT),
            _ => return Err(EmailSpecError::Syntax),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EmailSpecError::Password);
        }
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
        let host = url.host_str().filter(|host| !host.is_empty() && is_bare);
        // `url` normalizes the host only for http; parse it again.
        let host = host.and_then(|host| Host::parse(host).ok()).ok_or(EmailSpecError::Syntax)?;
        let login = match auth {
            None => None,
            Some(AuthSpec::Basic { user, password }) => {
                Some(MailLogin { user: user.clone(), password: password.resolve(env)? })
            }
            Some(AuthSpec::Bearer(_) | AuthSpec::Oauth2(_)) => return Err(EmailSpecError::Auth),
        };
        if login.is_some() && encryption == MailEncryption::Off {
            return Err(EmailSpecError::Unencrypted);
        }
        if !(1..=RECIPIENTS_MAX).contains(&self.to.len()) {
            return Err(EmailSpecError::Recipients);
        }
        Ok(Mailbox {
            host,
            port: url.port().unwrap_or(default_port),
            encryption,
            login,
            from: MailAddress::parse(&self.from)?,
            to: self.to.iter().map(|to| MailAddress::parse(to)).collect::<Result<_, _>>()?,
        })
    }
}

/// The event of a mail destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmailBody {
    pub subject: String,
    pub text: String,
}

/// Why an event is not a mail.
#[derive(Debug, thiserror::Error)]
#[error(
    "not a mail: {0}; a destination of kind email takes a JSON object with `subject` and `text`, which a route's transform can produce"
)]
pub struct ParseEmailError(String);

impl EmailBody {
    pub fn parse(body: &[u8]) -> Result<Self, ParseEmailError> {
        serde_json::from_slice(body).map_err(|error| ParseEmailError(error.to_string()))
    }

    /// The mail with its headers, lines ending with CRLF and at most 78 characters long.
    pub fn compose(&self, mailbox: &Mailbox, event: EventId, at: Timestamp) -> String {
        let recipients: Vec<String> = mailbox.to.iter().map(ToString::to_string).collect();
        let subject: String = self.subject.chars().take(SUBJECT_CHARS_MAX).collect();
        let mut end = self.text.len().min(TEXT_BYTES_MAX);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let encoded = BASE64.encode(&self.text.as_bytes()[..end]);
        let mut mail = format!(
            "From: {}\r\nTo: {}\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{event}@{}>\r\n\
             Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n",
            mailbox.from,
            recipients.join(",\r\n "),
            encode_words(&subject),
            at.to_rfc_2822(),
            mailbox.from.domain(),
        );
        for line in encoded.as_bytes().chunks(76) {
            mail.extend(line.iter().map(|byte| char::from(*byte)));
            mail.push_str("\r\n");
        }
        mail
    }
}

/// A header value as encoded words (RFC 2047), unless it is short, plain text.
fn encode_words(text: &str) -> String {
    // With `Subject: =?utf-8?B?…?=` around it, a line has 76 characters.
    const WORD_BYTES_MAX: usize = 39;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_.#%!'+/".contains(&byte);
    if text.len() <= 60 && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let mut words = Vec::new();
    let mut word = String::new();
    for char in text.chars().map(|char| if char.is_control() { ' ' } else { char }) {
        if word.len() + char.len_utf8() > WORD_BYTES_MAX {
            words.push(std::mem::take(&mut word));
        }
        word.push(char);
    }
    words.push(word);
    let encoded =
        words.iter().map(|word| format!("=?utf-8?B?{}?=", BASE64.encode(word.as_bytes())));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build(url: &str, email: Value, auth: Option<Value>) -> Result<Mailbox, EmailSpecError> {
        let spec: EmailSpec = serde_json::from_value(email).unwrap();
        let auth: Option<AuthSpec> = auth.map(|auth| serde_json::from_value(auth).unwrap());
        spec.build(url, auth.as_ref(), &|name| (name == "PASSWORD").then(|| "canary".to_owned()))
    }

    fn email() -> Value {
        json!({ "from": "Surehook <alerts@example.com>", "to": ["ops@example.com"] })
    }

    #[test]
    fn mail_settings_are_checked() {
        let basic = || Some(json!({ "basic": { "user": "u", "password": "env:PASSWORD" } }));
        let bearer = || Some(json!({ "bearer": "env:PASSWORD" }));
        let off = || json!({ "from": "a@b", "to": ["c@d"], "starttls": "off" });
        let to = |to: &[&str]| json!({ "from": "a@b", "to": to });
        let from = |from: &str| json!({ "from": from, "to": ["c@d"] });
        let address = |text: &str| EmailSpecError::Address(text.to_owned());
        let many = vec!["a@b"; RECIPIENTS_MAX + 1];
        for (url, email, auth, expected) in [
            ("http://h", email(), None, EmailSpecError::Syntax),
            ("smtp://", email(), None, EmailSpecError::Syntax),
            ("smtp://h/x", email(), None, EmailSpecError::Syntax),
            ("env:URL", email(), None, EmailSpecError::Syntax),
            ("smtp://u:canary@h", email(), None, EmailSpecError::Password),
            ("smtp://h", email(), bearer(), EmailSpecError::Auth),
            ("smtp://h", off(), basic(), EmailSpecError::Unencrypted),
            ("smtp://h", to(&[]), None, EmailSpecError::Recipients),
            ("smtp://h", to(&many), None, EmailSpecError::Recipients),
            ("smtp://h", to(&["ops"]), None, address("ops")),
            ("smtp://h", to(&["a@b\r\nRCPT TO:<x@y>"]), None, address("a@b\r\nRCPT TO:<x@y>")),
            ("smtp://h", to(&["a b@c"]), None, address("a b@c")),
            ("smtp://h", from("x\r\nBcc: y <a@b>"), None, address("x\r\nBcc: y <a@b>")),
            ("smtp://h", from("a@b>"), None, address("a@b>")),
        ] {
            assert_eq!(build(url, email.clone(), auth), Err(expected), "case: {url} {email}");
        }
        for (url, email, auth, expected) in [
            ("smtp://mail.test", email(), basic(), (MailEncryption::StartTls, 587)),
            ("smtps://mail.test", email(), basic(), (MailEncryption::Tls, 465)),
            ("smtps://mail.test:1465", email(), None, (MailEncryption::Tls, 1465)),
            ("smtp://127.0.0.1:25", off(), None, (MailEncryption::Off, 25)),
        ] {
            let mailbox = build(url, email, auth).unwrap();
            assert_eq!((mailbox.encryption, mailbox.port), expected, "case: {url}");
            assert!(!format!("{mailbox:?}").contains("canary"));
        }
    }

    #[test]
    fn mail_has_the_id_of_its_event_and_no_line_is_too_long() {
        let mailbox = build(
            "smtp://mail.test",
            json!({ "from": "Alertas — Produção <alerts@example.com>", "to": ["a@b.test", "c@d.test"] }),
            None,
        )
        .unwrap();
        let body = EmailBody {
            subject: "Não entregue: 3 destinos\r\nBcc: x@y.test ".repeat(9),
            text: "Olá\r\n.\r\n".repeat(40),
        };
        let at = Timestamp::from_millis(1_800_000_000_000);
        let event = EventId::new(at, 7);

        let mail = body.compose(&mailbox, event, at);

        assert!(mail.contains(&format!("\r\nMessage-ID: <{event}@example.com>\r\n")), "{mail}");
        assert!(mail.contains("\r\nDate: Fri, 15 Jan 2027 08:00:00 "), "{mail}");
        assert!(mail.contains("\r\nTo: a@b.test,\r\n c@d.test\r\n"), "{mail}");
        assert!(!mail.contains("\r\nBcc"), "{mail}");
        for line in mail.split("\r\n") {
            assert!(line.len() <= 78 && line.is_ascii() && !line.contains(['\r', '\n']), "{line}");
            assert_ne!(line, ".");
        }
        let (_, encoded) = mail.split_once("\r\n\r\n").unwrap();
        let text = BASE64.decode(encoded.replace("\r\n", "").as_bytes()).unwrap();
        assert_eq!(text, body.text.as_bytes());
    }

    #[test]
    fn only_an_object_with_subject_and_text_is_a_mail() {
        for body in ["", "{}", r#"{"subject":"x"}"#, r#"{"subject":1,"text":"x"}"#, "[1]"] {
            assert!(EmailBody::parse(body.as_bytes()).is_err(), "case: {body}");
        }
        assert!(EmailBody::parse(br#"{"subject":"x","text":"y","more":1}"#).is_ok());
    }
}
