//! What could not be dealt with when its time came: it was owed, or dead, or not there yet.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use rusqlite::params;
use surehook_core::{ids::EventId, retention::RetentionPolicy, time::Timestamp};

use super::{
    super::{
        row::{blob, id},
        writer::Tx,
    },
    LOOKS_PER_SLICE, Old, Slice, What, cursor, old, old_columns,
};

/// Most of a slice that second looks may take: the walks go on.
const SECOND_LOOKS: usize = LOOKS_PER_SLICE / 2;

/// What was not final is looked at again after this share of its age, within these bounds.
const AGE_SHARE: u32 = 10;
const LOOK_AGAIN_MIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(86_400);

pub(super) const NEXT_TO_LOOK_AT: &str = concat!(
    "SELECT l.event_id, e.source, ",
    old_columns!(),
    " FROM prune_later l LEFT JOIN events e ON e.id = l.event_id
       WHERE l.look_at <= ?1 ORDER BY l.look_at LIMIT ?2"
);

const SOURCE: &str = "SELECT seq, spec ->> '$.retention' FROM sources WHERE seq = ?1";

const LOOK_LATER: &str = "
    INSERT OR REPLACE INTO prune_later (event_id, look_at) VALUES (?1, ?2)";
const LOOK_NO_MORE: &str = "DELETE FROM prune_later WHERE event_id = ?1";

/// What stands in the list, with the event and its source if it is still there.
type Noted = (EventId, Option<(i64, Old)>);

/// What a source keeps for how long, and how far the walks for events, bodies and attempts are.
struct SourceRules {
    keep: RetentionPolicy,
    cursors: [[u8; 16]; 3],
}

impl Slice {
    /// Looks again at what stands in the list; says whether that was all that is due.
    pub(super) fn look_again(&mut self, tx: &mut Tx<'_, '_>) -> rusqlite::Result<bool> {
        let noted = self.noted(tx)?;
        let mut sources: HashMap<i64, SourceRules> = HashMap::new();
        for (id, event) in &noted {
            if self.budget.is_spent() {
                return Ok(false);
            }
            let is_done = match event {
                // It has gone with all that belonged to it.
                None => true,
                Some((source, event)) => {
                    let rules = match sources.entry(*source) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(new) => new.insert(self.rules_of(tx, *source)?),
                    };
                    self.look_at(tx, event, rules)?
                }
            };
            if is_done {
                tx.connection.prepare_cached(LOOK_NO_MORE)?.execute(params![blob(*id)])?;
            }
        }
        Ok(noted.len() < SECOND_LOOKS)
    }

    fn noted(&self, tx: &Tx<'_, '_>) -> rusqlite::Result<Vec<Noted>> {
        tx.connection
            .prepare_cached(NEXT_TO_LOOK_AT)?
            .query_map(params![self.now.as_millis(), SECOND_LOOKS], |row| {
                let event = match row.get(1)? {
                    None => None,
                    Some(source) => Some((source, old(row, 2)?)),
                };
                Ok((id(row, 0)?, event))
            })?
            .collect()
    }

    fn rules_of(&self, tx: &Tx<'_, '_>, source: i64) -> rusqlite::Result<SourceRules> {
        let mut find = tx.connection.prepare_cached(SOURCE)?;
        let (_, keep) = find.query_row(params![source], |row| self.keep(row))?;
        let passed = |what| cursor(tx, source, what);
        let cursors = [passed(What::Events)?, passed(What::Bodies)?, passed(What::Attempts)?];
        Ok(SourceRules { keep, cursors })
    }

    /// Does all that is due of an event; says whether the walks will do all that is left.
    fn look_at(
        &mut self,
        tx: &mut Tx<'_, '_>,
        event: &Old,
        rules: &SourceRules,
    ) -> rusqlite::Result<bool> {
        let due = rules.keep.due(event.received_at, event.standing, self.now);
        self.erase(tx, event, due)?;
        let [events, bodies, attempts] = rules.cursors.map(|cursor| blob(event.id) > cursor);
        let is_done = due.event || (events && (bodies || due.body) && (attempts || due.attempts));
        if !is_done {
            self.look_later(tx, event)?;
        }
        Ok(is_done)
    }

    /// Notes that an event could not be dealt with.
    pub(super) fn look_later(&self, tx: &Tx<'_, '_>, event: &Old) -> rusqlite::Result<()> {
        let share = self.now.since(event.received_at) / AGE_SHARE;
        let look_at = self.now + share.clamp(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX);
        tx.connection
            .prepare_cached(LOOK_LATER)?
            .execute(params![blob(event.id), look_at.as_millis()])?;
        Ok(())
    }
}

/// Notes an event to which something comes that no walk would find, because all walks are past it:
/// the event itself, which waited long for its commit or was dated by a clock that went back, or
/// one more delivery.
pub(in super::super) fn look_later_if_passed(
    tx: &Tx<'_, '_>,
    event: EventId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    if event <= tx.sweep.reached {
        tx.connection.prepare_cached(LOOK_LATER)?.execute(params![blob(event), now.as_millis()])?;
    }
    Ok(())
}
