-- The whole contract: secrets, requeued runs, dead letters that block their key, settings of queues, receipts of
-- requests, the outbox of events, schedules that code declares, and runs that are submitted in a transaction of the user.

ALTER TABLE runs ADD COLUMN secrets text, ADD COLUMN requeue_of uuid;
ALTER TABLE history ADD COLUMN secrets text, ADD COLUMN requeue_of uuid;
ALTER TABLE jobs ADD COLUMN secrets text;

DROP VIEW live_runs, ended_runs;
DROP TYPE new_run;

CREATE TYPE new_run AS (
    id uuid, job_id uuid, owner text, created_by text, task text, params text, params_blob text, name text, key text,
    labels text, queue text, priority smallint, ordering_key text, policy text, secrets text, schedule text, trigger text,
    slot timestamptz, due_at timestamptz, wake_at timestamptz, gate text, paused boolean, revision integer,
    created_at timestamptz, requeue_of uuid, lane integer, shelf integer
);

-- Live runs in the shape of ended ones.
CREATE VIEW live_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       secrets, schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision,
       progress, error, NULL::text AS result, NULL::text AS reason, created_at, first_started_at, started_at,
       NULL::timestamptz AS finished_at, NULL::text AS resolution, requeue_of, shelf, NULL::date AS ended_on
  FROM runs;

-- Ended runs in the shape of live ones.
CREATE VIEW ended_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       secrets, schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision,
       progress, error, result, reason, created_at, first_started_at, started_at, finished_at, resolution, requeue_of, shelf,
       ended_on
  FROM history;

-- Dead letters: failed, and nobody has resolved them. These cost only what fails.
CREATE INDEX history_letters_owner ON history (owner, due_at, id) WHERE state = 'failed' AND resolution IS NULL;
CREATE INDEX history_letters_shelf ON history (shelf, due_at, id) WHERE state = 'failed' AND resolution IS NULL;
CREATE INDEX history_letters_job ON history (job_id, due_at, id) WHERE state = 'failed' AND resolution IS NULL;

-- Dead letters with `on_failure: block`: what comes after them in their gate waits until they are resolved.
CREATE TABLE blocks (
    gate             text        COLLATE "C" NOT NULL,
    due_at           timestamptz NOT NULL,
    run_id           uuid        NOT NULL,
    job_id           uuid        NOT NULL,
    ended_on         date        NOT NULL,
    PRIMARY KEY (gate, due_at, run_id)
);

-- What administrators say about queues. When something was said last decides how far back claims look (see `claim`); it
-- serves nothing else, so the server's own clock will do.
CREATE TABLE queues (
    queue            text        COLLATE "C" PRIMARY KEY,
    paused           boolean     NOT NULL,
    concurrency      integer,
    changed_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Answers to requests that may be repeated.
CREATE TABLE receipts (
    owner            text        COLLATE "C" NOT NULL,
    key              text        COLLATE "C" NOT NULL,
    fingerprint      text        NOT NULL,
    answer           text        NOT NULL,
    created_at       timestamptz NOT NULL,
    PRIMARY KEY (owner, key)
);
CREATE INDEX receipts_created ON receipts (created_at);

-- The outbox of events: a row for each kind and owner of a batch, written in the transaction of the change itself. The
-- server's own clock tells their time, which the nodes follow as well.
CREATE TABLE events (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text        NOT NULL,
    owner            text        COLLATE "C" NOT NULL,
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    subjects         uuid[]      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX events_owner ON events (owner, id);
ALTER TABLE events ALTER COLUMN subjects SET STORAGE EXTERNAL;  -- random ids do not compress

-- How far the numbers of events are given out, and the transactions that may still commit one of them. A writer locks the
-- table before it draws a number and until its commit can be seen. So each number up to `last` belongs to one of these
-- writers or is settled; and it is the numbers that must be read first, for which a function takes the statements apart.
-- Transactions that write something else do not count, however long they take.
CREATE FUNCTION event_horizon(OUT last bigint, OUT writers text[]) LANGUAGE plpgsql AS $$
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO last FROM events_id_seq;
    SELECT coalesce(array_agg(virtualtransaction), '{}') INTO writers
      FROM pg_locks
     WHERE locktype = 'relation' AND relation = 'events'::regclass AND mode = 'RowExclusiveLock' AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
END $$;

-- Every version of every schedule that code declared.
CREATE TABLE declarations (
    owner            text        COLLATE "C" NOT NULL,
    app              text        COLLATE "C" NOT NULL,
    key              text        COLLATE "C" NOT NULL,
    digest           text        COLLATE "C" NOT NULL,
    seen_at          timestamptz NOT NULL,
    PRIMARY KEY (owner, app, key, digest)
);

-- Runs that were submitted in transactions of users which have not committed yet.
CREATE TABLE enlisted (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner            text        NOT NULL,
    runs             uuid[]      NOT NULL
);

-- The functions below are called on connections of users, whose search_path is their own: ours is kept with each.
SELECT set_config('search_path', quote_ident(current_schema()), true);

-- Write one-shot runs in the transaction of the caller. `given` is a list of `new_run` in JSON; as a text, for drivers can
-- be told to encode JSON themselves.
CREATE FUNCTION submit_runs(given text) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    made new_run[] := ARRAY(SELECT run FROM jsonb_populate_recordset(NULL::new_run, given::jsonb) AS run);
    lost record;
BEGIN
    INSERT INTO keys (owner, key, job_id)
    SELECT owner, key, job_id FROM unnest(made) WHERE key IS NOT NULL ORDER BY owner, key, id
        ON CONFLICT DO NOTHING;
    SELECT run.key, run.owner, keys.job_id AS holder INTO lost
      FROM unnest(made) AS run LEFT JOIN keys USING (owner, key)
     WHERE run.key IS NOT NULL AND keys.job_id IS DISTINCT FROM run.job_id
     LIMIT 1;
    IF FOUND THEN
        RAISE unique_violation USING
            MESSAGE = format('the key "%s" is taken by another unfinished job of %s', lost.key, lost.owner),
            DETAIL = coalesce(replace(lost.holder::text, '-', ''), ''),
            HINT = 'Choose another key, or wait until that job has ended.',
            TABLE = 'keys', CONSTRAINT = 'keys_pkey';
    END IF;
    INSERT INTO runs (id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority,
                      ordering_key, policy, secrets, schedule, trigger, slot, due_at, wake_at, gate, paused, revision,
                      created_at, requeue_of, lane, shelf)
    SELECT * FROM unnest(made);
    INSERT INTO enlisted (owner, runs) SELECT owner, array_agg(id) FROM unnest(made) GROUP BY owner;
    PERFORM pg_notify(left('horae_' || current_schema(), 63),
                      format('due %s ', (extract(epoch FROM min(wake_at)) * 1000000)::bigint))
       FROM unnest(made)
     HAVING count(*) > 0;
END $$;

-- When the caller commits, however long that took: only now is there an event, or it would hold up all others; and what
-- has been due for a while wakes now, not in a past that claims no longer look at.
CREATE FUNCTION tell_enlisted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM enlisted WHERE id = NEW.id;
    UPDATE runs SET wake_at = clock_timestamp()
     WHERE id = ANY(NEW.runs) AND wake_at < clock_timestamp() - interval '5 s';
    INSERT INTO events (kind, owner, subjects) VALUES ('job.created', NEW.owner, NEW.runs);
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER tell_enlisted AFTER INSERT ON enlisted
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tell_enlisted();
