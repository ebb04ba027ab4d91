-- The statements of the SQLite store, by name. Times are microseconds, ids 16 bytes, lists JSON arrays. SQLite uses a
-- partial index only for statements that repeat its condition word for word.
--
-- Text that several statements share is a fragment, which `{its_name}` includes (see common/statements.py).

-- ===== shared by several sections ====================================================================================

-- fragment: claimable
FROM runs INDEXED BY runs_claim WHERE state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0;

-- fragment: in_lane
{claimable} AND queue = :queue AND priority = :priority AND owner = :owner;

-- fragment: held
state IN ('claimed', 'running');

-- fragment: held_runs
FROM runs INDEXED BY runs_held WHERE {held};

-- fragment: live_runs_of_job
FROM runs INDEXED BY runs_live_of_job WHERE job_id = :job_id AND schedule IS NULL AND finished_at IS NULL;

-- fragment: live_runs_of_gate
FROM runs INDEXED BY runs_gate WHERE gate = :gate AND gate IS NOT NULL AND finished_at IS NULL;

-- fragment: new_run_columns
-- NEW_RUN_COLUMNS of codecs.py.
id, job_id, params, schedule, slot, due_at, wake_at,
owner, created_by, task, params_blob, name, key, labels, queue, priority, ordering_key, policy, secrets, trigger, gate,
state, paused, fence, attempt, crashes, revision, created_at, requeue_of;

-- fragment: new_run_values
-- The values of new_run_columns that the runs of a batch share.
:owner, :created_by, :task, :params_blob, :name, :key, :labels, :queue, :priority, :ordering_key, :policy, :secrets,
:trigger, :gate, :state, :paused, :fence, :attempt, :crashes, :revision, :created_at, :requeue_of;

-- ===== guards of changes ============================================================================================

-- name: guarded_jobs
SELECT id, revision, next_fire_at, status FROM jobs WHERE id = :id;

-- name: guarded_runs
SELECT id, state, fence, revision, stop FROM runs WHERE id = :id AND finished_at IS NULL;

-- name: cancelled_jobs
SELECT id FROM jobs WHERE id = :id AND status = 'cancelled'
UNION ALL
SELECT id FROM runs
 WHERE id = :id AND schedule IS NOT NULL AND (state = 'cancelled' OR (stop = 'cancelled' AND finished_at IS NULL));

-- name: guarded_letters
SELECT id FROM letters WHERE id = :id;

-- name: guarded_backfills
SELECT id, start_at FROM backfills WHERE id = :id;

-- name: guarded_nodes
SELECT id, beat_at FROM nodes WHERE id = :id;

-- ===== creating and firing ===========================================================================================

-- name: insert_run
-- A batch that is sent again finds its rows and changes nothing.
INSERT INTO runs ({new_run_columns})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: insert_runs
-- Runs that differ in the first columns only: four times as fast as one by one.
INSERT INTO runs ({new_run_columns})
SELECT substr(:ids, 32 * json_each.key + 1, 16), substr(:ids, 32 * json_each.key + 17, 16),
       json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'),
       {new_run_values}
  FROM json_each(:rows)
 WHERE true ON CONFLICT (id) DO NOTHING;

-- name: insert_runs_of_one_time
-- Runs that differ in their ids and parameters only: in two thirds of the time.
INSERT INTO runs ({new_run_columns})
SELECT substr(:ids, 32 * json_each.key + 1, 16), substr(:ids, 32 * json_each.key + 17, 16),
       value, :schedule, :slot, :due_at, :wake_at,
       {new_run_values}
  FROM json_each(:rows)
 WHERE true ON CONFLICT (id) DO NOTHING;

-- name: last_runs_inserted
SELECT id FROM runs ORDER BY seq DESC LIMIT ?;

