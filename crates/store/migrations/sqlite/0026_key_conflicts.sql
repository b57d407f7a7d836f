-- 0026_key_conflicts: origins of keys, key conflicts, reasons of duplicates, and namespaces of keys.
--
-- Why:    another body under a guessed key is a new event, and the same signed bytes under another key
--         are a duplicate (docs/decisions/0057).
-- Costs:  `events` and `duplicates` are read once (SQLite checks a STRICT table for each column that is
--         added); nothing is rewritten.

-- Whether the key is a guess; NULL without a key, and for events stored before this.
ALTER TABLE events ADD COLUMN key_guessed INTEGER;

-- Events whose key another event held with another body. A table of its own, so that nothing is
-- scanned to find the few.
CREATE TABLE key_conflicts (
    event_id BLOB PRIMARY KEY NOT NULL REFERENCES events (id),
    holder   BLOB NOT NULL,
    CONSTRAINT holder_is_uuid CHECK (length(holder) = 16)
) STRICT, WITHOUT ROWID;

-- NULL is the key.
ALTER TABLE duplicates ADD COLUMN reason TEXT;

-- Keys of events before this time, in milliseconds, were stored without namespaces. No row if there
-- were none.
CREATE TABLE key_namespaces (since INTEGER NOT NULL) STRICT;
INSERT INTO key_namespaces (since)
     SELECT unixepoch('now') * 1000 + 1000
      WHERE EXISTS (SELECT 1 FROM key_packs) OR EXISTS (SELECT 1 FROM key_blocks);
