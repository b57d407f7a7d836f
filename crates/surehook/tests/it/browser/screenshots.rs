//! The pictures of the documentation: every main page, light and dark. The test always makes them, so that the way to
//! make them stays good; `scripts/screenshots` says where they are kept.

use std::path::PathBuf;

use http::Method;

use super::{sample, sign_in};
use crate::support::browser::{Browser, Scheme};

/// No picture is larger than that, in bytes: the repository keeps every version of it.
const SIZE_MAX: u64 = 200 * 1024;

struct Page {
    name: &'static str,
    path: &'static str,
    width: u32,
}

const fn page(name: &'static str, path: &'static str, width: u32) -> Page {
    Page { name, path, width }
}

const PAGES: [Page; 13] = [
    page("overview", "/", 1280),
    page("overview-phone", "/", 360),
    page("live", "/live", 1280),
    page("events", "/events", 1280),
    page("events-phone", "/events", 360),
    page("requests", "/requests", 1280),
    page("dead-letters", "/dead-letters", 1280),
    page("replays", "/replays", 1280),
    page("messages", "/messages", 1280),
    page("sources", "/sources", 1280),
    page("destinations", "/destinations", 1280),
    page("routes", "/routes", 1280),
    page("settings", "/settings", 1280),
];

#[tokio::test]
#[expect(clippy::print_stderr, reason = "whoever makes pictures must know which one is missing")]
async fn every_main_page_has_its_picture_in_both_themes() {
    let sample = sample::start().await;
    let gateway = &sample.gateway;
    let browser = Browser::start().await;
    let kept = std::env::var_os("SUREHOOK_SCREENSHOTS").map(PathBuf::from);
    let folder = kept.unwrap_or_else(|| browser.folder().to_owned());
    let is_there = gateway.call(Method::GET, "/login", &[], "").await.status == 200;
    if !is_there {
        eprintln!("this gateway has no pages");
        return;
    }
    sign_in(&browser, gateway).await;
    for Page { name, path, width } in PAGES {
        browser.resize(width, if width < 600 { 760 } else { 800 }).await;
        for scheme in [Scheme::Light, Scheme::Dark] {
            browser.prefer(scheme).await;
            browser.goto(&gateway.url(path)).await;
            let file = folder.join(format!("{name}-{}.png", scheme.name()));
            browser.screenshot(&file).await;
            let size = std::fs::metadata(&file).unwrap().len();
            assert!(size <= SIZE_MAX, "{} has {size} bytes", file.display());
        }
    }
    browser.assert_quiet().await;
}
