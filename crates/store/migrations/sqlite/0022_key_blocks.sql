-- 0022_key_blocks: the index of keys holds blocks of neighbours, instead of a row for each key.
--
-- Why:    to put each key into the index by itself was most of what folding cost (docs/decisions/0016).
-- Needs:  the function key_place(digest).
-- Costs:  reads, sorts and writes all keys once: some seconds for a million, and some hundred bytes for each
--         in the folder for temporary files.
-- Undo:   none. We go forward (docs/decisions/0005).

-- In order, and each as in `key_packs`. A block has all keys from its first place on to that of the next
-- one; the place of a key is the upper half of its digest, as a number that sorts as the digest does.
CREATE TABLE key_blocks (
    first INTEGER PRIMARY KEY,
    keys  BLOB NOT NULL,
    CONSTRAINT keys_are_whole CHECK (length(keys) > 0 AND length(keys) % 48 = 0)
) STRICT;

-- Keys of one place stay together; hence the rank.
INSERT INTO key_blocks (first, keys)
    SELECT min(place),
           unhex(group_concat(hex(digest) || hex(event_id) || hex(body) || format('%016x', expires_at),
                              '' ORDER BY digest))
      FROM (SELECT *, (dense_rank() OVER (ORDER BY place) - 1) / 60 AS block
              FROM (SELECT *, key_place(digest) AS place FROM keys))
     GROUP BY block;

DROP TABLE keys;
