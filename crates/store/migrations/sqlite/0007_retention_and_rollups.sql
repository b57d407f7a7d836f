-- 0007_retention_and_rollups: bodies and attempts go before their events; counts outlive all.
--
-- Why:    each source says how long its events, bodies and attempts are kept, and a chart must not
--         end where retention begins (docs/decisions/0033, 0034).
-- Costs:  nothing on a large file: new tables, and a column with a constant default.
-- Undo:   none. We go forward (docs/decisions/0005).

-- How far retention has come with the events of a source, in the order of their ids. What lies
-- behind a cursor was dealt with, or stands in `prune_later`.
CREATE TABLE prune_cursors (
    source   INTEGER NOT NULL REFERENCES sources (seq),
    what     TEXT NOT NULL,
    event_id BLOB NOT NULL,
    PRIMARY KEY (source, what),
    CONSTRAINT what_is_known CHECK (what = 'events' OR what = 'bodies' OR what = 'attempts')
) STRICT, WITHOUT ROWID;

-- Events that were not final, or dead, when their time came: when they are looked at again.
CREATE TABLE prune_later (
    event_id BLOB PRIMARY KEY NOT NULL,
    look_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX prune_later_by_time ON prune_later (look_at);

-- That a body differed is a fact; the body may go.
ALTER TABLE duplicates ADD COLUMN body_removed INTEGER NOT NULL DEFAULT 0;

-- What each transaction counted, as it was counted: one row, whatever it touched. They are sorted
-- into `rollups` every few seconds.
CREATE TABLE rollup_facts (
    seq   INTEGER PRIMARY KEY,
    facts BLOB NOT NULL
) STRICT;

-- What happened at a source or a destination in each bucket of time. `width` is in seconds, `start`
-- in milliseconds since 1970; `tally` is a `Tally` of the core.
CREATE TABLE rollups (
    width   INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    subject INTEGER NOT NULL,
    start   INTEGER NOT NULL,
    tally   BLOB NOT NULL,
    PRIMARY KEY (width, kind, subject, start),
    CONSTRAINT width_is_known CHECK (width = 10 OR width = 60 OR width = 3600),
    CONSTRAINT kind_is_known CHECK (kind = 'source' OR kind = 'destination'),
    CONSTRAINT start_is_whole CHECK (start % (width * 1000) = 0)
) STRICT, WITHOUT ROWID;
