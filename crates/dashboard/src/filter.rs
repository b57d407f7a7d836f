//! The filter bar: parsing of the typed filter, its API parameters, and the chips below the bar.
//!
//! A filter is a list of terms: `status:dead source:shop since:1h`. Values with spaces are quoted. A
//! term without a name is a text search. The whole filter is in the query of the page, as `q`.

use surehook_api::{ApiCall, percent_encode};
use surehook_types::time::{HumanDuration, Timestamp};

use crate::{client::ApiError, lang::fill, translations::CommonTexts};

/// Filter names that the API calls differently.
const ALIASES: [(&str, &str); 3] =
    [("dest", "destination"), ("message", "message_id"), ("", "search")];

/// The names as typed in the bar.
pub(crate) fn list_names(filters: &[&str]) -> Vec<String> {
    let named = filters.iter().filter(|name| !name.is_empty());
    named
        .map(|name| if name.ends_with('.') { (*name).to_owned() } else { format!("{name}:") })
        .collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterTerm {
    /// Empty for a text search.
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FilterTerm {
    /// Formats the term as typed in the bar, with quotes where they are needed.
    pub(crate) fn text(&self) -> String {
        let needs_quotes = |c: char| c.is_whitespace() || c == '"' || c == '\\';
        let looks_named = self.name.is_empty() && self.value.contains(':');
        let value = if self.value.is_empty() || self.value.contains(needs_quotes) || looks_named {
            format!("\"{}\"", self.value.replace('\\', "\\\\").replace('"', "\\\""))
        } else {
            self.value.clone()
        };
        if self.name.is_empty() { value } else { format!("{}:{value}", self.name) }
    }
}

/// The terms of a filter. All of them must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterQuery {
    pub(crate) terms: Vec<FilterTerm>,
}

impl FilterQuery {
    /// Parses a typed filter. Never fails: text without a name becomes a search term.
    pub(crate) fn parse(text: &str) -> Self {
        let mut terms = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (term, after) = parse_term(rest);
            if !(term.name.is_empty() && term.value.is_empty()) {
                terms.push(term);
            }
            rest = after.trim_start();
        }
        Self { terms }
    }

    pub(crate) fn text(&self) -> String {
        self.terms.iter().map(FilterTerm::text).collect::<Vec<_>>().join(" ")
    }

    fn without(&self, index: usize) -> Self {
        let others = self.terms.iter().enumerate().filter(|(other, _)| *other != index);
        Self { terms: others.map(|(_, term)| term.clone()).collect() }
    }

    /// Replaces relative times by absolute ones, so that the filter selects the same events later.
    pub(crate) fn with_absolute_times(&self, now: Timestamp) -> Self {
        let absolute = |term: &FilterTerm| match term.name.as_str() {
            "since" | "until" => {
                let value = resolve_time(&term.value, now).unwrap_or_else(|| term.value.clone());
                FilterTerm { name: term.name.clone(), value }
            }
            _ => term.clone(),
        };
        Self { terms: self.terms.iter().map(absolute).collect() }
    }

    /// The value of the first term with this name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let found = self.terms.iter().find(|term| term.name == name);
        found.map(|term| term.value.as_str())
    }

    /// Joins all search terms into one: the API takes a single search text.
    fn merge_text_terms(&self) -> Vec<FilterTerm> {
        let (texts, mut terms): (Vec<_>, Vec<_>) =
            self.terms.iter().cloned().partition(|term| term.name.is_empty());
        let texts: Vec<String> = texts.into_iter().map(|term| term.value).collect();
        if !texts.is_empty() {
            terms.push(FilterTerm { name: String::new(), value: texts.join(" ") });
        }
        terms
    }

    /// The filter as API parameters. Among the names in `filters`, `""` is a text search, and one that ends in
    /// `.` matches every name with that prefix. The error is the first term that is unknown or has an
    /// invalid time.
    pub(crate) fn api_parameters(
        &self,
        filters: &[&str],
        now: Timestamp,
    ) -> Result<Vec<(String, String)>, String> {
        let parameter = |term: &FilterTerm| {
            let is_prefix = |name: &str| name.ends_with('.') && term.name.starts_with(name);
            if !filters.iter().any(|name| *name == term.name || is_prefix(name)) {
                return Err(term.text());
            }
            let alias = ALIASES.iter().find(|(name, _)| *name == term.name);
            let parameter = alias.map_or(term.name.as_str(), |(_, parameter)| parameter);
            let value = match parameter {
                "since" | "until" => resolve_time(&term.value, now).ok_or_else(|| term.text())?,
                _ => term.value.clone(),
            };
            Ok((parameter.to_owned(), value))
        };
        self.merge_text_terms().iter().map(parameter).collect()
    }

    /// Adds the filter to an API call; see [`Self::api_parameters`].
    pub(crate) fn apply_to<T>(
        &self,
        call: ApiCall<T>,
        filters: &[&str],
        now: Timestamp,
    ) -> Result<ApiCall<T>, String> {
        let parameters = self.api_parameters(filters, now)?;
        Ok(parameters.iter().fold(call, |call, (name, value)| call.query(name, value)))
    }
}

