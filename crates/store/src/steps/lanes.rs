//! The saved state of lanes, one per destination: pause, circuit, cool-down and drain rate.

use std::collections::BTreeMap;

use surehook_core::{
    delivery::{LaneEpoch, state::DeliveryStatus},
    lane::{BacklogDrain, LanePause, SavedLaneState},
};
use surehook_retry::circuit::CircuitState;
use surehook_types::{ids::DestinationId, time::Timestamp};

use super::{
    StepTransaction,
    displayed_status::is_holding,
    row::{corrupt_value, id, optional_text, optional_time, status, time},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const NEXT_EPOCH: &str =
    "UPDATE counters SET value = value + 1 WHERE name = 'lane_epoch' RETURNING value";

/// A higher epoch than any before, for lanes that get another owner.
pub(crate) fn next_epoch(connection: &impl SqlConnection) -> Result<LaneEpoch> {
    connection.read_one(NEXT_EPOCH, params![], |row| row.get(0).map(LaneEpoch))
}

const SAVE: &str = "
    INSERT INTO lane_states
           (destination, paused_at, pause_reason, pause_automatic, circuit, circuit_times,
            open_until, cool_until, drain_rate, drain_until)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (destination) DO UPDATE
       SET paused_at = excluded.paused_at, pause_reason = excluded.pause_reason,
           pause_automatic = excluded.pause_automatic, circuit = excluded.circuit,
           circuit_times = excluded.circuit_times, open_until = excluded.open_until,
           cool_until = excluded.cool_until, drain_rate = excluded.drain_rate,
           drain_until = excluded.drain_until";

/// Implements `DeliveryStore::save_lane`.
pub(crate) fn save(
    tx: &mut impl StepTransaction,
    destination: DestinationId,
    epoch: LaneEpoch,
    state: &SavedLaneState,
) -> Result<()> {
    // The destination was just deleted.
    let Some(seq) = tx.destination_seq(destination)? else { return Ok(()) };
    if !tx.is_current_epoch(seq, epoch)? {
        return Ok(());
    }
    if *state == SavedLaneState::default() {
        tx.run("DELETE FROM lane_states WHERE destination = ?1", params![seq])?;
        return Ok(());
    }
    let (openings, open_until) = match state.circuit {
        CircuitState::Closed => (0, None),
        CircuitState::Open { until, openings } => (openings, Some(until.as_millis())),
        CircuitState::HalfOpen { openings } | CircuitState::Ramp { openings } => (openings, None),
    };
    let paused = state.paused.as_ref();
    let values = params![
        seq,
        paused.map(|pause| pause.at.as_millis()),
        paused.and_then(|pause| pause.reason.as_deref()),
        paused.is_some_and(|pause| pause.automatic),
        state.circuit.as_str(),
        openings,
        open_until,
        state.cool_until.map(Timestamp::as_millis),
        state.drain.map(|drain| drain.rate.to_string()),
        state.drain.map(|drain| drain.until.as_millis()),
    ];
    tx.run(SAVE, values)?;
    Ok(())
}

const LANES: &str = "
    SELECT t.id, l.paused_at, l.pause_reason, l.pause_automatic, l.circuit, l.circuit_times,
           l.open_until, l.cool_until, l.drain_rate, l.drain_until
      FROM lane_states l JOIN destinations t ON t.seq = l.destination
     WHERE t.deleted_at IS NULL";

/// Implements `DeliveryStore::load_lanes`.
pub(crate) fn load_all(
    connection: &impl SqlConnection,
) -> Result<BTreeMap<DestinationId, SavedLaneState>> {
    connection.read_all(LANES, params![], |row| Ok((id(row, 0)?, read_lane(row)?)))
}

fn read_lane(row: &dyn SqlRow) -> Result<SavedLaneState> {
    let (reason, automatic) = (row.get(2)?, row.get(3)?);
    let paused = optional_time(row, 1)?.map(|at| LanePause { at, reason, automatic });
    let (circuit_code, openings): (String, u32) = (row.get(4)?, row.get(5)?);
    let circuit = match circuit_code.as_str() {
        "closed" => CircuitState::Closed,
        "open" => CircuitState::Open { until: time(row, 6)?, openings },
        "half_open" => CircuitState::HalfOpen { openings },
        "ramp" => CircuitState::Ramp { openings },
        unknown => return Err(corrupt_value(4, unknown)),
    };
    let rate = optional_text(row, 8, |rate| rate.parse().ok())?;
    let drain = rate.zip(optional_time(row, 9)?).map(|(rate, until)| BacklogDrain { rate, until });
    Ok(SavedLaneState { paused, circuit, cool_until: optional_time(row, 7)?, drain })
}

const COUNT_HELD: &str = concat!(
    "SELECT d.state, count(*) FROM lane_states l CROSS JOIN deliveries d INDEXED BY deliveries_due
      WHERE d.destination = l.destination AND d.due_at IS NOT NULL AND ",
    is_holding!(),
    " GROUP BY d.state"
);

/// Implements `AdminStore::count_held`.
pub(crate) fn count_held(connection: &impl SqlConnection) -> Result<BTreeMap<DeliveryStatus, u64>> {
    connection.read_all(COUNT_HELD, params![], |row| Ok((status(row, 0)?, row.get(1)?)))
}
