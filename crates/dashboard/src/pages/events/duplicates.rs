//! `/events/{id}/duplicates/{n}`: a duplicate beside the event that came first.

use std::time::Duration;

use askama::Template;
use axum::{Form, extract::Path};
use serde::Deserialize;

use super::{acts::Once, path_of};
use crate::{
    client::Address,
    lang::fill,
    page::{Frame, Nav, Shown, show},
    show::{Badge, span},
    visitor::Visitor,
    words::EventWords,
};

#[derive(Deserialize)]
struct Compared {
    at: String,
    gap_ms: u64,
    same_bytes: bool,
    body_kept: bool,
    delivered_as: Option<String>,
    compared_as: Option<String>,
    diff: Vec<Change>,
    truncated: bool,
    masked: u64,
}

#[derive(Deserialize)]
struct Change {
    path: String,
    change: String,
    before: Option<String>,
    after: Option<String>,
}

impl Change {
    /// A colour, an icon and a word, so that nobody depends on one of them.
    fn badge(&self, t: &EventWords) -> Badge {
        match self.change.as_str() {
            "added" => Badge::new("ok", "plus", t.added),
            "removed" => Badge::new("bad", "minus", t.removed),
            "changed" => Badge::new("warn", "swap", t.changed),
            other => Badge::new("", "dot", other),
        }
    }
}

#[derive(Template)]
#[template(path = "event_duplicate.html")]
struct DuplicatePage {
    frame: Frame,
    t: &'static EventWords,
    path: String,
    id: String,
    n: u32,
    gap: String,
    how: &'static str,
    compared: Compared,
    masked: Option<String>,
    can_deliver: bool,
    once: String,
}

pub(super) async fn compare(visitor: Visitor, Path((id, n)): Path<(String, u32)>) -> Shown {
    let address = Address::new(&["events", &id, "duplicates", &n.to_string()]);
    let compared: Compared =
        visitor.get(address).await.map_err(|trouble| visitor.failed(trouble))?;
    let (lang, t) = (visitor.lang(), EventWords::of(visitor.lang()));
    let how = match compared.compared_as.as_deref() {
        Some("json") => t.compared_json,
        Some("text") => t.compared_text,
        Some(_) => t.compared_bytes,
        None if compared.same_bytes => t.compared_same,
        None => t.compared_gone,
    };
    let title = fill(t.compare_title, &[&n]);
    show(&DuplicatePage {
        frame: Frame::new(&visitor, Nav::Events, title),
        path: path_of(&id),
        gap: span(lang, Duration::from_millis(compared.gap_ms)),
        masked: (compared.masked > 0)
            .then(|| lang.count(compared.masked, t.diff_masked_one, t.diff_masked)),
        can_deliver: visitor.operates() && compared.body_kept && compared.delivered_as.is_none(),
        once: visitor.once(),
        t,
        id,
        n,
        how,
        compared,
    })
}

#[derive(Deserialize)]
struct DeliveredAnyway {
    event_id: String,
}

pub(super) async fn deliver(
    visitor: Visitor,
    Path((id, n)): Path<(String, u32)>,
    Form(form): Form<Once>,
) -> Shown {
    let address = Address::new(&["events", &id, "duplicates", &n.to_string(), "deliver"]);
    let done = visitor.post_once::<DeliveredAnyway>(address, None, &form.once).await;
    Ok(match done {
        Ok(new) => {
            visitor.done(&path_of(&new.event_id), EventWords::of(visitor.lang()).anyway_done)
        }
        Err(trouble) => visitor.refused(&format!("{}/duplicates/{n}", path_of(&id)), &trouble),
    })
}
