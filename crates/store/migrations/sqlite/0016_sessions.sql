-- 0016_sessions: a browser that has signed in has a token of its own.
--
-- Why:    the dashboard keeps no other accounts; what a session may do ends with what it was begun with
--         (docs/decisions/0051).
-- Costs:  nothing; there are a handful.

ALTER TABLE tokens ADD COLUMN is_session INTEGER NOT NULL DEFAULT 0
    CONSTRAINT session_or_not CHECK (is_session IN (0, 1));
-- The id of the token that it was begun with; nothing if that was a link that opens once.
ALTER TABLE tokens ADD COLUMN begun_with BLOB;
