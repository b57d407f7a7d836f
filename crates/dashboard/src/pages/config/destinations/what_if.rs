//! `/destinations/{name}/what-if`: what another policy would have done, and a preview of the change.

use std::time::Duration;

use askama::Template;
use axum::{
    Form,
    extract::{Path, Query},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use surehook_api::{
    ApiTransport as _, calls, percent_encode,
    what_if::{
        ConfidenceLevel, WhatIfNote, WhatIfReport, WhatIfRequest, WhatIfResult, change_settings,
        policy_settings,
    },
};
use surehook_retry::RetryPolicy;
use surehook_types::time::HumanDuration;

use super::super::editor::{is_correctable, require_admin};
use crate::{
    client::ApiError,
    current_user::CurrentUser,
    form_fields::editable_spec,
    format::{Badge, format_duration},
    lang::{Lang, TextsByCode as _, fill},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{FormTexts, WhatIfTexts},
};

const DEFAULT_SPAN: &str = "7d";
/// The choice of a retry policy with own numbers.
const OWN: &str = "own";

/// The settings to try. Empty fields of numbers have their defaults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WhatIfForm {
    /// Set when the form is sent.
    span: String,
    retry: String,
    max_attempts: String,
    initial_delay: String,
    base: String,
    max_delay: String,
    rate: String,
    circuit: String,
    failures: String,
    open_for: String,
    concurrency: String,
    timeout: String,
}

impl WhatIfForm {
    /// The form as it is opened first: with today's values.
    fn of_today(spec: &Value) -> Self {
        let text = |field: &str| match &spec[field] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        Self {
            rate: text("rate"),
            concurrency: text("concurrency"),
            timeout: text("timeout"),
            ..Self::default()
        }
    }

    /// The settings that differ from today's; `null` removes one.
    fn change(&self, spec: &Value) -> Map<String, Value> {
        let mut change = Map::new();
        let mut set = |field: &str, value: Value| {
            if spec[field] != value {
                change.insert(field.to_owned(), value);
            }
        };
        match self.retry.as_str() {
            "" => {}
            OWN => {
                let numbers = [
                    ("max_attempts", &self.max_attempts),
                    ("initial_delay", &self.initial_delay),
                    ("base", &self.base),
                    ("max_delay", &self.max_delay),
                ];
                set("retry", filled_fields(&numbers));
            }
            name => set("retry", json!(name)),
        }
        match self.circuit.as_str() {
            "" => {}
            "off" => set("circuit", json!("off")),
            _ => {
                let fields = [("failures", &self.failures), ("open_for", &self.open_for)];
                set("circuit", filled_fields(&fields));
            }
        }
        set("rate", number_or_text(&self.rate));
        for (field, value) in [("concurrency", &self.concurrency), ("timeout", &self.timeout)] {
            if !value.trim().is_empty() {
                set(field, number_or_text(value));
            }
        }
        change
    }

    fn has_own_numbers(&self) -> bool {
        self.retry == OWN || self.circuit == "on"
    }

    /// The fields for the link to the preview.
    fn hidden(&self) -> [(&'static str, &str); 12] {
        [
            ("span", &self.span),
            ("retry", &self.retry),
            ("max_attempts", &self.max_attempts),
            ("initial_delay", &self.initial_delay),
            ("base", &self.base),
            ("max_delay", &self.max_delay),
            ("rate", &self.rate),
            ("circuit", &self.circuit),
            ("failures", &self.failures),
            ("open_for", &self.open_for),
            ("concurrency", &self.concurrency),
            ("timeout", &self.timeout),
        ]
    }
}

/// The fields that are not empty, as an object.
fn filled_fields(fields: &[(&str, &String)]) -> Value {
    let filled = fields.iter().filter(|(_, text)| !text.trim().is_empty());
    filled.map(|(name, text)| ((*name).to_owned(), number_or_text(text))).collect()
}

/// A field of a form as JSON; the API says what is wrong with it.
fn number_or_text(text: &str) -> Value {
    let text = text.trim();
    if text.is_empty() {
        return Value::Null;
    }
    match serde_json::from_str::<Value>(text) {
        Ok(number @ Value::Number(_)) => number,
        Ok(_) | Err(_) => json!(text),
    }
}

/// A number before and after the change.
struct ResultRow {
    name: &'static str,
    recorded: String,
    baseline: String,
    predicted: String,
    difference: String,
    /// `ok` or `bad`, if the difference is an improvement or the opposite.
    tone: &'static str,
}

/// One bar of a chart.
struct ResultBar {
    name: &'static str,
    value: u64,
    text: String,
}

struct ResultChart {
    title: &'static str,
    /// Fewer are better.
    is_bad: bool,
    /// The end of the scale.
    max: u64,
    bars: Vec<ResultBar>,
}

/// A prediction, formatted.
struct Prediction {
    rows: Vec<ResultRow>,
    charts: [ResultChart; 2],
    range: Option<String>,
    level: Badge,
    shares: String,
    notes: Vec<String>,
}

#[derive(Template)]
#[template(path = "what_if.html")]
struct WhatIfPage {
    frame: PageFrame,
    t: &'static WhatIfTexts,
    path: String,
    form: WhatIfForm,
    /// Today's retry policy and circuit, for people.
    today_retry: String,
    today_circuit: String,
    has_change: bool,
    prediction: Option<Prediction>,
    error: Option<ApiError>,
}

impl WhatIfPage {
    fn spans(&self) -> [(&'static str, &'static str); 4] {
        let t = self.t;
        [("24h", t.span_24h), ("3d", t.span_3d), ("7d", t.span_7d), ("30d", t.span_30d)]
    }

