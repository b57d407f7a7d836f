//! How a command ends when it does not go well: a sentence, a hint, and an exit code.

use std::process::ExitCode;

/// What went wrong, by exit code. The codes are documented in `docs/cli.md`.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: anyhow::Error,
    hint: Option<String>,
}

impl Failure {
    fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into(), hint: None }
    }

    /// The server does not know who asks.
    pub(crate) fn unauthenticated(error: impl Into<anyhow::Error>) -> Self {
        Self::new(3, error).hint("give the admin token with --token or SUREHOOK_TOKEN")
    }

    /// What was asked for is not there.
    pub(crate) fn not_found(error: impl Into<anyhow::Error>) -> Self {
        Self::new(4, error)
    }

    /// What was asked for makes no sense, or not now.
    pub(crate) fn refused(error: impl Into<anyhow::Error>) -> Self {
        Self::new(5, error)
    }

    /// The server cannot be reached.
    pub(crate) fn unreachable(error: impl Into<anyhow::Error>) -> Self {
        Self::new(6, error).hint(
            "is `surehook serve` running there? give its address with --server or SUREHOOK_SERVER",
        )
    }

    /// Whether it may work again by itself.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.code == 6
    }

    /// Some of it went well.
    pub(crate) fn partial(error: impl Into<anyhow::Error>) -> Self {
        Self::new(7, error)
    }

    /// The data cannot be used (`EX_SOFTWARE`): the process must end and be started again.
    pub(crate) fn store(error: impl Into<anyhow::Error>) -> Self {
        Self::new(70, error)
    }

    /// The settings cannot be used (`EX_CONFIG`).
    pub(crate) fn settings(error: impl Into<anyhow::Error>) -> Self {
        Self::new(78, error)
    }

    fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    /// Tells the person and the shell.
    #[expect(clippy::print_stderr, reason = "this is the program's last word")]
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("error: {self}");
        if let Some(hint) = self.hint {
            eprintln!("hint:  {hint}");
        }
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut said = self.error.to_string();
        for cause in self.error.chain().skip(1).map(ToString::to_string) {
            // Some errors say their cause themselves; once is enough.
            if !said.contains(&cause) {
                said = format!("{said}: {cause}");
            }
        }
        f.write_str(&said)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(1, error)
    }
}
