//! `/events/{id}`: one event with its deliveries, timeline, duplicates and body.

use askama::Template;
use axum::{body::Body, extract::Path};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Response, header};
use surehook_api::{
    ApiCall, ApiTransport as _, BodyContent, HeaderField, calls,
    events::{
        DuplicateResponse, EventDetailResponse, EventResponse, RequestHeadResponse,
        RevealEventResponse, RevealedAttemptResponse,
    },
    percent_encode,
};
use surehook_core::{
    delivery::state::DeliveryStatus, destination::kind::DestinationKind, outbox::OUTBOX,
};
use surehook_types::time::Timestamp;
use surehook_webhooks::{
    attribute::{Attributes, EventKind},
    key::KeyOrigin,
};

use super::{
    attributes::{self, attribute_facts, mask_personal_data},
    card::DeliveryCard,
    event_path,
    list::status_badges,
    timeline::{TimelineBuilder, TimelineLine},
};
use crate::{
    body::{BodyView, FormFieldView, INLINE_BYTES_MAX},
    client::ApiError,
    curl,
    current_user::CurrentUser,
    format::{Badge, format_duration, format_size},
    lang::fill,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{EventTexts, TimelineTexts},
};

/// Number of deliveries shown, newest first.
const CARDS_MAX: usize = 25;
/// Larger bodies cannot be loaded into the tree view.
const LOAD_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Response header with the number of masked values; absent if there are none.
const MASKED: HeaderName = HeaderName::from_static("surehook-masked");

