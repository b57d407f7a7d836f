//! Calls an HTTP server that is busy at first and says in `Retry-After` when to come back, once in
//! seconds and once as a date.
//!
//! ```text
//! cargo run -p surehook-retry --features tokio --example async_retry_after
//! ```

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use surehook_retry::{HttpClassifier, Retrier, RetryBudget, RetryEvent, RetryPolicy};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = start_server().await?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri: http::Uri = format!("http://{address}/").parse()?;

    let policy = RetryPolicy::builder().initial_delay(Duration::from_millis(100)).build()?;
    // One budget for everything that calls this server.
    let budget = Arc::new(RetryBudget::default());
    let retrier = Retrier::new(policy, HttpClassifier::default())
        .deadline(Duration::from_secs(30))
        .budget(budget)
        .observer(|event| {
            if let RetryEvent::RetryScheduled { attempt, failure, delay, reason, .. } = event {
                let (failure, reason) = (failure.as_str(), reason.as_str());
                println!("attempt {attempt}: {failure}, next in {delay:?} ({reason})");
            }
        });

    let report = retrier.run(|_| client.get(uri.clone())).await;

    println!("{:?}", report.summary);
    let response = report.into_result()?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    println!("{status}: {}", String::from_utf8_lossy(&body));
    Ok(())
}

/// A server on a free port that is busy twice.
async fn start_server() -> std::io::Result<SocketAddr> {
    let requests = Arc::new(AtomicU32::new(0));
    let router = Router::new().route("/", get(async move || answer(&requests)));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

#[expect(clippy::disallowed_methods, reason = "an example has no injected clock")]
fn answer(requests: &AtomicU32) -> Response {
    match requests.fetch_add(1, Ordering::SeqCst) {
        0 => (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response(),
        1 => {
            let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, date)]).into_response()
        }
        _ => "done".into_response(),
    }
}

#[test]
fn retry_after_example_runs_to_its_end() {
    main().unwrap();
}
