//! Batches live updates for browsers.
//!
//! A browser receives a few batches per second at any event rate: counts, and the newest rows. Memory
//! is bounded: rows per batch and remembered events are limited.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    format::{mask_phones, truncate},
    sse::SseMessage,
};

/// Rows per batch.
pub(crate) const ROWS_MAX: usize = 50;
/// Events whose source, type and key are remembered for later delivery updates.
const EVENTS_MAX: usize = 2000;
/// Longer texts are truncated.
const TEXT_CHARS_MAX: usize = 120;

/// Filter of the live tail; missing fields match everything.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TailFilter {
    pub(crate) source: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) kind: Option<String>,
    /// Maximum rows per batch; 0 for pages that only need to know that something changed.
    pub(crate) rows: Option<usize>,
    /// Id of the last update the page received.
    pub(crate) since: Option<String>,
}

impl TailFilter {
    fn matches(&self, row: &TailRow) -> bool {
        let is_match = |filter: &Option<String>, value: Option<&str>| match filter.as_deref() {
            None | Some("") => true,
            Some(filter) => value == Some(filter),
        };
        is_match(&self.source, row.source.as_deref())
            && is_match(&self.destination, row.destination.as_deref())
            && is_match(&self.status, Some(&row.status))
            && is_match(&self.kind, row.kind.as_deref())
    }

    /// Whether an option of a filter is selected.
    pub(crate) fn is_selected(&self, name: &str, value: &str) -> bool {
        let selected = match name {
            "source" => &self.source,
            "destination" => &self.destination,
            _ => &self.status,
        };
        selected.as_deref() == Some(value)
    }

    fn rows_max(&self) -> usize {
        self.rows.unwrap_or(ROWS_MAX).min(ROWS_MAX)
    }
}

/// A row of the live tail: a received event, or a delivery that changed.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct TailRow {
    event: String,
    at: String,
    source: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    destination: Option<String>,
    /// `received`, or the delivery status.
    status: String,
    reason: Option<String>,
    attempts: Option<u32>,
}

#[derive(Deserialize)]
struct EventReceivedUpdate {
    id: String,
    source: Option<String>,
    key: Option<String>,
    kind: Option<String>,
    received_at: String,
}

#[derive(Deserialize)]
struct DeliveryChangedUpdate {
    event: String,
    destination: Option<String>,
    status: String,
    reason: Option<String>,
    attempts: u32,
    at: String,
}

#[derive(Clone, Debug, Default)]
struct EventOrigin {
    source: Option<String>,
    kind: Option<String>,
    key: Option<String>,
}

#[derive(Debug, Default, Serialize, PartialEq, Eq)]
pub(crate) struct TailBatch {
    /// Number of updates by status.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Newest last.
    pub(crate) rows: VecDeque<TailRow>,
    /// Matching rows that did not fit.
    pub(crate) skipped: u64,
    pub(crate) last_id: Option<String>,
    /// Updates were lost: the page must reload its data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reset: bool,
}

impl TailBatch {
    pub(crate) fn to_sse(&self) -> String {
        let id = self.last_id.as_ref().map(|id| format!("id: {id}\n")).unwrap_or_default();
        // Serializing plain data to one line of JSON cannot fail.
        let data = serde_json::to_string(self).unwrap_or_default();
        format!("event: batch\n{id}data: {data}\n\n")
    }
}

/// Collects updates until the next batch is sent.
#[derive(Debug)]
pub(crate) struct TailBatcher {
    filter: TailFilter,
    origins: HashMap<String, EventOrigin>,
    order: VecDeque<String>,
    batch: TailBatch,
    has_updates: bool,
}

impl TailBatcher {
    pub(crate) fn new(filter: TailFilter) -> Self {
        Self {
            filter,
            origins: HashMap::new(),
            order: VecDeque::new(),
            batch: TailBatch::default(),
            has_updates: false,
        }
    }

    pub(crate) fn has_updates(&self) -> bool {
        self.has_updates
    }

    pub(crate) fn take_batch(&mut self) -> TailBatch {
        self.has_updates = false;
        let next = TailBatch { last_id: self.batch.last_id.clone(), ..TailBatch::default() };
        std::mem::replace(&mut self.batch, next)
    }

    pub(crate) fn add(&mut self, message: SseMessage) {
        // A line break in an id would end its line in the stream.
        if let Some(id) = message.id.filter(|id| id.bytes().all(|byte| byte.is_ascii_graphic())) {
            self.batch.last_id = Some(id);
        }
        let row = match message.name.as_str() {
            "event.received" => {
                serde_json::from_str(&message.data).ok().map(|update| self.received_row(update))
            }
            "delivery.changed" => {
                serde_json::from_str(&message.data).ok().map(|update| self.changed_row(update))
            }
            "destination.changed" => {
                // No row, but pages must refresh.
                *self.batch.counts.entry("destinations".to_owned()).or_default() += 1;
                self.has_updates = true;
                None
            }
            "reset" => {
                self.batch.reset = true;
                self.has_updates = true;
                None
            }
            _ => None,
        };
        let Some(row) = row.filter(|row| self.filter.matches(row)) else { return };
        self.has_updates = true;
        *self.batch.counts.entry(row.status.clone()).or_default() += 1;
        self.batch.rows.push_back(row);
        if self.batch.rows.len() > self.filter.rows_max() {
            self.batch.rows.pop_front();
            self.batch.skipped += 1;
        }
    }

