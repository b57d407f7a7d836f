-- 0018_delivered_anyway: which duplicates a person has said to be none.
--
-- Why:    such a one becomes an event of its own, and only once however often it is asked for
--         (docs/decisions/0049).
-- Costs:  `duplicates` is read once while it waits (SQLite checks a STRICT table for each column that
--         is added; about 1.5 s for a million rows in memory, with few bodies). Nothing is written.
-- Undo:   none. We go forward (docs/decisions/0005).

-- The event that the copy became.
ALTER TABLE duplicates ADD COLUMN delivered_as BLOB;
