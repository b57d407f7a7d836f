-- Stores $ROWS events with their deliveries, as $ROWS requests to the first source would, the first one
-- numbered $FIRST. Of 1000 deliveries one is dead, one waits for a retry, and one is held behind it.
INSERT INTO dead_groups (id, destination, class, code, reason, shape, count, first_seen, last_seen)
SELECT decode(repeat('ab', 16), 'hex'), min(seq), 'transient', 503, 'max_retries', '503', 0, 0, 0
  FROM destinations
ON CONFLICT (id) DO NOTHING;

CREATE TEMP TABLE new_rows AS
SELECT n, decode(lpad(to_hex($TIME + n / 10), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'), 'hex') AS id,
       $TIME + n / 10 AS at, nextval('payloads_seq_seq') AS payload, decode(md5(n::text), 'hex') AS digest,
       (SELECT min(seq) FROM sources) AS source, (SELECT min(seq) FROM destinations) AS destination
  FROM generate_series($FIRST::bigint, $FIRST::bigint + $ROWS - 1) AS n;

INSERT INTO payloads (seq, path, remote, headers, body)
SELECT payload, '/orders', '192.0.2.1', '', decode(md5(n::text), 'hex') FROM new_rows;
INSERT INTO events (id, request_id, source, key, received_at, body_bytes, fingerprint, payload, kind)
SELECT id, id, source, 'key-' || n, at, 16, sha256(decode(md5(n::text), 'hex')), payload, 'order.paid' FROM new_rows;
INSERT INTO terms (term, event_id)
SELECT decode(lpad(to_hex(n % 5000), 16, '0'), 'hex'), id FROM new_rows;
INSERT INTO keys (digest, event_id, body, expires_at)
SELECT digest, id, '\x0102030405060708', at + 86400000::bigint * 40 FROM new_rows ORDER BY digest;
SELECT brin_summarize_new_values('keys_by_expiry'); -- what autovacuum does
INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at, attempts, ended_at, reason,
                        order_key, order_seq, dead_group)
SELECT id, id, destination,
       CASE n % 1000 WHEN 1 THEN 'dead' WHEN 2 THEN 'scheduled' WHEN 3 THEN 'held' ELSE 'succeeded' END,
       'ingest', at, CASE n % 1000 WHEN 2 THEN at + 864000000000 END, CASE n % 1000 WHEN 3 THEN 0 ELSE 1 END,
       CASE WHEN n % 1000 NOT IN (2, 3) THEN at END, CASE n % 1000 WHEN 1 THEN 'max_retries' END,
       CASE WHEN n % 1000 IN (2, 3) THEN 'customer-' || n / 1000 END,
       CASE WHEN n % 1000 IN (2, 3) THEN nextval('order_numbers') END,
       CASE n % 1000 WHEN 1 THEN (SELECT max(seq) FROM dead_groups) END
  FROM new_rows;
INSERT INTO attempts (delivery_id, number, id, started_at, took_ms, status, class, next, next_due_at)
SELECT id, 1, id, at, 12, CASE WHEN n % 1000 IN (1, 2) THEN 503 ELSE 200 END,
       CASE WHEN n % 1000 IN (1, 2) THEN 'transient' END,
       CASE n % 1000 WHEN 1 THEN 'dead' WHEN 2 THEN 'retry' ELSE 'succeeded' END,
       CASE n % 1000 WHEN 2 THEN at + 864000000000 END
  FROM new_rows WHERE n % 1000 <> 3;
UPDATE dead_groups SET count = (SELECT count(*) FROM deliveries WHERE dead_group IS NOT NULL);
DROP TABLE new_rows;