-- name: put_jobs
INSERT OR REPLACE INTO jobs (
    id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy,
    secrets, schedule, status, next_fire_at, plan_at, revision, created_at, updated_at, shard
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_skips
INSERT INTO skips (job_id, revision, start_at, end_at, count, reason) VALUES (?, ?, ?, ?, ?, ?);

-- name: put_backfills
INSERT OR REPLACE INTO backfills (id, job_id, trigger, start_at, end_at, plan_at, created_at, shard)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: plannable_jobs
SELECT * FROM jobs INDEXED BY jobs_plan
 WHERE plan_at <= :now AND shard IN (SELECT value FROM json_each(:shards))
 ORDER BY plan_at LIMIT :limit;

-- name: plannable_backfills
SELECT * FROM backfills INDEXED BY backfills_plan
 WHERE plan_at <= :now AND shard IN (SELECT value FROM json_each(:shards))
 ORDER BY plan_at LIMIT :limit;

-- name: next_plan_at
SELECT min(plan_at) FROM (
    SELECT min(plan_at) AS plan_at FROM jobs INDEXED BY jobs_plan
     WHERE plan_at > :now AND shard IN (SELECT value FROM json_each(:shards))
    UNION ALL
    SELECT min(plan_at) FROM backfills INDEXED BY backfills_plan
     WHERE plan_at > :now AND shard IN (SELECT value FROM json_each(:shards)));

-- name: count_live
-- Unstarted runs and all live runs of a job, both counted up to a bound.
SELECT (SELECT count(*) FROM (SELECT 1 {live_runs_of_job} AND state IN ('scheduled', 'claimed') LIMIT :bound)),
       (SELECT count(*) FROM (SELECT 1 {live_runs_of_job} LIMIT :bound));

-- name: move_jobs
UPDATE jobs SET next_fire_at = ?, plan_at = ?, status = ? WHERE id = ?;

-- name: delete_backfills
DELETE FROM backfills WHERE id = ?;

-- name: delete_runs
DELETE FROM runs WHERE id = ?;

-- name: delete_skips
DELETE FROM skips WHERE job_id = ? AND start_at = ?;

-- name: revise_one_shot
UPDATE runs
   SET task = ?, params = ?, params_blob = ?, name = ?, key = ?, labels = ?, queue = ?, priority = ?, ordering_key = ?,
       policy = ?, secrets = ?, schedule = ?, due_at = ?, wake_at = ?, gate = ?, paused = ?, revision = ?, parked = 0
 WHERE id = ?;

-- ===== claiming ======================================================================================================

-- name: node_is_registered
SELECT 1 FROM nodes WHERE id = ?;

-- name: wake_lanes
-- A lane is woken no later than its first run: claims look only into lanes that are due.
INSERT INTO lanes (queue, priority, owner, next_at) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET next_at = excluded.next_at WHERE excluded.next_at < next_at;

-- fragment: open_lanes
-- Lanes of the wanted queues, without those of paused ones; an empty list wants all.
(:queues = '[]' OR queue IN (SELECT value FROM json_each(:queues)))
   AND queue NOT IN (SELECT queue FROM queues WHERE paused);

-- name: due_lanes
-- Not more than :limit, in which the owners take turns, in another order each time.
SELECT queue, priority, owner
  FROM (SELECT *, row_number() OVER (PARTITION BY priority, owner ORDER BY random()) AS turn
          FROM lanes INDEXED BY lanes_next WHERE next_at <= :until AND {open_lanes})
 ORDER BY priority DESC, turn LIMIT :limit;

-- name: count_due_lanes
SELECT count(*) FROM (SELECT 1 FROM lanes INDEXED BY lanes_next WHERE next_at <= :until LIMIT :limit);

-- name: owners_of_due_lanes
WITH RECURSIVE owners (owner) AS (
    SELECT min(owner) FROM lanes INDEXED BY lanes_owner
    UNION ALL
    SELECT (SELECT min(owner) FROM lanes INDEXED BY lanes_owner WHERE lanes.owner > owners.owner)
      FROM owners WHERE owner IS NOT NULL
)
SELECT owner FROM owners
 WHERE owner IS NOT NULL
   AND EXISTS (SELECT 1 FROM lanes INDEXED BY lanes_owner WHERE lanes.owner = owners.owner AND next_at <= :until);

-- name: due_lanes_of_owner
-- Those that were looked into longest ago, and those that have just become due.
SELECT * FROM (SELECT queue, priority, owner FROM lanes INDEXED BY lanes_owner
                WHERE owner = :owner AND next_at <= :until AND {open_lanes}
                ORDER BY next_at LIMIT :limit)
 UNION
SELECT * FROM (SELECT queue, priority, owner FROM lanes INDEXED BY lanes_owner
                WHERE owner = :owner AND next_at <= :until AND {open_lanes}
                ORDER BY next_at DESC LIMIT :limit);

-- name: next_lane_at
SELECT min(next_at) FROM lanes INDEXED BY lanes_next WHERE next_at > :until AND {open_lanes};

-- name: first_in_lane
SELECT min(wake_at) {in_lane};

-- name: put_off_lane
UPDATE lanes SET next_at = :next_at WHERE queue = :queue AND priority = :priority AND owner = :owner;

-- name: look_later
-- A lane that had nothing for a claim stays due, behind the others of its owner.
UPDATE lanes SET next_at = max(next_at, :now) WHERE queue = :queue AND priority = :priority AND owner = :owner;

-- name: delete_lane
DELETE FROM lanes WHERE queue = :queue AND priority = :priority AND owner = :owner;

-- fragment: waiting_rows
SELECT json_group_array(json_array(
        hex(id), iif(job_id = id, NULL, hex(job_id)), params, schedule, slot, due_at, wake_at, created_at, gate, fence,
        queue, seq,
        json_array(owner, created_by, task, params_blob, name, key, labels, priority, ordering_key, policy, secrets,
                   trigger, state, paused, stop, attempt, crashes, revision, progress, error, first_started_at,
                   started_at, nullif(hex(requeue_of), ''))));

-- name: lane
-- A page of a lane after a position, up to a wake-up time. In two streams: for (wake_at, seq) > (...) SQLite seeks the
-- time only, and each page walks again through the runs that are due at the same instant.
{waiting_rows}
  FROM (SELECT wake_at AS at, seq AS place {in_lane}
           AND wake_at = :after AND seq > :seq AND task IN (SELECT value FROM json_each(:tasks))
        UNION ALL
        SELECT wake_at, seq {in_lane}
           AND wake_at > :after AND wake_at <= :until AND task IN (SELECT value FROM json_each(:tasks))
         ORDER BY at, place LIMIT :limit)
 CROSS JOIN runs ON runs.seq = place;

-- name: lane_beyond
-- The next :limit runs of a lane after a position, without those of other tasks.
{waiting_rows}
  FROM (SELECT wake_at AS at, seq AS place {in_lane} AND wake_at = :after AND seq > :seq
        UNION ALL
        SELECT wake_at, seq {in_lane} AND wake_at > :after AND wake_at <= :until
         ORDER BY at, place LIMIT :limit)
 CROSS JOIN runs ON runs.seq = place
 WHERE task IN (SELECT value FROM json_each(:tasks));

-- name: among
-- Waiting runs by id, as a claim finds them in the lanes.
{waiting_rows}
  FROM (SELECT seq AS place FROM json_each(:places) AS given CROSS JOIN runs INDEXED BY runs_id
         WHERE runs.id = substr(:ids, 16 * given.value + 1, 16)
           AND state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0)
 CROSS JOIN runs ON runs.seq = place;

-- fragment: ticket_columns
lower(hex(id)), task, queue, priority, owner, wake_at, seq;

-- name: waiting_in_lane
-- A page of tickets of a lane after a position, in two streams as above; the shard is in the last byte of the id.
SELECT {ticket_columns}
  FROM (SELECT wake_at AS at, seq AS place {in_lane} AND wake_at = :after AND seq > :seq
        UNION ALL
        SELECT wake_at, seq {in_lane} AND wake_at > :after AND wake_at <= :until
         ORDER BY at, place LIMIT :limit)
 CROSS JOIN runs ON runs.seq = place;

-- name: lanes_by
SELECT queue, priority, owner FROM lanes INDEXED BY lanes_next
 WHERE next_at <= :until AND queue NOT IN (SELECT queue FROM queues WHERE paused);

-- name: next_in_gate
SELECT {ticket_columns} {live_runs_of_gate}
   AND state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0
   AND queue NOT IN (SELECT queue FROM queues WHERE paused)
 ORDER BY due_at, id LIMIT 1;

-- name: left_in_lane
SELECT wake_at {in_lane}
   AND wake_at >= :after AND wake_at <= :until AND task IN (SELECT value FROM json_each(:tasks))
 ORDER BY wake_at LIMIT 1;

-- name: offer_of_lane
-- How many runs of a lane a claim could return, up to a limit, and when the first of them woke. Runs whose gate is full
-- or held by another node count only when they are due.
SELECT count(*), min(wake_at)
  FROM (SELECT wake_at {in_lane}
           AND wake_at >= :after AND wake_at <= :until AND task IN (SELECT value FROM json_each(:tasks))
           AND (gate IS NULL
                OR (due_at <= :now AND wake_at <= :now AND gate NOT IN (SELECT value FROM json_each(:undecided)))
                OR (gate NOT IN (SELECT value FROM json_each(:full))
                    AND coalesce((SELECT node FROM gates WHERE gates.gate = runs.gate), :node) = :node))
         ORDER BY wake_at LIMIT :limit);

-- name: next_in_lane
SELECT min(wake_at) {in_lane} AND wake_at > :until;

-- name: claim_runs
UPDATE runs SET state = 'claimed', node = :node, fence = fence + 1 WHERE seq IN (SELECT value FROM json_each(:seqs));

-- ===== gates =========================================================================================================

-- fragment: letters_ahead
FROM letters INDEXED BY letters_gate WHERE gate = :gate AND gate IS NOT NULL AND (due_at, id) < (:due_at, :id);

-- name: gate_state
-- Who holds the gate of a run, whether a live run between the last that this claim took and this one is not this
-- node's, and whether an earlier dead letter blocks the gate.
SELECT (SELECT node FROM gates WHERE gate = :gate),
       EXISTS (SELECT 1 {live_runs_of_gate}
                  AND (due_at, id) > (:after_due_at, :after_id) AND (due_at, id) < (:due_at, :id)
                  AND node IS NOT :node),
       EXISTS (SELECT 1 {letters_ahead});

-- name: take_gate
INSERT INTO gates (gate, node) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: free_gate
DELETE FROM gates WHERE gate = ? AND node = ?;

-- fragment: front_of_gate(gate)
-- Held runs are looked for here: a run was first when it was claimed, so only those count that were put in front of it later.
SELECT id, job_id, first_started_at, due_at, state, node FROM runs INDEXED BY runs_gate
 WHERE gate = {gate} AND gate IS NOT NULL AND finished_at IS NULL
 ORDER BY due_at, id LIMIT 100;

-- name: rivals
-- The dead letters and the runs ahead of a run in its gate, and the runs that other nodes hold in it. The first of a
-- long line are enough to decide by, with the nearest of the same job, which may wait further back. A run that waits
-- for its next attempt still counts as started.
SELECT id, job_id, first_started_at, failed
  FROM (SELECT * FROM (
            SELECT id, job_id, NULL AS first_started_at, 1 AS failed, due_at {letters_ahead}
             ORDER BY due_at, id LIMIT :limit)
        UNION ALL
        SELECT * FROM (
            SELECT id, job_id, first_started_at, 0, due_at {live_runs_of_gate} AND (due_at, id) < (:due_at, :id)
             ORDER BY due_at, id LIMIT :limit)
        UNION
        SELECT id, job_id, first_started_at, 0, due_at FROM ({front_of_gate(:gate)}) WHERE {held} AND node IS NOT :node
        UNION
        SELECT * FROM (
            SELECT id, job_id, first_started_at, 0, due_at {live_runs_of_job}
               AND due_at <= :due_at AND gate = :gate AND (due_at, id) < (:due_at, :id)
             ORDER BY due_at DESC LIMIT 1))
 ORDER BY failed DESC, due_at, id;

-- name: park_runs
UPDATE runs SET parked = 1 WHERE id = ?;

-- fragment: parked_runs
FROM runs INDEXED BY runs_parked WHERE parked = 1;

-- name: wake_parked
-- The first parked run of a gate wakes now: its old time may be below the floor of the claims.
UPDATE runs SET parked = 0, wake_at = max(wake_at, :now)
 WHERE seq = (SELECT seq {parked_runs} AND gate = :gate ORDER BY due_at, id LIMIT 1)
RETURNING queue, priority, owner, wake_at;

-- name: free_gates_of_the_gone
DELETE FROM gates
 WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = gates.node)
   AND NOT EXISTS (
        SELECT 1 FROM runs INDEXED BY runs_gate
         WHERE runs.gate = gates.gate AND runs.gate IS NOT NULL AND finished_at IS NULL AND runs.node = gates.node);

