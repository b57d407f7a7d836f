//! What came of a filter and a transform that were tried on an event.

use serde::Deserialize;

use super::super::indented::indented;
use crate::{show::Badge, words::Routes};

/// What the API says of a trial.
#[derive(Deserialize)]
pub(super) struct Answer {
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

/// The same, as the page shows it.
pub(super) struct Tried {
    pub(super) verdict: Badge,
    pub(super) filter_error: Option<String>,
    pub(super) output: Option<String>,
    pub(super) dropped: bool,
    pub(super) transform_error: Option<String>,
    pub(super) input: Option<String>,
    pub(super) masked: bool,
}

impl Tried {
    pub(super) fn of(answer: Answer, t: &Routes) -> Self {
        let verdict = match (answer.matches, &answer.filter_error) {
            (_, Some(_)) => Badge::new("bad", "warn", t.filter_failed),
            (Some(true), None) => Badge::new("ok", "check", t.matches),
            (Some(false), None) => Badge::new("warn", "cross", t.no_match),
            (None, None) => Badge::new("", "dot", t.no_filter),
        };
        Self {
            verdict,
            filter_error: answer.filter_error,
            output: answer.output.as_deref().map(indented),
            dropped: answer.dropped,
            transform_error: answer.transform_error,
            input: answer.input.as_deref().map(indented),
            masked: answer.masked > 0,
        }
    }
}
