-- 0003_shards: a destination may have several lanes, its shards.
--
-- The owners of lanes are in a new table, because the key of `lanes` allows one lane for each destination.
-- Nodes of the previous version, which may still run, go on with `lanes`: triggers copy each change to the
-- other table. They know no shards: as long as they run, no destination may have more than one. A later
-- migration removes `lanes` and the triggers.

-- Owners of lanes; without a node a lane is free. The epoch stays when the lane is given back.
CREATE TABLE lane_owners (
    destination   bigint NOT NULL,
    shard         smallint NOT NULL,
    shards        smallint NOT NULL, -- of the destination when the lane was acquired
    node          bytea,
    last_node     bytea NOT NULL,
    epoch         bigint NOT NULL,
    since         bigint NOT NULL,
    is_taken_over smallint NOT NULL, -- it had another owner before
    PRIMARY KEY (destination, shard),
    CONSTRAINT shard_exists CHECK (shard >= 0 AND shard < shards)
);

CREATE FUNCTION copy_lane_to_lane_owners() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.node IS NOT NULL AND EXISTS (SELECT 1 FROM lane_owners WHERE destination = NEW.destination
                                           AND shards > 1 AND node IS NOT NULL) THEN
        RAISE EXCEPTION 'the destination has several lanes; update this node';
    END IF;
    INSERT INTO lane_owners (destination, shard, shards, node, last_node, epoch, since, is_taken_over)
    VALUES (NEW.destination, 0, 1, NEW.node, NEW.last_node, NEW.epoch, NEW.since, NEW.is_taken_over)
    ON CONFLICT (destination, shard) DO UPDATE
       SET shards = excluded.shards, node = excluded.node, last_node = excluded.last_node,
           epoch = excluded.epoch, since = excluded.since, is_taken_over = excluded.is_taken_over;
    RETURN NULL;
END $$;

CREATE FUNCTION copy_lane_owner_to_lanes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lanes (destination, node, last_node, epoch, since, is_taken_over)
    VALUES (NEW.destination, NEW.node, NEW.last_node, NEW.epoch, NEW.since, NEW.is_taken_over)
    ON CONFLICT (destination) DO UPDATE
       SET node = excluded.node, last_node = excluded.last_node, epoch = excluded.epoch,
           since = excluded.since, is_taken_over = excluded.is_taken_over;
    RETURN NULL;
END $$;

-- From here on no owner changes until the migration is committed.
CREATE TRIGGER lanes_are_copied AFTER INSERT OR UPDATE ON lanes
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION copy_lane_to_lane_owners();
CREATE TRIGGER lane_owners_are_copied AFTER INSERT OR UPDATE ON lane_owners
    FOR EACH ROW WHEN (NEW.shard = 0 AND pg_trigger_depth() = 0)
    EXECUTE FUNCTION copy_lane_owner_to_lanes();

INSERT INTO lane_owners (destination, shard, shards, node, last_node, epoch, since, is_taken_over)
SELECT destination, 0, 1, node, last_node, epoch, since, is_taken_over FROM lanes;

ALTER TABLE lane_handovers ADD COLUMN shard smallint NOT NULL DEFAULT 0,
                           ADD COLUMN shards smallint NOT NULL DEFAULT 1;
ALTER TABLE lane_requests ADD COLUMN shard smallint NOT NULL DEFAULT 0;
