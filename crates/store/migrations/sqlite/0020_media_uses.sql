-- 0020_media_uses: when a file was last used.
--
-- Why:    what nobody uses any more is forgotten, and not kept for ever (docs/decisions/0044).
-- Costs:  one pass over `media`: a row for each file that was ever uploaded. From then on an upload
--         writes to an index too, and so does the first use of a file on a day.
-- Undo:   none. We go forward (docs/decisions/0005).

ALTER TABLE media ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;

-- Nobody knows when the files of before were used. Their time begins now.
UPDATE media SET used_at = unixepoch() * 1000;

CREATE INDEX media_by_use ON media (used_at);
