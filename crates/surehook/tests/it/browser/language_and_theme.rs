//! The three languages and the light and dark theme.

use serde_json::json;

use super::{populated_gateway, sample_gateway, sign_in, wait_for_page};
use crate::support::{
    browser::{Browser, ColorScheme},
    tools::Tool,
};

/// Words that every page contains in its language and no page of another language contains.
const WORDS: [(&str, &[&str]); 3] = [
    ("en", &["Overview", "Dead letters", "Conversations", "Sources", "Routes", "Sign out", "Dark"]),
    ("pt-BR", &["Visão geral", "Fila de falhas", "Conversas", "Origens", "Rotas", "Escuro"]),
    ("es", &["Resumen", "Entregas fallidas", "Conversaciones", "Orígenes", "Rutas", "Oscuro"]),
];

/// The language of a page and its texts, without those marked as another language and without
/// external data.
const PAGE_TEXTS: &str = "const excluded = '[lang]:not(html), script, pre, code, .mono, .verbatim, textarea';
    const texts = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    while (walker.nextNode()) {
        const node = walker.currentNode;
        if ((node.parentElement ?? node).closest(excluded)) continue;
        if (node.nodeType === Node.TEXT_NODE) texts.add(node.data.trim());
        else for (const name of ['aria-label', 'title', 'alt']) texts.add(node.getAttribute(name) ?? '');
    }
    return [document.documentElement.lang, [...texts]]";

/// Words that exist only in English.
const ENGLISH: [&str; 12] =
    ["the", "of", "is", "to", "and", "was", "what", "with", "are", "it", "this", "not"];

fn is_english(text: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_alphabetic());
    words.any(|word| ENGLISH.contains(&word.to_lowercase().as_str()))
}

async fn assert_language(browser: &Browser, tag: &str, path: &str) {
    let texts = browser.run(PAGE_TEXTS, &[]).await;
    assert_eq!(texts[0], tag, "{path}");
    let texts: Vec<&str> =
        texts[1].as_array().unwrap().iter().filter_map(|text| text.as_str()).collect();
    for (other, words) in WORDS {
        for word in words {
            assert_eq!(
                texts.contains(word),
                other == tag,
                "{word:?} of {other} on {path}: {texts:?}"
            );
        }
    }
    let english: Vec<_> = texts.iter().filter(|text| is_english(text)).collect();
    assert_eq!(english.is_empty(), tag != "en", "{path}: {english:?}");
}

#[tokio::test]
async fn every_page_uses_the_browser_language_or_the_selected_one() {
    if !Tool::Browser.is_available() {
        return;
    }
    let populated = populated_gateway::start().await;
    let gateway = &populated.gateway;
    // The first preferred language does not exist, the second one does.
    for (languages, tag) in [("fr,es-MX,en", "es"), ("pt-PT,en", "pt-BR")] {
        let browser = Browser::builder().languages(languages).start().await;
        browser.open(&gateway.url("/login")).await;
        let lang = browser.run("return document.documentElement.lang", &[]).await;
        assert_eq!(lang, tag, "{languages}");
        sign_in(&browser, gateway).await;
        assert_language(&browser, tag, "/").await;
        browser.assert_no_console_errors().await;
    }
    let browser = Browser::builder().languages("fr").start().await;
    sign_in(&browser, gateway).await;
    assert_language(&browser, "en", "/").await;
    for chosen in ["pt-BR", "es"] {
        browser.open(&gateway.url("/events?q=source:shop")).await;
        browser.click(&format!("select[name=lang] option[value='{chosen}']")).await;
        wait_for_page(&browser, &format!("document.documentElement.lang === '{chosen}'")).await;
        // The page stays the same.
        assert_eq!(browser.url().await, gateway.url("/events?q=source:shop"));
        for path in &populated.pages {
            browser.open(&gateway.url(path)).await;
            assert_language(&browser, chosen, path).await;
        }
    }
    browser.assert_no_console_errors().await;
}

/// The theme in the HTML of the server, and whether the visible page is dark.
const THEME: &str = "const done = arguments[0];
    const lightness = color => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(Number);
        return (r + g + b) / (color.includes('srgb') ? 3 : 765);
    };
    const style = getComputedStyle(document.body);
    const html = getComputedStyle(document.documentElement);
    const background = [style, html].find(element => element.backgroundColor !== 'rgba(0, 0, 0, 0)');
    fetch(location.href).then(response => response.text()).then(text => done([
        text.match(/data-theme=\"(\\w*)\"/)[1],
        lightness(background.backgroundColor) < lightness(style.color),
    ]))";

#[tokio::test]
async fn theme_follows_the_system_until_one_is_selected() {
    if !Tool::Browser.is_available() {
        return;
    }
    let sample = sample_gateway::start().await;
    let gateway = &sample.gateway;
    let browser = Browser::builder().scheme(ColorScheme::Dark).start().await;
    browser.open(&gateway.url("/login")).await;
    assert_eq!(browser.run_async(THEME, &[]).await[1], true, "login page");
    sign_in(&browser, gateway).await;
    for (scheme, is_dark) in [(ColorScheme::Dark, true), (ColorScheme::Light, false)] {
        browser.set_color_scheme(scheme).await;
        browser.open(&gateway.url("/dead-letters")).await;
        assert_eq!(browser.run_async(THEME, &[]).await, json!(["system", is_dark]));
    }
    // The selected theme wins over the system on every page. It is in the HTML of the server, so that
    // the page does not flash.
    for (chosen, system) in [("dark", ColorScheme::Light), ("light", ColorScheme::Dark)] {
        browser.set_color_scheme(system).await;
        browser.click(&format!("select[name=theme] option[value={chosen}]")).await;
        wait_for_page(&browser, &format!("document.documentElement.dataset.theme === '{chosen}'"))
            .await;
        for path in ["/dead-letters", "/", "/events", "/settings"] {
            browser.open(&gateway.url(path)).await;
            let theme = browser.run_async(THEME, &[]).await;
            assert_eq!(theme, json!([chosen, chosen == "dark"]), "{path}");
        }
    }
    browser.assert_no_console_errors().await;
}
