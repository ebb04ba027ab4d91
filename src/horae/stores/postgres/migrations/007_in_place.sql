-- A claim changes no column that an index names, in its keys or in its condition: so it stays within the page of the run and
-- writes no index at all.

-- Held runs of a queue with a limit, which are counted. All others are not, so that their claim does not change it.
ALTER TABLE runs ADD COLUMN counted boolean NOT NULL DEFAULT false;
ALTER TABLE runs ALTER COLUMN counted SET STATISTICS 10;
CREATE INDEX runs_counted ON runs (queue) WHERE counted;
UPDATE runs SET counted = true
 WHERE node IS NOT NULL AND queue IN (SELECT queue FROM queues WHERE concurrency IS NOT NULL);

-- Nodes that are gone, and the latest time at which something that they left behind wakes: it is looked for among what may
-- be claimed. A node claims only while its lease is good, and ahead of time, each of which is an hour at most.
ALTER TABLE graves ADD COLUMN last_at timestamptz;
UPDATE graves SET last_at = coalesce((SELECT max(wake_at) FROM runs WHERE node IS NOT NULL), now());
ALTER TABLE graves ALTER COLUMN last_at SET NOT NULL;
SELECT set_config('search_path', quote_ident(current_schema()), true);  -- kept with the function, whoever calls it
CREATE OR REPLACE FUNCTION dig_grave() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO graves VALUES (OLD.id, OLD.beat_at + interval '3 h')
        ON CONFLICT (node) DO UPDATE SET last_at = greatest(graves.last_at, excluded.last_at);
    RETURN NULL;
END $$;

-- What waits and what is held lie side by side. `shelf IS NOT NULL` is true of all: it keeps an index that begins otherwise
-- away from look-ups by id, for which plans that were made when there was nothing would take it.
DROP INDEX runs_held, runs_claim, runs_shelf, runs_one_shot, runs_retried, runs_stopped;
CREATE INDEX runs_claim ON runs (lane, wake_at) WHERE NOT parked AND NOT paused;
CREATE INDEX runs_shelf ON runs (shelf, due_at, id) WHERE shelf IS NOT NULL;
CREATE INDEX runs_one_shot ON runs (shelf, id) WHERE schedule IS NOT NULL;
-- These cost only the runs that they are about: what has begun is among it what runs for long enough to be seen.
CREATE INDEX runs_retried ON runs (shelf, due_at, id) WHERE error IS NOT NULL;
CREATE INDEX runs_started ON runs (shelf, due_at, id) WHERE first_started_at IS NOT NULL;
CREATE INDEX runs_stopped ON runs (id) WHERE stop IS NOT NULL;

-- The runs of a page are claimed together, so there must be room for as many again.
ALTER TABLE runs SET (fillfactor = 50);

-- Wait until the claims are over that began before this statement: they may not know of a limit that was set just now. A
-- claim locks what it reads before it looks; it is the only one that reads queues and writes runs.
CREATE FUNCTION await_claims() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    begun text[];
BEGIN
    SELECT array_agg(reads.virtualtransaction) INTO begun
      FROM pg_locks AS reads JOIN pg_locks AS writes USING (virtualtransaction, database)
     WHERE reads.relation = 'queues'::regclass AND reads.mode = 'AccessShareLock' AND reads.granted
       AND writes.relation = 'runs'::regclass AND writes.mode = 'RowExclusiveLock' AND writes.granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    WHILE EXISTS (SELECT FROM pg_locks WHERE virtualtransaction = ANY(begun)) LOOP
        PERFORM pg_sleep(0.005);
    END LOOP;
END $$;
