-- 0013_sends: what was sent, what may have been, and what statuses say of it.
--
-- Why:    a message that may have arrived must not be sent again by a crash, and a status may be the
--         only one who knows (docs/decisions/0042).
-- Costs:  nothing on a large file: new tables, which only destinations that send messages write to.
-- Undo:   none. We go forward (docs/decisions/0005).

-- What holds if nothing more is heard of the attempt that is under way: a settlement. It counts only
-- as long as the delivery has the same lease.
CREATE TABLE wills (
    delivery_id BLOB PRIMARY KEY NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    lease_token INTEGER NOT NULL,
    attempt_id  BLOB NOT NULL,
    number      INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    took_ms     INTEGER NOT NULL,
    failure     TEXT NOT NULL,
    class       TEXT,
    detail      TEXT,
    next        TEXT NOT NULL,
    due_at      INTEGER,
    reason      TEXT,
    sent_id     TEXT,
    sent_day    INTEGER,
    CONSTRAINT next_is_known CHECK (next = 'succeeded' OR next = 'retry' OR next = 'dead'),
    CONSTRAINT due_iff_retried CHECK ((next = 'retry') = (due_at IS NOT NULL)),
    CONSTRAINT reason_iff_dead CHECK ((next = 'dead') = (reason IS NOT NULL)),
    CONSTRAINT named_only_if_counted CHECK (sent_id IS NULL OR sent_day IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- What a status said while the delivery was under way; heard when that has ended.
CREATE TABLE said (
    delivery_id BLOB PRIMARY KEY NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    by_event    BLOB NOT NULL,
    at          INTEGER NOT NULL,
    sent_id     TEXT,
    next        TEXT NOT NULL,
    due_at      INTEGER,
    reason      TEXT,
    CONSTRAINT next_is_known CHECK (next = 'succeeded' OR next = 'retry' OR next = 'dead'),
    CONSTRAINT due_iff_retried CHECK ((next = 'retry') = (due_at IS NOT NULL)),
    CONSTRAINT reason_iff_dead CHECK ((next = 'dead') = (reason IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- What the service calls the message of a delivery; statuses about it have this name.
CREATE TABLE sends (
    delivery_id BLOB PRIMARY KEY NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    sent_id     TEXT NOT NULL,
    sent_at     INTEGER NOT NULL,
    CONSTRAINT id_is_something CHECK (sent_id <> '')
) STRICT, WITHOUT ROWID;
CREATE INDEX sends_by_id ON sends (sent_id);

-- How many messages were sent. `day` is in days since 1970, by the calendar of the destination.
CREATE TABLE sends_by_day (
    destination INTEGER NOT NULL REFERENCES destinations (seq),
    day         INTEGER NOT NULL,
    sent        INTEGER NOT NULL,
    PRIMARY KEY (destination, day),
    CONSTRAINT one_at_least CHECK (sent >= 1)
) STRICT, WITHOUT ROWID;