    fn policies(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let named = RetryPolicy::NAMES.into_iter().map(|name| (name, name));
        named.chain([(OWN, self.t.own)])
    }
}

pub(super) async fn show_what_if(
    user: CurrentUser,
    Path(name): Path<String>,
    Query(form): Query<WhatIfForm>,
) -> PageResult {
    let t = WhatIfTexts::of(user.lang());
    let spec = user.call(calls::get_resource("destinations", &name)).await?;
    let is_sent = !form.span.is_empty();
    let form = if is_sent {
        form
    } else {
        WhatIfForm { span: DEFAULT_SPAN.to_owned(), ..WhatIfForm::of_today(&spec) }
    };
    let change = form.change(&spec);
    let today = |field: &str| compact(&spec[field]).unwrap_or_else(|| t.default_value.to_owned());
    let mut page = WhatIfPage {
        frame: PageFrame::new(&user, NavItem::Destinations, fill(t.page_title, &[&name])),
        t,
        path: format!("/destinations/{}", percent_encode(&name)),
        today_retry: today("retry"),
        today_circuit: today("circuit"),
        has_change: !change.is_empty(),
        form,
        prediction: None,
        error: None,
    };
    if is_sent {
        match load_prediction(&user, &name, &page.form.span, change).await {
            Ok(report) => page.prediction = Some(format_prediction(&report, user.lang(), t)),
            Err(error) if is_correctable(&error) => page.error = Some(error),
            Err(error) => return Err(error),
        }
    }
    render_page(&page)
}

async fn load_prediction(
    user: &CurrentUser,
    name: &str,
    span: &str,
    change: Map<String, Value>,
) -> Result<WhatIfReport, ApiError> {
    let span: HumanDuration =
        span.parse().map_err(|error| ApiError { status: 422, detail: format!("{error}") })?;
    let request = WhatIfRequest { since: Some(user.now() - span.0), until: None, change };
    user.call(calls::predict_what_if(name, &request)).await
}

/// A setting on one line, or `None` if it is not set.
fn compact(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) if fields.is_empty() => None,
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter_map(|(name, value)| Some(format!("{name} {}", compact(value)?)));
            Some(fields.collect::<Vec<_>>().join(", "))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => Some(value.to_string()),
    }
}

fn format_prediction(report: &WhatIfReport, lang: Lang, t: &'static WhatIfTexts) -> Prediction {
    let WhatIfReport { range, confidence, .. } = report;
    let (tone, icon, level) = match confidence.level {
        ConfidenceLevel::High => ("ok", "check", t.level_high),
        ConfidenceLevel::Medium => ("warn", "warn", t.level_medium),
        ConfidenceLevel::Low => ("bad", "warn", t.level_low),
    };
    let percent = |share: f64| lang.decimal(100.0 * share, 1);
    let shares = [confidence.recorded_share, confidence.guessed_share].map(percent);
    let [least, most] = [range.dead_min, range.dead_max].map(|count| lang.number(count));
    Prediction {
        rows: result_rows(report, lang, t),
        charts: [
            result_chart(report, t.dead, |result| result.dead, lang, t),
            result_chart(report, t.attempts, |result| result.attempts, lang, t),
        ],
        range: (least != most).then(|| fill(t.by_chance, &[&least, &most])),
        level: Badge::new(tone, icon, level),
        shares: fill(t.shares, &[&shares[0], &shares[1]]),
        notes: confidence.notes.iter().map(|note| note_text(note, lang, t)).collect(),
    }
}

