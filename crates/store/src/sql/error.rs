//! Errors of a database, by what the caller does about them.

use surehook_types::ids::EventId;

use crate::postgres::PostgresFailure;

/// Why a statement or a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqlError {
    /// `SQLite` refused or failed. Its code tells the writer whether only this step failed.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
    /// PostgreSQL refused or failed, or was not reached.
    #[error(transparent)]
    Postgres(PostgresFailure),
    /// A value that the schema should have rejected. The step fails; others continue.
    #[error("invalid value in column {column}: {what}")]
    InvalidValue { column: usize, what: String },
    /// The body of the event does not match its SHA-256. Callers report the event.
    #[error("the stored body of {0} is damaged")]
    DamagedBody(EventId),
    /// A parameter that no integer column can hold.
    #[error("a number is too large to be stored")]
    OutOfRange,
    /// A value that cannot be encoded or sealed.
    #[error("{0}")]
    Unstorable(String),
    /// A row that the step needs does not exist.
    #[error("a row that must exist is missing")]
    RowMissing,
}

pub(crate) type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    /// The event whose body is damaged, if that is the error.
    pub(crate) fn damaged_event(&self) -> Option<EventId> {
        match self {
            Self::DamagedBody(event) => Some(*event),
            Self::Sqlite(_)
            | Self::Postgres(_)
            | Self::InvalidValue { .. }
            | Self::OutOfRange
            | Self::Unstorable(_)
            | Self::RowMissing => None,
        }
    }
}
