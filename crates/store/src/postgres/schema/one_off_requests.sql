-- One-off requests. The request (method, URL, time limit, retry policy, encrypted headers) is stored with its event, as
-- JSON. Its delivery belongs to the origin endpoint of its URL.
ALTER TABLE events ADD COLUMN request text;
ALTER TABLE endpoints ADD COLUMN is_origin boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX origin_endpoints ON endpoints (tenant_no, url) WHERE is_origin AND standing <> 3;
CREATE INDEX origins ON endpoints (no) WHERE is_origin AND standing <> 3;

-- The keys that sign the one-off requests of a tenant, encrypted. Empty until they are first needed.
ALTER TABLE tenants ADD COLUMN sealed_keys bytea NOT NULL DEFAULT '';
