//! The error codes of the WhatsApp Cloud API, as a table.
//!
//! Meta recommends to rely on the code, not on titles, subcodes or the status. The exception is 100 with
//! subcode 33: the phone number id does not exist or the token may not use it, which is not an error of the
//! message. Meta's recommendations map to our classes like this:
//!
//! | Meta's advice | class | the message |
//! | --- | --- | --- |
//! | try again (T) | `transient` | retried, with a limit of attempts where one is advised |
//! | slow down (R) | `throttled` | retried after the wait; only the scope is slowed down |
//! | permanent (P), about the content | `permanent` | dead: `payload_error` |
//! | permanent (P), about the recipient or template | `permanent` | dead: `unrecoverable` |
//! | 24-hour window closed (W) | `permanent` | dead: `unrecoverable`; a template is accepted, and so is a replay after the customer has written again |
//! | account, permission, quality (C) | `config` | stays pending. A scope that covers the whole sender pauses it until the problem is fixed; a template or flow delays only its own messages |
//!
//! Where Meta lists two classes, the one that loses no message and does not make it worse was chosen:
//! 131048 and 133016 pause the number; 130497, 132001 and 132016 end the message, because other messages
//! of the same sender are still accepted.
//!
//! 131030 (the app is in development and the recipient is not on its list) is C for Meta, and ends the
//! message here: it says nothing about other recipients, and a paused sender would pause again after each
//! `resume` because that message is sent first. After adding the recipient to the list, replay it.

use std::{ops::RangeInclusive, time::Duration};

use serde_json::Value;
use surehook_retry::{
    DeadReason::{self, PayloadError, Unrecoverable},
    FailureClass,
};

use super::{
    meta_errors::MetaErrorAction::{Fail, Hold, Retry, Throttle},
    response::{BackoffRequest, ChannelResponse, ErrorScope, classify_status},
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Enough for a rate limit that is counted per second.
const FEW_SECONDS: Duration = Duration::from_secs(5);

/// Code and subcode of a phone number id that does not exist or that the token may not use.
const UNKNOWN_SENDER: (u64, Option<u64>) = (100, Some(33));
/// The code with the same meaning as [`UNKNOWN_SENDER`].
const NUMBER_DELETED: u64 = 33;

/// What to do after an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaErrorAction {
    /// Retry up to this many attempts in all, or by the retry policy.
    Retry(Option<u32>),
    /// Retry more slowly.
    Throttle,
    /// Give up.
    Fail(DeadReason),
    /// Wait until the configuration is fixed.
    Hold,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct MetaErrorRule {
    /// One code or a range of codes.
    pub codes: RangeInclusive<u32>,
    pub action: MetaErrorAction,
    /// Minimum wait.
    pub wait: Option<BackoffRequest>,
    pub scope: ErrorScope,
    /// Words in the details for which a second attempt is worthwhile.
    pub retry_if: &'static [&'static str],
    pub meaning: &'static str,
}

const fn one(
    code: u32,
    action: MetaErrorAction,
    scope: ErrorScope,
    meaning: &'static str,
) -> MetaErrorRule {
    range(code, code, action, scope, meaning)
}

const fn range(
    first: u32,
    last: u32,
    action: MetaErrorAction,
    scope: ErrorScope,
    meaning: &'static str,
) -> MetaErrorRule {
    let codes = RangeInclusive::new(first, last);
    MetaErrorRule { codes, action, wait: None, scope, retry_if: &[], meaning }
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

    const fn retry_if(mut self, phrases: &'static [&'static str]) -> Self {
        self.retry_if = phrases;
        self
    }
}

