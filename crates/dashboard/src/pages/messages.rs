//! `/messages`: what was sent from here, and what became of it.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    response::Response,
    routing::get,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Dashboard,
    client::{Address, List, encode},
    filter::Bar,
    listing::{Asked, Filtered, Listing, Pager},
    page::{Frame, Nav, Shown, show},
    show::{Badge, masked},
    visitor::Visitor,
    words::{Common, Messages},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/messages", get(list).post(send)).route("/messages/{id}", get(one))
}

/// Names of the filter bar, and what the API calls them.
const KNOWN: [(&str, &str); 5] = [
    ("status", "status"),
    ("dest", "destination"),
    ("to", "to"),
    ("since", "since"),
    ("until", "until"),
];

const LIST: Listing = Listing {
    path: "/messages",
    name: "messages",
    known: &KNOWN,
    example: "status:failed dest:support since:1d",
};

#[derive(Deserialize)]
struct Message {
    id: String,
    created_at: String,
    destination: Option<String>,
    to: Option<String>,
    #[serde(rename = "type")]
    of_type: Option<String>,
    status: String,
    reason: Option<String>,
    attempts: u64,
    sent_id: Option<String>,
    #[serde(default)]
    statuses: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    at: String,
    state: String,
    error_code: Option<String>,
    error_title: Option<String>,
    event_id: String,
}

impl Message {
    /// To whom, as far as a list shows it.
    fn to_whom(&self) -> String {
        self.to.as_deref().map(masked).unwrap_or_default()
    }
}

/// What became of a message, as a pill.
pub(super) fn badge(word: &str, t: &Messages, c: &Common) -> Badge {
    match word {
        "accepted" => Badge::new("", "clock", t.accepted),
        "sending" => Badge::new("warn", "clock", t.sending),
        "sent" => Badge::new("ok", "send", t.sent),
        "delivered" => Badge::new("ok", "check", t.delivered),
        "read" => Badge::new("ok", "eye", t.read),
        "failed" => Badge::new("bad", "cross", t.failed),
        "cancelled" => Badge::new("", "cross", c.cancelled),
        other => Badge::new("", "dot", other),
    }
}

/// A destination, as far as it matters who can send.
#[derive(Deserialize)]
struct Sender {
    name: String,
    #[serde(default)]
    kind: String,
}

/// The names of all destinations that send messages.
pub(super) async fn senders(visitor: &Visitor) -> Vec<String> {
    let address = Address::new(&["destinations"]).with("limit", "200");
    let found = visitor.get::<List<Sender>>(address).await.unwrap_or_default();
    let sends = |sender: &Sender| {
        matches!(sender.kind.as_str(), "whatsapp-cloud" | "evolution-go" | "evolution-api")
    };
    found.data.into_iter().filter(sends).map(|sender| sender.name).collect()
}

#[derive(Template)]
#[template(path = "messages.html")]
struct MessagesPage {
    frame: Frame,
    t: &'static Messages,
    bar: Bar,
    messages: Vec<Message>,
    senders: Vec<String>,
    once: String,
    typed: Wanted,
    problem: Option<String>,
    pager: Pager,
}

impl MessagesPage {
    fn badge(&self, word: &str) -> Badge {
        badge(word, self.t, self.frame.c)
    }
}

async fn list(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    let typed = Wanted { once: visitor.once(), ..Wanted::default() };
    page(visitor, asked, typed, None).await
}

async fn page(visitor: Visitor, asked: Asked, typed: Wanted, problem: Option<String>) -> Shown {
    let t = Messages::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::Messages, t.title);
    let Filtered { bar, found, pager, .. } = LIST.look(&visitor, &asked).await?;
    let (senders, once) = (senders(&visitor).await, typed.once.clone());
    let messages = found.data;
    show(&MessagesPage { frame, t, bar, messages, senders, once, typed, problem, pager })
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    t: &'static Messages,
    message: Message,
}

impl MessagePage {
    fn badge(&self, word: &str) -> Badge {
        badge(word, self.t, self.frame.c)
    }
}

async fn one(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let t = Messages::of(visitor.lang());
    let found = visitor.get::<Message>(Address::new(&["messages", &id])).await;
    let message = found.map_err(|trouble| visitor.failed(trouble))?;
    show(&MessagePage { frame: Frame::new(&visitor, Nav::Messages, t.title), t, message })
}

#[derive(Default, Deserialize)]
struct Wanted {
    #[serde(default)]
    destination: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    once: String,
}

#[derive(Deserialize)]
struct Accepted {
    id: String,
}

async fn send(
    visitor: Visitor,
    Form(wanted): Form<Wanted>,
) -> Result<Response, crate::page::Failed> {
    let body: Value = json!({
        "destination": wanted.destination,
        "to": wanted.to.trim(),
        "text": wanted.text,
    });
    let address = Address::new(&["messages"]);
    match visitor.post_once::<Accepted>(address, Some(body), &wanted.once).await {
        Ok(made) => {
            let t = Messages::of(visitor.lang());
            Ok(visitor.done(&format!("/messages/{}", encode(&made.id)), t.sent_flash))
        }
        Err(trouble) => {
            let once = visitor.once_again(&wanted.once, &trouble);
            let wanted = Wanted { once, ..wanted };
            page(visitor, Asked::default(), wanted, Some(trouble.detail)).await
        }
    }
}
