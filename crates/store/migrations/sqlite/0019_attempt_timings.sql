-- 0019_attempt_timings: where the time of an attempt went, and why the next one is when it is.
--
-- Why:    whoever looks at a slow or failed attempt asks both first (docs/decisions/0050).
-- Costs:  nothing on a large file: columns are added at the end of rows, and old rows stay as they are.
--         A new row grows by about 8 bytes: one for each column, and those of the numbers there are.
-- Undo:   none. We go forward (docs/decisions/0005).

-- The stages that were reached, in milliseconds, and whether the connection was there before.
ALTER TABLE attempts ADD COLUMN dns_ms INTEGER;
ALTER TABLE attempts ADD COLUMN connect_ms INTEGER;
ALTER TABLE attempts ADD COLUMN tls_ms INTEGER;
ALTER TABLE attempts ADD COLUMN first_byte_ms INTEGER;
ALTER TABLE attempts ADD COLUMN reused INTEGER;

-- What `next_due_at` comes from, in a word.
ALTER TABLE attempts ADD COLUMN why_then TEXT;
ALTER TABLE wills ADD COLUMN why_then TEXT;
