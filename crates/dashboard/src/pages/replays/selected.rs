//! Replays deliveries and events selected in a list, after a confirmation that says what will happen.

use std::collections::BTreeMap;

use askama::Template;
use axum::{Form, response::Response};
use surehook_api::{ApiTransport as _, calls, deliveries::DeliveryResponse};
use surehook_core::delivery::state::DeliveryStatus;
use surehook_retry::DeadReason;
use surehook_types::ids::DeliveryId;

use crate::{
    client::ApiError,
    current_user::CurrentUser,
    health::HealthSummary,
    lang::fill,
    page::{NavItem, PageFrame, PageResult, local_path, render_page},
    translations::ReplayTexts,
};

/// More than one page of a list.
const SELECTED_MAX: usize = 200;

/// The fields of the form. Checkboxes repeat a name, which a derived `Deserialize` does not support.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// The deliveries that a selection replays.
#[derive(Debug, Default)]
struct SelectedDeliveries {
    /// Dead ones, by id: one may be selected directly and through its event.
    dead: BTreeMap<DeliveryId, DeliveryResponse>,
    /// Selected deliveries and events with nothing to replay.
    without: u64,
}

impl SelectedDeliveries {
    async fn load(user: &CurrentUser, selection: &Selection) -> Self {
        let mut selected = Self::default();
        for event in &selection.events {
            // For an event, its dead deliveries are replayed.
            let event = user.call(calls::get_event(event)).await;
            selected.add(event.map(|event| event.deliveries).unwrap_or_default());
        }
        for delivery in &selection.deliveries {
            let delivery = user.call(calls::get_delivery(delivery)).await;
            selected.add(delivery.map(|found| vec![found.delivery]).unwrap_or_default());
        }
        selected
    }

    fn add(&mut self, deliveries: Vec<DeliveryResponse>) {
        let is_dead = |delivery: &DeliveryResponse| delivery.status == DeliveryStatus::Dead;
        let mut dead = deliveries.into_iter().filter(is_dead).peekable();
        self.without += u64::from(dead.peek().is_none());
        self.dead.extend(dead.map(|delivery| (delivery.id, delivery)));
    }
}

/// What happens to the selected deliveries of one destination.
struct SelectedDestination {
    name: String,
    /// `None` if it was deleted.
    health: Option<HealthSummary>,
    count: String,
    /// Deliveries wait, because the destination is paused or its circuit is open.
    waits: bool,
}

#[derive(Template)]
#[template(path = "replay_selected.html")]
struct ConfirmPage {
    frame: PageFrame,
    t: &'static ReplayTexts,
    title: String,
    button: String,
    destinations: Vec<SelectedDestination>,
    without: Option<String>,
    /// Deliveries that may have arrived.
    ambiguous: Option<String>,
    deliveries: Vec<DeliveryId>,
    idempotency_key: String,
    next: String,
}

/// Shows what a replay of the selection does, and asks for confirmation.
pub(super) async fn confirm_selected(
    user: CurrentUser,
    Form(fields): Form<Vec<(String, String)>>,
) -> PageResult {
    let (lang, t) = (user.lang(), ReplayTexts::of(user.lang()));
    let selection = Selection::new(fields);
    let next = local_path(&selection.next).to_owned();
    let SelectedDeliveries { dead, without } = SelectedDeliveries::load(&user, &selection).await;
    if dead.is_empty() {
        return Ok(user.redirect_with_error(&next, &ApiError::local(t.nothing_selected)));
    }
    let stats = user.call(calls::get_stats()).await?;
    let mut by_destination: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for delivery in dead.values() {
        *by_destination.entry(delivery.destination.as_deref()).or_default() += 1;
    }
    let destinations = by_destination.into_iter().map(|(name, count)| {
        let health = stats.destinations.iter().find(|other| Some(other.name.as_str()) == name);
        let health = health.map(|found| HealthSummary::new(&found.health, lang));
        let waits = health.as_ref().is_some_and(|health| health.is_holding());
        let name = name.unwrap_or(t.destination_gone).to_owned();
        SelectedDestination { name, health, count: lang.number(count), waits }
    });
    let is_ambiguous =
        |delivery: &&DeliveryResponse| delivery.reason == Some(DeadReason::Ambiguous);
    let ambiguous = dead.values().filter(is_ambiguous).count() as u64;
    let count = dead.len() as u64;
    let title = lang.count(count, t.confirm_title_one, t.confirm_title);
    render_page(&ConfirmPage {
        frame: PageFrame::new(&user, NavItem::Replays, title.clone()),
        t,
        title,
        button: lang.count(count, t.confirm_button_one, t.confirm_button),
        destinations: destinations.collect(),
        without: (without > 0).then(|| lang.count(without, t.without_one, t.without)),
        ambiguous: (ambiguous > 0).then(|| lang.count(ambiguous, t.ambiguous_one, t.ambiguous)),
        deliveries: dead.into_keys().collect(),
        idempotency_key: user.new_idempotency_key(),
        next,
    })
}

pub(super) async fn replay_selected(
    user: CurrentUser,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let t = ReplayTexts::of(user.lang());
    let selection = Selection::new(fields);
    let next = local_path(&selection.next);
    let mut deliveries = selection.deliveries.clone();
    let of_events = Selection { deliveries: Vec::new(), ..selection.clone() };
    let of_events = SelectedDeliveries::load(&user, &of_events).await.dead;
    deliveries.extend(of_events.into_keys().map(|id| id.to_string()));
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
