//! Management of Evolution Go and Evolution API instances: status, connecting, proxy.
//!
//! Builds requests and parses responses; `surehook evolution` sends them.

pub mod api;
pub mod go;
mod proxy;
#[cfg(test)]
mod tests;

use std::fmt;

use http::{HeaderMap, Method};
use serde_json::Value;
use url::Url;

pub use self::proxy::{InstanceProxy, InstanceProxyError, PROTOCOLS};
use super::{ChannelAccount, evolution::API_KEY, response::sanitize_text};

/// A request to an Evolution server.
pub struct InstanceRequest {
    pub method: Method,
    pub url: Url,
    /// Includes the key, marked as sensitive.
    pub headers: HeaderMap,
    pub body: Option<Value>,
}

/// Leaves out the body, which may contain a password.
impl fmt::Debug for InstanceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, url) = (&self.method, self.url.as_str());
        f.debug_struct("InstanceRequest")
            .field("method", method)
            .field("url", &url)
            .finish_non_exhaustive()
    }
}

impl InstanceRequest {
    fn new<'p>(
        account: &ChannelAccount,
        method: Method,
        path: impl IntoIterator<Item = &'p str>,
        body: Option<Value>,
    ) -> Self {
        let headers = account.headers(API_KEY.clone(), "");
        Self { method, url: account.url(path), headers, body }
    }
}

/// The connection state of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// Can send. Holds the display name, if the server reports it.
    Connected(Option<String>),
    /// Connected to the server, but no phone is linked.
    NotLinked,
    /// Waiting for a phone or for WhatsApp.
    Connecting,
    Disconnected,
    /// The server knows the name but has not loaded the instance.
    Unknown,
}

impl InstanceState {
    /// The name in JSON output.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Connected(_) => "connected",
            Self::NotLinked => "not_linked",
            Self::Connecting => "connecting",
            Self::Disconnected => "disconnected",
            Self::Unknown => "unknown",
        }
    }

    pub const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected(_))
    }
}

/// Codes for linking a phone to an instance, as far as the server returned them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PhoneLinkCodes {
    /// Code to type into the phone.
    pub pairing_code: Option<String>,
    /// Content of the QR code.
    pub code: Option<String>,
    /// The QR code as an image, in a `data:` URL.
    pub picture: Option<String>,
}

/// Leaves out the codes: anyone who has one can link their own phone.
impl fmt::Debug for PhoneLinkCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PhoneLinkCodes(…)")
    }
}

/// Why a request to an Evolution server failed. No text contains a key or a phone number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    #[error("the server rejected the key")]
    Unauthorized,
    #[error("instance not found on the server")]
    NotFound,
    #[error("the server says: {0}")]
    Rejected(String),
    /// Not a response of this Evolution product.
    #[error("unexpected response (status {0}): not an Evolution server of this type")]
    UnexpectedResponse(u16),
}

impl InstanceError {
    fn rejected(text: &str) -> Self {
        Self::Rejected(sanitize_text(text))
    }
}

/// A string that is not empty.
fn non_empty_text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}
