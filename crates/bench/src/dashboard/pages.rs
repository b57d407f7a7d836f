//! The measured pages of the dashboard, and a client that opens them.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt as _, Empty};
use hyper::{StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::DashboardPageReport;
use crate::gateway::Gateway;
use crate::latency;

/// The measured pages; most of them read the stored events. Names in braces are replaced by
/// [`PagePlaceholders`].
pub(super) const PAGES: [&str; 31] = [
    "/",
    "/live",
    "/events",
    "/events?q=status:dead",
    "/events?q=source:whatsapp",
    "/events?q=phone:{phone}",
    "/events?q=key:{key}",
    "/events?q={key_suffix}",
    "/events?q=nowhere",
    "/events/{event}",
    "/events/{duplicated_event}",
    "/events/{dead_event}",
    "/requests",
    "/requests?q=outcome:refused",
    "/requests?q=outcome:duplicate",
    "/dead-letters",
    "/dead-letters/all",
    "/dead-letters/all?q=group:{group}",
    "/replays",
    "/replays/new?q=dest:erp",
    "/replays/new?verb=force_resend&q=source:whatsapp",
    "/replays/{job}",
    "/messages",
    "/messages/{message}",
    "/conversations",
    "/conversations?phone={phone}",
    "/sources",
    "/destinations",
    "/routes",
    "/settings",
    "/login",
];

/// Values from the filled store for the names in [`PAGES`].
#[derive(Debug)]
pub(super) struct PagePlaceholders {
    pub(super) phone: String,
    pub(super) key: String,
    /// The end of a key, contained in only a few keys.
    pub(super) key_suffix: String,
    pub(super) event: String,
    pub(super) duplicated_event: String,
    pub(super) dead_event: String,
    pub(super) group: String,
    pub(super) job: String,
    pub(super) message: String,
}

impl PagePlaceholders {
    fn fill_in(&self, page: &str) -> String {
        let names = [
            ("{phone}", &self.phone),
            ("{key}", &self.key),
            ("{key_suffix}", &self.key_suffix),
            ("{event}", &self.event),
            ("{duplicated_event}", &self.duplicated_event),
            ("{dead_event}", &self.dead_event),
            ("{group}", &self.group),
            ("{job}", &self.job),
            ("{message}", &self.message),
        ];
        names.iter().fold(page.to_owned(), |path, (name, value)| path.replace(name, value))
    }
}

/// A signed-in user with one keep-alive connection.
pub(super) struct DashboardBrowser {
    client: Client<HttpConnector, Empty<Bytes>>,
    cookie: String,
    pages: Vec<TimedPage>,
}

struct TimedPage {
    name: &'static str,
    url: String,
    status: StatusCode,
    times: Histogram<u64>,
}

impl DashboardBrowser {
    pub(super) async fn sign_in(
        gateway: &Gateway,
        placeholders: &PagePlaceholders,
    ) -> Result<Self> {
        let cookie = gateway.sign_in().await.context("cannot sign in to the dashboard")?;
        let page = |name| TimedPage::new(gateway.child.addr(), name, placeholders);
        let pages = PAGES.into_iter().map(page).collect();
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, cookie, pages })
    }

    /// Opens every page once.
    pub(super) async fn open_all_pages(&mut self) -> Result<()> {
        for page in &mut self.pages {
            let request = hyper::Request::get(&page.url)
                .header(header::COOKIE, &self.cookie)
                .header(header::ACCEPT, "text/html")
                .body(Empty::new())?;
            let started_at = Instant::now();
            let response = self.client.request(request).await?;
            latency::record(&mut page.times, started_at.elapsed());
            page.status = response.status();
            let body = response.into_body().collect().await.context("cannot read a page")?;
            ensure!(
                !page.status.is_server_error(),
                "{} answered {}: {}",
                page.name,
                page.status,
                String::from_utf8_lossy(&body.to_bytes())
            );
        }
        Ok(())
    }

    pub(super) fn reset_times(&mut self) {
        self.pages.iter_mut().for_each(|page| page.times.reset());
    }

    pub(super) fn report(&self) -> Vec<DashboardPageReport> {
        let report = |page: &TimedPage| DashboardPageReport {
            page: page.name.to_owned(),
            status: page.status.as_u16(),
            p50_us: page.times.value_at_quantile(0.50),
            p95_us: page.times.value_at_quantile(0.95),
            max_us: page.times.max(),
        };
        self.pages.iter().map(report).collect()
    }
}

impl TimedPage {
    fn new(addr: SocketAddr, name: &'static str, placeholders: &PagePlaceholders) -> Self {
        let url = format!("http://{addr}{}", placeholders.fill_in(name));
        Self { name, url, status: StatusCode::OK, times: latency::histogram() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_replaced() {
        let text = || "x".to_owned();
        let placeholders = PagePlaceholders {
            phone: text(),
            key: text(),
            key_suffix: text(),
            event: text(),
            duplicated_event: text(),
            dead_event: text(),
            group: text(),
            job: text(),
            message: text(),
        };
        for page in PAGES {
            let url = placeholders.fill_in(page);
            assert!(url.starts_with('/') && !url.contains(['{', '}', ' ']), "{url}");
        }
    }
}
