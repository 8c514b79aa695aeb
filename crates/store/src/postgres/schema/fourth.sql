-- Protection that can be set per tenant and endpoint, and stats of attempts per delivered event.

-- Settings of the breaker and of automatic disabling that override those of the server, as JSON.
ALTER TABLE tenants ADD COLUMN protection text;
ALTER TABLE endpoints ADD COLUMN protection text;

-- Limits of endpoints that set none of their own, as JSON.
ALTER TABLE tenants ADD COLUMN endpoint_defaults text;

-- Stats: deliveries that needed a retry, and attempts of deliveries that succeeded. Buckets of the previous version get
-- estimates until they expire after 25 hours: their second attempts, and all attempts if there was a success, so that
-- attempts per success does not change.
-- The defaults are for nodes of the previous version, which insert rows without these columns during a rolling upgrade.
ALTER TABLE figures ADD COLUMN retried_deliveries bigint NOT NULL DEFAULT 0;
ALTER TABLE figures ADD COLUMN success_attempts bigint NOT NULL DEFAULT 0;
UPDATE figures SET
    retried_deliveries = least(second_attempts, greatest(attempts - retries, 0)),
    success_attempts = CASE WHEN succeeded > 0 THEN greatest(attempts, succeeded) ELSE 0 END
    WHERE second_attempts > 0 OR succeeded > 0;

-- The limits that an endpoint inherits: the sum of 1 (timeout), 2 (in flight) and 4 (rate). The columns of inherited limits
-- hold the usual defaults, for nodes of the previous version. Existing endpoints keep their own limits.
ALTER TABLE endpoints ADD COLUMN inherited smallint NOT NULL DEFAULT 0;
