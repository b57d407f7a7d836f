//! A job that is wanted: first what it would do, then, if that was meant, the job itself.

use std::{collections::BTreeMap, time::Duration};

use askama::Template;
use axum::{
    Form,
    extract::{Query, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use surehook_core::time::Timestamp;

use crate::{
    client::{Address, List, Trouble, encode},
    filter::Filter,
    lang::fill,
    page::{Frame, Nav, Shown, show},
    show::span,
    visitor::Visitor,
    words::Replays,
};

/// From how many deliveries on somebody has to type the number.
const TYPED_FROM: u64 = 100;

/// Names of the filter, and what the API calls them.
const KNOWN: [(&str, &str); 12] = [
    ("dest", "destination"),
    ("source", "source"),
    ("reason", "reason"),
    ("class", "class"),
    ("code", "code"),
    ("kind", "kind"),
    ("key", "key"),
    ("status", "status"),
    ("group", "group"),
    ("since", "since"),
    ("until", "until"),
    ("", "search"),
];

/// A name that nobody knows is refused: what it was to narrow would be replayed as a whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    q: String,
    #[serde(default = "retry_failed")]
    verb: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    rate: String,
    #[serde(default)]
    note: String,
    /// The number that was typed to confirm.
    #[serde(default)]
    typed: String,
    #[serde(default)]
    once: String,
    /// The number that the preview showed.
    #[serde(default)]
    shown: String,
}

fn retry_failed() -> String {
    "retry_failed".to_owned()
}

impl Wish {
    /// Whether nothing narrows it.
    fn is_everything(&self) -> bool {
        Filter::parse(&self.q).terms.is_empty()
    }

    /// What must be typed to start it: nothing for a few that were chosen.
    fn must_be_typed(&self, preview: &Preview) -> Option<u64> {
        let is_much = preview.count >= TYPED_FROM || !preview.complete;
        (is_much || self.is_everything()).then_some(preview.count)
    }

    /// As the API takes it; the error is a word of the filter that nobody knows.
    fn body(&self, now: Timestamp, dry_run: bool) -> Result<Value, String> {
        let mut filter = Map::new();
        for (name, value) in Filter::parse(&self.q).parameters(&KNOWN, now)? {
            filter.insert(name, Value::from(value));
        }
        let mut body = json!({ "verb": self.verb, "filter": filter, "dry_run": dry_run });
        if dry_run {
            // Somebody waits for the page.
            body["quick"] = Value::from(true);
        }
        for (name, value) in [("to", &self.to), ("rate", &self.rate), ("note", &self.note)] {
            if !value.trim().is_empty() {
                body[name] = Value::from(value.trim());
            }
        }
        Ok(body)
    }
}

/// What a job would do.
#[derive(Deserialize)]
struct Preview {
    count: u64,
    complete: bool,
    estimate_seconds: Option<f64>,
    oldest: Option<String>,
    newest: Option<String>,
    #[serde(default)]
    by_destination: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Template)]
#[template(path = "replay_new.html")]
struct WishPage {
    frame: Frame,
    t: &'static Replays,
    wish: Wish,
    destinations: Vec<String>,
    preview: Option<Preview>,
    problem: Option<Trouble>,
    once: String,
    /// The filter of the preview, with times: sent twice, it asks for the same.
    pinned: String,
}

impl WishPage {
    fn verbs(&self) -> [(&'static str, &'static str); 3] {
        let t = self.t;
        [
            ("retry_failed", t.verb_retry_failed),
            ("force_resend", t.verb_force_resend),
            ("send_missing", t.verb_send_missing),
        ]
    }

    fn number(&self, number: &u64) -> String {
        self.frame.lang().number(*number)
    }

    fn count(&self, preview: &Preview) -> String {
        let number = self.number(&preview.count);
        if preview.complete { number } else { fill(self.t.at_least, &[&number]) }
    }

    fn estimate(&self, preview: &Preview) -> String {
        let seconds = preview.estimate_seconds.filter(|seconds| seconds.is_finite()).unwrap_or(0.0);
        span(self.frame.lang(), Duration::from_secs_f64(seconds.clamp(0.0, 1e9).ceil()))
    }

    /// What must be typed; nothing for a few.
    fn typed(&self, preview: &Preview) -> Option<String> {
        self.wish.must_be_typed(preview).map(|count| fill(self.t.confirm, &[&count]))
    }
}

