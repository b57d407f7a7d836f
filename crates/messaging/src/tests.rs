//! Requests and responses of every channel: all known codes and texts.

mod compose;
mod compose_cloud;
mod compose_evolution;
mod evolution;
mod whatsapp_cloud;

use std::time::Duration;

use surehook_retry::{DeadReason, FailureClass};
use surehook_types::secret::Secret;

use super::{
    BackoffRequest, Channel, ChannelAccount, ChannelResponse, ErrorScope, Message, find_channel,
};

fn channel(name: &str) -> &'static dyn Channel {
    find_channel(name).unwrap()
}

fn account(channel: &dyn Channel) -> ChannelAccount {
    let base = "https://service.test/base/";
    let base = channel.requirements().base_url.is_none().then_some(base);
    channel.build_account(base, Some("1055"), Secret::new("t0ken")).unwrap()
}

/// The classification of a response, without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Classification {
    class: Option<FailureClass>,
    backoff: Option<BackoffRequest>,
    attempts_max: Option<u32>,
    scope: ErrorScope,
    dead_reason: Option<DeadReason>,
}

impl Classification {
    fn new(class: Option<FailureClass>, scope: ErrorScope) -> Self {
        Self { class, backoff: None, attempts_max: None, scope, dead_reason: None }
    }

    fn fixed_backoff(self, seconds: u64) -> Self {
        Self { backoff: Some(BackoffRequest::Fixed(Duration::from_secs(seconds))), ..self }
    }

    fn growing_backoff(self) -> Self {
        Self { backoff: Some(BackoffRequest::PowersOfFour), ..self }
    }

    fn attempts_max(self, attempts: u32) -> Self {
        Self { attempts_max: Some(attempts), ..self }
    }
}

fn classification(response: &ChannelResponse) -> Classification {
    let ChannelResponse { class, backoff, attempts_max, scope, dead_reason, .. } = *response;
    Classification { class, backoff, attempts_max, scope, dead_reason }
}

fn transient(scope: ErrorScope) -> Classification {
    Classification::new(Some(FailureClass::Transient), scope)
}

fn throttled(scope: ErrorScope) -> Classification {
    Classification::new(Some(FailureClass::Throttled), scope)
}

fn config(scope: ErrorScope) -> Classification {
    Classification::new(Some(FailureClass::Config), scope)
}

fn permanent(reason: DeadReason, scope: ErrorScope) -> Classification {
    let class = Some(FailureClass::Permanent);
    Classification { dead_reason: Some(reason), ..Classification::new(class, scope) }
}

fn ambiguous() -> Classification {
    let ambiguous = Classification::new(Some(FailureClass::Ambiguous), ErrorScope::Message);
    Classification { dead_reason: Some(DeadReason::Ambiguous), ..ambiguous }
}

fn sent() -> Classification {
    Classification::new(None, ErrorScope::Message)
}

fn message(json: &serde_json::Value) -> Message {
    Message::parse(json.to_string().as_bytes()).unwrap()
}
