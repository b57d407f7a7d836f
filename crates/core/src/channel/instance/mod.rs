//! Looking after the instances of Evolution Go and Evolution API.
//!
//! Whether they are connected, how to connect them, and which proxy they use. As everywhere in here, it
//! is only said what to ask and what the answers mean.

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
use super::{ChannelAccount, answer::short, evolution::API_KEY};

/// A request about an instance.
pub struct InstanceRequest {
    /// How it is sent.
    pub method: Method,
    /// Where to.
    pub url: Url,
    /// With the key, which does not print.
    pub headers: HeaderMap,
    /// The body, as JSON.
    pub body: Option<Value>,
}

/// The body may hold a password, so it is not printed.
impl fmt::Debug for InstanceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, url) = (&self.method, self.url.as_str());
        f.debug_struct("Call").field("method", method).field("url", &url).finish_non_exhaustive()
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

/// How an instance stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// It can send; with the name that people see, if it is told.
    Connected(Option<String>),
    /// It is connected, and no phone is linked to it.
    NotLinked,
    /// It waits for a phone or for WhatsApp.
    Connecting,
    /// It is not connected.
    Disconnected,
    /// The server knows its name and nothing else.
    Unknown,
}

impl InstanceState {
    /// The name of it, for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Connected(_) => "connected",
            Self::NotLinked => "not_linked",
            Self::Connecting => "connecting",
            Self::Disconnected => "disconnected",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it can send.
    pub const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected(_))
    }
}

/// How a phone is linked to an instance: whatever of it is told.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InstanceLink {
    /// To be typed into the phone.
    pub pairing_code: Option<String>,
    /// What a QR code must say.
    pub code: Option<String>,
    /// The QR code as a picture, as a `data:` address.
    pub picture: Option<String>,
}

/// Who has a code can link a phone of their own.
impl fmt::Debug for InstanceLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link(…)")
    }
}

/// Why something about an instance did not work. No message holds a key or a phone number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// The key is not the right one for this.
    #[error("the server does not accept the key")]
    Unauthorized,
    /// There is no such instance.
    #[error("the server knows no such instance")]
    NotFound,
    /// What the server said.
    #[error("the server says: {0}")]
    Rejected(String),
    /// An answer of something else.
    #[error("the answer (status {0}) is none of this service")]
    UnexpectedResponse(u16),
}

impl InstanceError {
    fn said(text: &str) -> Self {
        Self::Rejected(short(text))
    }
}

/// A text that says something.
fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}
