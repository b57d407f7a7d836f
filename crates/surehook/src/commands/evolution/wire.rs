//! Asks a server of Evolution, and says what went wrong in a way that helps.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use surehook_core::channel::instance::{InstanceError, InstanceRequest};

use crate::{client::Client, failure::Failure};

/// What to look at when nothing answers, or something else.
const UNREACHED: &str = "is Evolution running there? --url is its address, without a path of a call; \
                         --service says whether it is Evolution Go or Evolution API";

/// The way to a server.
pub(super) struct Wire(Client);

impl Wire {
    pub(super) fn new(url: &str) -> Self {
        Self(Client::anonymous(url, ""))
    }

    /// Asks, and reads the answer. `key` says which key is the right one.
    pub(super) async fn ask<T>(
        &self,
        call: InstanceRequest,
        read: impl FnOnce(u16, &[u8]) -> Result<T, InstanceError>,
        key: &str,
    ) -> Result<T, Failure> {
        let body = call.body.as_ref().map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder().method(call.method).uri(call.url.as_str());
        if let Some(headers) = request.headers_mut() {
            headers.extend(call.headers);
        }
        let request = request.body(Full::new(Bytes::from(body))).context("not a request")?;
        let answer = self.0.exchange(request).await;
        let (status, bytes) = answer.map_err(|failure| failure.hint(UNREACHED))?;
        read(status.as_u16(), &bytes).map_err(|trouble| explain(trouble, key))
    }
}

fn explain(trouble: InstanceError, key: &str) -> Failure {
    let text = trouble.to_string();
    match trouble {
        InstanceError::Unauthorized => Failure::unauthenticated(trouble).hint(key),
        InstanceError::NotFound => {
            Failure::not_found(trouble).hint("--instance, or the token, says which one is meant")
        }
        InstanceError::UnexpectedResponse(_) => Failure::unreachable(trouble).hint(UNREACHED),
        InstanceError::Rejected(_) => {
            let failure = Failure::refused(anyhow!("{text}"));
            match hint(&text.to_lowercase()) {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}

/// What to do about what a server says.
fn hint(said: &str) -> Option<&'static str> {
    let known = [
        ("not activated", "the server wants a licence: activate it in its manager"),
        (
            "invalid proxy",
            "the server tried it and did not get out: check host, port, protocol, user and password",
        ),
        ("no qr code", "try again in a few seconds"),
    ];
    known.into_iter().find(|(part, _)| said.contains(part)).map(|(_, hint)| hint)
}
