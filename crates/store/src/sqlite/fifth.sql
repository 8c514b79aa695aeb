-- Protection that can be set per tenant and endpoint, and stats of attempts per delivered event.

-- Settings of the breaker and of automatic disabling that override those of the server, as JSON.
ALTER TABLE tenants ADD COLUMN protection TEXT;
ALTER TABLE endpoints ADD COLUMN protection TEXT;

-- Limits of endpoints that set none of their own, as JSON.
ALTER TABLE tenants ADD COLUMN endpoint_defaults TEXT;

-- Stats: deliveries that needed a retry, and attempts of deliveries that succeeded. Buckets of the previous version get
-- estimates until they expire after 25 hours: their second attempts, and all attempts if there was a success, so that
-- attempts per success does not change.
ALTER TABLE figures ADD COLUMN retried_deliveries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE figures ADD COLUMN success_attempts INTEGER NOT NULL DEFAULT 0;
UPDATE figures SET
    retried_deliveries = min(second_attempts, max(attempts - retries, 0)),
    success_attempts = CASE WHEN succeeded > 0 THEN max(attempts, succeeded) ELSE 0 END
    WHERE second_attempts > 0 OR succeeded > 0;

-- The limits that an endpoint inherits: the sum of 1 (timeout), 2 (in flight) and 4 (rate). The columns of inherited limits
-- hold the usual defaults. Existing endpoints keep their own limits.
ALTER TABLE endpoints ADD COLUMN inherited INTEGER NOT NULL DEFAULT 0;
