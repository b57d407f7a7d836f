//! What Evolution Go and Evolution API say when something goes wrong, and what a sender should do
//! about each.

use serde_json::{Value, json};
use surehook_core::delivery::{
    DeadReason::{self, PayloadError, Unrecoverable},
    FailureClass::{self, Ambiguous, Config, Permanent, Throttled, Transient},
};

/// One answer that is no success.
#[derive(Clone, Debug)]
pub(crate) struct EvolutionErrorCase {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) class: FailureClass,
    /// Why the message is dead, if it is at once.
    pub(crate) dead: Option<DeadReason>,
}

/// An error of Evolution Go.
pub(crate) fn go_error(text: &str) -> Value {
    json!({ "error": text })
}

/// An error of Evolution API.
pub(crate) fn api_error(status: u16, message: &Value) -> Value {
    let error = match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        _ => "Internal Server Error",
    };
    json!({ "status": status, "error": error, "response": { "message": message } })
}

/// Everything that Evolution Go is known to say.
#[rustfmt::skip]
pub(crate) fn go_errors() -> Vec<EvolutionErrorCase> {
    let nobody = (Permanent, Some(Unrecoverable));
    let refused = (Permanent, Some(PayloadError));
    let again = (Transient, None);
    let held = (Config, None);
    let unknown = (Ambiguous, Some(DeadReason::Ambiguous));
    let said = [
        (500, "number 5511987654321 is not registered on WhatsApp", nobody),
        (500, "Invalid file format: 'text/html'. Only 'image/jpeg' and 'image/png' are accepted", refused),
        (500, "invalid media type", refused),
        (500, "could not parse phone", refused),
        (500, "documentos não são suportados em canais do WhatsApp", refused),
        (500, "client disconnected", again),
        (500, "no active session found", again),
        (500, "failed to connect client: dial tcp: i/o timeout", again),
        (500, "websocket not connected", again),
        (500, "failed to get user info: info query timed out", again),
        (500, "failed to send text after 3 attempts", again),
        (500, "timed out waiting for message send response", unknown),
        (500, "server returned error 463", unknown),
        (500, "the store doesn't contain a device JID", held),
        (400, "message body is required", refused),
        (401, "not authorized", held),
        (429, "too many requests", (Throttled, None)),
    ];
    let mut all: Vec<EvolutionErrorCase> = said
        .into_iter()
        .map(|(status, text, (class, dead))| EvolutionErrorCase { status, body: go_error(text), class, dead })
        .collect();
    let licence = json!({ "code": "LICENSE_REQUIRED", "error": "service not activated" });
    all.push(EvolutionErrorCase { status: 503, body: licence, class: Config, dead: None });
    all
}

/// Everything that Evolution API is known to say, but for Meta's errors in a 201.
#[rustfmt::skip]
pub(crate) fn api_errors() -> Vec<EvolutionErrorCase> {
    let nobody = (Permanent, Some(Unrecoverable));
    let refused = (Permanent, Some(PayloadError));
    let again = (Transient, None);
    let held = (Config, None);
    let unknown = (Ambiguous, Some(DeadReason::Ambiguous));
    let unreached = "TypeError: Cannot read properties of undefined (reading 'data')";
    let number = json!([{ "jid": "5511987654321@s.whatsapp.net", "exists": false, "number": "5511987654321" }]);
    let said = [
        (400, json!(["Error: Connection Closed"]), again),
        (400, json!(["Error: Timed Out"]), again),
        (400, json!(["Error: Connection Terminated"]), again),
        (400, number, nobody),
        (400, json!(["[object Object]"]), nobody),
        (400, json!(["Group not found"]), nobody),
        (400, json!([unreached]), unknown),
        (400, json!([["instance requires property \"text\""]]), refused),
        (401, json!("Unauthorized"), held),
        (404, json!(["The \"shop\" instance does not exist"]), held),
        (500, json!("Internal server error"), unknown),
    ];
    said.into_iter()
        .map(|(status, message, (class, dead))| {
            EvolutionErrorCase { status, body: api_error(status, &message), class, dead }
        })
        .collect()
}