/// A note in the language of the user.
fn note_text(note: &WhatIfNote, lang: Lang, t: &'static WhatIfTexts) -> String {
    let code = note.kind.as_str();
    let text = t.by_code("note", code);
    if text == code {
        return note.text.clone();
    }
    let values: Vec<String> = note
        .values
        .iter()
        .map(|value| value.parse().map_or_else(|_| value.clone(), |count| lang.number(count)))
        .collect();
    let values: Vec<&dyn std::fmt::Display> = values.iter().map(|value| value as _).collect();
    fill(text, &values)
}

fn result_rows(report: &WhatIfReport, lang: Lang, t: &'static WhatIfTexts) -> Vec<ResultRow> {
    let count = |name, count: fn(&WhatIfResult) -> u64, more_is| {
        let [recorded, baseline, predicted] =
            [&report.recorded, &report.baseline, &report.predicted].map(count);
        let sign = if predicted < baseline { "−" } else { "+" };
        let difference = match predicted.abs_diff(baseline) {
            0 => String::new(),
            difference => format!("{sign}{}", lang.number(difference)),
        };
        let tone = match predicted.cmp(&baseline) {
            std::cmp::Ordering::Equal => "",
            std::cmp::Ordering::Greater => more_is,
            std::cmp::Ordering::Less => opposite(more_is),
        };
        let text = |count| lang.number(count);
        ResultRow {
            name,
            recorded: text(recorded),
            baseline: text(baseline),
            predicted: text(predicted),
            difference,
            tone,
        }
    };
    let time = |name, seconds: fn(&WhatIfResult) -> f64| {
        let [recorded, baseline, predicted] =
            [&report.recorded, &report.baseline, &report.predicted].map(seconds);
        let text = |seconds: f64| {
            let span = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            format_duration(lang, span)
        };
        let (least, most) = (predicted.min(baseline), predicted.max(baseline));
        let sign = if predicted < baseline { "−" } else { "+" };
        // Less than a thousandth does not count as a difference.
        let is_same = most - least < 0.001;
        let difference =
            if is_same { String::new() } else { format!("{sign}{}", text(most - least)) };
        ResultRow {
            name,
            recorded: text(recorded),
            baseline: text(baseline),
            predicted: text(predicted),
            difference,
            tone: "",
        }
    };
    vec![
        count(t.deliveries, |result| result.deliveries, ""),
        count(t.succeeded, |result| result.succeeded, "ok"),
        count(t.dead, |result| result.dead, "bad"),
        count(t.unfinished, |result| result.unfinished, ""),
        count(t.attempts, |result| result.attempts, ""),
        count(t.duplicates, |result| result.possible_duplicates, "bad"),
        time(t.delay_p50, |result| result.delay.p50_seconds),
        time(t.delay_p95, |result| result.delay.p95_seconds),
        time(t.delay_p99, |result| result.delay.p99_seconds),
        time(t.delay_total, |result| result.delay.total_minutes * 60.0),
    ]
}

