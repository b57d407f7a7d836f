-- 0018_delivered_anyway: which duplicates a person has said to be none.
--
-- Why:    such a one becomes an event of its own, and only once however often it is asked for
--         (docs/decisions/0049).
-- Cost:   a column at the end of rows, which takes nothing until it is written.
-- Undo:   none. We go forward (docs/decisions/0005).

-- The event that the copy became.
ALTER TABLE duplicates ADD COLUMN delivered_as BLOB;
