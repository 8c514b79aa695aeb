-- The first schema version. Published migration steps never change. docs/internals/stored-names.md explains the names.
--
-- Hot and cold data are separate: a delivery that has not ended is a row of `waiting`, a small table that is vacuumed
-- all the time. When it ends, it moves to `ended`, which is partitioned by the time in the ids, only appended to, and
-- not changed until its partition is dropped. An event is written once. All times are milliseconds, set by nodes.

-- Clock skews: the maximum number of milliseconds that ids are ahead of the acceptance time of their event. No id up to
-- the last moment is generated again, even if the row that had it was deleted.
CREATE TABLE meta (name text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO meta (name, value) VALUES
    ('format', 1), ('event_lead', 0), ('delivery_lead', 0), ('last_moment', 0), ('last_notice', 0), ('probed_at', 0);
CREATE TABLE vault (one boolean PRIMARY KEY DEFAULT true CHECK (one), keys text NOT NULL);

-- The change log of the directory, numbered in commit order: a transaction that adds a change locks the row of `directory`
-- until its commit.
CREATE TABLE directory (one boolean PRIMARY KEY DEFAULT true CHECK (one), last_change bigint NOT NULL, last_no bigint NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
INSERT INTO directory (last_change, last_no) VALUES (0, 0);
CREATE TABLE changes (no bigint PRIMARY KEY, kind smallint NOT NULL, id text NOT NULL);

CREATE TABLE tenants (
    no bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    policy text,
    limits text NOT NULL,
    created_at bigint NOT NULL,
    revision bigint NOT NULL,
    deleted boolean NOT NULL
);
CREATE UNIQUE INDEX tenants_by_id ON tenants (id) WHERE NOT deleted;
CREATE INDEX tenants_by_age ON tenants (created_at, id) WHERE NOT deleted;

-- Admin keys have tenant number 0.
CREATE TABLE keys (
    id uuid PRIMARY KEY,
    tenant_no bigint NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL UNIQUE,
    created_at bigint NOT NULL
);
CREATE INDEX keys_by_tenant ON keys (tenant_no, id);

CREATE TABLE endpoints (
    no bigint PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    shard smallint NOT NULL,
    tenant_no bigint NOT NULL,
    standing smallint NOT NULL,
    reason text,
    url text NOT NULL,
    description text NOT NULL,
    event_types text NOT NULL,
    policy text,
    timeout_ms bigint NOT NULL,
    max_in_flight bigint NOT NULL,
    per_second double precision NOT NULL,
    burst bigint NOT NULL,
    ordered boolean NOT NULL,
    sealed_headers bytea NOT NULL,
    sealed_keys bytea NOT NULL,
    signature_style smallint NOT NULL,
    sealed_credentials bytea NOT NULL,
    owner_email text,
    created_at bigint NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX endpoints_by_tenant ON endpoints (tenant_no, id);

-- Endpoint health. Written with every failure, so it is separate from the wide row of `endpoints`.
CREATE TABLE healths (
    endpoint_no bigint PRIMARY KEY,
    revision bigint NOT NULL,
    tripped boolean NOT NULL,
    health text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE events (
    id uuid NOT NULL,
    tenant_no bigint NOT NULL,
    created_at bigint NOT NULL,
    deliver_at bigint,
    ordering bigint,
    test boolean NOT NULL,
    type text COLLATE "C" NOT NULL,
    content_type text,
    idempotency_key text,
    deliveries bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
ALTER TABLE events ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX events_by_tenant ON events (tenant_no, id);

-- Deliveries that replays added to an event: one per endpoint, even if several replays run at the same time.
CREATE TABLE added (event_id uuid NOT NULL, endpoint_no bigint NOT NULL, delivery_id uuid NOT NULL, PRIMARY KEY (event_id, endpoint_no));

CREATE TABLE idempotency (
    tenant_no bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    event_id uuid NOT NULL,
    PRIMARY KEY (tenant_no, key)
);
CREATE INDEX idempotency_by_age ON idempotency USING brin (event_id);

CREATE TABLE waiting (
    id uuid NOT NULL PRIMARY KEY,
    event_id uuid NOT NULL,
    endpoint_no bigint NOT NULL,
    tenant_no bigint NOT NULL,
    created_at bigint NOT NULL,
    due bigint NOT NULL,
    first_due bigint NOT NULL,
    give_up_at bigint NOT NULL,
    delay_ms bigint,
    ordering bigint,
    attempts integer NOT NULL,
    spent integer NOT NULL,
    status smallint NOT NULL,
    trigger smallint NOT NULL,
    kind smallint,
    type text COLLATE "C" NOT NULL,
    granted text,
    last text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX waiting_due ON waiting (endpoint_no, due, id);
CREATE INDEX waiting_ordered ON waiting (endpoint_no, ordering, id) WHERE ordering IS NOT NULL;
CREATE INDEX waiting_retrying ON waiting (first_due) WHERE status = 1;

CREATE TABLE ended (
    id uuid NOT NULL,
    event_id uuid NOT NULL,
    endpoint_no bigint NOT NULL,
    tenant_no bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    first_due bigint NOT NULL,
    give_up_at bigint NOT NULL,
    delay_ms bigint,
    ordering bigint,
    attempts integer NOT NULL,
    spent integer NOT NULL,
    status smallint NOT NULL,
    reason smallint,
    kind smallint,
    type text COLLATE "C" NOT NULL,
    granted text,
    last text,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX ended_by_endpoint ON ended (endpoint_no, id);
CREATE INDEX ended_by_tenant ON ended (tenant_no, id);
CREATE INDEX ended_dead ON ended (endpoint_no, id) WHERE status = 3;
-- Shows without reading a partition that all its deliveries ended long ago.
CREATE INDEX ended_by_end ON ended USING brin (ended_at);

-- All attempts except the last one of an ended delivery, which is in the row of the delivery.
CREATE TABLE attempts (delivery_id uuid NOT NULL, number integer NOT NULL, entry text NOT NULL, PRIMARY KEY (delivery_id, number))
    PARTITION BY RANGE (delivery_id);

-- Numbers of waiting and failed deliveries. Each node counts in its own slot, so that no node waits for another.
CREATE TABLE tally (
    endpoint_no bigint NOT NULL,
    slot smallint NOT NULL,
    waiting bigint NOT NULL,
    dead bigint NOT NULL,
    PRIMARY KEY (endpoint_no, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE replays (
    id uuid PRIMARY KEY,
    tenant_no bigint NOT NULL,
    status smallint NOT NULL,
    scope smallint NOT NULL,
    endpoint uuid,
    event_type text,
    kind smallint,
    since bigint,
    until bigint,
    total bigint NOT NULL,
    replayed bigint NOT NULL,
    created_at bigint NOT NULL,
    finished_at bigint
);
CREATE INDEX replays_by_tenant ON replays (tenant_no, id);
CREATE INDEX replays_running ON replays (id) WHERE status = 0;
CREATE TABLE replay_targets (replay_id uuid NOT NULL, piece bigint NOT NULL, targets bytea NOT NULL, PRIMARY KEY (replay_id, piece));

CREATE TABLE notices (number bigint PRIMARY KEY, endpoint_no bigint NOT NULL, at bigint NOT NULL, name text NOT NULL, detail text NOT NULL);

-- Nodes by number. A fenced node can write nothing. Heartbeats are in `beats`, separate from the row that a node's writes
-- lock. Each heartbeat says whether the node wants shards, and its lease duration.
CREATE SEQUENCE node_numbers;
CREATE TABLE nodes (no bigint PRIMARY KEY, role smallint NOT NULL, name text NOT NULL);
CREATE TABLE beats (node bigint PRIMARY KEY, beat bigint NOT NULL, works boolean NOT NULL, lease_ms bigint NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
CREATE TABLE shards (no smallint PRIMARY KEY, owner bigint, epoch bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO shards (no, owner, epoch) SELECT no, NULL, 0 FROM generate_series(0, 255) AS no;

-- Requests and responses between nodes (node RPC). A crash may lose them. A request whose time limit has passed by the
-- clock of the database is not executed.
CREATE UNLOGGED TABLE mail (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, receiver bigint NOT NULL, sender bigint NOT NULL, reference bigint NOT NULL, answer boolean NOT NULL, body text NOT NULL, expires_at bigint)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX mail_by_receiver ON mail (receiver, no);

-- Checks in the transaction of a batch what the batch relies on. With `known`: the directory has not changed since this
-- change number, and does not change until the commit. With `me`: this node is not fenced, and owns these shards with
-- these epochs.
CREATE FUNCTION guard(known bigint, me bigint, held smallint[], epochs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF known IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock_shared(70530001);
        IF (SELECT last_change FROM directory) <> known THEN
            RAISE EXCEPTION 'the directory has changed' USING ERRCODE = 'PH001';
        END IF;
    END IF;
    IF me IS NOT NULL THEN
        PERFORM 1 FROM nodes WHERE no = me FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this node is fenced off' USING ERRCODE = 'PH002';
        END IF;
        IF (SELECT count(*) FROM unnest(held, epochs) AS h (no, epoch)
            JOIN shards s ON s.no = h.no AND s.owner = me AND s.epoch = h.epoch) <> cardinality(held) THEN
            RAISE EXCEPTION 'this node does not own that' USING ERRCODE = 'PH002';
        END IF;
    END IF;
END $$;

-- Aborts a transaction whose record found its delivery in another state than expected.
CREATE FUNCTION demand(met boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT met THEN
        RAISE EXCEPTION 'a record came too late' USING ERRCODE = 'PH003';
    END IF;
END $$;

-- Registers a node under a new number.
CREATE FUNCTION enter(role smallint, name text, lease_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    me bigint := nextval('node_numbers');
BEGIN
    INSERT INTO nodes VALUES (me, role, name);
    INSERT INTO beats VALUES (me, 0, role > 0, lease_ms);
    PERFORM pg_notify('posthaste', 'members ' || me);
    RETURN me;
END $$;

-- Claims shards for a node: its own shards that it no longer knows, and up to `free` shards without an owner. `strike_off`
-- of this node waits until the claim is committed, or was committed before.
CREATE FUNCTION claim(me bigint, own smallint[], epochs bigint[], free bigint)
    RETURNS TABLE (shard smallint, claimed bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM nodes WHERE no = me FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this node is fenced off' USING ERRCODE = 'PH002';
    END IF;
    PERFORM pg_notify('posthaste', 'members ' || me);
    RETURN QUERY UPDATE shards s SET epoch = s.epoch + 1 FROM unnest(own, epochs) AS o (no, epoch)
        WHERE s.no = o.no AND s.epoch = o.epoch AND s.owner = me RETURNING s.no, s.epoch;
    RETURN QUERY UPDATE shards s SET owner = me, epoch = s.epoch + 1 WHERE s.no IN
        (SELECT f.no FROM shards f WHERE f.owner IS NULL ORDER BY f.no LIMIT free FOR UPDATE SKIP LOCKED)
        RETURNING s.no, s.epoch;
END $$;

-- Releases shards. Waits for writes of their owner that are in progress, even if the owner no longer knows about them.
CREATE FUNCTION release(me bigint, held smallint[], epochs bigint[]) RETURNS void LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM 1 FROM nodes WHERE no = me FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this node is fenced off' USING ERRCODE = 'PH002';
    END IF;
    UPDATE shards s SET owner = NULL FROM unnest(held, epochs) AS h (no, epoch)
        WHERE s.no = h.no AND s.epoch = h.epoch AND s.owner = me;
    PERFORM pg_notify('posthaste', 'members ' || me);
END $$;

-- Removes a node and releases its shards, if it has sent no heartbeat since `seen`. Waits for its writes in progress;
-- afterwards the node can write nothing as an owner. Returns whether the node was removed.
CREATE FUNCTION strike_off(node bigint, seen bigint, by bigint) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
BEGIN
    DELETE FROM beats b WHERE b.node = strike_off.node AND (seen IS NULL OR b.beat = seen);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM nodes WHERE no = strike_off.node;
    UPDATE shards SET owner = NULL WHERE owner = strike_off.node;
    DELETE FROM mail WHERE receiver NOT IN (SELECT no FROM nodes);
    PERFORM pg_notify('posthaste', 'members ' || by);
    RETURN true;
END $$;
