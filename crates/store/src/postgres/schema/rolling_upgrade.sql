-- Rolling upgrades. The row 'format' of meta is the version that a node must know to use the database, and 'schema' the
-- version that the migrations have reached. Nodes of earlier versions work until finish_upgrade raises 'format'.

-- The newest schema version that each node knows. Nodes of 0.1 know version 3, and do not say so.
ALTER TABLE nodes ADD COLUMN format bigint NOT NULL DEFAULT 3;

-- Registers a node under a new number, unless it knows too little. Waits for a finish_upgrade in progress.
CREATE FUNCTION enter(role smallint, name text, lease_ms bigint, known bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    me bigint := nextval('node_numbers');
    required bigint;
BEGIN
    SELECT m.value INTO required FROM meta m WHERE m.name = 'format' FOR SHARE;
    IF required > known THEN
        RAISE EXCEPTION 'the database needs nodes that know schema version %, and this node knows %', required, known
            USING ERRCODE = 'PH004';
    END IF;
    INSERT INTO nodes (no, role, name, format) VALUES (me, role, name, known);
    INSERT INTO beats (node, beat, works, lease_ms) VALUES (me, 0, role > 0, lease_ms);
    PERFORM pg_notify('posthaste', 'members ' || me);
    RETURN me;
END $$;

-- The same for nodes of 0.1.
CREATE OR REPLACE FUNCTION enter(role smallint, name text, lease_ms bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT enter(role, name, lease_ms, 3);
$$;

-- The same for nodes of this version. No released version calls the function that it replaces.
DROP FUNCTION enter(smallint, text, bigint, text, text, bigint);
CREATE FUNCTION enter(role smallint, name text, lease_ms bigint, role_name text, version text, running_ms bigint, known bigint)
    RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    me bigint := enter(role, name, lease_ms, known);
    present bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    UPDATE nodes n SET role_name = enter.role_name, version = enter.version, started_at = present - running_ms
        WHERE n.no = me;
    UPDATE beats b SET at = present, capacity = 4 WHERE b.node = me;
    RETURN me;
END $$;

-- Raises the version that nodes must know, if all nodes know it. Returns the version that nodes must know now.
CREATE FUNCTION finish_upgrade(known bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    -- Waits for nodes that are registering, and makes later ones wait. The next statement sees those that have registered.
    PERFORM 1 FROM meta WHERE name = 'format' FOR UPDATE;
    UPDATE meta SET value = known WHERE name = 'format' AND value < known
        AND NOT EXISTS (SELECT 1 FROM nodes WHERE format < known);
    RETURN (SELECT value FROM meta WHERE name = 'format');
END $$;
