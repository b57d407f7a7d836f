-- 0014_media: what is known of the files that are sent with messages.
--
-- Why:    a message names a file by its id, and a link to it is made for every attempt
--         (docs/decisions/0044). The bytes lie in a bucket, not here.
-- Costs:  nothing on an existing file; the table begins empty and grows by a row for each upload.
-- Undo:   none. We go forward (docs/decisions/0005).

CREATE TABLE media (
    id         BLOB PRIMARY KEY,
    bucket     TEXT NOT NULL,
    key        TEXT NOT NULL,
    kind       TEXT NOT NULL,
    mime_type  TEXT NOT NULL,
    size       INTEGER NOT NULL,
    filename   TEXT,
    created_at INTEGER NOT NULL,
    CONSTRAINT id_is_uuid CHECK (length(id) = 16),
    CONSTRAINT kind_is_known
        CHECK (kind IN ('image', 'video', 'audio', 'document', 'sticker')),
    CONSTRAINT is_somewhere CHECK (bucket <> '' AND key <> '' AND mime_type <> ''),
    CONSTRAINT has_bytes CHECK (size > 0)
) STRICT, WITHOUT ROWID;
