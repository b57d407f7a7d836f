//! What a destination says about whom it sends as.

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use url::Url;

use super::AccountRequirements;
use crate::secret::Secret;

/// The longest name of a sender.
const SENDER_BYTES_MAX: usize = 255;

/// Whom messages are sent as.
#[derive(Clone, Debug)]
pub struct ChannelAccount {
    base_url: Url,
    sender: String,
    token: Secret,
}

/// Why an account cannot be used. No message holds any part of a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountSpecError {
    /// Nobody knows where the service is.
    #[error(
        "there is no base URL; write where the service runs, such as https://evolution.example.com"
    )]
    NoUrl,
    /// It is no address.
    #[error(
        "the base URL is no address of a service; write http://… or https://… without user, `?` or `#`"
    )]
    Url,
    /// Nobody knows whom to send as.
    #[error("there is no `{0}`; write whom messages are sent as")]
    NoSender(&'static str),
    /// It cannot stand in a path.
    #[error(
        "`{0}` cannot be the name of a sender; it has 1 to {SENDER_BYTES_MAX} characters and is neither `.` nor `..`"
    )]
    Sender(&'static str),
    /// It cannot stand in a header.
    #[error(
        "the token is empty or has characters that no header can carry; write it as the service gave it"
    )]
    Token,
}

impl ChannelAccount {
    pub(super) fn new(
        needs: AccountRequirements,
        base_url: Option<&str>,
        sender: Option<&str>,
        token: Secret,
    ) -> Result<Self, AccountSpecError> {
        let base_url = base_url.or(needs.base_url).ok_or(AccountSpecError::NoUrl)?;
        let base_url = base(base_url, needs.version).ok_or(AccountSpecError::Url)?;
        let sender = match needs.sender {
            Some(name) => {
                let sender = sender.map(str::trim).ok_or(AccountSpecError::NoSender(name))?;
                if !is_segment(sender) {
                    return Err(AccountSpecError::Sender(name));
                }
                sender.to_owned()
            }
            // The token says it.
            None => String::new(),
        };
        let is_plain = token.expose().iter().all(u8::is_ascii_graphic);
        if token.expose().is_empty() || !is_plain {
            return Err(AccountSpecError::Token);
        }
        Ok(Self { base_url, sender, token })
    }

    /// Where the service is.
    pub fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// The phone number id or the instance; empty where the token says it.
    pub fn sender(&self) -> &str {
        &self.sender
    }

    /// An address below the base URL. Each part is written so that it stays one part.
    pub(super) fn url<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Url {
        let mut url = self.base_url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// The headers of a request with JSON, where `name` carries the token after `prefix`.
    pub(super) fn headers(&self, name: HeaderName, prefix: &str) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let value = [prefix.as_bytes(), self.token.expose()].concat();
        // The token was looked at when the account was made.
        if let Ok(mut value) = HeaderValue::from_bytes(&value) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers
    }
}

fn base(text: &str, version: Option<&str>) -> Option<Url> {
    let mut url = Url::parse(text.trim()).ok()?;
    let is_plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || !is_plain {
        return None;
    }
    if let Some(version) = version.filter(|_| url.path() == "/") {
        url.set_path(version);
    }
    Some(url)
}

fn is_segment(sender: &str) -> bool {
    let is_long = sender.len() > SENDER_BYTES_MAX;
    !sender.is_empty() && !is_long && !matches!(sender, "." | "..")
}