/// Converts an age (`90m`, `7d`) or a timestamp to a timestamp.
fn resolve_time(text: &str, now: Timestamp) -> Option<String> {
    if let Ok(duration) = text.parse::<HumanDuration>() {
        return Some((now - duration.0).to_string());
    }
    text.parse::<Timestamp>().ok().map(|at| at.to_string())
}

/// Parses the first term of a text and returns the rest.
fn parse_term(text: &str) -> (FilterTerm, &str) {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) if is_name(name) => (name, rest),
        _ => ("", text),
    };
    let (value, rest) = parse_value(rest);
    (FilterTerm { name: name.to_owned(), value }, rest)
}

fn parse_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, next)| next)),
            _ => value.push(c),
        }
    }
    // The closing quote is missing: take everything.
    (value, "")
}

/// A term of the filter, and the link that removes it.
pub(crate) struct FilterChip {
    pub(crate) text: String,
    pub(crate) remove_url: String,
    pub(crate) label: String,
}

/// The filter bar of a page; `parts/filter.html` expects it as `bar`.
pub(crate) struct FilterBar {
    pub(crate) path: String,
    pub(crate) typed: String,
    pub(crate) chips: Vec<FilterChip>,
    /// Available names, with their colon.
    pub(crate) filter_names: Vec<String>,
    pub(crate) example: &'static str,
    pub(crate) problem: Option<String>,
    /// The problem comes from the API, which is in English only.
    pub(crate) is_untranslated: bool,
}

impl FilterBar {
    /// Shows why the API rejected the filter.
    pub(crate) fn set_api_error(&mut self, error: ApiError) {
        self.problem = Some(error.detail);
        self.is_untranslated = true;
    }

    pub(crate) fn new(
        path: &str,
        filter: &FilterQuery,
        filters: &[&str],
        example: &'static str,
        c: &CommonTexts,
    ) -> Self {
        let chip = |(index, term): (usize, &FilterTerm)| {
            let rest = filter.without(index).text();
            let remove_url = if rest.is_empty() {
                path.to_owned()
            } else {
                format!("{path}?q={}", percent_encode(&rest))
            };
            let text = term.text();
            FilterChip { label: fill(c.remove, &[&text]), text, remove_url }
        };
        Self {
            path: path.to_owned(),
            typed: filter.text(),
            chips: filter.terms.iter().enumerate().map(chip).collect(),
            filter_names: list_names(filters),
            example,
            problem: None,
            is_untranslated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use surehook_api::calls::list_events;

    use super::*;

    fn term(name: &str, value: &str) -> FilterTerm {
        FilterTerm { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn typed_filter_is_parsed_into_terms() {
        for (text, expected) in [
            ("", vec![]),
            ("status:dead", vec![term("status", "dead")]),
            ("  a  b ", vec![term("", "a"), term("", "b")]),
            ("phone:\"+55 11 98765\" x", vec![term("phone", "+55 11 98765"), term("", "x")]),
            ("body.data.id:\"a \\\"b\\\"\"", vec![term("body.data.id", "a \"b\"")]),
            ("https://x.example/a", vec![term("https", "//x.example/a")]),
            ("\"https://x.example\"", vec![term("", "https://x.example")]),
            ("\"never closed", vec![term("", "never closed")]),
            ("key:a:b", vec![term("key", "a:b")]),
        ] {
            assert_eq!(FilterQuery::parse(text).terms, expected, "case: {text}");
        }
    }

    #[test]
    fn formatted_filter_parses_to_the_same_terms() {
        for (name, value) in
            [("key", "a b"), ("", "a:b"), ("", "\"\\"), ("key", ""), ("", "não"), ("x", "a\tb")]
        {
            let filter = FilterQuery { terms: vec![term(name, value), term("status", "dead")] };
            assert_eq!(FilterQuery::parse(&filter.text()), filter, "case: {name} {value}");
        }
    }

    #[test]
    fn filter_with_absolute_times_selects_the_same_later() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let later = Timestamp::from_millis(1_800_000_009_000);
        let known = ["since", "until", "dest", ""];
        let parameters = |filter: &FilterQuery, at| filter.api_parameters(&known, at).unwrap();
        for text in ["since:1h dest:crm", "since:2d until:1d", "dest:crm text", ""] {
            let filter = FilterQuery::parse(text);
            let absolute = FilterQuery::parse(&filter.with_absolute_times(now).text());
            assert_eq!(parameters(&absolute, later), parameters(&filter, now), "case: {text}");
        }
    }

    #[test]
    fn unknown_filter_term_is_reported() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let known = ["status", "since", "body.", ""];
        let apply = |text: &str| FilterQuery::parse(text).apply_to(list_events(), &known, now);
        assert_eq!(apply("colour:red").unwrap_err(), "colour:red");
        assert_eq!(apply("since:later").unwrap_err(), "since:later");
        let found = apply("two status:dead words").map(|address| format!("{address:?}"));
        assert!(found.unwrap().contains("search=two%20words"));
        for good in ["status:dead since:1h", "since:2026-11-15T10:00:00Z", "body.a.b:1 text"] {
            assert!(apply(good).is_ok(), "case: {good}");
        }
    }
}
