//! What a page tells on the console: errors, what its content security policy forbade, and whether
//! foreign code ran. The console outlives the page, so nothing is lost when the browser goes on.

use std::fmt;

use serde_json::{Value, json};

use super::Browser;

/// Runs in every page before anything of its own does.
const WATCH: &str = r#"
    addEventListener('securitypolicyviolation', event => console.error('forbidden by policy: '
        + event.effectiveDirective + ' ' + event.blockedURI + ' ' + event.sample));
    Object.defineProperty(window, '__xss', {
        configurable: false,
        get: () => undefined,
        set: value => console.error('foreign code ran: ' + value),
    });
"#;

/// One line of the console.
#[derive(Clone, Debug)]
pub(crate) struct ConsoleEntry {
    pub(crate) level: String,
    /// Who told it, such as `network`, `security` or `console-api`.
    pub(crate) source: String,
    pub(crate) text: String,
}

impl ConsoleEntry {
    fn is_error(&self) -> bool {
        self.level == "SEVERE"
    }
}

impl fmt::Display for ConsoleEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.level, self.source, self.text)
    }
}

impl Browser {
    /// Watches over every page from now on.
    pub(super) async fn install_console_watch(&self) {
        let script = json!({ "source": WATCH });
        self.cdp("Page.addScriptToEvaluateOnNewDocument", script).await;
    }

    /// Everything that the console was told since the browser started.
    pub(crate) async fn console(&self) -> Vec<ConsoleEntry> {
        let new = self.session.execute("POST", "/se/log", &json!({ "type": "browser" })).await;
        let text = |entry: &Value, part: &str| entry[part].as_str().unwrap_or_default().to_owned();
        let new = new.as_array().unwrap().iter().map(|entry| ConsoleEntry {
            level: text(entry, "level"),
            source: text(entry, "source"),
            text: text(entry, "message"),
        });
        let mut all = self.console.lock().unwrap();
        all.extend(new);
        all.clone()
    }

    /// What the content security policy of any page forbade.
    pub(crate) async fn policy_violations(&self) -> Vec<ConsoleEntry> {
        self.entries_containing("forbidden by policy: ").await
    }

    /// What set `window.__xss` in any page; the payloads of `support::xss` do.
    pub(crate) async fn foreign_code_reports(&self) -> Vec<ConsoleEntry> {
        self.entries_containing("foreign code ran: ").await
    }

    async fn entries_containing(&self, what: &str) -> Vec<ConsoleEntry> {
        self.console().await.into_iter().filter(|entry| entry.text.contains(what)).collect()
    }

    /// Fails unless all pages were without errors: none of JavaScript, nothing forbidden, no answer
    /// of 400 and above, no dialog, no foreign code.
    pub(crate) async fn assert_no_console_errors(&self) {
        self.assert_no_console_errors_except(&[]).await;
    }

    /// The same, but for errors with one of these texts in them: `status of 422`.
    pub(crate) async fn assert_no_console_errors_except(&self, expected: &[&str]) {
        // Meets a dialog, which the console does not tell of.
        self.run("return 1", &[]).await;
        let is_expected =
            |entry: &ConsoleEntry| expected.iter().any(|expected| entry.text.contains(expected));
        let errors: Vec<String> = self
            .console()
            .await
            .iter()
            .filter(|entry| entry.is_error() && !is_expected(entry))
            .map(ConsoleEntry::to_string)
            .collect();
        assert!(errors.is_empty(), "the console was told:\n{}", errors.join("\n"));
    }
}
