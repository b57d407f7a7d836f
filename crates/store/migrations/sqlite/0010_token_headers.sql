-- 0010_token_headers: headers in which sources get their secrets, or once did.
--
-- Why:    a request is kept for longer than the settings of its source stay the same, and must not
--         show its secret when that header has got another name (docs/decisions/0038).
-- Costs:  nothing; there are a handful.

CREATE TABLE token_headers (
    name TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

INSERT OR IGNORE INTO token_headers (name)
SELECT lower(spec ->> '$.verify.token.header') FROM sources
 WHERE spec ->> '$.verify.token.header' IS NOT NULL;
