//! Reads a request body completely, within a size and time limit.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;

use crate::problem::Problem;

/// Reads the whole body. After an error the connection must be closed, because the rest of the body
/// is unread.
pub(crate) async fn read_body<B>(body: B, limit: usize, timeout: Duration) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match tokio::time::timeout(timeout, Limited::new(body, limit).collect()).await {
        Err(_) => Err(body_timed_out(timeout)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(body_too_large(limit)),
        Ok(Err(_)) => {
            let detail = "The body is malformed or was cut off.";
            Err(Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail).close())
        }
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
    }
}

pub(crate) fn body_too_large(limit: usize) -> Problem {
    let detail = format!("The body is larger than {limit} bytes.");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).close()
}

pub(crate) fn body_timed_out(timeout: Duration) -> Problem {
    let detail = format!("The body was not received within {} s.", timeout.as_secs());
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).close()
}
