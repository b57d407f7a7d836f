//! The limit server: what HTTP alone costs on this machine.
//!
//! The server reads the body and answers 200 with as many bytes as a gateway would. It verifies,
//! stores and forwards nothing, so no gateway on the same HTTP library can be faster.

use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use tokio::net::TcpListener;

use crate::listen::{self, ServerReply};

/// As long as the gateway's response to one accepted event. The key is empty, because this server
/// does not extract it; spaces make up for the length.
const RESPONSE: &[u8] = br#"{"status":"accepted","events":[{"id":"evt_00000000000000000000000000","key":"",                        "status":"accepted"}]}"#;

/// Runs the limit server on `listen` until the process ends.
pub async fn run_limit_server(listen: SocketAddr) -> Result<()> {
    let listener = listen::bind(listen)?;
    serve(listener).await
}

pub(crate) async fn serve(listener: TcpListener) -> Result<()> {
    listen::serve(listener, respond).await
}

async fn respond(request: Request<Incoming>) -> ServerReply {
    request.into_body().collect().await?;
    let mut response = Response::new(Full::new(Bytes::from_static(RESPONSE)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_has_the_shape_and_size_of_a_gateway_response() {
        let gateway_response = r#"{"status":"accepted","events":[{"id":"evt_01m7f9q6sve58s2feq1vvmsnfm","key":"b0abcdef-618033988749897","status":"accepted"}]}"#;
        assert_eq!(RESPONSE.len(), gateway_response.len());
        let response: serde_json::Value = serde_json::from_slice(RESPONSE).unwrap();
        assert_eq!(response["events"][0]["key"], "");
    }
}
