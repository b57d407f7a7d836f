//! The error responses of Evolution Go and Evolution API, and how each must be classified.

use serde_json::{Value, json};
use surehook_retry::{
    DeadReason::{self, PayloadError, Unrecoverable},
    FailureClass::{self, Ambiguous, Config, Permanent, Throttled, Transient},
};

#[derive(Clone, Debug)]
pub(crate) struct EvolutionErrorCase {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) class: FailureClass,
    /// Set if the message is dead after the first attempt.
    pub(crate) dead: Option<DeadReason>,
}

/// The body of an Evolution Go error.
pub(crate) fn go_error(text: &str) -> Value {
    json!({ "error": text })
}

/// The body of an Evolution API error.
pub(crate) fn api_error(status: u16, message: &Value) -> Value {
    let error = match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        _ => "Internal Server Error",
    };
    json!({ "status": status, "error": error, "response": { "message": message } })
}

/// Every known error of Evolution Go.
#[rustfmt::skip]
pub(crate) fn go_errors() -> Vec<EvolutionErrorCase> {
    let no_recipient = (Permanent, Some(Unrecoverable));
    let invalid = (Permanent, Some(PayloadError));
    let retry = (Transient, None);
    let held = (Config, None);
    let unknown = (Ambiguous, Some(DeadReason::Ambiguous));
    let errors = [
        (500, "number 5511987654321 is not registered on WhatsApp", no_recipient),
        (500, "Invalid file format: 'text/html'. Only 'image/jpeg' and 'image/png' are accepted", invalid),
        (500, "invalid media type", invalid),
        (500, "could not parse phone", invalid),
        (500, "documentos não são suportados em canais do WhatsApp", invalid),
        (500, "client disconnected", retry),
        (500, "no active session found", retry),
        (500, "failed to connect client: dial tcp: i/o timeout", retry),
        (500, "websocket not connected", retry),
        (500, "failed to get user info: info query timed out", retry),
        (500, "failed to send text after 3 attempts", retry),
        (500, "timed out waiting for message send response", unknown),
        (500, "server returned error 463", unknown),
        (500, "the store doesn't contain a device JID", held),
        (400, "message body is required", invalid),
        (401, "not authorized", held),
        (429, "too many requests", (Throttled, None)),
    ];
    let mut all: Vec<EvolutionErrorCase> = errors
        .into_iter()
        .map(|(status, text, (class, dead))| EvolutionErrorCase { status, body: go_error(text), class, dead })
        .collect();
    let licence = json!({ "code": "LICENSE_REQUIRED", "error": "service not activated" });
    all.push(EvolutionErrorCase { status: 503, body: licence, class: Config, dead: None });
    all
}

/// Every known error of Evolution API, except Meta's errors in a 201.
#[rustfmt::skip]
pub(crate) fn api_errors() -> Vec<EvolutionErrorCase> {
    let no_recipient = (Permanent, Some(Unrecoverable));
    let invalid = (Permanent, Some(PayloadError));
    let retry = (Transient, None);
    let held = (Config, None);
    let unknown = (Ambiguous, Some(DeadReason::Ambiguous));
    let undefined_response = "TypeError: Cannot read properties of undefined (reading 'data')";
    let number = json!([{ "jid": "5511987654321@s.whatsapp.net", "exists": false, "number": "5511987654321" }]);
    let errors = [
        (400, json!(["Error: Connection Closed"]), retry),
        (400, json!(["Error: Timed Out"]), retry),
        (400, json!(["Error: Connection Terminated"]), retry),
        (400, number, no_recipient),
        (400, json!(["[object Object]"]), no_recipient),
        (400, json!(["Group not found"]), no_recipient),
        (400, json!([undefined_response]), unknown),
        (400, json!([["instance requires property \"text\""]]), invalid),
        (401, json!("Unauthorized"), held),
        (404, json!(["The \"shop\" instance does not exist"]), held),
        (500, json!("Internal server error"), unknown),
    ];
    errors.into_iter()
        .map(|(status, message, (class, dead))| {
            EvolutionErrorCase { status, body: api_error(status, &message), class, dead }
        })
        .collect()
}
