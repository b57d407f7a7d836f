//! The pure part of the tail: reads the API's stream of news, and gathers it into batches.
//!
//! A browser is told what happened a few times a second, whatever the rate: how much there was of
//! each, and the newest rows. Nothing here grows with the rate: the text that is not a whole piece of
//! news yet, the rows of a batch and the events that are remembered all have a most.

mod piece;

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

pub(crate) use self::piece::{Parser, Piece};
use crate::show::without_phones;

/// Rows of a batch.
pub(crate) const ROWS_MAX: usize = 50;
/// Events whose source, kind and key are remembered for the deliveries that follow them.
const EVENTS_MAX: usize = 2000;
/// The most of a text that a row shows.
const TEXT_CHARS_MAX: usize = 120;

/// Which rows are wanted; what is not given wants all.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) source: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) kind: Option<String>,
    /// The most rows of a batch; pages that only want to know that something happened take none.
    pub(crate) rows: Option<usize>,
    /// Where a page that was away goes on.
    pub(crate) since: Option<String>,
}

impl Wanted {
    fn wants(&self, row: &Row) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| match wanted.as_deref() {
            None | Some("") => true,
            Some(wanted) => value == Some(wanted),
        };
        is(&self.source, row.source.as_deref())
            && is(&self.destination, row.destination.as_deref())
            && is(&self.status, Some(&row.status))
            && is(&self.kind, row.kind.as_deref())
    }

    /// Whether a choice of a filter is the one that was made.
    pub(crate) fn chose(&self, name: &str, value: &str) -> bool {
        let made = match name {
            "source" => &self.source,
            "destination" => &self.destination,
            _ => &self.status,
        };
        made.as_deref() == Some(value)
    }

    fn rows_max(&self) -> usize {
        self.rows.unwrap_or(ROWS_MAX).min(ROWS_MAX)
    }
}

/// A line of the tail: an event that came, or a delivery that became something else.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Row {
    /// The event that it is about.
    event: String,
    at: String,
    source: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    destination: Option<String>,
    /// `received`, or the status of the delivery.
    status: String,
    reason: Option<String>,
    attempts: Option<u32>,
}

#[derive(Deserialize)]
struct Received {
    id: String,
    source: Option<String>,
    key: Option<String>,
    kind: Option<String>,
    received_at: String,
}

#[derive(Deserialize)]
struct Changed {
    event: String,
    destination: Option<String>,
    status: String,
    reason: Option<String>,
    attempts: u32,
    at: String,
}

#[derive(Clone, Debug, Default)]
struct Origin {
    source: Option<String>,
    kind: Option<String>,
    key: Option<String>,
}

/// What is told at once.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
pub(crate) struct Batch {
    /// How much happened of each: `received`, and the statuses of deliveries.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The newest rows, oldest first.
    pub(crate) rows: VecDeque<Row>,
    /// Rows that were wanted and had no room.
    pub(crate) skipped: u64,
    /// Where a browser that comes back goes on.
    pub(crate) last_id: Option<String>,
    /// Something is missing: what is shown must be loaded anew.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reset: bool,
}

impl Batch {
    /// As a piece of a stream of server-sent events.
    pub(crate) fn written(&self) -> String {
        let id = self.last_id.as_ref().map(|id| format!("id: {id}\n")).unwrap_or_default();
        // A batch is plain data and always becomes JSON, in one line.
        let data = serde_json::to_string(self).unwrap_or_default();
        format!("event: batch\n{id}data: {data}\n\n")
    }
}

/// Gathers news until it is told.
#[derive(Debug)]
pub(crate) struct Gathering {
    wanted: Wanted,
    origins: HashMap<String, Origin>,
    order: VecDeque<String>,
    batch: Batch,
    has_news: bool,
}

impl Gathering {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            origins: HashMap::new(),
            order: VecDeque::new(),
            batch: Batch::default(),
            has_news: false,
        }
    }

    /// Whether there is something to tell.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Takes what was gathered.
    pub(crate) fn take(&mut self) -> Batch {
        self.has_news = false;
        let next = Batch { last_id: self.batch.last_id.clone(), ..Batch::default() };
        std::mem::replace(&mut self.batch, next)
    }

    /// Adds a piece of news.
    pub(crate) fn add(&mut self, piece: Piece) {
        // An id comes from our own API; nothing in it may end the line that it is written to.
        if let Some(id) = piece.id.filter(|id| id.bytes().all(|byte| byte.is_ascii_graphic())) {
            self.batch.last_id = Some(id);
        }
        let row = match piece.name.as_str() {
            "event.received" => serde_json::from_str(&piece.data).ok().map(|it| self.received(it)),
            "delivery.changed" => serde_json::from_str(&piece.data).ok().map(|it| self.changed(it)),
            "destination.changed" => {
                // No row, and a reason to look again.
                *self.batch.counts.entry("destinations".to_owned()).or_default() += 1;
                self.has_news = true;
                None
            }
            "reset" => {
                self.batch.reset = true;
                self.has_news = true;
                None
            }
            _ => None,
        };
        let Some(row) = row.filter(|row| self.wanted.wants(row)) else { return };
        self.has_news = true;
        *self.batch.counts.entry(row.status.clone()).or_default() += 1;
        self.batch.rows.push_back(row);
        if self.batch.rows.len() > self.wanted.rows_max() {
            self.batch.rows.pop_front();
            self.batch.skipped += 1;
        }
    }

    fn received(&mut self, received: Received) -> Row {
        let origin = Origin {
            source: received.source,
            kind: received.kind.map(short),
            key: received.key.map(|key| short(without_phones(&key))),
        };
        self.remember(received.id.clone(), origin.clone());
        let Origin { source, kind, key } = origin;
        Row {
            event: received.id,
            at: received.received_at,
            source,
            kind,
            key,
            destination: None,
            status: "received".to_owned(),
            reason: None,
            attempts: None,
        }
    }

    fn changed(&mut self, changed: Changed) -> Row {
        let origin = self.origins.get(&changed.event).cloned().unwrap_or_default();
        let Origin { source, kind, key } = origin;
        Row {
            event: changed.event,
            at: changed.at,
            source,
            kind,
            key,
            destination: changed.destination,
            status: changed.status,
            reason: changed.reason,
            attempts: Some(changed.attempts),
        }
    }

    fn remember(&mut self, event: String, origin: Origin) {
        if self.order.len() == EVENTS_MAX {
            self.order.pop_front().and_then(|oldest| self.origins.remove(&oldest));
        }
        if self.origins.insert(event.clone(), origin).is_none() {
            self.order.push_back(event);
        }
    }
}

