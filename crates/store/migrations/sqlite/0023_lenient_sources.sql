-- 0023_lenient_sources: sources that are older than the rules for new ones.
--
-- Why:    a signature over the URL needs `public_url`, and keys must be remembered for as long as a
--         signature is valid; sources from before must keep working until they are changed
--         (docs/decisions/0058).
-- Costs:  nothing; there are a handful.
-- Undo:   none. We go forward (docs/decisions/0005).

CREATE TABLE lenient_sources (
    id BLOB NOT NULL PRIMARY KEY,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16)
) STRICT, WITHOUT ROWID;

INSERT INTO lenient_sources (id) SELECT id FROM sources WHERE deleted_at IS NULL;
