-- 0021_key_packs: the new keys of one commit in one row, instead of a row for each.
--
-- Why:    writing a row and removing it again is most of what a new key costs; its 48 bytes are not
--         (docs/decisions/0016).
-- Costs:  reads the new keys once, of which there are some hundred thousand at most.
-- Undo:   none. We go forward (docs/decisions/0005).

-- For each key 16 bytes of digest, 16 of the event's id, 8 of the body's fingerprint, and 8 of the
-- time when it expires, the highest first. Of a key that is there twice the last one counts.
CREATE TABLE key_packs (
    seq  INTEGER PRIMARY KEY,
    keys BLOB NOT NULL,
    CONSTRAINT keys_are_whole CHECK (length(keys) > 0 AND length(keys) % 48 = 0)
) STRICT;

INSERT INTO key_packs (seq, keys)
    SELECT seq, unhex(hex(digest) || hex(event_id) || hex(body) || format('%016x', expires_at))
      FROM keys_fresh ORDER BY seq;

DROP TABLE keys_fresh;
