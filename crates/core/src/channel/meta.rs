//! The error codes of WhatsApp's Cloud API, as a table.
//!
//! Meta asks to go by the code and not by titles, subcodes or the status. There is one exception: 100
//! is about the parameters of a message, but with the subcode 33 the phone number id does not exist or
//! the token may not use it, which is no fault of any message. The list that Meta publishes has classes
//! of its own; they become ours like this:
//!
//! | Meta's advice | class | the message |
//! | --- | --- | --- |
//! | try the same again (T) | `transient` | again, with a limit of tries where one is advised |
//! | slow down (R) | `throttled` | again after the wait; only the scope is slowed |
//! | wrong for good (P), about what is sent | `permanent` | dead: `payload_error` |
//! | wrong for good (P), about whom or what it is sent to | `permanent` | dead: `unrecoverable` |
//! | the 24 hours are over (W) | `permanent` | dead: `unrecoverable`; a template would go, and so would the same message once the customer has written again, by a replay |
//! | account, permission, quality (C) | `config` | stays owed. A scope that is the whole sender stops it until somebody has mended it; a template or a flow only holds up its own messages, for the wait |
//!
//! Where the list names two classes, the one that loses nothing and annoys nobody was taken: 131048
//! and 133016 stop the number (trying again makes it worse); 130497, 132001 and 132016 end the message,
//! because other messages of the same sender still pass.
//!
//! One code departs from the list: 131030 (the app is in development, and the recipient is not on its
//! list) is C there. It ends the message, since it says nothing about other recipients; a sender that
//! stopped for it would stop again after each `resume`, because that message comes first again. Whoever
//! has put the recipient on the list replays it.

use std::{ops::RangeInclusive, time::Duration};

use serde_json::Value;

use super::{
    answer::{BackoffRequest, ChannelResponse, ErrorScope, by_status},
    meta::MetaErrorAction::{Again, Ends, Holds, Later},
};
use crate::delivery::{
    DeadReason::{self, PayloadError, Unrecoverable},
    FailureClass,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// A few seconds are enough for a rate that is counted in messages a second.
const SECONDS: Duration = Duration::from_secs(5);

/// The code and subcode of an address that leads to no phone number, or to none that the token may use.
const NO_SUCH_SENDER: (u64, Option<u64>) = (100, Some(33));
/// The code that says the same without a subcode.
const NUMBER_IS_GONE: u64 = 33;

/// What follows from a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaErrorAction {
    /// The same again, so many times in all, or as the policy says.
    Again(Option<u32>),
    /// Again, and slower.
    Later,
    /// Never.
    Ends(DeadReason),
    /// Not before somebody has mended something.
    Holds,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct MetaErrorRule {
    /// The code, or those from the first to the last.
    pub codes: RangeInclusive<u32>,
    /// What follows.
    pub kind: MetaErrorAction,
    /// How long to wait at least.
    pub wait: Option<BackoffRequest>,
    /// What is concerned.
    pub scope: ErrorScope,
    /// Words in the details that make a second try worth it.
    pub again_if: &'static [&'static str],
    /// What it means.
    pub meaning: &'static str,
}

const fn one(
    code: u32,
    kind: MetaErrorAction,
    scope: ErrorScope,
    meaning: &'static str,
) -> MetaErrorRule {
    some(code, code, kind, scope, meaning)
}

const fn some(
    first: u32,
    last: u32,
    kind: MetaErrorAction,
    scope: ErrorScope,
    meaning: &'static str,
) -> MetaErrorRule {
    let codes = RangeInclusive::new(first, last);
    MetaErrorRule { codes, kind, wait: None, scope, again_if: &[], meaning }
}

impl MetaErrorRule {
    const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(BackoffRequest::Fixed(wait));
        self
    }

    const fn growing(mut self) -> Self {
        self.wait = Some(BackoffRequest::PowersOfFour);
        self
    }

    const fn again_if(mut self, words: &'static [&'static str]) -> Self {
        self.again_if = words;
        self
    }
}

