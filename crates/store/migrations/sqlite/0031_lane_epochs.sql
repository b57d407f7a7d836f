-- 0031_lane_epochs: a claim lasts as long as its lane has the same owner, and not until a time.
--
-- Why:    the owner of a lane is fenced by the lane's epoch, so a claim needs no time of its own and is
--         not renewed (docs/decisions/0074). Renaming changes no row.
-- Costs:  the rows that are in flight, which are few.
-- Undo:   none. We go forward (docs/decisions/0005).

ALTER TABLE deliveries RENAME COLUMN lease_until TO lane_epoch;
ALTER TABLE deliveries RENAME COLUMN lease_token TO claim_number;
ALTER TABLE wills RENAME COLUMN lease_token TO claim_number;

-- Claims of the previous process; the start releases what is older than its own epoch.
UPDATE deliveries SET lane_epoch = 0 WHERE lane_epoch IS NOT NULL;

INSERT INTO counters (name, value) VALUES ('lane_epoch', 0);
