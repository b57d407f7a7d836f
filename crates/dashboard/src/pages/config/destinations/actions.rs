//! Actions on a destination: pause, resume, probe and test.

use axum::{Form, extract::Path};
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_api::{
    ApiTransport as _, calls, percent_encode,
    resources::{DestinationResponse, PauseRequest},
};
use surehook_retry::AttemptFailure;

use super::{
    super::editor::is_correctable,
    page::{PageForms, destination_page},
};
use crate::{
    client::{ApiError, parse_request},
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
    let reason = Some(form.reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    let paused = user.call(calls::pause_destination(&name, &PauseRequest { reason })).await;
    let forms = PageForms { reason: form.reason, ..PageForms::new(&user) };
    let notice = fill(DestinationTexts::of(user.lang()).was_paused, &[&name]);
    finish_lane_action(&user, &name, paused, forms, notice).await
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
    let resumed = match parse_request(json!({ "rate": rate })) {
        Ok(request) => user.call(calls::resume_destination(&name, &request)).await,
        Err(error) => Err(error),
    };
    let forms = PageForms { rate: form.rate, ..PageForms::new(&user) };
    let notice = fill(DestinationTexts::of(user.lang()).was_resumed, &[&name]);
    finish_lane_action(&user, &name, resumed, forms, notice).await
}

/// Returns to the page of the destination. After an error the submitted values are kept.
async fn finish_lane_action(
    user: &CurrentUser,
    name: &str,
    result: Result<DestinationResponse, ApiError>,
    forms: PageForms,
    notice: String,
) -> PageResult {
    match result {
        Ok(_) => Ok(user.redirect_with_notice(&destination_path(name), notice)),
        Err(error) if !is_correctable(&error) => Err(error),
        Err(error) => {
            destination_page(user, name, PageForms { lane_error: Some(error), ..forms }).await
        }
    }
}

fn destination_path(name: &str) -> String {
    format!("/destinations/{}", percent_encode(name))
}

pub(super) async fn probe_destination(user: CurrentUser, Path(name): Path<String>) -> PageResult {
    let t = DestinationTexts::of(user.lang());
    let probe = match user.call(calls::probe_destination(&name)).await {
        Ok(probe) => probe,
        Err(error) if !is_correctable(&error) => return Err(error),
        Err(error) => return Ok(user.redirect_with_error(&destination_path(&name), &error)),
    };
    let notice = if probe.succeeded {
        t.probe_succeeded.to_owned()
    } else {
        let code = probe.attempt.status.map(|code| code.to_string());
        let failure = probe.attempt.failure.map(AttemptFailure::as_str);
        fill(t.probe_failed, &[&code.as_deref().or(failure).unwrap_or_default()])
    };
    Ok(user.redirect_with_notice(&destination_path(&name), notice))
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
    let call = calls::send_message(&payload).idempotent(&form.idempotency_key);
    match user.call(call).await {
        Ok(sent) => Ok(user.redirect_with_notice(&format!("/events/{}", sent.id), t.test_sent)),
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