/// Every code that is known, in their order.
#[rustfmt::skip]
pub static RULES: &[MetaErrorRule] = &[
    one(0, Holds, ErrorScope::Account, "the token is not valid or expired: make a new one"),
    one(1, Again(Some(3)), ErrorScope::Message, "unknown to Meta: a bad request or a failure of the server"),
    one(2, Again(None), ErrorScope::Channel, "the service is down or overloaded").growing(),
    one(3, Holds, ErrorScope::Account, "a capability or permission is missing"),
    one(4, Later, ErrorScope::App, "the app made too many calls").wait(MINUTE.saturating_mul(5)),
    one(10, Holds, ErrorScope::Account, "the permission was not given or was taken away"),
    one(33, Holds, ErrorScope::Number, "the phone number was deleted or its id is not valid"),
    one(100, Ends(PayloadError), ErrorScope::Message, "a parameter is not valid"),
    one(190, Holds, ErrorScope::Account, "the token expired: make a new one"),
    some(200, 299, Holds, ErrorScope::Account, "the permission was not given or was taken away"),
    one(368, Holds, ErrorScope::Account, "the account is blocked for a while because it broke a policy"),
    one(80007, Later, ErrorScope::Account, "the business account made too many calls").wait(MINUTE.saturating_mul(5)),
    one(130_429, Later, ErrorScope::Number, "the number sends more in a second than it may").wait(SECONDS),
    one(130_472, Ends(Unrecoverable), ErrorScope::Recipient, "the recipient is part of an experiment of Meta"),
    one(130_497, Ends(Unrecoverable), ErrorScope::Country, "the account may not write to this country"),
    one(131_000, Again(Some(5)), ErrorScope::Message, "something went wrong at Meta"),
    one(131_005, Holds, ErrorScope::Account, "access was denied"),
    one(131_008, Ends(PayloadError), ErrorScope::Message, "a required parameter is missing"),
    one(131_009, Ends(PayloadError), ErrorScope::Message, "the value of a parameter is not valid"),
    one(131_016, Again(None), ErrorScope::Channel, "the service is not available"),
    one(131_021, Ends(PayloadError), ErrorScope::Message, "the recipient is the sender"),
    one(131_026, Ends(Unrecoverable), ErrorScope::Recipient, "it cannot be delivered: not on WhatsApp, an old app, or blocked"),
    one(131_030, Ends(Unrecoverable), ErrorScope::Recipient, "the recipient is not on the app's list of test numbers: add it there and replay"),
    one(131_031, Holds, ErrorScope::Account, "the account is locked, or the PIN is wrong"),
    one(131_037, Holds, ErrorScope::Number, "the display name of the number is not approved"),
    one(131_042, Holds, ErrorScope::Account, "there is a problem with the payment: no message passes"),
    one(131_045, Holds, ErrorScope::Number, "the number is not registered properly: register it again"),
    one(131_047, Ends(Unrecoverable), ErrorScope::Conversation, "the customer's last message is more than 24 hours old: send a template"),
    one(131_048, Holds, ErrorScope::Number, "too much of what the number sent was taken for spam: check its quality first"),
    one(131_049, Later, ErrorScope::Marketing, "held back by Meta to keep the recipient engaged").wait(HOUR.saturating_mul(24)),
    one(131_050, Ends(Unrecoverable), ErrorScope::Marketing, "the recipient wants no marketing"),
    one(131_051, Ends(PayloadError), ErrorScope::Message, "the type of the message is not supported"),
    one(131_052, Again(Some(2)), ErrorScope::Message, "the media of the user could not be downloaded"),
    one(131_053, Ends(PayloadError), ErrorScope::Message, "the media could not be uploaded").again_if(&["download", "weblink", "web link"]),
    one(131_055, Ends(PayloadError), ErrorScope::Message, "the method is not allowed"),
    one(131_056, Later, ErrorScope::Pair, "too many messages to the same recipient").growing(),
    one(131_057, Again(None), ErrorScope::Number, "the account is in maintenance").wait(MINUTE),
    // About messages that come in; it is no answer to one that goes out.
    one(131_060, Ends(Unrecoverable), ErrorScope::Message, "the message is not available"),
    one(131_062, Ends(PayloadError), ErrorScope::Message, "this message cannot go to a BSUID: use the phone number"),
    one(132_000, Ends(PayloadError), ErrorScope::Message, "the number of the template's parameters is wrong"),
    one(132_001, Ends(Unrecoverable), ErrorScope::Template, "the template does not exist or is not approved in this language"),
    one(132_005, Ends(PayloadError), ErrorScope::Message, "the template is too long with its blanks filled in"),
    one(132_007, Ends(Unrecoverable), ErrorScope::Template, "the template breaks a policy"),
    one(132_012, Ends(PayloadError), ErrorScope::Message, "a parameter of the template has the wrong format"),
    one(132_015, Holds, ErrorScope::Template, "the template is paused because of its quality").wait(HOUR),
    one(132_016, Ends(Unrecoverable), ErrorScope::Template, "the template is disabled for good"),
    one(132_068, Holds, ErrorScope::Flow, "the flow is blocked").wait(HOUR),
    one(132_069, Later, ErrorScope::Flow, "the flow is throttled to 10 messages an hour").wait(HOUR),
    one(133_000, Holds, ErrorScope::Number, "the number was not deregistered properly"),
    one(133_004, Again(None), ErrorScope::Number, "the server is not available for a while"),
    one(133_005, Holds, ErrorScope::Number, "the PIN of the number is wrong"),
    one(133_006, Holds, ErrorScope::Number, "the number must be verified again"),
    one(133_008, Holds, ErrorScope::Number, "the PIN was guessed too often"),
    one(133_009, Holds, ErrorScope::Number, "the PIN was guessed too fast"),
    one(133_010, Holds, ErrorScope::Number, "the number is not registered: register it"),
    one(133_015, Again(None), ErrorScope::Number, "the number was deleted a short while ago").wait(MINUTE.saturating_mul(5)),
    one(133_016, Holds, ErrorScope::Number, "the number was registered and deregistered too often").wait(HOUR.saturating_mul(72)),
    one(134_100, Ends(Unrecoverable), ErrorScope::Template, "the template cannot be used for marketing"),
    one(134_101, Again(None), ErrorScope::Template, "the template is being synchronised").wait(MINUTE.saturating_mul(10)),
    one(134_102, Ends(Unrecoverable), ErrorScope::Template, "the template cannot be used for marketing"),
    one(135_000, Again(Some(2)), ErrorScope::Message, "a generic error about the request"),
    one(1_752_041, Holds, ErrorScope::Account, "about setting up an account"),
    some(2_388_000, 2_388_999, Holds, ErrorScope::Account, "about templates or setting up an account"),
    one(2_494_100, Holds, ErrorScope::Account, "about setting up an account"),
    some(2_593_000, 2_593_999, Holds, ErrorScope::Account, "about setting up an account"),
];

