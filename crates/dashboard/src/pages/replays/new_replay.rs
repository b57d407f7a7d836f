//! `/replays/new`: the form, the preview and the start of a replay.

use std::time::Duration;

use askama::Template;
use axum::{
    Form,
    extract::{Query, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use surehook_api::{ApiTransport as _, calls, replays::ReplayPreviewResponse};
use surehook_core::replay::ReplayAction;
use surehook_types::time::Timestamp;

use super::action_label;
use crate::{
    client::{ApiError, parse_request},
    current_user::CurrentUser,
    filter::{FilterQuery, list_names},
    format::format_duration,
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::ReplayTexts,
};

/// From this number of deliveries on, the user must type the count to confirm.
const CONFIRM_COUNT_FROM: u64 = 100;

const FILTERS: [&str; 12] = [
    "dest", "source", "reason", "class", "code", "kind", "key", "status", "group", "since",
    "until", "",
];

/// Unknown fields are rejected: ignoring a misspelled filter would replay everything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayForm {
    #[serde(default)]
    q: String,
    #[serde(default = "retry_failed")]
    verb: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    rate: String,
    #[serde(default)]
    note: String,
    /// Count typed to confirm.
    #[serde(default)]
    typed: String,
    #[serde(default)]
    idempotency_key: String,
    /// Count shown in the preview.
    #[serde(default)]
    shown: String,
}

fn retry_failed() -> String {
    "retry_failed".to_owned()
}

impl ReplayForm {
    fn has_no_filter(&self) -> bool {
        FilterQuery::parse(&self.q).terms.is_empty()
    }

    /// The count to type before starting; `None` for a small filtered replay.
    fn count_to_confirm(&self, preview: &ReplayPreviewResponse) -> Option<u64> {
        let is_large = preview.count >= CONFIRM_COUNT_FROM || !preview.complete;
        (is_large || self.has_no_filter()).then_some(preview.count)
    }

    /// The API request; the error is an unknown filter term.
    fn to_request(&self, now: Timestamp, dry_run: bool) -> Result<Value, String> {
        let mut filter = Map::new();
        for (name, value) in FilterQuery::parse(&self.q).api_parameters(&FILTERS, now)? {
            filter.insert(name, Value::from(value));
        }
        let mut body = json!({ "verb": self.verb, "filter": filter, "dry_run": dry_run });
        if dry_run {
            // The user waits for the preview.
            body["quick"] = Value::from(true);
        }
        for (name, value) in [("to", &self.to), ("rate", &self.rate), ("note", &self.note)] {
            if !value.trim().is_empty() {
                body[name] = Value::from(value.trim());
            }
        }
        Ok(body)
    }
}

#[derive(Template)]
#[template(path = "replay_new.html")]
struct NewReplayPage {
    frame: PageFrame,
    t: &'static ReplayTexts,
    form: ReplayForm,
    destinations: Vec<String>,
    preview: Option<ReplayPreviewResponse>,
    problem: Option<ApiError>,
    idempotency_key: String,
    /// The filter with absolute times, so that the replay selects what the preview showed.
    absolute_filter: String,
}

impl NewReplayPage {
    fn filter_names() -> String {
        list_names(&FILTERS).join(" ")
    }

    fn actions(&self) -> [(&'static str, &'static str); 3] {
        [ReplayAction::RetryFailed, ReplayAction::ForceResend, ReplayAction::SendMissing]
            .map(|action| (action.as_str(), action_label(action, self.t)))
    }

    fn number(&self, number: &u64) -> String {
        self.frame.lang().number(*number)
    }

    fn count(&self, preview: &ReplayPreviewResponse) -> String {
        let number = self.number(&preview.count);
        if preview.complete { number } else { fill(self.t.at_least, &[&number]) }
    }

    fn estimate(&self, preview: &ReplayPreviewResponse) -> String {
        let seconds = preview.estimate_seconds.clamp(0.0, 1e9).ceil();
        format_duration(self.frame.lang(), Duration::from_secs_f64(seconds))
    }

    fn confirm_label(&self, preview: &ReplayPreviewResponse) -> Option<String> {
        self.form.count_to_confirm(preview).map(|count| fill(self.t.confirm, &[&count]))
    }
}

pub(super) async fn show_form(
    user: CurrentUser,
    form: Result<Query<ReplayForm>, QueryRejection>,
) -> PageResult {
    match form {
        Ok(Query(form)) => form_page(user, form, None).await,
        Err(rejection) => Err(ApiError { status: 400, detail: rejection.body_text() }),
    }
}

async fn form_page(user: CurrentUser, form: ReplayForm, error: Option<ApiError>) -> PageResult {
    let idempotency_key = match &error {
        Some(error) => user.idempotency_key_for_retry(&form.idempotency_key, error),
        None => user.new_idempotency_key(),
    };
    let mut problem = error;
    let t = ReplayTexts::of(user.lang());
    let frame = PageFrame::new(&user, NavItem::Replays, t.new);
    let destinations = user.destination_names().await.unwrap_or_default();
    // Preview and replay use the same time.
    let now = user.now();
    let mut preview = None;
    match form.to_request(now, true) {
        Err(unknown) => {
            let available = list_names(&FILTERS).join(" ");
            let text = fill(frame.c.unknown_filter, &[&unknown, &available]);
            problem = Some(ApiError::local(text));
        }
        Ok(body) => match preview_replay(&user, body).await {
            Ok(counted) => preview = Some(counted),
            Err(error) if error.status == 403 => return Err(error),
            Err(error) => problem = problem.or(Some(error)),
        },
    }
    let absolute_filter = FilterQuery::parse(&form.q).with_absolute_times(now).text();
    render_page(&NewReplayPage {
        frame,
        t,
        form,
        destinations,
        preview,
        problem,
        idempotency_key,
        absolute_filter,
    })
}

async fn preview_replay(
    user: &CurrentUser,
    request: Value,
) -> Result<ReplayPreviewResponse, ApiError> {
    user.call(calls::preview_replay(&parse_request(request)?)).await
}

/// Starts the replay if the count was confirmed.
pub(super) async fn start_replay(user: CurrentUser, Form(form): Form<ReplayForm>) -> PageResult {
    let t = ReplayTexts::of(user.lang());
    let now = user.now();
    let Ok(dry) = form.to_request(now, true) else { return form_page(user, form, None).await };
    let preview = match preview_replay(&user, dry).await {
        Ok(preview) => preview,
        Err(error) => return form_page(user, form, Some(error)).await,
    };
    // More deliveries may have failed since the preview: the count shown there is accepted too.
    let digits: String = form.typed.chars().filter(char::is_ascii_digit).collect();
    if let Some(count) = form.count_to_confirm(&preview)
        && (digits.is_empty() || digits != form.shown)
        && digits != count.to_string()
    {
        let error = ApiError::local(fill(t.confirm_wrong, &[&count]));
        return form_page(user, form, Some(error)).await;
    }
    let Ok(body) = form.to_request(now, false) else { return form_page(user, form, None).await };
    let started = match parse_request(body) {
        Ok(request) => {
            user.call(calls::create_replay(&request).idempotent(&form.idempotency_key)).await
        }
        Err(error) => Err(error),
    };
    match started {
        Ok(job) => Ok(user.redirect_with_notice(&format!("/replays/{}", job.id), t.started)),
        Err(error) => form_page(user, form, Some(error)).await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use surehook_core::replay::ReplayRate;

    use super::*;

    fn form(query: &str) -> Result<ReplayForm, QueryRejection> {
        let address = format!("/replays/new?{query}").parse().unwrap();
        Query::try_from_uri(&address).map(|Query(form)| form)
    }

    #[test]
    fn unknown_field_does_not_widen_a_replay() {
        for (query, is_read) in [
            ("", true),
            ("q=dest:crm&verb=force_resend&to=&rate=&note=x", true),
            ("event=evt_1", false),
            ("q=dest:crm&destination=crm", false),
        ] {
            assert_eq!(form(query).is_ok(), is_read, "case: {query}");
        }
    }

    #[test]
    fn large_or_unfiltered_replay_requires_typed_count() {
        let preview = |count, complete| ReplayPreviewResponse {
            dry_run: true,
            count,
            complete,
            oldest: None,
            newest: None,
            rate: ReplayRate::default(),
            estimate_seconds: 0.0,
            by_destination: BTreeMap::new(),
        };
        for (query, found, expected) in [
            ("q=dest:crm", preview(3, true), None),
            ("q=dest:crm", preview(100, true), Some(100)),
            ("q=dest:crm", preview(3, false), Some(3)),
            ("q=", preview(3, true), Some(3)),
            ("q=%20%20", preview(1, true), Some(1)),
        ] {
            assert_eq!(form(query).unwrap().count_to_confirm(&found), expected, "case: {query}");
        }
    }
}
