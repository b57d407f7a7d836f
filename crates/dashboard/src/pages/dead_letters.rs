//! `/dead-letters`: what could not be delivered, by cause; `/dead-letters/all`: one by one.

use std::sync::Arc;

use askama::Template;
use axum::{Router, extract::Query, routing::get};
use serde::Deserialize;

use crate::{
    Dashboard,
    client::{Address, List, encode},
    filter::{Bar, Filter, Term},
    lang::fill,
    listing::{Asked, Filtered, Listing, Pager},
    page::{Frame, Nav, Shown, show},
    visitor::Visitor,
    words::{DeadLetters, Failures},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/dead-letters", get(groups)).route("/dead-letters/all", get(list))
}

/// What died of one cause.
#[derive(Deserialize)]
struct Group {
    id: String,
    destination: Option<String>,
    class: Option<String>,
    code: Option<u16>,
    failure: Option<String>,
    reason: Option<String>,
    shape: String,
    sample: Option<String>,
    count: u64,
    first_seen: String,
    last_seen: String,
    newest_event: Option<String>,
}

impl Group {
    /// The address of a replay of all of it.
    fn replay(&self) -> String {
        format!("/replays/new?q={}", encode(&format!("group:{}", self.id)))
    }

    fn letters(&self) -> String {
        format!("/dead-letters/all?q={}", encode(&format!("group:{}", self.id)))
    }
}

#[derive(Deserialize)]
struct Wanted {
    /// Only what was on its way there.
    #[serde(default)]
    destination: String,
    cursor: Option<String>,
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct GroupsPage {
    frame: Frame,
    t: &'static DeadLetters,
    f: &'static Failures,
    groups: Vec<Group>,
    /// The only destination that is shown; empty for all.
    destination: String,
    pager: Pager,
}

impl GroupsPage {
    /// The letters one by one.
    fn all(&self) -> String {
        if self.destination.is_empty() {
            return "/dead-letters/all".to_owned();
        }
        let term = Term { name: "dest".to_owned(), value: self.destination.clone() };
        format!("/dead-letters/all?q={}", encode(&term.text()))
    }

    fn count(&self, group: &Group) -> String {
        self.frame.lang().count(group.count, self.t.one, self.t.many)
    }
}

async fn groups(visitor: Visitor, Query(asked): Query<Wanted>) -> Shown {
    let t = DeadLetters::of(visitor.lang());
    let address = Address::new(&["dead-letters", "groups"])
        .with_some("destination", Some(&asked.destination))
        .with_some("cursor", asked.cursor.as_deref())
        .with("limit", "30");
    let found: List<Group> =
        visitor.get(address).await.map_err(|trouble| visitor.failed(trouble))?;
    let destination = asked.destination;
    let here = match destination.as_str() {
        "" => "/dead-letters".to_owned(),
        name => format!("/dead-letters?destination={}", encode(name)),
    };
    let pager = Pager::new(here, asked.cursor.as_deref(), found.next_cursor.as_deref());
    let frame = Frame::new(&visitor, Nav::DeadLetters, t.title);
    let f = Failures::of(visitor.lang());
    show(&GroupsPage { frame, t, f, groups: found.data, destination, pager })
}

/// Names of the filter bar, and what the API calls them.
const KNOWN: [(&str, &str); 9] = [
    ("dest", "destination"),
    ("source", "source"),
    ("reason", "reason"),
    ("class", "class"),
    ("code", "code"),
    ("kind", "kind"),
    ("group", "group"),
    ("since", "since"),
    ("until", "until"),
];

const LIST: Listing = Listing {
    path: "/dead-letters/all",
    name: "dead-letters",
    known: &KNOWN,
    example: "dest:crm code:5xx since:1d",
};

#[derive(Deserialize)]
struct Letter {
    id: String,
    event: String,
    destination: Option<String>,
    reason: Option<String>,
    attempts: u64,
    ended_at: Option<String>,
    created_at: String,
}

impl Letter {
    fn died_at(&self) -> &str {
        self.ended_at.as_deref().unwrap_or(&self.created_at)
    }
}

#[derive(Template)]
#[template(path = "dead_letters_all.html")]
struct LettersPage {
    frame: Frame,
    t: &'static DeadLetters,
    f: &'static Failures,
    bar: Bar,
    letters: Vec<Letter>,
    once: String,
    pager: Pager,
}

impl LettersPage {
    /// The address of a replay of all that the filter finds. None with times: here they are those
    /// of the delivery, and for a replay those of the event, so that others would be replayed.
    fn replay(&self) -> Option<String> {
        let filter = Filter::parse(&self.bar.typed);
        let has_times = filter.value("since").or(filter.value("until")).is_some();
        (!has_times).then(|| format!("/replays/new?q={}", encode(&self.bar.typed)))
    }

    fn select(&self, letter: &Letter) -> String {
        fill(self.t.select, &[&letter.id])
    }
}

async fn list(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    let t = DeadLetters::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::DeadLetters, t.all);
    let Filtered { bar, found, pager, .. } = LIST.look(&visitor, &asked).await?;
    let (f, once) = (Failures::of(visitor.lang()), visitor.once());
    show(&LettersPage { frame, t, f, bar, letters: found.data, once, pager })
}
