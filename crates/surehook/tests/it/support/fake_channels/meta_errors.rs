//! The error codes of the Cloud API with their statuses and classification: a second, independent copy
//! of Meta's list, so that a mistake in the first one is found.

use std::time::Duration;

use serde_json::{Value, json};
use surehook_messaging::{
    BackoffRequest,
    ErrorScope::{
        self, Account, App, Channel, Conversation, Country, Flow, Marketing, Message, Number, Pair,
        Recipient, Template,
    },
};
use surehook_retry::{
    DeadReason::{self, PayloadError, Unrecoverable},
    FailureClass,
};

#[derive(Clone, Debug)]
pub(crate) struct MetaErrorCode {
    pub(crate) code: u32,
    /// HTTP statuses, the usual one first.
    pub(crate) statuses: &'static [u16],
    pub(crate) title: &'static str,
    pub(crate) class: FailureClass,
    /// Set if the message is dead after the first attempt.
    pub(crate) dead: Option<DeadReason>,
    /// Minimum wait before the next attempt.
    pub(crate) wait: Option<BackoffRequest>,
    /// Maximum number of attempts.
    pub(crate) tries: Option<u32>,
    pub(crate) scope: ErrorScope,
}

/// The body of a Graph API error.
pub(crate) fn error(code: u32, details: &str) -> Value {
    let known = META_ERROR_CODES.iter().find(|known| known.code == code);
    let title = known.map_or("Unknown error", |known| known.title);
    let details = if details.is_empty() { title } else { details };
    json!({ "error": {
        "message": format!("(#{code}) {title}"),
        "type": "OAuthException",
        "code": code,
        "error_data": { "messaging_product": "whatsapp", "details": details },
        "fbtrace_id": "AbCdEfGhIjKlMnOpQrStUvW",
    } })
}

#[track_caller]
pub(crate) fn find(code: u32) -> &'static MetaErrorCode {
    META_ERROR_CODES.iter().find(|known| known.code == code).expect("the code is on the list")
}

const fn new(
    code: u32,
    statuses: &'static [u16],
    title: &'static str,
    class: FailureClass,
    scope: ErrorScope,
) -> MetaErrorCode {
    MetaErrorCode { code, statuses, title, class, dead: None, wait: None, tries: None, scope }
}

/// "T" on Meta's list: retry.
const fn retry(
    code: u32,
    statuses: &'static [u16],
    title: &'static str,
    scope: ErrorScope,
) -> MetaErrorCode {
    new(code, statuses, title, FailureClass::Transient, scope)
}

/// "R" on Meta's list: retry more slowly.
const fn throttle(
    code: u32,
    statuses: &'static [u16],
    title: &'static str,
    scope: ErrorScope,
    wait: u64,
) -> MetaErrorCode {
    new(code, statuses, title, FailureClass::Throttled, scope).wait(wait)
}

/// "P" and "W" on Meta's list: never retry.
const fn dead(
    code: u32,
    statuses: &'static [u16],
    title: &'static str,
    scope: ErrorScope,
    reason: DeadReason,
) -> MetaErrorCode {
    let error = new(code, statuses, title, FailureClass::Permanent, scope);
    MetaErrorCode { dead: Some(reason), ..error }
}

/// "C" on Meta's list: hold until the configuration is fixed.
const fn hold(
    code: u32,
    statuses: &'static [u16],
    title: &'static str,
    scope: ErrorScope,
) -> MetaErrorCode {
    new(code, statuses, title, FailureClass::Config, scope)
}

impl MetaErrorCode {
    const fn wait(self, seconds: u64) -> Self {
        Self { wait: Some(BackoffRequest::Fixed(Duration::from_secs(seconds))), ..self }
    }

    const fn growing_wait(self) -> Self {
        Self { wait: Some(BackoffRequest::PowersOfFour), ..self }
    }

