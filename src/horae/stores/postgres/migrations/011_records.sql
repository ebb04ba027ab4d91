-- One table for small records: the keys of unfinished jobs, idempotency records, versions of declared schedules, and tasks
-- that a node ever registered. Keys of several texts are JSON arrays, written as the code writes them.
-- contract: since 11

CREATE TABLE records (
    kind             text        COLLATE "C" NOT NULL,
    owner            text        COLLATE "C" NOT NULL,
    key              text        COLLATE "C" NOT NULL,
    value            text        NOT NULL,
    at               timestamptz,
    PRIMARY KEY (kind, owner, key)
);
CREATE INDEX records_idempotency ON records (at) WHERE kind = 'idempotency';

-- What the tables before it held, in a database that has them.
DO $$
BEGIN
    IF to_regclass(format('%I.receipts', current_schema())) IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO records (kind, owner, key, value, at)
    SELECT 'key', owner, key, replace(job_id::text, '-', ''), NULL FROM keys
     UNION ALL
    SELECT 'idempotency', owner, key, json_build_array(fingerprint, answer)::text, created_at FROM receipts
     UNION ALL
    SELECT 'declaration', owner, concat('[', to_json(app), ',', to_json(key), ',', to_json(digest), ']'), '', seen_at
      FROM declarations
     UNION ALL
    SELECT 'task', '', name, schema, NULL FROM tasks;
    DROP TABLE keys, receipts, declarations, tasks;
END $$;

-- The function is called on connections of users, whose search_path is their own: ours is kept with it.
SELECT set_config('search_path', quote_ident(current_schema()), true);

-- Write one-shot runs in the transaction of the caller. `given` is a list of `new_run` in JSON; it is a text, because drivers
-- can be configured to encode JSON themselves.
CREATE OR REPLACE FUNCTION submit_runs(given text) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    made new_run[] := ARRAY(SELECT run FROM jsonb_populate_recordset(NULL::new_run, given::jsonb) AS run);
    lost record;
BEGIN
    INSERT INTO records (kind, owner, key, value)
    SELECT 'key', owner, key, replace(job_id::text, '-', '') FROM unnest(made) WHERE key IS NOT NULL ORDER BY owner, key, id
        ON CONFLICT DO NOTHING;
    SELECT run.key, run.owner, records.value AS holder INTO lost
      FROM unnest(made) AS run
      LEFT JOIN records ON records.kind = 'key' AND records.owner = run.owner AND records.key = run.key
     WHERE run.key IS NOT NULL AND records.value IS DISTINCT FROM replace(run.job_id::text, '-', '')
     LIMIT 1;
    IF FOUND THEN
        RAISE unique_violation USING
            MESSAGE = format('the key "%s" is taken by another unfinished job of %s', lost.key, lost.owner),
            DETAIL = coalesce(lost.holder, ''),
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
