//! Answers of the layer over real sockets, with each backend.

use std::{sync::Arc, time::Duration};

use http::Method;
use surehook_tower::IdempotencyLayer;

use super::support::{HandlerProbe, TestRequest, TestServer, TestStore, stores};

fn layer(store: &TestStore) -> IdempotencyLayer {
    IdempotencyLayer::new(Arc::clone(&store.lock))
}

#[tokio::test]
async fn copies_run_once_and_get_the_first_response() {
    for store in stores() {
        let probe = HandlerProbe::with_open_gate();
        let server = TestServer::counting(layer(&store), &probe).await;
        let request = TestRequest::keyed("4f1c");
        let first = server.send(&request).await;
        assert_eq!(first.status, 201);
        assert!(!first.is_replayed() && first.headers.contains_key("set-cookie"), "{first:?}");
        // The quoted form of the draft names the same key.
        let quoted = TestRequest::keyed("\"4f1c\"");
        for copy in [&request, &quoted] {
            let copy = server.send(copy).await;
            assert!(copy.is_replayed(), "{}: {copy:?}", store.name);
            assert_eq!((copy.status, &copy.body), (201, &first.body));
            assert_eq!(copy.headers["location"], "/orders/1");
            assert!(!copy.headers.contains_key("set-cookie"), "cookies are not stored");
        }
        assert_eq!(probe.count(), 1, "{}", store.name);
        assert_ne!(server.send(&TestRequest::keyed("other")).await.body, first.body);
        assert_eq!(probe.count(), 2, "{}", store.name);
    }
}

#[tokio::test]
async fn fifty_concurrent_copies_run_once() {
    for store in stores() {
        let probe = HandlerProbe::with_closed_gate();
        let server = TestServer::counting(layer(&store), &probe).await;
        let request = TestRequest::keyed("race");
        let copies: Vec<_> = (0..50).map(|_| server.spawn(&request)).collect();
        probe.wait_for_start().await;
        probe.open_gate();
        let mut answers = Vec::new();
        for copy in copies {
            answers.push(copy.await.unwrap());
        }
        let name = store.name;
        assert_eq!(probe.count(), 1, "{name}");
        assert_eq!(answers.iter().filter(|answer| !answer.is_replayed()).count(), 1, "{name}");
        assert!(answers.iter().all(|answer| answer.body == answers[0].body), "{name}");
    }
}

#[tokio::test]
async fn copy_of_a_running_request_is_answered_409_when_its_wait_ends() {
    for store in stores() {
        let probe = HandlerProbe::with_closed_gate();
        let server = TestServer::counting(layer(&store).wait(Duration::ZERO), &probe).await;
        let request = TestRequest::keyed("slow");
        let first = server.spawn(&request);
        probe.wait_for_start().await;
        let copy = server.send(&request).await;
        assert_eq!(copy.problem(), (409, "idempotency_in_flight".to_owned()), "{}", store.name);
        assert_eq!(copy.headers["retry-after"], "1");
        // Another request with the key is a mistake at once.
        let other = server.send(&request.clone().body("other")).await;
        assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()), "{}", store.name);
        probe.open_gate();
        let first = first.await.unwrap();
        let copy = server.send(&request).await;
        assert!(copy.is_replayed() && copy.body == first.body, "{copy:?}");
    }
}

#[tokio::test]
async fn other_requests_with_the_same_key_are_answered_422() {
    for store in stores() {
        let probe = HandlerProbe::with_open_gate();
        let server = TestServer::counting(layer(&store), &probe).await;
        let request = TestRequest::keyed("reused");
        assert_eq!(server.send(&request).await.status, 201);
        let others = [
            request.clone().body("{ }"),
            request.clone().body(""),
            request.clone().path("/orders?page=2"),
            request.clone().path("/refunds"),
            request.clone().method(Method::PATCH),
        ];
        for other in others {
            let answer = server.send(&other).await;
            assert_eq!(answer.problem(), (422, "idempotency_key_reused".to_owned()), "{other:?}");
        }
        assert_eq!(probe.count(), 1, "{}", store.name);
        assert!(server.send(&request).await.is_replayed(), "the key still has its response");
    }
}

#[tokio::test]
async fn missing_malformed_and_repeated_keys_are_answered_400() {
    let [store, _] = stores();
    let probe = HandlerProbe::with_open_gate();
    let server = TestServer::counting(layer(&store).require_key(), &probe).await;
    let post = || TestRequest::new(Method::POST, "/orders");
    let long = "k".repeat(256);
    let cases = [
        (post(), "idempotency_key_missing"),
        (post().header("idempotency-key", ""), "bad_idempotency_key"),
        (post().header("idempotency-key", "\"open"), "bad_idempotency_key"),
        (post().header("idempotency-key", &long), "bad_idempotency_key"),
        (post().header("idempotency-key", "café"), "bad_idempotency_key"),
        (TestRequest::keyed("a").header("idempotency-key", "a"), "bad_idempotency_key"),
    ];
    for (request, code) in cases {
        assert_eq!(server.send(&request).await.problem(), (400, code.to_owned()), "{request:?}");
    }
    assert_eq!(probe.count(), 0);
}

