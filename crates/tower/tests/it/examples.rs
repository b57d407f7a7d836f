//! The examples, as web applications on free ports.

use std::{fs, time::SystemTime};

use http::Method;
use surehook_webhooks::Receiver;
use tempfile::TempDir;

use super::support::{TestRequest, TestServer};

#[expect(dead_code, reason = "the test calls `app`, not `main`")]
#[path = "../../examples/orders.rs"]
mod orders;
#[expect(dead_code, reason = "the test calls `app`, not `main`")]
#[path = "../../examples/webhooks_once.rs"]
mod webhooks_once;

#[tokio::test]
async fn orders_example_creates_one_order_per_key() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::start(orders::app(folder.path()).unwrap()).await;
    let request = TestRequest::keyed("4f1c").header("content-type", "text/plain").body("a book");
    let first = server.send(&request).await;
    let copy = server.send(&request).await;
    assert_eq!((first.status, copy.status, copy.is_replayed()), (201, 201, true));
    assert_eq!(first.body, copy.body);
    assert_eq!(server.send(&TestRequest::new(Method::POST, "/orders")).await.status, 400);
    let orders: Vec<_> = fs::read_dir(folder.path().join("orders")).unwrap().collect();
    assert_eq!(orders.len(), 1);
    assert_eq!(fs::read_to_string(orders[0].as_ref().unwrap().path()).unwrap(), "a book");
}

#[tokio::test]
async fn webhooks_example_processes_concurrent_and_later_copies_once() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("webhooks.db");
    let server = TestServer::start(webhooks_once::app("whsec_stripe", &file).unwrap()).await;
    let body = r#"{"id":"evt_1","type":"charge.succeeded","data":{"object":{"id":"ch_1"}}}"#;
    let mut signed = http::Request::post("/stripe").body(body.into()).unwrap();
    let receiver = Receiver::for_provider("stripe").secret("whsec_stripe").build().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the example uses the clock of the system")]
    receiver.sign(&mut signed, "evt_1", SystemTime::now()).unwrap();
    let signature = signed.headers()["stripe-signature"].to_str().unwrap();
    let unsigned = TestRequest::new(Method::POST, "/stripe").body(body);
    let request = unsigned.clone().header("stripe-signature", signature);
    let copies: Vec<_> = (0..20).map(|_| server.spawn(&request)).collect();
    for copy in copies {
        let status = copy.await.unwrap().status;
        assert!(matches!(status, 200 | 409), "{status}");
    }
    assert_eq!(server.send(&request).await.status, 200, "a later copy");
    assert_eq!(server.send(&unsigned).await.status, 401);
    let processed = server.send(&TestRequest::new(Method::GET, "/processed")).await;
    assert_eq!(processed.body, "1");
}
