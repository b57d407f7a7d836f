-- 0011_quarantine: requests that did not verify and that their sender never sends again.
--
-- Why:    a wrong secret must not lose what such a sender sends meanwhile (docs/decisions/0039).
-- Costs:  nothing until there are some; they are bounded for each source.

CREATE TABLE quarantine (
    id          BLOB PRIMARY KEY NOT NULL,
    source_id   BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    times       INTEGER NOT NULL,
    code        TEXT NOT NULL,
    method      TEXT NOT NULL,
    path        TEXT NOT NULL,
    query       TEXT,
    remote      TEXT NOT NULL,
    headers     BLOB NOT NULL,
    body_bytes  INTEGER NOT NULL,
    body        BLOB NOT NULL,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16)
) STRICT;
CREATE UNIQUE INDEX quarantine_by_bytes ON quarantine (source_id, fingerprint);
CREATE INDEX quarantine_by_source ON quarantine (source_id, id);
CREATE INDEX quarantine_by_time ON quarantine (seen_at);

-- How much there is of each source: to count them for each one that comes would take too long.
CREATE TABLE quarantine_totals (
    source_id BLOB PRIMARY KEY NOT NULL,
    many      INTEGER NOT NULL,
    bytes     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER quarantine_in AFTER INSERT ON quarantine BEGIN
    INSERT INTO quarantine_totals VALUES (new.source_id, 1, new.body_bytes)
    ON CONFLICT (source_id) DO UPDATE SET many = many + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER quarantine_out AFTER DELETE ON quarantine BEGIN
    UPDATE quarantine_totals SET many = many - 1, bytes = bytes - old.body_bytes
     WHERE source_id = old.source_id;
END;
