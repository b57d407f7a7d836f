//! All error responses, as RFC 9457 problems.
//!
//! `detail` says what is wrong and what to do, for people; `code` is stable and for programs.
//! Internal errors are logged and not shown in the response.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use surehook_api::ProblemBody;
use surehook_core::retention::RetentionPolicy;
use surehook_engine::{
    ConfigChangeError,
    ingest::{IngestError, SendMessageError},
};
use surehook_types::{
    ids::ReplayId,
    name::Name,
    store_error::StoreError,
    time::{HumanDuration, Timestamp},
};

use crate::body;

/// Text for a full disk; the gateway resumes without a restart.
pub(crate) const DISK_FULL: &str =
    "The gateway's disk is full. Free some space; the gateway resumes by itself.";

/// An error response that a handler returns.
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

    /// Closes the connection after the response, because the rest of the request stays unread.
    pub(crate) fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// Turns statuses at which some senders give up for good into 503, so that they retry.
    pub(crate) fn into_retryable(mut self) -> Self {
        if matches!(self.status.as_u16(), 400 | 401 | 403 | 404 | 422) {
            self.status = StatusCode::SERVICE_UNAVAILABLE;
            self.retry_after_secs = Some(60);
        }
        self
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("No such {what}."))
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub(crate) fn method_not_allowed(methods: &'static str) -> Self {
        let detail = format!("Method not allowed. Use {methods}.");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).allow(methods)
    }

    /// The retention of the event's source removed its body. `source` is `None` if it was deleted.
    pub(crate) fn body_removed(source: Option<(&Name, RetentionPolicy)>) -> Self {
        let rule = match source {
            None => "Its source has been deleted since.".to_owned(),
            Some((name, keep)) => format!(
                "Source `{name}` keeps bodies for {}, and bodies of dead letters for {}. To keep \
                 future bodies longer, increase its `retention`.",
                HumanDuration(keep.bodies),
                HumanDuration(keep.dead_letters)
            ),
        };
        let detail = format!("The body of this event was removed by retention. {rule}");
        Self::new(StatusCode::GONE, "body_removed", detail)
    }

    pub(crate) fn replayed_too_soon(again_at: Timestamp, now: Timestamp) -> Self {
        let secs = again_at.since(now).as_secs() + 1;
        let detail = format!("This delivery was just replayed. Replay it again in {secs} s.");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "replayed_too_soon", detail).retry_after(secs)
    }

    pub(crate) fn replay_overlaps(other: &ReplayId) -> Self {
        let detail = format!(
            "Replay job {other} is still running and could deliver the same events. Wait for it, \
             cancel it, or narrow the filter by destination, source, key or time."
        );
        Self::new(StatusCode::CONFLICT, "replay_overlaps", detail)
    }

    pub(crate) fn replay_state(state: &str, action: &str) -> Self {
        let detail = format!("This replay job is {state} and cannot be {action}.");
        Self::new(StatusCode::CONFLICT, "replay_state", detail)
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        let body = ProblemBody {
            r#type: format!("urn:surehook:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: self.status.as_u16(),
            code: self.code.to_owned(),
            detail: self.detail.clone(),
        };
        // Strings and numbers always serialize.
        serde_json::to_vec(&body).unwrap_or_default()
    }

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
            // 503 and not 500: senders retry after a 503, so that the event is not lost.
            StoreError::Overloaded => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", error.to_string())
                    .retry_after(1)
            }
            StoreError::Unavailable(_) => {
                tracing::warn!(%error, "a store operation failed");
                let detail = "The database of the gateway does not answer. Nothing was stored. Try again in a moment.";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "database_unavailable", detail)
                    .retry_after(2)
            }
            StoreError::Full => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "disk_full", DISK_FULL).retry_after(30)
            }
            StoreError::Unknown(_) => {
                tracing::warn!(%error, "the outcome of a store operation is unknown");
                let detail = "It is unknown whether this request was stored. Send it again.";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown", detail).retry_after(1)
            }
            StoreError::BodyDamaged(event) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "body_damaged",
                format!(
                    "The stored body of {event} is damaged: it does not match its SHA-256. Check the disk, \
                     and restore a backup or ask the sender to send it again."
                ),
            ),
            StoreError::Failed(_) | StoreError::Refused(_) | StoreError::Corrupt(_) => {
                tracing::error!(%error, "store operation failed");
                let detail = "The gateway could not read or write its store. See its log.";
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
            // 503: the request may be valid, so the sender should retry until this is fixed. A 410
            // would make some senders disable the webhook for good.
            IngestError::Disabled
            | IngestError::Misconfigured
            | IngestError::Quarantined(_)
            | IngestError::Certificate(_) => StatusCode::SERVICE_UNAVAILABLE,
            IngestError::NotVerified(_) => StatusCode::UNAUTHORIZED,
            IngestError::Key(_) => StatusCode::BAD_REQUEST,
            IngestError::OtherBody(_) => StatusCode::UNPROCESSABLE_ENTITY,
            IngestError::Memory(error) => return body::overloaded(*error),
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
            SendMessageError::TooManyOrigins => (StatusCode::CONFLICT, "too_many_origins"),
            SendMessageError::NoAlertChannel(_) => (StatusCode::CONFLICT, "no_alert_channel"),
            SendMessageError::Retry(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
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
