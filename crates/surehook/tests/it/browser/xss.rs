//! A hundred texts that would like to run, in every place where somebody else's text is shown.

use http::Method;
use serde_json::{Value, json};

use super::{
    populated_gateway::{self, DOOR, upsert, write},
    sign_in, wait_for_page, wait_for_path,
};
use crate::support::{
    WAIT_LIMIT,
    browser::Browser,
    eventually,
    fake_channels::EvolutionGo,
    gateway::Gateway,
    sink::Sink,
    xss::{self, XssPayload},
};

/// Meets every element as a person would, and finds what no template of ours has made.
const TOUCH: &str = "const foreign = [];
    for (const element of document.querySelectorAll('main, main *')) {
        for (const kind of ['pointerover', 'pointerenter', 'mouseover', 'focus', 'toggle'])
            element.dispatchEvent(new Event(kind));
        // What draws charts sets styles by script.
        if (element.closest('time-series')) continue;
        const attributes = [...element.attributes];
        if (element.matches('script, style, iframe, img, object, embed, video, audio, base, link, meta, math, marquee')
            || attributes.some(({name}) => /^(on|style$|srcdoc$)/.test(name))
            || attributes.some(({name, value}) => /^(x[^-]*-|xlink:)?(href|src|action|formaction)$/.test(name)
                && !['http:', 'https:'].includes(new URL(value, location.href).protocol)))
            foreign.push(element.outerHTML.slice(0, 200));
    }
    return foreign";

async fn meet(browser: &Browser, gateway: &Gateway, path: &str) {
    browser.open(&gateway.url(path)).await;
    touch(browser, path).await;
}

async fn touch(browser: &Browser, path: &str) {
    let foreign = browser.run(TOUCH, &[]).await;
    assert_eq!(foreign, json!([]), "{path} has what nobody of us has written");
}

/// All pages of a list, from this one on.
async fn meet_list(browser: &Browser, gateway: &Gateway, path: &str) -> usize {
    browser.open(&gateway.url(path)).await;
    let mut pages = 0;
    loop {
        touch(browser, path).await;
        pages += 1;
        let next = browser.run("return document.querySelector('a[rel=next]')?.href", &[]).await;
        let Some(next) = next.as_str() else { return pages };
        browser.open(next).await;
    }
}

#[tokio::test]
async fn no_payload_runs_on_event_and_dead_letter_pages() {
    let hostile = xss::start_hostile_destination().await;
    let gateway = Gateway::start_with(&xss::xss_settings(&hostile)).await;
    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    // The live tail sees them come.
    browser.open(&gateway.url("/live")).await;
    wait_for_path(&browser, "/live").await;
    let events = xss::post_all_payloads(&gateway).await;
    let last = events.last().unwrap();
    browser.find(&format!("live-tail tr[data-row='{last}']")).await;
    touch(&browser, "/live").await;
    for event in &events {
        gateway.wait_for_delivery(event, "dead").await;
    }
    // A duplicate for each, with other bytes, so that every payload stands in a comparison.
    let everything = all_in_one();
    let one = gateway.post_accepted("in", everything.to_string()).await;
    let mut changed = everything.clone();
    for XssPayload { number, text, .. } in xss::payloads() {
        changed["list"][number - 1] = json!({ "changed": text });
        changed[format!("{text} ")] = json!(text);
    }
    gateway.send_webhook("in", &[], changed.to_string()).await.expect(200);
    eventually(WAIT_LIMIT, || async {
        (gateway.event(&one).await["duplicate_count"] == 1).then_some(())
    })
    .await;

    assert!(meet_list(&browser, &gateway, "/events").await >= 2);
    assert!(meet_list(&browser, &gateway, "/dead-letters").await >= 1);
    assert!(meet_list(&browser, &gateway, "/dead-letters/all").await >= 2);
    assert!(meet_list(&browser, &gateway, "/requests").await >= 2);
    meet(&browser, &gateway, "/").await;
    meet(&browser, &gateway, "/destinations/out").await;
    meet(&browser, &gateway, "/sources/in").await;
    meet(&browser, &gateway, &format!("/events/{one}/duplicates/1")).await;
    let rows = browser.find_all("table.diff tbody tr").await.len();
    assert!(rows >= 100, "{rows} differences");

    // A page for each payload as the key, the kind, a header, the path and the answer; half of the
    // events, as the others only repeat it in a body that is no JSON.
    for event in events.iter().step_by(2).chain(events.iter().skip(1).step_by(20)).chain([&one]) {
        let path = format!("/events/{event}");
        browser.open(&gateway.url(&path)).await;
        browser.run(SHOW_BODY, &[]).await;
        touch(&browser, &path).await;
    }
    browser.assert_no_console_errors().await;
}