-- name: delete_gates_of_nodes
DELETE FROM gates WHERE node = ?;

-- fragment: first_parked
SELECT due_at, id {parked_runs} AND gate = waiting.gate ORDER BY due_at, id LIMIT 1;

-- name: unblocked_gates
-- Gates whose first parked run has nothing to wait for: no earlier run, none that a node holds, and no dead letter. Of
-- :limit gates after :after; the last of these is returned as well, with 1.
WITH RECURSIVE waiting (gate, place) AS (
    SELECT min(gate), 1 {parked_runs} AND gate > :after
    UNION ALL
    SELECT (SELECT min(gate) {parked_runs} AND runs.gate > waiting.gate), place + 1
      FROM waiting WHERE gate IS NOT NULL AND place < :limit
)
SELECT gate, 1 FROM waiting WHERE place = :limit
UNION ALL
SELECT gate, 0 FROM waiting
 WHERE gate IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_gate
                    WHERE runs.gate = waiting.gate AND runs.gate IS NOT NULL AND finished_at IS NULL
                      AND (due_at, id) < ({first_parked}))
   AND NOT EXISTS (SELECT 1 FROM ({front_of_gate(waiting.gate)}) WHERE {held})
   AND NOT EXISTS (SELECT 1 FROM letters INDEXED BY letters_gate
                    WHERE letters.gate = waiting.gate AND letters.gate IS NOT NULL AND (due_at, id) < ({first_parked}));

-- name: ahead_of
SELECT * FROM (
    SELECT * {live_runs_of_gate} AND (due_at, id) < (:due_at, :id)
     ORDER BY due_at, id LIMIT :limit)
UNION ALL
SELECT * FROM runs WHERE id IN (
    SELECT id FROM ({front_of_gate(:gate)}) WHERE {held} AND (due_at, id) > (:due_at, :id) LIMIT :limit)
UNION ALL
SELECT * FROM runs WHERE seq IN (SELECT run {letters_ahead} ORDER BY due_at, id LIMIT :limit)
 ORDER BY due_at, id LIMIT :limit;

-- ===== the life of a run =============================================================================================

-- name: runs_by_fence
-- The runs of a batch whose fences still hold, with their places in the batch.
SELECT json_group_array(json_array(named.key, runs.seq, runs.state))
  FROM json_each(:fences) AS named
 CROSS JOIN runs INDEXED BY runs_id ON runs.id = substr(:ids, 16 * named.key + 1, 16)
 WHERE runs.fence = named.value;

-- name: start_runs
UPDATE runs
   SET state = 'running', started_at = json_extract(value, '$[1]'), first_started_at = json_extract(value, '$[2]'),
       attempt = json_extract(value, '$[3]'), progress = json_extract(value, '$[4]')
  FROM json_each(:rows)
 WHERE runs.seq = json_extract(value, '$[0]');

