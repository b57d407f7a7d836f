//! `/dead-letters`: dead letters grouped by cause; `/dead-letters/all`: the list.

use std::sync::Arc;

use askama::Template;
use axum::{Router, extract::Query, routing::get};
use serde::Deserialize;
use surehook_api::{
    ApiTransport as _, calls, dead_letters::DeadLetterGroupResponse, deliveries::DeliveryResponse,
    percent_encode,
};

use crate::{
    Dashboard,
    current_user::CurrentUser,
    filter::{FilterBar, FilterQuery, FilterTerm},
    lang::fill,
    list_page::{ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{DeadLetterTexts, FailureTexts},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/dead-letters", get(list_groups))
        .route("/dead-letters/all", get(list_dead_letters))
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
    groups: Vec<DeadLetterGroupResponse>,
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

    fn count(&self, group: &DeadLetterGroupResponse) -> String {
        self.frame.lang().count(group.count, self.t.one, self.t.many)
    }
}

async fn list_groups(user: CurrentUser, Query(query): Query<GroupsQuery>) -> PageResult {
    let t = DeadLetterTexts::of(user.lang());
    let call = calls::list_dead_letter_groups()
        .query_some("destination", Some(&query.destination))
        .query_some("cursor", query.cursor.as_deref())
        .query("limit", "30");
    let page = user.call(call).await?;
    let destination = query.destination;
    let url = match destination.as_str() {
        "" => "/dead-letters".to_owned(),
        name => format!("/dead-letters?destination={}", percent_encode(name)),
    };
    let pager = Pager::new(url, query.cursor.as_deref(), page.next_cursor.as_deref());
    let frame = PageFrame::of_menu(&user, NavItem::DeadLetters);
    let f = FailureTexts::of(user.lang());
    render_page(&GroupsPage { frame, t, f, groups: page.data, destination, pager })
}

const LIST: ListDefinition = ListDefinition {
    path: "/dead-letters/all",
    filters: &["dest", "source", "reason", "class", "code", "kind", "group", "since", "until"],
    example: "dest:crm code:5xx since:1d",
};

#[derive(Template)]
#[template(path = "dead_letters_all.html")]
struct DeadLettersPage {
    frame: PageFrame,
    t: &'static DeadLetterTexts,
    f: &'static FailureTexts,
    bar: FilterBar,
    letters: Vec<DeliveryResponse>,
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

    fn select_label(&self, letter: &DeliveryResponse) -> String {
        fill(self.t.select, &[&letter.id])
    }
}

async fn list_dead_letters(user: CurrentUser, Query(query): Query<ListPageQuery>) -> PageResult {
    let t = DeadLetterTexts::of(user.lang());
    let frame = PageFrame::new(&user, NavItem::DeadLetters, t.all);
    let (bar, page) = LIST.load(&user, &query, calls::list_dead_letters()).await?;
    let pager = Pager::filtered(&bar, &query, page.next_cursor.as_deref());
    let f = FailureTexts::of(user.lang());
    render_page(&DeadLettersPage { frame, t, f, bar, letters: page.data, pager })
}
