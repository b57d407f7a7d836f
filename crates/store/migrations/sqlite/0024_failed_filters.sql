-- 0024_failed_filters: deliveries whose route could not tell whether it takes the event.

-- Without a body the filter or the transform of the route failed, and is run again at each attempt.
ALTER TABLE delivery_bodies ADD COLUMN filter_failed INTEGER NOT NULL DEFAULT 0;