#[derive(Template)]
#[template(path = "event.html")]
#[expect(clippy::struct_excessive_bools, reason = "each shows or hides a part of the page")]
struct EventPage {
    frame: PageFrame,
    t: &'static EventTexts,
    timeline_texts: &'static TimelineTexts,
    event: EventResponse,
    is_key_guessed: bool,
    request: Option<RequestHeadResponse>,
    sha256: String,
    heading: String,
    path: String,
    size: String,
    pills: Vec<Badge>,
    facts: Vec<(&'static str, Vec<String>)>,
    cards: Vec<DeliveryCard>,
    hidden_cards_note: Option<String>,
    /// Destinations of dead deliveries, without deleted ones.
    dead_destinations: Vec<String>,
    idempotency_key: String,
    timeline: Vec<(Timestamp, TimelineLine)>,
    /// Duplicates, each with the time since the event.
    listed_duplicates: Vec<(DuplicateResponse, String)>,
    unlisted_duplicates_note: Option<String>,
    body: BodyView,
    /// The fields of a form; empty for other bodies.
    form: Vec<FormFieldView>,
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
        attributes::masked_subject(&self.event.attributes)
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
    revealed: Option<RevealEventResponse>,
) -> PageResult {
    let mut detail = user.call(calls::get_event(id)).await?;
    let is_revealed = revealed.is_some();
    let (body, has_masked_values, responses) = match revealed {
        Some(revealed) => {
            let body = revealed.body.map_or(BodyView::Removed, |body| BodyView::new(&body.bytes()));
            (detail.event.key, detail.event.attributes) = (revealed.key, revealed.attributes);
            detail.request = revealed.request;
            (body, false, revealed.responses)
        }
        None => {
            let (body, has_masked_values) = read_body(user, calls::get_event_body(id)).await?;
            (body, has_masked_values, Vec::new())
        }
    };
    let masked_attributes =
        if is_revealed { Attributes::default() } else { detail.event.attributes.clone() };
    detail.event.key = detail.event.key.map(|key| mask_personal_data(&key, &masked_attributes));
    let lang = user.lang();
    let t = EventTexts::of(lang);
    let cards = load_cards(user, &detail, &responses, &masked_attributes).await?;
    let timeline = TimelineBuilder::new(&detail, &masked_attributes, lang).build();
    let EventDetailResponse { event, sha256, request, deliveries, duplicates, .. } = detail;
    let hidden_cards = deliveries.len().saturating_sub(CARDS_MAX);
    let heading = event.kind.as_ref().map_or(t.title, EventKind::as_str).to_owned();
    let frame = PageFrame::new(user, NavItem::Events, heading.clone());
    let source = event.source.as_deref();
    let address = request.as_ref().and_then(|request| request_address(request, source));
    // Revealed secrets must not end up in a shell history, and the outbox receives no requests.
    let has_curl = !is_revealed && source != Some(OUTBOX);
    let curl = request.as_ref().zip(address.clone()).filter(|_| has_curl);
    let curl = curl.map(|(request, path)| curl_command(user, request, path, body.full_text()));
    let content_type = request.as_ref().and_then(find_content_type);
    let has_unlisted_duplicates = event.duplicate_count > duplicates.len() as u64;
    let gap = |duplicate: &DuplicateResponse| duplicate.seen_at.since(event.received_at);
    let count = |status| deliveries.iter().filter(|other| other.status == status).count() as u64;
    let dead = deliveries.iter().filter(|delivery| delivery.status == DeliveryStatus::Dead);
    render_page(&EventPage {
        t,
        timeline_texts: TimelineTexts::of(lang),
        heading,
        path: event_path(event.id),
        size: format_size(lang, event.body_bytes),
        pills: status_badges(count, frame.c),
        facts: attribute_facts(&event.attributes, t, is_revealed),
        cards,
        dead_destinations: dead.filter_map(|delivery| delivery.destination.clone()).collect(),
        idempotency_key: user.new_idempotency_key(),
        hidden_cards_note: (hidden_cards > 0)
            .then(|| lang.count(hidden_cards as u64, t.delivery_more, t.deliveries_more)),
        timeline,
        unlisted_duplicates_note: has_unlisted_duplicates
            .then(|| fill(t.duplicates_more, &[&lang.number(event.duplicate_count)])),
        listed_duplicates: duplicates
            .into_iter()
            .map(|duplicate| {
                let gap = format_duration(lang, gap(&duplicate));
                (duplicate, gap)
            })
            .collect(),
        cut_note: fill(t.body_cut, &[&format_size(lang, INLINE_BYTES_MAX as u64)]),
        can_load: !is_revealed && event.body_bytes <= LOAD_BYTES_MAX,
        form: body.form(content_type.as_deref()),
        body,
        has_masked_values,
        address,
        curl,
        is_revealed,
        frame,
        is_key_guessed: event.key_origin == Some(KeyOrigin::Guessed),
        event,
        request,
        sha256,
    })
}

/// Path and query as requested; of a message, those that it names at its destination, if any.
fn request_address(request: &RequestHeadResponse, source: Option<&str>) -> Option<String> {
    let query = request.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{}{query}", request.path);
    match source {
        Some(OUTBOX) => (!path.is_empty()).then_some(path),
        source => Some(format!("/in/{}{path}", source.unwrap_or("…"))),
    }
}

async fn load_cards(
    user: &CurrentUser,
    detail: &EventDetailResponse,
    responses: &[RevealedAttemptResponse],
    masked_attributes: &Attributes,
) -> Result<Vec<DeliveryCard>, ApiError> {
    let mut cards = Vec::new();
    for delivery in detail.deliveries.iter().rev().take(CARDS_MAX) {
        let details = match user.call(calls::get_delivery(&delivery.id.to_string())).await {
            Ok(details) => details,
            // Retention may remove a delivery meanwhile.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        let mut card =
            DeliveryCard::new(details, responses, user.new_idempotency_key(), user.lang());
        let key = &mut card.delivery.ordering_key;
        *key = key.take().map(|key| mask_personal_data(&key, masked_attributes));
        cards.push(card);
    }
    Ok(cards)
}

/// The first part of a body, and whether it contains masked values.
async fn read_body(user: &CurrentUser, call: ApiCall<Bytes>) -> Result<(BodyView, bool), ApiError> {
    let file = match user.fetch(call).await {
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
    Ok((BodyView::new(&bytes), has_masked_values))
}

fn curl_command(
    user: &CurrentUser,
    request: &RequestHeadResponse,
    path: String,
    body: Option<&str>,
) -> curl::CurlCommand {
    let origin = user.gateway().public_url();
    let origin = origin.as_deref().map(|url| url.trim_end_matches('/'));
    let headers = request.headers.iter().map(header_text).collect();
    curl::CurlRequest { origin, path, headers, body }.to_command()
}

fn find_content_type(request: &RequestHeadResponse) -> Option<String> {
    let mut headers = request.headers.iter().map(header_text);
    headers.find(|(name, _)| name.eq_ignore_ascii_case(header::CONTENT_TYPE.as_str()))?.1
}

/// A header, with its value if it is text.
fn header_text(header: &HeaderField) -> (String, Option<String>) {
    let value = match &header.value {
        BodyContent::Text { text } => Some(text.clone()),
        BodyContent::Base64 { .. } => None,
    };
    (header.name.clone(), value)
}

pub(super) async fn download_body(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    download(&user, calls::get_event_body(&id), &id).await
}

pub(super) async fn download_sent_body(
    user: CurrentUser,
    Path((_, delivery)): Path<(String, String)>,
) -> PageResult {
    download(&user, calls::get_delivery_body(&delivery), &delivery).await
}

async fn download(user: &CurrentUser, call: ApiCall<Bytes>, name: &str) -> PageResult {
    let file = user.fetch(call).await?;
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
    event_url: String,
    download: String,
    lead: String,
    command: Option<curl::CurlCommand>,
}

pub(super) async fn show_curl(
    user: CurrentUser,
    Path((id, delivery)): Path<(String, String)>,
) -> PageResult {
    let details = user.call(calls::get_delivery(&delivery)).await?;
    let event = user.call(calls::get_event(&id)).await?;
    let t = EventTexts::of(user.lang());
    let name = details.delivery.destination.unwrap_or_default();
    let destination = user.call(calls::get_destination(&name)).await.ok();
    let spec = destination.map(|destination| destination.spec).filter(|spec| !spec.url.is_empty());
    let url = spec.map(|spec| match (spec.kind, &event.request) {
        (DestinationKind::Origin, Some(request)) => {
            let path = request_address(request, Some(OUTBOX)).unwrap_or_default();
            format!("{}{path}", spec.url.trim_end_matches('/'))
        }
        (_, _) => spec.url,
    });
    let (body, _) = read_body(&user, calls::get_delivery_body(&delivery)).await?;
    let command = url.map(|url| {
        let lines = event.request.iter().flat_map(|request| &request.headers);
        let content_type = lines.filter(|line| line.name.eq_ignore_ascii_case("content-type"));
        let headers = content_type.map(header_text).collect();
        curl::CurlRequest { origin: Some(""), path: url, headers, body: body.full_text() }
            .to_command()
    });
    let event_url = event_path(&id);
    render_page(&CurlPage {
        frame: PageFrame::new(&user, NavItem::Events, t.curl),
        download: format!("{event_url}/deliveries/{}/body", percent_encode(&delivery)),
        lead: fill(t.curl_destination, &[&name]),
        event_url,
        t,
        command,
    })
}