    fn received_row(&mut self, received: EventReceivedUpdate) -> TailRow {
        let origin = EventOrigin {
            source: received.source,
            kind: received.kind.map(|kind| truncate(&kind, TEXT_CHARS_MAX)),
            key: received.key.map(|key| truncate(&mask_phones(&key), TEXT_CHARS_MAX)),
        };
        self.remember(received.id.clone(), origin.clone());
        let EventOrigin { source, kind, key } = origin;
        TailRow {
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

    fn changed_row(&mut self, changed: DeliveryChangedUpdate) -> TailRow {
        let origin = self.origins.get(&changed.event).cloned().unwrap_or_default();
        let EventOrigin { source, kind, key } = origin;
        TailRow {
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

    fn remember(&mut self, event: String, origin: EventOrigin) {
        if self.order.len() == EVENTS_MAX {
            self.order.pop_front().and_then(|oldest| self.origins.remove(&oldest));
        }
        if self.origins.insert(event.clone(), origin).is_none() {
            self.order.push_back(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(n: usize) -> SseMessage {
        let data = format!(
            r#"{{"id":"evt_{n}","source":"shop","key":"k{n}","kind":"paid","received_at":"t{n}","body_bytes":1}}"#
        );
        SseMessage { name: "event.received".to_owned(), id: Some(format!("run-{n}")), data }
    }

    fn changed(n: usize, status: &str) -> SseMessage {
        let data = format!(
            r#"{{"id":"dlv_{n}","event":"evt_{n}","destination":"crm","status":"{status}","reason":null,"attempts":1,"due_at":null,"at":"t"}}"#
        );
        SseMessage { name: "delivery.changed".to_owned(), id: Some(format!("run-{n}-d")), data }
    }

    #[test]
    fn batch_keeps_newest_rows_and_counts_skipped_ones() {
        let mut batcher = TailBatcher::new(TailFilter::default());
        (0..1000).for_each(|n| batcher.add(received(n)));
        let batch = batcher.take_batch();
        assert_eq!(batch.counts["received"], 1000);
        assert_eq!((batch.rows.len(), batch.skipped), (ROWS_MAX, 950));
        assert_eq!(batch.rows.back().unwrap().event, "evt_999");
        assert_eq!(batch.last_id.as_deref(), Some("run-999"));
        assert!(!batcher.has_updates(), "the batch was taken");
        assert!(batcher.take_batch().rows.is_empty());
    }

    #[test]
    fn delivery_row_includes_source_and_key_of_its_event() {
        let mut batcher = TailBatcher::new(TailFilter::default());
        batcher.add(received(1));
        batcher.add(changed(1, "dead"));
        batcher.add(changed(2, "dead"));
        let rows = batcher.take_batch().rows;
        assert_eq!((rows[1].source.as_deref(), rows[1].key.as_deref()), (Some("shop"), Some("k1")));
        assert_eq!(rows[2].source, None, "its event was received before the stream was opened");
    }

    #[test]
    fn filter_limits_counts_and_rows() {
        let some = |text: &str| Some(text.to_owned());
        for (name, filter, expected) in [
            ("all", TailFilter::default(), 4),
            ("source", TailFilter { source: some("shop"), ..TailFilter::default() }, 3),
            ("another source", TailFilter { source: some("x"), ..TailFilter::default() }, 0),
            ("destination", TailFilter { destination: some("crm"), ..TailFilter::default() }, 3),
            ("status", TailFilter { status: some("dead"), ..TailFilter::default() }, 1),
            ("received", TailFilter { status: some("received"), ..TailFilter::default() }, 1),
            ("kind", TailFilter { kind: some("paid"), ..TailFilter::default() }, 3),
            ("nothing typed", TailFilter { kind: some(""), ..TailFilter::default() }, 4),
        ] {
            let mut batcher = TailBatcher::new(filter);
            batcher.add(received(1));
            batcher.add(changed(1, "succeeded"));
            batcher.add(changed(1, "dead"));
            batcher.add(changed(7, "succeeded"));
            let batch = batcher.take_batch();
            assert_eq!(batch.counts.values().sum::<u64>(), expected, "case: {name}");
            assert_eq!(batch.rows.len() as u64, expected, "case: {name}");
        }
    }

    #[test]
    fn zero_rows_still_reports_counts() {
        let mut batcher = TailBatcher::new(TailFilter { rows: Some(0), ..TailFilter::default() });
        batcher.add(received(1));
        assert!(batcher.has_updates());
        let batch = batcher.take_batch();
        assert_eq!((batch.rows.len(), batch.counts["received"]), (0, 1));
    }

    #[test]
    fn remembered_events_are_bounded() {
        let mut batcher = TailBatcher::new(TailFilter::default());
        (0..3 * EVENTS_MAX).for_each(|n| batcher.add(received(n)));
        assert_eq!((batcher.origins.len(), batcher.order.len()), (EVENTS_MAX, EVENTS_MAX));
    }

    #[test]
    fn long_texts_are_truncated() {
        assert_eq!(truncate(&"é".repeat(500), TEXT_CHARS_MAX).chars().count(), TEXT_CHARS_MAX + 1);
    }

    #[test]
    fn reset_is_reported_and_texts_cannot_break_the_stream() {
        let mut batcher = TailBatcher::new(TailFilter::default());
        let message = |name: &str, id: &str| SseMessage {
            name: name.to_owned(),
            id: Some(id.to_owned()),
            data: "{}".to_owned(),
        };
        batcher.add(message("reset", "run-9"));
        batcher.add(message("nonsense", "a\nevent: evil"));
        let data = received(1).data.replace("shop", "a\\n\\nevent: evil");
        batcher.add(SseMessage { data, ..received(1) });
        let text = batcher.take_batch().to_sse();
        assert!(text.starts_with("event: batch\nid: run-1\ndata: {"));
        assert!(text.contains("\"reset\":true"));
        assert_eq!(text.matches('\n').count(), 4, "{text}");
    }
}