/// Raw, pretty, tree; and all that is folded.
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
    let hostile = xss::start_hostile_destination().await;
    let works = Sink::ok().await;
    let evolution = EvolutionGo::start().await;
    let gateway =
        Gateway::start_with(&populated_gateway::settings(&works, &hostile, &evolution)).await;
    let mut talks = Vec::new();
    for XssPayload { number, text, .. } in xss::payloads() {
        // Names and texts of people, and once somebody whose number is none.
        let phone = format!("55119{:08}", number % 7);
        talks.push(write(&gateway, &upsert(&phone, &format!("id {number}"), &text, &text)).await);
        let odd = upsert(&text, &text, &text, &text);
        gateway.request(Method::POST, DOOR, &[], odd.to_string()).await;
        let header: String = text.chars().filter(|letter| !letter.is_control()).collect();
        let headers = [("user-agent", header.as_str()), ("stripe-signature", header.as_str())];
        gateway.send_webhook("bank", &headers, text.clone()).await;
        let in_path: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let path = format!("/in/{in_path}/{in_path}");
        gateway.request(Method::POST, &path, &[], text.clone()).await;
        if number % 10 == 0 {
            let filter = format!(".name == {}", json!(text));
            let route = json!({ "from": "shop", "to": "crm", "filter": filter, "transform": json!([text]).to_string() });
            gateway.post("/routes", &route).await.expect(201);
            gateway.post("/tokens", &json!({ "role": "viewer", "name": text })).await;
            let wish = json!({ "verb": "retry_failed", "filter": { "key": text }, "note": text });
            gateway.post("/replays", &wish).await;
            let message = json!({ "destination": "wa", "to": "5511987654321", "text": text });
            gateway.post("/messages", &message).await.expect(202);
        }
    }
    let all = all_text();
    gateway.post("/destinations/crm/pause", &json!({ "reason": all })).await;

    let browser = Browser::start().await;
    sign_in(&browser, &gateway).await;
    for path in populated_gateway::PAGES {
        meet(&browser, &gateway, path).await;
    }
    assert!(meet_list(&browser, &gateway, "/requests").await >= 2);
    meet_list(&browser, &gateway, "/conversations").await;
    for talk in talks.iter().rev().take(7) {
        meet_list(&browser, &gateway, &format!("/conversations?event={talk}")).await;
    }
    for list in ["/requests?outcome=refused", "/replays", "/messages", "/routes"] {
        let found = gateway.get(list).await.expect(200).json();
        let page = list.split('?').next().unwrap();
        let ids = found["data"].as_array().unwrap().iter();
        let ids: Vec<&str> = ids.filter_map(|one| one["id"].as_str()).take(8).collect();
        assert!(!ids.is_empty(), "{list}");
        let more = if page == "/routes" { "/edit" } else { "" };
        for id in ids {
            meet(&browser, &gateway, &format!("{page}/{id}{more}")).await;
        }
    }

    // What somebody typed or was led to by a link stands on the page too.
    for XssPayload { text, .. } in xss::payloads().into_iter().step_by(17) {
        let asked: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for path in
            ["/events?q=", "/replays/new?note=x&q=", "/conversations?phone=", "/login?next="]
        {
            meet(&browser, &gateway, &format!("{path}{asked}")).await;
        }
        browser.open(&gateway.url("/events")).await;
        browser.type_into("#q", &text.replace('\n', " ")).await;
        browser.click(".filter button").await;
        wait_for_page(&browser, "location.search.includes('q=')").await;
        touch(&browser, &text).await;
    }
    browser.assert_no_console_errors().await;
}

/// All of them in one text.
fn all_text() -> String {
    let all: Vec<String> = xss::payloads().into_iter().map(|payload| payload.text).collect();
    all.join(" ").chars().take(450).collect()
}