-- name: end_runs
-- Runs that ended alike, each with its result and its times: runs that a node held, or runs that waited.
UPDATE runs
   SET state = :state, attempt = :attempt, crashes = :crashes, progress = :progress, error = :error, reason = :reason,
       result = json_extract(value, '$[1]'), first_started_at = json_extract(value, '$[2]'),
       started_at = json_extract(value, '$[3]'), finished_at = json_extract(value, '$[4]'), parked = 0
  FROM json_each(:rows) AS named
 WHERE runs.id = substr(:ids, 16 * named.key + 1, 16) AND runs.fence = json_extract(value, '$[0]')
   AND iif(:held, runs.state IN ('claimed', 'running'), runs.state IN ('scheduled', 'retrying'));

-- name: return_runs
-- A stop request stays, for the node that claims the run next.
UPDATE runs
   SET state = json_extract(value, '$[1]'), attempt = json_extract(value, '$[2]'),
       crashes = json_extract(value, '$[3]'), progress = json_extract(value, '$[4]'),
       error = json_extract(value, '$[5]'), first_started_at = json_extract(value, '$[6]'),
       started_at = json_extract(value, '$[7]'), wake_at = json_extract(value, '$[8]'), node = NULL
  FROM json_each(:rows)
 WHERE runs.seq = json_extract(value, '$[0]');

-- name: settled_before
-- Whether a result whose fence is not held was written before, and is sent again.
SELECT 1 FROM runs
 WHERE id = ? AND fence = ? AND state = ? AND ((finished_at IS NULL AND wake_at = ?) OR finished_at = ?);

-- name: drop_secrets
UPDATE runs SET secrets = NULL WHERE id = ?;

