//! Dashboard login and sessions, cross-site requests, headers and languages.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use surehook_engine::system::SystemClock;
use surehook_types::time::{Clock as _, Timestamp};

use crate::support::{
    dashboard::DashboardClient,
    gateway::{Gateway, TOKEN},
};

const FORM: (&str, &[u8]) = ("content-type", b"application/x-www-form-urlencoded");
const OURS: (&str, &[u8]) = ("sec-fetch-site", b"same-origin");

#[tokio::test]
async fn unauthenticated_page_redirects_to_login_and_back() {
    let gateway = Gateway::start().await;
    for (path, expected) in [("/", "/login"), ("/events?q=a", "/login?next=%2Fevents%3Fq%3Da")] {
        let response = gateway.request(Method::GET, path, &[], "").await.expect(303);
        assert_eq!(response.header("location"), expected);
    }
    let form = format!("token={TOKEN}&next=%2Fevents%3Fq%3Da");
    let response = gateway.request(Method::POST, "/login", &[FORM, OURS], form).await.expect(303);
    assert_eq!(response.header("location"), "/events?q=a");
    let cookie = response.header("set-cookie");
    for part in ["surehook_session=shs_", "HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(part), "{part} is missing in {cookie}");
    }
}

#[tokio::test]
async fn login_with_unknown_token_is_rejected() {
    let gateway = Gateway::start().await;
    for token in ["", "wrong", "shs_00", "' OR 1=1"] {
        let form = format!("token={token}");
        let response =
            gateway.request(Method::POST, "/login", &[FORM, OURS], form).await.expect(401);
        assert!(response.headers.get("set-cookie").is_none());
    }
}

#[tokio::test]
async fn cross_site_form_is_rejected() {
    let gateway = Gateway::start().await;
    let form = format!("token={TOKEN}");
    for (name, headers) in [
        ("no origin headers", vec![FORM]),
        ("cross site", vec![FORM, ("sec-fetch-site", b"cross-site".as_slice())]),
        ("another origin", vec![FORM, ("origin", b"https://evil.example".as_slice())]),
    ] {
        let response = gateway.request(Method::POST, "/login", &headers, form.clone()).await;
        assert_eq!(response.status, 403, "case: {name}");
    }
}

#[tokio::test]
async fn session_opens_pages_but_not_the_api_and_ends_with_its_token() {
    let mut gateway = Gateway::start().await;
    let made = gateway.post("/tokens", &json!({ "role": "viewer", "name": "eyes" })).await;
    let made = made.expect(201).json();
    let token = made["token"].as_str().unwrap();
    let session = DashboardClient::with_token(&gateway, token).await;
    assert!(session.page("/").await.html.contains("eyes"));
    let bearer = format!("Bearer {}", session.secret());
    let headers: [(&str, &[u8]); 1] = [("authorization", bearer.as_bytes())];
    gateway.request(Method::GET, "/api/v1/stats", &headers, "").await.expect(401);
    let cookie = session.cookie().to_owned();

    gateway.restart().await;
    let session = DashboardClient::with_cookie(&gateway, &cookie);
    assert_eq!(session.page("/").await.status, 200, "a session survives a restart");

    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    gateway.delete(&path).await.expect(204);
    assert_eq!(session.page("/").await.location.as_deref(), Some("/login"));
}

#[tokio::test]
async fn logout_ends_the_session() {
    let gateway = Gateway::start().await;
    let session = DashboardClient::new(&gateway).await;
    assert_eq!(session.submit_form("/logout", "").await.location.as_deref(), Some("/login"));
    assert_eq!(session.page("/").await.location.as_deref(), Some("/login"));
}

#[tokio::test]
async fn get_on_a_form_action_redirects_to_its_page() {
    let gateway = Gateway::start().await;
    let session = DashboardClient::new(&gateway).await;
    for (path, expected) in [
        ("/routes/save", "/routes"),
        ("/replays/selected", "/replays"),
        ("/destinations/box/pause", "/destinations/box"),
        ("/preferences", "/"),
    ] {
        let page = session.page(path).await;
        assert_eq!(page.location.as_deref(), Some(expected), "case: {path} {}", page.status);
    }
}

