//! axe-core, which checks pages for accessibility problems.

use std::fmt;

use serde_json::{Value, json};

use super::{super::tools::vendor_file, Browser};

/// WCAG 2.2 up to AA.
const TAGS: [&str; 5] = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

const RUN: &str = r"
    const [tags, done] = arguments;
    axe.run(document, { runOnly: { type: 'tag', values: tags }, resultTypes: ['violations'] })
        .then(found => done(found.violations), error => done(String(error)));
";

/// A rule that the page breaks, with every element that breaks it.
#[derive(Clone, Debug)]
pub(crate) struct AxeViolation {
    pub(crate) rule: String,
    pub(crate) impact: String,
    help: String,
    /// As HTML.
    pub(crate) elements: Vec<String>,
}

impl fmt::Display for AxeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.rule, self.impact, self.help)?;
        self.elements.iter().try_for_each(|html| write!(f, "\n    {html}"))
    }
}

/// Finds serious and critical violations on the current page.
pub(crate) async fn axe(browser: &Browser) -> Vec<AxeViolation> {
    // The script is large: load it once per page.
    if browser.run("return typeof window.axe", &[]).await == "undefined" {
        let source = std::fs::read_to_string(vendor_file("node/node_modules/axe-core/axe.min.js"));
        browser.run(&source.unwrap(), &[]).await;
    }
    let results = browser.run_async(RUN, &[json!(TAGS)]).await;
    let results = results.as_array().unwrap_or_else(|| panic!("axe: {results}"));
    let text = |part: &Value| part.as_str().unwrap_or_default().to_owned();
    let violations = results.iter().map(|violation| AxeViolation {
        rule: text(&violation["id"]),
        impact: text(&violation["impact"]),
        help: text(&violation["help"]),
        elements: violation["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| text(&node["html"]))
            .collect(),
    });
    violations
        .filter(|violation| matches!(violation.impact.as_str(), "serious" | "critical"))
        .collect()
}

/// Fails if the page has serious or critical violations.
pub(crate) async fn assert_accessible(browser: &Browser) {
    let violations: Vec<String> = axe(browser).await.iter().map(AxeViolation::to_string).collect();
    assert!(violations.is_empty(), "{}:\n{}", browser.url().await, violations.join("\n"));
}
