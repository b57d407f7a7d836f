//! Tries a filter and a transform on events, as a route would use them. Changes and sends nothing.

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_ENCODING};
use surehook_core::{
    event::Payload,
    source::SourceSpec,
    store::{AdminStore, Configuration, EventFilter, EventRow, PageRequest, StoredObject},
};
use surehook_types::{
    ids::SourceId,
    inflate,
    redact::{self, MASK, UnreadableBodyError},
    store_error::StoreError,
};
use surehook_webhooks::{
    attribute::EventKind,
    jq::{JqError, JqFilter},
};

use crate::routing::{self, FilterError, RouteInput};

/// How many of a source's newest events a filter is tried on.
pub const RECENT_EVENTS: usize = 50;

/// A trial on recent events ends with the body that exceeds this, so that large bodies cost no more.
const RECENT_BYTES_MAX: usize = 8 << 20;

/// An event on which a route is tried.
#[derive(Debug, Default)]
pub struct RouteSample {
    pub headers: HeaderMap,
    /// Decompressed.
    pub body: Vec<u8>,
    pub kind: Option<EventKind>,
    /// Name of the source.
    pub source: Option<String>,
    /// Headers that carry the source's secret, in lower case.
    pub secret_headers: Vec<String>,
    /// Number of masked values in the body.
    pub masked: usize,
}

impl RouteSample {
    /// A stored event. Its secrets are masked unless it is `exact`: a transform could rename a secret,
    /// an error could quote it, and a filter could guess it letter by letter.
    pub fn of_event(
        row: &EventRow,
        payload: &Payload,
        configuration: &Configuration,
        exact: bool,
    ) -> Result<Self, UnreadableBodyError> {
        let source = configuration.sources.iter().find(|source| source.id == row.source);
        let mut headers = payload.head.headers.to_map();
        let decoded = inflate::decode_body(&headers, &payload.body);
        let mut sample = Self {
            body: decoded.map_or_else(|| payload.body.to_vec(), |decoded| decoded.into_owned()),
            kind: row.kind.clone(),
            source: source.map(|source| source.spec.name.to_string()),
            secret_headers: source.map(|source| source.spec.secret_headers()).unwrap_or_default(),
            ..Self::default()
        };
        if !exact {
            let names = configuration.secret_names(row.source);
            let redacted = redact::mask_body(&headers, &payload.body, &names)?;
            sample.masked = redacted.fields;
            if redacted.fields > 0 {
                sample.body = redacted.body.into_owned();
            }
            let is_secret = |name: &HeaderName| names.is_secret_parameter(name.as_str());
            for (_, value) in headers.iter_mut().filter(|(name, _)| is_secret(name)) {
                *value = HeaderValue::from_bytes(MASK.as_bytes())
                    .unwrap_or(HeaderValue::from_static("***"));
            }
        }
        headers.remove(CONTENT_ENCODING);
        Ok(Self { headers, ..sample })
    }

    fn with_input<T>(&self, run: impl FnOnce(&RouteInput<'_>) -> T) -> T {
        let is_visible = |name: &HeaderName| routing::is_visible_header(name, &self.secret_headers);
        let (kind, source) = (self.kind.as_ref(), self.source.as_deref());
        run(&RouteInput::new(&self.headers, &self.body, kind, source, &is_visible))
    }
}

/// The result of trying a filter and a transform.
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
    sample: &RouteSample,
) -> RouteTrialResult {
    let mut trial = RouteTrialResult::default();
    sample.with_input(|input| {
        match filter
            .map(|text| input.run_filter(&JqFilter::for_route(text)).map_err(|e| e.to_string()))
        {
            None => {}
            Some(Ok(matches)) => trial.matches = Some(matches),
            Some(Err(error)) => trial.filter_error = Some(error),
        }
        match transform.map(|text| input.run_transform(&JqFilter::for_route(text))) {
            None => {}
            Some(Err(error)) => trial.transform_error = Some(error),
            Some(Ok(None)) => trial.dropped = true,
            Some(Ok(Some(output))) => {
                trial.output = Some(String::from_utf8_lossy(&output).into_owned());
            }
        }
    });
    trial
}

/// The result of trying a filter on the newest events of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentTrialResult {
    /// Events tried; it ends with the first that matches.
    pub events: usize,
    /// Events on which the filter failed.
    pub failed: usize,
    pub matches: bool,
}