fn short(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(n: usize) -> Piece {
        let data = format!(
            r#"{{"id":"evt_{n}","source":"shop","key":"k{n}","kind":"paid","received_at":"t{n}","body_bytes":1}}"#
        );
        Piece { name: "event.received".to_owned(), id: Some(format!("run-{n}")), data }
    }

    fn changed(n: usize, status: &str) -> Piece {
        let data = format!(
            r#"{{"id":"dlv_{n}","event":"evt_{n}","destination":"crm","status":"{status}","reason":null,"attempts":1,"due_at":null,"at":"t"}}"#
        );
        Piece { name: "delivery.changed".to_owned(), id: Some(format!("run-{n}-d")), data }
    }

    #[test]
    fn a_batch_has_the_newest_rows_and_says_how_many_it_left_out() {
        let mut gathering = Gathering::new(Wanted::default());
        (0..1000).for_each(|n| gathering.add(received(n)));
        let batch = gathering.take();
        assert_eq!(batch.counts["received"], 1000);
        assert_eq!((batch.rows.len(), batch.skipped), (ROWS_MAX, 950));
        assert_eq!(batch.rows.back().unwrap().event, "evt_999");
        assert_eq!(batch.last_id.as_deref(), Some("run-999"));
        assert!(!gathering.has_news(), "it was told");
        assert!(gathering.take().rows.is_empty());
    }

    #[test]
    fn a_delivery_is_shown_with_what_its_event_said() {
        let mut gathering = Gathering::new(Wanted::default());
        gathering.add(received(1));
        gathering.add(changed(1, "dead"));
        gathering.add(changed(2, "dead"));
        let rows = gathering.take().rows;
        assert_eq!((rows[1].source.as_deref(), rows[1].key.as_deref()), (Some("shop"), Some("k1")));
        assert_eq!(rows[2].source, None, "that event came before");
    }

    #[test]
    fn only_what_is_wanted_is_counted_and_shown() {
        let some = |text: &str| Some(text.to_owned());
        for (name, wanted, expected) in [
            ("all", Wanted::default(), 4),
            ("source", Wanted { source: some("shop"), ..Wanted::default() }, 3),
            ("another source", Wanted { source: some("x"), ..Wanted::default() }, 0),
            ("destination", Wanted { destination: some("crm"), ..Wanted::default() }, 3),
            ("status", Wanted { status: some("dead"), ..Wanted::default() }, 1),
            ("received", Wanted { status: some("received"), ..Wanted::default() }, 1),
            ("kind", Wanted { kind: some("paid"), ..Wanted::default() }, 3),
            ("nothing typed", Wanted { kind: some(""), ..Wanted::default() }, 4),
        ] {
            let mut gathering = Gathering::new(wanted);
            gathering.add(received(1));
            gathering.add(changed(1, "succeeded"));
            gathering.add(changed(1, "dead"));
            gathering.add(changed(7, "succeeded"));
            let batch = gathering.take();
            assert_eq!(batch.counts.values().sum::<u64>(), expected, "case: {name}");
            assert_eq!(batch.rows.len() as u64, expected, "case: {name}");
        }
    }

    #[test]
    fn who_wants_no_rows_still_hears_that_something_happened() {
        let mut gathering = Gathering::new(Wanted { rows: Some(0), ..Wanted::default() });
        gathering.add(received(1));
        assert!(gathering.has_news());
        let batch = gathering.take();
        assert_eq!((batch.rows.len(), batch.counts["received"]), (0, 1));
    }

    #[test]
    fn memory_has_a_bound() {
        let mut gathering = Gathering::new(Wanted::default());
        (0..3 * EVENTS_MAX).for_each(|n| gathering.add(received(n)));
        assert_eq!((gathering.origins.len(), gathering.order.len()), (EVENTS_MAX, EVENTS_MAX));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(short("é".repeat(500)).chars().count(), TEXT_CHARS_MAX + 1);
    }

    #[test]
    fn a_gap_is_told_and_no_text_breaks_the_stream() {
        let mut gathering = Gathering::new(Wanted::default());
        let piece = |name: &str, id: &str| Piece {
            name: name.to_owned(),
            id: Some(id.to_owned()),
            data: "{}".to_owned(),
        };
        gathering.add(piece("reset", "run-9"));
        gathering.add(piece("nonsense", "a\nevent: evil"));
        let data = received(1).data.replace("shop", "a\\n\\nevent: evil");
        gathering.add(Piece { data, ..received(1) });
        let text = gathering.take().written();
        assert!(text.starts_with("event: batch\nid: run-1\ndata: {"));
        assert!(text.contains("\"reset\":true"));
        assert_eq!(text.matches('\n').count(), 4, "{text}");
    }
}
