//! Messaging channels: how each one sends messages and what its responses mean.
//!
//! A [`Channel`] is a stateless value, one for each kind of destination that sends messages. To add one,
//! write a module and add a line to [`CHANNELS`]. Everything here is pure: a channel composes requests
//! and classifies responses; the engine sends, waits and retries.
//!
//! - A channel's own codes and texts take precedence over the HTTP status, which is often misleading.
//! - A message that may have been delivered is never treated as not delivered: it is `ambiguous`, and
//!   [`ResendPolicy`] says whether sending it again is safe.
//! - No error, response text or `Debug` output contains a token or a phone number.

mod account;
pub mod cloud_upload;
mod evolution;
mod evolution_api;
mod evolution_go;
pub mod instance;
pub mod media;
pub mod message;
pub mod meta_errors;
pub mod pacing;
mod recipient;
pub mod response;
pub mod send_limits;
pub mod sender;
pub mod store;
#[cfg(test)]
mod tests;
mod whatsapp_cloud;

use std::{fmt, time::Duration};

use http::{HeaderMap, Method};
use serde_json::Value;
use surehook_types::secret::Secret;
use url::Url;

pub use self::{
    account::{AccountSpecError, ChannelAccount},
    message::{Message, MessageSpec, MessageSpecError},
    pacing::{ChannelPacing, RecipientKey, RecipientPaceRule, RecipientPacer},
    recipient::Recipient,
    response::{BackoffRequest, ChannelResponse, ErrorScope},
};

/// Every channel, sorted by name.
pub static CHANNELS: &[&dyn Channel] = &[
    &evolution_api::EvolutionApiChannel,
    &evolution_go::EvolutionGoChannel,
    &whatsapp_cloud::WhatsAppCloudChannel,
];

pub fn find_channel(name: &str) -> Option<&'static dyn Channel> {
    CHANNELS.iter().copied().find(|channel| channel.name() == name)
}

/// A service that sends messages, such as the WhatsApp Cloud API.
pub trait Channel: fmt::Debug + Send + Sync {
    /// The name in settings, equal to the destination kind.
    fn name(&self) -> &'static str;

    fn requirements(&self) -> AccountRequirements;

    /// Whether it uses an unofficial client, whose numbers WhatsApp bans when they send too much.
    fn is_unofficial(&self) -> bool {
        false
    }

    /// Checks the account settings and fills in defaults.
    fn build_account(
        &self,
        base_url: Option<&str>,
        sender: Option<&str>,
        token: Secret,
    ) -> Result<ChannelAccount, AccountSpecError> {
        ChannelAccount::new(self.requirements(), base_url, sender, token)
    }

    /// How fast the channel accepts messages.
    fn pacing(&self) -> ChannelPacing {
        ChannelPacing::default()
    }

    /// Composes the request that sends `message`. Every attempt of one send must use the same `send_id`,
    /// and every other send a different one: the id is what makes a repeated request recognizable.
    fn compose(
        &self,
        account: &ChannelAccount,
        message: &Message,
        send_id: &str,
    ) -> Result<ComposedRequest, UnsupportedMessageError> {
        self.compose_request(account, message, send_id)
            .map_err(|reason| UnsupportedMessageError { channel: self.name(), reason })
    }

    /// Composes the request for [`Self::compose`]. The error is only the reason.
    fn compose_request(
        &self,
        account: &ChannelAccount,
        message: &Message,
        send_id: &str,
    ) -> Result<ComposedRequest, &'static str>;

    /// Whether status updates carry our send id, so that a send without a response can be resolved.
    fn has_send_id_in_statuses(&self) -> bool {
        false
    }

    /// Classifies a response.
    fn parse_response(&self, status: u16, body: &[u8]) -> ChannelResponse;

    /// Classifies a missing response.
    fn timeout_response(&self, body_was_sent: bool) -> ChannelResponse {
        response::timeout_response(body_was_sent)
    }
}

/// The required account settings of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountRequirements {
    /// Default base URL, for a service with one public address.
    pub base_url: Option<&'static str>,
    /// API version, used as the path if the base URL has none.
    pub version: Option<&'static str>,
    /// The name of the sender setting, if the channel needs one.
    pub sender: Option<&'static str>,
}

/// A request that sends a message.
pub struct ComposedRequest {
    pub method: Method,
    pub url: Url,
    /// Includes the token, marked as sensitive.
    pub headers: HeaderMap,
    pub body: Value,
    /// How long a response may take. With a shorter timeout the outcome of the send stays unknown.
    pub timeout_min: Duration,
    pub resend: ResendPolicy,
}

/// Leaves out the body, which contains a phone number and the text of a person.
impl fmt::Debug for ComposedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComposedRequest")
            .field("method", &self.method)
            .field("url", &self.url.as_str())
            .field("timeout_min", &self.timeout_min)
            .field("resend", &self.resend)
            .finish_non_exhaustive()
    }
}

/// Whether a message with an unknown outcome may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendPolicy {
    /// Safe: the request carries our message id, so the recipient gets one message.
    SameId,
    /// Safe: repeating it changes nothing, as with a reaction.
    Harmless,
    /// Wait for a status update with our send id, and send again only if none arrives.
    WaitForStatus,
    /// Not safe: the recipient could get it twice. The destination's `on_ambiguous` decides.
    Unsafe,
}

/// A message that this channel cannot send. The text says what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{channel} {reason}")]
pub struct UnsupportedMessageError {
    pub channel: &'static str,
    /// The rest of the sentence that begins with the channel.
    pub reason: &'static str,
}