impl RecentTrialResult {
    /// A warning if no event would get past the filter.
    pub fn warning(&self, source: &str) -> Option<String> {
        let Self { events, failed, matches } = *self;
        if matches || events == 0 {
            return None;
        }
        let failures = match failed {
            0 => String::new(),
            _ => format!(" and fails on {failed} of them"),
        };
        Some(format!("the filter matches none of the last {events} events of `{source}`{failures}"))
    }
}

/// Tries a valid filter on the newest events of a source, until one matches. Ends early if a body was
/// removed by retention, if the filter takes too much work, and after [`RECENT_BYTES_MAX`].
pub async fn try_filter_on_recent_events(
    store: &dyn AdminStore,
    configuration: &Configuration,
    source: &StoredObject<SourceId, SourceSpec>,
    filter: &str,
    exact: bool,
) -> Result<RecentTrialResult, StoreError> {
    let mut result = RecentTrialResult::default();
    let mut filter = JqFilter::for_route(filter);
    let mut bytes = 0;
    let newest = EventFilter { source: Some(source.id), ..EventFilter::default() };
    let page = PageRequest { after: None, limit: RECENT_EVENTS };
    for row in store.list_events(newest, page).await?.rows {
        if bytes > RECENT_BYTES_MAX {
            break;
        }
        let payload = match store.find_body(row.id).await {
            Ok(Some(payload)) => payload,
            Ok(None) => break,
            // Such as a damaged body. The other events are enough.
            Err(_) => continue,
        };
        bytes += payload.body.len();
        let Ok(sample) = RouteSample::of_event(&row, &payload, configuration, exact) else {
            continue;
        };
        let run = move || {
            let outcome = sample.with_input(|input| match input.run_filter(&filter) {
                Ok(matches) => FilterOutcome::Ended { matches },
                Err(FilterError::Filter(JqError::TooMuchWork)) => FilterOutcome::TooSlow,
                Err(_) => FilterOutcome::Failed,
            });
            (outcome, filter)
        };
        let Ok((outcome, returned)) = tokio::task::spawn_blocking(run).await else { break };
        filter = returned;
        result.events += 1;
        match outcome {
            FilterOutcome::Ended { matches: true } => {
                result.matches = true;
                break;
            }
            FilterOutcome::Ended { matches: false } => {}
            FilterOutcome::Failed => result.failed += 1,
            FilterOutcome::TooSlow => {
                result.failed += 1;
                break;
            }
        }
    }
    Ok(result)
}

enum FilterOutcome {
    Ended { matches: bool },
    Failed,
    TooSlow,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_texts(filter: &str, transform: &str, body: &str) -> RouteTrialResult {
        let non_empty = |text: &'static str| Some(text).filter(|text| !text.is_empty());
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let (filter, transform) = (non_empty(leak(filter)), non_empty(leak(transform)));
        let kind = EventKind::new("paid");
        let sample = RouteSample { body: body.as_bytes().to_vec(), kind, ..RouteSample::default() };
        try_route(filter, transform, &sample)
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

    #[test]
    fn sample_may_be_a_form_with_kind_source_and_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
        headers.insert("x-token", "secret".parse().unwrap());
        let sample = RouteSample {
            headers,
            body: b"command=%2Fdeploy&payload=%7B%22a%22%3A1%7D".to_vec(),
            kind: EventKind::new("slash_command"),
            source: Some("slack".to_owned()),
            secret_headers: vec!["x-token".to_owned()],
            masked: 0,
        };
        let filter = r#".command == "/deploy" and .payload.a == 1 and .type == $kind"#;
        let trial = try_route(Some(filter), Some("[$kind, $source, $headers]"), &sample);
        assert_eq!(trial.matches, Some(true), "{trial:?}");
        let content_type = r#"{"content-type":"application/x-www-form-urlencoded"}"#;
        let output = format!(r#"["slash_command","slack",{content_type}]"#);
        assert_eq!(trial.output, Some(output));
    }

    #[test]
    fn filter_that_matches_no_recent_event_is_a_warning() {
        let trial = |events, failed, matches| RecentTrialResult { events, failed, matches };
        for (trial, expected) in [
            (trial(0, 0, false), None),
            (trial(3, 2, true), None),
            (trial(50, 0, false), Some("the filter matches none of the last 50 events of `in`")),
            (
                trial(5, 5, false),
                Some("the filter matches none of the last 5 events of `in` and fails on 5 of them"),
            ),
        ] {
            assert_eq!(trial.warning("in").as_deref(), expected);
        }
    }
}