/// Every known code, in ascending order.
#[rustfmt::skip]
pub static RULES: &[MetaErrorRule] = &[
    one(0, Hold, ErrorScope::Account, "the token is invalid or expired: create a new one"),
    one(1, Retry(Some(3)), ErrorScope::Message, "unknown error at Meta: invalid request or server failure"),
    one(2, Retry(None), ErrorScope::Channel, "the service is down or overloaded").growing(),
    one(3, Hold, ErrorScope::Account, "a capability or permission is missing"),
    one(4, Throttle, ErrorScope::App, "the app made too many calls").wait(MINUTE.saturating_mul(5)),
    one(10, Hold, ErrorScope::Account, "the permission was not granted or was revoked"),
    one(33, Hold, ErrorScope::Number, "the phone number was deleted or its id is invalid"),
    one(100, Fail(PayloadError), ErrorScope::Message, "a parameter is invalid"),
    one(190, Hold, ErrorScope::Account, "the token expired: create a new one"),
    range(200, 299, Hold, ErrorScope::Account, "the permission was not granted or was revoked"),
    one(368, Hold, ErrorScope::Account, "the account is temporarily blocked because of a policy violation"),
    one(80007, Throttle, ErrorScope::Account, "the business account made too many calls").wait(MINUTE.saturating_mul(5)),
    one(130_429, Throttle, ErrorScope::Number, "the number exceeds its messages per second").wait(FEW_SECONDS),
    one(130_472, Fail(Unrecoverable), ErrorScope::Recipient, "the recipient is part of a Meta experiment"),
    one(130_497, Fail(Unrecoverable), ErrorScope::Country, "the account may not send to this country"),
    one(131_000, Retry(Some(5)), ErrorScope::Message, "something went wrong at Meta"),
    one(131_005, Hold, ErrorScope::Account, "access was denied"),
    one(131_008, Fail(PayloadError), ErrorScope::Message, "a required parameter is missing"),
    one(131_009, Fail(PayloadError), ErrorScope::Message, "the value of a parameter is invalid"),
    one(131_016, Retry(None), ErrorScope::Channel, "the service is not available"),
    one(131_021, Fail(PayloadError), ErrorScope::Message, "the recipient is the sender"),
    one(131_026, Fail(Unrecoverable), ErrorScope::Recipient, "undeliverable: not on WhatsApp, outdated app, or blocked"),
    one(131_030, Fail(Unrecoverable), ErrorScope::Recipient, "the recipient is not on the app's list of test numbers: add it there and replay"),
    one(131_031, Hold, ErrorScope::Account, "the account is locked, or the PIN is wrong"),
    one(131_037, Hold, ErrorScope::Number, "the display name of the number is not approved"),
    one(131_042, Hold, ErrorScope::Account, "payment problem: all messages are rejected"),
    one(131_045, Hold, ErrorScope::Number, "the number is not registered properly: register it again"),
    one(131_047, Fail(Unrecoverable), ErrorScope::Conversation, "the customer's last message is more than 24 hours old: send a template"),
    one(131_048, Hold, ErrorScope::Number, "too many messages of the number were reported as spam: check its quality rating first"),
    one(131_049, Throttle, ErrorScope::Marketing, "held back by Meta to keep the recipient engaged").wait(HOUR.saturating_mul(24)),
    one(131_050, Fail(Unrecoverable), ErrorScope::Marketing, "the recipient opted out of marketing"),
    one(131_051, Fail(PayloadError), ErrorScope::Message, "the type of the message is not supported"),
    one(131_052, Retry(Some(2)), ErrorScope::Message, "the media of the user could not be downloaded"),
    one(131_053, Fail(PayloadError), ErrorScope::Message, "the media could not be uploaded").retry_if(&["download", "weblink", "web link"]),
    one(131_055, Fail(PayloadError), ErrorScope::Message, "the method is not allowed"),
    one(131_056, Throttle, ErrorScope::Pair, "too many messages to the same recipient").growing(),
    one(131_057, Retry(None), ErrorScope::Number, "the account is in maintenance").wait(MINUTE),
    // About incoming messages; never a response to a send.
    one(131_060, Fail(Unrecoverable), ErrorScope::Message, "the message is not available"),
    one(131_062, Fail(PayloadError), ErrorScope::Message, "this message cannot go to a BSUID: use the phone number"),
    one(132_000, Fail(PayloadError), ErrorScope::Message, "the number of the template's parameters is wrong"),
    one(132_001, Fail(Unrecoverable), ErrorScope::Template, "the template does not exist or is not approved in this language"),
    one(132_005, Fail(PayloadError), ErrorScope::Message, "the template is too long with its parameters"),
    one(132_007, Fail(Unrecoverable), ErrorScope::Template, "the template violates a policy"),
    one(132_012, Fail(PayloadError), ErrorScope::Message, "a parameter of the template has the wrong format"),
    one(132_015, Hold, ErrorScope::Template, "the template is paused because of its quality").wait(HOUR),
    one(132_016, Fail(Unrecoverable), ErrorScope::Template, "the template is permanently disabled"),
    one(132_068, Hold, ErrorScope::Flow, "the flow is blocked").wait(HOUR),
    one(132_069, Throttle, ErrorScope::Flow, "the flow is throttled to 10 messages an hour").wait(HOUR),
    one(133_000, Hold, ErrorScope::Number, "the number was not deregistered properly"),
    one(133_004, Retry(None), ErrorScope::Number, "the server is temporarily unavailable"),
    one(133_005, Hold, ErrorScope::Number, "the PIN of the number is wrong"),
    one(133_006, Hold, ErrorScope::Number, "the number must be verified again"),
    one(133_008, Hold, ErrorScope::Number, "too many wrong PIN attempts"),
    one(133_009, Hold, ErrorScope::Number, "PIN attempts too fast"),
    one(133_010, Hold, ErrorScope::Number, "the number is not registered: register it"),
    one(133_015, Retry(None), ErrorScope::Number, "the number was deleted recently").wait(MINUTE.saturating_mul(5)),
    one(133_016, Hold, ErrorScope::Number, "the number was registered and deregistered too often").wait(HOUR.saturating_mul(72)),
    one(134_100, Fail(Unrecoverable), ErrorScope::Template, "the template cannot be used for marketing"),
    one(134_101, Retry(None), ErrorScope::Template, "the template is being synchronised").wait(MINUTE.saturating_mul(10)),
    one(134_102, Fail(Unrecoverable), ErrorScope::Template, "the template cannot be used for marketing"),
    one(135_000, Retry(Some(2)), ErrorScope::Message, "generic error about the request"),
    one(1_752_041, Hold, ErrorScope::Account, "account setup error"),
    range(2_388_000, 2_388_999, Hold, ErrorScope::Account, "template or account setup error"),
    one(2_494_100, Hold, ErrorScope::Account, "account setup error"),
    range(2_593_000, 2_593_999, Hold, ErrorScope::Account, "account setup error"),
];

