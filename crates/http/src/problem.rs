//! Every status code and error code, as RFC 9457 problems.
//!
//! A problem says what is wrong and what to do; `code` is stable and for programs. What went wrong
//! inside is in the log, not in the answer.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{
    ids::ReplayId,
    name::Name,
    retention::RetentionPolicy,
    store::StoreError,
    time::{HumanDuration, Timestamp},
};
use surehook_engine::{
    ConfigChangeError,
    ingest::{IngestError, SendMessageError},
};

/// A problem as it is answered (RFC 9457).
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Shown<'a> {
    /// `urn:surehook:` and the code.
    r#type: String,
    /// The status in words.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// What is wrong, for programs. Stable.
    code: &'a str,
    /// What is wrong and what to do, for people. May change.
    detail: &'a str,
}

/// An answer that is not what was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    retry_after_secs: Option<u64>,
    allow: Option<&'static str>,
    close: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            retry_after_secs: None,
            allow: None,
            close: false,
        }
    }

    pub(crate) fn retry_after(mut self, secs: u64) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    pub(crate) fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    /// The rest of the request is not read, so the connection cannot be used again.
    pub(crate) fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// The same for a sender that gives up for good at some statuses: it is to come again.
    pub(crate) fn send_again(mut self) -> Self {
        if matches!(self.status.as_u16(), 400 | 401 | 403 | 404 | 422) {
            self.status = StatusCode::SERVICE_UNAVAILABLE;
            self.retry_after_secs = Some(60);
        }
        self
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("there is no such {what}"))
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub(crate) fn method_not_allowed(methods: &'static str) -> Self {
        let detail = format!("this address takes {methods}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).allow(methods)
    }

    /// The body of an event is gone by the retention of its source, which is unknown if the source
    /// was deleted since.
    pub(crate) fn body_removed(source: Option<(&Name, RetentionPolicy)>) -> Self {
        let rule = match source {
            None => "its source, deleted since, asked for that".to_owned(),
            Some((name, keep)) => format!(
                "the source `{name}` keeps bodies for {}, and those of dead letters for {}, after \
                 they were received; a longer `retention` keeps the next ones longer",
                HumanDuration(keep.bodies),
                HumanDuration(keep.dead_letters)
            ),
        };
        let detail = format!("retention has removed the body of this event: {rule}");
        Self::new(StatusCode::GONE, "body_removed", detail)
    }

    pub(crate) fn too_soon(again_at: Timestamp, now: Timestamp) -> Self {
        let secs = again_at.since(now).as_secs() + 1;
        let detail =
            format!("this was replayed a moment ago; it can be replayed again in {secs} s");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "replayed_too_soon", detail).retry_after(secs)
    }

    pub(crate) fn replay_overlaps(other: &ReplayId) -> Self {
        let detail = format!(
            "the replay job {other} has not ended and could deliver the same events; wait for it, \
             cancel it, or narrow the filter by destination, source, key or time"
        );
        Self::new(StatusCode::CONFLICT, "replay_overlaps", detail)
    }

    pub(crate) fn replay_state(state: &str, wish: &str) -> Self {
        let detail = format!("a replay job that is {state} cannot be {wish}");
        Self::new(StatusCode::CONFLICT, "replay_state", detail)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
        let shown = Shown {
            r#type: format!("urn:surehook:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Problem"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
        };
        // A struct of texts and numbers always becomes JSON.
        serde_json::to_vec(&shown).unwrap_or_default()
    }

    /// The headers that go with it.
    pub(crate) fn headers(&self) -> http::HeaderMap {
        let mut headers = http::HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(secs) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        headers
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status(), self.headers(), self.json()).into_response()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            // 503 and not 500: senders try again after a 503, and that saves the event.
            StoreError::Overloaded => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", error.to_string())
                    .retry_after(1)
            }
            StoreError::Full => {
                let detail = "the gateway's disk is full; make room and it goes on by itself";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "disk_full", detail).retry_after(30)
            }
            StoreError::Failed(_) | StoreError::Refused(_) | StoreError::Corrupt(_) => {
                tracing::error!(%error, "the store did not do what was asked");
                let detail = "the gateway could not store or read this; its log says why";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_failed", detail).retry_after(5)
            }
        }
    }
}

impl From<IngestError> for Problem {
    fn from(error: IngestError) -> Self {
        let code = error.code();
        let status = match &error {
            IngestError::UnknownSource => StatusCode::NOT_FOUND,
            // 503: the request may be good, and the sender should try again when this is mended. 410
            // would make some switch their webhook off for good.
            IngestError::Disabled
            | IngestError::Misconfigured
            | IngestError::Quarantined(_)
            | IngestError::Certificate(_) => StatusCode::SERVICE_UNAVAILABLE,
            IngestError::NotVerified(_) => StatusCode::UNAUTHORIZED,
            IngestError::Key(_) => StatusCode::BAD_REQUEST,
            IngestError::Store(cause) => return Self::from(cause.clone()),
        };
        let problem = Self::new(status, code, error.to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE { problem.retry_after(60) } else { problem }
    }
}

impl From<SendMessageError> for Problem {
    fn from(error: SendMessageError) -> Self {
        let (status, code) = match error {
            SendMessageError::Change(error) => return Self::from(error),
            SendMessageError::Store(error) => return Self::from(error),
            SendMessageError::UnknownDestination(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "unknown_destination")
            }
            SendMessageError::Misconfigured(_) => {
                (StatusCode::CONFLICT, "destination_misconfigured")
            }
            SendMessageError::OutboxTaken => (StatusCode::CONFLICT, "outbox_taken"),
            SendMessageError::OutboxDisabled => {
                (StatusCode::SERVICE_UNAVAILABLE, "source_disabled")
            }
            SendMessageError::OutboxUnusable => {
                (StatusCode::SERVICE_UNAVAILABLE, "source_misconfigured")
            }
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<ConfigChangeError> for Problem {
    fn from(error: ConfigChangeError) -> Self {
        match error {
            ConfigChangeError::Invalid(problem) => Self::invalid(problem.to_string()),
            ConfigChangeError::Store(error) => Self::from(error),
        }
    }
}
