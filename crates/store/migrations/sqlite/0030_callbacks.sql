-- 0030_callbacks: webhooks that report the end of a delivery, and the URLs that a token may name.
--
-- Why:    a program hands a webhook to the gateway in one call and learns how it ended
--         (docs/decisions/0069). The row turns due in the transaction that ends the delivery.
-- Costs:  nothing; an ordinary delivery has no row.
-- Undo:   none. We go forward (docs/decisions/0005).

CREATE TABLE callbacks (
    delivery_id BLOB PRIMARY KEY NOT NULL,
    spec        TEXT NOT NULL, -- JSON: destination, path, query, on
    state       INTEGER NOT NULL DEFAULT 0, -- 0 waits for the end, 1 due, 2 done
    CONSTRAINT spec_is_json CHECK (json_valid(spec)),
    CONSTRAINT state_is_known CHECK (state BETWEEN 0 AND 2)
) STRICT, WITHOUT ROWID;
-- Holds only what is due.
CREATE INDEX callbacks_due ON callbacks (delivery_id) WHERE state = 1;

-- A JSON array of the URL patterns that the token may deliver to without a configured destination;
-- NULL: none.
ALTER TABLE tokens ADD COLUMN urls TEXT
    CONSTRAINT urls_are_json CHECK (urls IS NULL OR json_valid(urls));