pub fn find_rule(code: u32) -> Option<&'static MetaErrorRule> {
    RULES.iter().find(|rule| rule.codes.contains(&code))
}

/// Classifies Meta's error object: of a response, or from the `errors` of a status `failed`. `None` if it
/// has no code.
pub fn parse_error(error: &Value, status: u16) -> Option<ChannelResponse> {
    let code = error.get("code")?;
    let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    let details = error.pointer("/error_data/details").and_then(Value::as_str);
    let message = || error.get("message").or_else(|| error.get("title"))?.as_str();
    let detail = details.or_else(message).unwrap_or_default();
    let subcode = error.get("error_subcode").and_then(Value::as_u64);
    let known_as = if (code, subcode) == UNKNOWN_SENDER { NUMBER_DELETED } else { code };
    let response = match u32::try_from(known_as).ok().and_then(find_rule) {
        Some(rule) => rule.to_response(detail),
        None => classify_unknown(error, status, detail),
    };
    Some(ChannelResponse { code: Some(code.to_string()), ..response })
}

impl MetaErrorRule {
    fn to_response(&self, detail: &str) -> ChannelResponse {
        let text = match detail {
            "" => self.meaning.to_owned(),
            detail => format!("{} ({detail})", self.meaning),
        };
        let new = |class| ChannelResponse::new(Some(class), self.scope, &text);
        let lower = detail.to_lowercase();
        let response = match self.action {
            Retry(attempts_max) => ChannelResponse { attempts_max, ..new(FailureClass::Transient) },
            Fail(_) if self.retry_if.iter().any(|phrase| lower.contains(phrase)) => {
                ChannelResponse { attempts_max: Some(2), ..new(FailureClass::Transient) }
            }
            Fail(reason) => ChannelResponse::permanent(reason, self.scope, &text),
            Throttle => new(FailureClass::Throttled),
            Hold => new(FailureClass::Config),
        };
        ChannelResponse { backoff: self.wait, ..response }
    }
}

/// A code that is not in the table is retried only if Meta marks it as transient.
fn classify_unknown(error: &Value, status: u16, detail: &str) -> ChannelResponse {
    let is_transient = error.get("is_transient").and_then(Value::as_bool) == Some(true);
    match status {
        429 => classify_status(status, detail),
        _ if is_transient || status >= 500 => {
            ChannelResponse::transient(ErrorScope::Message, detail)
        }
        _ => ChannelResponse::permanent(Unrecoverable, ErrorScope::Message, detail),
    }
}
