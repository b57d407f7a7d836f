//! A hundred XSS payloads in every place where untrusted text is shown.

use http::Method;
use serde_json::{Value, json};

use super::{
    populated_gateway::{self, EVOLUTION_PATH, message_webhook, send_message_webhook},
    sign_in, wait_for_page, wait_for_path,
};
use crate::support::{
    WAIT_LIMIT,
    browser::Browser,
    eventually,
    fake_channels::EvolutionGo,
    gateway::Gateway,
    sink::Sink,
    tools::Tool,
    xss::{self, XssPayload},
};

/// Triggers the events of a user on every element and finds elements that no template contains.
const TRIGGER_EVENTS: &str = "const foreign = [];
    for (const element of document.querySelectorAll('main, main *')) {
        for (const kind of ['pointerover', 'pointerenter', 'mouseover', 'focus', 'toggle'])
            element.dispatchEvent(new Event(kind));
        // Charts set styles by script.
        if (element.closest('time-series')) continue;
        const attributes = [...element.attributes];
        if (element.matches('script, style, iframe, img, object, embed, video, audio, base, link, meta, math, marquee')
            || attributes.some(({name}) => /^(on|style$|srcdoc$)/.test(name))
            || attributes.some(({name, value}) => /^(x[^-]*-|xlink:)?(href|src|action|formaction)$/.test(name)
                && !['http:', 'https:'].includes(new URL(value, location.href).protocol)))
            foreign.push(element.outerHTML.slice(0, 200));
    }
    return foreign";

async fn open_and_check(browser: &Browser, gateway: &Gateway, path: &str) {
    browser.open(&gateway.url(path)).await;
    check_page(browser, path).await;
}

async fn check_page(browser: &Browser, path: &str) {
    let foreign = browser.run(TRIGGER_EVENTS, &[]).await;
    assert_eq!(foreign, json!([]), "{path} has foreign elements");
}

/// Checks all pages of a list, starting with this one, and returns their number.
async fn check_list_pages(browser: &Browser, gateway: &Gateway, path: &str) -> usize {
    browser.open(&gateway.url(path)).await;
    let mut pages = 0;
    loop {
        check_page(browser, path).await;
        pages += 1;
        let next = browser.run("return document.querySelector('a[rel=next]')?.href", &[]).await;
        let Some(next) = next.as_str() else { return pages };
        browser.open(next).await;
    }
}

#[tokio::test]
async fn no_payload_runs_on_event_and_dead_letter_pages() {
    if !Tool::Browser.is_available() {
        return;
    }
    let hostile = xss::start_hostile_destination().await;
    let gateway = Gateway::start_with(&xss::xss_settings(&hostile)).await;
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    // The live tail shows events as they are received.
    browser.open(&gateway.url("/live")).await;
    wait_for_path(&browser, "/live").await;
    let events = xss::post_all_payloads(&gateway).await;
    let last = events.last().unwrap();
    browser.find(&format!("live-tail tr[data-row='{last}']")).await;
    check_page(&browser, "/live").await;
    for event in &events {
        gateway.wait_for_delivery(event, "dead").await;
    }
    // A duplicate with a different body, so that every payload appears in a comparison.
    let body = all_in_one();
    let original = gateway.post_accepted("in", body.to_string()).await;
    let mut changed = body.clone();
    for XssPayload { number, text, .. } in xss::payloads() {
        changed["list"][number - 1] = json!({ "changed": text });
        changed[format!("{text} ")] = json!(text);
    }
    gateway.send_webhook("in", &[], changed.to_string()).await.expect(200);
    eventually(WAIT_LIMIT, || async {
        (gateway.event(&original).await["duplicate_count"] == 1).then_some(())
    })
    .await;

    assert!(check_list_pages(&browser, &gateway, "/events").await >= 2);
    assert!(check_list_pages(&browser, &gateway, "/dead-letters").await >= 1);
    assert!(check_list_pages(&browser, &gateway, "/dead-letters/all").await >= 2);
    assert!(check_list_pages(&browser, &gateway, "/requests").await >= 2);
    open_and_check(&browser, &gateway, "/").await;
    open_and_check(&browser, &gateway, "/destinations/out").await;
    open_and_check(&browser, &gateway, "/sources/in").await;
    open_and_check(&browser, &gateway, &format!("/events/{original}/duplicates/1")).await;
    let rows = browser.find_all("table.diff tbody tr").await.len();
    assert!(rows >= 100, "{rows} differences");

    // An event page for each payload as key, kind, header, path and response. Of the events whose body
    // is not JSON, a sample is enough.
    for event in
        events.iter().step_by(2).chain(events.iter().skip(1).step_by(20)).chain([&original])
    {
        let path = format!("/events/{event}");
        browser.open(&gateway.url(&path)).await;
        browser.run(SHOW_BODY, &[]).await;
        check_page(&browser, &path).await;
    }
    browser.assert_no_console_errors().await;
}

