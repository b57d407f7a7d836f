//! The account that a destination sends from.

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use surehook_types::secret::Secret;
use url::Url;

use super::AccountRequirements;

/// Longest sender, in bytes.
const SENDER_BYTES_MAX: usize = 255;

/// A checked account: where the service is, the sender and the token.
#[derive(Clone, Debug)]
pub struct ChannelAccount {
    base_url: Url,
    sender: String,
    token: Secret,
}

/// Why account settings are invalid. No text contains any part of a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountSpecError {
    #[error(
        "the base URL is missing; set `url` to the address of the service, such as https://evolution.example.com"
    )]
    NoUrl,
    #[error("the base URL is invalid; use http://… or https://… without user, `?` or `#`")]
    Url,
    #[error("`{0}` is missing; set `account.sender`")]
    NoSender(&'static str),
    #[error(
        "`{0}` is invalid; it must have 1 to {SENDER_BYTES_MAX} characters and not be `.` or `..`"
    )]
    Sender(&'static str),
    #[error(
        "the token is empty or contains characters that are not allowed in a header; copy it from the service"
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
        let base_url = parse_base_url(base_url, needs.version).ok_or(AccountSpecError::Url)?;
        let sender = match needs.sender {
            Some(name) => {
                let sender = sender.map(str::trim).ok_or(AccountSpecError::NoSender(name))?;
                if !is_path_segment(sender) {
                    return Err(AccountSpecError::Sender(name));
                }
                sender.to_owned()
            }
            // The token identifies the sender.
            None => String::new(),
        };
        let is_plain = token.expose().iter().all(u8::is_ascii_graphic);
        if token.expose().is_empty() || !is_plain {
            return Err(AccountSpecError::Token);
        }
        Ok(Self { base_url, sender, token })
    }

    pub fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// Phone number id or instance; empty where the token identifies the sender.
    pub fn sender(&self) -> &str {
        &self.sender
    }

    /// A URL below the base URL. Each segment is escaped, so it stays one segment.
    pub(super) fn url<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Url {
        let mut url = self.base_url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// Headers of a JSON request; `name` carries the token after `prefix`.
    pub(super) fn headers(&self, name: HeaderName, prefix: &str) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let value = [prefix.as_bytes(), self.token.expose()].concat();
        // `new` checked that a header can carry the token.
        if let Ok(mut value) = HeaderValue::from_bytes(&value) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers
    }
}

/// Parses the base URL. One without a path gets the API version of the service, if it has any.
fn parse_base_url(text: &str, version: Option<&str>) -> Option<Url> {
    let mut url = Url::parse(text.trim()).ok()?;
    if !is_plain_http(&url) {
        return None;
    }
    if let Some(version) = version.filter(|_| url.path() == "/") {
        url.set_path(version);
    }
    Some(url)
}

/// Whether a URL is an HTTP URL without user, query and fragment.
pub(super) fn is_plain_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
}

fn is_path_segment(sender: &str) -> bool {
    let is_long = sender.len() > SENDER_BYTES_MAX;
    !sender.is_empty() && !is_long && !matches!(sender, "." | "..")
}
