//! How a command ends when it does not go well: a sentence, a hint, and an exit code.

use std::process::ExitCode;

use crate::output;

const UNREACHABLE: u8 = 6;

/// What went wrong, by exit code. The codes are documented in `docs/cli.md`.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: anyhow::Error,
    hint: Option<String>,
    /// All was said already; only the code is left.
    said: bool,
}

impl Failure {
    fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into(), hint: None, said: false }
    }

    /// The server does not know who asks.
    pub(crate) fn unauthenticated(error: impl Into<anyhow::Error>) -> Self {
        Self::new(3, error).hint("give a token with --token or SUREHOOK_TOKEN")
    }

    /// The server knows who asks, and that this is not theirs to do.
    pub(crate) fn forbidden(error: impl Into<anyhow::Error>) -> Self {
        Self::new(3, error).hint("ask an admin for a token with that role: surehook token create")
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
        Self::new(UNREACHABLE, error).hint(
            "is `surehook serve` running there? give its address with --server or SUREHOOK_SERVER",
        )
    }

    /// Some of it went well.
    pub(crate) fn partial(error: impl Into<anyhow::Error>) -> Self {
        Self::new(7, error)
    }

    /// Something was found that wants attention; what it is was printed.
    pub(crate) fn findings() -> Self {
        Self { said: true, ..Self::new(8, anyhow::anyhow!("there are findings")) }
    }

    /// A request would not be let in; why was printed.
    pub(crate) fn unverified() -> Self {
        Self { said: true, ..Self::new(1, anyhow::anyhow!("not verified")) }
    }

    /// What there is differs from what is wanted; how was printed.
    pub(crate) fn drift() -> Self {
        Self { said: true, ..Self::new(9, anyhow::anyhow!("changes are pending")) }
    }

    /// A person stopped it.
    pub(crate) fn interrupted(error: impl Into<anyhow::Error>) -> Self {
        Self::new(130, error)
    }

    /// The data cannot be used (`EX_SOFTWARE`): the process must end and be started again.
    pub(crate) fn store(error: impl Into<anyhow::Error>) -> Self {
        Self::new(70, error)
    }

    /// The settings cannot be used (`EX_CONFIG`).
    pub(crate) fn settings(error: impl Into<anyhow::Error>) -> Self {
        Self::new(78, error)
    }

    /// Whether the server could not be reached.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.code == UNREACHABLE
    }

    /// Says what to do about it.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    /// Tells the person and the shell.
    #[expect(clippy::print_stderr, reason = "this is the program's last word")]
    pub(crate) fn report(self) -> ExitCode {
        if self.error.is::<output::ReaderGone>() {
            return ExitCode::SUCCESS;
        }
        if !self.said {
            eprintln!("{} {self}", output::paint_error("error:"));
            if let Some(hint) = self.hint {
                eprintln!("hint:  {hint}");
            }
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
