-- Speed: what the runs of a batch have in common is sent once, and fewer indexes are written for each.

-- The lists of an owner are merged from its shelves, like those of what waits.
DROP INDEX history_owner, history_one_shot_owner, history_bad_owner, history_one_shot_bad_owner, history_letters_owner;

-- New runs that are alike: a model, the ids, and what differs from the model. An array is NULL where nothing does, and
-- `job_ids` where all are one-shots.
CREATE TYPE new_runs AS (
    owner text, created_by text, task text, params text, params_blob text, name text, key text, labels text, queue text,
    priority smallint, ordering_key text, policy text, secrets text, schedule text, trigger text, slot timestamptz,
    due_at timestamptz, wake_at timestamptz, gate text, paused boolean, revision integer, created_at timestamptz,
    requeue_of uuid, lane integer, shelf integer,
    ids uuid[], job_ids uuid[], all_params text[], schedules text[], slots timestamptz[], due_ats timestamptz[],
    wake_ats timestamptz[]
);

-- Runs that ended alike. `results` is NULL where nothing came of any, `first_started_ats` where none was tried before.
DROP TYPE run_end;
CREATE TYPE run_ends AS (
    state text, fence bigint, attempt integer, crashes integer, progress float8, error text, reason text,
    ids uuid[], results text[], first_started_ats timestamptz[], started_ats timestamptz[], finished_ats timestamptz[]
);