-- name: add_attempts
INSERT INTO attempts (run_id, number, fence, node, started_at, ended_at, outcome, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: set_stops
UPDATE runs SET stop = ? WHERE id = ?;

-- name: stops
SELECT id, stop FROM runs INDEXED BY runs_stop
 WHERE node = ? AND stop IS NOT NULL AND finished_at IS NULL AND {held};

-- ===== nodes =========================================================================================================

-- name: put_node
INSERT OR REPLACE INTO nodes (
    id, name, roles, version, queues, concurrency, started_at, beat_at, running, tasks, wall_ahead
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: beat
UPDATE nodes SET beat_at = max(beat_at, ?), running = ?, wall_ahead = ? WHERE id = ?;

-- name: nodes_since
SELECT * FROM nodes WHERE beat_at >= ? ORDER BY started_at, id;

-- name: delete_nodes
DELETE FROM nodes WHERE id = ?;

-- name: held_by
SELECT * {held_runs} AND node = ? AND wake_at <= ?;

-- name: orphans
WITH RECURSIVE holders (node) AS (
    SELECT min(node) {held_runs}
    UNION ALL
    SELECT (SELECT min(node) {held_runs} AND runs.node > holders.node) FROM holders WHERE node IS NOT NULL
)
SELECT runs.* FROM holders CROSS JOIN runs INDEXED BY runs_held
    ON runs.node = holders.node AND runs.state IN ('claimed', 'running')
 WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = holders.node)
 LIMIT :limit;

-- ===== dead letters ==================================================================================================

-- name: insert_letter
INSERT INTO letters (run, id, owner, job_id, due_at, gate)
SELECT seq, id, owner, job_id, due_at, iif(:blocks, gate, NULL) FROM runs WHERE id = :id;

-- name: delete_letter
DELETE FROM letters WHERE id = ?;

-- name: resolve_run
UPDATE runs SET resolution = ? WHERE id = ?;

-- name: count_dead_letters
SELECT count(*) FROM (SELECT 1 FROM letters LIMIT :bound);

-- ===== small records ================================================================================================

-- name: records
-- Of one key or, when :key is NULL, of all.
SELECT kind, owner, key, value, at FROM records
 WHERE kind = :kind AND owner = :owner AND key BETWEEN coalesce(:key, '') AND coalesce(:key, char(1114111))
 ORDER BY key;

-- name: put_records
INSERT INTO records (kind, owner, key, value, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, owner, key) DO UPDATE SET value = excluded.value, at = excluded.at;

-- name: delete_records
-- Only while it has this value: another job may have taken the key meanwhile.
DELETE FROM records WHERE kind = ? AND owner = ? AND key = ? AND value = ?;

-- name: expire_idempotency
DELETE FROM records WHERE rowid IN (
    SELECT rowid FROM records INDEXED BY records_idempotency
     WHERE kind = 'idempotency' AND at < :before
     ORDER BY at
     LIMIT :limit);

-- ===== events ========================================================================================================

-- name: add_events
INSERT INTO events (kind, owner, at, subjects) VALUES (?, ?, ?, ?);

-- name: events_of_all
SELECT position, kind, owner, at, subjects FROM events WHERE position > :after ORDER BY position LIMIT :limit;

-- name: events_of_owner
SELECT position, kind, owner, at, subjects FROM events INDEXED BY events_owner
 WHERE owner = :owner AND position > :after ORDER BY position LIMIT :limit;

-- name: last_event
-- The last position that was used, even if its row was deleted.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events';

-- name: expire_events
-- Checks the first rows only: positions and times have the same order, unless a clock was set back.
DELETE FROM events WHERE position IN (
    SELECT position FROM (SELECT position, at FROM events ORDER BY position LIMIT :limit) WHERE at < :before);

-- ===== queues ========================================================================================================

-- name: put_queue
INSERT INTO queues (queue, paused, concurrency) VALUES (?, ?, ?)
ON CONFLICT (queue) DO UPDATE SET paused = excluded.paused, concurrency = excluded.concurrency;

-- name: queue_settings
SELECT queue, paused, concurrency FROM queues ORDER BY queue;

-- name: held_of_queue
-- How many runs of a queue all nodes hold, up to a bound; counted in the index alone.
SELECT count(*) FROM (SELECT 1 {held_runs} AND queue = :queue LIMIT :bound);

-- name: depth_of_lane
SELECT count(*), min(due_at) FROM (
    SELECT due_at {in_lane} AND wake_at <= :now AND due_at <= :now AND state = 'scheduled' LIMIT :bound);

-- name: parked_by_queue
SELECT queue, count(*), min(due_at) FROM (
    SELECT queue, due_at FROM runs INDEXED BY runs_parked
     WHERE parked = 1 AND due_at <= :now AND state = 'scheduled'
     LIMIT :bound)
 GROUP BY queue;

-- name: parked_by_queue_of_owner
-- Of the runs of an owner that have been due for longest.
SELECT queue, count(*), min(due_at) FROM (
    SELECT queue, state, parked, due_at FROM runs INDEXED BY runs_live
     WHERE owner = :owner AND finished_at IS NULL AND due_at <= :now
     ORDER BY due_at LIMIT :bound)
 WHERE parked = 1 AND state = 'scheduled'
 GROUP BY queue;

-- name: held_by_queue
SELECT queue, sum(state = 'running'), sum(state = 'claimed' AND due_at <= :now),
       min(CASE WHEN state = 'claimed' AND due_at <= :now THEN due_at END)
  FROM runs INDEXED BY runs_held
 WHERE {held} AND (:owner IS NULL OR owner = :owner)
 GROUP BY queue;

-- name: paused_queues
-- Found by jumping from one queue to the next.
WITH RECURSIVE paused_in (queue) AS (
    SELECT min(queue) FROM runs INDEXED BY runs_paused WHERE paused = 1 AND finished_at IS NULL AND queue > :after
    UNION ALL
    SELECT (SELECT min(queue) FROM runs INDEXED BY runs_paused
             WHERE paused = 1 AND finished_at IS NULL AND runs.queue > paused_in.queue)
      FROM paused_in WHERE queue IS NOT NULL
     LIMIT :limit
)
SELECT queue FROM paused_in WHERE queue IS NOT NULL;

-- name: paused_queues_of_owner
SELECT DISTINCT queue FROM (
    SELECT queue FROM runs INDEXED BY one_shots_paused
     WHERE owner = :owner AND schedule IS NOT NULL AND finished_at IS NULL AND paused = 1
     LIMIT :bound)
 WHERE queue > :after;

-- name: queues_of_lanes
-- A lane that is not due may be empty; one that has runs is never missing.
SELECT DISTINCT queue FROM lanes
 WHERE queue > :after AND (:owner IS NULL OR owner = :owner)
   AND EXISTS (SELECT 1 FROM runs INDEXED BY runs_claim
                WHERE state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0
                  AND runs.queue = lanes.queue AND runs.priority = lanes.priority AND runs.owner = lanes.owner)
 ORDER BY queue LIMIT :limit;

-- name: due_lanes_of_queue
SELECT queue, priority, owner FROM lanes
 WHERE queue = :queue AND (:owner IS NULL OR owner = :owner) AND next_at <= :now;

-- fragment: of_queues
WHERE late IS NOT NULL AND due_at > :since AND queue > :after AND (:until IS NULL OR queue <= :until);

-- name: latenesses_of_owner
-- Of the runs of an owner that ended in a state, those that were due last.
SELECT queue, due_at, late FROM (
    SELECT queue, due_at, first_started_at - due_at AS late FROM runs INDEXED BY runs_state
     WHERE owner = :owner AND state = :state AND state NOT IN ('scheduled', 'claimed') AND due_at > :since
     ORDER BY due_at DESC LIMIT :bound)
 {of_queues};

-- name: latenesses_of_all
-- Of the runs that ended last; by a clock that was set back, a run may end a moment before it is due.
SELECT queue, due_at, late FROM (
    SELECT queue, due_at, first_started_at - due_at AS late FROM runs INDEXED BY runs_finished
     WHERE finished_at IS NOT NULL AND finished_at > :since - 60000000
     ORDER BY finished_at DESC LIMIT :bound)
 {of_queues};

-- name: due_soon
-- Of the runs that come due first, and of the jobs that a planner reads first, as many as :bound are looked at.
SELECT queue, count(*) FROM (
    SELECT queue FROM (
        SELECT queue, state, parked, paused FROM runs INDEXED BY runs_due
         WHERE due_at > :now AND due_at <= :until
         ORDER BY due_at LIMIT :bound)
     WHERE state = 'scheduled' AND NOT parked AND NOT paused
    UNION ALL
    SELECT queue FROM (
        SELECT queue, next_fire_at FROM jobs INDEXED BY jobs_plan
         WHERE plan_at <= :until AND plan_at IS NOT NULL
         ORDER BY plan_at LIMIT :bound)
     WHERE next_fire_at > :now AND next_fire_at <= :until)
 GROUP BY queue
 ORDER BY queue;

-- ===== what an owner keeps ===========================================================================================
-- A page of rows at a time, by queue: how many have not ended, their bytes, and the place of the page's last row, NULL at the
-- end. Parameters in a blob that is not here count as the least that a blob has.

-- fragment: bytes_kept(result)
length(CAST(params AS BLOB)) + coalesce(length(CAST(labels AS BLOB)), 0) + coalesce(length(CAST(secrets AS BLOB)), 0)
+ coalesce(length(CAST({result} AS BLOB)), 0)
+ CASE WHEN params_blob IS NULL THEN 0
       ELSE coalesce((SELECT length(data) FROM blobs WHERE blobs.key = params_blob), :least_blob) END;

-- fragment: page_by_queue
SELECT queue, sum(lives), sum(bytes), page_end.place, page_end.seq
  FROM page
  LEFT JOIN (SELECT place, seq FROM page ORDER BY place DESC, seq DESC LIMIT 1) AS page_end
    ON (SELECT count(*) FROM page) = :limit
 GROUP BY queue;

-- name: kept_jobs
WITH page AS MATERIALIZED (
    SELECT id AS place, seq, queue, status IN ('scheduled', 'paused') AS lives, {bytes_kept(NULL)} AS bytes
      FROM jobs INDEXED BY jobs_owner
     WHERE owner = :owner AND id > :place
     ORDER BY id LIMIT :limit)
{page_by_queue};

-- fragment: page_of_runs(rows, lives)
-- Rows of one time are told apart by their numbers, which SQLite looks up in an index only where the time is given.
WITH page_keys AS MATERIALIZED (
    SELECT * FROM (SELECT seq {rows} AND due_at = :place AND seq > :seq ORDER BY seq LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seq {rows} AND due_at > :place ORDER BY due_at, seq LIMIT :limit)
    LIMIT :limit
), page AS MATERIALIZED (
    SELECT due_at AS place, seq, queue, {lives} AS lives,
           CASE WHEN (finished_at IS NULL) = {lives} THEN {bytes_kept(result)} ELSE 0 END AS bytes
      FROM page_keys CROSS JOIN runs USING (seq))
{page_by_queue};

-- fragment: live_runs_of_owner
FROM runs INDEXED BY runs_live WHERE owner = :owner AND finished_at IS NULL;

-- fragment: runs_of_owner
FROM runs INDEXED BY runs_owner WHERE owner = :owner;

-- name: kept_live
{page_of_runs({live_runs_of_owner}, 1)};

-- name: kept_ended
-- Live runs are looked at, too, and not counted.
{page_of_runs({runs_of_owner}, 0)};

-- ===== look-ups and lists ============================================================================================

-- name: run
SELECT * FROM runs WHERE id = :id;

-- name: ended_run
SELECT * FROM runs WHERE id = :id AND state IN ('succeeded', 'failed', 'cancelled', 'skipped');

-- name: job
SELECT * FROM jobs WHERE id = :id;

-- name: one_shot
SELECT * FROM runs WHERE id = :id AND schedule IS NOT NULL;

-- name: attempts
SELECT run_id, number, fence, node, started_at, ended_at, outcome, error FROM attempts WHERE run_id = ? ORDER BY fence;

-- name: ids
-- Each part stops at the limit, so that a wide range costs no more than a narrow one.
SELECT * FROM (
    SELECT id, owner, 1, 0 FROM jobs INDEXED BY jobs_id
     WHERE id >= :first AND id <= :last ORDER BY id DESC LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT id, owner, schedule IS NOT NULL, 1 FROM runs INDEXED BY runs_id
     WHERE id >= :first AND id <= :last ORDER BY id DESC LIMIT :limit)
 ORDER BY 1 DESC LIMIT :limit;

-- name: last_run
SELECT * FROM (
    SELECT * FROM runs INDEXED BY runs_id WHERE id = :job_id AND schedule IS NOT NULL AND due_at <= :now
    UNION ALL
    SELECT * FROM (
        SELECT * FROM runs INDEXED BY runs_job
         WHERE job_id = :job_id AND schedule IS NULL AND due_at <= :now
         ORDER BY due_at DESC, seq DESC LIMIT 1))
 ORDER BY due_at DESC, seq DESC LIMIT 1;

-- Lists look at the first :look rows of an index and keep those that fit the filter. The edge of a list is the last row that
-- it looked at, if there were as many: the next page begins there.

-- fragment: labelled
(:label IS NULL OR EXISTS (
        SELECT 1 FROM json_each(labels) AS label
         WHERE label.key = :label AND (:label_value IS NULL OR label.value = :label_value)));

-- fragment: named
-- Most texts are ASCII, and need no function of ours, which would wait for Python's lock at each row.
(:text IS NULL OR iif(:ascii, instr(lower(task), :text) OR instr(lower(name), :text) OR instr(lower(key), :text),
                       instr(folded(task), :text) OR instr(folded(name), :text) OR instr(folded(key), :text)));

-- fragment: run_filter
-- Used in every list: conditions that the index of a list has met already cost next to nothing.
(:owner IS NULL OR owner = :owner)
   AND (:job_id IS NULL OR job_id = :job_id)
   AND (:task IS NULL OR task = :task)
   AND (:queue IS NULL OR queue = :queue)
   AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
   AND (:stopping IS NULL OR (finished_at IS NULL AND stop IS 'cancelled') = :stopping)
   AND (:trigger IS NULL OR trigger = :trigger)
   AND (:node IS NULL OR node = :node)
   AND (:error_type IS NULL OR json_extract(error, '$.type') = :error_type)
   AND (:min_lateness IS NULL OR first_started_at - due_at >= :min_lateness)
   AND {labelled}
   AND {named};

-- fragment: latest_in(rows)
-- In two streams: for (due_at, rowid) < (...) SQLite seeks the time only, and each page would walk again through all that is
-- due at the same instant.
SELECT due_at AS at, rowid AS place {rows} AND due_at = :due_at AND rowid < :seq AND :due_at >= :start_at
UNION ALL
SELECT due_at, rowid {rows} AND due_at < :due_at AND due_at >= :start_at
 ORDER BY at DESC, place DESC LIMIT :look;

-- fragment: runs_in(rows)
FROM ({latest_in({rows})}) CROSS JOIN runs ON runs.seq = place WHERE {run_filter};

-- fragment: edge_of_runs(rows)
SELECT at, place FROM ({latest_in({rows})}) LIMIT 1 OFFSET :look - 1;

-- fragment: few_latest(rows)
-- Of so few rows that all of them are looked at.
SELECT * {rows} AND due_at >= :start_at AND (due_at, seq) < (:due_at, :seq) AND {run_filter}
 ORDER BY due_at DESC, seq DESC LIMIT :limit;

-- name: list_held_runs
-- Nodes hold few runs at any time.
{few_latest({held_runs})};

-- fragment: stopping_runs
FROM runs INDEXED BY runs_stop WHERE stop IS NOT NULL AND finished_at IS NULL;

-- name: list_stopping_runs
-- Few at any time: a stop request is open only until the node has seen it.
{few_latest({stopping_runs})};

-- fragment: run_of_one_shot
FROM runs INDEXED BY runs_id WHERE id = :job_id AND schedule IS NOT NULL;

-- name: list_run_of_one_shot
{few_latest({run_of_one_shot})};

-- fragment: runs_of_all
FROM runs INDEXED BY runs_due WHERE true;

-- fragment: runs_of_task
FROM runs INDEXED BY runs_task WHERE owner = :owner AND task = :task;

-- fragment: runs_of_queue
FROM runs INDEXED BY runs_queue WHERE owner = :owner AND queue = :queue;

-- fragment: runs_of_state
FROM runs INDEXED BY runs_state WHERE owner = :owner AND state = :state AND state NOT IN ('scheduled', 'claimed');

-- fragment: runs_of_job
FROM runs INDEXED BY runs_job WHERE job_id = :job_id AND schedule IS NULL;

-- fragment: dead_letters_of_all
FROM letters INDEXED BY letters_due WHERE true;

-- fragment: dead_letters_of_owner
FROM letters INDEXED BY letters_owner WHERE owner = :owner;

-- fragment: dead_letters_of_job
FROM letters INDEXED BY letters_job WHERE job_id = :job_id;

-- name: list_runs_of_all
SELECT runs.* {runs_in({runs_of_all})} LIMIT :limit;

-- name: edge_of_runs_of_all
{edge_of_runs({runs_of_all})};

-- name: list_runs_of_owner
SELECT runs.* {runs_in({runs_of_owner})} LIMIT :limit;

-- name: edge_of_runs_of_owner
{edge_of_runs({runs_of_owner})};

-- name: list_live_runs_of_owner
SELECT runs.* {runs_in({live_runs_of_owner})} LIMIT :limit;

-- name: edge_of_live_runs_of_owner
{edge_of_runs({live_runs_of_owner})};

-- name: list_runs_of_task
SELECT runs.* {runs_in({runs_of_task})} LIMIT :limit;

-- name: edge_of_runs_of_task
{edge_of_runs({runs_of_task})};

-- name: list_runs_of_queue
SELECT runs.* {runs_in({runs_of_queue})} LIMIT :limit;

-- name: edge_of_runs_of_queue
{edge_of_runs({runs_of_queue})};

-- name: list_runs_of_state
SELECT runs.* {runs_in({runs_of_state})} LIMIT :limit;

-- name: edge_of_runs_of_state
{edge_of_runs({runs_of_state})};

-- name: list_runs_of_job
SELECT runs.* {runs_in({runs_of_job})} LIMIT :limit;

-- name: edge_of_runs_of_job
{edge_of_runs({runs_of_job})};

-- name: list_live_runs_of_job
SELECT runs.* {runs_in({live_runs_of_job})} LIMIT :limit;

-- name: edge_of_live_runs_of_job
{edge_of_runs({live_runs_of_job})};

-- name: list_dead_letters_of_all
SELECT runs.* {runs_in({dead_letters_of_all})} LIMIT :limit;

-- name: edge_of_dead_letters_of_all
{edge_of_runs({dead_letters_of_all})};

-- name: list_dead_letters_of_owner
SELECT runs.* {runs_in({dead_letters_of_owner})} LIMIT :limit;

-- name: edge_of_dead_letters_of_owner
{edge_of_runs({dead_letters_of_owner})};

-- name: list_dead_letters_of_job
SELECT runs.* {runs_in({dead_letters_of_job})} LIMIT :limit;

-- name: edge_of_dead_letters_of_job
{edge_of_runs({dead_letters_of_job})};

-- fragment: groups(letters)
SELECT task, error, count(*), min(due_at), max(due_at), id
  FROM (SELECT runs.task, runs.error, runs.due_at, runs.id {runs_in({letters})})
 GROUP BY task, error
 ORDER BY count(*) DESC, max(due_at) DESC, task, error;

-- name: group_dead_letters_of_all
{groups({dead_letters_of_all})};

-- name: group_dead_letters_of_owner
{groups({dead_letters_of_owner})};

-- name: group_dead_letters_of_job
{groups({dead_letters_of_job})};

-- name: ledger_runs
SELECT * FROM runs INDEXED BY runs_slot
 WHERE job_id = :job_id AND trigger = 'schedule' AND schedule IS NULL AND slot >= :start AND slot <= :end
 ORDER BY slot, seq LIMIT :limit;

-- name: ledger_skips
-- Those that begin within the range, and of those that began before it the ones that reach into it, among the last.
SELECT job_id, revision, start_at, end_at, count, reason FROM (
    SELECT * FROM skips INDEXED BY skips_job
     WHERE job_id = :job_id AND start_at < :start
     ORDER BY start_at DESC, seq DESC LIMIT :look)
 WHERE end_at >= :start
UNION ALL
SELECT job_id, revision, start_at, end_at, count, reason FROM (
    SELECT * FROM skips INDEXED BY skips_job
     WHERE job_id = :job_id AND start_at >= :start AND start_at <= :end
     ORDER BY start_at, seq LIMIT :look)
 ORDER BY start_at;

-- name: ledger_backfills
SELECT * FROM backfills
 WHERE job_id = :job_id AND start_at <= :end AND end_at >= :start
 ORDER BY start_at;

-- fragment: spec_filter
(:task IS NULL OR task = :task)
   AND (:name IS NULL OR name = :name)
   AND (:key IS NULL OR key = :key)
   AND (:queue IS NULL OR queue = :queue)
   AND {labelled}
   AND {named};

-- fragment: job_filter
{spec_filter}
   AND (:status IS NULL OR status = :status)
   AND (:last_states IS NULL OR (
        SELECT state FROM runs INDEXED BY runs_job
         WHERE job_id = jobs.id AND schedule IS NULL AND due_at <= :now
         ORDER BY due_at DESC, runs.seq DESC LIMIT 1) IN (SELECT value FROM json_each(:last_states)));

-- fragment: one_shot_filter
schedule IS NOT NULL AND {spec_filter}
   AND (:status IS NULL OR :status = CASE
            WHEN state = 'cancelled' OR (stop IS 'cancelled' AND finished_at IS NULL) THEN 'cancelled'
            WHEN finished_at IS NOT NULL THEN 'finished' WHEN paused THEN 'paused' ELSE 'scheduled' END)
   AND (:last_states IS NULL OR (due_at <= :now AND state IN (SELECT value FROM json_each(:last_states))));

-- fragment: newest_in(rows)
SELECT id AS ident, rowid AS place {rows} AND id < :before ORDER BY id DESC LIMIT :look;

-- fragment: jobs_in(rows)
SELECT id FROM ({newest_in({rows})}) CROSS JOIN jobs ON jobs.seq = place WHERE {job_filter} LIMIT :limit;

-- fragment: one_shots_in(rows)
SELECT id FROM ({newest_in({rows})}) CROSS JOIN runs ON runs.seq = place WHERE {one_shot_filter} LIMIT :limit;

-- fragment: edge_of_newest(rows)
SELECT ident FROM ({newest_in({rows})}) LIMIT 1 OFFSET :look - 1;

-- fragment: jobs_of_all
FROM jobs INDEXED BY jobs_id WHERE true;

-- fragment: jobs_of_owner
FROM jobs INDEXED BY jobs_owner WHERE owner = :owner;

-- fragment: jobs_of_key
FROM jobs INDEXED BY jobs_key WHERE owner = :owner AND key = :key AND key IS NOT NULL;

-- fragment: one_shots_of_all
FROM runs INDEXED BY runs_id WHERE true;

-- fragment: one_shots_of_key
FROM runs INDEXED BY one_shots_key
 WHERE owner = :owner AND key = :key AND schedule IS NOT NULL AND key IS NOT NULL;

-- fragment: live_one_shots
FROM runs INDEXED BY one_shots_live WHERE owner = :owner AND schedule IS NOT NULL AND finished_at IS NULL;

-- fragment: ended_one_shots
FROM runs INDEXED BY one_shots_ended WHERE owner = :owner AND schedule IS NOT NULL AND finished_at IS NOT NULL;

-- fragment: paused_one_shots
FROM runs INDEXED BY one_shots_paused
 WHERE owner = :owner AND schedule IS NOT NULL AND finished_at IS NULL AND paused = 1;

-- fragment: cancelled_one_shots
FROM runs INDEXED BY one_shots_cancelled
 WHERE owner = :owner AND schedule IS NOT NULL AND (state = 'cancelled' OR stop = 'cancelled');

-- name: list_jobs_of_all
{jobs_in({jobs_of_all})};

-- name: edge_of_jobs_of_all
{edge_of_newest({jobs_of_all})};

-- name: list_jobs_of_owner
{jobs_in({jobs_of_owner})};

-- name: edge_of_jobs_of_owner
{edge_of_newest({jobs_of_owner})};

-- name: list_jobs_of_key
{jobs_in({jobs_of_key})};

-- name: edge_of_jobs_of_key
{edge_of_newest({jobs_of_key})};

-- name: list_one_shots_of_all
{one_shots_in({one_shots_of_all})};

-- name: edge_of_one_shots_of_all
{edge_of_newest({one_shots_of_all})};

-- name: list_one_shots_of_key
{one_shots_in({one_shots_of_key})};

-- name: edge_of_one_shots_of_key
{edge_of_newest({one_shots_of_key})};

-- name: list_live_one_shots
{one_shots_in({live_one_shots})};

-- name: edge_of_live_one_shots
{edge_of_newest({live_one_shots})};

-- name: list_ended_one_shots
{one_shots_in({ended_one_shots})};

-- name: edge_of_ended_one_shots
{edge_of_newest({ended_one_shots})};

-- name: list_paused_one_shots
{one_shots_in({paused_one_shots})};

-- name: edge_of_paused_one_shots
{edge_of_newest({paused_one_shots})};

-- name: list_cancelled_one_shots
{one_shots_in({cancelled_one_shots})};

-- name: edge_of_cancelled_one_shots
{edge_of_newest({cancelled_one_shots})};

-- ===== history =======================================================================================================

-- fragment: not_restored
NOT EXISTS (SELECT 1 FROM restored WHERE restored.id = runs.id);

-- fragment: old_runs
FROM runs INDEXED BY runs_finished
 WHERE finished_at IS NOT NULL AND finished_at < :before AND {not_restored}
 ORDER BY finished_at LIMIT :limit;

-- name: count_old_runs
SELECT count(*) FROM (SELECT 1 {old_runs});

-- name: first_old_run
SELECT finished_at {old_runs};

-- name: ended_page
SELECT * FROM runs INDEXED BY runs_finished
 WHERE finished_at IS NOT NULL AND finished_at >= :from AND finished_at < :to AND (finished_at > :from OR id > :id)
   AND {not_restored}
 ORDER BY finished_at, id LIMIT :limit;

-- name: prune_attempts
DELETE FROM attempts WHERE run_id IN (SELECT id {old_runs});

-- name: prune_letters
DELETE FROM letters WHERE run IN (SELECT seq {old_runs});

-- name: prune_runs
DELETE FROM runs WHERE seq IN (SELECT seq {old_runs});

-- fragment: restored_long_ago
SELECT id FROM restored INDEXED BY restored_at WHERE at < :before ORDER BY at LIMIT :limit;

-- name: prune_restored_attempts
DELETE FROM attempts WHERE run_id IN ({restored_long_ago});

-- name: prune_restored_letters
DELETE FROM letters WHERE id IN ({restored_long_ago});

-- name: prune_restored_runs
DELETE FROM runs WHERE id IN ({restored_long_ago});

-- name: prune_restored
DELETE FROM restored WHERE id IN ({restored_long_ago});

-- name: restore_run
INSERT INTO runs (id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key,
                  policy, secrets, schedule, trigger, slot, due_at, wake_at, gate, state, paused, stop, node, fence, attempt,
                  crashes, revision, progress, error, result, reason, created_at, first_started_at, started_at, finished_at,
                  resolution, requeue_of)
VALUES (:id, :job_id, :owner, :created_by, :task, :params, :params_blob, :name, :key, :labels, :queue, :priority,
        :ordering_key, :policy, :secrets, :schedule, :trigger, :slot, :due_at, :wake_at, :gate, :state, :paused, :stop, :node,
        :fence, :attempt, :crashes, :revision, :progress, :error, :result, :reason, :created_at, :first_started_at,
        :started_at, :finished_at, :resolution, :requeue_of)
    ON CONFLICT (id) DO NOTHING;

-- name: mark_restored
INSERT INTO restored (id, at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING;

-- name: prune_skips
DELETE FROM skips WHERE seq IN (
    SELECT seq FROM skips INDEXED BY skips_end WHERE end_at < :before ORDER BY end_at LIMIT :limit);

-- fragment: old_jobs
-- Cancelled jobs without runs, of which nothing is left to tell.
FROM jobs INDEXED BY jobs_cancelled
 WHERE status = 'cancelled' AND updated_at < :before
   AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id AND schedule IS NULL)
 ORDER BY updated_at LIMIT :limit;

-- name: prune_trails
DELETE FROM records
 WHERE kind = 'trail' AND (owner, key) IN (SELECT owner, lower(hex(id)) {old_jobs});

-- name: prune_jobs
DELETE FROM jobs WHERE seq IN (SELECT seq {old_jobs});

-- name: prune_blobs
-- Large parameters are kept while a job or run refers to them.
DELETE FROM blobs WHERE seq IN (
    SELECT seq FROM blobs INDEXED BY blobs_created
     WHERE created_at < :before
       AND NOT EXISTS (SELECT 1 FROM runs WHERE params_blob = blobs.key)
       AND NOT EXISTS (SELECT 1 FROM jobs WHERE params_blob = blobs.key)
     ORDER BY created_at LIMIT :limit);

-- ===== blobs =========================================================================================================

-- name: put_blobs
INSERT OR REPLACE INTO blobs (key, data, created_at) VALUES (?, ?, ?);

-- name: get_blob
SELECT data FROM blobs WHERE key = ?;

-- name: blobs_under
SELECT key, data FROM blobs WHERE key >= :from AND key < :to AND key > :after ORDER BY key LIMIT :limit;

-- name: delete_blobs
DELETE FROM blobs WHERE key >= :from AND key < :to;

-- ===== migrations ====================================================================================================

-- Two tables, see common/schema.py: `migrations` has the version that the code must have at least.

-- name: create_versions
CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL);

-- name: create_migrations
CREATE TABLE IF NOT EXISTS applied_migrations (number INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL);

-- name: has_tables
SELECT 1 FROM sqlite_master LIMIT 1;

-- name: has_versions
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations';

-- name: has_migrations
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'applied_migrations';

-- name: oldest_version
SELECT coalesce(max(number), 0) FROM migrations;

-- name: schema_version
SELECT coalesce(max(number), 0) FROM applied_migrations;

-- name: add_version
INSERT OR IGNORE INTO migrations (number, applied_at) VALUES (?, ?);

-- name: add_migration
INSERT OR IGNORE INTO applied_migrations (number, applied_at) VALUES (?, ?);
