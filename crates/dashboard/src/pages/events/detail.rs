//! `/events/{id}`: one event with its deliveries, timeline, duplicates and body.

use askama::Template;
use axum::{body::Body, extract::Path};
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Response, header};
use serde::Deserialize;

use super::{
    api::{
        DeliveryDetails, EventAttributes, EventDetails, EventFact, RequestHeadItem,
        RevealedEventData, RevealedResponse, event_facts, mask_people,
    },
    card::DeliveryCard,
    event_path,
    timeline::{self, TimelineBuilder, TimelineLine},
};
use crate::{
    body::{BodyView, INLINE_BYTES_MAX},
    client::{ApiError, ApiPath, percent_encode},
    curl,
    current_user::CurrentUser,
    format::{Badge, format_duration, format_size},
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{CommonTexts, EventTexts, TimelineTexts},
};

/// Number of deliveries shown, newest first.
const CARDS_MAX: usize = 25;
/// Larger bodies cannot be loaded into the tree view.
const LOAD_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Response header with the number of masked values; absent if there are none.
const MASKED: HeaderName = HeaderName::from_static("surehook-masked");

struct SightingRow {
    n: u32,
    at: String,
    gap: String,
    bytes_differ: bool,
    delivered_as: Option<String>,
}

#[derive(Template)]
#[template(path = "event.html")]
struct EventPage {
    frame: PageFrame,
    t: &'static EventTexts,
    timeline_texts: &'static TimelineTexts,
    event: EventDetails,
    heading: String,
    path: String,
    size: String,
    pills: Vec<Badge>,
    facts: Vec<EventFact>,
    cards: Vec<DeliveryCard>,
    cards_left: Option<String>,
    /// Destinations of dead deliveries, without deleted ones.
    dead_destinations: Vec<String>,
    idempotency_key: String,
    timeline: Vec<TimelineLine>,
    sightings: Vec<SightingRow>,
    sightings_left: Option<String>,
    body: BodyView,
    has_masked_values: bool,
    cut_note: String,
    can_load: bool,
    /// Path and query of the request.
    address: Option<String>,
    curl: Option<curl::CurlCommand>,
    is_revealed: bool,
}

impl EventPage {
    fn masked_subject(&self) -> String {
        super::api::masked_subject(&self.event.attributes)
    }

    fn older_attempts_label(&self, card: &DeliveryCard) -> String {
        let count = card.older.len() as u64;
        self.frame.lang().count(count, self.t.attempt_older, self.t.attempts_older)
    }
}

pub(super) async fn show_event(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    event_page(&user, &id, None).await
}

/// `revealed` contains unmasked values.
pub(super) async fn event_page(
    user: &CurrentUser,
    id: &str,
    revealed: Option<RevealedEventData>,
) -> PageResult {
    let address = ApiPath::new(&["events", id]);
    let mut event: EventDetails = user.get(address).await?;
    let is_revealed = revealed.is_some();
    let (body, has_masked_values, responses) = match revealed {
        Some(revealed) => {
            let body = revealed.body.map_or(BodyView::Removed, |body| {
                let bytes = body.bytes();
                let shown = bytes.len().min(INLINE_BYTES_MAX);
                BodyView::from_bytes(&bytes[..shown], shown < bytes.len())
            });
            (event.key, event.attributes) = (revealed.key, revealed.attributes);
            event.request = revealed.request;
            (body, false, revealed.responses)
        }
        None => {
            let (body, has_masked_values) =
                read_body(user, ApiPath::new(&["events", id, "body"])).await?;
            (body, has_masked_values, Vec::new())
        }
    };
    let masked_attributes =
        if is_revealed { EventAttributes::new() } else { event.attributes.clone() };
    event.key = event.key.map(|key| mask_people(&key, &masked_attributes));
    let lang = user.lang();
    let t = EventTexts::of(lang);
    let cards = load_cards(user, &event, &responses, &masked_attributes).await?;
    let left = event.deliveries.len().saturating_sub(CARDS_MAX);
    let heading = event.kind.clone().unwrap_or_else(|| t.title.to_owned());
    let frame = PageFrame::new(user, NavItem::Events, heading.clone());
    // Revealed secrets must not end up in a shell history.
    let request = event.request.as_ref().filter(|_| !is_revealed);
    let curl = request.map(|request| curl_command(user, &event, request, body.full_text()));
    let address = event.request.as_ref().map(|request| request.address(event.source.as_deref()));
    let sightings_left = event.duplicate_count > event.duplicates.len() as u64;
    render_page(&EventPage {
        t,
        timeline_texts: TimelineTexts::of(lang),
        heading,
        path: event_path(&event.id),
        size: format_size(lang, event.body_bytes),
        pills: status_badges(&event, frame.c),
        facts: event_facts(&event.attributes, t, is_revealed),
        cards,
        dead_destinations: dead_destinations(&event),
        idempotency_key: user.new_idempotency_key(),
        cards_left: (left > 0).then(|| lang.count(left as u64, t.delivery_more, t.deliveries_more)),
        timeline: TimelineBuilder::new(&event, &masked_attributes, lang).build(),
        sightings: sighting_rows(&event, user),
        sightings_left: sightings_left
            .then(|| fill(t.duplicates_more, &[&lang.number(event.duplicate_count)])),
        cut_note: fill(t.body_cut, &[&format_size(lang, INLINE_BYTES_MAX as u64)]),
        can_load: !is_revealed && event.body_bytes <= LOAD_BYTES_MAX,
        body,
        has_masked_values,
        address,
        curl,
        is_revealed,
        frame,
        event,
    })
}