/// The form, and below it what the job would do.
pub(super) async fn ask(visitor: Visitor, wish: Result<Query<Wish>, QueryRejection>) -> Shown {
    match wish {
        Ok(Query(wish)) => page(visitor, wish, None).await,
        Err(unread) => {
            let detail = unread.body_text();
            Err(visitor.failed(Trouble { status: 400, detail }))
        }
    }
}

async fn page(visitor: Visitor, wish: Wish, trouble: Option<Trouble>) -> Shown {
    let once = match &trouble {
        Some(trouble) => visitor.once_again(&wish.once, trouble),
        None => visitor.once(),
    };
    let mut problem = trouble;
    let t = Replays::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::Replays, t.new);
    let address = Address::new(&["destinations"]).with("limit", "200");
    let found = visitor.get::<List<Named>>(address).await.unwrap_or_default();
    let destinations = found.data.into_iter().map(|destination| destination.name).collect();
    // One moment for what is shown and for what is started.
    let now = visitor.now();
    let mut preview = None;
    match wish.body(now, true) {
        Err(unknown) => {
            let known: Vec<_> = KNOWN.iter().filter(|(name, _)| !name.is_empty()).collect();
            let known: Vec<_> = known.iter().map(|(name, _)| format!("{name}:")).collect();
            let detail = fill(frame.c.unknown_word, &[&unknown, &known.join(" ")]);
            problem = Some(Trouble { detail, ..Trouble::default() });
        }
        Ok(body) => match visitor.post::<Preview>(Address::new(&["replays"]), Some(body)).await {
            Ok(found) => preview = Some(found),
            Err(trouble) if trouble.status == 403 => return Err(visitor.failed(trouble)),
            Err(trouble) => problem = problem.or(Some(trouble)),
        },
    }
    let pinned = Filter::parse(&wish.q).pinned(now).text();
    show(&WishPage { frame, t, wish, destinations, preview, problem, once, pinned })
}

#[derive(Deserialize)]
struct Made {
    id: String,
}

/// Makes the job, if the number was typed where it must be.
pub(super) async fn start(visitor: Visitor, Form(wish): Form<Wish>) -> Shown {
    let t = Replays::of(visitor.lang());
    let now = visitor.now();
    let Ok(dry) = wish.body(now, true) else { return page(visitor, wish, None).await };
    let address = || Address::new(&["replays"]);
    let preview = match visitor.post::<Preview>(address(), Some(dry)).await {
        Ok(preview) => preview,
        Err(trouble) => return page(visitor, wish, Some(trouble)).await,
    };
    // More may have died since the preview: what was typed counts if it was right when it was shown.
    let typed: String = wish.typed.chars().filter(char::is_ascii_digit).collect();
    if let Some(count) = wish.must_be_typed(&preview)
        && (typed.is_empty() || typed != wish.shown)
        && typed != count.to_string()
    {
        let detail = fill(t.confirm_wrong, &[&count]);
        return page(visitor, wish, Some(Trouble { detail, ..Trouble::default() })).await;
    }
    let Ok(body) = wish.body(now, false) else { return page(visitor, wish, None).await };
    match visitor.post_once::<Made>(address(), Some(body), &wish.once).await {
        Ok(made) => Ok(visitor.done(&format!("/replays/{}", encode(&made.id)), t.started)),
        Err(trouble) => page(visitor, wish, Some(trouble)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(query: &str) -> Result<Wish, QueryRejection> {
        let address = format!("/replays/new?{query}").parse().unwrap();
        Query::try_from_uri(&address).map(|Query(wish)| wish)
    }

    #[test]
    fn what_is_not_understood_does_not_widen_a_replay() {
        for (query, is_read) in [
            ("", true),
            ("q=dest:crm&verb=force_resend&to=&rate=&note=x", true),
            ("event=evt_1", false),
            ("q=dest:crm&destination=crm", false),
        ] {
            assert_eq!(wish(query).is_ok(), is_read, "case: {query}");
        }
    }

    #[test]
    fn a_number_is_typed_for_many_and_for_everything() {
        let preview = |count, complete| Preview {
            count,
            complete,
            estimate_seconds: None,
            oldest: None,
            newest: None,
            by_destination: BTreeMap::new(),
        };
        for (query, found, expected) in [
            ("q=dest:crm", preview(3, true), None),
            ("q=dest:crm", preview(100, true), Some(100)),
            ("q=dest:crm", preview(3, false), Some(3)),
            ("q=", preview(3, true), Some(3)),
            ("q=%20%20", preview(1, true), Some(1)),
        ] {
            assert_eq!(wish(query).unwrap().must_be_typed(&found), expected, "case: {query}");
        }
    }
}
