//! SQL functions for the migration that groups existing dead letters.

use rusqlite::{
    Connection, Result,
    functions::{Context, FunctionFlags},
};
use surehook_core::dead_letters::{self, DeadLetterCause};
use surehook_retry::{AttemptFailure, DeadReason, FailureClass};
use surehook_types::ids::DestinationId;
use uuid::Uuid;

use crate::steps::row::blob;

/// Adds the functions.
///
/// - `dead_shape(reason, class, status, failure, detail, response)`: the shape of the cause; all
///   but the reason are those of the last attempt, or null.
/// - `dead_group(destination, class, status, failure, shape)`: the id of the group.
pub(super) fn add_functions(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("dead_shape", 6, flags, |call| {
        let class = parse_argument(call, 1, FailureClass::parse)?;
        let (status, failure) = (call.get(2)?, parse_argument(call, 3, AttemptFailure::parse)?);
        let detail: Option<String> = call.get(4)?;
        let response: Option<Vec<u8>> = call.get(5)?;
        if class.is_some() {
            let response = response.unwrap_or_default();
            return Ok(dead_letters::shape(status, failure, detail.as_deref(), &response));
        }
        let reason = parse_argument(call, 0, DeadReason::parse)?;
        Ok(DeadLetterCause::from_removed_attempts(reason.unwrap_or(DeadReason::Unrecoverable))
            .shape)
    })?;
    connection.create_scalar_function("dead_group", 5, flags, |call| {
        let destination = DestinationId::from_uuid(Uuid::from_bytes(call.get(0)?));
        let class = parse_argument(call, 1, FailureClass::parse)?;
        let failure = parse_argument(call, 3, AttemptFailure::parse)?;
        let cause =
            DeadLetterCause { class, http_status: call.get(2)?, failure, shape: call.get(4)? };
        Ok(blob(cause.group_id(destination)).to_vec())
    })
}

fn parse_argument<T>(
    call: &Context<'_>,
    index: usize,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    Ok(call.get::<Option<String>>(index)?.as_deref().and_then(parse))
}