async fn load_cards(
    user: &CurrentUser,
    event: &EventDetails,
    responses: &[RevealedResponse],
    masked_attributes: &EventAttributes,
) -> Result<Vec<DeliveryCard>, ApiError> {
    let mut cards = Vec::new();
    for delivery in event.deliveries.iter().rev().take(CARDS_MAX) {
        let found = match user.get(ApiPath::new(&["deliveries", &delivery.id])).await {
            Ok(found) => found,
            // Retention may remove a delivery meanwhile.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        let mut card = DeliveryCard::new(found, responses, user.new_idempotency_key(), user.lang());
        card.order_key = card.order_key.map(|key| mask_people(&key, masked_attributes));
        cards.push(card);
    }
    Ok(cards)
}

fn status_badges(event: &EventDetails, c: &CommonTexts) -> Vec<Badge> {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for delivery in &event.deliveries {
        *counts.entry(delivery.status.as_str()).or_default() += 1;
    }
    super::list::status_badges(&counts, c)
}

fn dead_destinations(event: &EventDetails) -> Vec<String> {
    let dead = event.deliveries.iter().filter(|delivery| delivery.status == "dead");
    dead.filter_map(|delivery| delivery.destination.clone()).collect()
}

fn sighting_rows(event: &EventDetails, user: &CurrentUser) -> Vec<SightingRow> {
    let sighting = |seen: &super::api::DuplicateItem| SightingRow {
        n: seen.n,
        at: seen.seen_at.clone(),
        gap: format_duration(user.lang(), timeline::elapsed(&event.received_at, &seen.seen_at)),
        bytes_differ: seen.bytes_differ,
        delivered_as: seen.delivered_as.clone(),
    };
    event.duplicates.iter().map(sighting).collect()
}

/// The first part of a body, and whether it contains masked values.
async fn read_body(user: &CurrentUser, address: ApiPath) -> Result<(BodyView, bool), ApiError> {
    let file = match user.fetch(address).await {
        Ok(file) => file,
        Err(error) if matches!(error.status, 404 | 410) => {
            return Ok((BodyView::Removed, false));
        }
        Err(error) if error.status == 409 => return Ok((BodyView::Undecodable, false)),
        Err(error) => return Err(error),
    };
    let has_masked_values = file.headers().contains_key(&MASKED);
    let mut chunks = file.into_body().into_data_stream();
    let mut bytes = Vec::new();
    while bytes.len() <= INLINE_BYTES_MAX {
        match chunks.next().await {
            Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
            Some(Err(error)) => {
                let detail = error.to_string();
                return Err(ApiError { status: 500, detail });
            }
            None => break,
        }
    }
    let shown = bytes.len().min(INLINE_BYTES_MAX);
    Ok((BodyView::from_bytes(&bytes[..shown], shown < bytes.len()), has_masked_values))
}

fn curl_command(
    user: &CurrentUser,
    event: &EventDetails,
    request: &RequestHeadItem,
    body: Option<&str>,
) -> curl::CurlCommand {
    let origin = user.gateway().public_url();
    let origin = origin.as_deref().map(|url| url.trim_end_matches('/'));
    let headers = request.headers.iter().map(|line| (line.name.clone(), line.value.text.clone()));
    curl::CurlRequest {
        origin,
        path: request.address(event.source.as_deref()),
        headers: headers.collect(),
        body,
    }
    .to_command()
}

pub(super) async fn download_body(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    download(&user, ApiPath::new(&["events", &id, "body"]), &id).await
}

pub(super) async fn download_sent_body(
    user: CurrentUser,
    Path((_, delivery)): Path<(String, String)>,
) -> PageResult {
    download(&user, ApiPath::new(&["deliveries", &delivery, "body"]), &delivery).await
}

async fn download(user: &CurrentUser, address: ApiPath, name: &str) -> PageResult {
    let file = user.fetch(address).await?;
    let name = format!("attachment; filename=\"{}.bin\"", percent_encode(name));
    let name = HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment"));
    let mut response = Response::new(Body::new(file.into_body()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, name);
    Ok(response)
}

#[derive(Template)]
#[template(path = "event_curl.html")]
struct CurlPage {
    frame: PageFrame,
    t: &'static EventTexts,
    back: String,
    download: String,
    lead: String,
    command: Option<curl::CurlCommand>,
}

#[derive(Deserialize)]
struct DestinationUrl {
    url: Option<String>,
}

pub(super) async fn show_curl(
    user: CurrentUser,
    Path((id, delivery)): Path<(String, String)>,
) -> PageResult {
    let details: DeliveryDetails = user.get(ApiPath::new(&["deliveries", &delivery])).await?;
    let event: EventDetails = user.get(ApiPath::new(&["events", &id])).await?;
    let t = EventTexts::of(user.lang());
    let name = details.delivery.destination.unwrap_or_default();
    let destination = user.get::<DestinationUrl>(ApiPath::new(&["destinations", &name])).await;
    let url = destination.ok().and_then(|destination| destination.url);
    let address = ApiPath::new(&["deliveries", &delivery, "body"]);
    let (body, _) = read_body(&user, address).await?;
    let command = url.map(|url| {
        let lines = event.request.iter().flat_map(|request| &request.headers);
        let is_kind = |name: &str| name.eq_ignore_ascii_case("content-type");
        let kind = lines.filter(|line| is_kind(&line.name));
        let headers = kind.map(|line| (line.name.clone(), line.value.text.clone())).collect();
        curl::CurlRequest { origin: Some(""), path: url, headers, body: body.full_text() }
            .to_command()
    });
    let back = event_path(&id);
    render_page(&CurlPage {
        frame: PageFrame::new(&user, NavItem::Events, t.curl),
        download: format!("{back}/deliveries/{}/body", percent_encode(&delivery)),
        lead: fill(t.curl_destination, &[&name]),
        back,
        t,
        command,
    })
}
