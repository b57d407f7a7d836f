-- 0027_data_keys: the keys that encrypt specs and the heads of quarantined requests.
--
-- Why:    secrets must not be readable in the file, the log or a backup (docs/decisions/0064).
-- Costs:  nothing by itself. The start that creates the first key encrypts all specs and quarantined
--         heads in one transaction, and rewrites a file of up to 1 GiB once, so that no old copy of a
--         secret is left in unused space.

-- `wrapped` is the data key, encrypted with the secret key whose id is `wrapped_by`.
CREATE TABLE data_keys (
    id         BLOB PRIMARY KEY NOT NULL,
    wrapped    BLOB NOT NULL,
    wrapped_by BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT id_is_8_bytes CHECK (length(id) = 8),
    CONSTRAINT wrapped_by_is_8_bytes CHECK (length(wrapped_by) = 8)
) STRICT, WITHOUT ROWID;
