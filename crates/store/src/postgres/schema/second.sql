-- The dashboard: sessions, the audit log, dead letters by failure kind, endpoints that need attention. Published steps
-- never change.

CREATE TABLE passes (
    id uuid PRIMARY KEY,
    hash bytea NOT NULL UNIQUE,
    tenant_no bigint,
    key_hash bytea,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX passes_by_tenant ON passes (tenant_no, id) WHERE tenant_no IS NOT NULL;
CREATE INDEX passes_by_key ON passes (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX passes_by_end ON passes (expires_at);

-- A tenant is stored twice: by its id, for readers of the whole log, and by its number, so that a later tenant with the
-- same id cannot read the entry.
CREATE TABLE audit (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    actor text NOT NULL,
    actor_key uuid,
    via smallint NOT NULL,
    source text,
    action text NOT NULL,
    tenant text COLLATE "C",
    tenant_no bigint,
    resource text NOT NULL,
    outcome smallint,
    code text
) WITH (fillfactor = 80);
CREATE INDEX audit_by_name ON audit (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX audit_by_tenant ON audit (tenant_no, id) WHERE tenant_no IS NOT NULL;

-- Endpoint and failure kind in one number, with which no other index begins. See read/dead_letters.rs.
CREATE INDEX ended_dead_by_kind ON ended ((endpoint_no * 16 + coalesce(kind, 15)), id) WHERE status = 3;
CREATE INDEX endpoints_troubled ON endpoints (tenant_no, id)
    WHERE standing = 1 OR standing = 2 AND reason <> '"manual"';
CREATE INDEX healths_tripped ON healths (endpoint_no) WHERE tripped;
