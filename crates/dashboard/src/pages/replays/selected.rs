//! Replays deliveries and events selected in a list.

use axum::{Form, response::Response};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::{ApiError, ApiPath},
    current_user::CurrentUser,
    lang::fill,
    page::local_path,
    translations::ReplayTexts,
};

/// More than one page of a list.
const SELECTED_MAX: usize = 200;

/// The fields of the form. Checkboxes repeat a name, which a derived `Deserialize` does not support.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    deliveries: Vec<String>,
    events: Vec<String>,
    idempotency_key: String,
    next: String,
}

impl Selection {
    fn new(fields: Vec<(String, String)>) -> Self {
        let mut selection = Self::default();
        for (name, value) in fields {
            match name.as_str() {
                "delivery" => selection.deliveries.push(value),
                "event" => selection.events.push(value),
                "idempotency_key" => selection.idempotency_key = value,
                "next" => selection.next = value,
                _ => {}
            }
        }
        selection.deliveries.truncate(SELECTED_MAX);
        selection.events.truncate(SELECTED_MAX);
        selection
    }
}

#[derive(Deserialize)]
struct EventDeliveries {
    #[serde(default)]
    deliveries: Vec<DeliveryState>,
}

#[derive(Deserialize)]
struct DeliveryState {
    id: String,
    status: String,
}

pub(super) async fn replay_selected(
    user: CurrentUser,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let t = ReplayTexts::of(user.lang());
    let selection = Selection::new(fields);
    let next = local_path(&selection.next);
    let mut deliveries = selection.deliveries;
    for event in &selection.events {
        // For an event, its dead deliveries are replayed.
        if let Ok(event) = user.get::<EventDeliveries>(ApiPath::new(&["events", event])).await {
            let dead = event.deliveries.into_iter().filter(|delivery| delivery.status == "dead");
            deliveries.extend(dead.map(|delivery| delivery.id));
        }
    }
    // A delivery may be selected directly and through its event.
    deliveries.sort();
    deliveries.dedup();
    if deliveries.is_empty() {
        return user.redirect_with_error(next, &ApiError::local(t.nothing_selected));
    }
    let (mut done, mut refused) = (0_usize, Vec::new());
    let idempotency_key = if selection.idempotency_key.is_empty() {
        user.new_idempotency_key()
    } else {
        selection.idempotency_key
    };
    for delivery in &deliveries {
        let address = ApiPath::new(&["deliveries", delivery, "replay"]);
        // The delivery id, not its index: when the form is sent again, the list may be shorter.
        let idempotency_key = format!("{idempotency_key}-{delivery}");
        match user.post_idempotent::<Value>(address, None, &idempotency_key).await {
            Ok(_) => done += 1,
            Err(error) => refused.push(error.detail),
        }
    }
    let summary = fill(t.selected_done, &[&done, &refused.len()]);
    match refused.first() {
        None => user.redirect_with_notice(next, summary),
        Some(first) => {
            let detail = format!("{summary} {}", fill(t.selected_first, &[first]));
            user.redirect_with_error(next, &ApiError::local(detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Query;

    use super::*;

    #[test]
    fn repeated_checkbox_fields_are_all_read() {
        let body = "idempotency_key=a1&delivery=dlv_1&next=%2Fdead-letters%2Fall%3Fq%3Da%2Bb+c&delivery=dlv_2&&x&event=100%zz%4";
        let address = format!("/?{body}").parse().unwrap();
        let Query(fields) = Query::try_from_uri(&address).unwrap();
        let expected = Selection {
            deliveries: vec!["dlv_1".to_owned(), "dlv_2".to_owned()],
            events: vec!["100%zz%4".to_owned()],
            idempotency_key: "a1".to_owned(),
            next: "/dead-letters/all?q=a+b c".to_owned(),
        };
        assert_eq!(Selection::new(fields), expected);
    }
}
