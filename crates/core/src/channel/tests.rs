//! Every code and every text that is known of each service, and the requests that are sent to it.

mod compose;
mod compose_cloud;
mod compose_evolution;
mod evolution;
mod whatsapp_cloud;

use std::time::Duration;

use super::{BackoffRequest, Channel, ChannelAccount, ChannelResponse, ErrorScope, Message, find};
use crate::{
    delivery::{DeadReason, FailureClass},
    secret::Secret,
};

fn channel(name: &str) -> &'static dyn Channel {
    find(name).unwrap()
}

fn account(channel: &dyn Channel) -> ChannelAccount {
    let base = "https://service.test/base/";
    let base = channel.requirements().base_url.is_none().then_some(base);
    channel.build_account(base, Some("1055"), Secret::new("t0ken")).unwrap()
}

/// What an answer comes to: class, wait, tries, scope, reason.
type Meaning =
    (Option<FailureClass>, Option<BackoffRequest>, Option<u32>, ErrorScope, Option<DeadReason>);

fn meaning(answer: &ChannelResponse) -> Meaning {
    (answer.class, answer.wait, answer.tries, answer.scope, answer.dead_reason)
}

fn again(scope: ErrorScope) -> Meaning {
    (Some(FailureClass::Transient), None, None, scope, None)
}

fn later(seconds: u64, scope: ErrorScope) -> Meaning {
    let wait = Some(BackoffRequest::Fixed(Duration::from_secs(seconds)));
    (Some(FailureClass::Throttled), wait, None, scope, None)
}

fn held(scope: ErrorScope) -> Meaning {
    (Some(FailureClass::Config), None, None, scope, None)
}

fn ends(reason: DeadReason, scope: ErrorScope) -> Meaning {
    (Some(FailureClass::Permanent), None, None, scope, Some(reason))
}

fn ambiguous() -> Meaning {
    (Some(FailureClass::Ambiguous), None, None, ErrorScope::Message, Some(DeadReason::Ambiguous))
}

fn sent() -> Meaning {
    (None, None, None, ErrorScope::Message, None)
}

fn waiting(seconds: u64, (class, _, tries, scope, reason): Meaning) -> Meaning {
    (class, Some(BackoffRequest::Fixed(Duration::from_secs(seconds))), tries, scope, reason)
}

fn growing((class, _, tries, scope, reason): Meaning) -> Meaning {
    (class, Some(BackoffRequest::PowersOfFour), tries, scope, reason)
}

fn at_most(tries: u32, (class, wait, _, scope, reason): Meaning) -> Meaning {
    (class, wait, Some(tries), scope, reason)
}

fn message(json: &serde_json::Value) -> Message {
    Message::parse(json.to_string().as_bytes()).unwrap()
}
