-- Protection that can be set per tenant and endpoint, and stats of attempts per delivered event.

-- Settings of the breaker and of automatic disabling that override those of the server, as JSON.
ALTER TABLE tenants ADD COLUMN protection text;
ALTER TABLE endpoints ADD COLUMN protection text;

-- Limits of endpoints that set none of their own, as JSON.
ALTER TABLE tenants ADD COLUMN endpoint_defaults text;
