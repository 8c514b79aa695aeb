-- What is stored, in its first format. Published steps never change.
--
-- Hot and cold apart: a delivery that has not ended is a row of `waiting`, a small table that is vacuumed all the
-- time; when it ends it moves to `ended`, which is appended to, partitioned by the time in the ids, and never changed
-- until its partition is dropped. An event is written once. All times are milliseconds, all of them given by nodes.

-- Leads: by how many milliseconds ids run ahead of the time at which their event was accepted, at most. No id up to
-- the last moment is made again, even if what had it is gone.
CREATE TABLE meta (name text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO meta (name, value) VALUES
    ('format', 1), ('event_lead', 0), ('delivery_lead', 0), ('last_moment', 0), ('last_notice', 0), ('probed_at', 0);
CREATE TABLE vault (one boolean PRIMARY KEY DEFAULT true CHECK (one), keys text NOT NULL);

-- Changes of what nodes keep in mind, numbered in the order of their commits: whoever writes one holds the row of
-- `directory` until it is committed.
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

-- The admin keys of nobody have tenant number 0.
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

-- Written with every failure, so apart from the wide row.
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

-- Deliveries that a replay made of an event later on: one for an endpoint, however many replays ask at once.
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
-- Tells whether a whole day ended long ago without reading it.
CREATE INDEX ended_by_end ON ended USING brin (ended_at);

-- Every attempt but the one that ended its delivery, which lies with it.
CREATE TABLE attempts (delivery_id uuid NOT NULL, number integer NOT NULL, entry text NOT NULL, PRIMARY KEY (delivery_id, number))
    PARTITION BY RANGE (delivery_id);

-- How much waits and how much has failed. Each node counts in a slot of its own, so that none waits for another.
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

-- Nodes, by number; one that is fenced off writes nothing any more. Its heart beats in `beats`, apart from the row
-- that its writes lock; with each beat it says whether it wants shards, and how long it must be silent to be dead.
CREATE SEQUENCE node_numbers;
CREATE TABLE nodes (no bigint PRIMARY KEY, role smallint NOT NULL, name text NOT NULL);
CREATE TABLE beats (node bigint PRIMARY KEY, beat bigint NOT NULL, works boolean NOT NULL, lease_ms bigint NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
CREATE TABLE shards (no smallint PRIMARY KEY, owner bigint, epoch bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO shards (no, owner, epoch) SELECT no, NULL, 0 FROM generate_series(0, 255) AS no;

-- Questions and answers between nodes. Nobody misses them after a crash. When nobody waits for an answer any more, by
-- the database's own clock, it is too late to do what was asked.
CREATE UNLOGGED TABLE mail (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, receiver bigint NOT NULL, sender bigint NOT NULL, reference bigint NOT NULL, answer boolean NOT NULL, body text NOT NULL, expires_at bigint)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX mail_by_receiver ON mail (receiver, no);

-- What a batch relies on, checked in its own transaction. With `known`, that the directory is still as this node knows
-- it, and stays so until the commit; with `me`, that this node is not fenced off and owns these shards by these epochs.
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

-- Ends a transaction in which a record found its delivery elsewhere than it stood.
CREATE FUNCTION demand(met boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT met THEN
        RAISE EXCEPTION 'a record came too late' USING ERRCODE = 'PH003';
    END IF;
END $$;

-- Enters a node under a number that nobody has had.
CREATE FUNCTION enter(role smallint, name text, lease_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    me bigint := nextval('node_numbers');
BEGIN
    INSERT INTO nodes VALUES (me, role, name);
    INSERT INTO beats VALUES (me, 0, role > 0, lease_ms);
    PERFORM pg_notify('posthaste', 'members ' || me);
    RETURN me;
END $$;

-- Takes shards for a node: of its own, those that it has lost track of, and so many of those that are nobody's. Whoever
-- strikes it off waits until this is done, or has done so before.
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

-- Makes shards nobody's. Waits for what their owner is just writing, even if it has lost sight of that itself.
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

-- Strikes a node off and frees its shards, if its heart has not beaten since it was seen. Waits for what it is just
-- writing; after that it writes nothing as an owner. Says whether it did.
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
