//! Reads a body whole, within its size and its time.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;

use crate::problem::Problem;

/// The whole body, or why there is none. After an error the connection cannot be used again.
pub(crate) async fn whole<B>(body: B, limit: usize, time: Duration) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match tokio::time::timeout(time, Limited::new(body, limit).collect()).await {
        Err(_) => {
            let detail = "the body did not come within the time for it";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).close())
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Ok(Err(_)) => {
            let detail = "the body is not well formed, or was cut off";
            Err(Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail).close())
        }
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
    }
}

pub(crate) fn too_large(limit: usize) -> Problem {
    let detail = format!("the body is larger than {limit} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).close()
}
