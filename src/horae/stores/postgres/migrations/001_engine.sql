-- The engine: live runs, history by day, jobs, nodes and what belongs to them.
-- Text that is compared or indexed is in the "C" collation: cheaper, and the same on every machine.

-- Live runs. A run waits exactly when no node holds it, so the partial indexes ask for `node` alone: a start (claimed to
-- running) then touches no indexed column and stays within its page.
CREATE TABLE runs (
    id               uuid        PRIMARY KEY,
    job_id           uuid        NOT NULL,
    node             uuid,
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
    lane             integer     NOT NULL,
    shelf            integer     NOT NULL,
    priority         smallint    NOT NULL,
    paused           boolean     NOT NULL,
    parked           boolean     NOT NULL DEFAULT false,
    state            text        COLLATE "C" NOT NULL DEFAULT 'scheduled',
    queue            text        COLLATE "C" NOT NULL,
    owner            text        COLLATE "C" NOT NULL,
    task             text        COLLATE "C" NOT NULL,
    gate             text        COLLATE "C",
    trigger          text        COLLATE "C" NOT NULL,
    stop             text        COLLATE "C",
    created_by       text        NOT NULL,
    params           text        NOT NULL,
    params_blob      text,
    name             text,
    key              text,
    labels           text,
    ordering_key     text,
    policy           text        NOT NULL,
    schedule         text,
    error            text,
    CHECK ((node IS NULL) = (state IN ('scheduled', 'retrying')))
) WITH (
    fillfactor = 85,
    -- Rows live for seconds: vacuum early and at full speed, or the claim index fills with the dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX runs_claim ON runs (lane, wake_at) WHERE node IS NULL AND NOT parked AND NOT paused;
CREATE INDEX runs_held ON runs (node) WHERE node IS NOT NULL;
-- Lists of what waits. What is held is little and is listed through runs_held, so that claiming writes no list index.
CREATE INDEX runs_shelf ON runs (shelf, due_at, id) WHERE node IS NULL;
CREATE INDEX runs_one_shot ON runs (shelf, id) WHERE node IS NULL AND schedule IS NOT NULL;
-- These cost only the runs that they are about.
CREATE INDEX runs_retried ON runs (shelf, due_at, id) WHERE node IS NULL AND error IS NOT NULL;
CREATE INDEX runs_job ON runs (job_id, due_at) WHERE job_id <> id;
CREATE INDEX runs_gate ON runs (gate, due_at, id) WHERE gate IS NOT NULL;
CREATE INDEX runs_parked ON runs (gate, due_at, id) WHERE parked;
CREATE INDEX runs_paused ON runs (shelf, id) WHERE paused;
CREATE INDEX runs_blob ON runs (params_blob) WHERE params_blob IS NOT NULL;
CREATE INDEX runs_key ON runs (key, id) WHERE key IS NOT NULL AND schedule IS NOT NULL;

-- A batch of new runs, and one of results, come as arrays of these: half the work for a client of an array per column.
CREATE TYPE new_run AS (
    id uuid, job_id uuid, owner text, created_by text, task text, params text, params_blob text, name text, key text,
    labels text, queue text, priority smallint, ordering_key text, policy text, schedule text, trigger text,
    slot timestamptz, due_at timestamptz, wake_at timestamptz, gate text, paused boolean, revision integer,
    created_at timestamptz, lane integer, shelf integer
);
CREATE TYPE run_end AS (
    id uuid, fence bigint, state text, attempt integer, crashes integer, progress float8, error text, result text,
    reason text, first_started_at timestamptz, started_at timestamptz, finished_at timestamptz
);

-- Live runs in the shape of ended ones.
CREATE VIEW live_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision, progress,
       error, NULL::text AS result, NULL::text AS reason, created_at, first_started_at, started_at,
       NULL::timestamptz AS finished_at, NULL::text AS resolution, shelf
  FROM runs;

-- Ended runs, by the day they ended.
CREATE TABLE history (
    id               uuid        NOT NULL,
    job_id           uuid        NOT NULL,
    owner            text        COLLATE "C" NOT NULL,
    created_by       text        NOT NULL,
    task             text        COLLATE "C" NOT NULL,
    params           text        NOT NULL,
    params_blob      text,
    name             text,
    key              text,
    labels           text,
    queue            text        COLLATE "C" NOT NULL,
    priority         smallint    NOT NULL,
    ordering_key     text,
    policy           text        NOT NULL,
    schedule         text,
    trigger          text        COLLATE "C" NOT NULL,
    slot             timestamptz,
    due_at           timestamptz NOT NULL,
    wake_at          timestamptz NOT NULL,
    gate             text        COLLATE "C",
    state            text        COLLATE "C" NOT NULL,
    paused           boolean     NOT NULL,
    stop             text        COLLATE "C",
    node             uuid,
    fence            bigint      NOT NULL,
    attempt          integer     NOT NULL,
    crashes          integer     NOT NULL,
    revision         integer     NOT NULL,
    progress         float8,
    error            text,
    result           text,
    reason           text        COLLATE "C",
    created_at       timestamptz NOT NULL,
    first_started_at timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz NOT NULL,
    resolution       text,
    shelf            integer     NOT NULL,
    ended_on         date        NOT NULL,
    PRIMARY KEY (id, ended_on)
) PARTITION BY RANGE (ended_on);

-- Ended runs in the shape of live ones.
CREATE VIEW ended_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision, progress,
       error, result, reason, created_at, first_started_at, started_at, finished_at, resolution, shelf
  FROM history;

CREATE INDEX history_owner ON history (owner, due_at, id);
CREATE INDEX history_shelf ON history (shelf, due_at, id);
CREATE INDEX history_one_shot_owner ON history (owner, id) WHERE schedule IS NOT NULL;
CREATE INDEX history_one_shot ON history (shelf, id) WHERE schedule IS NOT NULL;
-- What did not succeed is little, and is looked for most.
CREATE INDEX history_bad_owner ON history (owner, state, due_at, id) WHERE state <> 'succeeded';
CREATE INDEX history_one_shot_bad_owner ON history (owner, state, id)
    WHERE schedule IS NOT NULL AND state <> 'succeeded';
CREATE INDEX history_bad ON history (shelf, state, due_at, id) WHERE state <> 'succeeded';
CREATE INDEX history_one_shot_bad ON history (shelf, state, id) WHERE schedule IS NOT NULL AND state <> 'succeeded';
CREATE INDEX history_blob ON history (params_blob) WHERE params_blob IS NOT NULL;
CREATE INDEX history_key ON history (key, id) WHERE key IS NOT NULL AND schedule IS NOT NULL;
CREATE INDEX history_job ON history (job_id, due_at, id) WHERE job_id <> id;
CREATE INDEX history_slot ON history (job_id, slot) WHERE slot IS NOT NULL;

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

-- Make the partitions of a day. They are attached rather than created in place, which would shut out every reader and
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
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, day, day + 1);
        END IF;
    END LOOP;
