//! Recent events, as listed by source and route pages.

use surehook_api::{ApiTransport as _, calls, events::EventResponse};
use surehook_webhooks::attribute::EventKind;

use crate::{client::ApiError, current_user::CurrentUser, format::mask_phones};

pub(super) async fn load_newest(
    user: &CurrentUser,
    source: &str,
    limit: &str,
) -> Result<Vec<EventResponse>, ApiError> {
    let call = calls::list_events().query("source", source).query("limit", limit);
    let events = user.call(call).await?.page.data;
    Ok(events.into_iter().map(|listed| listed.event).collect())
}

pub(super) fn masked_key(event: &EventResponse) -> Option<String> {
    event.key.as_deref().map(mask_phones)
}

/// Label in a list of events.
pub(super) fn label(event: &EventResponse) -> String {
    let key = masked_key(event);
    let details = [event.kind.as_ref().map(EventKind::as_str), key.as_deref()];
    let details: Vec<&str> = details.into_iter().flatten().collect();
    let received_at = event.received_at.to_string();
    let time = received_at.get(..19).unwrap_or(&received_at).replace('T', " ");
    let text: String = details.join(" · ").chars().take(60).collect();
    if text.is_empty() { time } else { format!("{time} · {text}") }
}
