//! Tries a filter and a transform on a body, the way a route would use them. Nothing is changed and
//! nothing is sent.

use http::HeaderMap;
use surehook_core::jq::{JqError, JqFilter};

use crate::{routing, transform};

/// What a route would do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RouteTrialResult {
    /// Whether the filter takes the event; `None` without a filter, and when it failed.
    pub matches: Option<bool>,
    /// Why the filter cannot be used, or failed.
    pub filter_error: Option<String>,
    /// What the transform makes of the body.
    pub output: Option<String>,
    /// The transform has no output: the event would be dropped.
    pub dropped: bool,
    /// Why the transform cannot be used, or failed.
    pub transform_error: Option<String>,
}

/// Tries both, each by itself. Takes up to a fraction of a second: not for a thread that others wait
/// for.
pub fn try_route(
    filter: Option<&str>,
    transform: Option<&str>,
    (headers, body): (&HeaderMap, &[u8]),
    kind: Option<&str>,
) -> RouteTrialResult {
    let input = transform::json(headers, body);
    let mut trial = RouteTrialResult::default();
    match filter.map(JqFilter::compile).transpose() {
        Err(error) => trial.filter_error = Some(error.to_string()),
        Ok(None) => {}
        Ok(Some(filter)) => match routing::test(&filter, input.as_ref(), kind) {
            Ok(matches) => trial.matches = Some(matches),
            Err(fault) => trial.filter_error = Some(fault.to_string()),
        },
    }
    let run = |transform: &JqFilter| transform::run(transform, input.as_ref());
    match transform
        .map(|text| JqFilter::compile(text).as_ref().map_err(JqError::to_string).and_then(run))
    {
        None => {}
        Some(Err(error)) => trial.transform_error = Some(error),
        Some(Ok(None)) => trial.dropped = true,
        Some(Ok(Some(output))) => {
            trial.output = Some(String::from_utf8_lossy(&output).into_owned());
        }
    }
    trial
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(filter: &str, transform: &str, body: &str) -> RouteTrialResult {
        let given = |text: &'static str| Some(text).filter(|text| !text.is_empty());
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let headers = HeaderMap::new();
        let body = (&headers, body.as_bytes());
        try_route(given(leak(filter)), given(leak(transform)), body, Some("paid"))
    }

    #[test]
    fn a_trial_says_what_a_route_would_do() {
        let big = r#"{"a":9007199254740993}"#;
        let nothing = RouteTrialResult::default();
        let matched =
            |matches| RouteTrialResult { matches: Some(matches), ..RouteTrialResult::default() };
        let output = |text: &str| RouteTrialResult {
            output: Some(text.to_owned()),
            ..RouteTrialResult::default()
        };
        for (filter, transform, body, expected) in [
            ("", "", big, nothing),
            (".a > 1", "", big, matched(true)),
            (".a < 1", "", big, matched(false)),
            // Filters see the kind where the body has no type; transforms do not.
            (".type == \"paid\"", "", big, matched(true)),
            ("", ".type", big, output("null")),
            ("", "{b: (.a + 1)}", big, output(r#"{"b":9007199254740994}"#)),
            ("", "empty", big, RouteTrialResult { dropped: true, ..RouteTrialResult::default() }),
            (
                ".a < 1",
                ".a",
                big,
                RouteTrialResult { matches: Some(false), ..output("9007199254740993") },
            ),
        ] {
            assert_eq!(tried(filter, transform, body), expected, "case: {filter} / {transform}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_for_each_by_itself() {
        let body = r#"{"a":"x"}"#;
        for (filter, transform, body, filter_says, transform_says) in [
            (".a |", ".a +", body, Some("line 1, column"), Some("line 1, column")),
            ("nope", "", body, Some("there is no filter `nope`"), None),
            ("", "$ENV", body, None, Some("line 1, column 1")),
            (".a.b", ".a.b", body, Some("the filter failed"), Some("the filter failed")),
            ("true", ".a, .a", body, None, Some("more than one output")),
            ("last(range(infinite))", "", body, Some("steps"), None),
            ("true", ".", "a=1", Some("not JSON"), Some("not JSON")),
        ] {
            let trial = tried(filter, transform, body);
            for (said, expected) in
                [(trial.filter_error, filter_says), (trial.transform_error, transform_says)]
            {
                let is_right = match (&said, expected) {
                    (Some(said), Some(expected)) => said.contains(expected),
                    (said, expected) => said.is_none() && expected.is_none(),
                };
                assert!(is_right, "case: {filter} / {transform}: {said:?}");
            }
        }
    }
}
