-- 0004_replay_jobs: delivering again in bulk.
--
-- Why:    a job must survive a crash without losing or doubling anything, so what it selected, what
--         it handed out and what came of it are rows (docs/decisions/0025).
-- Undo:   none. We go forward (docs/decisions/0005).
--
-- Nothing here is touched by an ordinary event or delivery.

CREATE TABLE replays (
    seq        INTEGER PRIMARY KEY,
    id         BLOB NOT NULL UNIQUE,
    spec       TEXT NOT NULL,
    state      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,
    -- How far the selection has come; NULL once all is selected.
    cursor     BLOB,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16),
    CONSTRAINT spec_is_json CHECK (json_valid(spec)),
    CONSTRAINT state_is_known CHECK (state = 'selecting' OR state = 'running' OR state = 'paused'
                                     OR state = 'done' OR state = 'cancelled'),
    CONSTRAINT ended_iff_final CHECK ((state = 'done' OR state = 'cancelled')
                                      = (ended_at IS NOT NULL)),
    CONSTRAINT selected_before_it_runs CHECK (cursor IS NULL
                                              OR state = 'selecting' OR state = 'paused'
                                              OR state = 'cancelled')
) STRICT;

-- A job's part for one destination: one that is slow must not hold up the others.
CREATE TABLE replay_lanes (
    replay      INTEGER NOT NULL REFERENCES replays (seq),
    destination INTEGER NOT NULL REFERENCES destinations (seq),
    selected    INTEGER NOT NULL DEFAULT 0,
    taken       INTEGER NOT NULL DEFAULT 0,
    -- Handed out, and not known to have ended.
    open        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (replay, destination),
    CONSTRAINT taken_within_selected CHECK (taken <= selected),
    CONSTRAINT open_within_taken CHECK (open >= 0 AND open <= taken)
) STRICT, WITHOUT ROWID;

-- Sums, moved in the same transaction as the items they count.
CREATE TABLE replay_counts (
    replay      INTEGER NOT NULL REFERENCES replays (seq),
    destination INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    many        INTEGER NOT NULL,
    PRIMARY KEY (replay, destination, outcome)
) STRICT, WITHOUT ROWID;

-- Numbered for each destination in the order in which they were selected: the oldest first.
CREATE TABLE replay_items (
    replay       INTEGER NOT NULL REFERENCES replays (seq),
    destination  INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    event_id     BLOB NOT NULL,
    -- What is delivered again; NULL for an event that the destination never got.
    delivery_id  BLOB,
    new_delivery BLOB,
    outcome      TEXT,
    PRIMARY KEY (replay, destination, number),
    CONSTRAINT numbers_start_at_one CHECK (number >= 1)
) STRICT, WITHOUT ROWID;
-- Each event once a job for each destination, whatever else goes wrong.
CREATE UNIQUE INDEX replay_items_once ON replay_items (replay, event_id, destination);
CREATE INDEX replay_items_open ON replay_items (replay, destination, number)
    WHERE new_delivery IS NOT NULL AND outcome IS NULL;
