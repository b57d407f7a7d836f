//! The event page in a browser: the body as a tree, search, dialogs, accessibility.

use serde_json::json;

use super::sign_in;
use crate::support::{
    browser::{Browser, ColorScheme, assert_accessible, key},
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
    tools::Tool,
};

const HOSTILE: &str = "<img src=x onerror=alert(1)>";

async fn open_event_page(browser: &Browser, gateway: &Gateway, body: String) -> String {
    let event = gateway.post_accepted("in", body).await;
    sign_in(browser, gateway).await;
    browser.open(&gateway.url(&format!("/events/{event}"))).await;
    event
}

#[tokio::test]
async fn json_view_preserves_the_original_text() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let gateway = Gateway::start().await;
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    let script = r#"
        const [good, bad, done] = arguments;
        import('/assets/json-text.mjs').then(({ whole, children, pretty, jqPath }) => {
          const wrong = [...good.filter((text) => !whole(text)), ...bad.filter((text) => whole(text))];
          const text = ' {"a": 1.00, "a": "x,}]", "b": [ ] , "c":{"d":1} }';
          const members = [...children(text, whole(text))].map(({ name, value }) => [name, text.slice(value.start, value.end)]);
          const deep = '['.repeat(200000) + ']'.repeat(200000);
          const isDeep = whole(deep) !== null && [...children(deep, whole(deep))].length === 1 && pretty(deep).cut;
          const paths = [[], ['a', 'b c', 0, 'd'], [0, 'x'], ['"]|x']].map(jqPath);
          done({ wrong, members, isDeep, paths, pretty: pretty('[[],{"a":12345678901234567890}]').text });
        });
    "#;
    let good =
        json!(["{}", "[]", "-0.5e+10", "\"\\u00e9\"", " {\"a\":[1,{\"b\":null}],\"a\":true} "]);
    let bad = json!([
        "",
        "{",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "01",
        "1.",
        "nul",
        "truex",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12\"",
        "1 2",
        "{\"a\":1]",
        "[1}",
        "}",
        ",",
        "[,1]",
        "{1:2}"
    ]);
    let result = browser.run_async(script, &[good, bad]).await;
    assert_eq!(result["wrong"], json!([]));
    assert_eq!(
        result["members"],
        json!([["a", "1.00"], ["a", "\"x,}]\""], ["b", "[ ]"], ["c", "{\"d\":1}"]])
    );
    assert_eq!(result["isDeep"], true);
    assert_eq!(result["paths"], json!([".", ".a[\"b c\"][0].d", ".[0].x", ".[\"\\\"]|x\"]"]));
    assert_eq!(result["pretty"], "[\n  [],\n  {\n    \"a\": 12345678901234567890\n  }\n]");
}

#[tokio::test]
async fn large_body_is_searched_without_rendering_every_row() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let browser = Browser::start().await;
    let rows: Vec<_> = (0..9000).map(|n| json!({ "n": n, "text": "0123456789" })).collect();
    open_event_page(&browser, &gateway, json!({ "id": "large", "rows": rows }).to_string()).await;
    browser.click("json-view > button").await;
    browser.find(".json-tree").await;
    browser.type_into(".json-find input", "\"n\":8765,").await;
    browser.keys(key::ENTER).await;
    assert_eq!(browser.text(".json-found .json-line").await, "n: 8765");
    let rows = browser.run("return document.querySelectorAll('.json-tree li').length", &[]).await;
    assert!(rows.as_u64().is_some_and(|rows| rows < 500), "{rows} rows");
    browser.assert_no_console_errors().await;
}

#[tokio::test]
async fn event_page_passes_axe_and_runs_no_payload() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let answer = Reply::status(200).body(HOSTILE);
    let sink = Sink::with_replies([answer]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let browser = Browser::start().await;
    let body = json!({ "id": HOSTILE, HOSTILE: [HOSTILE, { "password": "secret" }] }).to_string();
    let event = open_event_page(&browser, &gateway, body).await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    for scheme in [ColorScheme::Light, ColorScheme::Dark] {
        browser.set_color_scheme(scheme).await;
        for path in ["/events".to_owned(), format!("/events/{event}")] {
            browser.open(&gateway.url(&path)).await;
            assert_accessible(&browser).await;
        }
    }
    browser.find(".json-tree").await;
    browser.click("[data-open^=\"#replay-\"]").await;
    browser.wait_until("document.querySelector('dialog[open]') !== null").await;
    assert_accessible(&browser).await;
    let focused =
        browser.run("return document.activeElement.hasAttribute('data-close')", &[]).await;
    assert_eq!(focused, true, "the button that changes nothing has the focus");
    browser.resize(360, 780).await;
    browser.open(&gateway.url(&format!("/events/{event}"))).await;
    let width = browser.run("return document.documentElement.scrollWidth", &[]).await;
    assert!(width.as_u64().is_some_and(|width| width <= 360), "{width} wide");
    browser.assert_no_console_errors().await;
}
