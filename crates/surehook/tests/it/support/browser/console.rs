//! The console of the browser: errors, violations of the content security policy, and foreign code
//! that ran. The console outlives a page, so nothing is lost when the browser opens the next one.

use std::fmt;

use serde_json::{Value, json};

use super::Browser;

/// Runs in every page before its own scripts.
const WATCH: &str = r#"
    addEventListener('securitypolicyviolation', event => console.error('forbidden by policy: '
        + event.effectiveDirective + ' ' + event.blockedURI + ' ' + event.sample));
    Object.defineProperty(window, '__xss', {
        configurable: false,
        get: () => undefined,
        set: value => console.error('foreign code ran: ' + value),
    });
"#;

#[derive(Clone, Debug)]
pub(crate) struct ConsoleEntry {
    pub(crate) level: String,
    /// Such as `network`, `security` or `console-api`.
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
    /// Installs the watching script in every page opened from now on.
    pub(super) async fn install_console_watch(&self) {
        let script = json!({ "source": WATCH });
        self.cdp("Page.addScriptToEvaluateOnNewDocument", script).await;
    }

    /// All console entries since the browser started.
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

    /// Violations of the content security policy of any page.
    pub(crate) async fn policy_violations(&self) -> Vec<ConsoleEntry> {
        self.entries_containing("forbidden by policy: ").await
    }

    /// Code that set `window.__xss` in any page, as the payloads of `support::xss` do.
    pub(crate) async fn foreign_code_reports(&self) -> Vec<ConsoleEntry> {
        self.entries_containing("foreign code ran: ").await
    }

    async fn entries_containing(&self, text: &str) -> Vec<ConsoleEntry> {
        self.console().await.into_iter().filter(|entry| entry.text.contains(text)).collect()
    }

    /// Fails if any page had an error: a JavaScript exception, a policy violation, a response of 400
    /// and above, a dialog, or foreign code.
    pub(crate) async fn assert_no_console_errors(&self) {
        self.assert_no_console_errors_except(&[]).await;
    }

    /// Like [`Self::assert_no_console_errors`], but ignores errors that contain one of these texts, such
    /// as `status of 422`.
    pub(crate) async fn assert_no_console_errors_except(&self, expected: &[&str]) {
        // Fails if a dialog is open, which the console does not report.
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
        assert!(errors.is_empty(), "errors on the console:\n{}", errors.join("\n"));
    }
}
