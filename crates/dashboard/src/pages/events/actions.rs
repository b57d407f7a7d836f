//! Actions on an event: reveal, replay, cancel.

use axum::{Form, extract::Path, response::Response};
use surehook_api::{ApiTransport as _, calls};

use super::{super::IdempotentForm, detail, event_path};
use crate::{current_user::CurrentUser, page::PageResult, translations::EventTexts};

/// Shows masked values. The page is the response itself, so that it is not stored anywhere.
pub(super) async fn reveal_event(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    match user.call(calls::reveal_event(&id)).await {
        Ok(revealed) => detail::event_page(&user, &id, Some(revealed)).await,
        Err(error) if error.is_not_found() => Err(error),
        Err(error) => Ok(user.redirect_with_error(&event_path(&id), &error)),
    }
}

pub(super) async fn replay_delivery(
    user: CurrentUser,
    Path((id, delivery)): Path<(String, String)>,
    Form(form): Form<IdempotentForm>,
) -> Response {
    let call = calls::replay_delivery(&delivery).idempotent(&form.idempotency_key);
    let result = user.call(call).await;
    let t = EventTexts::of(user.lang());
    user.redirect_with_result(&event_path(&id), result, t.replay_done)
}

pub(super) async fn cancel_delivery(
    user: CurrentUser,
    Path((id, delivery)): Path<(String, String)>,
) -> Response {
    let result = user.call(calls::cancel_delivery(&delivery)).await;
    let t = EventTexts::of(user.lang());
    user.redirect_with_result(&event_path(&id), result, t.cancel_done)
}
