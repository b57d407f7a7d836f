-- 0005_lanes: deliveries that wait for their turn, and what lanes keep over a restart.
--
-- Why:    order per key needs a key and a place in the line (docs/decisions/0022); a pause and an open
--         circuit are facts about a destination and must outlive the process (docs/decisions/0023).
-- Cost:   columns without a value take nothing; the index of what is due is built anew.
-- Undo:   none. We go forward (docs/decisions/0005).

-- `order_seq` is the place in the line: ids of the same millisecond are not in order. `not_before`
-- is when the first attempt may come, for those that cannot have a `due_at` yet.
ALTER TABLE deliveries ADD COLUMN order_key TEXT;
ALTER TABLE deliveries ADD COLUMN order_seq INTEGER;
ALTER TABLE deliveries ADD COLUMN not_before INTEGER;

-- Only what is ordered and has not ended: all others pay nothing for it.
CREATE INDEX deliveries_line ON deliveries (destination, order_key, order_seq)
    WHERE order_key IS NOT NULL AND ended_at IS NULL;

-- With the state, so that what waits for a paused destination is counted without a look at its rows.
DROP INDEX deliveries_due;
CREATE INDEX deliveries_due ON deliveries (destination, due_at, id, state)
    WHERE due_at IS NOT NULL;

-- The last place that was given away.
INSERT INTO counters (name, value) VALUES ('order_seq', 0);

-- One row for each destination of which there is something to say.
CREATE TABLE lane_states (
    destination     INTEGER PRIMARY KEY REFERENCES destinations (seq),
    paused_at       INTEGER,
    pause_reason    TEXT,
    pause_automatic INTEGER NOT NULL,
    circuit         TEXT NOT NULL,
    circuit_times   INTEGER NOT NULL,
    open_until      INTEGER,
    cool_until      INTEGER,
    drain_rate      TEXT,
    drain_until     INTEGER,
    CONSTRAINT reason_of_a_pause CHECK (pause_reason IS NULL OR paused_at IS NOT NULL),
    CONSTRAINT circuit_is_known CHECK (circuit IN ('closed', 'open', 'half_open', 'ramp')),
    CONSTRAINT until_iff_open CHECK ((circuit = 'open') = (open_until IS NOT NULL)),
    CONSTRAINT drain_is_whole CHECK ((drain_rate IS NULL) = (drain_until IS NULL))
) STRICT;
