-- 0017_dead_groups: dead letters by what they died of, counted.
--
-- Why:    thousands that died of one thing are one line for a person, with an exact count that no list
--         has to be read for (docs/decisions/0048).
-- Costs:  `deliveries` is read once for the new column (SQLite checks a STRICT table; about 1.5 s for
--         a million rows in memory) and once for the index, and every dead one with its last attempt.
--         From then on one row of a small table for each that dies or stops being dead; all others
--         pay nothing.
-- Undo:   none. We go forward (docs/decisions/0005).
--
-- `dead_shape` and `dead_group` are `core::dead`'s; see schema.rs.

-- A row as long as at least one is dead.
CREATE TABLE dead_groups (
    seq         INTEGER PRIMARY KEY,
    id          BLOB NOT NULL UNIQUE,
    destination INTEGER NOT NULL REFERENCES destinations (seq),
    class       TEXT,
    code        INTEGER,
    failure     TEXT,
    -- Of the one that died last.
    reason      TEXT NOT NULL,
    shape       TEXT NOT NULL,
    count       INTEGER NOT NULL,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16),
    CONSTRAINT never_below_zero CHECK (count >= 0),
    CONSTRAINT forwards CHECK (first_seen <= last_seen)
) STRICT;
CREATE INDEX dead_groups_by_time ON dead_groups (last_seen, id);
CREATE INDEX dead_groups_by_destination ON dead_groups (destination, last_seen, id);

-- Set as long as it is dead, and only then.
ALTER TABLE deliveries ADD COLUMN dead_group INTEGER;

CREATE TEMP TABLE graves AS
SELECT *, dead_group(destination_id, class, code, failure, shape) AS dead_group
  FROM (SELECT d.id AS delivery, d.destination, t.id AS destination_id, d.reason, d.ended_at,
               a.class, a.status AS code, a.failure,
               dead_shape(d.reason, a.class, a.status, a.failure, a.detail, a.response) AS shape
          FROM deliveries d INDEXED BY deliveries_dead
          JOIN destinations t ON t.seq = d.destination
          -- Not one after which it went on: a status said later that it failed.
          LEFT JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts
                AND a.class IS NOT NULL AND coalesce(a.next, 'dead') = 'dead'
         WHERE d.state = 'dead');

INSERT INTO dead_groups (id, destination, class, code, failure, reason, shape, count, first_seen,
                         last_seen)
SELECT dead_group, destination, class, code, failure, reason, shape, total, first_seen, last_seen
  -- A bare column beside one max() is that of its row, which is the one that died last.
  FROM (SELECT *, max(ended_at) AS last_seen FROM graves GROUP BY dead_group)
  JOIN (SELECT dead_group, count(*) AS total, min(ended_at) AS first_seen
          FROM graves GROUP BY dead_group) USING (dead_group);

UPDATE deliveries SET dead_group = g.seq
  FROM temp.graves v CROSS JOIN dead_groups g ON g.id = v.dead_group
 WHERE deliveries.id = v.delivery;

DROP TABLE temp.graves;

-- Newest first within a group; nothing but what is dead is in it.
CREATE INDEX deliveries_by_group ON deliveries (dead_group, id) WHERE dead_group IS NOT NULL;
