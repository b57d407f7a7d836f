-- 0034_login_links: one-time login links are stored.
--
-- Why:    a link that one node has created must work on every node, and only once on all of them
--         (docs/decisions/0076).
-- Costs:  nothing; there are a handful.
-- Undo:   none. We go forward (docs/decisions/0005).

CREATE TABLE login_links (
    -- SHA-256 of the code.
    hash             BLOB    NOT NULL PRIMARY KEY,
    expires_at       INTEGER NOT NULL,
    -- The token that created the link, and its expiry.
    token            BLOB,
    token_expires_at INTEGER
) STRICT, WITHOUT ROWID;
