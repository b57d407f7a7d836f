//! Looking into bodies: for a list of events that is narrowed by what they say.

use std::borrow::Cow;

use rusqlite::{Connection, OptionalExtension, params};
use surehook_core::{
    body_value::BodyValueFilter,
    event::HeaderBlock,
    redact,
    store::{EventFilter, EventRow},
};

use super::row::blob;

/// Larger bodies are not looked into.
pub(super) const BODY_BYTES_SEARCHED: u64 = 128 * 1024;

pub(super) const BODY: &str = "
    SELECT p.headers, p.body FROM events e JOIN payloads p ON p.seq = e.payload
     WHERE e.id = ?1 AND e.body_bytes <= ?2";

/// Whether an event has the values and the text that are wanted. Without masks, the text was looked
/// for by the query itself.
pub(super) fn is_meant(
    connection: &Connection,
    filter: &EventFilter,
    event: &EventRow,
) -> rusqlite::Result<bool> {
    let text = filter.search.as_ref().filter(|_| filter.masked_by.is_some());
    let in_key = |text: &String| event.key.as_ref().is_some_and(|key| key.contains(text.as_str()));
    let text = text.filter(|text| !in_key(text));
    if filter.body.is_empty() && text.is_none() {
        return Ok(true);
    }
    let found = connection
        .prepare_cached(BODY)?
        .query_row(params![blob(event.id), BODY_BYTES_SEARCHED], |row| {
            let headers = HeaderBlock::from_bytes(row.get(0)?).to_map();
            let stored = row.get_ref(1)?.as_blob()?;
            let body = match &filter.masked_by {
                None => Cow::Borrowed(stored),
                Some(configuration) => {
                    let names = configuration.secret_names(event.source);
                    match redact::mask_body(&headers, stored, &names) {
                        Ok(shown) => shown.body,
                        // Nothing of it is shown, so nothing in it is found.
                        Err(_) => return Ok(false),
                    }
                }
            };
            let has_text = text.is_none_or(|text| contains(&body, text));
            let values = &filter.body;
            Ok(has_text
                && (values.is_empty() || BodyValueFilter::all_match(values, &headers, &body)))
        })
        .optional()?;
    Ok(found.unwrap_or(false))
}

/// As text, whose search is linear whatever somebody looks for.
fn contains(body: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(body).contains(text)
}
