//! Tests of `support::browser` on pages that the tests serve: it must notice every problem.

use std::{collections::BTreeSet, panic::AssertUnwindSafe};

use bytes::Bytes;
use futures_util::FutureExt as _;
use serde_json::json;
use surehook_webhooks::attribute::EventKind;

use crate::support::{
    browser::{Browser, ColorScheme, assert_accessible, axe, key},
    gateway::Gateway,
    sink::{Reply, Sink, SinkRequest},
    tools::Tool,
    xss,
};

/// Serves one page, with a content security policy unless it is empty.
async fn serve_page(policy: &'static str, body: &str) -> Sink {
    let html = format!(
        "<!doctype html><html lang=en><head><title>A page</title>\
         <meta name=viewport content='width=device-width'><link rel=icon href=data:,></head>\
         <body>{body}</body></html>"
    );
    let html = Bytes::from(html);
    Sink::with_script(move |_, _| {
        let reply = Reply::status(200).header("content-type", "text/html; charset=utf-8");
        let reply =
            if policy.is_empty() { reply } else { reply.header("content-security-policy", policy) };
        reply.header("set-cookie", "visits=1; HttpOnly").body(html.clone())
    })
    .await
}

/// The panic message of a future; `None` if it did not panic.
async fn panic_message(future: impl Future<Output = ()>) -> Option<String> {
    let failure = AssertUnwindSafe(future).catch_unwind().await.err()?;
    failure.downcast_ref::<String>().cloned().or_else(|| Some("not a text".to_owned()))
}

#[tokio::test]
async fn browser_finds_types_clicks_and_reads() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let form = "<form onsubmit=\"event.preventDefault();\
        setTimeout(() => out.innerHTML = '<b data-from=' + who.value + '>Hello ' + who.value + '</b>', 50)\">\
        <input id=who value=old aria-label=Who><button id=greet>Greet</button></form><div id=out></div>\
        <ul><li>one<li>two</ul>";
    let site = serve_page("", form).await;
    let browser = Browser::start().await;
    browser.open(&site.url()).await;
    assert_eq!(browser.url().await, site.url());
    browser.clear("#who").await;
    browser.type_into("#who", "Zoë").await;
    browser.click("#greet").await;
    // Appears later and is waited for.
    assert_eq!(browser.text("#out b").await, "Hello Zoë");
    let greeting = browser.find("#out b").await;
    assert_eq!(greeting.attribute("data-from").await.as_deref(), Some("Zoë"));
    assert_eq!(greeting.attribute("title").await, None);
    let items = browser.find_all("li").await;
    assert_eq!((items.len(), items[1].text().await), (2, "two".to_owned()));
    assert!(browser.find_all("table").await.is_empty());

    // The same with the keyboard alone.
    browser.run("out.replaceChildren(); who.focus()", &[]).await;
    browser.keys(&[key::TAB, key::SHIFT, key::TAB, "!", key::ENTER].concat()).await;
    browser.wait_until("document.querySelector('#out b')?.textContent === 'Hello !'").await;
    let sum = browser.run("return arguments[0] + arguments[1]", &[json!(40), json!(2)]).await;
    assert_eq!(sum, 42);
    let later = "const done = arguments[0]; setTimeout(() => done('later'), 10)";
    assert_eq!(browser.run_async(later, &[]).await, "later");

    let cookies = browser.cookies().await;
    assert_eq!((&cookies[0]["name"], &cookies[0]["httpOnly"]), (&json!("visits"), &json!(true)));
    browser.delete_cookies().await;
    assert!(browser.cookies().await.is_empty());
    browser.assert_no_console_errors().await;
}

#[tokio::test]
async fn browser_uses_the_given_size_languages_and_color_scheme() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let site = serve_page("", "<p>Hello").await;
    let builder = Browser::builder().languages("pt-BR,de").size(360, 640).scheme(ColorScheme::Dark);
    let browser = builder.start().await;
    browser.open(&site.url()).await;
    let languages = site.requests()[0].header("accept-language").to_owned();
    assert!(languages.starts_with("pt-BR,") && languages.contains("de;"), "{languages}");
    let seen = "return [innerWidth, innerHeight, devicePixelRatio, navigator.language,
        matchMedia('(prefers-color-scheme: dark)').matches]";
    assert_eq!(browser.run(seen, &[]).await, json!([360, 640, 1, "pt-BR", true]));

    browser.resize(1280, 800).await;
    browser.set_color_scheme(ColorScheme::Light).await;
    assert_eq!(browser.run(seen, &[]).await, json!([1280, 800, 1, "pt-BR", false]));
    let picture = browser.folder().join("page.png");
    browser.screenshot(&picture).await;
    let picture = std::fs::read(picture).unwrap();
    // Width and height are in the header of a PNG.
    assert_eq!(&picture[16..24], [1280_u32.to_be_bytes(), 800_u32.to_be_bytes()].concat());

    browser.set_offline(true).await;
    let reach = "const done = arguments[0]; fetch('/').then(() => done(true), () => done(false))";
    assert_eq!(browser.run_async(reach, &[]).await, false);
    browser.set_offline(false).await;
    assert_eq!(browser.run_async(reach, &[]).await, true);
}

