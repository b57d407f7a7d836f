-- 0033_young_keys: a young level of the index of keys.
--
-- Why:    each of ten million keys was merged into a page of `key_blocks` with one or two others, and
--         writing these pages made a large store slow. Keys now gather in a table with few pages, from
--         where many move to each page (docs/decisions/0016).
-- Costs:  nothing: a new table, empty.
-- Undo:   none. We go forward (docs/decisions/0005).

-- As `key_blocks`. Of a key that is in both, the one here is later.
CREATE TABLE key_blocks_young (
    first INTEGER PRIMARY KEY,
    keys  BLOB NOT NULL,
    CONSTRAINT keys_are_whole CHECK (length(keys) > 0 AND length(keys) % 48 = 0)
) STRICT;
