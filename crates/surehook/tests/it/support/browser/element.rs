//! Elements by CSS selector. Elements that a page adds later are waited for.

use serde_json::{Value, json};

use super::{
    super::{WAIT_LIMIT, eventually},
    Browser,
    webdriver::WebDriverError,
};

/// The field name of element references in `WebDriver`.
const REFERENCE: &str = "element-6066-11e4-a52e-4f735466cecf";

#[derive(Debug)]
pub(crate) struct Element<'a> {
    browser: &'a Browser,
    id: String,
}

impl Element<'_> {
    /// The visible text.
    pub(crate) async fn text(&self) -> String {
        self.call("GET", "/text", &Value::Null).await.unwrap().as_str().unwrap().to_owned()
    }

    /// The attribute or property of this name.
    pub(crate) async fn attribute(&self, name: &str) -> Option<String> {
        let value = self.call("GET", &format!("/attribute/{name}"), &Value::Null).await.unwrap();
        value.as_str().map(str::to_owned)
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, WebDriverError> {
        self.browser.session.call(method, &format!("/element/{}{path}", self.id), body).await
    }
}

impl Browser {
    /// Waits for the first matching element.
    #[track_caller]
    pub(crate) fn find(&self, css: &str) -> impl Future<Output = Element<'_>> {
        eventually(WAIT_LIMIT, move || async move { self.find_all(css).await.into_iter().next() })
    }

    /// All matching elements at this moment.
    pub(crate) async fn find_all(&self, css: &str) -> Vec<Element<'_>> {
        let body = json!({ "using": "css selector", "value": css });
        match self.session.call("POST", "/elements", &body).await {
            Ok(element) => element
                .as_array()
                .unwrap()
                .iter()
                .map(|one| Element {
                    browser: self,
                    id: one[REFERENCE].as_str().unwrap().to_owned(),
                })
                .collect(),
            Err(error) if error.code == "invalid selector" => panic!("{error:?}"),
            // The page is being left.
            Err(_) => Vec::new(),
        }
    }

    /// The text of the first matching element.
    #[track_caller]
    pub(crate) fn text(&self, css: &str) -> impl Future<Output = String> {
        let request = self.act(css, "GET", "/text", Value::Null);
        async { request.await.as_str().unwrap().to_owned() }
    }

    /// Clicks the first matching element as soon as it can be clicked.
    #[track_caller]
    pub(crate) fn click(&self, css: &str) -> impl Future<Output = ()> {
        let clicked = self.act(css, "POST", "/click", json!({}));
        async { drop(clicked.await) }
    }

    /// Types into the first matching field, after its current text.
    #[track_caller]
    pub(crate) fn type_into(&self, css: &str, text: &str) -> impl Future<Output = ()> {
        let typing = self.act(css, "POST", "/value", json!({ "text": text }));
        async { drop(typing.await) }
    }

    /// Empties a field.
    #[track_caller]
    pub(crate) fn clear(&self, css: &str) -> impl Future<Output = ()> {
        let cleared = self.act(css, "POST", "/clear", json!({}));
        async { drop(cleared.await) }
    }

    /// Presses keys in the focused element; [`super::key`] has the special keys.
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

    /// Runs an action on the first matching element. Repeats it while the element is missing, covered,
    /// or was replaced in between.
    #[track_caller]
    fn act(
        &self,
        css: &str,
        method: &'static str,
        path: &'static str,
        body: Value,
    ) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let started = std::time::Instant::now();
            let mut last = None;
            loop {
                if let Some(element) = self.find_all(css).await.into_iter().next() {
                    match element.call(method, path, &body).await {
                        Ok(value) => return value,
                        Err(error) => last = Some(error),
                    }
                }
                assert!(
                    started.elapsed() < WAIT_LIMIT,
                    "{method} {path} of {css:?} failed, called at {caller}: {last:?}"
                );
                tokio::time::sleep(super::super::POLL_INTERVAL).await;
            }
        }
    }
}
