//! The filter bar: what somebody types, what the API is asked, and the chips below it.
//!
//! A filter is a line of words: `status:dead source:shop since:1h`, with quotes around what has blanks.
//! A parse_term without a name is a text to be found. All of it is in the address of the page, as `q`.

use surehook_core::time::{HumanDuration, Timestamp};

use crate::{
    client::{ApiError, ApiPath, percent_encode},
    lang::fill,
    translations::CommonTexts,
};

/// One parse_term of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterTerm {
    /// What it is about; empty for a text to be found.
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FilterTerm {
    /// As it is written in the bar.
    pub(crate) fn text(&self) -> String {
        let is_odd = |c: char| c.is_whitespace() || c == '"' || c == '\\';
        let looks_named = self.name.is_empty() && self.value.contains(':');
        let value = if self.value.is_empty() || self.value.contains(is_odd) || looks_named {
            format!("\"{}\"", self.value.replace('\\', "\\\\").replace('"', "\\\""))
        } else {
            self.value.clone()
        };
        if self.name.is_empty() { value } else { format!("{}:{value}", self.name) }
    }
}

/// All words of a filter; they hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterQuery {
    pub(crate) terms: Vec<FilterTerm>,
}

impl FilterQuery {
    /// Reads what was typed. Everything is a filter: what has no name is a text to be found.
    pub(crate) fn parse(typed: &str) -> Self {
        let mut terms = Vec::new();
        let mut rest = typed.trim_start();
        while !rest.is_empty() {
            let (term, after) = parse_term(rest);
            if !(term.name.is_empty() && term.value.is_empty()) {
                terms.push(term);
            }
            rest = after.trim_start();
        }
        Self { terms }
    }

    /// As it is written in the bar.
    pub(crate) fn text(&self) -> String {
        self.terms.iter().map(FilterTerm::text).collect::<Vec<_>>().join(" ")
    }

    /// The filter without one of its words.
    fn without(&self, at: usize) -> Self {
        let kept = self.terms.iter().enumerate().filter(|(other, _)| *other != at);
        Self { terms: kept.map(|(_, term)| term.clone()).collect() }
    }

    /// The filter with times instead of how long ago: it means the same whenever it is read again.
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

    /// The value of the first parse_term with that name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let found = self.terms.iter().find(|term| term.name == name);
        found.map(|term| term.value.as_str())
    }

    /// The words with a name, and all others as one text: nobody asks for two.
    fn merge_text_terms(&self) -> Vec<FilterTerm> {
        let (texts, mut asked): (Vec<_>, Vec<_>) =
            self.terms.iter().cloned().partition(|term| term.name.is_empty());
        let texts: Vec<String> = texts.into_iter().map(|term| term.value).collect();
        if !texts.is_empty() {
            asked.push(FilterTerm { name: String::new(), value: texts.join(" ") });
        }
        asked
    }

    /// The parameters of the API, with their values. `known` has each name of the bar with the
    /// parameter of the API; the name `""` is a text to be found, and a name that ends in `.` stands
    /// for all that begin with it. The error is the parse_term that nobody knows.
    pub(crate) fn api_parameters(
        &self,
        known: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<Vec<(String, String)>, String> {
        let parameter = |term: &FilterTerm| {
            let is_prefix = |name: &str| name.ends_with('.') && term.name.starts_with(name);
            let found = known.iter().find(|(name, _)| *name == term.name || is_prefix(name));
            let (name, parameter) = found.ok_or_else(|| term.text())?;
            let parameter = if is_prefix(name) { &term.name } else { *parameter };
            let value = match parameter {
                "since" | "until" => resolve_time(&term.value, now).ok_or_else(|| term.text())?,
                _ => term.value.clone(),
            };
            Ok((parameter.to_owned(), value))
        };
        self.merge_text_terms().iter().map(parameter).collect()
    }

    /// What the API is asked for; see [`Self::api_parameters`].
    pub(crate) fn apply_to(
        &self,
        address: ApiPath,
        known: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<ApiPath, String> {
        let parameters = self.api_parameters(known, now)?;
        Ok(parameters.iter().fold(address, |address, (name, value)| address.with(name, value)))
    }
}

/// A time, or how long ago it was: `2026-11-15T10:00:00Z`, `90m`, `7d`.
fn resolve_time(text: &str, now: Timestamp) -> Option<String> {
    if let Ok(span) = text.parse::<HumanDuration>() {
        return Some((now - span.0).to_string());
    }
    text.parse::<Timestamp>().ok().map(|at| at.to_string())
}

/// Takes the first parse_term off a text that begins with one.
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
    // Nobody closed it: all of the rest was meant.
    (value, "")
}

