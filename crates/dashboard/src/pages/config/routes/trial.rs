//! Result of testing a filter and a transform.

use serde::Deserialize;

use super::super::json_indent::indent_json;
use crate::{format::Badge, translations::RouteTexts};

/// The API response.
#[derive(Deserialize)]
pub(super) struct RouteTrialData {
    matches: Option<bool>,
    filter_error: Option<String>,
    output: Option<String>,
    #[serde(default)]
    dropped: bool,
    transform_error: Option<String>,
    #[serde(default)]
    input: Option<String>,
    #[serde(default)]
    masked: u64,
}

pub(super) struct RouteTrialView {
    pub(super) verdict: Badge,
    pub(super) filter_error: Option<String>,
    pub(super) output: Option<String>,
    pub(super) dropped: bool,
    pub(super) transform_error: Option<String>,
    pub(super) input: Option<String>,
    pub(super) masked: bool,
}

impl RouteTrialView {
    pub(super) fn new(data: RouteTrialData, t: &RouteTexts) -> Self {
        let verdict = match (data.matches, &data.filter_error) {
            (_, Some(_)) => Badge::new("bad", "warn", t.filter_failed),
            (Some(true), None) => Badge::new("ok", "check", t.matches),
            (Some(false), None) => Badge::new("warn", "cross", t.no_match),
            (None, None) => Badge::new("", "dot", t.no_filter),
        };
        Self {
            verdict,
            filter_error: data.filter_error,
            output: data.output.as_deref().map(indent_json),
            dropped: data.dropped,
            transform_error: data.transform_error,
            input: data.input.as_deref().map(indent_json),
            masked: data.masked > 0,
        }
    }
}
