-- 0032_key_ranges: how far the new keys are merged, for each range of the index.
--
-- Why:    the index is merged range by range, and a batch of new keys stays until all of them have
--         passed it (docs/decisions/0016). A start must not load again what is in the index: a key that
--         has expired there, or was shortened, would be back.
-- Costs:  nothing: a new table, empty.
-- Undo:   none. We go forward (docs/decisions/0005).

CREATE TABLE key_ranges (
    -- The upper four bits of the digests.
    range          INTEGER PRIMARY KEY,
    -- Keys of the range in batches up to this one are in `key_blocks`.
    merged_through INTEGER NOT NULL,
    CONSTRAINT range_is_known CHECK (range BETWEEN 0 AND 15)
) STRICT;
