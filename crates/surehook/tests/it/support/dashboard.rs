//! A browser without a window: signs in, keeps its cookies, reads pages and sends forms.

use http::Method;

use super::gateway::{Gateway, TOKEN};

/// Somebody who has signed in to the dashboard.
pub(crate) struct DashboardClient<'g> {
    gateway: &'g Gateway,
    cookie: String,
}

/// What a page answered.
pub(crate) struct DashboardPage {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) html: String,
}

impl<'g> DashboardClient<'g> {
    /// With the admin's token.
    pub(crate) async fn new(gateway: &'g Gateway) -> Self {
        Self::with_token(gateway, TOKEN).await
    }

    /// With any token of the API.
    pub(crate) async fn with_token(gateway: &'g Gateway, token: &str) -> Self {
        let form = format!("token={token}");
        let answer = gateway.request(Method::POST, "/login", &HEADERS, form).await.expect(303);
        let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
        Self { gateway, cookie }
    }

    /// With a cookie of before.
    pub(crate) fn with_cookie(gateway: &'g Gateway, cookie: &str) -> Self {
        Self { gateway, cookie: cookie.to_owned() }
    }

    /// The line of its cookie.
    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }

    /// The session's secret.
    pub(crate) fn secret(&self) -> &str {
        self.cookie.split_once('=').map_or("", |(_, secret)| secret)
    }

    /// Reads a page.
    pub(crate) async fn page(&self, path: &str) -> DashboardPage {
        self.send(Method::GET, path, "").await
    }

    /// Sends a form; `fields` are written as they are.
    pub(crate) async fn submit_form(&self, path: &str, fields: &str) -> DashboardPage {
        self.send(Method::POST, path, fields).await
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> DashboardPage {
        let mut headers = HEADERS.to_vec();
        headers.push(("cookie", self.cookie.as_bytes()));
        let answer = self.gateway.request(method, path, &headers, body.to_owned()).await;
        let location = answer.headers.get("location").and_then(|value| value.to_str().ok());
        DashboardPage {
            status: answer.status.as_u16(),
            location: location.map(str::to_owned),
            html: answer.text(),
        }
    }
}

const HEADERS: [(&str, &[u8]); 2] =
    [("content-type", b"application/x-www-form-urlencoded"), ("sec-fetch-site", b"same-origin")];
