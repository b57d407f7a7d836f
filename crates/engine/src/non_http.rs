//! What came of an attempt that is no HTTP: a program's exit, a reply of Redis.

use std::time::Duration;

use surehook_core::delivery::{
    AttemptFailure, AttemptOutcome, DeadReason, FailureClass, retry::SendOutcome,
};

use crate::sender::SendReport;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NonHttpResult {
    pub(crate) how: NonHttpEnd,
    /// For a failure, a short text for the operator, without secrets.
    pub(crate) detail: Option<String>,
    /// What was answered, as much as is kept.
    pub(crate) output: Vec<u8>,
}

/// How it ended, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonHttpEnd {
    /// It is done.
    Well,
    /// The answer is that it is not done.
    Badly(AttemptFailure, FailureClass),
    /// There was no answer.
    Unanswered(AttemptFailure),
}

impl NonHttpResult {
    /// It is done.
    pub(crate) fn well(output: Vec<u8>) -> Self {
        Self { how: NonHttpEnd::Well, detail: None, output }
    }

    /// It was answered that it is not done.
    pub(crate) fn badly(
        failure: AttemptFailure,
        class: FailureClass,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            how: NonHttpEnd::Badly(failure, class),
            detail: Some(detail.into()),
            output: Vec::new(),
        }
    }

    /// There was no answer.
    pub(crate) fn unanswered(failure: AttemptFailure, detail: impl Into<String>) -> Self {
        Self {
            how: NonHttpEnd::Unanswered(failure),
            detail: Some(detail.into()),
            output: Vec::new(),
        }
    }

    /// What is kept of it. No rule of a destination is about statuses that there are none of.
    pub(crate) fn report(self, elapsed: Duration) -> SendReport {
        let outcome = match self.how {
            // As if it had been a webhook: an attempt that was answered has a status.
            NonHttpEnd::Well => AttemptOutcome::Interpreted(SendOutcome {
                status: Some(200),
                ..SendOutcome::of(None)
            }),
            NonHttpEnd::Badly(failure, class) => {
                let reason = match class {
                    // What it is owed is not kept back: a pause after some of them is.
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

    /// The same, with what was answered.
    pub(crate) fn with_output(self, output: Vec<u8>) -> Self {
        Self { output, ..self }
    }
}
