-- One-off requests. The request (method, URL, time limit, retry policy, encrypted headers) is stored with its event, as
-- JSON. Its delivery belongs to the origin endpoint of its URL.
ALTER TABLE events ADD COLUMN request TEXT;
ALTER TABLE endpoints ADD COLUMN is_origin INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX origin_endpoints ON endpoints (tenant_no, url) WHERE is_origin = 1 AND standing <> 3;
CREATE INDEX origins ON endpoints (is_origin) WHERE is_origin = 1 AND standing <> 3;

-- The keys that sign the one-off requests of a tenant, encrypted. Empty until they are first needed.
ALTER TABLE tenants ADD COLUMN sealed_keys BLOB NOT NULL DEFAULT x'';