fn opposite(tone: &'static str) -> &'static str {
    match tone {
        "ok" => "bad",
        "bad" => "ok",
        _ => "",
    }
}

fn result_chart(
    report: &WhatIfReport,
    title: &'static str,
    count: fn(&WhatIfResult) -> u64,
    lang: Lang,
    t: &'static WhatIfTexts,
) -> ResultChart {
    let results = [
        (t.recorded, &report.recorded),
        (t.baseline, &report.baseline),
        (t.predicted, &report.predicted),
    ];
    let bars: Vec<ResultBar> = results
        .into_iter()
        .map(|(name, result)| {
            let value = count(result);
            ResultBar { name, value, text: lang.number(value) }
        })
        .collect();
    let max = bars.iter().map(|bar| bar.value).max().unwrap_or(0).max(1);
    ResultChart { title, is_bad: title == t.dead, max, bars }
}

/// A setting before and after the change.
struct SettingChange {
    field: String,
    before: String,
    after: String,
}

#[derive(Template)]
#[template(path = "what_if_preview.html")]
struct PreviewPage {
    frame: PageFrame,
    t: &'static WhatIfTexts,
    path: String,
    changes: Vec<SettingChange>,
    /// The change as JSON.
    change: String,
    tag: String,
    error: Option<ApiError>,
}

pub(super) async fn preview_change(
    user: CurrentUser,
    Path(name): Path<String>,
    Query(form): Query<WhatIfForm>,
) -> PageResult {
    require_admin(&user)?;
    let (spec, tag) = user.call_versioned(calls::get_resource("destinations", &name)).await?;
    let change = form.change(&spec);
    render_page(&preview_page(&user, &name, &spec, tag, &change, None))
}

fn preview_page(
    user: &CurrentUser,
    name: &str,
    spec: &Value,
    tag: String,
    change: &Map<String, Value>,
    error: Option<ApiError>,
) -> PreviewPage {
    let t = WhatIfTexts::of(user.lang());
    let text = |value: &Value, unset: &str| compact(value).unwrap_or_else(|| unset.to_owned());
    let changes = change.iter().filter(|(field, value)| spec[field.as_str()] != **value);
    let changes = changes.map(|(field, value)| SettingChange {
        field: field.clone(),
        before: text(&spec[field], if field == "rate" { t.removed } else { t.default_value }),
        after: text(value, if value.is_null() { t.removed } else { t.default_value }),
    });
    PreviewPage {
        frame: PageFrame::new(user, NavItem::Destinations, fill(t.preview_title, &[&name])),
        t,
        path: format!("/destinations/{}", percent_encode(name)),
        changes: changes.collect(),
        change: Value::Object(change.clone()).to_string(),
        tag,
        error,
    }
}

#[derive(Deserialize)]
pub(super) struct ChangeForm {
    #[serde(default)]
    tag: String,
    /// JSON.
    #[serde(default)]
    change: String,
}

/// Changes the destination, unless it was changed since the preview.
pub(super) async fn apply_change(
    user: CurrentUser,
    Path(name): Path<String>,
    Form(form): Form<ChangeForm>,
) -> PageResult {
    let e = FormTexts::of(user.lang());
    let change: Value = serde_json::from_str(&form.change)
        .map_err(|error| ApiError { status: 400, detail: fill(e.invalid_json, &[&error]) })?;
    // Whatever the form says, only a policy is changed here.
    let change = policy_settings(&change);
    let (spec, tag) = user.call_versioned(calls::get_resource("destinations", &name)).await?;
    let Value::Object(fields) = editable_spec(spec.clone()) else {
        return Err(ApiError { status: 500, ..ApiError::default() });
    };
    let changed = change_settings(&fields, &change);
    let call = calls::replace_resource("destinations", &name, &changed).if_match(&form.tag);
    match user.call(call).await {
        Ok(_) => {
            let path = format!("/destinations/{}", percent_encode(&name));
            Ok(user.redirect_with_notice(&path, fill(e.saved, &[&name])))
        }
        Err(error) if is_correctable(&error) => {
            let is_conflict = error.status == 412;
            let conflict = || ApiError::local(WhatIfTexts::of(user.lang()).conflict);
            let error = if is_conflict { conflict() } else { error };
            render_page(&preview_page(&user, &name, &spec, tag, &change, Some(error)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use surehook_api::what_if::WhatIfNoteKind;

    use super::*;

    #[test]
    fn only_settings_that_differ_from_todays_are_changed() {
        let spec = json!({ "retry": "short", "rate": "50/s", "concurrency": 32, "timeout": "30s" });
        let today = WhatIfForm::of_today(&spec);
        assert_eq!(today.change(&spec), Map::new());
        let form = WhatIfForm {
            retry: OWN.to_owned(),
            max_attempts: "8".to_owned(),
            initial_delay: " 5s ".to_owned(),
            rate: String::new(),
            circuit: "on".to_owned(),
            failures: "5".to_owned(),
            concurrency: "64".to_owned(),
            ..today.clone()
        };
        let expected = json!({
            "retry": { "max_attempts": 8, "initial_delay": "5s" },
            "circuit": { "failures": 5 },
            "rate": null,
            "concurrency": 64,
        });
        assert_eq!(Value::Object(form.change(&spec)), expected);
        let named = WhatIfForm { retry: "short".to_owned(), circuit: "off".to_owned(), ..today };
        assert_eq!(Value::Object(named.change(&spec)), json!({ "circuit": "off" }));
    }

    #[test]
    fn every_note_is_translated_with_its_values() {
        for lang in Lang::ALL {
            let t = WhatIfTexts::of(lang);
            for kind in WhatIfNoteKind::ALL {
                let text = t.by_code("note", kind.as_str());
                assert_ne!(text, kind.as_str(), "{lang:?}");
                let count = |text: &str| text.matches("{}").count();
                assert_eq!(count(text), count(kind.template()), "{lang:?}: {text}");
                assert!(lang != Lang::En || text == kind.template(), "{text}");
            }
        }
    }
}