/// What is known about a code.
pub fn find_rule(code: u32) -> Option<&'static MetaErrorRule> {
    RULES.iter().find(|rule| rule.codes.contains(&code))
}

/// What Meta's error object means: that of an answer, or one of the `errors` of a status that says
/// `failed`. `None` if there is no code in it.
pub fn parse_error(error: &Value, status: u16) -> Option<ChannelResponse> {
    let code = error.get("code")?;
    let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    let details = error.pointer("/error_data/details").and_then(Value::as_str);
    let message = || error.get("message").or_else(|| error.get("title"))?.as_str();
    let said = details.or_else(message).unwrap_or_default();
    let subcode = error.get("error_subcode").and_then(Value::as_u64);
    let meant = if (code, subcode) == NO_SUCH_SENDER { NUMBER_IS_GONE } else { code };
    let answer = match u32::try_from(meant).ok().and_then(find_rule) {
        Some(rule) => rule.answer(said),
        None => unknown(error, status, said),
    };
    Some(ChannelResponse { code: Some(code.to_string()), ..answer })
}

impl MetaErrorRule {
    fn answer(&self, said: &str) -> ChannelResponse {
        let text = match said {
            "" => self.meaning.to_owned(),
            said => format!("{} ({said})", self.meaning),
        };
        let new = |class| ChannelResponse::new(Some(class), self.scope, &text);
        let lower = said.to_lowercase();
        let answer = match self.kind {
            Again(tries) => ChannelResponse { tries, ..new(FailureClass::Transient) },
            Ends(_) if self.again_if.iter().any(|word| lower.contains(word)) => {
                ChannelResponse { tries: Some(2), ..new(FailureClass::Transient) }
            }
            Ends(reason) => ChannelResponse::permanent(reason, self.scope, &text),
            Later => new(FailureClass::Throttled),
            Holds => new(FailureClass::Config),
        };
        ChannelResponse { wait: self.wait, ..answer }
    }
}

/// A code that is not in the table: again only if Meta says so itself.
fn unknown(error: &Value, status: u16, said: &str) -> ChannelResponse {
    let is_transient = error.get("is_transient").and_then(Value::as_bool) == Some(true);
    match status {
        429 => by_status(status, said),
        _ if is_transient || status >= 500 => ChannelResponse::transient(ErrorScope::Message, said),
        _ => ChannelResponse::permanent(Unrecoverable, ErrorScope::Message, said),
    }
}
