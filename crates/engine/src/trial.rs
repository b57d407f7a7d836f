//! Tries a filter and a transform on a body, as a route would use them. Changes and sends nothing.

use http::HeaderMap;
use surehook_webhooks::jq::{JqError, JqFilter};

use crate::routing;

/// What a route with this filter and transform would do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RouteTrialResult {
    /// `None` without a filter, and when it failed.
    pub matches: Option<bool>,
    /// Why the filter is invalid or failed.
    pub filter_error: Option<String>,
    /// The transformed body.
    pub output: Option<String>,
    /// The transform has no output: the event would be dropped.
    pub dropped: bool,
    /// Why the transform is invalid or failed.
    pub transform_error: Option<String>,
}

/// Tries the filter and the transform independently. Takes up to a fraction of a second: call it on a
/// blocking thread.
pub fn try_route(
    filter: Option<&str>,
    transform: Option<&str>,
    headers: &HeaderMap,
    body: &[u8],
    kind: Option<&str>,
) -> RouteTrialResult {
    let input = routing::json_input(headers, body);
    let mut trial = RouteTrialResult::default();
    match filter.map(JqFilter::compile).transpose() {
        Err(error) => trial.filter_error = Some(error.to_string()),
        Ok(None) => {}
        Ok(Some(filter)) => match routing::run_filter(&filter, input.as_ref(), kind) {
            Ok(matches) => trial.matches = Some(matches),
            Err(error) => trial.filter_error = Some(error.to_string()),
        },
    }
    let run = |transform: &JqFilter| routing::run_transform(transform, input.as_ref());
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

    fn try_texts(filter: &str, transform: &str, body: &str) -> RouteTrialResult {
        let given = |text: &'static str| Some(text).filter(|text| !text.is_empty());
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let (filter, transform) = (given(leak(filter)), given(leak(transform)));
        try_route(filter, transform, &HeaderMap::new(), body.as_bytes(), Some("paid"))
    }

    #[test]
    fn trial_reports_match_output_and_drop() {
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
            assert_eq!(
                try_texts(filter, transform, body),
                expected,
                "case: {filter} / {transform}"
            );
        }
    }

    #[test]
    fn filter_and_transform_errors_are_reported_separately() {
        let body = r#"{"a":"x"}"#;
        for (filter, transform, body, filter_error, transform_error) in [
            (".a |", ".a +", body, Some("line 1, column"), Some("line 1, column")),
            ("nope", "", body, Some("there is no filter `nope`"), None),
            ("", "$ENV", body, None, Some("line 1, column 1")),
            (".a.b", ".a.b", body, Some("the filter failed"), Some("the filter failed")),
            ("true", ".a, .a", body, None, Some("more than one output")),
            ("last(range(infinite))", "", body, Some("steps"), None),
            ("true", ".", "a=1", Some("not JSON"), Some("not JSON")),
        ] {
            let trial = try_texts(filter, transform, body);
            for (error, expected) in
                [(trial.filter_error, filter_error), (trial.transform_error, transform_error)]
            {
                let is_right = match (&error, expected) {
                    (Some(error), Some(expected)) => error.contains(expected),
                    (error, expected) => error.is_none() && expected.is_none(),
                };
                assert!(is_right, "case: {filter} / {transform}: {error:?}");
            }
        }
    }
}
