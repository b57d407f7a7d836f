//! The few events that can be meant, if something finds few: a key, a term, or deliveries of
//! which there are few.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};

use rusqlite::{Connection, params_from_iter};
use surehook_core::{
    delivery::state::DeliveryStatus,
    ids::{DestinationId, EventId, SourceId},
    key::{DedupKey, KeyDigest},
    store::{EventDeliveryFilter, EventFilter},
};

use super::{
    super::{
        blocks,
        fresh::{self, FreshKeys},
        list::{HELD, LOOKS_MAX, Query},
        row::{blob, id},
        terms::events_with_term,
    },
    IS_TO,
};

/// The only events that can be meant, newest first, if something finds few: as many as the page may
/// look at, within its range.
pub(super) fn candidates(
    connection: &Connection,
    fresh: Option<&FreshKeys>,
    filter: &EventFilter,
    query: &Query,
) -> rusqlite::Result<Option<Vec<EventId>>> {
    // A key says more than any term: one event of a source has it.
    let found = if let Some(key) = &filter.key {
        with_key(connection, fresh, filter.source, key)?
    } else if let Some(term) = filter.term() {
        let found = events_with_term(connection, term, query.range, query.looks_max)?;
        return Ok(Some(found.into_iter().collect()));
    } else {
        match with_few_deliveries(connection, filter.owes)? {
            Some(found) => found,
            None => return Ok(None),
        }
    };
    let [top, bottom] = query.range;
    let within = found.into_iter().rev().filter(|event| {
        let bytes = blob(*event);
        bytes < top && bytes >= bottom
    });
    Ok(Some(within.take(query.looks_max).collect()))
}

const ALL_SOURCES: &str = "SELECT id FROM sources";

/// The events that have a key now: of one source, or of each.
fn with_key(
    connection: &Connection,
    fresh: Option<&FreshKeys>,
    source: Option<SourceId>,
    key: &str,
) -> rusqlite::Result<BTreeSet<EventId>> {
    // What cannot be a key is nobody's.
    let Some(key) = DedupKey::new(key) else { return Ok(BTreeSet::new()) };
    let sources: Vec<SourceId> = match source {
        Some(source) => vec![source],
        None => {
            let mut all = connection.prepare_cached(ALL_SOURCES)?;
            all.query_map([], |found| id(found, 0))?.collect::<rusqlite::Result<_>>()?
        }
    };
    let digests: Vec<_> = sources.iter().map(|source| KeyDigest::of(*source, &key)).collect();
    // Fresh ones first: what is folded meanwhile is found in the index.
    let mut found = fresh_with_key(connection, fresh, &digests)?;
    for digest in digests {
        if let Entry::Vacant(place) = found.entry(digest)
            && let Some(known) = blocks::look_up(connection, digest)?
        {
            place.insert(known.event);
        }
    }
    Ok(found.into_values().collect())
}

fn fresh_with_key(
    connection: &Connection,
    fresh: Option<&FreshKeys>,
    digests: &[KeyDigest],
) -> rusqlite::Result<HashMap<KeyDigest, EventId>> {
    if let Some(fresh) = fresh {
        let known = |digest: &KeyDigest| Some((*digest, fresh.event(*digest)?));
        return Ok(digests.iter().filter_map(known).collect());
    }
    // Whoever looks beside a writer has only the packs, which have no index: one look for all sources.
    let mut found = HashMap::new();
    fresh::read_packs(connection, |_, key, known| {
        if digests.contains(&key) {
            // The later one has the key now.
            found.insert(key, known.event);
        }
    })?;
    Ok(found)
}

/// Deliveries that an index finds; whether there are few is asked of the index alone.
struct Few {
    from: String,
    /// What the destination is, where it says which are meant.
    value: Option<Vec<u8>>,
}

impl Few {
    fn of_status(status: DeliveryStatus) -> Option<Self> {
        let from = match status {
            DeliveryStatus::Dead => {
                "deliveries d INDEXED BY deliveries_dead WHERE d.state = 'dead'".into()
            }
            DeliveryStatus::Pending | DeliveryStatus::Scheduled => {
                "deliveries d INDEXED BY deliveries_due WHERE d.due_at IS NOT NULL".into()
            }
            DeliveryStatus::InFlight => {
                "deliveries d INDEXED BY deliveries_leased WHERE d.lease_until IS NOT NULL".into()
            }
            DeliveryStatus::Held => format!("({HELD}) h CROSS JOIN deliveries d ON d.id = h.id"),
            DeliveryStatus::Succeeded | DeliveryStatus::Cancelled | DeliveryStatus::Replayed => {
                return None;
            }
        };
        Some(Self { from, value: None })
    }

    fn to(destination: DestinationId) -> Self {
        let is_to = IS_TO.replace("{}", "?1");
        let from = format!("deliveries d INDEXED BY deliveries_by_destination WHERE {is_to}");
        Self { from, value: Some(blob(destination).to_vec()) }
    }

    fn select(&self) -> String {
        format!("SELECT d.event_id FROM {}", self.from)
    }

    /// Says something if there are too many.
    fn probe(&self) -> String {
        format!("SELECT 1 FROM {} LIMIT 1 OFFSET {LOOKS_MAX}", self.from)
    }

    fn find(&self, connection: &Connection) -> rusqlite::Result<Option<BTreeSet<EventId>>> {
        let mut probe = connection.prepare_cached(&self.probe())?;
        if probe.exists(params_from_iter(&self.value))? {
            return Ok(None);
        }
        let mut select = connection.prepare_cached(&self.select())?;
        let found = select.query_map(params_from_iter(&self.value), |found| id(found, 0))?;
        found.collect::<rusqlite::Result<_>>().map(Some)
    }
}

/// The events whose deliveries can be meant, if there are few of those.
fn with_few_deliveries(
    connection: &Connection,
    owes: EventDeliveryFilter,
) -> rusqlite::Result<Option<BTreeSet<EventId>>> {
    let ways = [owes.status.and_then(Few::of_status), owes.destination.map(Few::to)];
    for few in ways.into_iter().flatten() {
        if let Some(found) = few.find(connection)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use surehook_core::time::Timestamp;

    use super::*;
    use crate::sqlite::schema::plan;

    #[test]
    fn whether_there_are_few_is_asked_of_an_index() {
        let to = Few::to(DestinationId::new(Timestamp::from_millis(1), 1));
        for (few, index) in [
            (Few::of_status(DeliveryStatus::Dead).unwrap(), "deliveries_dead"),
            (Few::of_status(DeliveryStatus::Scheduled).unwrap(), "deliveries_due"),
            (Few::of_status(DeliveryStatus::InFlight).unwrap(), "deliveries_leased"),
            (Few::of_status(DeliveryStatus::Held).unwrap(), "deliveries_line"),
            (to, "deliveries_by_destination"),
        ] {
            for sql in [few.probe(), few.select()] {
                let steps = plan(&sql);
                assert!(steps.iter().any(|step| step.contains(index)), "{sql}: {steps:?}");
                assert!(!steps.iter().any(|step| step == "SCAN d"), "{sql}: {steps:?}");
            }
        }
    }
}
