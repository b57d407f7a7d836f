-- 0029_idempotency_claims: keys of the idempotency service and of API requests, and namespaces of tokens.
--
-- Why:    both follow the rules of `surehook-dedup`, whose table this is (docs/decisions/0068). Counts
--         are kept by triggers, because limits and statistics must not count millions of rows.
-- Costs:  a day of `idempotency_results`, at most 100,000 rows, is copied.
-- Undo:   none. We go forward (docs/decisions/0005).

CREATE TABLE surehook_dedup_claims (
    id           INTEGER PRIMARY KEY,
    namespace    TEXT NOT NULL,
    name         TEXT NOT NULL,
    state        INTEGER NOT NULL, -- 0 in progress, 1 completed, 2 released
    token        BLOB NOT NULL,
    fence        INTEGER NOT NULL,
    fingerprint  BLOB,
    operation    BLOB NOT NULL,
    started_at   INTEGER NOT NULL,
    lease_until  INTEGER,
    completed_at INTEGER,
    expires_at   INTEGER NOT NULL,
    result       BLOB,
    CONSTRAINT columns_fit_the_state CHECK (
        (state = 0 AND lease_until IS NOT NULL AND completed_at IS NULL AND result IS NULL)
     OR (state = 1 AND lease_until IS NULL AND completed_at IS NOT NULL AND result IS NOT NULL)
     OR (state = 2 AND lease_until IS NULL AND completed_at IS NULL AND result IS NULL))
) STRICT;
CREATE UNIQUE INDEX surehook_dedup_claims_key ON surehook_dedup_claims (namespace, name);
CREATE INDEX surehook_dedup_claims_expiry ON surehook_dedup_claims (expires_at);
-- Holds only what is unfinished.
CREATE INDEX claims_by_lease ON surehook_dedup_claims (lease_until) WHERE state = 0;

-- One row per namespace; those of API requests ('api:…') share one. The row '' counts the keys of all
-- others.
CREATE TABLE claim_counts (
    namespace    TEXT PRIMARY KEY NOT NULL,
    keys         INTEGER NOT NULL,
    completed    INTEGER NOT NULL,
    released     INTEGER NOT NULL,
    result_bytes INTEGER NOT NULL,
    CONSTRAINT counts_never_below_zero
        CHECK (keys >= 0 AND completed >= 0 AND released >= 0 AND result_bytes >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO claim_counts VALUES ('', 0, 0, 0, 0);

CREATE TRIGGER claim_added AFTER INSERT ON surehook_dedup_claims BEGIN
    INSERT INTO claim_counts (namespace, keys, completed, released, result_bytes)
    VALUES (iif(substr(NEW.namespace, 1, 4) = 'api:', 'api:', NEW.namespace), 1, NEW.state = 1,
            NEW.state = 2, coalesce(length(NEW.result), 0))
    ON CONFLICT (namespace) DO UPDATE SET
           keys = keys + 1, completed = completed + excluded.completed,
           released = released + excluded.released,
           result_bytes = result_bytes + excluded.result_bytes;
    UPDATE claim_counts SET keys = keys + 1
     WHERE namespace = '' AND substr(NEW.namespace, 1, 4) <> 'api:';
END;
CREATE TRIGGER claim_changed AFTER UPDATE OF state ON surehook_dedup_claims
WHEN NEW.state <> OLD.state BEGIN
    UPDATE claim_counts
       SET completed = completed + (NEW.state = 1) - (OLD.state = 1),
           released = released + (NEW.state = 2) - (OLD.state = 2),
           result_bytes = result_bytes + coalesce(length(NEW.result), 0)
                        - coalesce(length(OLD.result), 0)
     WHERE namespace = iif(substr(NEW.namespace, 1, 4) = 'api:', 'api:', NEW.namespace);
END;
CREATE TRIGGER claim_removed AFTER DELETE ON surehook_dedup_claims BEGIN
    UPDATE claim_counts
       SET keys = keys - 1, completed = completed - (OLD.state = 1),
           released = released - (OLD.state = 2),
           result_bytes = result_bytes - coalesce(length(OLD.result), 0)
     WHERE namespace = iif(substr(OLD.namespace, 1, 4) = 'api:', 'api:', OLD.namespace);
    UPDATE claim_counts SET keys = keys - 1
     WHERE namespace = '' AND substr(OLD.namespace, 1, 4) <> 'api:';
END;

-- A response is a line of JSON with status and headers, then the body.
INSERT INTO surehook_dedup_claims (namespace, name, state, token, fence, fingerprint, operation,
       started_at, lease_until, completed_at, expires_at, result)
SELECT 'api:' || lower(hex(scope)), key, status IS NOT NULL, randomblob(16), created_at * 1000,
       request, seed, created_at, iif(status IS NULL, created_at, NULL),
       iif(status IS NULL, NULL, created_at), created_at + 86400000,
       iif(status IS NULL, NULL,
           CAST('{"status":' || status || ',"headers":' || json(headers) || '}' || char(10)
                || CAST(body AS TEXT) AS BLOB))
  FROM idempotency_results ORDER BY seq;
DROP TABLE idempotency_results;

-- A JSON array of namespaces of the idempotency service that the token is limited to; NULL: no limit.
ALTER TABLE tokens ADD COLUMN namespaces TEXT
    CONSTRAINT namespaces_are_json CHECK (namespaces IS NULL OR json_valid(namespaces));
