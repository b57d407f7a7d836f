//! Actions on a destination: pause, resume, probe and test.

use axum::{Form, extract::Path};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::editor::is_correctable,
    page::{PageForms, destination_page},
};
use crate::{
    client::{ApiError, ApiPath, percent_encode},
    current_user::CurrentUser,
    lang::fill,
    page::PageResult,
    translations::{DestinationTexts, FormTexts},
};

#[derive(Deserialize)]
pub(super) struct PauseForm {
    #[serde(default)]
    reason: String,
}

pub(super) async fn pause_destination(
    user: CurrentUser,
    Path(name): Path<String>,
    Form(form): Form<PauseForm>,
) -> PageResult {
    let reason = Some(form.reason.trim()).filter(|reason| !reason.is_empty());
    let payload = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
    let t = DestinationTexts::of(user.lang());
    let forms = PageForms { reason: form.reason, ..PageForms::new(&user) };
    run_action(&user, &name, "pause", payload, Some(forms), |_| fill(t.was_paused, &[&name])).await
}

#[derive(Deserialize)]
pub(super) struct ResumeForm {
    #[serde(default)]
    rate: String,
}

pub(super) async fn resume_destination(
    user: CurrentUser,
    Path(name): Path<String>,
    Form(form): Form<ResumeForm>,
) -> PageResult {
    let rate = Some(form.rate.trim()).filter(|rate| !rate.is_empty());
    let payload = rate.map_or_else(|| json!({}), |rate| json!({ "rate": rate }));
    let t = DestinationTexts::of(user.lang());
    let forms = PageForms { rate: form.rate, ..PageForms::new(&user) };
    run_action(&user, &name, "resume", payload, Some(forms), |_| fill(t.was_resumed, &[&name]))
        .await
}

pub(super) async fn probe_destination(user: CurrentUser, Path(name): Path<String>) -> PageResult {
    let t = DestinationTexts::of(user.lang());
    let notice = |answer: &Value| match answer["succeeded"].as_bool() {
        Some(true) => t.probe_succeeded.to_owned(),
        _ => {
            let attempt = &answer["attempt"];
            let code = attempt["status"].as_u64().map(|code| code.to_string());
            let result = code.or_else(|| attempt["failure"].as_str().map(str::to_owned));
            fill(t.probe_failed, &[&result.unwrap_or_default()])
        }
    };
    run_action(&user, &name, "probe", json!({}), None, notice).await
}

/// Runs an action and returns to the page of the destination. After an error the submitted values are
/// kept.
async fn run_action(
    user: &CurrentUser,
    name: &str,
    action: &str,
    payload: Value,
    forms: Option<PageForms>,
    notice: impl Fn(&Value) -> String,
) -> PageResult {
    let back = format!("/destinations/{}", percent_encode(name));
    let body = (action != "probe").then_some(payload);
    match user.post::<Value>(ApiPath::new(&["destinations", name, action]), body).await {
        Ok(answer) => Ok(user.redirect_with_notice(&back, notice(&answer))),
        Err(error) if !is_correctable(&error) => Err(error),
        Err(error) => match forms {
            Some(forms) => {
                destination_page(user, name, PageForms { lane_error: Some(error), ..forms }).await
            }
            None => Ok(user.redirect_with_error(&back, &error)),
        },
    }
}

#[derive(Deserialize)]
pub(super) struct TestForm {
    #[serde(default)]
    idempotency_key: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    text: String,
}

/// Sends a test event, processed like a real one.
pub(super) async fn test_destination(
    user: CurrentUser,
    Path(name): Path<String>,
    Form(form): Form<TestForm>,
) -> PageResult {
    let t = DestinationTexts::of(user.lang());
    let payload = if form.to.is_empty() {
        match serde_json::from_str::<Value>(&form.body) {
            Ok(body) => json!({ "destination": name, "type": "test", "body": body }),
            Err(error) => {
                let detail = fill(FormTexts::of(user.lang()).invalid_json, &[&error]);
                let error = ApiError::local(detail);
                return test_page_with_error(&user, &name, form, error).await;
            }
        }
    } else {
        json!({ "destination": name, "to": form.to.trim(), "text": form.text })
    };
    let address = ApiPath::new(&["messages"]);
    match user.post_idempotent::<Value>(address, Some(payload), &form.idempotency_key).await {
        Ok(sent) => {
            let id = sent["id"].as_str().unwrap_or_default();
            Ok(user.redirect_with_notice(&format!("/events/{}", percent_encode(id)), t.test_sent))
        }
        Err(error) if !is_correctable(&error) => Err(error),
        Err(error) => test_page_with_error(&user, &name, form, error).await,
    }
}

async fn test_page_with_error(
    user: &CurrentUser,
    name: &str,
    form: TestForm,
    error: ApiError,
) -> PageResult {
    let forms = PageForms {
        idempotency_key: user.idempotency_key_for_retry(&form.idempotency_key, &error),
        body: form.body,
        to: form.to,
        text: form.text,
        test_error: Some(error),
        ..PageForms::new(user)
    };
    destination_page(user, name, forms).await
}
