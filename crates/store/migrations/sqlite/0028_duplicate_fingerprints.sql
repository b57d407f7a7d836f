-- 0028_duplicate_fingerprints: the SHA-256 of the body that is stored with a duplicate.
--
-- Why:    a damaged body must be neither shown nor delivered anyway (docs/decisions/0049).
-- Costs:  nothing; older rows have none and are not checked.

ALTER TABLE duplicates ADD COLUMN fingerprint BLOB;
