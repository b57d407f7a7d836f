//! Security headers for every response, and protection against cross-site requests.

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

/// Allows only scripts and styles of the dashboard itself: payloads are attacker-controlled.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Rejects state-changing requests from other sites and adds the security headers.
pub(crate) async fn protect(request: Request, next: Next) -> Response {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = if is_safe || is_same_origin(request.headers()) {
        next.run(request).await
    } else {
        let message =
            "This request came from another site. Open the dashboard and try again there.";
        (StatusCode::FORBIDDEN, message).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Whether a state-changing request comes from the dashboard. Browsers send `Sec-Fetch-Site`; those
/// that do not still send `Origin` with every form.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let header_value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = header_value("sec-fetch-site") {
        return site == "same-origin";
    }
    let (Some(origin), Some(host)) = (header_value("origin"), header_value("host")) else {
        return false;
    };
    origin.split_once("://").is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_same_origin_requests_may_change_state() {
        for (name, lines, expected) in [
            ("no headers", vec![], false),
            ("same origin", vec![("sec-fetch-site", "same-origin")], true),
            ("same site is not enough", vec![("sec-fetch-site", "same-site")], false),
            (
                "cross site",
                vec![("sec-fetch-site", "cross-site"), ("host", "a"), ("origin", "http://a")],
                false,
            ),
            ("typed by hand", vec![("sec-fetch-site", "none")], false),
            ("origin is ours", vec![("host", "a:8080"), ("origin", "https://a:8080")], true),
            ("another port", vec![("host", "a:8080"), ("origin", "http://a:8081")], false),
            ("no origin", vec![("host", "a")], false),
            ("null", vec![("host", "a"), ("origin", "null")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.insert(name, HeaderValue::from_static(value));
            }
            assert_eq!(is_same_origin(&headers), expected, "case: {name}");
        }
    }
}
