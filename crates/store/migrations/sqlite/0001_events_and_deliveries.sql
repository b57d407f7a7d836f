-- 0001_events_and_deliveries: everything the gateway keeps.
--
-- Why:    one transaction must hold an event, its key and its deliveries (docs/decisions/0002).
-- Undo:   none. We go forward (docs/decisions/0005).
--
-- Ids are version-7 UUIDs, so a primary key on them appends and lists by it are lists by time.
-- Times are milliseconds since 1970. States are words; the CHECKs tie columns to them.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    hash       BLOB PRIMARY KEY NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT hash_is_sha256 CHECK (length(hash) = 32)
) STRICT, WITHOUT ROWID;

-- A deleted source or destination stays as a row, so that its history keeps a name.
CREATE TABLE sources (
    seq        INTEGER PRIMARY KEY,
    id         BLOB NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    spec       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16),
    CONSTRAINT spec_is_json CHECK (json_valid(spec))
) STRICT;
CREATE UNIQUE INDEX sources_one_live_name ON sources (name) WHERE deleted_at IS NULL;

CREATE TABLE destinations (
    seq        INTEGER PRIMARY KEY,
    id         BLOB NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    spec       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16),
    CONSTRAINT spec_is_json CHECK (json_valid(spec))
) STRICT;
CREATE UNIQUE INDEX destinations_one_live_name ON destinations (name) WHERE deleted_at IS NULL;

CREATE TABLE routes (
    seq         INTEGER PRIMARY KEY,
    id          BLOB NOT NULL UNIQUE,
    source      INTEGER NOT NULL REFERENCES sources (seq),
    destination INTEGER NOT NULL REFERENCES destinations (seq),
    filter      TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16)
) STRICT;
CREATE INDEX routes_by_source ON routes (source);
CREATE INDEX routes_by_destination ON routes (destination);

-- Bodies and headers apart from the facts: lists stay small, and a body can go before its event.
CREATE TABLE payloads (
    seq     INTEGER PRIMARY KEY,
    path    TEXT NOT NULL,
    query   TEXT,
    remote  TEXT NOT NULL,
    headers BLOB NOT NULL,
    body    BLOB NOT NULL
) STRICT;

CREATE TABLE events (
    id                BLOB PRIMARY KEY NOT NULL,
    request_id        BLOB NOT NULL,
    source            INTEGER NOT NULL REFERENCES sources (seq),
    key               TEXT,
    received_at       INTEGER NOT NULL,
    body_bytes        INTEGER NOT NULL,
    fingerprint       BLOB NOT NULL,
    payload           INTEGER,
    duplicates        INTEGER NOT NULL DEFAULT 0,
    last_duplicate_at INTEGER,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16),
    CONSTRAINT fingerprint_is_sha256 CHECK (length(fingerprint) = 32),
    CONSTRAINT key_is_something CHECK (key <> ''),
    CONSTRAINT seen_again_iff_counted CHECK ((duplicates > 0) = (last_duplicate_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX events_by_source ON events (source, id);

-- What makes an event a duplicate. Outlives its event or not, by the source's window alone.
CREATE TABLE keys (
    source      INTEGER NOT NULL,
    key         TEXT NOT NULL,
    event_id    BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (source, key)
) STRICT, WITHOUT ROWID;

-- The same, as they came; on their way into `keys` (see fresh.rs).
CREATE TABLE keys_fresh (
    seq         INTEGER PRIMARY KEY,
    source      INTEGER NOT NULL,
    key         TEXT NOT NULL,
    event_id    BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;

-- The first sightings of each duplicate; the body only where it differs from the original's.
CREATE TABLE duplicates (
    seq      INTEGER PRIMARY KEY,
    event_id BLOB NOT NULL REFERENCES events (id),
    seen_at  INTEGER NOT NULL,
    body     BLOB
) STRICT;
CREATE INDEX duplicates_by_event ON duplicates (event_id, seq);

CREATE TABLE deliveries (
    id          BLOB PRIMARY KEY NOT NULL,
    event_id    BLOB NOT NULL REFERENCES events (id),
    destination INTEGER NOT NULL REFERENCES destinations (seq),
    state       TEXT NOT NULL,
    cause       TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    due_at      INTEGER,
    lease_token INTEGER,
    lease_until INTEGER,
    attempts    INTEGER NOT NULL DEFAULT 0,
    throttled   INTEGER NOT NULL DEFAULT 0,
    ended_at    INTEGER,
    reason      TEXT,
    replay_of   BLOB,
    replayed_by BLOB,
    replayed_at INTEGER,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16),
    -- Each state has the columns it needs and no others; `DeliveryState` in the core is the twin.
    -- Spelled out with OR: SQLite builds a table for `IN` with more than two values, for every
    -- row it checks. Without it, an event that was delivered cost the writer a sixth less.
    CONSTRAINT state_is_known CHECK (state = 'pending' OR state = 'in_flight'
                                     OR state = 'scheduled' OR state = 'held'
                                     OR state = 'succeeded' OR state = 'dead'
                                     OR state = 'cancelled' OR state = 'replayed'),
    CONSTRAINT cause_is_known CHECK (cause = 'ingest' OR cause = 'replay' OR cause = 'revival'),
    CONSTRAINT due_iff_waiting CHECK ((state IN ('pending', 'scheduled')) = (due_at IS NOT NULL)),
    CONSTRAINT lease_iff_in_flight CHECK ((state = 'in_flight') = (lease_token IS NOT NULL)),
    CONSTRAINT expiry_iff_lease CHECK ((lease_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT ended_iff_final CHECK ((state = 'succeeded' OR state = 'dead'
                                       OR state = 'cancelled' OR state = 'replayed')
                                      = (ended_at IS NOT NULL)),
    CONSTRAINT dead_has_a_reason CHECK (state <> 'dead' OR reason IS NOT NULL),
    CONSTRAINT replayed_names_its_heir CHECK ((state = 'replayed') = (replayed_by IS NOT NULL)),
    CONSTRAINT throttled_within_attempts CHECK (throttled <= attempts)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_by_event ON deliveries (event_id);
CREATE INDEX deliveries_by_destination ON deliveries (destination, id);
CREATE INDEX deliveries_due ON deliveries (destination, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_leased ON deliveries (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX deliveries_dead ON deliveries (id) WHERE state = 'dead';
-- An event is fanned out once. It may be replayed any number of times.
CREATE UNIQUE INDEX deliveries_one_heir ON deliveries (replay_of) WHERE replay_of IS NOT NULL;

CREATE TABLE attempts (
    delivery_id BLOB NOT NULL REFERENCES deliveries (id),
    number      INTEGER NOT NULL,
    id          BLOB NOT NULL,
    started_at  INTEGER NOT NULL,
    took_ms     INTEGER NOT NULL,
    status      INTEGER,
    failure     TEXT,
    class       TEXT,
    detail      TEXT,
    response    BLOB,
    PRIMARY KEY (delivery_id, number),
    CONSTRAINT numbers_start_at_one CHECK (number >= 1),
    CONSTRAINT answered_or_failed CHECK ((status IS NULL) = (failure IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- Exact sums, moved in the same transaction as what they count.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY NOT NULL,
    value INTEGER NOT NULL,
    CONSTRAINT never_below_zero CHECK (value >= 0)
) STRICT, WITHOUT ROWID;