/// A parse_term of the filter, and the page without it.
pub(crate) struct FilterChip {
    pub(crate) text: String,
    pub(crate) without: String,
    pub(crate) label: String,
}

/// The filter bar as a page shows it: `parts/filter.html` wants it as `bar`.
pub(crate) struct FilterBar {
    /// The page itself.
    pub(crate) path: String,
    pub(crate) typed: String,
    pub(crate) chips: Vec<FilterChip>,
    /// Names that one may type, with their colon.
    pub(crate) known: Vec<String>,
    pub(crate) example: &'static str,
    pub(crate) problem: Option<String>,
    /// The problem is in the words of the API, which are English.
    pub(crate) is_foreign: bool,
}

impl FilterBar {
    /// Says why the API did not take the filter.
    pub(crate) fn set_api_error(&mut self, error: ApiError) {
        self.problem = Some(error.detail);
        self.is_foreign = true;
    }

    pub(crate) fn new(
        path: &str,
        filter: &FilterQuery,
        known: &[(&str, &str)],
        example: &'static str,
        c: &CommonTexts,
    ) -> Self {
        let chip = |(at, term): (usize, &FilterTerm)| {
            let rest = filter.without(at).text();
            let without = if rest.is_empty() {
                path.to_owned()
            } else {
                format!("{path}?q={}", percent_encode(&rest))
            };
            let text = term.text();
            FilterChip { label: fill(c.remove, &[&text]), text, without }
        };
        Self {
            path: path.to_owned(),
            typed: filter.text(),
            chips: filter.terms.iter().enumerate().map(chip).collect(),
            known: known
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(
                    |(name, _)| {
                        if name.ends_with('.') { (*name).to_owned() } else { format!("{name}:") }
                    },
                )
                .collect(),
            example,
            problem: None,
            is_foreign: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(name: &str, value: &str) -> FilterTerm {
        FilterTerm { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn a_line_is_read_as_it_is_meant() {
        for (typed, expected) in [
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
            assert_eq!(FilterQuery::parse(typed).terms, expected, "case: {typed}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (name, value) in
            [("key", "a b"), ("", "a:b"), ("", "\"\\"), ("key", ""), ("", "não"), ("x", "a\tb")]
        {
            let filter = FilterQuery { terms: vec![term(name, value), term("status", "dead")] };
            assert_eq!(FilterQuery::parse(&filter.text()), filter, "case: {name} {value}");
        }
    }

    #[test]
    fn a_filter_means_the_same_later_once_its_times_are_pinned() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let later = Timestamp::from_millis(1_800_000_009_000);
        let known =
            [("since", "since"), ("until", "until"), ("dest", "destination"), ("", "search")];
        let asked = |filter: &FilterQuery, at| filter.api_parameters(&known, at).unwrap();
        for typed in ["since:1h dest:crm", "since:2d until:1d", "dest:crm text", ""] {
            let filter = FilterQuery::parse(typed);
            let with_absolute_times = FilterQuery::parse(&filter.with_absolute_times(now).text());
            assert_eq!(asked(&with_absolute_times, later), asked(&filter, now), "case: {typed}");
        }
    }

    #[test]
    fn a_word_that_nobody_knows_is_named() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let known = [("status", "status"), ("since", "since"), ("body.", ""), ("", "search")];
        let ask = |typed: &str| {
            FilterQuery::parse(typed).apply_to(ApiPath::new(&["events"]), &known, now)
        };
        assert_eq!(ask("colour:red").unwrap_err(), "colour:red");
        assert_eq!(ask("since:later").unwrap_err(), "since:later");
        let found = ask("two status:dead words").map(|address| format!("{address:?}"));
        assert!(found.unwrap().contains("search=two%20words"));
        for good in ["status:dead since:1h", "since:2026-11-15T10:00:00Z", "body.a.b:1 text"] {
            assert!(ask(good).is_ok(), "case: {good}");
        }
    }
}
