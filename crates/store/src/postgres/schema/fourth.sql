-- Protection that can be set per tenant and endpoint, and stats of attempts per delivered event.

-- Settings of the breaker and of automatic disabling that override those of the server, as JSON.
ALTER TABLE tenants ADD COLUMN protection text;
ALTER TABLE endpoints ADD COLUMN protection text;

-- Limits of endpoints that set none of their own, as JSON.
ALTER TABLE tenants ADD COLUMN endpoint_defaults text;

-- Stats: deliveries that needed a retry, and attempts of deliveries that succeeded. Nodes of the previous version insert rows
-- without these columns; readers estimate them (write/stats.rs) until the rows expire. The rows are not updated here, because
-- this transaction locks tenants and endpoints.
ALTER TABLE figures ADD COLUMN retried_deliveries bigint NOT NULL DEFAULT 0;
ALTER TABLE figures ADD COLUMN success_attempts bigint NOT NULL DEFAULT 0;

-- The limits that an endpoint inherits: the sum of 1 (timeout), 2 (in flight) and 4 (rate). The columns of inherited limits
-- hold the usual defaults, for nodes of the previous version. Existing endpoints keep their own limits.
ALTER TABLE endpoints ADD COLUMN inherited smallint NOT NULL DEFAULT 0;
