//! How messages are sent through each service, and what its answers mean.
//!
//! A [`Channel`] is a small value without state, one for each kind of destination that sends
//! messages. A new one is a module of its own and a line in [`CHANNELS`]. All of it is pure: a service
//! says what to send and what came of it; somebody else sends, waits and decides.
//!
//! What holds for all:
//! - The status of an answer misleads. It is read by the service's own codes and texts first
//!   ([`answer`]), and by its status only where it says nothing else.
//! - A message that may have arrived is not taken for one that did not: what nobody can know is
//!   `ambiguous`, and [`ResendPolicy`] says whether sending it again is safe.
//! - No error, no text of an [`ChannelResponse`] and no `Debug` holds a token or a phone number.

mod account;
pub mod answer;
pub mod cloud_upload;
mod evolution;
mod evolution_api;
mod evolution_go;
pub mod instance;
pub mod message;
pub mod meta;
pub mod pace;
mod recipient;
mod sent_id;
pub mod statuses;
#[cfg(test)]
mod tests;
mod whatsapp_cloud;

use std::{fmt, time::Duration};

use http::{HeaderMap, Method};
use serde_json::Value;
use url::Url;

pub use self::{
    account::{AccountSpecError, ChannelAccount},
    answer::{BackoffRequest, ChannelResponse, ErrorScope},
    message::{Message, MessageSpec, MessageSpecError},
    pace::{ChannelPacing, RecipientKey, RecipientPaceRule, RecipientPacer},
    recipient::Recipient,
    statuses::{MessageStatus, MessageStatusUpdate, message_status},
};
use crate::secret::Secret;

/// Every service, by the names that people see.
pub static CHANNELS: &[&dyn Channel] =
    &[&evolution_api::EvolutionApi, &evolution_go::EvolutionGo, &whatsapp_cloud::WhatsAppCloud];

/// The service of that name.
pub fn find(name: &str) -> Option<&'static dyn Channel> {
    CHANNELS.iter().copied().find(|channel| channel.name() == name)
}

/// What takes messages.
pub trait Channel: fmt::Debug + Send + Sync {
    /// The name that people write.
    fn name(&self) -> &'static str;

    /// What an account of it must have.
    fn requirements(&self) -> AccountRequirements;

    /// Checks what is written about an account, and fills in what is usual.
    fn build_account(
        &self,
        base_url: Option<&str>,
        sender: Option<&str>,
        token: Secret,
    ) -> Result<ChannelAccount, AccountSpecError> {
        ChannelAccount::new(self.requirements(), base_url, sender, token)
    }

    /// How fast it takes messages.
    fn pacing(&self) -> ChannelPacing {
        ChannelPacing::default()
    }

    /// The request that sends `message`. The same `send_id` makes the same request, so it must be the
    /// same at every attempt of one send, and another one for every other send.
    fn compose(
        &self,
        account: &ChannelAccount,
        message: &Message,
        send_id: &str,
    ) -> Result<ComposedRequest, UnsupportedMessageError>;

    /// Whether its statuses say which send of ours they are about, also when it gave no answer.
    fn has_send_id_in_statuses(&self) -> bool {
        false
    }

    /// What an answer means.
    fn parse_response(&self, status: u16, body: &[u8]) -> ChannelResponse;

    /// What it means that no answer came.
    fn timeout_response(&self, body_was_sent: bool) -> ChannelResponse {
        answer::timeout_response(body_was_sent)
    }
}

/// What an account of a service must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountRequirements {
    /// Where the service is, if it is the same for all.
    pub base_url: Option<&'static str>,
    /// What stands before everything else in a path, if the base URL has no path of its own.
    pub version: Option<&'static str>,
    /// What the sender is called in the settings, if one must be named.
    pub sender: Option<&'static str>,
}

/// A request that sends a message.
pub struct ComposedRequest {
    /// How it is sent.
    pub method: Method,
    /// Where to.
    pub url: Url,
    /// With the token, which does not print.
    pub headers: HeaderMap,
    /// The body, as JSON.
    pub body: Value,
    /// An answer may take so long. Who gives up earlier does not know what became of the message.
    pub timeout_min: Duration,
    /// What to do when nobody knows whether it arrived.
    pub resend: ResendPolicy,
}

/// The body holds a phone number and what somebody wrote, so it is not printed.
impl fmt::Debug for ComposedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Composed")
            .field("method", &self.method)
            .field("url", &self.url.as_str())
            .field("timeout_min", &self.timeout_min)
            .field("resend", &self.resend)
            .finish_non_exhaustive()
    }
}

/// What to do with a message of which nobody knows whether it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendPolicy {
    /// Send it again: it carries an id of ours, so that the same message stays one.
    SameId,
    /// Send it again: doing it twice changes nothing, as with a reaction.
    Harmless,
    /// Wait for a status that carries our id, and send it again only if none comes.
    WaitForStatus,
    /// Leave it to the destination's settings or to a person: it could arrive twice.
    Unsafe,
}

impl ResendPolicy {
    /// Whether it may be sent again at once.
    pub const fn is_safe(self) -> bool {
        match self {
            Self::SameId | Self::Harmless => true,
            Self::WaitForStatus | Self::Unsafe => false,
        }
    }
}

/// A message that this service cannot send, and what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{channel} {why}")]
pub struct UnsupportedMessageError {
    /// The service.
    pub channel: &'static str,
    /// The rest of the sentence.
    pub why: &'static str,
}