#[tokio::test]
async fn every_page_has_a_strict_policy_and_one_language() {
    let gateway = Gateway::start().await;
    let session = DashboardClient::new(&gateway).await;
    for (languages, tag, word) in [
        ("en-US", "en", "Dead letters"),
        ("pt-BR,pt;q=0.9", "pt-BR", "Fila de falhas"),
        ("es", "es", "Entregas fallidas"),
    ] {
        let headers: [(&str, &[u8]); 2] =
            [("cookie", session.cookie().as_bytes()), ("accept-language", languages.as_bytes())];
        let response = gateway.request(Method::GET, "/", &headers, "").await.expect(200);
        assert!(response.text().contains(&format!("<html lang=\"{tag}\"")));
        assert!(response.text().contains(word), "case: {languages}");
        let policy = response.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn login_link_works_once_and_viewing_does_not_use_it() {
    let gateway = Gateway::start().await;
    let printed = gateway.stdout();
    let link = printed.lines().find_map(|line| line.split_once("/login?code=")).unwrap().1;
    let code = link.split_whitespace().next().unwrap().to_owned();
    let made = gateway.post("/tokens/link", &json!({})).await.expect(201).json();
    let another = made["path"].as_str().unwrap().trim_start_matches("/login?code=").to_owned();
    assert_ne!(code, another);
    for code in [code, another] {
        gateway.request(Method::GET, &format!("/login?code={code}"), &[], "").await.expect(200);
        let form = format!("code={code}");
        let first = gateway.request(Method::POST, "/login", &[FORM, OURS], form.clone()).await;
        assert!(first.expect(303).header("set-cookie").contains("surehook_session=shs_"));
        gateway.request(Method::POST, "/login", &[FORM, OURS], form).await.expect(401);
    }
}

#[tokio::test]
async fn sessions_and_links_end_with_the_token_that_created_them() {
    let gateway = Gateway::start().await;
    let maker = gateway.post("/tokens", &json!({ "role": "admin" })).await.expect(201).json();
    let bearer = format!("Bearer {}", maker["token"].as_str().unwrap());
    let code = async || {
        let headers: [(&str, &[u8]); 1] = [("authorization", bearer.as_bytes())];
        let made = gateway.request(Method::POST, "/api/v1/tokens/link", &headers, "").await;
        let path = made.expect(201).json()["path"].as_str().unwrap().to_owned();
        path.trim_start_matches("/login?").to_owned()
    };
    let (spent, unspent) = (code().await, code().await);
    gateway.request(Method::POST, "/login", &[FORM, OURS], spent).await.expect(303);
    let listed = gateway.get("/tokens").await.expect(200).json();
    let begun = |list: &Value| {
        let all = list["data"].as_array().unwrap();
        all.iter().filter(|token| token["sign_in_token"] == maker["id"]).count()
    };
    assert_eq!(begun(&listed), 1, "{listed}");

    gateway.delete(&format!("/tokens/{}", maker["id"].as_str().unwrap())).await.expect(204);

    let listed = gateway.get("/tokens").await.expect(200).json();
    assert_eq!(begun(&listed), 0, "{listed}");
    gateway.request(Method::POST, "/login", &[FORM, OURS], unspent).await.expect(401);
}

/// The link that `serve` printed, if it did.
fn printed_link(gateway: &Gateway) -> Option<String> {
    let printed = gateway.stdout();
    let link = printed.lines().find_map(|line| line.split_once("/login?code="))?.1;
    Some(link.split_whitespace().next().unwrap().to_owned())
}

/// The output of a service ends up in logs that more people can read than may be admin.
#[tokio::test]
async fn login_link_is_printed_on_first_start_only() {
    let mut gateway = Gateway::start().await;
    assert!(printed_link(&gateway).is_some(), "{}", gateway.stdout());

    gateway.restart().await;

    assert_eq!(printed_link(&gateway), None);
    assert!(gateway.stdout().contains("surehook token link"), "{}", gateway.stdout());
    let link = gateway.cli(&["token", "link"]).await;
    assert!(link.stdout.contains("/login?code=shl_"), "{link:?}");
    let made = gateway.post("/tokens/link", &json!({})).await.expect(201).json();
    let expires_at: Timestamp = made["expires_at"].as_str().unwrap().parse().unwrap();
    let left = expires_at.since(SystemClock.now());
    assert!(left <= Duration::from_secs(15 * 60), "{left:?}");
}

#[tokio::test]
async fn cookie_has_host_prefix_when_the_browser_uses_https() {
    let gateway = Gateway::start().await;
    let https: (&str, &[u8]) = ("x-forwarded-proto", b"https");
    let form = format!("token={TOKEN}");

    let response = gateway.request(Method::POST, "/login", &[FORM, OURS, https], form).await;

    let cookie = response.expect(303).header("set-cookie").to_owned();
    assert!(cookie.starts_with("__Host-surehook_session=shs_"), "{cookie}");
    assert!(cookie.contains("; Secure"), "{cookie}");
    let pair = cookie.split(';').next().unwrap().as_bytes();
    gateway.request(Method::GET, "/", &[("cookie", pair), https], "").await.expect(200);
}