END $$;

-- Drop up to `most` days before `before`; how many partitions went. Somebody who reads for long must not make everyone
-- else wait behind the drop: it gives up after a moment and is tried again by the next prune.
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

-- Recurring jobs.
CREATE TABLE jobs (
    id               uuid        PRIMARY KEY,
    owner            text        COLLATE "C" NOT NULL,
    created_by       text        NOT NULL,
    task             text        COLLATE "C" NOT NULL,
    params           text        NOT NULL,
    params_blob      text,
    name             text,
    key              text,
    labels           text,
    queue            text        COLLATE "C" NOT NULL,
    priority         smallint    NOT NULL,
    ordering_key     text,
    policy           text        NOT NULL,
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

-- Places: small numbers that stand for what runs have in common, so that the indexes of every run are short.
-- A lane is a (queue, priority) pair that runs were ever put into. Claims begin here: to find the pairs in the claim index
-- itself would mean to walk over the dead entries that a long transaction elsewhere keeps at the head of each.
CREATE TABLE lanes (
    id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue            text        COLLATE "C" NOT NULL,
    priority         smallint    NOT NULL,
    UNIQUE (queue, priority)
);

-- A shelf is an (owner, task, queue) triple: every list looks at those that it is about, and merges them.
CREATE TABLE shelves (
    id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner            text        COLLATE "C" NOT NULL,
    task             text        COLLATE "C" NOT NULL,
    queue            text        COLLATE "C" NOT NULL,
    UNIQUE (owner, task, queue)
);

-- Keys of unfinished jobs.
CREATE TABLE keys (
    owner            text        COLLATE "C" NOT NULL,
    key              text        COLLATE "C" NOT NULL,
    job_id           uuid        NOT NULL,
    PRIMARY KEY (owner, key)
);

-- Which node may claim the next runs of a gate.
CREATE TABLE gates (
    gate             text        COLLATE "C" PRIMARY KEY,
    node             uuid        NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX gates_node ON gates (node);

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
    tasks            text        NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Every task that a node ever registered.
CREATE TABLE tasks (
    name             text        COLLATE "C" PRIMARY KEY,
    schema           text        NOT NULL
);

-- Logs and large payloads. Their age serves retention alone, so the server's own clock will do.
CREATE TABLE blobs (
    key              text        COLLATE "C" PRIMARY KEY,
    data             bytea       NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX blobs_created ON blobs (created_at);
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;  -- written and read whole, so not worth compressing

-- Filters that the lists of jobs share; the planner puts their text in the place of the call.
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

-- How a live one-shot stands as a job.
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
