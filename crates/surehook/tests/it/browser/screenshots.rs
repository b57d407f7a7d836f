//! The screenshots of the documentation: every main page, light and dark. The test always takes them, so
//! that the code stays working; `scripts/screenshots` sets where they are stored.

use std::path::PathBuf;

use super::{screenshot_data, sign_in_at, wait_for_page};
use crate::support::{
    browser::{Browser, ColorScheme},
    gateway::TOKEN,
    tools::Tool,
};

/// Maximum size of a screenshot in bytes: the repository keeps every version.
const SIZE_MAX: u64 = 200 * 1024;

/// Name, path and width of each. `{dead}` and `{duplicated}` are events.
const PAGES: [(&str, &str, u32); 10] = [
    ("overview", "/?range=1h", 1280),
    ("overview-phone", "/?range=1h", 360),
    ("events", "/events", 1280),
    ("event", "/events/{dead}", 1280),
    ("event-phone", "/events/{dead}", 360),
    ("duplicate", "/events/{duplicated}/duplicates/1", 1280),
    ("dead-letters", "/dead-letters", 1280),
    ("replay", "/replays/new?q=dest:billing", 1280),
    ("destination", "/destinations/warehouse", 1280),
    ("playground", "/routes/new", 1280),
];

#[tokio::test]
async fn every_main_page_has_a_screenshot_in_both_themes() {
    if !Tool::Browser.is_available() {
        return;
    }
    let data = screenshot_data::start().await;
    let browser = Browser::start().await;
    let configured = std::env::var_os("SUREHOOK_SCREENSHOTS").map(PathBuf::from);
    let folder = configured.unwrap_or_else(|| browser.folder().to_owned());
    sign_in_at(&browser, &data.gateway.url("/login"), TOKEN).await;
    for (name, path, width) in PAGES {
        let path = path.replace("{dead}", &data.dead).replace("{duplicated}", &data.duplicated);
        browser.resize(width, if width < 600 { 760 } else { 800 }).await;
        for scheme in [ColorScheme::Light, ColorScheme::Dark] {
            browser.set_color_scheme(scheme).await;
            browser.open(&data.gateway.url(&path)).await;
            wait_for_page(&browser, "document.querySelector('h1') !== null").await;
            let file = folder.join(format!("{name}-{}.png", scheme.name()));
            browser.screenshot(&file).await;
            let size = std::fs::metadata(&file).unwrap().len();
            assert!(size <= SIZE_MAX, "{} has {size} bytes", file.display());
        }
    }
    browser.assert_no_console_errors().await;
}
