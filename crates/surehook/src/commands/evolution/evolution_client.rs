//! HTTP client of an Evolution server, with helpful errors.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use surehook_messaging::instance::{InstanceError, InstanceRequest};

use crate::{client::ApiClient, error::CliError};

const UNREACHABLE_HINT: &str = "Is Evolution running there? Check --url (without a path) and --service (Evolution \
                                Go or Evolution API).";

pub(super) struct EvolutionClient(ApiClient);

impl EvolutionClient {
    pub(super) fn new(url: &str) -> Self {
        Self(ApiClient::with_token(url, ""))
    }

    /// Sends a request and parses the response. `key_hint` is shown if the key is rejected.
    pub(super) async fn send<T>(
        &self,
        call: InstanceRequest,
        read: impl FnOnce(u16, &[u8]) -> Result<T, InstanceError>,
        key_hint: &str,
    ) -> Result<T, CliError> {
        let body = call.body.as_ref().map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder().method(call.method).uri(call.url.as_str());
        if let Some(headers) = request.headers_mut() {
            headers.extend(call.headers);
        }
        let request = request.body(Full::new(Bytes::from(body))).context("invalid request")?;
        let response = self.0.exchange(request).await;
        let response = response.map_err(|failure| failure.hint(UNREACHABLE_HINT))?;
        read(response.status().as_u16(), response.body()).map_err(|error| explain(error, key_hint))
    }
}

fn explain(error: InstanceError, key_hint: &str) -> CliError {
    let text = error.to_string();
    match error {
        InstanceError::Unauthorized => CliError::unauthenticated(error).hint(key_hint),
        InstanceError::NotFound => {
            CliError::not_found(error).hint("Check --instance or the token.")
        }
        InstanceError::UnexpectedResponse(_) => CliError::unreachable(error).hint(UNREACHABLE_HINT),
        InstanceError::Rejected(_) => {
            let failure = CliError::refused(anyhow!("{text}"));
            match find_hint(&text.to_lowercase()) {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}

/// What to do about an error message of the server.
fn find_hint(message: &str) -> Option<&'static str> {
    let known = [
        ("not activated", "The server needs a license: activate it in its manager."),
        (
            "invalid proxy",
            "The server could not connect through it: check host, port, protocol, user and password.",
        ),
        ("no qr code", "Try again in a few seconds."),
    ];
    known.into_iter().find(|(part, _)| message.contains(part)).map(|(_, hint)| hint)
}
