-- 0015_awaited: which deliveries wait for a word of what may have arrived, and for how long.
--
-- Why:    while the gateway is down no status can reach it, so that such a wait begins anew when it
--         starts (docs/decisions/0042). They have to be found then without a look at all that waits.
-- Costs:  what is scheduled is looked at once, by the index of what is due. From then on a row for
--         each of them and no others, which only destinations that send messages write.
-- Undo:   none. We go forward (docs/decisions/0005).

CREATE TABLE awaited (
    delivery_id BLOB PRIMARY KEY NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    -- From the end of the attempt to the next.
    wait_ms     INTEGER NOT NULL,
    CONSTRAINT forwards CHECK (wait_ms >= 0)
) STRICT, WITHOUT ROWID;

INSERT INTO awaited (delivery_id, wait_ms)
SELECT d.id, max(0, a.next_due_at - a.started_at - a.took_ms)
  FROM deliveries d INDEXED BY deliveries_due
  JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts
 WHERE d.due_at IS NOT NULL AND d.state = 'scheduled'
   AND a.class = 'ambiguous' AND a.next_due_at IS NOT NULL;
