-- The schema of Horae, with 011. Migrations 1 to 9 were never released; this one replaces them.
-- Text that is compared or indexed is in the "C" collation: cheaper, and the same on every machine.
-- contract: since 10

-- ---------------------------------------------------------------------------------------------------------------- runs
-- Columns that several tables share are written once, in tables that are dropped again at the end of this section. Columns
-- of fixed size come first, in the order of their alignment, so that rows are short.

CREATE TABLE spec_columns (
    priority         smallint    NOT NULL,
    queue            text        COLLATE "C" NOT NULL,
    owner            text        COLLATE "C" NOT NULL,
    task             text        COLLATE "C" NOT NULL,
    created_by       text        NOT NULL,
    params           text        NOT NULL,
    params_blob      text,
    name             text,
    key              text,
    labels           text,
    ordering_key     text,
    policy           text        NOT NULL,
    secrets          text
);

CREATE TABLE run_columns (
    id               uuid        NOT NULL,
    job_id           uuid        NOT NULL,
    node             uuid,       -- that holds the run
    due_at           timestamptz NOT NULL,
    wake_at          timestamptz NOT NULL,
    slot             timestamptz,
    created_at       timestamptz NOT NULL,
    first_started_at timestamptz,
    started_at       timestamptz,
    fence            bigint      NOT NULL DEFAULT 0,
    progress         float8,
    attempt          integer     NOT NULL DEFAULT 0,
    crashes          integer     NOT NULL DEFAULT 0,
    revision         integer     NOT NULL,
    shelf            integer     NOT NULL,
    paused           boolean     NOT NULL,
    LIKE spec_columns,
    state            text        COLLATE "C" NOT NULL DEFAULT 'scheduled',
    gate             text        COLLATE "C",
    trigger          text        COLLATE "C" NOT NULL,
    stop             text        COLLATE "C",
    schedule         text,       -- of a one-shot job, which is stored as its run
    error            text,
    requeue_of       uuid
);

-- Live runs. A claim changes no column that an index names, in its keys or in its condition: so it stays within the page of
-- the run and writes no index at all. Only held runs of a queue with a limit are `counted` by an index.
CREATE TABLE runs (
    lane             integer     NOT NULL,
    parked           boolean     NOT NULL DEFAULT false,  -- behind another run in its gate, out of the way of claims
    counted          boolean     NOT NULL DEFAULT false,  -- held, in a queue with a limit
    going            boolean     NOT NULL DEFAULT false,  -- running; a run that waits for a retry has started, too
    LIKE run_columns INCLUDING DEFAULTS,
    PRIMARY KEY (id),
    CHECK ((node IS NULL) = (state IN ('scheduled', 'retrying')))
) WITH (
    fillfactor = 50,  -- the runs of a page are claimed together, so there must be room for as many again
    -- Rows live for seconds: vacuum early and at full speed, or the claim index fills with dead entries.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    -- Free pages are needed again in a moment, and to return them to the system would lock out everyone meanwhile.
    vacuum_truncate = off
);

-- Waiting and held runs are side by side. `shelf IS NOT NULL` is true of all: it keeps this index away from look-ups by id,
-- for which plans that were made while the table was empty would use it.
CREATE INDEX runs_claim ON runs (lane, wake_at) WHERE NOT parked AND NOT paused;
CREATE INDEX runs_shelf ON runs (shelf, due_at, id) WHERE shelf IS NOT NULL;
CREATE INDEX runs_one_shot ON runs (shelf, id) WHERE schedule IS NOT NULL;
-- These cost only the runs that they are about.
CREATE INDEX runs_retried ON runs (shelf, due_at, id) WHERE error IS NOT NULL;
CREATE INDEX runs_started ON runs (shelf, due_at, id) WHERE going;
CREATE INDEX runs_counted ON runs (queue) WHERE counted;
CREATE INDEX runs_stopped ON runs (id) WHERE stop IS NOT NULL;
CREATE INDEX runs_job ON runs (job_id, due_at) WHERE job_id <> id;
CREATE INDEX runs_gate ON runs (gate, due_at, id) WHERE gate IS NOT NULL;
CREATE INDEX runs_parked ON runs (gate, due_at, id) WHERE parked;
CREATE INDEX runs_paused ON runs (shelf, id) WHERE paused;
CREATE INDEX runs_blob ON runs (params_blob) WHERE params_blob IS NOT NULL;
CREATE INDEX runs_key ON runs (key, id) WHERE key IS NOT NULL AND schedule IS NOT NULL;

