//! A dashboard client without a browser: signs in, keeps its cookie, reads pages and submits forms.

use http::Method;

use super::gateway::{Gateway, TOKEN};

pub(crate) struct DashboardClient<'g> {
    gateway: &'g Gateway,
    cookie: String,
}

pub(crate) struct DashboardPage {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) html: String,
}

impl<'g> DashboardClient<'g> {
    /// Signs in with the admin token.
    pub(crate) async fn new(gateway: &'g Gateway) -> Self {
        Self::with_token(gateway, TOKEN).await
    }

    /// Signs in with any API token.
    pub(crate) async fn with_token(gateway: &'g Gateway, token: &str) -> Self {
        let form = format!("token={token}");
        let response = gateway.request(Method::POST, "/login", &HEADERS, form).await.expect(303);
        let cookie = response.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
        Self { gateway, cookie }
    }

    /// Continues a session by its cookie.
    pub(crate) fn with_cookie(gateway: &'g Gateway, cookie: &str) -> Self {
        Self { gateway, cookie: cookie.to_owned() }
    }

    /// The value of the `cookie` header.
    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }

    pub(crate) fn secret(&self) -> &str {
        self.cookie.split_once('=').map_or("", |(_, secret)| secret)
    }

    pub(crate) async fn page(&self, path: &str) -> DashboardPage {
        self.send(Method::GET, path, "").await
    }

    /// Submits a form; `fields` are already URL-encoded.
    pub(crate) async fn submit_form(&self, path: &str, fields: &str) -> DashboardPage {
        self.send(Method::POST, path, fields).await
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> DashboardPage {
        let mut headers = HEADERS.to_vec();
        headers.push(("cookie", self.cookie.as_bytes()));
        let response = self.gateway.request(method, path, &headers, body.to_owned()).await;
        let location = response.headers.get("location").and_then(|value| value.to_str().ok());
        DashboardPage {
            status: response.status.as_u16(),
            location: location.map(str::to_owned),
            html: response.text(),
        }
    }
}

const HEADERS: [(&str, &[u8]); 2] =
    [("content-type", b"application/x-www-form-urlencoded"), ("sec-fetch-site", b"same-origin")];
