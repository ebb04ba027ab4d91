-- What runs is told apart from what has begun once and waits for another try: after an outage elsewhere that may be much, and
-- whoever watches what runs would walk over all of it.

ALTER TABLE runs ADD COLUMN going boolean NOT NULL DEFAULT false;
ALTER TABLE runs ALTER COLUMN going SET STATISTICS 10;
UPDATE runs SET going = true WHERE state = 'running';
DROP INDEX runs_started;
CREATE INDEX runs_started ON runs (shelf, due_at, id) WHERE going;

-- As in 002, and whether a run is going.
CREATE OR REPLACE VIEW live_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       secrets, schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision,
       progress, error, NULL::text AS result, NULL::text AS reason, created_at, first_started_at, started_at,
       NULL::timestamptz AS finished_at, NULL::text AS resolution, requeue_of, shelf, NULL::date AS ended_on, going
  FROM runs;
CREATE OR REPLACE VIEW ended_runs AS
SELECT id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
       secrets, schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt, crashes, revision,
       progress, error, result, reason, created_at, first_started_at, started_at, finished_at, resolution, requeue_of, shelf,
       ended_on, false AS going
  FROM history;
