//! `/events/{id}`: one event and everything that happened to it.

use askama::Template;
use axum::{body::Body, extract::Path};
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Response, header};
use serde::Deserialize;

use super::{
    api::{
        Attributes, DeliveryDetail, Event, Fact, Request, Revealed, RevealedAnswer, facts,
        without_people,
    },
    card::Card,
    path_of,
    story::{self, Line, Teller},
};
use crate::{
    body::{BodyView, INLINE_BYTES_MAX},
    client::{Address, Trouble, encode},
    curl,
    lang::fill,
    page::{Failed, Frame, Nav, Shown, show},
    show::{Badge, size, span},
    visitor::Visitor,
    words::{Common, EventWords, Told},
};

/// Deliveries of one event that a page shows, the newest.
const CARDS_MAX: usize = 25;
/// The largest body that a browser may load for its tree.
const LOAD_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How many values of a body are masked; missing if none is.
const MASKED: HeaderName = HeaderName::from_static("surehook-masked");

/// A sighting of a duplicate as the page lists it.
struct Sighting {
    n: u32,
    at: String,
    gap: String,
    bytes_differ: bool,
    delivered_as: Option<String>,
}

#[derive(Template)]
#[template(path = "event.html")]
struct EventPage {
    frame: Frame,
    t: &'static EventWords,
    told: &'static Told,
    event: Event,
    heading: String,
    path: String,
    size: String,
    pills: Vec<Badge>,
    facts: Vec<Fact>,
    cards: Vec<Card>,
    cards_left: Option<String>,
    /// Where its dead deliveries go; one that was deleted gets nothing.
    dead_to: Vec<String>,
    once: String,
    story: Vec<Line>,
    sightings: Vec<Sighting>,
    sightings_left: Option<String>,
    body: BodyView,
    /// Secrets of the body are masked.
    masks: bool,
    cut: String,
    can_load: bool,
    /// Where it came in.
    address: Option<String>,
    curl: Option<curl::Line>,
    is_revealed: bool,
}

impl EventPage {
    /// Whom it is about, for a dialog.
    fn about(&self) -> String {
        super::api::about(&self.event.attributes)
    }

    /// How many attempts are folded away.
    fn older(&self, card: &Card) -> String {
        let many = card.older.len() as u64;
        self.frame.lang().count(many, self.t.attempt_older, self.t.attempts_older)
    }
}

pub(super) async fn detail(visitor: Visitor, Path(id): Path<String>) -> Shown {
    page(&visitor, &id, None).await
}

/// The page; with what is masked elsewhere, if it was revealed.
pub(super) async fn page(visitor: &Visitor, id: &str, revealed: Option<Revealed>) -> Shown {
    let address = Address::new(&["events", id]);
    let mut event: Event = visitor.get(address).await.map_err(|trouble| visitor.failed(trouble))?;
    let is_revealed = revealed.is_some();
    let (body, masks, answers) = match revealed {
        Some(revealed) => {
            let body = revealed.body.map_or(BodyView::Removed, |said| {
                let bytes = said.bytes();
                let shown = bytes.len().min(INLINE_BYTES_MAX);
                BodyView::of(&bytes[..shown], shown < bytes.len())
            });
            (event.key, event.attributes) = (revealed.key, revealed.attributes);
            event.request = revealed.request;
            (body, false, revealed.answers)
        }
        None => {
            let found = read_body(visitor, Address::new(&["events", id, "body"])).await;
            let (body, masks) = found.map_err(|trouble| visitor.failed(trouble))?;
            (body, masks, Vec::new())
        }
    };
    let hidden = if is_revealed { Attributes::new() } else { event.attributes.clone() };
    event.key = event.key.map(|key| without_people(&key, &hidden));
    let lang = visitor.lang();
    let t = EventWords::of(lang);
    let cards = cards(visitor, &event, &answers, &hidden).await?;
    let left = event.deliveries.len().saturating_sub(CARDS_MAX);
    let heading = event.kind.clone().unwrap_or_else(|| t.title.to_owned());
    let frame = Frame::new(visitor, Nav::Events, heading.clone());
    // What is revealed must not end up in the history of a shell.
    let request = event.request.as_ref().filter(|_| !is_revealed);
    let curl = request.map(|request| as_curl(visitor, &event, request, body.whole()));
    let address = event.request.as_ref().map(|request| request.address(event.source.as_deref()));
    let sightings_left = event.duplicate_count > event.duplicates.len() as u64;
    show(&EventPage {
        t,
        told: Told::of(lang),
        heading,
        path: path_of(&event.id),
        size: size(lang, event.body_bytes),
        pills: pills(&event, frame.c),
        facts: facts(&event.attributes, t, is_revealed),
        cards,
        dead_to: dead_to(&event),
        once: visitor.once(),
        cards_left: (left > 0).then(|| lang.count(left as u64, t.delivery_more, t.deliveries_more)),
        story: Teller::new(&event, &hidden, lang).tell(),
        sightings: sightings(&event, visitor),
        sightings_left: sightings_left
            .then(|| fill(t.duplicates_more, &[&lang.number(event.duplicate_count)])),
        cut: fill(t.body_cut, &[&size(lang, INLINE_BYTES_MAX as u64)]),
        can_load: !is_revealed && event.body_bytes <= LOAD_BYTES_MAX,
        body,
        masks,
        address,
        curl,
        is_revealed,
        frame,
        event,
    })
}