    const fn max_tries(self, tries: u32) -> Self {
        Self { tries: Some(tries), ..self }
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// Every code; of a range, the first and the last.
#[rustfmt::skip]
pub(crate) const META_ERROR_CODES: &[MetaErrorCode] = &[
    hold(0, &[401], "AuthException", Account),
    retry(1, &[400], "API Unknown", Message).max_tries(3),
    retry(2, &[503], "API Service", Channel).growing_wait(),
    hold(3, &[500], "API Method", Account),
    throttle(4, &[429, 400], "API Too Many Calls", App, 5 * MINUTE),
    hold(10, &[403], "API Permission Denied", Account),
    hold(33, &[400], "Parameter value is not valid", Number),
    dead(100, &[400], "Invalid parameter", Message, PayloadError),
    hold(190, &[401], "Access token has expired", Account),
    hold(200, &[403], "API Permission", Account),
    hold(299, &[403], "API Permission", Account),
    hold(368, &[403], "Temporarily blocked for policies violations", Account),
    throttle(80007, &[429, 400], "Rate limit issues", Account, 5 * MINUTE),
    throttle(130_429, &[429, 400], "Rate limit hit", Number, 5),
    dead(130_472, &[400], "User's number is part of an experiment", Recipient, Unrecoverable),
    dead(130_497, &[403], "Business account is restricted from messaging users in this country", Country, Unrecoverable),
    retry(131_000, &[500], "Something went wrong", Message).max_tries(5),
    hold(131_005, &[403], "Access denied", Account),
    dead(131_008, &[400], "Required parameter is missing", Message, PayloadError),
    dead(131_009, &[400], "Parameter value is not valid", Message, PayloadError),
    retry(131_016, &[500, 503], "Service unavailable", Channel),
    dead(131_021, &[400], "Recipient cannot be sender", Message, PayloadError),
    dead(131_026, &[400], "Message undeliverable", Recipient, Unrecoverable),
    // "C" on Meta's list, but holding would stop the sender again after each resume.
    dead(131_030, &[400], "Recipient phone number not in allowed list", Recipient, Unrecoverable),
    hold(131_031, &[403], "Account has been locked", Account),
    hold(131_037, &[400], "Display name approval is needed", Number),
    hold(131_042, &[400], "Business eligibility payment issue", Account),
    hold(131_045, &[500], "Incorrect certificate", Number),
    dead(131_047, &[400], "Re-engagement message", Conversation, Unrecoverable),
    hold(131_048, &[429, 400], "Spam rate limit hit", Number),
    throttle(131_049, &[400], "Meta chose not to deliver", Marketing, 24 * HOUR),
    dead(131_050, &[400], "User has stopped marketing messages", Marketing, Unrecoverable),
    dead(131_051, &[400], "Unsupported message type", Message, PayloadError),
    retry(131_052, &[400], "Media download error", Message).max_tries(2),
    dead(131_053, &[400], "Media upload error", Message, PayloadError),
    dead(131_055, &[400], "Method not allowed", Message, PayloadError),
    throttle(131_056, &[429, 400], "Pair rate limit hit", Pair, 0).growing_wait(),
    retry(131_057, &[500], "Account in maintenance mode", Number).wait(MINUTE),
    dead(131_060, &[400], "Message unavailable", Message, Unrecoverable),
    dead(132_000, &[400], "Template param count mismatch", Message, PayloadError),
    dead(132_001, &[404], "Template does not exist", Template, Unrecoverable),
    dead(132_005, &[400], "Template hydrated text too long", Message, PayloadError),
    dead(132_007, &[400], "Template format character policy violated", Template, Unrecoverable),
    dead(132_012, &[400], "Template parameter format mismatch", Message, PayloadError),
    hold(132_015, &[400], "Template is paused", Template).wait(HOUR),
    dead(132_016, &[400], "Template is disabled", Template, Unrecoverable),
    hold(132_068, &[400], "Flow is blocked", Flow).wait(HOUR),
    throttle(132_069, &[400], "Flow is throttled", Flow, HOUR),
    hold(133_000, &[500], "Incomplete deregistration", Number),
    retry(133_004, &[503], "Server temporarily unavailable", Number),
    hold(133_005, &[400], "Two step verification PIN mismatch", Number),
    hold(133_006, &[400], "Phone number re-verification needed", Number),
    hold(133_008, &[400], "Too many two step verification PIN guesses", Number),
    hold(133_009, &[400], "Two step verification PIN guessed too fast", Number),
    hold(133_010, &[400], "Phone number not registered", Number),
    retry(133_015, &[400], "Please wait a few minutes before registering", Number).wait(5 * MINUTE),
    hold(133_016, &[429, 400], "Account register deregister rate limit exceeded", Number).wait(72 * HOUR),
    dead(134_100, &[400], "Only marketing messages are supported", Template, Unrecoverable),
    retry(134_101, &[400], "The template is being synchronised", Template).wait(10 * MINUTE),
    dead(134_102, &[400], "The template is not available for use", Template, Unrecoverable),
    retry(135_000, &[400], "Generic user error", Message).max_tries(2),
    hold(1_752_041, &[400], "Onboarding", Account),
    hold(2_388_000, &[400], "Templates and onboarding", Account),
    hold(2_388_999, &[400], "Templates and onboarding", Account),
    hold(2_494_100, &[400], "Onboarding", Account),
    hold(2_593_000, &[400], "Onboarding", Account),
    hold(2_593_999, &[400], "Onboarding", Account),
];
