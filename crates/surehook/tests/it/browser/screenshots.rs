//! The pictures of the documentation: every main page, light and dark. The test always makes them, so that the way to
//! make them stays good; `scripts/screenshots` says where they are kept.

use std::path::PathBuf;

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

/// A page that is not there fails, so each is added with its row.
const PAGES: [Page; 4] = [
    page("overview", "/", 1280),
    page("overview-phone", "/", 360),
    page("events", "/events", 1280),
    page("events-phone", "/events", 360),
];

#[tokio::test]
async fn every_main_page_has_its_picture_in_both_themes() {
    let sample = sample::start().await;
    let gateway = &sample.gateway;
    let browser = Browser::start().await;
    let kept = std::env::var_os("SUREHOOK_SCREENSHOTS").map(PathBuf::from);
    let folder = kept.unwrap_or_else(|| browser.folder().to_owned());
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
