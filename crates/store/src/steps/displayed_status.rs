//! The displayed status of deliveries, in SQL: a lane that is paused or whose circuit is open holds
//! its deliveries.

/// Whether the lane in row `lane_states l` holds its pending deliveries. Must agree with
/// `SavedLaneState::is_holding`.
macro_rules! is_holding {
    () => {
        "(l.paused_at IS NOT NULL OR l.circuit = 'open' OR l.circuit = 'half_open')"
    };
}

/// Whether a delivery `d` is held by its lane.
macro_rules! is_held_by_lane {
    () => {
        concat!(
            "(d.due_at IS NOT NULL AND EXISTS (SELECT 1 FROM lane_states l
               WHERE l.destination = d.destination AND ",
            $crate::steps::displayed_status::is_holding!(),
            "))"
        )
    };
}

/// The status with which a delivery `d` is displayed.
macro_rules! displayed_status {
    () => {
        concat!(
            "CASE WHEN ",
            $crate::steps::displayed_status::is_held_by_lane!(),
            " THEN 'held' ELSE d.state END"
        )
    };
}

pub(crate) use {displayed_status, is_held_by_lane, is_holding};
