//! The error of a command: a message, a hint and an exit code.

use std::process::ExitCode;

use http::StatusCode;
use surehook_api::CallError;

use crate::output;

const UNREACHABLE: u8 = 6;

/// The error of a command. The exit codes are documented in `docs/reference/cli.md`.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    error: anyhow::Error,
    hint: Option<String>,
    /// The details were printed already; only the exit code is left.
    is_reported: bool,
}

impl CliError {
    fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into(), hint: None, is_reported: false }
    }

    pub(crate) fn unauthenticated(error: impl Into<anyhow::Error>) -> Self {
        Self::new(3, error).hint("Pass a token with --token or SUREHOOK_TOKEN.")
    }

    pub(crate) fn forbidden(error: impl Into<anyhow::Error>) -> Self {
        Self::new(3, error).hint("Ask an admin for a token that may do this: surehook token create")
    }

    pub(crate) fn not_found(error: impl Into<anyhow::Error>) -> Self {
        Self::new(4, error)
    }

    /// The request is invalid, or not possible now.
    pub(crate) fn refused(error: impl Into<anyhow::Error>) -> Self {
        Self::new(5, error)
    }

    pub(crate) fn unreachable(error: impl Into<anyhow::Error>) -> Self {
        Self::new(UNREACHABLE, error).hint(
            "Is `surehook serve` running there? Set its URL with --server or SUREHOOK_SERVER.",
        )
    }

    /// Some items failed.
    pub(crate) fn partial(error: impl Into<anyhow::Error>) -> Self {
        Self::new(7, error)
    }

    fn reported(code: u8) -> Self {
        Self { is_reported: true, ..Self::new(code, anyhow::anyhow!("reported")) }
    }

    /// `doctor` or `evolution status` found problems and printed them.
    pub(crate) fn findings() -> Self {
        Self::reported(8)
    }

    /// `verify` failed and printed why.
    pub(crate) fn unverified() -> Self {
        Self::reported(1)
    }

    /// `diff` or `apply --dry-run` found changes and printed them.
    pub(crate) fn pending_changes() -> Self {
        Self::reported(9)
    }

    /// The reader of standard output has closed it, as `head` does. That is not an error.
    pub(crate) fn closed_output() -> Self {
        Self::reported(0)
    }

    /// Interrupted with Ctrl-C.
    pub(crate) fn interrupted(error: impl Into<anyhow::Error>) -> Self {
        Self::new(130, error)
    }

    /// The store has failed (`EX_SOFTWARE`): the process must be restarted.
    pub(crate) fn store(error: impl Into<anyhow::Error>) -> Self {
        Self::new(70, error)
    }

    /// Invalid settings (`EX_CONFIG`).
    pub(crate) fn settings(error: impl Into<anyhow::Error>) -> Self {
        Self::new(78, error)
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.code == UNREACHABLE
    }

    /// The status and the code of the gateway's error response, if it was one.
    pub(crate) fn problem(&self) -> Option<(StatusCode, &str)> {
        match self.error.downcast_ref() {
            Some(CallError::Problem { status, code, .. }) => Some((*status, code)),
            Some(CallError::InvalidRequest(_) | CallError::UnexpectedResponse(_)) | None => None,
        }
    }

    /// Replaces the text of a refusal by the gateway.
    pub(crate) fn describe_refusal(mut self, describe: impl FnOnce(&str) -> String) -> Self {
        if let Some(CallError::Problem {
            status: StatusCode::UNPROCESSABLE_ENTITY, detail, ..
        }) = self.error.downcast_ref()
        {
            self.error = anyhow::Error::msg(describe(detail));
        }
        self
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    /// Prints the error and returns the exit code.
    #[expect(clippy::print_stderr, reason = "errors go to standard error")]
    pub(crate) fn report(self) -> ExitCode {
        if !self.is_reported {
            eprintln!("{} {self}", output::style_error("error:"));
            if let Some(hint) = self.hint {
                eprintln!("hint:  {hint}");
            }
        }
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = self.error.to_string();
        for cause in self.error.chain().skip(1).map(ToString::to_string) {
            // Some errors already include their cause.
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        f.write_str(&text)
    }
}

impl<E: Into<anyhow::Error>> From<E> for CliError {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast_ref() {
            Some(CallError::Problem { status, .. }) => match *status {
                StatusCode::UNAUTHORIZED => Self::unauthenticated(error),
                StatusCode::FORBIDDEN => Self::forbidden(error),
                StatusCode::NOT_FOUND => Self::not_found(error),
                status if status.is_client_error() => Self::refused(error),
                _ => Self::new(1, error),
            },
            Some(CallError::UnexpectedResponse(_)) => Self::unreachable(error),
            Some(CallError::InvalidRequest(_)) | None => Self::new(1, error),
        }
    }
}