/// The newest deliveries with their attempts.
async fn cards(
    visitor: &Visitor,
    event: &Event,
    answers: &[RevealedAnswer],
    hidden: &Attributes,
) -> Result<Vec<Card>, Failed> {
    let mut cards = Vec::new();
    for owed in event.deliveries.iter().rev().take(CARDS_MAX) {
        let found = visitor.get(Address::new(&["deliveries", &owed.id])).await;
        let found = match found {
            Ok(found) => found,
            // Retention may take one away while we look.
            Err(trouble) if trouble.is_not_found() => continue,
            Err(trouble) => return Err(visitor.failed(trouble)),
        };
        let mut card = Card::new(found, answers, visitor.once(), visitor.lang());
        card.order_key = card.order_key.map(|key| without_people(&key, hidden));
        cards.push(card);
    }
    Ok(cards)
}

/// One pill for each status that a delivery has, the most urgent first.
fn pills(event: &Event, c: &Common) -> Vec<Badge> {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for owed in &event.deliveries {
        *counts.entry(owed.status.as_str()).or_default() += 1;
    }
    super::list::pills(&counts, c)
}

/// The destinations whose delivery is dead.
fn dead_to(event: &Event) -> Vec<String> {
    let dead = event.deliveries.iter().filter(|owed| owed.status == "dead");
    dead.filter_map(|owed| owed.destination.clone()).collect()
}

fn sightings(event: &Event, visitor: &Visitor) -> Vec<Sighting> {
    let sighting = |seen: &super::api::Duplicate| Sighting {
        n: seen.n,
        at: seen.seen_at.clone(),
        gap: span(visitor.lang(), story::gap(&event.received_at, &seen.seen_at)),
        bytes_differ: seen.bytes_differ,
        delivered_as: seen.delivered_as.clone(),
    };
    event.duplicates.iter().map(sighting).collect()
}

/// The first part of a body, and whether something in it is masked.
async fn read_body(visitor: &Visitor, address: Address) -> Result<(BodyView, bool), Trouble> {
    let file = match visitor.fetch(address).await {
        Ok(file) => file,
        Err(trouble) if matches!(trouble.status, 404 | 410) => {
            return Ok((BodyView::Removed, false));
        }
        Err(trouble) if trouble.status == 409 => return Ok((BodyView::Opaque, false)),
        Err(trouble) => return Err(trouble),
    };
    let masks = file.headers().contains_key(&MASKED);
    let mut chunks = file.into_body().into_data_stream();
    let mut bytes = Vec::new();
    while bytes.len() <= INLINE_BYTES_MAX {
        match chunks.next().await {
            Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
            Some(Err(error)) => {
                let detail = error.to_string();
                return Err(Trouble { status: 500, detail });
            }
            None => break,
        }
    }
    let shown = bytes.len().min(INLINE_BYTES_MAX);
    Ok((BodyView::of(&bytes[..shown], shown < bytes.len()), masks))
}

fn as_curl(visitor: &Visitor, event: &Event, request: &Request, body: Option<&str>) -> curl::Line {
    let origin = visitor.gateway().public_url();
    let origin = origin.as_deref().map(|url| url.trim_end_matches('/'));
    let headers = request.headers.iter().map(|line| (line.name.clone(), line.value.text.clone()));
    curl::Request {
        origin,
        path: request.address(event.source.as_deref()),
        headers: headers.collect(),
        body,
    }
    .line()
}

/// The body as a file.
pub(super) async fn body(visitor: Visitor, Path(id): Path<String>) -> Shown {
    download(&visitor, Address::new(&["events", &id, "body"]), &id).await
}

/// What a delivery sends, as a file.
pub(super) async fn sent_body(
    visitor: Visitor,
    Path((_, delivery)): Path<(String, String)>,
) -> Shown {
    download(&visitor, Address::new(&["deliveries", &delivery, "body"]), &delivery).await
}

async fn download(visitor: &Visitor, address: Address, name: &str) -> Shown {
    let file = visitor.fetch(address).await.map_err(|trouble| visitor.failed(trouble))?;
    let name = format!("attachment; filename=\"{}.bin\"", encode(name));
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
    frame: Frame,
    t: &'static EventWords,
    back: String,
    download: String,
    lead: String,
    line: Option<curl::Line>,
}

#[derive(Deserialize)]
struct Destination {
    url: Option<String>,
}

/// What is sent to a destination, as a line for a shell.
pub(super) async fn curl(visitor: Visitor, Path((id, delivery)): Path<(String, String)>) -> Shown {
    let failed = |trouble| visitor.failed(trouble);
    let owed: DeliveryDetail =
        visitor.get(Address::new(&["deliveries", &delivery])).await.map_err(failed)?;
    let event: Event = visitor.get(Address::new(&["events", &id])).await.map_err(failed)?;
    let t = EventWords::of(visitor.lang());
    let name = owed.delivery.destination.unwrap_or_default();
    let destination = visitor.get::<Destination>(Address::new(&["destinations", &name])).await;
    let url = destination.ok().and_then(|destination| destination.url);
    let address = Address::new(&["deliveries", &delivery, "body"]);
    let (body, _) = read_body(&visitor, address).await.map_err(failed)?;
    let line = url.map(|url| {
        let lines = event.request.iter().flat_map(|request| &request.headers);
        let is_kind = |name: &str| name.eq_ignore_ascii_case("content-type");
        let kind = lines.filter(|line| is_kind(&line.name));
        let headers = kind.map(|line| (line.name.clone(), line.value.text.clone())).collect();
        curl::Request { origin: Some(""), path: url, headers, body: body.whole() }.line()
    });
    let back = path_of(&id);
    show(&CurlPage {
        frame: Frame::new(&visitor, Nav::Events, t.curl),
        download: format!("{back}/deliveries/{}/body", encode(&delivery)),
        lead: fill(t.curl_destination, &[&name]),
        back,
        t,
        line,
    })
}
