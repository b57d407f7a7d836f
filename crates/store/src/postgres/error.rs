//! Errors of PostgreSQL, by what the store does about them.

use surehook_types::store_error::StoreError;
use tokio_postgres::{Error, error::SqlState};

use crate::sql::SqlError;

/// What a failed statement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// A concurrent transaction was faster; the same transaction again can succeed.
    Conflict,
    /// The connection is lost, or leads to a server that shuts down or has become a standby.
    Connection,
    /// The server has no disk space.
    Full,
    /// The statement took longer than it may.
    Timeout,
    /// The statement itself was refused.
    Statement,
}

/// A failed statement. The text has no values: a message of the database may quote a key only in its
/// detail, which is left out.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct PostgresFailure {
    pub(crate) kind: FailureKind,
    text: String,
}

impl PostgresFailure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Whether the server has answered, so that it is known that nothing was committed.
    fn is_answered(&self) -> bool {
        match self.kind {
            FailureKind::Connection => false,
            FailureKind::Conflict
            | FailureKind::Full
            | FailureKind::Timeout
            | FailureKind::Statement => true,
        }
    }
}

impl From<Error> for PostgresFailure {
    fn from(error: Error) -> Self {
        let Some(database) = error.as_db_error() else {
            let is_encoding = std::error::Error::source(&error)
                .is_some_and(|cause| cause.downcast_ref::<SqlError>().is_some());
            let kind = if is_encoding { FailureKind::Statement } else { FailureKind::Connection };
            let text = match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            return Self { kind, text };
        };
        let text = format!("PostgreSQL: {} ({})", database.message(), database.code().code());
        Self { kind: classify(database.code()), text }
    }
}

fn classify(code: &SqlState) -> FailureKind {
    match code.code() {
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => FailureKind::Conflict,
        "53100" => FailureKind::Full,
        "57014" => FailureKind::Timeout,
        // Too many connections, read-only transaction on a standby, a transaction that was idle too long.
        "53300" | "25006" | "25P03" | "25P04" => FailureKind::Connection,
        code if code.starts_with("57P") || code.starts_with("08") => FailureKind::Connection,
        _ => FailureKind::Statement,
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        Self::Postgres(error.into())
    }
}

impl SqlError {
    pub(super) fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Postgres(failure) => failure.kind,
            Self::Sqlite(_)
            | Self::InvalidValue { .. }
            | Self::DamagedBody(_)
            | Self::OutOfRange
            | Self::Unstorable(_)
            | Self::RowMissing => FailureKind::Statement,
        }
    }
}

/// Why a transaction was not committed, or may not have been.
#[derive(Debug)]
pub(super) enum TransactionError {
    NotCommitted(SqlError),
    /// The connection was lost during the commit.
    Unknown(PostgresFailure),
}

impl TransactionError {
    /// The error of a commit.
    pub(super) fn of_commit(error: Error) -> Self {
        let failure = PostgresFailure::from(error);
        match failure.is_answered() {
            true => Self::NotCommitted(SqlError::Postgres(failure)),
            false => {
                tracing::warn!(
                    reason = failure.text,
                    "lost the connection during a commit; its outcome is unknown"
                );
                Self::Unknown(failure)
            }
        }
    }

    /// Whether the same transaction again, on another connection, may succeed.
    pub(super) fn can_be_tried_again(&self) -> bool {
        match self {
            Self::NotCommitted(error) => {
                matches!(error.failure_kind(), FailureKind::Conflict | FailureKind::Connection)
            }
            Self::Unknown(_) => false,
        }
    }

    /// Whether only the statement is at fault, so that other work of the transaction can succeed.
    pub(super) fn is_of_a_statement(&self) -> bool {
        match self {
            Self::NotCommitted(error) => error.failure_kind() == FailureKind::Statement,
            Self::Unknown(_) => false,
        }
    }
}

impl From<SqlError> for TransactionError {
    fn from(error: SqlError) -> Self {
        Self::NotCommitted(error)
    }
}

impl From<TransactionError> for StoreError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Unknown(failure) => Self::Unknown(failure.to_string()),
            TransactionError::NotCommitted(error) => match error.failure_kind() {
                FailureKind::Conflict | FailureKind::Timeout => {
                    Self::Unavailable(error.to_string())
                }
                FailureKind::Connection => Self::Unavailable(error.to_string()),
                FailureKind::Full => Self::Full,
                FailureKind::Statement => match error.damaged_event() {
                    Some(event) => Self::BodyDamaged(event),
                    None => Self::Refused(error.to_string()),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_code_decides_what_the_store_does() {
        for (code, expected) in [
            ("40001", FailureKind::Conflict),
            ("40P01", FailureKind::Conflict),
            ("53100", FailureKind::Full),
            ("57014", FailureKind::Timeout),
            ("57P01", FailureKind::Connection),
            ("08006", FailureKind::Connection),
            ("25006", FailureKind::Connection),
            ("23505", FailureKind::Statement),
            ("42P01", FailureKind::Statement),
        ] {
            assert_eq!(classify(&SqlState::from_code(code)), expected, "{code}");
        }
    }
}
