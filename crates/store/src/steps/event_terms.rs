//! The search terms of events: their kind and attributes.

use surehook_webhooks::attribute::{Attributes, EventKind, SearchTerm};

/// Capacity reserved for the terms of an event that has any.
const TYPICAL_TERMS: usize = 8;

/// The terms and attributes of a new event, encoded. Built before the event reaches the writer,
/// whose time is shared by all.
#[derive(Debug, Default)]
pub(crate) struct EventTerms {
    /// As JSON; `None` if there are none.
    pub(crate) attributes: Option<String>,
    /// Concatenated.
    pub(crate) terms: Vec<u8>,
}

impl EventTerms {
    pub(crate) fn new(kind: Option<&EventKind>, attributes: &Attributes) -> Self {
        let mut terms = Vec::new();
        for term in event_search_terms(kind, attributes) {
            // Most events have none, or several.
            if terms.is_empty() {
                terms.reserve(TYPICAL_TERMS * SearchTerm::BYTES);
            }
            terms.extend_from_slice(&term.to_bytes());
        }
        let attributes = (!attributes.is_empty()).then(|| attributes.to_json());
        Self { attributes, terms }
    }
}

pub(crate) fn event_search_terms(
    kind: Option<&EventKind>,
    attributes: &Attributes,
) -> impl Iterator<Item = SearchTerm> {
    kind.map(EventKind::term).into_iter().chain(attributes.terms())
}
