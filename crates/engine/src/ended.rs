//! What came of an attempt that is no HTTP: a program's exit, a reply of Redis.

use surehook_core::delivery::{Class, Failure};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) how: How,
    /// For a failure, a short text for the operator, without secrets.
    pub(crate) detail: Option<String>,
    /// What was answered, as much as is kept.
    pub(crate) output: Vec<u8>,
}

/// How it ended, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It is done.
    Well,
    /// The answer is that it is not done.
    Badly(Class),
    /// There was no answer.
    Unanswered(Failure),
}

impl Ended {
    /// It is done.
    pub(crate) fn well(output: Vec<u8>) -> Self {
        Self { how: How::Well, detail: None, output }
    }

    /// It was answered that it is not done.
    pub(crate) fn badly(class: Class, detail: impl Into<String>) -> Self {
        Self { how: How::Badly(class), detail: Some(detail.into()), output: Vec::new() }
    }

    /// There was no answer.
    pub(crate) fn unanswered(failure: Failure, detail: impl Into<String>) -> Self {
        Self { how: How::Unanswered(failure), detail: Some(detail.into()), output: Vec::new() }
    }

    /// The same, with what was answered.
    pub(crate) fn with_output(self, output: Vec<u8>) -> Self {
        Self { output, ..self }
    }
}
