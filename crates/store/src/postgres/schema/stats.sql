-- Stats that are counted in the transaction that records an attempt or ends a delivery. Each writer of a node counts in a
-- slot of its own, so that none waits for another: a bucket is the sum over its slots. Nodes of 0.1 count in memory and
-- write to figures in intervals; a bucket includes that table as long as it has rows.
-- Whether a bucket has failures is a column of its own, which changes once: an index on the counters themselves would be
-- changed by every update.
CREATE TABLE stats (
    width smallint NOT NULL,
    bucket bigint NOT NULL,
    scope bigint NOT NULL,
    slot smallint NOT NULL,
    attempts bigint NOT NULL,
    retries bigint NOT NULL,
    second_attempts bigint NOT NULL,
    second_successes bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    retried_deliveries bigint NOT NULL,
    success_attempts bigint NOT NULL,
    latency_micros bigint NOT NULL,
    slowest_micros bigint NOT NULL,
    is_failing boolean NOT NULL,
    PRIMARY KEY (width, bucket, scope, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX stats_failing ON stats (width, bucket) WHERE is_failing;
