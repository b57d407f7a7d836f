-- 0006_idempotency_results: what was answered to a POST with an `Idempotency-Key`.
--
-- Why:    the same wish again gets the same answer, also after a restart (docs/decisions/0031).
-- Costs:  nothing on an existing file; the table begins empty and holds a day of keys.
-- Undo:   none. We go forward (docs/decisions/0005).
--
-- A row is a claim until it has an answer. `seq` grows with time, so that the oldest rows are found
-- without an index, and the rows are counted without looking at them.

CREATE TABLE idempotency_results (
    seq        INTEGER PRIMARY KEY,
    scope      BLOB NOT NULL,
    key        TEXT NOT NULL,
    request    BLOB NOT NULL,
    seed       BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    status     INTEGER,
    headers    TEXT,
    body       BLOB,
    CONSTRAINT scope_is_sha256 CHECK (length(scope) = 32),
    CONSTRAINT request_is_sha256 CHECK (length(request) = 32),
    CONSTRAINT seed_is_16_bytes CHECK (length(seed) = 16),
    CONSTRAINT answered_whole_or_not CHECK ((status IS NULL) = (body IS NULL)
                                            AND (status IS NULL) = (headers IS NULL))
) STRICT;
CREATE UNIQUE INDEX idempotency_one_row_a_key ON idempotency_results (scope, key);
