//! Actions on an event: reveal, replay, cancel.

use axum::{Form, extract::Path, response::Response};
use serde::Deserialize;
use serde_json::Value;

use super::{api::RevealedEventData, detail, event_path};
use crate::{
    client::ApiPath, current_user::CurrentUser, page::PageResult, translations::EventTexts,
};

/// A form that must be executed only once.
#[derive(Deserialize)]
pub(super) struct IdempotentForm {
    #[serde(default)]
    pub(super) idempotency_key: String,
}

/// Shows masked values. The page is the response itself, so that it is not stored anywhere.
pub(super) async fn reveal_event(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    match user.post::<RevealedEventData>(ApiPath::new(&["events", &id, "reveal"]), None).await {
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
    let address = ApiPath::new(&["deliveries", &delivery, "replay"]);
    let done = user.post_idempotent::<Value>(address, None, &form.idempotency_key).await;
    let t = EventTexts::of(user.lang());
    user.redirect_with_result(&event_path(&id), done, t.replay_done)
}

pub(super) async fn cancel_delivery(
    user: CurrentUser,
    Path((id, delivery)): Path<(String, String)>,
) -> Response {
    let address = ApiPath::new(&["deliveries", &delivery, "cancel"]);
    let done = user.post::<Value>(address, None).await;
    let t = EventTexts::of(user.lang());
    user.redirect_with_result(&event_path(&id), done, t.cancel_done)
}
