//! Replays deliveries and events selected in a list.

use axum::{Form, response::Response};
use surehook_api::{ApiTransport as _, calls, deliveries::DeliveryResponse};
use surehook_core::delivery::state::DeliveryStatus;

use crate::{
    client::ApiError, current_user::CurrentUser, lang::fill, page::local_path,
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
        if let Ok(event) = user.call(calls::get_event(event)).await {
            let is_dead = |delivery: &&DeliveryResponse| delivery.status == DeliveryStatus::Dead;
            let dead = event.deliveries.iter().filter(is_dead);
            deliveries.extend(dead.map(|delivery| delivery.id.to_string()));
        }
    }
    // A delivery may be selected directly and through its event.
    deliveries.sort();
    deliveries.dedup();
    if deliveries.is_empty() {
        return user.redirect_with_error(next, &ApiError::local(t.nothing_selected));
    }
    let (mut replayed, mut refused) = (0_usize, Vec::new());
    let idempotency_key = if selection.idempotency_key.is_empty() {
        user.new_idempotency_key()
    } else {
        selection.idempotency_key
    };
    for delivery in &deliveries {
        // The delivery id, not its index: when the form is sent again, the list may be shorter.
        let idempotency_key = format!("{idempotency_key}-{delivery}");
        match user.call(calls::replay_delivery(delivery).idempotent(&idempotency_key)).await {
            Ok(_) => replayed += 1,
            Err(error) => refused.push(error.detail),
        }
    }
    let summary = fill(t.selected_done, &[&replayed, &refused.len()]);
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
