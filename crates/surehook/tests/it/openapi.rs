//! The OpenAPI document: served, printed, and consistent with the running gateway.

use http::Method;
use serde_json::Value;

use crate::support::{gateway::Gateway, process::run_surehook};

#[tokio::test]
async fn openapi_document_is_served_and_printed() {
    let gateway = Gateway::start().await;
    let served = gateway.request(Method::GET, "/api/openapi.json", &[], "").await.expect(200);
    assert_eq!(served.header("content-type"), "application/json");
    assert_eq!(served.json()["openapi"], "3.1.0");
    let printed = run_surehook(gateway.folder(), &["openapi"], &[]).await;
    assert_eq!((printed.code, printed.stdout), (Some(0), served.text()));
}

#[tokio::test]
async fn every_documented_operation_exists() {
    let gateway = Gateway::start().await;
    let document = gateway.request(Method::GET, "/api/openapi.json", &[], "").await.json();
    for (path, calls) in document["paths"].as_object().unwrap() {
        for (method, call) in calls.as_object().unwrap() {
            // One never ends, the other ends the gateway.
            if call["operationId"] == "stream_updates" || call["operationId"] == "freeze" {
                continue;
            }
            let case = format!("{method} {path}");
            let id = "01h455vb4pex5vsknk084sn02q";
            let path = path
                .replace("/events/{id}", &format!("/events/evt_{id}"))
                .replace("/deliveries/{id}", &format!("/deliveries/dlv_{id}"))
                .replace("{id}", "absent")
                .replace("{source}", "demo");
            let method: Method = method.to_uppercase().parse().unwrap();
            let open = call["security"].as_array().is_some_and(Vec::is_empty);
            let bare = gateway.request(method.clone(), &path, &[], "").await;
            assert_eq!(bare.status == 401, !open, "{case} without a token: {}", bare.status);
            if let Some(rest) = path.strip_prefix("/api/v1") {
                let response = gateway.request_as_admin(method, rest, &[], "").await;
                let status = response.status.as_u16();
                let described: &Value = &call["responses"][status.to_string()];
                let is_described = match response.status.is_success() {
                    true => !described.is_null(),
                    // All problems are one response; its description and that of the call list them.
                    false => {
                        let code = response.json()["code"].as_str().unwrap().to_owned();
                        let common = &document["components"]["responses"]["Problem"]["description"];
                        let lists_code = |text: &Value| {
                            text.as_str().is_some_and(|text| text.contains(&format!("`{code}`")))
                        };
                        !call["responses"]["default"].is_null()
                            && (lists_code(common) || lists_code(&call["description"]))
                    }
                };
                assert!(is_described, "{case} answered {status}, which is not described");
                let is_missing = status == 404 && response.detail().contains("endpoint");
                assert!(!is_missing && status != 405, "{case} does not exist: {}", response.text());
            }
        }
    }
}
