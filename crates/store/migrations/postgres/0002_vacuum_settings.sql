-- 0002_vacuum_settings: tables whose rows live for seconds are vacuumed when some thousands of rows are
-- dead, not when a fifth of a table is: theirs are always mostly dead.
--
-- Only storage parameters: nodes of the previous version do not notice, and no statement waits.

ALTER TABLE due SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
                     autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 1);
ALTER TABLE in_flight SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
                           autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 1);
ALTER TABLE ordering_queue SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
                                autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 1);
ALTER TABLE count_facts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
                             autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rollup_facts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
                              autovacuum_vacuum_cost_delay = 0);
-- Large tables are not left until a fifth of millions has changed.
ALTER TABLE keys SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.5);
ALTER TABLE deliveries SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
