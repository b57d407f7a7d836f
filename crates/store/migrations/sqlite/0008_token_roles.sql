-- 0008_token_roles: tokens have an id, a role, and may have a name and an end.
--
-- Why:    a token must be found to be revoked, and not every holder may do everything
--         (docs/decisions/0035).
-- Costs:  nothing; there are a handful.

ALTER TABLE tokens ADD COLUMN id BLOB;
ALTER TABLE tokens ADD COLUMN name TEXT;
-- What there was until now could do everything.
ALTER TABLE tokens ADD COLUMN role TEXT NOT NULL DEFAULT 'admin'
    CONSTRAINT role_is_known CHECK (role = 'viewer' OR role = 'operator' OR role = 'admin');
ALTER TABLE tokens ADD COLUMN expires_at INTEGER;

UPDATE tokens SET id = randomblob(16);
CREATE UNIQUE INDEX tokens_by_id ON tokens (id);
