-- 0003_decisions: why each event went where it went, transforms, and requests that were refused.
--
-- Why:    an event must tell its whole story (docs/decisions/0027).
-- Cost:   new columns are added at the end of rows and cost nothing until a row is written; the new
--         tables begin empty. An ordinary event or delivery writes no row more than before.
-- Undo:   none. We go forward (docs/decisions/0005).

-- What was decided when the event came. `unrouted` holds the routes that led to no delivery, by why.
ALTER TABLE events ADD COLUMN verified_by TEXT;
ALTER TABLE events ADD COLUMN key_from TEXT;
ALTER TABLE events ADD COLUMN unrouted TEXT;

-- What followed from the attempt: `succeeded`, `retry` (then when), or `dead`.
ALTER TABLE attempts ADD COLUMN next TEXT;
ALTER TABLE attempts ADD COLUMN next_due_at INTEGER;

ALTER TABLE routes ADD COLUMN transform TEXT;

-- What happened to an event after it was taken in and is no attempt.
CREATE TABLE decisions (
    seq         INTEGER PRIMARY KEY,
    event_id    BLOB NOT NULL,
    delivery_id BLOB,
    at          INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    detail      TEXT,
    CONSTRAINT detail_is_json CHECK (detail IS NULL OR json_valid(detail))
) STRICT;
CREATE INDEX decisions_by_event ON decisions (event_id, seq);

-- What is sent instead of the event's body; only for deliveries whose route has a transform. Without
-- a body the transform failed, and is run again at each attempt.
CREATE TABLE delivery_bodies (
    delivery_id BLOB PRIMARY KEY NOT NULL,
    route_id    BLOB NOT NULL,
    body        BLOB,
    fingerprint BLOB,
    CONSTRAINT body_has_a_fingerprint CHECK ((body IS NULL) = (fingerprint IS NULL))
) STRICT, WITHOUT ROWID;

-- A bounded sample of what was not let in, for each source and reason.
CREATE TABLE refused_requests (
    id         BLOB PRIMARY KEY NOT NULL,
    source     TEXT,
    at         INTEGER NOT NULL,
    code       TEXT NOT NULL,
    status     INTEGER NOT NULL,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    query      TEXT,
    remote     TEXT NOT NULL,
    headers    BLOB NOT NULL,
    body_bytes INTEGER,
    body       BLOB,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16)
) STRICT, WITHOUT ROWID;
CREATE INDEX refused_requests_by_reason ON refused_requests (source, code, id);
