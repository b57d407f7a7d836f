//! `/dead-letters`: dead letters grouped by cause; `/dead-letters/all`: the list.

use std::sync::Arc;

use askama::Template;
use axum::{Router, extract::Query, routing::get};
use serde::Deserialize;

use crate::{
    Dashboard,
    client::{ApiList, ApiPath, percent_encode},
    current_user::CurrentUser,
    filter::{FilterBar, FilterQuery, FilterTerm},
    lang::fill,
    list_page::{FilteredList, ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{DeadLetterTexts, FailureTexts},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/dead-letters", get(list_groups))
        .route("/dead-letters/all", get(list_dead_letters))
}

#[derive(Deserialize)]
struct GroupItem {
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

impl GroupItem {
    fn replay_path(&self) -> String {
        format!("/replays/new?q={}", percent_encode(&format!("group:{}", self.id)))
    }

    fn list_path(&self) -> String {
        format!("/dead-letters/all?q={}", percent_encode(&format!("group:{}", self.id)))
    }
}

#[derive(Deserialize)]
struct GroupsQuery {
    #[serde(default)]
    destination: String,
    cursor: Option<String>,
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct GroupsPage {
    frame: PageFrame,
    t: &'static DeadLetterTexts,
    f: &'static FailureTexts,
    groups: Vec<GroupItem>,
    /// Empty for all destinations.
    destination: String,
    pager: Pager,
}

impl GroupsPage {
    fn all_path(&self) -> String {
        if self.destination.is_empty() {
            return "/dead-letters/all".to_owned();
        }
        let term = FilterTerm { name: "dest".to_owned(), value: self.destination.clone() };
        format!("/dead-letters/all?q={}", percent_encode(&term.text()))
    }

    fn count(&self, group: &GroupItem) -> String {
        self.frame.lang().count(group.count, self.t.one, self.t.many)
    }
}

async fn list_groups(user: CurrentUser, Query(query): Query<GroupsQuery>) -> PageResult {
    let t = DeadLetterTexts::of(user.lang());
    let address = ApiPath::new(&["dead-letters", "groups"])
        .with_some("destination", Some(&query.destination))
        .with_some("cursor", query.cursor.as_deref())
        .with("limit", "30");
    let found: ApiList<GroupItem> = user.get(address).await?;
    let destination = query.destination;
    let here = match destination.as_str() {
        "" => "/dead-letters".to_owned(),
        name => format!("/dead-letters?destination={}", percent_encode(name)),
    };
    let pager = Pager::new(here, query.cursor.as_deref(), found.next_cursor.as_deref());
    let frame = PageFrame::of_menu(&user, NavItem::DeadLetters);
    let f = FailureTexts::of(user.lang());
    render_page(&GroupsPage { frame, t, f, groups: found.data, destination, pager })
}

const LIST: ListDefinition = ListDefinition {
    path: "/dead-letters/all",
    name: "dead-letters",
    known: &["dest", "source", "reason", "class", "code", "kind", "group", "since", "until"],
    example: "dest:crm code:5xx since:1d",
};

#[derive(Deserialize)]
struct DeadLetterItem {
    id: String,
    event: String,
    destination: Option<String>,
    reason: Option<String>,
    attempts: u64,
    ended_at: Option<String>,
    created_at: String,
}

impl DeadLetterItem {
    fn died_at(&self) -> &str {
        self.ended_at.as_deref().unwrap_or(&self.created_at)
    }
}

#[derive(Template)]
#[template(path = "dead_letters_all.html")]
struct DeadLettersPage {
    frame: PageFrame,
    t: &'static DeadLetterTexts,
    f: &'static FailureTexts,
    bar: FilterBar,
    letters: Vec<DeadLetterItem>,
    idempotency_key: String,
    pager: Pager,
}

impl DeadLettersPage {
    /// Replays everything that matches the filter. Not available with times: in this list they refer to
    /// the delivery, in a replay to the event, so other deliveries would be selected.
    fn replay_path(&self) -> Option<String> {
        let filter = FilterQuery::parse(&self.bar.typed);
        let has_times = filter.value("since").or(filter.value("until")).is_some();
        (!has_times).then(|| format!("/replays/new?q={}", percent_encode(&self.bar.typed)))
    }

    fn select_label(&self, letter: &DeadLetterItem) -> String {
        fill(self.t.select, &[&letter.id])
    }
}

async fn list_dead_letters(user: CurrentUser, Query(query): Query<ListPageQuery>) -> PageResult {
    let t = DeadLetterTexts::of(user.lang());
    let frame = PageFrame::new(&user, NavItem::DeadLetters, t.all);
    let FilteredList { bar, found, pager, .. } = LIST.load(&user, &query).await?;
    let (f, idempotency_key) = (FailureTexts::of(user.lang()), user.new_idempotency_key());
    render_page(&DeadLettersPage { frame, t, f, bar, letters: found.data, idempotency_key, pager })
}
