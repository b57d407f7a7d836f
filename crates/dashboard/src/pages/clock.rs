//! `POST /clock/confirm`: the button of the warning that the clock is in doubt.

use std::sync::Arc;

use axum::{Form, Router, response::Response, routing::post};
use serde::Deserialize;
use surehook_api::{ApiTransport as _, calls};

use crate::{Dashboard, current_user::CurrentUser, translations::CommonTexts};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/clock/confirm", post(confirm))
}

#[derive(Deserialize)]
struct ConfirmForm {
    #[serde(default)]
    next: String,
}

async fn confirm(user: CurrentUser, Form(form): Form<ConfirmForm>) -> Response {
    let confirmed = user.call(calls::confirm_clock()).await;
    let notice = CommonTexts::of(user.lang()).clock_confirmed;
    user.redirect_with_result(&form.next, confirmed, notice)
}