/// Opens every view of the body and everything that is folded.
const SHOW_BODY: &str =
    "for (const button of document.querySelectorAll('json-view [role=tab]')) button.click();
    for (const details of document.querySelectorAll('main details')) details.open = true";

/// A body with every payload as a name and as a value.
fn all_in_one() -> Value {
    let all = xss::payloads();
    let mut body = json!({
        "key": "all in one",
        "list": all.iter().map(|payload| payload.text.clone()).collect::<Vec<_>>(),
    });
    for XssPayload { text, .. } in all {
        body[&text] = json!({ &text: text });
    }
    body
}

#[tokio::test]
async fn no_payload_runs_on_conversation_and_configuration_pages() {
    if !Tool::Browser.is_available() {
        return;
    }
    let hostile = xss::start_hostile_destination().await;
    let healthy = Sink::ok().await;
    let evolution = EvolutionGo::start().await;
    let gateway =
        Gateway::start_with(&populated_gateway::settings(&healthy, &hostile, &evolution)).await;
    let mut conversations = Vec::new();
    for XssPayload { number, text, .. } in xss::payloads() {
        // As name and text of a message, and as an invalid phone number.
        let phone = format!("55119{:08}", number % 7);
        conversations.push(
            send_message_webhook(
                &gateway,
                &message_webhook(&phone, &format!("id {number}"), &text, &text),
            )
            .await,
        );
        let invalid = message_webhook(&text, &text, &text, &text);
        gateway.request(Method::POST, EVOLUTION_PATH, &[], invalid.to_string()).await;
        let header: String = text.chars().filter(|letter| !letter.is_control()).collect();
        let headers = [("user-agent", header.as_str()), ("stripe-signature", header.as_str())];
        gateway.send_webhook("bank", &headers, text.clone()).await;
        let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let path = format!("/in/{encoded}/{encoded}");
        gateway.request(Method::POST, &path, &[], text.clone()).await;
        if number % 10 == 0 {
            let filter = format!(".name == {}", json!(text));
            let route = json!({ "from": "shop", "to": "crm", "filter": filter, "transform": json!([text]).to_string() });
            gateway.post("/routes", &route).await.expect(201);
            gateway.post("/tokens", &json!({ "role": "viewer", "name": text })).await;
            let request =
                json!({ "verb": "retry_failed", "filter": { "key": text }, "note": text });
            gateway.post("/replays", &request).await;
            let message = json!({ "destination": "wa", "to": "5511987654321", "text": text });
            gateway.post("/messages", &message).await.expect(202);
        }
    }
    let all = all_text();
    gateway.post("/destinations/crm/pause", &json!({ "reason": all })).await;

    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    for path in populated_gateway::PAGES {
        open_and_check(&browser, &gateway, path).await;
    }
    assert!(check_list_pages(&browser, &gateway, "/requests").await >= 2);
    check_list_pages(&browser, &gateway, "/conversations").await;
    for conversation in conversations.iter().rev().take(7) {
        check_list_pages(&browser, &gateway, &format!("/conversations?event={conversation}")).await;
    }
    for list in ["/requests?outcome=refused", "/replays", "/messages", "/routes"] {
        let response = gateway.get(list).await.expect(200).json();
        let page = list.split('?').next().unwrap();
        let ids = response["data"].as_array().unwrap().iter();
        let ids: Vec<&str> = ids.filter_map(|row| row["id"].as_str()).take(8).collect();
        assert!(!ids.is_empty(), "{list}");
        let suffix = if page == "/routes" { "/edit" } else { "" };
        for id in ids {
            open_and_check(&browser, &gateway, &format!("{page}/{id}{suffix}")).await;
        }
    }

    // Input and query parameters are shown on the page too.
    for XssPayload { text, .. } in xss::payloads().into_iter().step_by(17) {
        let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for path in
            ["/events?q=", "/replays/new?note=x&q=", "/conversations?phone=", "/login?next="]
        {
            open_and_check(&browser, &gateway, &format!("{path}{encoded}")).await;
        }
        browser.open(&gateway.url("/events")).await;
        browser.type_into("#q", &text.replace('\n', " ")).await;
        browser.click(".filter button").await;
        wait_for_page(&browser, "location.search.includes('q=')").await;
        check_page(&browser, &text).await;
    }
    browser.assert_no_console_errors().await;
}

/// All payloads in one text, cut to the allowed length.
fn all_text() -> String {
    let all: Vec<String> = xss::payloads().into_iter().map(|payload| payload.text).collect();
    all.join(" ").chars().take(450).collect()
}
