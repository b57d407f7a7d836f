//! An HTTP client with retries as a tower service, against a server that fails every second request.
//!
//! ```text
//! cargo run -p surehook-retry --features tower --example tower_client
//! ```

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::post};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use surehook_retry::{HttpClassifier, Jitter, Retrier, RetryEvent, RetryLayer, RetryPolicy};
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = start_server().await?;
    let policy = RetryPolicy::builder()
        .max_attempts(4)
        .initial_delay(Duration::from_millis(50))
        .jitter(Jitter::Decorrelated)
        .build()?;
    let retrier = Retrier::new(policy, HttpClassifier::default()).observer(|event| {
        if let RetryEvent::Stopped(summary) = event {
            println!("{} attempts: {}", summary.attempts, summary.stop.as_str());
        }
    });
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut service = RetryLayer::new(retrier).layer(client);

    for number in 1..=3 {
        let request = Request::post(format!("http://{address}/"))
            .header("idempotency-key", format!("order-{number}"))
            .body(Full::from(format!("order {number}")))?;
        let response = service.ready().await?.call(request).await?;
        println!("order {number}: {}", response.status());
    }
    Ok(())
}

/// A server on a free port that fails every second request.
async fn start_server() -> std::io::Result<SocketAddr> {
    let requests = Arc::new(AtomicU32::new(0));
    let answer = async move || {
        let is_failing = requests.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        if is_failing { StatusCode::BAD_GATEWAY } else { StatusCode::NO_CONTENT }
    };
    let router = Router::new().route("/", post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

#[test]
fn tower_client_example_runs_to_its_end() {
    main().unwrap();
}
