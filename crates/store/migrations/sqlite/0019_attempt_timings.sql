-- 0019_attempt_timings: where the time of an attempt went, and why the next one is when it is.
--
-- Why:    whoever looks at a slow or failed attempt asks both first (docs/decisions/0050).
-- Costs:  `attempts` is read once while it waits, about 1.5 s for a million rows in memory and as long
--         as the disk takes otherwise: SQLite checks every row of a STRICT table for each column that
--         is added. So it is one column and not six. Old rows stay as they are, and a new one grows
--         by about 20 bytes.
-- Undo:   none. We go forward (docs/decisions/0005).

-- Milliseconds for the name, the connection, TLS and the first byte; whether the connection was there
-- before; what `next_due_at` comes from: '3,12,25,140,0,backoff'. What is not known is empty.
ALTER TABLE attempts ADD COLUMN timing TEXT;

-- A will has no stages. The table is as small as what is under way.
ALTER TABLE wills ADD COLUMN why_then TEXT;
