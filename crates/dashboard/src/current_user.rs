//! The signed-in user and their display preferences.

use std::sync::Arc;

use axum::{
    extract::{FromRef, FromRequestParts},
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use surehook_api::percent_encode;
use surehook_core::access::Role;
use surehook_types::time::Timestamp;

use crate::{
    Dashboard,
    client::ApiError,
    cookies,
    gateway::{DashboardGateway, DashboardSession},
    lang::Lang,
    page::{FlashMessage, local_path},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.as_str() == name)
    }
}

/// Display preferences, stored in cookies.
#[derive(Clone, Debug)]
pub(crate) struct Preferences {
    pub(crate) lang: Lang,
    pub(crate) theme: Theme,
    /// Time zone name; empty for the time zone of the browser.
    pub(crate) zone: String,
    pub(crate) shortcuts: bool,
}

impl Preferences {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let chosen = cookies::get(headers, cookies::LANG).and_then(Lang::from_tag);
        let theme = cookies::get(headers, cookies::THEME).and_then(Theme::parse);
        let zone = cookies::get(headers, cookies::ZONE).filter(|zone| is_zone_name(zone));
        Self {
            lang: chosen.unwrap_or_else(|| Lang::negotiate(headers)),
            theme: theme.unwrap_or_default(),
            zone: zone.unwrap_or_default().to_owned(),
            shortcuts: cookies::get(headers, cookies::KEYS) != Some("off"),
        }
    }
}

/// Whether a text may be a time zone name. Only the browser knows which exist.
pub(crate) fn is_zone_name(text: &str) -> bool {
    text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte))
}

/// The signed-in user of a request. As a handler argument it redirects everyone else to the login
/// page.
#[derive(Clone)]
pub(crate) struct CurrentUser {
    dashboard: Arc<Dashboard>,
    session: DashboardSession,
    pub(crate) preferences: Preferences,
    /// Path and query of the current page.
    pub(crate) current_path: String,
    pub(crate) flash: Option<FlashMessage>,
    is_secure: bool,
}

impl std::fmt::Debug for CurrentUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurrentUser").field("session", &self.session.id).finish_non_exhaustive()
    }
}

impl CurrentUser {
    pub(crate) fn gateway(&self) -> &dyn DashboardGateway {
        &*self.dashboard.gateway
    }

    pub(crate) fn session(&self) -> &DashboardSession {
        &self.session
    }

    pub(crate) fn lang(&self) -> Lang {
        self.preferences.lang
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.gateway().now()
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Base URL for senders: the configured public URL, or the host this browser uses.
    pub(crate) fn ingest_base(&self, headers: &HeaderMap) -> String {
        base_url(self.gateway().public_url(), headers)
    }

    pub(crate) fn new_idempotency_key(&self) -> String {
        self.gateway().new_idempotency_key()
    }

    /// The key for a form shown again after an error: the same key if the request may have been executed,
    /// a new one if it was rejected.
    pub(crate) fn idempotency_key_for_retry(&self, sent: &str, error: &ApiError) -> String {
        if error.may_have_been_executed() && !sent.is_empty() {
            sent.to_owned()
        } else {
            self.new_idempotency_key()
        }
    }

    pub(crate) fn can_operate(&self) -> bool {
        self.session.role >= Role::Operator
    }

    pub(crate) fn can_administer(&self) -> bool {
        self.session.role >= Role::Admin
    }
}

/// Whether a script requests a part of a page.
pub(crate) fn is_script_request(headers: &HeaderMap) -> bool {
    headers.contains_key("x-surehook-refresh") || headers.contains_key("hx-request")
}

fn base_url(public: Option<String>, headers: &HeaderMap) -> String {
    // The host becomes part of a shell command.
    let is_plain = |host: &&str| {
        !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte))
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).filter(is_plain);
    match public {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("http://{}", host.unwrap_or("127.0.0.1:8080")),
    }
}

/// The page to return to. The target of a form cannot be opened with `GET`, so after a form it is the
/// page that contained it, if the browser sends a `Referer`.
fn return_path(parts: &Parts) -> String {
    if parts.method == Method::GET || parts.method == Method::HEAD {
        return parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    }
    let header_value =
        |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let from = header_value(header::REFERER).and_then(|from| from.split_once("://"));
    let path = from.and_then(|(_, rest)| {
        let (host, path) = rest.split_at(rest.find('/')?);
        header_value(header::HOST)
            .is_some_and(|ours| ours.eq_ignore_ascii_case(host))
            .then_some(path)
    });
    local_path(path.unwrap_or("/")).to_owned()
}

impl<S> FromRequestParts<S> for CurrentUser
where
    S: Send + Sync,
    Arc<Dashboard>: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let dashboard = Arc::<Dashboard>::from_ref(state);
        let is_secure = dashboard.is_secure(&parts.headers);
        let secret = cookies::get(&parts.headers, cookies::session_name(is_secure));
        let current_path = return_path(parts);
        let session = match secret {
            Some(secret) => dashboard.gateway.find_session(secret).await,
            None => None,
        };
        let Some(session) = session else {
            // A script must not mistake the login page for the part it requested.
            if is_script_request(&parts.headers) || parts.uri.path() == "/stream" {
                return Err(StatusCode::UNAUTHORIZED.into_response());
            }
            let to = if current_path == "/" || parts.method != Method::GET {
                "/login".to_owned()
            } else {
                format!("/login?next={}", percent_encode(&current_path))
            };
            return Err(Redirect::to(&to).into_response());
        };
        let preferences = Preferences::from_headers(&parts.headers);
        let flash =
            cookies::get(&parts.headers, cookies::FLASH).and_then(FlashMessage::from_cookie);
        Ok(Self { dashboard, session, preferences, current_path, flash, is_secure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_for_senders_is_safe_in_a_shell_command() {
        for (public, host, expected) in [
            (Some("https://hooks.example/"), "10.0.0.1:8080", "https://hooks.example"),
            (None, "10.0.0.1:8080", "http://10.0.0.1:8080"),
            (None, "[::1]:8080", "http://[::1]:8080"),
            (None, "a;rm -rf", "http://127.0.0.1:8080"),
            (None, "", "http://127.0.0.1:8080"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(base_url(public.map(str::to_owned), &headers), expected, "case: {host}");
        }
    }

    #[test]
    fn return_path_after_a_form_is_its_own_page() {
        for (method, referer, expected) in [
            ("GET", "", "/routes/save?a=b"),
            ("POST", "http://a.example:8080/routes/new?from=x", "/routes/new?from=x"),
            ("POST", "https://A.example:8080/routes", "/routes"),
            ("POST", "http://evil.example/routes", "/"),
            ("POST", "http://a.example:8080", "/"),
            ("POST", "http://a.example:8080//evil.example", "/"),
            ("POST", "/routes", "/"),
            ("POST", "", "/"),
        ] {
            let request = http::Request::builder()
                .method(method)
                .uri("/routes/save?a=b")
                .header("host", "a.example:8080")
                .header("referer", referer);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(return_path(&parts), expected, "case: {method} {referer}");
        }
    }
}
