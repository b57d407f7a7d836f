//! Elements by CSS. What a page swaps in later is waited for.

use serde_json::{Value, json};

use super::{
    super::{WAIT_LIMIT, eventually},
    Browser,
    webdriver::WebDriverError,
};

/// The name under which `WebDriver` hands out elements.
const REFERENCE: &str = "element-6066-11e4-a52e-4f735466cecf";

/// An element of the page that was open when it was found.
#[derive(Debug)]
pub(crate) struct Element<'a> {
    browser: &'a Browser,
    id: String,
}

impl Element<'_> {
    /// The text that a person sees of it.
    pub(crate) async fn text(&self) -> String {
        self.ask("GET", "/text", &Value::Null).await.unwrap().as_str().unwrap().to_owned()
    }

    /// What the page wrote as an attribute, or set as the property of that name.
    pub(crate) async fn attribute(&self, name: &str) -> Option<String> {
        let found = self.ask("GET", &format!("/attribute/{name}"), &Value::Null).await.unwrap();
        found.as_str().map(str::to_owned)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, WebDriverError> {
        self.browser.session.call(method, &format!("/element/{}{path}", self.id), body).await
    }
}

impl Browser {
    /// The first element of this kind, as soon as there is one.
    #[track_caller]
    pub(crate) fn find(&self, css: &str) -> impl Future<Output = Element<'_>> {
        eventually(WAIT_LIMIT, move || async move { self.find_all(css).await.into_iter().next() })
    }

    /// All that are there now.
    pub(crate) async fn find_all(&self, css: &str) -> Vec<Element<'_>> {
        let body = json!({ "using": "css selector", "value": css });
        match self.session.call("POST", "/elements", &body).await {
            Ok(found) => found
                .as_array()
                .unwrap()
                .iter()
                .map(|one| Element {
                    browser: self,
                    id: one[REFERENCE].as_str().unwrap().to_owned(),
                })
                .collect(),
            Err(refusal) if refusal.error == "invalid selector" => panic!("{refusal:?}"),
            // The page is just being left.
            Err(_) => Vec::new(),
        }
    }

    /// The text of the first element of this kind.
    #[track_caller]
    pub(crate) fn text(&self, css: &str) -> impl Future<Output = String> {
        let asked = self.act(css, "GET", "/text", Value::Null);
        async { asked.await.as_str().unwrap().to_owned() }
    }

    /// Clicks in the middle of the first element of this kind, once a click there reaches it.
    #[track_caller]
    pub(crate) fn click(&self, css: &str) -> impl Future<Output = ()> {
        let clicked = self.act(css, "POST", "/click", json!({}));
        async { drop(clicked.await) }
    }

    /// Types into the first field of this kind, after what is there.
    #[track_caller]
    pub(crate) fn type_into(&self, css: &str, text: &str) -> impl Future<Output = ()> {
        let typed = self.act(css, "POST", "/value", json!({ "text": text }));
        async { drop(typed.await) }
    }

    /// Empties a field.
    #[track_caller]
    pub(crate) fn clear(&self, css: &str) -> impl Future<Output = ()> {
        let cleared = self.act(css, "POST", "/clear", json!({}));
        async { drop(cleared.await) }
    }

    /// Presses keys wherever the focus is; see [`super::key`] for those that are no letters.
    pub(crate) async fn keys(&self, keys: &str) {
        let press = |action: &str, key: char| json!({ "type": action, "value": key.to_string() });
        let shift = super::key::SHIFT.chars().next().unwrap();
        let mut actions = Vec::new();
        let mut held = false;
        for key in keys.chars() {
            actions.push(press("keyDown", key));
            // The shift key is held for the key after it.
            if key == shift {
                held = true;
                continue;
            }
            actions.push(press("keyUp", key));
            if std::mem::take(&mut held) {
                actions.push(press("keyUp", shift));
            }
        }
        let body = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] });
        self.session.execute("POST", "/actions", &body).await;
    }

    /// Does something with the first element of this kind, again while it is not there, covered,
    /// or was replaced between finding and doing.
    #[track_caller]
    fn act(
        &self,
        css: &str,
        method: &'static str,
        path: &'static str,
        body: Value,
    ) -> impl Future<Output = Value> {
        let asked_at = std::panic::Location::caller();
        async move {
            let begun = std::time::Instant::now();
            let mut last = None;
            loop {
                if let Some(element) = self.find_all(css).await.into_iter().next() {
                    match element.ask(method, path, &body).await {
                        Ok(answer) => return answer,
                        Err(refusal) => last = Some(refusal),
                    }
                }
                assert!(
                    begun.elapsed() < WAIT_LIMIT,
                    "{method} {path} of {css:?} in vain, asked at {asked_at}: {last:?}"
                );
                tokio::time::sleep(super::super::POLL_INTERVAL).await;
            }
        }
    }
}