#[tokio::test]
async fn open_dialog_fails_the_next_call() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    for dialog in ["alert('xss 7')", "confirm('xss 7')", "prompt('xss 7')"] {
        let site = serve_page("", &format!("<script>setTimeout(() => {dialog})</script>")).await;
        let browser = Browser::start().await;
        browser.open(&site.url()).await;
        let failure = panic_message(browser.wait_until("false")).await.unwrap();
        assert!(failure.contains("a dialog is open") && failure.contains("xss 7"), "{failure}");
        let failure = panic_message(browser.assert_no_console_errors()).await.unwrap();
        assert!(failure.contains("a dialog is open"), "{failure}");
    }
}

#[tokio::test]
async fn policy_violations_and_errors_of_all_pages_are_reported() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let inline = "<script>window.__xss = 1</script><p style='color: red'>x";
    let strict = serve_page("default-src 'self'; img-src data:", inline).await;
    let broken = serve_page("", "<script>throw new Error('broken on purpose')</script>").await;
    let missing = Sink::with_script(|_, arrival: &SinkRequest| match arrival.path.as_str() {
        "/hook" => Reply::status(200)
            .header("content-type", "text/html")
            .body("<link rel=icon href=data:,><img src=/gone.png>"),
        _ => Reply::status(404),
    })
    .await;
    let foreign = serve_page("", "<img src=x onerror=window.__xss=17>").await;
    let browser = Browser::start().await;
    browser.open(&strict.url()).await;
    let forbidden = browser.policy_violations().await;
    let count_of = |what: &str| forbidden.iter().filter(|entry| entry.text.contains(what)).count();
    assert_eq!((count_of("script-src-elem inline"), count_of("style-src-attr inline")), (1, 1));
    // The policy blocked the code.
    assert!(browser.foreign_code_reports().await.is_empty());
    for site in [&broken, &missing, &foreign] {
        browser.open(&site.url()).await;
    }
    assert_eq!(browser.policy_violations().await.len(), 2, "kept after the page is left");
    let foreign = browser.foreign_code_reports().await;
    assert!(foreign.len() == 1 && foreign[0].text.contains("ran: 17"), "{foreign:?}");

    let failure = panic_message(browser.assert_no_console_errors()).await.unwrap();
    for expected in ["forbidden by policy", "broken on purpose", "gone.png", "foreign code ran: 17"]
    {
        assert!(failure.contains(expected), "{expected} is not in {failure}");
    }
    let expected = ["by policy", "Content Security Policy", "on purpose", "status of 404", "/x"];
    let failure = panic_message(browser.assert_no_console_errors_except(&expected)).await.unwrap();
    assert_eq!(failure.lines().count(), 2, "{failure}");
}

#[tokio::test]
async fn axe_reports_planted_violations_and_none_on_a_valid_page() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let planted = "<main><h1>Planted</h1><img src=data:,><input id=q>\
        <p style='color:#aaa;background:#fff'>faint</p></main>";
    // axe is injected by WebDriver, which the policy does not block.
    let policy = "default-src 'self'; img-src data:; style-src 'unsafe-inline'";
    let site = serve_page(policy, planted).await;
    let browser = Browser::start().await;
    browser.open(&site.url()).await;
    let found = axe(&browser).await;
    let rules: BTreeSet<&str> = found.iter().map(|violation| violation.rule.as_str()).collect();
    assert_eq!(rules, BTreeSet::from(["color-contrast", "image-alt", "label"]));
    let label = found.iter().find(|violation| violation.rule == "label").unwrap();
    assert_eq!(
        (label.impact.as_str(), &label.elements[..]),
        ("critical", &["<input id=\"q\">".to_owned()][..])
    );
    let failure = panic_message(assert_accessible(&browser)).await.unwrap();
    assert!(failure.contains("faint"), "{failure}");

    let good = serve_page("", "<main><h1>Good</h1><label>Q <input></label></main>").await;
    browser.open(&good.url()).await;
    assert_accessible(&browser).await;
    browser.assert_no_console_errors().await;
}

