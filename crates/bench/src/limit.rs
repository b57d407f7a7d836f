//! The limit L: what HTTP alone costs on this machine.
//!
//! The server reads the body and answers 200 with as many bytes as a gateway would. It checks,
//! keeps and forwards nothing, so no gateway on the same HTTP library can be faster.

use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use tokio::net::TcpListener;

use crate::listen::{self, ServerReply};

/// The gateway's answer to one accepted event, as long as a true one. The key is empty, because
/// this server does not look for it; the spaces make up for that.
const ANSWER: &[u8] = br#"{"status":"accepted","events":[{"id":"evt_00000000000000000000000000","key":"",                        "status":"accepted"}]}"#;

/// Serves as the limit on `listen` until the process ends.
pub async fn limit_server(listen: SocketAddr) -> Result<()> {
    let listener = listen::listen(listen)?;
    serve(listener).await
}

pub(crate) async fn serve(listener: TcpListener) -> Result<()> {
    listen::serve(listener, answer).await
}

async fn answer(request: Request<Incoming>) -> ServerReply {
    request.into_body().collect().await?;
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_has_the_shape_and_size_of_a_gateway_response() {
        let true_one = r#"{"status":"accepted","events":[{"id":"evt_01m7f9q6sve58s2feq1vvmsnfm","key":"b0abcdef-618033988749897","status":"accepted"}]}"#;
        assert_eq!(ANSWER.len(), true_one.len());
        let answer: serde_json::Value = serde_json::from_slice(ANSWER).unwrap();
        assert_eq!(answer["events"][0]["key"], "");
    }
}