-- EndedRuns runs, by the day they ended.
CREATE TABLE history (
    LIKE run_columns,
    result           text,
    reason           text        COLLATE "C",
    finished_at      timestamptz NOT NULL,
    resolution       text,
    ended_on         date        NOT NULL,
    PRIMARY KEY (id, ended_on)
) PARTITION BY RANGE (ended_on);

CREATE INDEX history_shelf ON history (shelf, due_at, id);
CREATE INDEX history_job ON history (job_id, due_at, id) WHERE job_id <> id;
CREATE INDEX history_one_shot ON history (shelf, id) WHERE schedule IS NOT NULL;
-- Runs that did not succeed are few, and are looked for most.
CREATE INDEX history_bad ON history (shelf, state, due_at, id) WHERE state <> 'succeeded';
CREATE INDEX history_one_shot_bad ON history (shelf, state, id) WHERE schedule IS NOT NULL AND state <> 'succeeded';
-- Dead letters: failed and not resolved.
CREATE INDEX history_letters_shelf ON history (shelf, due_at, id) WHERE state = 'failed' AND resolution IS NULL;
CREATE INDEX history_letters_job ON history (job_id, due_at, id) WHERE state = 'failed' AND resolution IS NULL;
CREATE INDEX history_blob ON history (params_blob) WHERE params_blob IS NOT NULL;
CREATE INDEX history_key ON history (key, id) WHERE key IS NOT NULL AND schedule IS NOT NULL;
CREATE INDEX history_slot ON history (job_id, slot) WHERE slot IS NOT NULL;

-- Live and ended runs in one shape: the columns of a run as the code reads them, then what lists need.
CREATE VIEW live_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       secrets, schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision,
       progress, error, NULL::text AS result, NULL::text AS reason, created_at, first_started_at, started_at,
       NULL::timestamptz AS finished_at, NULL::text AS resolution, requeue_of, shelf, NULL::date AS ended_on, going
  FROM runs;
CREATE VIEW ended_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       secrets, schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision,
       progress, error, result, reason, created_at, first_started_at, started_at, finished_at, resolution, requeue_of, shelf,
       ended_on, false AS going
  FROM history;

-- Attempts that did not succeed, by the day they ended.
CREATE TABLE attempts (
    run_id           uuid        NOT NULL,
    number           integer     NOT NULL,
    fence            bigint      NOT NULL,
    node             uuid,
    started_at       timestamptz,
    ended_at         timestamptz NOT NULL,
    outcome          text        NOT NULL,
    error            text,
    ended_on         date        NOT NULL,
    PRIMARY KEY (run_id, fence, ended_on)
) PARTITION BY RANGE (ended_on);