/// Templates that insert a payload without escaping.
const UNESCAPED_TEMPLATES: [&str; 2] = [
    "<body>@",
    r#"<body><input value="@"><input value='@'><input value=@><a href="@">x</a>
       <script>let one = "@"</script><script>let two = '@'</script><script>let three = `@`</script>"#,
];

/// Triggers the events of a user on every element of every frame.
const TRIGGER_EVENTS: &str = "for (const frame of document.querySelectorAll('iframe'))
    for (const element of frame.contentDocument?.querySelectorAll('body *') ?? []) {
        for (const kind of ['pointerover', 'pointerenter', 'mouseover', 'focus'])
            element.dispatchEvent(new Event(kind));
        if (element.matches('a, button')) element.dispatchEvent(new MouseEvent('click'));
    }";

// Most payloads must run on unescaped pages, otherwise the corpus would prove nothing.
#[tokio::test]
async fn payloads_run_only_where_they_are_not_escaped() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let all = xss::payloads();
    let numbers: Vec<usize> = all.iter().map(|payload| payload.number).collect();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    let texts: Vec<String> = all.iter().map(|payload| payload.text.clone()).collect();
    let unescaped = Sink::with_script(move |_, arrival| {
        let mut path = arrival.path.split('/').skip(1).map(str::parse::<usize>);
        let body = match (path.next(), path.next()) {
            // Dialogs would stop the test.
            (Some(Ok(page)), Some(Ok(number))) => format!(
                "<!doctype html><script>alert = number => window.__xss = number</script>{}",
                UNESCAPED_TEMPLATES[page].replace('@', &texts[number - 1])
            ),
            (Some(Ok(page)), None) => (1..=texts.len())
                .map(|number| format!("<iframe src=/{page}/{number}></iframe>"))
                .collect(),
            _ => return Reply::status(404),
        };
        Reply::status(200).header("content-type", "text/html; charset=utf-8").body(body)
    })
    .await;
    let browser = Browser::start().await;
    for page in 0..UNESCAPED_TEMPLATES.len() {
        browser.open(&format!("{}/{page}", unescaped.origin())).await;
        browser.run(TRIGGER_EVENTS, &[]).await;
    }
    let number = |text: &str| text.rsplit_once("ran: ")?.1.trim_end_matches('"').parse().ok();
    let foreign = browser.foreign_code_reports().await;
    let ran: BTreeSet<usize> = foreign.iter().filter_map(|entry| number(&entry.text)).collect();
    // The others target templates, htmx, and code that strips tags or decodes twice.
    let silent: Vec<_> = all.iter().filter(|payload| !ran.contains(&payload.number)).collect();
    assert!(ran.len() >= 65, "only {} ran, not {silent:?}", ran.len());

    let escaped: String = all
        .iter()
        .map(|payload| {
            let text =
                payload.text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
            format!("<p title=\"{text}\" class=\"{}\">{text}</p>", payload.class)
        })
        .collect();
    let escaped = serve_page("", &escaped).await;
    let browser = Browser::start().await;
    browser.open(&escaped.url()).await;
    assert_eq!(browser.find_all("body > p").await.len(), 100);
    browser.assert_no_console_errors().await;
}

#[tokio::test]
async fn payloads_are_stored_unchanged_in_every_field() {
    if !Tool::Browser.is_available() || !Tool::Vendors.is_available() {
        return;
    }
    let hostile = xss::start_hostile_destination().await;
    let gateway = Gateway::start_with(&xss::xss_settings(&hostile)).await;
    let events = xss::post_all_payloads(&gateway).await;
    assert_eq!(events.iter().collect::<BTreeSet<_>>().len(), 200);
    let payloads = xss::payloads();
    for (payload, event) in payloads.iter().zip(events.iter().step_by(2)) {
        let event = gateway.event(event).await;
        // A key with control characters is stored as its hash, and such a kind is dropped.
        if !payload.text.contains(char::is_control) {
            let text = Some(payload.text.as_str());
            assert_eq!(event["key"].as_str(), text, "{event}");
            // A long kind is dropped too.
            let kind = EventKind::new(&payload.text);
            assert_eq!(event["kind"].as_str(), kind.as_ref().map(EventKind::as_str), "{event}");
        }
    }
    let mut answers = BTreeSet::new();
    for event in &events {
        let delivery = gateway.wait_for_delivery(event, "dead").await;
        answers.insert(delivery["attempt_list"][0]["response"].as_str().unwrap().to_owned());
    }
    for payload in &payloads {
        assert!(answers.contains(&payload.text), "{payload:?} {answers:?}");
        let source = json!({ "name": payload.text, "verify": "none" });
        gateway.post("/sources", &source).await.expect(422);
    }
}
