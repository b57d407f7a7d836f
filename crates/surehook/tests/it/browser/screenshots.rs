//! The pictures of the documentation: every main page, light and dark. The test always makes them, so that the way to
//! make them stays good; `scripts/screenshots` says where they are kept.

use std::path::PathBuf;

use super::{screenshot_data, sign_in_at, wait_for_page};
use crate::support::{
    browser::{Browser, ColorScheme},
    gateway::TOKEN,
};

/// No picture is larger than that, in bytes: the repository keeps every version of it.
const SIZE_MAX: u64 = 200 * 1024;

/// Name, address and width of each. `{dead}` and `{doubled}` are events.
const PAGES: [(&str, &str, u32); 10] = [
    ("overview", "/?range=1h", 1280),
    ("overview-phone", "/?range=1h", 360),
    ("events", "/events", 1280),
    ("event", "/events/{dead}", 1280),
    ("event-phone", "/events/{dead}", 360),
    ("duplicate", "/events/{doubled}/duplicates/1", 1280),
    ("dead-letters", "/dead-letters", 1280),
    ("replay", "/replays/new?q=dest:billing", 1280),
    ("destination", "/destinations/warehouse", 1280),
    ("playground", "/routes/new", 1280),
];

#[tokio::test]
async fn every_main_page_has_a_screenshot_in_both_themes() {
    let day = screenshot_data::start().await;
    let browser = Browser::start().await;
    let kept = std::env::var_os("SUREHOOK_SCREENSHOTS").map(PathBuf::from);
    let folder = kept.unwrap_or_else(|| browser.folder().to_owned());
    sign_in_at(&browser, &day.gateway.url("/login"), TOKEN).await;
    for (name, path, width) in PAGES {
        let path = path.replace("{dead}", &day.dead).replace("{doubled}", &day.doubled);
        browser.resize(width, if width < 600 { 760 } else { 800 }).await;
        for scheme in [ColorScheme::Light, ColorScheme::Dark] {
            browser.set_color_scheme(scheme).await;
            browser.open(&day.gateway.url(&path)).await;
            wait_for_page(&browser, "document.querySelector('h1') !== null").await;
            let file = folder.join(format!("{name}-{}.png", scheme.name()));
            browser.screenshot(&file).await;
            let size = std::fs::metadata(&file).unwrap().len();
            assert!(size <= SIZE_MAX, "{} has {size} bytes", file.display());
        }
    }
    browser.assert_no_console_errors().await;
}