-- Recurring jobs.
CREATE TABLE jobs (
    id               uuid        PRIMARY KEY,
    LIKE spec_columns,
    schedule         text        NOT NULL,
    status           text        COLLATE "C" NOT NULL,
    next_fire_at     timestamptz,
    plan_at          timestamptz,
    revision         integer     NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    shard            smallint    NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX jobs_plan ON jobs (shard, plan_at) WHERE plan_at IS NOT NULL;
CREATE INDEX jobs_owner ON jobs (owner, id);
CREATE INDEX jobs_blob ON jobs (params_blob) WHERE params_blob IS NOT NULL;

DROP TABLE run_columns, spec_columns;

-- Slots without a run, as ranges with both ends included.
CREATE TABLE skips (
    job_id           uuid        NOT NULL,
    revision         integer     NOT NULL,
    start_at         timestamptz NOT NULL,
    end_at           timestamptz NOT NULL,
    count            bigint      NOT NULL,
    reason           text        NOT NULL
);
CREATE INDEX skips_job ON skips (job_id, start_at);
CREATE INDEX skips_end ON skips (end_at);

-- Ranges of slots that planners turn into runs page by page.
CREATE TABLE backfills (
    id               uuid        PRIMARY KEY,
    job_id           uuid        NOT NULL,
    trigger          text        NOT NULL,
    start_at         timestamptz NOT NULL,
    end_at           timestamptz NOT NULL,
    plan_at          timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    shard            smallint    NOT NULL
);
CREATE INDEX backfills_plan ON backfills (shard, plan_at);
CREATE INDEX backfills_job ON backfills (job_id);

-- ------------------------------------------------------------------------------------------- lanes, gates and records

-- Lanes and shelves are small numbers that stand for what runs have in common, so that the indexes of every run are short.
-- A lane is a (queue, priority, band) that runs were ever put into; the band comes from the owner. Claims begin here: to find
-- these in the claim index itself would walk over the dead entries that a long transaction elsewhere keeps in each.
CREATE TABLE lanes (
    id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue            text        COLLATE "C" NOT NULL,
    priority         smallint    NOT NULL,
    band             smallint    NOT NULL DEFAULT 0,
    UNIQUE (queue, priority, band)
);

-- A shelf is an (owner, task, queue): every list reads the shelves that its filter admits, and merges them.
CREATE TABLE shelves (
    id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner            text        COLLATE "C" NOT NULL,
    task             text        COLLATE "C" NOT NULL,
    queue            text        COLLATE "C" NOT NULL,
    UNIQUE (owner, task, queue)
);

-- The node that may claim the next runs of a gate.
CREATE TABLE gates (
    gate             text        COLLATE "C" PRIMARY KEY,
    node             uuid        NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX gates_node ON gates (node);

-- Dead letters with `on_failure: block`: the runs after them in their gate wait until they are resolved.
CREATE TABLE blocks (
    gate             text        COLLATE "C" NOT NULL,
    due_at           timestamptz NOT NULL,
    run_id           uuid        NOT NULL,
    job_id           uuid        NOT NULL,
    ended_on         date        NOT NULL,
    PRIMARY KEY (gate, due_at, run_id)
);

-- Settings of queues. `changed_at` decides only how far back claims look (see `claim`), so the server's own clock will do.
CREATE TABLE queues (
    queue            text        COLLATE "C" PRIMARY KEY,
    paused           boolean     NOT NULL,
    concurrency      integer,
    changed_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE nodes (
    id               uuid        PRIMARY KEY,
    name             text        NOT NULL,
    roles            text[]      NOT NULL,
    version          text        NOT NULL,
    queues           text[]      NOT NULL,
    concurrency      integer     NOT NULL,
    started_at       timestamptz NOT NULL,
    beat_at          timestamptz NOT NULL,
    running          integer     NOT NULL,
    tasks            text        NOT NULL,
    wall_ahead       interval    NOT NULL DEFAULT '0'  -- of the machine's clock before the store's; only reported
) WITH (fillfactor = 30, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Dead nodes: removed, and perhaps still named by runs that they held, none of which wakes after `last_at`.
CREATE TABLE graves (
    node             uuid        PRIMARY KEY,
    last_at          timestamptz NOT NULL
);

-- Logs and large payloads. Their age serves retention alone, so the server's own clock will do.
CREATE TABLE blobs (
    key              text        COLLATE "C" PRIMARY KEY,
    data             bytea       NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX blobs_created ON blobs (created_at);
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;  -- written and read whole, so not worth compressing

-- The outbox of events: a row for each kind and owner of a batch, written in the transaction of the change itself. `at` is
-- of the server's own clock, which the nodes follow as well.
CREATE TABLE events (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text        NOT NULL,
    owner            text        COLLATE "C" NOT NULL,
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    subjects         uuid[]      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX events_owner ON events (owner, id);
ALTER TABLE events ALTER COLUMN subjects SET STORAGE EXTERNAL;  -- random ids do not compress

-- Runs that were submitted in transactions of users which have not committed yet.
CREATE TABLE enlisted (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner            text        NOT NULL,
    runs             uuid[]      NOT NULL
);

-- Our statements follow indexes whatever statistics say, so a small sample will do. With the usual one the analysis of a day
-- took half a second of a core, again and again while the day grew.
CREATE FUNCTION sample_little(part regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE (SELECT format('ALTER TABLE %s %s', part,
                           string_agg(format('ALTER COLUMN %I SET STATISTICS 10', attname), ', '))
               FROM pg_attribute
              WHERE attrelid = part AND attnum > 0 AND NOT attisdropped);
END $$;
SELECT sample_little(part) FROM unnest(ARRAY['runs', 'history', 'attempts', 'events', 'jobs']::regclass[]) AS part;
ALTER TABLE events ALTER COLUMN subjects SET STATISTICS 0;  -- no condition names them, and to sample them takes long

-- ------------------------------------------------------------------------------------------------- batches as arguments

-- A run that is submitted in a transaction of the user (see `submit_runs`).
CREATE TYPE new_run AS (
    id uuid, job_id uuid, owner text, created_by text, task text, params text, params_blob text, name text, key text,
    labels text, queue text, priority smallint, ordering_key text, policy text, secrets text, schedule text, trigger text,
    slot timestamptz, due_at timestamptz, wake_at timestamptz, gate text, paused boolean, revision integer,
    created_at timestamptz, requeue_of uuid, lane integer, shelf integer
);

-- New runs that are alike: a model, the ids, and what differs from the model. An array is NULL where nothing does, and
-- `job_ids` where all are one-shots. Where runs are punctual, each wakes at its due time, which is its slot if it has one:
-- the arrays of these are NULL, too.
CREATE TYPE new_runs AS (
    owner text, created_by text, task text, params text, params_blob text, name text, key text, labels text, queue text,
    priority smallint, ordering_key text, policy text, secrets text, schedule text, trigger text, slot timestamptz,
    due_at timestamptz, wake_at timestamptz, gate text, paused boolean, revision integer, created_at timestamptz,
    requeue_of uuid, lane integer, shelf integer,
    ids uuid[], job_ids uuid[], all_params text[], schedules text[], slots timestamptz[], due_ats timestamptz[],
    wake_ats timestamptz[], gates text[], punctual boolean
);

-- Runs that ended alike. `results` is NULL where none has a result, `first_started_ats` where none was tried before.
CREATE TYPE run_ends AS (
    state text, fence bigint, attempt integer, crashes integer, progress float8, error text, reason text,
    ids uuid[], results text[], first_started_ats timestamptz[], started_ats timestamptz[], finished_ats timestamptz[]
);

-- ----------------------------------------------------------------------------------------------------------- functions

-- Make the partitions of a day. They are attached rather than created in place, which would lock out every reader and
-- writer of the table while it waits for the slowest of them.
CREATE FUNCTION ensure_history_day(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    part text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' history days'));
    FOREACH parent IN ARRAY ARRAY['history', 'attempts'] LOOP
        part := parent || to_char(day, '_YYYYMMDD');
        IF to_regclass(part) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, parent);
            EXECUTE format('ALTER TABLE %I ADD CONSTRAINT one_day CHECK (ended_on >= %L AND ended_on < %L)',
                           part, day, day + 1);
            PERFORM sample_little(part::regclass);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, day, day + 1);
        END IF;
    END LOOP;
END $$;

-- Drop up to `most` days before `before`; returns how many partitions. A long read must not make everyone else wait behind
-- the drop: it gives up after a moment, and the next prune tries again.
CREATE FUNCTION drop_history_days(before date, most integer) RETURNS integer LANGUAGE plpgsql
    SET lock_timeout = '2s' AS $$
DECLARE
    part text;
    dropped integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' history days'));
    FOR part IN
        SELECT relname
          FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
         WHERE inhparent IN ('history'::regclass, 'attempts'::regclass)
           AND to_date(right(relname, 8), 'YYYYMMDD') < before
         ORDER BY right(relname, 8)
         LIMIT most
    LOOP
        EXECUTE format('DROP TABLE %I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- Filters that the lists of jobs share; the planner inlines them.
CREATE FUNCTION spec_wanted(task text, name text, key text, queue text, labels text, wanted_task text, wanted_name text,
                            wanted_key text, wanted_queue text, label text, label_value text, part text)
    RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (wanted_task IS NULL OR task = wanted_task)
       AND (wanted_name IS NULL OR name = wanted_name)
       AND (wanted_key IS NULL OR key = wanted_key)
       AND (wanted_queue IS NULL OR queue = wanted_queue)
       AND (label IS NULL OR (labels IS NOT NULL AND labels::jsonb ? label
                              AND (label_value IS NULL OR labels::jsonb ->> label = label_value)))
       AND (part IS NULL
            OR position(lower(part COLLATE "default")
                        IN lower(concat_ws(chr(10), name, task, key) COLLATE "default")) > 0)
$$;

-- The job status of a live one-shot.
CREATE FUNCTION one_shot_status(paused boolean, stop text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN stop IS NOT DISTINCT FROM 'cancelled' THEN 'cancelled' WHEN paused THEN 'paused' ELSE 'scheduled' END
$$;

-- The state of the latest run of a recurring job that is due by `moment`.
CREATE FUNCTION last_run_state(job uuid, moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT state
      FROM ((SELECT state, due_at FROM runs
              WHERE job_id = job AND job_id <> id AND due_at <= moment ORDER BY due_at DESC LIMIT 1)
             UNION ALL
            (SELECT state, due_at FROM history
              WHERE job_id = job AND job_id <> id AND due_at <= moment ORDER BY due_at DESC LIMIT 1)) AS last
     ORDER BY due_at DESC
     LIMIT 1
$$;

-- Wake the earliest parked run of each gate: at `moment`, not in a past that claims no longer look at. If a dead letter blocks
-- it, it blocks those after it as well. Returns when they wake; NULL when nothing was parked.
-- A function, because its statements see runs that were parked while the caller's waited for the rows that it deletes.
CREATE FUNCTION wake_parked(gates text[], moments timestamptz[]) RETURNS timestamptz[] LANGUAGE plpgsql AS $$
DECLARE
    wake_ats timestamptz[];
BEGIN
    PERFORM FROM runs WHERE parked ORDER BY gate LIMIT 1;
    IF NOT FOUND THEN  -- the usual case
        RETURN NULL;
    END IF;
    WITH woken AS (
        UPDATE runs SET parked = false, wake_at = greatest(runs.wake_at, given.moment)
          FROM (SELECT gate, max(moment) AS moment FROM unnest(gates, moments) AS given(gate, moment) GROUP BY gate) AS given
         CROSS JOIN LATERAL (SELECT id FROM runs AS next
                              WHERE next.gate = given.gate AND parked
                              ORDER BY next.due_at, next.id
                              LIMIT 1) AS next
         WHERE runs.id BETWEEN next.id AND next.id AND runs.parked
           AND NOT EXISTS (SELECT FROM blocks
                            WHERE blocks.gate = given.gate AND (blocks.due_at, blocks.run_id) < (runs.due_at, runs.id))
        RETURNING runs.wake_at
    )
    SELECT array_agg(wake_at) INTO wake_ats FROM woken;
    RETURN wake_ats;
END $$;

-- The last event number that was given out, and the transactions that may still commit one up to it. A writer locks the table
-- before it draws a number and until its commit can be seen, so each number up to `last` is of one of these writers or is
-- settled. The number must be read first, hence a function with two statements. Transactions that write something else do
-- not count, however long they take.
CREATE FUNCTION event_horizon(OUT last bigint, OUT writers text[]) LANGUAGE plpgsql AS $$
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO last FROM events_id_seq;
    SELECT coalesce(array_agg(virtualtransaction), '{}') INTO writers
      FROM pg_locks
     WHERE locktype = 'relation' AND relation = 'events'::regclass AND mode = 'RowExclusiveLock' AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
END $$;

-- Wait until the claims are over that began before this statement: they may not know of a limit that was set just now. A
-- claim locks what it reads before it looks; it is the only statement that reads queues and writes runs.
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

-- The functions below are called on connections of users, whose search_path is their own: ours is kept with each.
SELECT set_config('search_path', quote_ident(current_schema()), true);

-- Note a removed node, by whomever and whatever version it was removed. A node claims only while its lease is good, and ahead
-- of time, each of which is an hour at most.
CREATE FUNCTION dig_grave() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO graves VALUES (OLD.id, OLD.beat_at + interval '3 h')
        ON CONFLICT (node) DO UPDATE SET last_at = greatest(graves.last_at, excluded.last_at);
    RETURN NULL;
END $$;
CREATE TRIGGER dig_grave AFTER DELETE ON nodes FOR EACH ROW EXECUTE FUNCTION dig_grave();

-- When the caller commits, however long that took: only now is there an event, or it would hold up all others; and runs that
-- have been due for a second wake now, because claims look back for two seconds only.
CREATE FUNCTION tell_enlisted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM enlisted WHERE id = NEW.id;
    UPDATE runs SET wake_at = clock_timestamp()
     WHERE id = ANY(NEW.runs) AND wake_at < clock_timestamp() - interval '1 s';
    INSERT INTO events (kind, owner, subjects) VALUES ('job.created', NEW.owner, NEW.runs);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER tell_enlisted AFTER INSERT ON enlisted
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tell_enlisted();
