//! What a sender is told that waited for the result of its event.
//!
//! The first answer and every later one to the same key are made of the same stored result, so they
//! are the same: nothing here says which of them came first.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use surehook_core::sync::SyncResponse;
use surehook_engine::ingest::ReceivedEvent;

use crate::door::{self, AnsweredEvent};

/// What a sender that waited is told.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "WaitedAnswer")]
pub(crate) struct Answer<'a> {
    status: &'a str,
    events: Vec<AnsweredEvent<'a>>,
    /// Whether it makes sense to send it again.
    retry: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// What the destination said, spelled as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    result: Option<Box<RawValue>>,
}

/// The answer to a sender that waited.
pub(crate) fn respond(told: &SyncResponse, received: &[ReceivedEvent]) -> Response<Full<Bytes>> {
    let status = told.as_str();
    let events = received.iter().map(|event| AnsweredEvent::new(event, status)).collect();
    let answer = Answer { status, events, ..Answer::default() };
    let raw = |result: &Option<String>| RawValue::from_string(result.clone()?).ok();
    let (code, answer) = match told {
        SyncResponse::Success { result } => {
            (StatusCode::OK, Answer { result: raw(result), ..answer })
        }
        SyncResponse::Skipped { reason, result } => {
            let (reason, result) = (Some(reason.as_str()), raw(result));
            (StatusCode::OK, Answer { skipped: true, reason, result, ..answer })
        }
        SyncResponse::Throttled { retry_after } => {
            let retry_after = Some(*retry_after);
            (StatusCode::TOO_MANY_REQUESTS, Answer { retry: true, retry_after, ..answer })
        }
        SyncResponse::Retry { reason } => {
            let message = "the event is kept, but there is no result yet; send it again";
            let (reason, message) = (Some(*reason), Some(message));
            (StatusCode::INTERNAL_SERVER_ERROR, Answer { retry: true, reason, message, ..answer })
        }
        SyncResponse::Accepted => (StatusCode::OK, answer),
    };
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(secs) = answer.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    // Texts, numbers and what was JSON before always become JSON.
    door::respond(code, headers, serde_json::to_vec(&answer).unwrap_or_default())
}
