//! The result of an attempt without HTTP: the exit of a program, the reply of Redis.

use std::time::Duration;

use surehook_retry::{AttemptFailure, AttemptOutcome, DeadReason, FailureClass, SendOutcome};

use crate::sender::SendReport;

/// The result of an attempt without HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NonHttpResult {
    pub(crate) end: NonHttpEnd,
    /// For a failure, a short text for the operator, without secrets.
    pub(crate) detail: Option<String>,
    /// The output or reply, up to the size that is stored.
    pub(crate) output: Vec<u8>,
}

/// How the attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonHttpEnd {
    Succeeded,
    /// The other side reported a failure.
    Failed(AttemptFailure, FailureClass),
    /// The other side did not answer.
    Unanswered(AttemptFailure),
}

impl NonHttpResult {
    pub(crate) fn succeeded(output: Vec<u8>) -> Self {
        Self { end: NonHttpEnd::Succeeded, detail: None, output }
    }

    pub(crate) fn failed(
        failure: AttemptFailure,
        class: FailureClass,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            end: NonHttpEnd::Failed(failure, class),
            detail: Some(detail.into()),
            output: Vec::new(),
        }
    }

    pub(crate) fn unanswered(failure: AttemptFailure, detail: impl Into<String>) -> Self {
        Self {
            end: NonHttpEnd::Unanswered(failure),
            detail: Some(detail.into()),
            output: Vec::new(),
        }
    }

    /// The report of the attempt. A destination's status rules do not apply: there is no HTTP status.
    pub(crate) fn into_report(self, elapsed: Duration) -> SendReport {
        let outcome = match self.end {
            // Like a webhook: an attempt that was answered has a status.
            NonHttpEnd::Succeeded => AttemptOutcome::Interpreted(SendOutcome {
                status: Some(200),
                ..SendOutcome::of(None)
            }),
            NonHttpEnd::Failed(failure, class) => {
                let reason = match class {
                    // Dead at once; `pause_after_config_failures` protects the deliveries behind it.
                    FailureClass::Config => Some(DeadReason::InvalidEndpoint),
                    FailureClass::Permanent => Some(DeadReason::Unrecoverable),
                    FailureClass::Transient | FailureClass::Throttled | FailureClass::Ambiguous => {
                        None
                    }
                };
                let failure = Some(failure);
                AttemptOutcome::Interpreted(SendOutcome {
                    failure,
                    reason,
                    ..SendOutcome::of(Some(class))
                })
            }
            NonHttpEnd::Unanswered(failure) => AttemptOutcome::Failed(failure),
        };
        let (response_body, detail) = (self.output, self.detail);
        SendReport { elapsed, response_body, detail, ..SendReport::of(outcome) }
    }

    pub(crate) fn with_output(self, output: Vec<u8>) -> Self {
        Self { output, ..self }
    }
}