#[tokio::test]
async fn requests_without_a_key_and_other_methods_pass_through() {
    let [store, _] = stores();
    let probe = HandlerProbe::with_open_gate();
    let server = TestServer::counting(layer(&store), &probe).await;
    let requests = [
        TestRequest::new(Method::POST, "/orders"),
        TestRequest::keyed("k").method(Method::PUT),
        TestRequest::keyed("k").method(Method::GET).body(""),
    ];
    for request in &requests {
        for _ in 0..2 {
            let answer = server.send(request).await;
            assert_eq!((answer.status, answer.is_replayed()), (201, false), "{request:?}");
        }
    }
    assert_eq!(probe.count(), 6);
    // The methods can be chosen.
    let server = TestServer::counting(layer(&store).methods([Method::PUT]), &probe).await;
    let put = TestRequest::keyed("put").method(Method::PUT);
    assert!(!server.send(&put).await.is_replayed());
    assert!(server.send(&put).await.is_replayed());
}

#[tokio::test]
async fn keys_of_different_users_are_different_keys() {
    for store in stores() {
        let probe = HandlerProbe::with_open_gate();
        let server = TestServer::counting(layer(&store), &probe).await;
        let request = |user: &str| TestRequest::keyed("mine").header("authorization", user);
        let ana = server.send(&request("Bearer ana")).await;
        let bia = server.send(&request("Bearer bia")).await;
        assert!(!bia.is_replayed() && ana.body != bia.body, "{}", store.name);
        assert!(!server.send(&TestRequest::keyed("mine")).await.is_replayed());
        assert_eq!(server.send(&request("Bearer ana")).await.body, ana.body);
        assert_eq!(probe.count(), 3, "{}", store.name);

        // A custom scope; a request without a scope passes through.
        let tenant = |request: &http::request::Parts| {
            Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
        };
        let layer = layer(&store).namespace("tenants").scope(tenant);
        let server = TestServer::counting(layer, &HandlerProbe::with_open_gate()).await;
        let request = |tenant: &str| TestRequest::keyed("mine").header("x-tenant", tenant);
        assert!(!server.send(&request("a")).await.is_replayed());
        assert!(!server.send(&request("b")).await.is_replayed());
        assert!(
            server.send(&request("a").header("authorization", "new token")).await.is_replayed()
        );
        for _ in 0..2 {
            assert!(!server.send(&TestRequest::keyed("mine")).await.is_replayed());
        }
    }
}

#[tokio::test]
async fn request_body_over_the_limit_is_answered_413_and_not_executed() {
    let [store, _] = stores();
    let probe = HandlerProbe::with_open_gate();
    let server = TestServer::counting(layer(&store).max_request_bytes(10), &probe).await;
    let request = |body: &'static str| TestRequest::keyed("large").body(body);
    for oversized in [request("12345678901"), request("12345678901").chunked()] {
        let answer = server.send(&oversized).await;
        assert_eq!(answer.problem(), (413, "body_too_large".to_owned()), "{oversized:?}");
    }
    assert_eq!(probe.count(), 0);
    assert_eq!(server.send(&request("1234567890").chunked()).await.status, 201);
}

#[tokio::test]
async fn response_over_the_limit_is_sent_whole_and_its_request_not_executed_again() {
    for store in stores() {
        // The answer contains the body of the request.
        let (small, large) = ("s".repeat(300), "l".repeat(200_000));
        let probe = HandlerProbe::with_open_gate();
        let server = TestServer::counting(layer(&store).max_response_bytes(1000), &probe).await;
        let request = TestRequest::keyed("large").body(large.clone());
        let first = server.send(&request).await;
        assert_eq!(first.status, 201);
        assert!(first.body.contains(&large), "{} bytes", first.body.len());
        let copy = server.send(&request).await;
        let expected = (409, "idempotency_response_not_stored".to_owned());
        assert_eq!(copy.problem(), expected, "{}", store.name);
        assert!(!copy.headers.contains_key("retry-after"));
        assert_eq!(probe.count(), 1, "{}", store.name);
        let request = TestRequest::keyed("small").body(small);
        server.send(&request).await;
        assert!(server.send(&request).await.is_replayed(), "{}", store.name);
    }
}
