-- What operators see of each node, and what nodes see of each other's speed. Published steps never change.
-- All columns may be null: nodes of the previous version write rows without them during a rolling upgrade.

-- The role as configured, the version, and the start of the process.
ALTER TABLE nodes ADD COLUMN role_name text;
ALTER TABLE nodes ADD COLUMN version text;
ALTER TABLE nodes ADD COLUMN started_at bigint;

-- With each heartbeat: its time by the database's clock, the capacity in quarters, the round trips in milliseconds, and
-- by how much the machine's clock is ahead of the database's.
ALTER TABLE beats ADD COLUMN at bigint;
ALTER TABLE beats ADD COLUMN capacity smallint;
ALTER TABLE beats ADD COLUMN heartbeat_ms bigint;
ALTER TABLE beats ADD COLUMN fetch_ms bigint;
ALTER TABLE beats ADD COLUMN record_ms bigint;
ALTER TABLE beats ADD COLUMN offset_ms bigint;

-- Registers a node under a new number. `running_ms` is the time since its process started.
CREATE FUNCTION enter(role smallint, name text, lease_ms bigint, role_name text, version text, running_ms bigint)
    RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    me bigint := enter(role, name, lease_ms);
    present bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    UPDATE nodes n SET role_name = enter.role_name, version = enter.version, started_at = present - running_ms
        WHERE n.no = me;
    UPDATE beats b SET at = present, capacity = 4 WHERE b.node = me;
    RETURN me;
END $$;

-- Locks the directory exclusively until the end of the transaction, and checks that its last change is the one that the
-- caller knows.
CREATE FUNCTION check_directory(key bigint, known bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(key);
    IF (SELECT last_change FROM directory) <> known THEN
        RAISE EXCEPTION 'the directory has changed' USING ERRCODE = 'PH001';
    END IF;
END $$;

-- Checks that a shard has no owner, and keeps it so until the end of the transaction.
CREATE FUNCTION check_unowned(shard smallint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM shards s WHERE s.no = shard AND s.owner IS NULL FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the shard has an owner' USING ERRCODE = 'PH001';
    END IF;
END $$;
