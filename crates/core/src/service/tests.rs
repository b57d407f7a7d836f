//! Every code and every text that is known of each service, and the requests that are sent to it.

mod compose;
mod compose_cloud;
mod compose_evolution;
mod evolution;
mod whatsapp_cloud;

use std::time::Duration;

use super::{Account, Answer, Message, Scope, Service, Wait, find};
use crate::{
    delivery::{DeadReason, FailureClass},
    secret::Secret,
};

fn service(name: &str) -> &'static dyn Service {
    find(name).unwrap()
}

fn account(service: &dyn Service) -> Account {
    let base = "https://service.test/base/";
    let base = service.needs().base_url.is_none().then_some(base);
    service.account(base, Some("1055"), Secret::new("t0ken")).unwrap()
}

/// What an answer comes to: class, wait, tries, scope, reason.
type Meaning = (Option<FailureClass>, Option<Wait>, Option<u32>, Scope, Option<DeadReason>);

fn meaning(answer: &Answer) -> Meaning {
    (answer.class, answer.wait, answer.tries, answer.scope, answer.dead_reason)
}

fn again(scope: Scope) -> Meaning {
    (Some(FailureClass::Transient), None, None, scope, None)
}

fn later(seconds: u64, scope: Scope) -> Meaning {
    let wait = Some(Wait::Fixed(Duration::from_secs(seconds)));
    (Some(FailureClass::Throttled), wait, None, scope, None)
}

fn held(scope: Scope) -> Meaning {
    (Some(FailureClass::Config), None, None, scope, None)
}

fn ends(reason: DeadReason, scope: Scope) -> Meaning {
    (Some(FailureClass::Permanent), None, None, scope, Some(reason))
}

fn ambiguous() -> Meaning {
    (Some(FailureClass::Ambiguous), None, None, Scope::Message, Some(DeadReason::Ambiguous))
}

fn sent() -> Meaning {
    (None, None, None, Scope::Message, None)
}

fn waiting(seconds: u64, (class, _, tries, scope, reason): Meaning) -> Meaning {
    (class, Some(Wait::Fixed(Duration::from_secs(seconds))), tries, scope, reason)
}

fn growing((class, _, tries, scope, reason): Meaning) -> Meaning {
    (class, Some(Wait::PowersOfFour), tries, scope, reason)
}

fn at_most(tries: u32, (class, wait, _, scope, reason): Meaning) -> Meaning {
    (class, wait, Some(tries), scope, reason)
}

fn message(json: &serde_json::Value) -> Message {
    Message::read(json.to_string().as_bytes()).unwrap()
}
