-- Named statements of the PostgreSQL store. Batches come as arrays, one per column. `{name}` includes a fragment (see
-- common/statements.py).
--
-- Plans: connections force generic plans and switch off whatever reads a table as a whole (see connection/database.py). A plan
-- that was made while a table was empty would otherwise scan it until statistics catch up; and a generic plan takes LIMIT $n
-- for a tenth of the table. Every statement follows one index, which tests/conformance/test_postgres_plans.py watches. Hence
-- some odd expressions: `gate || ''` keeps the index of gates away, and a scalar subquery is looked up where EXISTS would be
-- answered by hashing the whole table, or by reading all of it for each row. A join with `id BETWEEN given.id AND given.id`
-- (or of several columns, in the order of their index) can only look up the given ids, as can a LATERAL with a LIMIT: with `=`,
-- a plan that was made when a vacuum had found the table empty would read all of it for each of them.
--
-- Held runs of a gate are looked for among its first 100: a run was first when it was claimed, so only those count that were
-- put in front of it later.

-- ------------------------------------------------------------------------------------------------------------- columns

-- fragment: spec_columns
task, params, params_blob, name, key, labels, queue, priority, ordering_key, policy, secrets;

-- fragment: job_columns
id, owner, created_by, {spec_columns}, schedule, status, next_fire_at, plan_at, revision, created_at, updated_at;

-- fragment: new_run_columns
id, job_id, owner, created_by, {spec_columns}, schedule, trigger, slot, due_at, wake_at, gate, paused, revision, created_at,
requeue_of, lane, shelf;

-- fragment: node_columns
id, name, roles, version, queues, concurrency, started_at, beat_at, running, tasks, wall_ahead;

-- ---------------------------------------------------------------------------------------------------- schema and time

-- name: store_time
SELECT clock_timestamp();

-- name: current_schema
SELECT current_schema();

-- name: submit_runs_function
-- Its qualified name; the server quotes it.
SELECT format('%I.submit_runs', current_schema());

-- name: schema_to_create
-- The name of the first schema of search_path, and the statement that creates it; none if there is one already.
SELECT name, format('CREATE SCHEMA IF NOT EXISTS %I', name)
  FROM (SELECT trim(BOTH '" ' FROM split_part(current_setting('search_path'), ',', 1)) AS name) AS first
 WHERE current_schema() IS NULL;

-- name: find_schema
-- $1 the schema for our tables. The first column says whether the search_path stays as it is: because the address says it, or
-- because our tables are found by it, of a release that had no schema for them, or because they are nowhere yet and the role or
-- the database says it. The second says whether they are in our schema. A table of versions alone may be another program's.
WITH ours AS MATERIALIZED (
    SELECT nspname
      FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE relname = 'schema_versions'
       AND EXISTS (SELECT FROM pg_proc WHERE proname = 'submit_runs' AND pronamespace = pg_namespace.oid)
), path AS MATERIALIZED (
    SELECT source = 'client' AS of_address,
           source NOT IN ('default', 'session') AND current_schema() IS DISTINCT FROM 'public' AS chosen,
           EXISTS (SELECT FROM ours WHERE nspname = ANY(current_schemas(false))) AS leads_to_ours,
           EXISTS (SELECT FROM ours WHERE nspname = $1) AS there
      FROM pg_settings
     WHERE name = 'search_path'
)
SELECT of_address OR NOT there AND (leads_to_ours OR chosen), there FROM path;

-- Two tables, see common/schema.py: `schema_versions` has the version that the code must have at least.

-- name: has_versions
SELECT to_regclass('schema_versions') IS NOT NULL, to_regclass('applied_migrations') IS NOT NULL;

-- name: create_versions
CREATE TABLE IF NOT EXISTS schema_versions (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());

-- name: create_migrations
CREATE TABLE IF NOT EXISTS applied_migrations (number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());

-- name: oldest_version
SELECT coalesce(max(version), 0) FROM schema_versions;

-- name: schema_version
SELECT coalesce(max(number), 0) FROM applied_migrations;

-- name: lock_migrations
-- Whether no other process migrates; held to the end of the transaction.
SELECT pg_try_advisory_xact_lock(hashtext('horae migrations ' || coalesce(current_schema(), '')));

-- name: lock_briefly
-- To the end of the transaction: whoever waits for a lock makes others wait behind it, so not for long.
SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true);

-- name: broken_index
-- The statement that removes an index of this name that was not finished.
SELECT format('DROP INDEX CONCURRENTLY %s', indexrelid::regclass)
  FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid;

-- name: is_partitioned
SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($1);

-- name: parts_without_index
-- $1 an index of a partitioned table, $2 the table: its partitions that have no part of the index.
SELECT relname
  FROM pg_inherits AS part JOIN pg_class ON pg_class.oid = part.inhrelid
 WHERE part.inhparent = to_regclass($2)
   AND NOT EXISTS (SELECT FROM pg_index JOIN pg_inherits AS of_index ON of_index.inhrelid = indexrelid
                    WHERE indrelid = part.inhrelid AND of_index.inhparent = to_regclass($1))
 ORDER BY relname;

-- name: quoted_schema
SELECT quote_ident(current_schema());

-- name: add_version
INSERT INTO schema_versions (version) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: add_migration
INSERT INTO applied_migrations (number) VALUES ($1);

-- name: ensure_day
SELECT ensure_history_day($1);

-- name: notify
SELECT pg_notify($1, $2);

-- ------------------------------------------------------------------------------------------------- guards of changes
-- The rows that guards name are locked until the transaction ends, in the order of the ids.

-- name: guarded_jobs
SELECT id, revision, next_fire_at, status FROM jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- name: guarded_runs
SELECT id, state, fence, revision, stop FROM runs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- name: guarded_letters
-- $2: the first day to look at. `state || ''` keeps the indexes of letters away, which would be read as a whole.
SELECT id FROM history
 WHERE id = ANY($1::uuid[]) AND ended_on >= $2 AND state || '' = 'failed' AND resolution IS NULL
 ORDER BY id
   FOR NO KEY UPDATE;

-- name: guarded_backfills
SELECT id, start_at FROM backfills WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- name: guarded_nodes
SELECT id, beat_at FROM nodes WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE;

-- name: reserve_queues
INSERT INTO queues (queue, paused) SELECT queue, false FROM unnest($1::text[]) AS given(queue) ORDER BY queue
    ON CONFLICT DO NOTHING;

-- name: guarded_queues
SELECT queue, paused, concurrency FROM queues WHERE queue = ANY($1::text[]) ORDER BY queue FOR NO KEY UPDATE;

-- ---------------------------------------------------------------------------------------------------------- creating

-- name: add_lanes
-- Those that a node learns of are not removed as long as it may use them. Returns those that it made or noted.
INSERT INTO lanes (queue, priority, owner, next_at)
SELECT *, 'infinity' FROM unnest($1::text[], $2::smallint[], $3::text[])
    ON CONFLICT (queue, priority, owner) DO UPDATE SET used_at = clock_timestamp()
 WHERE lanes.used_at < clock_timestamp() - interval '10 min'
RETURNING queue, priority, owner, id;

-- name: lanes_among
SELECT queue, priority, owner, lanes.id
  FROM unnest($1::text[], $2::smallint[], $3::text[]) AS given(queue, priority, owner)
  JOIN lanes USING (queue, priority, owner);

-- fragment: wake_lanes
-- Note when the first runs of lanes wake, from woken(lane, moment), unless others wake before them. By arrays, because a join
-- is planned for as many lanes as there were when they were last counted: that took seconds for some hundreds of new ones.
WITH given AS MATERIALIZED (SELECT array_agg(lane) AS ids, array_agg(moment) AS moments FROM woken)
UPDATE lanes SET next_at = (SELECT moments[array_position(ids, lanes.id)] FROM given)
 WHERE id = ANY(ARRAY(SELECT id FROM lanes
                       WHERE id = ANY((SELECT ids FROM given)::integer[])
                         AND next_at > (SELECT moments[array_position(ids, lanes.id)] FROM given)
                       ORDER BY id
                         FOR NO KEY UPDATE));

-- name: add_shelves
INSERT INTO shelves (owner, task, queue) SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
    ON CONFLICT DO NOTHING
RETURNING owner, task, queue, id;

-- name: shelves_among
SELECT owner, task, queue, shelves.id
  FROM unnest($1::text[], $2::text[], $3::text[]) AS given(owner, task, queue) JOIN shelves USING (owner, task, queue);

-- fragment: new_run_rows
-- $1 batches of runs that are alike.
SELECT own.id, coalesce(own.job_id, own.id), owner, created_by, task, coalesce(own.params, batch.params), params_blob, name,
       key, labels, queue, priority, ordering_key, policy, secrets, coalesce(own.schedule, batch.schedule), trigger,
       CASE WHEN punctual AND batch.slot IS NOT NULL THEN coalesce(own.due_at, batch.due_at)
            ELSE coalesce(own.slot, batch.slot) END,
       coalesce(own.due_at, batch.due_at),
       CASE WHEN punctual THEN coalesce(own.due_at, batch.due_at) ELSE coalesce(own.wake_at, batch.wake_at) END AS wake_at,
       coalesce(own.gate, batch.gate), paused, revision, created_at, requeue_of, lane, shelf
  FROM unnest($1::new_runs[]) AS batch
 CROSS JOIN LATERAL unnest(ids, job_ids, all_params, schedules, slots, due_ats, wake_ats, gates)
                    AS own(id, job_id, params, schedule, slot, due_at, wake_at, gate);

-- name: create_runs
-- New one-shots, with their events. $2 whether some may exist already, because they are sent again. Only then are they looked
-- for: ON CONFLICT for all took a fifth of the server's time for this statement.
WITH made AS (
    INSERT INTO runs ({new_run_columns})
    {new_run_rows}
     WHERE NOT ($2::boolean AND coalesce((SELECT true FROM runs WHERE runs.id = own.id), false))
    RETURNING job_id, owner
), woken(lane, moment) AS (
    SELECT * FROM unnest($3::integer[], $4::timestamptz[])
), woken_lanes AS (
    {wake_lanes}
)
INSERT INTO events (kind, owner, subjects) SELECT 'job.created', owner, array_agg(job_id) FROM made GROUP BY owner;

-- name: insert_runs
-- In the order in which they wake, not job by job, so that runs that are claimed and end together are in the same pages.
WITH woken(lane, moment) AS (
    SELECT * FROM unnest($2::integer[], $3::timestamptz[])
), woken_lanes AS (
    {wake_lanes}
)
INSERT INTO runs ({new_run_columns})
{new_run_rows}
 ORDER BY wake_at;

-- name: put_jobs
INSERT INTO jobs ({job_columns}, shard)
SELECT *
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
              $10::text[], $11::smallint[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[],
              $17::timestamptz[], $18::timestamptz[], $19::integer[], $20::timestamptz[], $21::timestamptz[],
              $22::smallint[])
    ON CONFLICT (id) DO UPDATE
   SET task = excluded.task, params = excluded.params, params_blob = excluded.params_blob, name = excluded.name,
       key = excluded.key, labels = excluded.labels, queue = excluded.queue, priority = excluded.priority,
       ordering_key = excluded.ordering_key, policy = excluded.policy, secrets = excluded.secrets,
       schedule = excluded.schedule, status = excluded.status, next_fire_at = excluded.next_fire_at,
       plan_at = excluded.plan_at, revision = excluded.revision, updated_at = excluded.updated_at;

-- name: hold_jobs
-- Locked in the order of their ids, as by firings, so that a cancel waits for us or is visible.
SELECT id, status FROM jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR SHARE;

-- name: hold_one_shots
-- As above, of one-shots. A claim skips locked runs, so it is signalled afterwards.
SELECT * FROM live_runs WHERE id = ANY($1::uuid[]) ORDER BY id FOR SHARE;

-- name: insert_skips
INSERT INTO skips (job_id, revision, start_at, end_at, count, reason)
SELECT * FROM unnest($1::uuid[], $2::integer[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::text[]);

-- name: delete_skips
DELETE FROM skips USING unnest($1::uuid[], $2::timestamptz[]) AS given(job_id, start_at)
 WHERE (skips.job_id, skips.start_at) BETWEEN (given.job_id, given.start_at) AND (given.job_id, given.start_at);

-- name: put_backfills
INSERT INTO backfills (id, job_id, trigger, start_at, end_at, plan_at, created_at, shard)
SELECT *
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
              $7::timestamptz[], $8::smallint[])
    ON CONFLICT (id) DO UPDATE SET start_at = excluded.start_at, plan_at = excluded.plan_at;

-- ------------------------------------------------------------------------------------------------------ small records

-- fragment: given_records
unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[]) AS given(kind, owner, key, value, at);

-- name: reserve_records
-- In the order of the keys, so that two batches never wait for each other; an answer that is no longer valid ($6) gives way.
INSERT INTO records (kind, owner, key, value, at)
SELECT * FROM {given_records} ORDER BY kind, owner, key
    ON CONFLICT (kind, owner, key) DO UPDATE SET value = excluded.value, at = excluded.at
 WHERE records.at < excluded.at - $6::interval
RETURNING kind, owner, key;

-- name: records_among
SELECT records.kind, records.owner, records.key, records.value, records.at
  FROM unnest($1::text[], $2::text[], $3::text[]) AS given(kind, owner, key)
  JOIN records ON (records.kind, records.owner, records.key) BETWEEN (given.kind, given.owner, given.key)
                                                                 AND (given.kind, given.owner, given.key);

-- name: records
-- Of one key or, when $3 is NULL, of all.
SELECT kind, owner, key, value, at FROM records
 WHERE kind = $1 AND owner = $2 AND key BETWEEN coalesce($3::text, '') AND coalesce($3::text, U&'\+10FFFF')
 ORDER BY key;

-- name: put_records
INSERT INTO records (kind, owner, key, value, at)
SELECT * FROM {given_records} ORDER BY kind, owner, key
    ON CONFLICT (kind, owner, key) DO UPDATE SET value = excluded.value, at = excluded.at
 WHERE (records.value, records.at) IS DISTINCT FROM (excluded.value, excluded.at);

-- name: delete_records
-- Only while they have these values: another job may have taken a key meanwhile.
DELETE FROM records
 USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS given(kind, owner, key, value)
 WHERE (records.kind, records.owner, records.key) BETWEEN (given.kind, given.owner, given.key)
                                                      AND (given.kind, given.owner, given.key)
   AND records.value = given.value;

-- name: expire_idempotency
DELETE FROM records
 WHERE ctid = ANY(ARRAY(SELECT ctid FROM records WHERE kind = 'idempotency' AND at < $1 ORDER BY at LIMIT $2))
RETURNING 1;

-- ------------------------------------------------------------------------------------------------------------- events

-- name: add_events
INSERT INTO events (kind, owner, subjects)
SELECT kind, owner, array_agg(subject)
  FROM unnest($1::text[], $2::text[], $3::uuid[]) AS given(kind, owner, subject)
 GROUP BY kind, owner;

-- name: event_horizon
SELECT last, writers FROM event_horizon();

-- name: events_of_all
SELECT id, kind, owner, at, subjects FROM events WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3;

-- name: events_of_owner
SELECT id, kind, owner, at, subjects FROM events
 WHERE (owner, id) > ($4::text, $1::bigint) AND (owner, id) <= ($4::text, $2::bigint)
 ORDER BY owner, id
 LIMIT $3;

-- name: expire_events
-- Only the first are looked at: numbers and times have the same order, unless a clock was set back.
DELETE FROM events
 WHERE id = ANY(ARRAY(SELECT id FROM (SELECT id, at FROM events ORDER BY id LIMIT $2) AS oldest WHERE at < $1))
RETURNING 1;

-- ---------------------------------------------------------------------------------------------------------- planning

-- fragment: plannable(table)
-- $1 shards, $2 now, $3 how many.
(SELECT due.*
   FROM unnest($1::smallint[]) AS shards(shard)
  CROSS JOIN LATERAL (SELECT * FROM {table}
                       WHERE {table}.shard = shards.shard AND plan_at <= $2
                       ORDER BY plan_at
                       LIMIT $3) AS due
  ORDER BY due.plan_at
  LIMIT $3);

-- fragment: job_with_counts
-- Of its runs as many as $4 are counted: those that have not started, and all.
SELECT {job_columns},
       (SELECT count(*) FROM (SELECT FROM runs WHERE job_id = job.id AND job_id <> id
                                 AND state IN ('scheduled', 'claimed') LIMIT $4) AS unstarted),
       (SELECT count(*) FROM (SELECT FROM runs WHERE job_id = job.id AND job_id <> id LIMIT $4) AS live);

-- name: plannable_jobs
{job_with_counts} FROM {plannable(jobs)} AS job ORDER BY plan_at;

-- name: plannable_backfills
SELECT job.*, page.id, page.job_id, page.trigger, page.start_at, page.end_at, page.plan_at, page.created_at
  FROM {plannable(backfills)} AS page
 CROSS JOIN LATERAL ({job_with_counts} FROM jobs AS job WHERE id BETWEEN page.job_id AND page.job_id ORDER BY id LIMIT 1) AS job
 ORDER BY page.plan_at;

-- name: next_plan_at
SELECT least(min(job.plan_at), min(page.plan_at))
  FROM unnest($1::smallint[]) AS shards(shard)
  LEFT JOIN LATERAL (SELECT plan_at FROM jobs
                      WHERE jobs.shard = shards.shard AND plan_at > $2 ORDER BY plan_at LIMIT 1) AS job ON true
  LEFT JOIN LATERAL (SELECT plan_at FROM backfills
                      WHERE backfills.shard = shards.shard AND plan_at > $2 ORDER BY plan_at LIMIT 1) AS page ON true;

-- name: move_jobs
-- Guards have locked them, so that their places in the table stay as they are.
UPDATE jobs SET (next_fire_at, plan_at, status) =
                (SELECT ($2::timestamptz[])[place], ($3::timestamptz[])[place], ($4::text[])[place]
                   FROM (SELECT array_position($1, jobs.id) AS place OFFSET 0) AS given)
 WHERE ctid = ANY(ARRAY(SELECT ctid FROM jobs WHERE id = ANY($1::uuid[]) ORDER BY id));

-- name: delete_backfills
DELETE FROM backfills WHERE id = ANY($1::uuid[]);

-- ---------------------------------------------------------------------------------------------------------- changing

-- name: delete_runs
DELETE FROM runs WHERE id = ANY($1::uuid[]);

-- name: revise_one_shot
WITH woken(lane, moment) AS (
    SELECT $19::integer, $15::timestamptz WHERE NOT $17::boolean
), woken_lanes AS (
    {wake_lanes}
)
UPDATE runs
   SET task = $2, params = $3, params_blob = $4, name = $5, key = $6, labels = $7, queue = $8, priority = $9,
       ordering_key = $10, policy = $11, secrets = $12, schedule = $13, due_at = $14, wake_at = $15, gate = $16,
       paused = $17, revision = $18, lane = $19, shelf = $20, parked = false
 WHERE id = $1;

-- ---------------------------------------------------------------------------------------------------------- claiming

-- name: lanes
-- Those without an owner, of several, are told apart by a name that no owner can have.
SELECT id, queue, priority, coalesce(owner, chr(1) || id) FROM lanes WHERE id = ANY($1::integer[]);

-- fragment: wanted_lanes(queues)
-- Of the queues that the node works for (none means all), without paused ones.
(cardinality({queues}::text[]) = 0 OR queue = ANY({queues}::text[])) AND queue NOT IN (SELECT queue FROM queues WHERE paused);

-- fragment: put_off_lanes_after(moment)
SELECT *, true
  FROM (SELECT * FROM lanes WHERE settled_at IS NOT NULL ORDER BY settled_at DESC LIMIT 10000) AS put_off
 WHERE next_at > {moment};

-- fragment: lanes_due_by(moment)
-- Those with something to claim by then, and those that were put off and may have something all the same, or hold a run.
(SELECT *, false AS is_put_off FROM lanes WHERE next_at <= {moment}
  UNION ALL
 {put_off_lanes_after({moment})});

-- fragment: due_lanes
-- Lanes with something to claim by $5, and then those that were put off a moment ago. Not more than a claim can look into:
-- in these the owners take turns, each time with other lanes.
(SELECT array_agg(id)
   FROM (SELECT id
           FROM (SELECT id, priority, is_put_off,
                        row_number() OVER (PARTITION BY is_put_off, priority, owner ORDER BY random()) AS turn
                   FROM ((SELECT *, false AS is_put_off FROM lanes
                           WHERE next_at <= $5::timestamptz AND {wanted_lanes($14)}
                           ORDER BY next_at
                           LIMIT $16::bigint)
                          UNION ALL
                         {put_off_lanes_after($5::timestamptz)}) AS lanes
                  WHERE {wanted_lanes($14)}) AS due
          ORDER BY is_put_off, priority DESC, turn
          LIMIT $15::bigint) AS few);

-- fragment: ahead_in_gate(run)
FROM runs AS ahead WHERE ahead.gate = {run}.gate AND (ahead.due_at, ahead.id) < ({run}.due_at, {run}.id);

-- fragment: blocks_ahead(run)
FROM blocks WHERE blocks.gate = {run}.gate AND (blocks.due_at, blocks.run_id) < ({run}.due_at, {run}.id);

-- fragment: queue_rooms
-- The room of a queue with a limit is exact only while no other claim takes from it: without its lock it gives nothing.
SELECT queue, concurrency, changed_at,
       paused OR concurrency IS NOT NULL AND queue <> ALL($9::text[]) AS closed,
       CASE WHEN queue = ANY($9::text[])
            THEN concurrency - (SELECT count(*) FROM runs WHERE counted AND runs.queue = queues.queue)
        END AS room
  FROM queues;

-- fragment: open_lanes
-- Both statements of a claim begin with this: $1 node, $2 lanes, $3 tasks, $4 now, $5 until, $6 floor, $8 full gates, $9
-- queues whose limit is locked, $10 gates of other nodes whose due runs we have just read, $11 where the lanes of queues with
-- a limit begin.
settings AS MATERIALIZED (
    {queue_rooms}
), open AS MATERIALIZED (
    -- Runs that could not be taken for a while are below the floor. Where there is a limit, earlier claims say where they
    -- begin; they are looked for everywhere for a minute after any other setting has changed.
    SELECT lanes.id AS lane, priority, queue, room,
           CASE WHEN concurrency IS NOT NULL THEN given.floor
                WHEN changed_at >= $4::timestamptz - interval '1 min' THEN '-infinity'
                ELSE $6::timestamptz END AS floor
      FROM unnest($2::integer[], $11::timestamptz[]) AS given(lane, floor)
     CROSS JOIN LATERAL (SELECT * FROM lanes WHERE id = given.lane LIMIT 1) AS lanes
      LEFT JOIN settings USING (queue)
     WHERE closed IS NOT TRUE
);

-- fragment: takeable
-- Runs of gates that are full or another node's are left alone before they are due.
wake_at <= $5::timestamptz AND node IS NULL AND NOT parked AND NOT paused AND task = ANY($3::text[])
AND (gate IS NULL
     OR due_at <= $4::timestamptz AND wake_at <= $4::timestamptz AND gate <> ALL($10::text[])
     OR gate <> ALL($8::text[]) AND coalesce((SELECT node FROM gates WHERE gates.gate = runs.gate), $1::uuid) = $1::uuid);

-- fragment: claimable
runs.lane = open.lane AND wake_at >= open.floor AND {takeable};

-- fragment: offered_columns
-- Of a run nothing is sent that is known, or the same for all.
runs.id, nullif(job_id, runs.id) AS job_id, owner, created_by, {spec_columns}, schedule, trigger, slot, due_at, wake_at, gate,
state, stop, fence, attempt, crashes, revision, progress, error, created_at, first_started_at, started_at, requeue_of;

-- name: offers
-- How many runs each lane has, counted up to $7 by the conditions of `claim`: or runs that cannot be taken would use up the
-- share of those that can.
WITH {open_lanes}
SELECT lane, count, first_at, room
  FROM open
 CROSS JOIN LATERAL (SELECT count(*), min(wake_at) AS first_at
                       FROM (SELECT wake_at FROM runs
                              WHERE {claimable}
                              ORDER BY wake_at
                              LIMIT least($7::bigint, room)) AS few) AS first
 WHERE coalesce(room, 1) > 0 AND count > 0;

-- fragment: taking(free_gates)
-- What a claim does with the runs that it has locked, found(id, gate, due_at, wake_at, share, lane, queue, priority, room): pass
-- the gates, take the rest within the rooms of their queues, and free the gates that gave nothing.
taker AS MATERIALIZED (
    -- Locked, so that the removal of the node waits for us or is visible; but not for nothing, because that is a write.
    SELECT id FROM nodes WHERE id = $1 AND EXISTS (SELECT FROM found) FOR KEY SHARE
), heads AS MATERIALIZED (
    -- The first run of each gate, if all before it are ours, and none of them failed and blocks it.
    SELECT first.*
      FROM (SELECT DISTINCT ON (gate) * FROM found WHERE gate IS NOT NULL ORDER BY gate, due_at, id) AS first
     WHERE gate <> ALL($8::text[]) AND EXISTS (SELECT FROM taker)
       AND (SELECT true {ahead_in_gate(first)} AND ahead.node IS DISTINCT FROM $1 LIMIT 1) IS NULL
       AND (SELECT true {blocks_ahead(first)} LIMIT 1) IS NULL
), outside AS MATERIALIZED (
    -- Runs beyond the room of their queue: its lanes share the room, those of one priority in turn.
    SELECT id
      FROM (SELECT id, share, room, place,
                   row_number() OVER (PARTITION BY queue
                                      ORDER BY priority DESC, place, wake_at, due_at, id) AS place_in_queue
              FROM (SELECT *, row_number() OVER (PARTITION BY lane ORDER BY wake_at, due_at, id) AS place
                      FROM (SELECT * FROM found WHERE room IS NOT NULL AND gate IS NULL
                            UNION ALL
                            SELECT * FROM heads
                             WHERE room IS NOT NULL
                               AND coalesce((SELECT node FROM gates WHERE gates.gate = heads.gate), $1) = $1) AS fit
                   ) AS placed) AS ranked
     WHERE place > share OR place_in_queue > room
), kept AS MATERIALIZED (
    -- Gates that are ours already are only locked: an earlier claim of ours whose answer was lost may just be freeing
    -- them. We may have many gates: hence no condition that the index of nodes could answer.
    SELECT gate FROM gates
     WHERE gate = ANY(ARRAY(SELECT gate FROM heads WHERE id NOT IN (SELECT id FROM outside)))
       AND node IS NOT DISTINCT FROM $1
     ORDER BY gate
       FOR KEY SHARE
), taken AS MATERIALIZED (
    -- The first to write a gate has it; in the order of their names, so that two claims never wait for each other.
    INSERT INTO gates (gate, node)
    SELECT gate, $1
      FROM heads
     WHERE id NOT IN (SELECT id FROM outside) AND (gate IN (SELECT gate FROM kept)) IS NOT TRUE
     ORDER BY gate
        ON CONFLICT DO NOTHING
    RETURNING gate
), ours AS MATERIALIZED (
    SELECT gate FROM kept UNION ALL SELECT gate FROM taken
), freed AS (
    DELETE FROM gates
     WHERE gate = ANY(ARRAY(SELECT idle FROM unnest({free_gates}::text[]) AS idle WHERE (idle IN (SELECT gate FROM ours)) IS NOT TRUE))
       AND node IS NOT DISTINCT FROM $1
), passed AS MATERIALIZED (
    -- IS TRUE keeps this from becoming a join, which without hashing would compare every gate with every other.
    SELECT id, room FROM heads WHERE (gate IN (SELECT gate FROM ours)) IS TRUE
), claimed AS (
    UPDATE runs SET state = 'claimed', node = $1, fence = fence + 1, counted = chosen.counted
      FROM (SELECT id, room IS NOT NULL AS counted
              FROM found
             WHERE gate IS NULL AND (room IS NULL OR id NOT IN (SELECT id FROM outside))
            UNION ALL
            SELECT id, room IS NOT NULL FROM passed) AS chosen
     WHERE runs.id BETWEEN chosen.id AND chosen.id AND EXISTS (SELECT FROM taker)
    RETURNING {offered_columns}
), blocked AS (
    -- Due, but behind another node's run, or in another node's gate. The one after a run just taken is only next.
    SELECT found.id
      FROM found
     WHERE gate IS NOT NULL AND due_at <= $4::timestamptz AND wake_at <= $4::timestamptz
       AND id NOT IN (SELECT id FROM passed) AND id NOT IN (SELECT id FROM outside)
       AND (gate NOT IN (SELECT gate FROM ours)
            OR EXISTS (SELECT {ahead_in_gate(found)} AND ahead.node IS DISTINCT FROM $1
                          AND ahead.id NOT IN (SELECT id FROM passed))
            OR EXISTS (SELECT {blocks_ahead(found)}))
);

-- name: claim
-- $7 limit, $12 how many each lane gives (`core.decisions.fairness`), $13 gates that the node holds and has no run of, $14
-- queues that it works for, $15 how many lanes a claim may look into, $16 how many due ones it lists.
-- In one statement: lock what the lanes give, pass the gates, take the rest, and free the gates that gave nothing.
WITH me AS MATERIALIZED (
    SELECT id FROM nodes WHERE id = $1
), {open_lanes}, found AS MATERIALIZED (
    -- Of a queue with a limit a few more are looked at: blocked runs must not take the place of others.
    SELECT run.*, given.share, open.lane, open.queue, open.priority, open.room
      FROM unnest($2::integer[], $12::integer[]) AS given(lane, share) JOIN open USING (lane)
     CROSS JOIN LATERAL (SELECT id, gate, due_at, wake_at FROM runs
                          WHERE {claimable}
                          ORDER BY wake_at
                          LIMIT least(given.share, open.room) + CASE WHEN open.room IS NULL THEN 0 ELSE 100 END
                            FOR UPDATE SKIP LOCKED) AS run
     WHERE given.share > 0 AND coalesce(open.room, 1) > 0 AND EXISTS (SELECT FROM me)
), {taking($13)}, remaining AS MATERIALIZED (
    -- Where the runs begin that wait in queues with a limit, of tasks that the node knows.
    SELECT lane, coalesce((SELECT wake_at FROM runs
                            WHERE runs.lane = open.lane AND wake_at >= open.floor AND wake_at <= $5::timestamptz
                              AND node IS NULL AND NOT parked AND NOT paused AND task = ANY($3::text[])
                              AND id NOT IN (SELECT id FROM claimed)
                            ORDER BY wake_at
                            LIMIT 1), $5::timestamptz) AS left_at
      FROM open
     WHERE room IS NOT NULL
)
-- The answer comes first, without a run.
SELECT no_run.*, NULL AS mine,
       EXISTS (SELECT FROM taker) OR EXISTS (SELECT FROM me) AND NOT EXISTS (SELECT FROM found) AS alive,
       (SELECT nullif(min(wake_at), 'infinity')
          FROM (SELECT later.wake_at
                  FROM open
                 CROSS JOIN LATERAL (SELECT wake_at FROM runs
                                      WHERE runs.lane = open.lane
                                        AND wake_at > $5::timestamptz
                                        AND node IS NULL AND NOT parked AND NOT paused
                                      ORDER BY wake_at
                                      LIMIT 1) AS later
                 UNION ALL
                (SELECT next_at FROM lanes
                  WHERE next_at > $5::timestamptz AND {wanted_lanes($14)}
                  ORDER BY next_at
                  LIMIT 1)) AS later) AS next_at,
       $7::bigint > 0 AND ((SELECT count(*) FROM claimed) >= $7::bigint
                           OR (SELECT count(*) FROM found WHERE room IS NULL) >= $7::bigint) AS more,
       (SELECT min(wake_at) FROM found) AS first_at,
       (SELECT array_agg(queue) FROM settings WHERE concurrency IS NOT NULL) AS limited,
       {due_lanes} AS lanes,
       (SELECT min(wake_at) FROM found
         WHERE (gate IN (SELECT gate FROM ours)) IS TRUE AND (id IN (SELECT id FROM passed)) IS NOT TRUE) AS lined_up_at,
       (SELECT array_agg(lane) FROM remaining) AS left_lanes,
       (SELECT array_agg(left_at) FROM remaining) AS left_ats
  FROM (SELECT) AS answer LEFT JOIN (SELECT {offered_columns} FROM runs WHERE false) AS no_run ON true
 UNION ALL
SELECT claimed.*, true, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM claimed
 UNION ALL
SELECT {offered_columns}, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM blocked JOIN runs ON runs.id BETWEEN blocked.id AND blocked.id
 ORDER BY priority DESC NULLS FIRST, wake_at, due_at, id;

-- name: claim_among
-- The same of given runs, whatever their lanes have. $2 their ids, $6 the queues that the node works for, $7 limit, $11 gates that
-- the node holds and has no run of.
WITH me AS MATERIALIZED (
    SELECT id FROM nodes WHERE id = $1
), settings AS MATERIALIZED (
    {queue_rooms}
), given AS MATERIALIZED (
    SELECT id FROM unnest($2::uuid[]) AS given(id)
), found AS MATERIALIZED (
    SELECT run.id, gate, due_at, wake_at, 2147483647 AS share, lane, run.queue, priority, room
      FROM given
     CROSS JOIN LATERAL (SELECT id, gate, due_at, wake_at, lane, queue, priority FROM runs
                          WHERE runs.id BETWEEN given.id AND given.id AND {takeable}
                          LIMIT 1
                            FOR UPDATE SKIP LOCKED) AS run
      LEFT JOIN settings ON settings.queue = run.queue
     WHERE (cardinality($6::text[]) = 0 OR run.queue = ANY($6::text[]))
       AND closed IS NOT TRUE AND coalesce(room, 1) > 0 AND $7::bigint > 0 AND EXISTS (SELECT FROM me)
     ORDER BY priority DESC, wake_at, due_at, run.id
     LIMIT $7::bigint
), {taking($11)}, staying AS MATERIALIZED (
    -- What may be claimed later; the answer to a claim looks as it did before the claim.
    SELECT run.id, run.wake_at
      FROM given
     CROSS JOIN LATERAL (SELECT id, wake_at FROM runs
                          WHERE runs.id BETWEEN given.id AND given.id AND node IS NULL AND NOT parked AND NOT paused
                          LIMIT 1) AS run
     WHERE run.id NOT IN (SELECT id FROM claimed) AND run.id NOT IN (SELECT id FROM blocked)
)
SELECT no_run.*, NULL AS mine,
       EXISTS (SELECT FROM taker) OR EXISTS (SELECT FROM me) AND NOT EXISTS (SELECT FROM found) AS alive,
       (SELECT array_agg(queue) FROM settings WHERE concurrency IS NOT NULL) AS limited,
       (SELECT min(wake_at) FROM found
         WHERE (gate IN (SELECT gate FROM ours)) IS TRUE AND (id IN (SELECT id FROM passed)) IS NOT TRUE) AS lined_up_at,
       (SELECT array_agg(id ORDER BY id) FROM staying) AS staying_ids,
       (SELECT array_agg(wake_at ORDER BY id) FROM staying) AS staying_ats
  FROM (SELECT) AS answer LEFT JOIN (SELECT {offered_columns} FROM runs WHERE false) AS no_run ON true
 UNION ALL
SELECT claimed.*, true, NULL, NULL, NULL, NULL, NULL FROM claimed
 UNION ALL
SELECT {offered_columns}, false, NULL, NULL, NULL, NULL, NULL
  FROM blocked JOIN runs ON runs.id BETWEEN blocked.id AND blocked.id
 ORDER BY priority DESC NULLS FIRST, wake_at, due_at, id;

-- name: contested_among
-- $1 ids, $2 limited queues, $3 tasks, $4 now. The same of given runs that a claim left for lack of room.
SELECT live_runs.*
  FROM unnest($1::uuid[]) AS given(id)
 CROSS JOIN LATERAL (SELECT id, task, queue, gate, due_at FROM runs
                      WHERE runs.id BETWEEN given.id AND given.id AND wake_at <= $4
                        AND node IS NULL AND NOT parked AND NOT paused
                      LIMIT 1) AS next
  JOIN live_runs ON live_runs.id BETWEEN next.id AND next.id
 WHERE next.task = ANY($3::text[]) AND next.queue = ANY($2::text[]) AND next.gate IS NOT NULL AND next.due_at <= $4
   AND (EXISTS (SELECT {ahead_in_gate(next)}) OR EXISTS (SELECT {blocks_ahead(next)}));

-- fragment: tickets_in_lanes(which, order)
-- Tickets of lanes with something to claim by $2, the first $3 of each.
SELECT run.id, run.task, lanes.queue, lanes.priority, run.owner, run.wake_at
  FROM {lanes_due_by($2::timestamptz)} AS lanes
 CROSS JOIN LATERAL (SELECT id, task, owner, wake_at FROM runs
                      WHERE runs.lane = lanes.id AND {which} AND node IS NULL AND NOT parked AND NOT paused
                      ORDER BY {order}
                      LIMIT $3::bigint) AS run
 WHERE lanes.queue NOT IN (SELECT queue FROM queues WHERE paused)
 ORDER BY run.{order}
 LIMIT $3::bigint;

-- fragment: within
wake_at >= $1::timestamptz AND wake_at <= $2::timestamptz;

-- name: waiting
-- A page of tickets from $1 up to $2, by wake_at alone: by id as well, all of a lane would be sorted for each page.
{tickets_in_lanes({within}, wake_at)};

-- fragment: at_once
wake_at = $1::timestamptz AND wake_at <= $2::timestamptz AND id > $4::uuid;

-- name: waiting_at
-- A page of tickets of one instant, by id: for when there are more of them than a page has.
{tickets_in_lanes({at_once}, id)};

-- name: next_in_gates
SELECT next.id, next.task, next.queue, next.priority, next.owner, next.wake_at
  FROM unnest($1::text[]) AS given(gate)
 CROSS JOIN LATERAL (SELECT id, task, queue, priority, owner, wake_at FROM runs
                      WHERE runs.gate = given.gate AND node IS NULL AND NOT parked AND NOT paused
                      ORDER BY due_at, id
                      LIMIT 1) AS next
 WHERE next.wake_at >= $2::timestamptz AND next.wake_at <= $3::timestamptz
   AND next.queue NOT IN (SELECT queue FROM queues WHERE paused);

-- name: due_lanes_of_each_owner
-- For when too many lanes are due to list them: of each owner those that were looked into longest ago, and those that have
-- just become due. $1 until, $2 queues, $3 how many are listed otherwise, $4 of each kind, $5 lanes in all.
WITH RECURSIVE owners AS (
   (SELECT owner FROM lanes WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT lanes.owner FROM lanes WHERE lanes.owner > owners.owner ORDER BY lanes.owner LIMIT 1)
      FROM owners
     WHERE owner IS NOT NULL
), due AS (
    SELECT few.id, few.priority, few.owner, few.next_at
      FROM owners
     CROSS JOIN LATERAL ((SELECT * FROM lanes
                           WHERE lanes.owner = owners.owner AND next_at <= $1::timestamptz AND {wanted_lanes($2)}
                           ORDER BY next_at
                           LIMIT $4::bigint)
                           UNION
                         (SELECT * FROM lanes
                           WHERE lanes.owner = owners.owner AND next_at <= $1::timestamptz AND {wanted_lanes($2)}
                           ORDER BY next_at DESC
                           LIMIT $4::bigint)) AS few
     UNION ALL
   (SELECT id, priority, owner, next_at FROM lanes
     WHERE owner IS NULL AND next_at <= $1::timestamptz AND {wanted_lanes($2)}
     LIMIT $4::bigint)
), chosen AS (
    SELECT id, row_number() OVER (PARTITION BY owner ORDER BY random()) AS turn FROM due
)
SELECT array_agg(id)
  FROM (SELECT id FROM chosen
         WHERE (SELECT count(*) FROM (SELECT FROM lanes WHERE next_at <= $1::timestamptz LIMIT $3::bigint) AS listed) >= $3::bigint
         ORDER BY turn, random()
         LIMIT $5::bigint) AS few;

-- name: lock_limits
-- In an order, so that two claims never wait for each other. No row is locked, because that would be a write.
SELECT pg_advisory_xact_lock(number)
  FROM (SELECT DISTINCT hashtext(current_schema() || ' limit of queue ' || queue) AS number
          FROM unnest($1::text[]) AS given(queue)
         ORDER BY number) AS numbers;

-- name: contested_beyond_limits
-- $1 lanes of queues with a limit, $2 where the runs begin that wait there, $3 tasks, $4 now, $5 how many to look at
-- Due runs that a claim left for lack of room: one that is behind another in its gate may still overlap.
SELECT live_runs.*
  FROM unnest($1::integer[], $2::timestamptz[]) AS given(lane, floor)
 CROSS JOIN LATERAL (SELECT id, task, gate, due_at FROM runs
                      WHERE runs.lane = given.lane AND wake_at >= given.floor AND wake_at <= $4
                        AND node IS NULL AND NOT parked AND NOT paused
                      ORDER BY wake_at
                      LIMIT $5) AS next
  JOIN live_runs ON live_runs.id BETWEEN next.id AND next.id
 WHERE next.task = ANY($3::text[]) AND next.gate IS NOT NULL AND next.due_at <= $4
   AND (EXISTS (SELECT {ahead_in_gate(next)}) OR EXISTS (SELECT {blocks_ahead(next)}));

-- name: rivals
-- The runs ahead of each run in its gate, or held in it by another node. The first few are enough to decide by, because only
-- those can have started; the nearest of the same job is added, because it may wait further back.
SELECT given.id, rival.id, rival.job_id, rival.first_started_at, rival.failed
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[]) AS given(id, job_id, gate, due_at)
 CROSS JOIN LATERAL (
       (SELECT id, job_id, first_started_at, false AS failed {ahead_in_gate(given)}
         ORDER BY ahead.due_at, ahead.id
         LIMIT 20)
        UNION
       (SELECT id, job_id, first_started_at, false FROM runs AS nearest
         WHERE nearest.job_id = given.job_id AND nearest.job_id <> nearest.id AND nearest.gate || '' = given.gate
           AND nearest.due_at <= given.due_at AND (nearest.due_at, nearest.id) < (given.due_at, given.id)
         ORDER BY nearest.due_at DESC
         LIMIT 1)
        UNION
       (SELECT id, job_id, first_started_at, false
          FROM (SELECT id, job_id, first_started_at, node FROM runs AS line
                 WHERE line.gate = given.gate
                 ORDER BY line.due_at, line.id
                 LIMIT 100) AS held
         WHERE held.node <> $1)
        UNION
       (SELECT run_id, job_id, NULL, true {blocks_ahead(given)}
         ORDER BY blocks.due_at, blocks.run_id
         LIMIT 1)) AS rival;

-- name: park_runs
UPDATE runs SET parked = true WHERE id = ANY($1::uuid[]);

-- name: wake_parked
SELECT wake_parked($1::text[], $2::timestamptz[]);

-- ------------------------------------------------------------------------------------------------- starting and ending

-- name: start_runs
UPDATE runs SET state = 'running', going = true, attempt = given.attempt, progress = given.progress,
                started_at = given.started_at, first_started_at = given.first_started_at
  FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::float8[], $5::timestamptz[], $6::timestamptz[])
       AS given(id, fence, attempt, progress, started_at, first_started_at)
 WHERE runs.id BETWEEN given.id AND given.id AND runs.fence = given.fence AND runs.state IN ('claimed', 'running')
RETURNING runs.id;

-- name: end_runs
-- $1 whether the runs are held; else they wait. $2 batches of runs that ended alike, $3 how many they are in all, $4 whether
-- they leave their gates at once.
-- The fence shuts out a worker that lost its claim: it deletes no row, so nothing enters the history. Secrets are dropped as
-- `effects_of_end` says, and events are named as by `end_of_run`. Returns how many ended, which if not all, and when runs wake
-- because of them.
WITH gone AS (
    DELETE FROM runs
     USING unnest($2::run_ends[]) AS batch
     CROSS JOIN LATERAL unnest(ids, results, first_started_ats, started_ats, finished_ats)
                        AS own(id, result, first_started_at, started_at, finished_at)
     WHERE runs.id BETWEEN own.id AND own.id AND runs.fence = batch.fence AND (runs.node IS NOT NULL) = $1::boolean
    RETURNING runs.id, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key,
              policy, CASE WHEN batch.state <> 'succeeded' THEN secrets END, schedule, trigger, slot, due_at, wake_at, gate,
              batch.state, paused, stop, node, runs.fence, batch.attempt, batch.crashes, revision, batch.progress,
              batch.error, result, reason, created_at, coalesce(own.first_started_at, own.started_at), own.started_at,
              finished_at, requeue_of, shelf
), kept AS (
    INSERT INTO history (id, job_id, owner, created_by, {spec_columns}, schedule, trigger, slot, due_at, wake_at, gate, state,
                         paused, stop, node, fence, attempt, crashes, revision, progress, error, result, reason, created_at,
                         first_started_at, started_at, finished_at, requeue_of, shelf, ended_on)
    SELECT *, (finished_at AT TIME ZONE interval '0')::date FROM gone  -- UTC, without a look at its rules for each
), new_events AS (
    INSERT INTO events (kind, owner, subjects)
    SELECT 'run.' || state, owner, array_agg(id) FROM gone GROUP BY state, owner
)
SELECT count(*), CASE WHEN count(*) < $3::bigint THEN array_agg(id) END,
       CASE WHEN count(*) < $3::bigint THEN array_agg(fence) END,
       CASE WHEN $4::boolean AND count(gate) > 0 THEN wake_parked(array_agg(gate), array_agg(finished_at)) END
  FROM gone;

-- name: return_runs
WITH returned AS (
    UPDATE runs SET state = given.state, node = NULL, counted = false, going = false, wake_at = given.wake_at,
                    attempt = given.attempt, crashes = given.crashes, progress = given.progress, error = given.error,
                    first_started_at = given.first_started_at, started_at = given.started_at
      FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[], $5::integer[], $6::integer[], $7::float8[],
                  $8::text[], $9::timestamptz[], $10::timestamptz[])
           AS given(id, fence, state, wake_at, attempt, crashes, progress, error, first_started_at, started_at)
     WHERE runs.id BETWEEN given.id AND given.id AND runs.fence = given.fence AND runs.state IN ('claimed', 'running')
    RETURNING runs.id, runs.fence, runs.lane, runs.wake_at
), woken(lane, moment) AS (
    SELECT lane, min(wake_at) FROM returned GROUP BY lane
), woken_lanes AS (
    {wake_lanes}
)
SELECT id, fence FROM returned;

-- name: settled_before
-- Results that are in the store already: they were sent again because the answer was lost.
SELECT given.id
  FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS given(id, fence, state)
  JOIN history ON history.id BETWEEN given.id AND given.id AND history.fence = given.fence AND history.state = given.state
 UNION ALL
SELECT given.id
  FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS given(id, fence, state)
  JOIN runs ON runs.id BETWEEN given.id AND given.id AND runs.fence = given.fence AND runs.state = given.state
 WHERE runs.state IN ('scheduled', 'retrying');

-- name: add_attempts
INSERT INTO attempts (run_id, number, fence, node, started_at, ended_at, outcome, error, ended_on)
SELECT *, (ended_at AT TIME ZONE 'UTC')::date
  FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::uuid[], $5::timestamptz[], $6::timestamptz[], $7::text[],
              $8::text[]) AS given(run_id, number, fence, node, started_at, ended_at, outcome, error)
    ON CONFLICT DO NOTHING;

-- name: insert_blocks
INSERT INTO blocks (gate, due_at, run_id, job_id, ended_on)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::uuid[], $4::uuid[], $5::date[])
    ON CONFLICT DO NOTHING;

-- name: set_stops
UPDATE runs SET stop = given.stop FROM unnest($1::uuid[], $2::text[]) AS given(id, stop)
 WHERE runs.id BETWEEN given.id AND given.id;

-- name: stops
SELECT id, stop FROM runs WHERE stop IS NOT NULL AND node = $1;

-- name: held
SELECT given.id, given.fence
  FROM unnest($1::uuid[], $2::bigint[], $3::uuid[]) AS given(id, fence, node)
  JOIN runs ON runs.id BETWEEN given.id AND given.id AND runs.fence = given.fence AND runs.node = given.node;

-- ------------------------------------------------------------------------------------------------------- dead letters

-- name: resolve_letters
-- $3: the first day to look at.
UPDATE history SET resolution = given.resolution
  FROM unnest($1::uuid[], $2::text[]) AS given(id, resolution)
 WHERE history.id BETWEEN given.id AND given.id AND history.ended_on >= $3;

-- name: delete_blocks
DELETE FROM blocks USING unnest($1::text[], $2::timestamptz[], $3::uuid[]) AS given(gate, due_at, run_id)
 WHERE (blocks.gate, blocks.due_at, blocks.run_id) BETWEEN (given.gate, given.due_at, given.run_id)
                                                       AND (given.gate, given.due_at, given.run_id);

-- name: count_dead_letters
-- $1 bound. The order is that of the smallest index that has them all.
SELECT count(*)
  FROM (SELECT FROM history
         WHERE state = 'failed' AND resolution IS NULL
         ORDER BY job_id, due_at, id
         LIMIT $1::bigint) AS counted;

-- ------------------------------------------------------------------------------------------------------------- nodes

-- name: put_node
INSERT INTO nodes ({node_columns})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (id) DO UPDATE
   SET name = excluded.name, roles = excluded.roles, version = excluded.version, queues = excluded.queues,
       concurrency = excluded.concurrency, started_at = excluded.started_at, beat_at = excluded.beat_at,
       running = excluded.running, tasks = excluded.tasks, wall_ahead = excluded.wall_ahead;

-- name: beat
UPDATE nodes SET beat_at = $2, running = $3, wall_ahead = $4 WHERE id = $1 RETURNING id;

-- name: nodes_since
SELECT {node_columns} FROM nodes WHERE beat_at >= $1 ORDER BY started_at, id;

-- name: delete_gates_of_nodes
DELETE FROM gates WHERE node = ANY($1::uuid[]);

-- name: delete_nodes
DELETE FROM nodes WHERE id = ANY($1::uuid[]);

-- name: dead_nodes
-- Removed nodes that may still hold runs.
SELECT node, last_at FROM graves WHERE NOT EXISTS (SELECT FROM nodes WHERE nodes.id = graves.node);

-- name: lock_dead_nodes
-- Whether no other process looks for their runs.
SELECT pg_try_advisory_xact_lock(hashtext(current_schema() || ' dead nodes'));

-- name: lanes_up_to
-- Those with runs that wake by $1.
SELECT lanes.id
  FROM {lanes_due_by($1)} AS lanes
 CROSS JOIN LATERAL (SELECT FROM runs
                      WHERE runs.lane = lanes.id AND wake_at <= $1 AND NOT parked AND NOT paused
                      LIMIT 1) AS one;

-- name: orphans
-- $1 nodes, $2 lane, $3 behind this time, $4 up to this one, $5 how many to look at.
-- Each row has the time up to which was looked, NULL at the end, and may have no run. Runs that wake at one instant are looked
-- at in one go, even millions: only those that are found are kept in memory.
WITH last AS MATERIALIZED (
    SELECT (SELECT wake_at FROM runs
             WHERE lane = $2 AND wake_at > $3 AND wake_at <= $4 AND NOT parked AND NOT paused
             ORDER BY wake_at
            OFFSET $5::bigint - 1
             LIMIT 1) AS wake_at
), found AS MATERIALIZED (
    SELECT id FROM runs
     WHERE lane = $2 AND wake_at > $3 AND wake_at <= coalesce((SELECT wake_at FROM last), $4)
       AND NOT parked AND NOT paused AND node = ANY($1::uuid[])
)
SELECT orphan.*, last.wake_at
  FROM last
  LEFT JOIN (SELECT live_runs.*
               FROM found JOIN live_runs ON live_runs.id BETWEEN found.id AND found.id) AS orphan ON true;

-- name: forget_dead_nodes
DELETE FROM graves WHERE node = ANY($1::uuid[]);

-- name: free_gates_of_dead_nodes
WITH RECURSIVE holders(node) AS (
    (SELECT node FROM gates ORDER BY node LIMIT 1)
    UNION ALL
    SELECT (SELECT gates.node FROM gates WHERE gates.node > holders.node ORDER BY gates.node LIMIT 1)
      FROM holders
     WHERE holders.node IS NOT NULL
), gone AS (
    SELECT node FROM holders
     WHERE node IS NOT NULL AND NOT EXISTS (SELECT FROM nodes WHERE nodes.id = holders.node)
)
DELETE FROM gates USING gone
 WHERE gates.node BETWEEN gone.node AND gone.node
   AND (SELECT true FROM runs WHERE runs.gate = gates.gate AND runs.node = gates.node LIMIT 1) IS NULL
RETURNING gates.gate;

-- name: wake_unblocked
-- From gate to gate: a parked run with nothing ahead of it and nothing held in its gate lost a race, or the dead letter that
-- blocked it was pruned. $2 the gate after which to look, $3 how many gates; the first row has the last of these, NULL at
-- the end.
WITH RECURSIVE waiting(gate, place) AS (
    (SELECT gate, 1 FROM runs WHERE parked AND gate > $2 ORDER BY gate LIMIT 1)
    UNION ALL
    SELECT (SELECT runs.gate FROM runs WHERE runs.parked AND runs.gate > waiting.gate ORDER BY runs.gate LIMIT 1), place + 1
      FROM waiting
     WHERE waiting.gate IS NOT NULL AND place < $3::integer
), unblocked AS (
    -- `> false` keeps the index of parked runs away, all of which a join might read for each gate.
    UPDATE runs SET parked = false, wake_at = greatest(runs.wake_at, $1)
      FROM waiting
     CROSS JOIN LATERAL (SELECT id, gate, due_at FROM runs AS first
                          WHERE first.gate = waiting.gate AND parked
                          ORDER BY first.due_at, first.id
                          LIMIT 1) AS first
     WHERE runs.id BETWEEN first.id AND first.id AND runs.parked > false
       AND (SELECT true {ahead_in_gate(first)} LIMIT 1) IS NULL
       AND NOT EXISTS (SELECT FROM (SELECT node FROM runs AS line
                                     WHERE line.gate = waiting.gate
                                     ORDER BY line.due_at, line.id
                                     LIMIT 100) AS line
                        WHERE line.node IS NOT NULL)
       AND (SELECT true {blocks_ahead(first)} LIMIT 1) IS NULL
    RETURNING runs.lane, runs.wake_at
), woken(lane, moment) AS (
    SELECT lane, min(wake_at) FROM unblocked GROUP BY lane
), woken_lanes AS (
    {wake_lanes}
)
SELECT (SELECT gate FROM waiting WHERE place = $3::integer), NULL AS wake_at
 UNION ALL
SELECT NULL, wake_at FROM unblocked;

-- fragment: first_in_lane
(SELECT wake_at FROM runs
  WHERE runs.lane = lanes.id AND node IS NULL AND NOT parked AND NOT paused
  ORDER BY wake_at
  LIMIT 1);

-- name: settle_lanes
-- Lanes that were put off long enough ago: every run that was written before is visible by now. Not while a node holds a
-- run of it, or the runs of dead nodes would not be found.
UPDATE lanes SET settled_at = NULL, next_at = least(next_at, {first_in_lane})
 WHERE id = ANY(ARRAY(SELECT id FROM lanes
                       WHERE settled_at <= $1
                         AND (SELECT true FROM runs
                               WHERE runs.lane = lanes.id AND wake_at <= $1 AND NOT parked AND NOT paused
                               LIMIT 1) IS NULL
                       ORDER BY settled_at
                       LIMIT 1000
                         FOR NO KEY UPDATE SKIP LOCKED));

-- name: put_off_lanes
-- Lanes that are due and have nothing to claim: claims go on looking into them for half a minute, in case somebody read the
-- old time and still commits a run. Whoever reads the new time sets it back.
UPDATE lanes SET next_at = coalesce({first_in_lane}, 'infinity'), settled_at = $1::timestamptz + interval '30 s'
 WHERE id = ANY(ARRAY(SELECT id
                        FROM (SELECT id, {first_in_lane} AS wake_at FROM lanes
                               WHERE next_at <= $1 AND settled_at IS NULL
                               ORDER BY next_at
                               LIMIT 1000
                                 FOR NO KEY UPDATE SKIP LOCKED) AS first
                       WHERE coalesce(wake_at, 'infinity') > $1::timestamptz + interval '1 s'));

-- name: look_later
-- Lanes that are due and had nothing for a claim: if there are more than $3, they stay due behind the others of their owner.
UPDATE lanes SET next_at = $2
 WHERE id = ANY(ARRAY(SELECT id FROM lanes
                       WHERE id = ANY($1::integer[]) AND next_at < $2::timestamptz - interval '1 s'
                         AND (SELECT count(*) FROM (SELECT FROM lanes WHERE next_at <= $2 LIMIT $3::bigint + 1) AS counted)
                             > $3::bigint
                       ORDER BY id
                         FOR NO KEY UPDATE SKIP LOCKED));

-- name: recheck_lanes
-- A few lanes after $1, in turn: should a transaction have taken longer than any is expected to, its runs are found here.
-- Returns the last lane that was looked at; NULL at the end.
WITH few AS MATERIALIZED (
    SELECT id, next_at, {first_in_lane} AS wake_at FROM lanes WHERE id > $1 ORDER BY id LIMIT $2::bigint
), woken(lane, moment) AS (
    SELECT id, wake_at FROM few WHERE wake_at < next_at
), woken_lanes AS (
    {wake_lanes}
)
SELECT CASE WHEN count(*) = $2::bigint THEN max(id) END FROM few;

-- name: remove_lanes
-- Lanes without a run that no node has learned of for an hour. Parked and paused runs are in no index by lane.
DELETE FROM lanes
 WHERE id = ANY(ARRAY(SELECT id FROM lanes
                       WHERE next_at = 'infinity' AND settled_at IS NULL AND used_at < clock_timestamp() - interval '1 h'
                         AND (SELECT true FROM runs WHERE runs.lane = lanes.id AND NOT parked AND NOT paused LIMIT 1) IS NULL
                         AND id NOT IN (SELECT lane FROM runs WHERE parked UNION SELECT lane FROM runs WHERE paused)
                       LIMIT 1000
                         FOR UPDATE SKIP LOCKED));

-- name: remove_shelves
-- Of some shelves after $1, those without a run that no node has learned of for an hour. Returns the last shelf that was looked
-- at; NULL at the end.
WITH few AS MATERIALIZED (
    SELECT id FROM shelves WHERE id > $1 ORDER BY id LIMIT $2::bigint
), removed AS (
    DELETE FROM shelves
     WHERE id = ANY(ARRAY(SELECT id FROM shelves
                           WHERE id = ANY(ARRAY(SELECT id FROM few))
                             AND used_at < clock_timestamp() - interval '1 h'
                             AND (SELECT true FROM runs WHERE runs.shelf = shelves.id LIMIT 1) IS NULL
                             AND (SELECT true FROM history WHERE history.shelf = shelves.id LIMIT 1) IS NULL
                             FOR UPDATE SKIP LOCKED))
)
SELECT CASE WHEN count(*) = $2::bigint THEN max(id) END FROM few;

-- ------------------------------------------------------------------------------------------------------------ pruning

-- name: drop_days
SELECT drop_history_days($1, $2);

-- name: drop_archived_days
SELECT drop_archived_days($1, $2, $3);

-- name: history_days
SELECT to_date(right(relname, 8), 'YYYYMMDD') AS day
  FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
 WHERE inhparent = 'history'::regclass AND to_date(right(relname, 8), 'YYYYMMDD') < $1
 ORDER BY day;

-- name: ended_page
-- Runs that were restored from the archive are kept with a later day than that of their end.
SELECT * FROM ended_runs
 WHERE ended_on = $1 AND id > $2 AND ended_on = (finished_at AT TIME ZONE interval '0')::date
 ORDER BY id LIMIT $3;

-- name: lock_restores
SELECT pg_advisory_xact_lock(hashtext(current_schema() || ' restores'));

-- name: restore_runs
INSERT INTO history
SELECT given.* FROM json_populate_recordset(NULL::history, $1::text::json) AS given
 WHERE NOT EXISTS (SELECT FROM runs WHERE runs.id = given.id)
   AND NOT EXISTS (SELECT FROM history WHERE history.id = given.id)
    ON CONFLICT DO NOTHING
RETURNING id;

-- name: forget_attempts
-- Of runs that are restored soon after they were archived: attempts stay two days longer than runs.
DELETE FROM attempts WHERE run_id = ANY($1::uuid[]);

-- name: restore_attempts
INSERT INTO attempts SELECT * FROM json_populate_recordset(NULL::attempts, $1::text::json) ON CONFLICT DO NOTHING;

-- name: prune_blocks
DELETE FROM blocks WHERE ended_on < $1;

-- name: prune_skips
DELETE FROM skips WHERE ctid = ANY(ARRAY(SELECT ctid FROM skips WHERE end_at < $1 ORDER BY end_at LIMIT $2)) RETURNING 1;

-- name: prune_jobs
-- Cancelled jobs without runs, of which nothing is left to tell, and the schedules that they had.
WITH old AS MATERIALIZED (
    SELECT id, owner FROM jobs
     WHERE status = 'cancelled' AND updated_at < $1
       AND (SELECT true FROM runs WHERE runs.job_id = jobs.id AND runs.job_id <> runs.id LIMIT 1) IS NULL
       AND (SELECT true FROM history WHERE history.job_id = jobs.id AND history.job_id <> history.id LIMIT 1) IS NULL
     ORDER BY updated_at
     LIMIT $2
), trails AS (
    DELETE FROM records USING old
     WHERE (kind, records.owner, key) BETWEEN ('trail', old.owner, replace(old.id::text, '-', ''))
                                          AND ('trail', old.owner, replace(old.id::text, '-', ''))
)
DELETE FROM jobs USING old WHERE jobs.id BETWEEN old.id AND old.id RETURNING 1;

-- name: prune_blobs
-- Parameters are kept as long as anything refers to them.
DELETE FROM blobs
 WHERE key = ANY(ARRAY(SELECT key FROM blobs
                        WHERE created_at < $1
                          AND (SELECT true FROM runs WHERE params_blob = blobs.key LIMIT 1) IS NULL
                          AND (SELECT true FROM history WHERE params_blob = blobs.key LIMIT 1) IS NULL
                          AND (SELECT true FROM jobs WHERE params_blob = blobs.key LIMIT 1) IS NULL
                        ORDER BY created_at
                        LIMIT $2))
RETURNING 1;

-- -------------------------------------------------------------------------------------------------------------- blobs

-- name: put_blobs
INSERT INTO blobs (key, data) SELECT * FROM unnest($1::text[], $2::bytea[]) AS given(key, data) ORDER BY key
    ON CONFLICT (key) DO UPDATE SET data = excluded.data;

-- name: get_blob
SELECT data FROM blobs WHERE key = $1;

-- name: blobs_under
-- Keys are made of [a-z0-9_./-]: '~' sorts after all of them.
SELECT key, data FROM blobs WHERE key >= $1 AND key < $1 || '~' AND key > $2 ORDER BY key LIMIT $3;

-- name: delete_blobs
DELETE FROM blobs WHERE key >= $1 AND key < $1 || '~';

-- ----------------------------------------------------------------------------------------------------------- look-ups

-- name: jobs_among
SELECT {job_columns} FROM jobs WHERE id = ANY($1::uuid[]);

-- name: live_runs_among
SELECT * FROM live_runs WHERE id = ANY($1::uuid[]);

-- name: ended_runs_among
-- $2: the first day to look at; a UUIDv7 tells when its run was created, and no run ends before.
SELECT run.*
  FROM unnest($1::uuid[]) AS given(id)
 CROSS JOIN LATERAL (SELECT * FROM ended_runs WHERE ended_runs.id = given.id AND ended_on >= $2) AS run;

-- name: ids
-- $1 the first, $2 the last, $3 how many. Each part stops at the limit: a wide range costs no more than a narrow one.
SELECT *
  FROM ((SELECT id, owner, true AS job, false AS run FROM jobs
          WHERE id >= $1::uuid AND id <= $2::uuid ORDER BY id DESC LIMIT $3)
         UNION ALL
        (SELECT id, owner, schedule IS NOT NULL, true FROM runs
          WHERE id >= $1::uuid AND id <= $2::uuid ORDER BY id DESC LIMIT $3)
         UNION ALL
        (SELECT id, owner, schedule IS NOT NULL, true FROM history
          WHERE id >= $1::uuid AND id <= $2::uuid ORDER BY id DESC LIMIT $3)) AS found
 ORDER BY id DESC
 LIMIT $3;

-- name: attempts
SELECT run_id, number, fence, node, started_at, ended_at, outcome, error FROM attempts
 WHERE run_id = ANY($1::uuid[])
 ORDER BY run_id, fence;

-- name: ahead_of
-- $1 run, $2 its gate, $3 its due time, $4 how many. What is held in the gate is ahead, whatever its place.
SELECT *
  FROM ((SELECT * FROM live_runs WHERE gate = $2 AND (due_at, id) < ($3, $1) ORDER BY due_at, id LIMIT $4)
         UNION ALL
        (SELECT held.*
           FROM (SELECT id, node FROM runs WHERE gate = $2 ORDER BY due_at, id LIMIT 100) AS line
           JOIN live_runs AS held ON held.id BETWEEN line.id AND line.id
          WHERE line.node IS NOT NULL AND (held.due_at, held.id) > ($3, $1)
          LIMIT $4)
         UNION ALL
        (SELECT letter.*
           FROM (SELECT run_id FROM blocks
                  WHERE gate = $2 AND (due_at, run_id) < ($3, $1)
                  ORDER BY due_at, run_id
                  LIMIT $4) AS block
          CROSS JOIN LATERAL (SELECT * FROM ended_runs WHERE ended_runs.id = block.run_id LIMIT 1) AS letter)) AS ahead
 ORDER BY due_at, id
 LIMIT $4;

-- fragment: last_in(runs, days)
(SELECT * FROM {runs} AS run WHERE run.id = given.job_id AND due_at <= $2 AND {days})
 UNION ALL
(SELECT * FROM {runs} AS run
  WHERE run.job_id = given.job_id AND run.job_id <> run.id AND due_at <= $2 AND {days}
  ORDER BY due_at DESC
  LIMIT 1);

-- name: last_runs
-- Of each job the latest run that is due: a one-shot itself, or the latest of those that belong to it.
-- $3: the first day to look at among those that ended.
SELECT latest.*
  FROM unnest($1::uuid[]) AS given(job_id)
 CROSS JOIN LATERAL (
       SELECT * FROM ({last_in(live_runs, true)} UNION ALL {last_in(ended_runs, ended_on >= $3)}) AS each
        ORDER BY due_at DESC, id DESC
        LIMIT 1) AS latest;

-- fragment: one_name
-- $3 the only queue or NULL, $4 after this name, $5 how many queues
queue > $4::text AND ($3::text IS NULL OR queue = $3);

-- fragment: bound
-- How far the runs of each of some places are counted: $2, or less where they are many.
greatest(least($2::bigint, 20000 / greatest((SELECT count(*) FROM places), 1)), 20);

-- name: queue_depths
-- $1 now, $2 bound. What is parked or paused is looked for among the first of all.
WITH parked AS MATERIALIZED (
    SELECT queue, count(*) FILTER (WHERE due_at <= $1 AND state = 'scheduled') AS depth,
           min(due_at) FILTER (WHERE due_at <= $1 AND state = 'scheduled') AS oldest
      FROM (SELECT queue, due_at, state FROM runs WHERE parked LIMIT $2) AS few
     GROUP BY queue
), names AS MATERIALIZED (
    SELECT DISTINCT queue
      FROM (SELECT lanes.queue
              FROM {lanes_due_by($1)} AS lanes
             CROSS JOIN LATERAL (SELECT FROM runs
                                  WHERE runs.lane = lanes.id AND NOT parked AND NOT paused
                                  ORDER BY wake_at
                                  LIMIT 1) AS one
             UNION ALL
            SELECT queue FROM lanes WHERE next_at > $1 AND next_at < 'infinity'
             UNION ALL
            SELECT queue FROM parked
             UNION ALL
            SELECT few.queue FROM (SELECT queue FROM runs WHERE paused LIMIT $2) AS few
             UNION ALL
            SELECT queue FROM runs WHERE runs.going
             UNION ALL
            SELECT queue FROM queues WHERE queues.paused OR concurrency IS NOT NULL) AS each
     WHERE {one_name}
     ORDER BY queue
     LIMIT $5::bigint
), places AS MATERIALIZED (
    SELECT lanes.id, lanes.queue FROM {lanes_due_by($1)} AS lanes WHERE queue IN (SELECT queue FROM names)
), due AS (
    SELECT places.queue, due.depth, due.oldest
      FROM places
     CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state IN ('scheduled', 'claimed')) AS depth,
                                min(due_at) FILTER (WHERE state IN ('scheduled', 'claimed')) AS oldest
                           FROM (SELECT due_at, state FROM runs
                                  WHERE runs.lane = places.id AND wake_at <= $1 AND NOT parked AND NOT paused
                                  ORDER BY wake_at
                                  LIMIT {bound}) AS few) AS due
)
SELECT queue, least(sum(depth), $2)::integer, min(oldest), sum(running)::integer, coalesce(bool_or(queues.paused), false),
       max(concurrency)
  FROM (SELECT queue, depth, oldest, 0 AS running FROM due
         UNION ALL
        SELECT queue, depth, oldest, 0 FROM parked
         UNION ALL
        SELECT queue, 0, NULL, count(*) FROM runs WHERE runs.going GROUP BY queue
         UNION ALL
        SELECT queue, 0, NULL, 0 FROM names) AS each
  LEFT JOIN queues USING (queue)
 WHERE queue IN (SELECT queue FROM names)
 GROUP BY queue
 ORDER BY queue;

-- name: queue_depths_of_owner
-- $1 now, $2 bound, $6 owner
WITH names AS MATERIALIZED (
    SELECT DISTINCT queue
      FROM (SELECT id, queue FROM shelves WHERE owner = $6 AND {one_name} ORDER BY queue) AS shelves
     CROSS JOIN LATERAL (SELECT FROM runs WHERE runs.shelf = shelves.id LIMIT 1) AS one
     ORDER BY queue
     LIMIT $5::bigint
), places AS MATERIALIZED (
    SELECT id, queue FROM shelves WHERE owner = $6 AND queue IN (SELECT queue FROM names)
)
SELECT places.queue, least(sum(due.depth), $2)::integer, min(due.oldest), sum(going.running)::integer,
       coalesce(bool_or(queues.paused), false), max(concurrency)
  FROM places
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state IN ('scheduled', 'claimed') AND NOT paused) AS depth,
                            min(due_at) FILTER (WHERE state IN ('scheduled', 'claimed') AND NOT paused) AS oldest
                       FROM (SELECT due_at, state, paused FROM runs
                              WHERE runs.shelf = places.id AND due_at <= $1
                              ORDER BY due_at, id
                              LIMIT {bound}) AS few) AS due
 CROSS JOIN LATERAL (SELECT count(*) AS running FROM runs
                      WHERE runs.shelf = places.id AND runs.going) AS going
  LEFT JOIN queues ON queues.queue = places.queue
 GROUP BY places.queue
 ORDER BY places.queue;

-- name: queue_lateness
-- $1 since, $2 owner or NULL, $3 how many of each queue, $4 after this name, $5 up to this one or NULL. What was due later did
-- not end on an earlier day.
WITH places AS MATERIALIZED (
    SELECT id, queue FROM shelves
     WHERE owner BETWEEN coalesce($2::text, '') AND coalesce($2::text, U&'\+10FFFF')
       AND queue > $4::text AND ($5::text IS NULL OR queue <= $5)
     LIMIT 10000
)
SELECT queue, percentile_disc(0.99) WITHIN GROUP (ORDER BY lateness)
  FROM (SELECT places.queue, ended.lateness,
               row_number() OVER (PARTITION BY places.queue ORDER BY ended.due_at DESC, ended.lateness DESC) AS place
          FROM places
         CROSS JOIN LATERAL (SELECT due_at, first_started_at - due_at AS lateness FROM history
                              WHERE history.shelf = places.id AND due_at > $1::timestamptz
                                AND ended_on >= ($1::timestamptz AT TIME ZONE 'UTC')::date
                              ORDER BY due_at DESC, id DESC
                              LIMIT greatest(least($3::bigint, 10000 / (SELECT count(*) FROM places)), 20)) AS ended
         WHERE ended.lateness IS NOT NULL) AS latest
 WHERE place <= $3
 GROUP BY queue;

-- name: queue_settings
SELECT queue, paused, concurrency FROM queues WHERE $1::text IS NULL OR queue = $1 ORDER BY queue;

-- name: put_queues
INSERT INTO queues (queue, paused, concurrency) SELECT * FROM unnest($1::text[], $2::boolean[], $3::integer[])
    ON CONFLICT (queue) DO UPDATE
   SET paused = excluded.paused, concurrency = excluded.concurrency, changed_at = DEFAULT;

-- name: await_claims
SELECT await_claims();

-- name: lanes_to_count
-- $1 queue: its lanes, and the latest time at which a run wakes that a node holds, be it dead or alive.
SELECT id, greatest((SELECT max(beat_at) + interval '3 h' FROM nodes), (SELECT max(last_at) FROM graves))
  FROM lanes
 WHERE queue = $1;

-- name: count_held
-- $1 lane, $2 behind this time, $3 up to this one, $4 how many to look at. Held runs count against a limit from now on.
-- Returns the time up to which was looked; NULL at the end.
WITH looked AS MATERIALIZED (
    SELECT id, node, wake_at FROM runs
     WHERE lane = $1 AND wake_at > $2 AND wake_at <= $3 AND NOT parked AND NOT paused
     ORDER BY wake_at
     FETCH FIRST ($4::bigint) ROWS WITH TIES
), now_counted AS (
    UPDATE runs SET counted = true
      FROM looked
     WHERE runs.id BETWEEN looked.id AND looked.id AND looked.node IS NOT NULL AND runs.node IS NOT NULL
       AND NOT runs.counted
)
SELECT max(wake_at) FROM looked;

-- name: due_soon
-- $1 now, $2 until, $3 how many are looked at in all lanes, if they are few, and of all jobs; $4 shards.
WITH places AS MATERIALIZED (
    SELECT id, queue FROM {lanes_due_by($2)} AS lanes
)
SELECT queue, sum(due)::integer
  FROM (SELECT places.queue, soon.due
          FROM places
         CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 'scheduled') AS due
                               FROM (SELECT state FROM runs
                                      WHERE runs.lane = places.id AND wake_at > $1 AND wake_at <= $2
                                        AND NOT parked AND NOT paused
                                      ORDER BY wake_at
                                      LIMIT greatest(2 * $3::bigint / (SELECT count(*) FROM places), 20)) AS few) AS soon
         UNION ALL
        SELECT soon.queue, 1
          FROM unnest($4::smallint[]) AS shards(shard)
         CROSS JOIN LATERAL (SELECT queue, next_fire_at FROM jobs
                              WHERE jobs.shard = shards.shard AND plan_at <= $2
                              ORDER BY plan_at
                              LIMIT $3 / cardinality($4)) AS soon
         WHERE soon.next_fire_at > $1 AND soon.next_fire_at <= $2) AS each
 WHERE due > 0
 GROUP BY queue
 ORDER BY queue;

-- ------------------------------------------------------------------------------------------------------------- ledger

-- name: ledger_live
SELECT * FROM live_runs
 WHERE job_id = $1 AND job_id <> id AND trigger = 'schedule' AND due_at >= $2 AND slot >= $2 AND slot <= $3
 ORDER BY slot
 LIMIT $4;

-- name: ledger_ended
SELECT * FROM ended_runs
 WHERE job_id = $1 AND slot IS NOT NULL AND trigger = 'schedule' AND slot >= $2 AND slot <= $3
 ORDER BY slot
 LIMIT $4;

-- name: ledger_skips
-- Those that begin within the range, and of those that began before it the ones that reach into it, among the last.
SELECT job_id, revision, start_at, end_at, count, reason
  FROM ((SELECT * FROM (SELECT * FROM skips WHERE job_id = $1 AND start_at < $2 ORDER BY start_at DESC LIMIT $4) AS before
          WHERE end_at >= $2)
         UNION ALL
        (SELECT * FROM skips WHERE job_id = $1 AND start_at >= $2 AND start_at <= $3 ORDER BY start_at LIMIT $4)) AS each
 ORDER BY start_at;

-- name: ledger_backfills
SELECT id, job_id, trigger, start_at, end_at, plan_at, created_at FROM backfills
 WHERE job_id = $1 AND start_at <= $3 AND end_at >= $2
 ORDER BY start_at;

-- ------------------------------------------------------------------------------------------------ what an owner keeps
-- A page of rows at a time, by queue: how many have not ended, their bytes, and the place of the page's last row, NULL at the
-- end. $1 owner, $2 how many rows, $3 what a blob counts that is not here: the least that one has. To read the size of a text or
-- blob does not read the text itself.

-- fragment: bytes_kept(result)
octet_length(params) + coalesce(octet_length(labels), 0) + coalesce(octet_length(secrets), 0)
+ coalesce(octet_length({result}), 0);

-- fragment: page_by_queue
SELECT queue, count(*) FILTER (WHERE lives),
       sum(bytes + CASE WHEN params_blob IS NULL THEN 0
                        ELSE coalesce((SELECT octet_length(data) FROM blobs WHERE blobs.key = params_blob), $3::integer)
                   END)::bigint,
       last.shelf, last.due_at, last.id
  FROM page LEFT JOIN (SELECT shelf, due_at, id FROM page OFFSET $2::bigint - 1 LIMIT 1) AS last ON true
 GROUP BY queue, last.shelf, last.due_at, last.id;

-- fragment: page_of_shelves(rows, lives, result)
-- ($4, $5, $6) behind this shelf, due time and id. Shelves are found by their owner first, not by their order among those of all.
WITH places AS MATERIALIZED (
    SELECT id, id = $4::integer AS begun FROM shelves WHERE owner = $1 AND id >= $4::integer
), page AS MATERIALIZED (
    SELECT run.*
      FROM (SELECT * FROM places ORDER BY id) AS place
     CROSS JOIN LATERAL (
           SELECT shelf, due_at, id, queue, params_blob, {lives} AS lives, {bytes_kept({result})} AS bytes FROM {rows}
            WHERE shelf = place.id
              AND (due_at, id) > (CASE WHEN place.begun THEN $5::timestamptz ELSE '-infinity' END,
                                  CASE WHEN place.begun THEN $6::uuid ELSE '00000000-0000-0000-0000-000000000000' END)
            ORDER BY due_at, id
            LIMIT $2::bigint) AS run
     LIMIT $2::bigint
)
{page_by_queue};

-- name: kept_jobs
-- $4 behind this id
WITH page AS MATERIALIZED (
    SELECT 0 AS shelf, created_at AS due_at, id, queue, params_blob, status IN ('scheduled', 'paused') AS lives,
           {bytes_kept(NULL::text)} AS bytes
      FROM jobs
     WHERE owner <= $1 AND (owner, id) > ($1, $4::uuid)
     ORDER BY owner, id
     LIMIT $2::bigint
)
{page_by_queue};

-- name: kept_live
{page_of_shelves(runs, true, NULL::text)};

-- name: kept_ended
{page_of_shelves(history, false, result)};

-- -------------------------------------------------------------------------------------------------------------- lists
-- All lists take $1 owner, $2 task, $3 queue (NULL means any), $4 how many, and then what the lists of runs and of jobs say.
-- They differ in the index that they follow. Most read shelf by shelf: `place` is the shelf that is read, `order` the order of
-- the index, and `position` that of the list.

-- fragment: shelf_filter
place.owner BETWEEN coalesce($1::text, '') AND coalesce($1::text, U&'\+10FFFF')
   AND ($2::text IS NULL OR place.task = $2) AND ($3::text IS NULL OR place.queue = $3);

-- fragment: lowest_id
'00000000-0000-0000-0000-000000000000'::uuid;

-- fragment: filled(source, places, range, order, start)
-- The shelves that have something, and how many rows are looked at in each: $11 in all, but no fewer than fill the page.
places AS MATERIALIZED (
    SELECT place.id, place.state
      FROM (SELECT *, {start} AS since FROM ({places}) AS each) AS place
     CROSS JOIN LATERAL (SELECT FROM {source} AS run WHERE {range} ORDER BY {order} LIMIT 1) AS one
), look AS MATERIALIZED (
    SELECT greatest($11::bigint / greatest(count(*), 1), $4::bigint) AS most FROM places
);

-- fragment: looked_at(source, range, order)
SELECT * FROM {source} AS run WHERE {range} ORDER BY {order} LIMIT (SELECT most FROM look);

-- fragment: first(source, places, range, filter, order, position, point, start, unsure)
-- Shelf by shelf. `place.since` is the point that ends the page. If it is unsure, and there are many shelves, the first few of
-- each are read before: the page does not reach beyond the last of them, `least`.
WITH {filled({source}, {places}, {range}, {order}, {start})}, least AS MATERIALIZED (
    SELECT run.{point}
      FROM (SELECT *, {start} AS since FROM places) AS place
     CROSS JOIN LATERAL (SELECT {point} FROM ({looked_at({source}, {range}, {order})}) AS run WHERE {filter}
                          LIMIT 1 + $4::bigint / (SELECT count(*) FROM places)) AS run
     WHERE {unsure}::boolean AND (SELECT count(*) FROM places) > 20
     ORDER BY run.{point} DESC
    OFFSET $4::bigint - 1
     LIMIT 1
)
SELECT run.*
  FROM (SELECT *, coalesce((SELECT {point} FROM least), {start}) AS since FROM places) AS place
 CROSS JOIN LATERAL (SELECT * FROM ({looked_at({source}, {range}, {order})}) AS run WHERE {filter}
                      LIMIT $4::bigint) AS run
 ORDER BY {position}
 LIMIT $4::bigint;

-- fragment: edge(source, places, range, order, position, start, floor)
-- The first, by their position, of the last rows that were looked at in the shelves where there were as many above the floor.
-- Those that were looked at are a query of their own, as in the list: with an OFFSET the planner would rather sort them all.
WITH {filled({source}, {places}, {range}, {order}, {start})}
SELECT run.due_at, run.id
  FROM (SELECT *, greatest({start}, {floor}) AS since FROM places) AS place
 CROSS JOIN LATERAL (SELECT due_at, id FROM ({looked_at({source}, {range}, {order})}) AS looked
                     OFFSET (SELECT most FROM look) - 1 LIMIT 1) AS run
 ORDER BY {position}
 LIMIT 1;

-- Lists of runs go on with $5 job, $6 states, $7 stopping ($5 and $7 may be NULL), $8 due from, ($9, $10) before this
-- position, $11 how many rows to look at; $12 how the error begins, which is with its type, $13 trigger, $14 node, $15 the
-- least lateness, $16 label and $17 its value, $18 text (any of them may be NULL); those that go day by day with $19 the first
-- day, $20 the one after the last, $21 unsure. Edges take the same, and then the due time above which the page ends.

-- fragment: run_filter
($1::text IS NULL OR owner = $1) AND ($2::text IS NULL OR task = $2) AND ($3::text IS NULL OR queue = $3);

-- fragment: run_shelf_filter
{shelf_filter} AND $5::uuid IS NULL;

-- fragment: due_filter(start)
due_at >= {start} AND (due_at, id) < ($9::timestamptz, $10::uuid);

-- fragment: search_filter
($12::text IS NULL OR starts_with(error, $12)) AND ($13::text IS NULL OR trigger = $13)
AND ($14::uuid IS NULL OR node = $14) AND ($15::interval IS NULL OR first_started_at - due_at >= $15)
AND spec_wanted(task, name, key, queue, labels, NULL, NULL, NULL, NULL, $16, $17, $18);

-- fragment: no_filter
-- True: an edge is that of all rows, and only mentions the parameters of the filter.
($6::text[] IS NULL OR $7::boolean IS NULL OR $12::text IS NULL OR $13::text IS NULL OR $14::uuid IS NULL
 OR $15::interval IS NULL OR $16::text IS NULL OR $17::text IS NULL OR $18::text IS NULL OR true);

-- fragment: live_filter
state = ANY($6::text[]) AND ($7::boolean IS NULL OR (stop IS NOT DISTINCT FROM 'cancelled') = $7) AND {search_filter};

-- fragment: none_stopping
-- What has ended is not being stopped.
($7::boolean IS NULL OR NOT $7);

-- fragment: days
ended_on >= $19::date AND ended_on < $20::date;

-- fragment: latest
run.due_at DESC, run.id DESC;

-- fragment: run_shelves
SELECT id, NULL::text AS state FROM shelves AS place WHERE {run_shelf_filter};

-- fragment: due_in_shelf
shelf = place.id AND {due_filter(place.since)};

-- fragment: retried_in_shelf
{due_in_shelf} AND error IS NOT NULL;

-- fragment: started_in_shelf
{due_in_shelf} AND going;

-- fragment: list_live(range)
{first(live_runs, {run_shelves}, {range}, {live_filter}, {latest}, {latest}, due_at, $8::timestamptz, true)};

-- fragment: edge_of_live(range)
{edge(live_runs, {run_shelves} AND {no_filter}, {range}, {latest}, {latest}, $8::timestamptz, $19::timestamptz)};

-- name: list_live_runs
{list_live({due_in_shelf})};

-- name: edge_of_live_runs
{edge_of_live({due_in_shelf})};

-- name: list_retried_runs
-- Runs that wait for another try are few among those that wait for their first: all of them have an error.
{list_live({retried_in_shelf})};

-- name: edge_of_retried_runs
{edge_of_live({retried_in_shelf})};

-- name: list_started_runs
{list_live({started_in_shelf})};

-- name: edge_of_started_runs
{edge_of_live({started_in_shelf})};

-- name: list_stopping_runs
-- Few at any time, so that all of them are looked at.
WITH stopping AS MATERIALIZED (
    SELECT * FROM live_runs WHERE stop IS NOT NULL AND {run_filter} AND $5::uuid IS NULL AND $11::bigint > 0
)
SELECT * FROM stopping AS run WHERE {due_filter($8::timestamptz)} AND {live_filter} ORDER BY {latest} LIMIT $4::bigint;

-- fragment: no_filter_of_job
({no_filter} OR $1::text IS NULL OR $2::text IS NULL OR $3::text IS NULL OR $4::bigint IS NULL);

-- fragment: live_runs_of_job
-- With all that are due at the same time as the last of them: the index does not order these.
FROM live_runs WHERE job_id = $5::uuid AND job_id <> id AND {due_filter($8::timestamptz)};

-- name: list_live_runs_of_job
SELECT * FROM (
    (SELECT * FROM live_runs WHERE id = $5::uuid AND job_id = id)
     UNION ALL
    (SELECT * {live_runs_of_job} ORDER BY due_at DESC FETCH FIRST ($11::bigint) ROWS WITH TIES)) AS run
 WHERE {due_filter($8::timestamptz)} AND {live_filter} AND {run_filter}
 ORDER BY {latest}
 LIMIT $4::bigint;

-- name: edge_of_live_runs_of_job
SELECT * FROM (SELECT due_at, {lowest_id} AS id {live_runs_of_job} AND due_at >= $19::timestamptz AND {no_filter_of_job}
         ORDER BY due_at DESC
         LIMIT $11::bigint) AS looked
OFFSET $11::bigint - 1 LIMIT 1;

-- fragment: ended_run_shelves
{run_shelves} AND {none_stopping};

-- fragment: ended_in_shelf
{due_in_shelf} AND {days};

-- fragment: ended_filter
state = ANY($6::text[]) AND {search_filter};

-- name: list_ended_runs
{first(ended_runs, {ended_run_shelves}, {ended_in_shelf}, {ended_filter}, {latest}, {latest}, due_at, $8::timestamptz, $21)};

-- fragment: no_filter_by_day
({no_filter} OR $21::boolean IS NULL);

-- name: edge_of_ended_runs
{edge(ended_runs, {ended_run_shelves} AND {no_filter_by_day}, {ended_in_shelf}, {latest}, {latest}, $8::timestamptz,
      $22::timestamptz)};

-- fragment: run_shelves_by_state
SELECT id, wanted.state FROM shelves AS place CROSS JOIN unnest($6::text[]) AS wanted(state)
 WHERE {run_shelf_filter} AND {none_stopping};

-- fragment: unsuccessful_in_shelf
shelf = place.id AND state <> 'succeeded' AND state = place.state AND {due_filter(place.since)} AND {days};

-- name: list_unsuccessful_runs
-- State by state: what did not succeed has an index of its own, in which the few failed ones are found among the many.
{first(ended_runs, {run_shelves_by_state}, {unsuccessful_in_shelf}, {search_filter}, {latest}, {latest}, due_at,
       $8::timestamptz, $21)};

-- name: edge_of_unsuccessful_runs
{edge(ended_runs, {run_shelves_by_state} AND {no_filter_by_day}, {unsuccessful_in_shelf}, {latest}, {latest},
      $8::timestamptz, $22::timestamptz)};

-- fragment: ended_runs_of_job
FROM ended_runs AS run WHERE job_id = $5::uuid AND job_id <> id AND {due_filter($8::timestamptz)};

-- name: list_ended_runs_of_job
SELECT * FROM (
    (SELECT * FROM ended_runs WHERE id = $5::uuid AND job_id = id)
     UNION ALL
    (SELECT * {ended_runs_of_job} ORDER BY {latest} LIMIT $11::bigint)) AS run
 WHERE {due_filter($8::timestamptz)} AND {ended_filter} AND {run_filter} AND {none_stopping}
 ORDER BY {latest}
 LIMIT $4::bigint;

-- fragment: edge_of_job
AND due_at >= $19::timestamptz AND {no_filter_of_job};

-- name: edge_of_ended_runs_of_job
SELECT * FROM (SELECT due_at, id {ended_runs_of_job} {edge_of_job} ORDER BY {latest}
         LIMIT $11::bigint) AS looked
OFFSET $11::bigint - 1 LIMIT 1;

-- Dead letters, and their groups by task and error: the most frequent first, with the newest as an example.

-- fragment: letter_shelves
{ended_run_shelves} AND 'failed' = ANY($6::text[]);

-- fragment: letters_in_shelf
(shelf, due_at) >= (place.id, place.since) AND (shelf, due_at, id) < (place.id, $9::timestamptz, $10::uuid)
AND state = 'failed' AND resolution IS NULL;

-- fragment: letters_in_shelf_by_day
{letters_in_shelf} AND {days};

-- fragment: latest_of_shelf
run.shelf DESC, run.due_at DESC, run.id DESC;

-- name: list_dead_letters
{first(ended_runs, {letter_shelves}, {letters_in_shelf_by_day}, {search_filter}, {latest_of_shelf}, {latest}, due_at,
       $8::timestamptz, $21)};

-- name: edge_of_dead_letters
{edge(ended_runs, {letter_shelves} AND {no_filter_by_day}, {letters_in_shelf_by_day}, {latest_of_shelf}, {latest},
      $8::timestamptz, $22::timestamptz)};

-- fragment: letters_of_job
FROM ended_runs
 WHERE (job_id, due_at) >= ($5::uuid, $8::timestamptz) AND (job_id, due_at, id) < ($5::uuid, $9::timestamptz, $10::uuid)
   AND state = 'failed' AND resolution IS NULL;

-- fragment: latest_of_job
ORDER BY job_id DESC, due_at DESC, id DESC;

-- fragment: list_letters_of_job
SELECT * FROM (SELECT * {letters_of_job} {latest_of_job} LIMIT $11::bigint) AS run
 WHERE {search_filter} AND {run_filter} AND 'failed' = ANY($6::text[]) AND {none_stopping}
 LIMIT $4::bigint;

-- name: list_dead_letters_of_job
{list_letters_of_job};

-- name: edge_of_dead_letters_of_job
SELECT * FROM (SELECT due_at, id {letters_of_job} {edge_of_job} {latest_of_job}
         LIMIT $11::bigint) AS looked
OFFSET $11::bigint - 1 LIMIT 1;

-- fragment: groups(letters)
SELECT task, error, count(*), min(due_at), max(due_at), (array_agg(id ORDER BY due_at DESC, id DESC))[1]
  FROM ({letters}) AS letters
 GROUP BY task, error
 ORDER BY count(*) DESC, max(due_at) DESC, task, error;

-- fragment: letters_of_all
SELECT *
  FROM (SELECT run.*
          FROM (SELECT *, $8::timestamptz AS since, count(*) OVER () AS shelves FROM ({letter_shelves}) AS each) AS place
         CROSS JOIN LATERAL (SELECT task, error, due_at, id, {search_filter} AS fits FROM ended_runs AS run
                              WHERE {letters_in_shelf}
                              ORDER BY {latest_of_shelf} LIMIT greatest(2 * $11::bigint / shelves, 20)) AS run
         ORDER BY {latest}
         LIMIT $11::bigint) AS run
 WHERE fits AND $4::bigint > 0;

-- name: group_dead_letters
{groups({letters_of_all})};

-- name: group_dead_letters_of_job
{groups({list_letters_of_job})};

-- Lists of jobs go on with $5 name, $6 key, $7 label and $8 its value, $9 text (any of them may be NULL), $10 below this id,
-- $11 how many rows to look at; then $12 the status, $13 the states of the last run and $14 the time that it must be due by;
-- for ended one-shots $12 the states, $13 that time, and, day by day, $14 the least id, $15 the first day, $16 the one after
-- the last, $17 unsure. Edges take the same, and then the id above which the page ends.
-- `(shelf, id) >= (s, l) AND (shelf, id) < (s, i)` is `shelf = s AND id >= l AND id < i`, ordered by both, said so that only the
-- index of both will do: by the order of ids alone the planner would walk the primary key through all other shelves.
-- `due_at + interval '0'` keeps the index of due times away, and `schedule || ''` that of all one-shots.

-- fragment: spec_filter
spec_wanted(task, name, key, queue, labels, $2, $5, $6, $3, $7, $8, $9);

-- fragment: no_spec_filter
-- True, as `no_filter` is.
($2::text IS NULL OR $3::text IS NULL OR $5::text IS NULL OR $6::text IS NULL OR $7::text IS NULL OR $8::text IS NULL
 OR $9::text IS NULL OR $4::bigint IS NULL OR true);

-- fragment: no_live_filter
({no_spec_filter} OR $12::text IS NULL OR $13::text[] IS NULL OR $14::timestamptz IS NULL);

-- fragment: job_filter
{spec_filter} AND ($12::text IS NULL OR status = $12) AND ($13::text[] IS NULL OR last_run_state(id, $14) = ANY($13));

-- fragment: one_shot_filter
{spec_filter} AND ($12::text IS NULL OR one_shot_status(paused, stop) = $12)
   AND ($13::text[] IS NULL OR state = ANY($13) AND due_at <= $14::timestamptz);

-- fragment: ended_one_shot_filter
state = ANY($12::text[]) AND due_at + interval '0' <= $13::timestamptz AND {spec_filter};

-- fragment: in_shelf
(shelf, id) >= (place.id, place.since) AND (shelf, id) < (place.id, $10::uuid);

-- fragment: newest
run.id DESC;

-- fragment: newest_of_shelf
run.shelf DESC, run.id DESC;

-- fragment: jobs_of_owner
FROM jobs WHERE owner >= $1::text AND (owner, id) < ($1::text, $10::uuid);

-- name: list_jobs_of_owner
SELECT * FROM (SELECT {job_columns} {jobs_of_owner} ORDER BY owner DESC, id DESC LIMIT $11::bigint) AS job
 WHERE {job_filter}
 LIMIT $4::bigint;

-- name: edge_of_jobs_of_owner
SELECT * FROM (SELECT NULL AS due_at, id {jobs_of_owner} AND (owner, id) >= ($1::text, $15::uuid) AND {no_live_filter}
         ORDER BY owner DESC, id DESC
         LIMIT $11::bigint) AS looked
OFFSET $11::bigint - 1 LIMIT 1;

-- fragment: jobs_of_all
FROM jobs WHERE $1::text IS NULL AND id < $10::uuid;

-- name: list_jobs_of_all
SELECT * FROM (SELECT {job_columns} {jobs_of_all} ORDER BY id DESC LIMIT $11::bigint) AS job
 WHERE {job_filter}
 LIMIT $4::bigint;

-- name: edge_of_jobs_of_all
SELECT * FROM (SELECT NULL AS due_at, id {jobs_of_all} AND id >= $15::uuid AND {no_live_filter}
         ORDER BY id DESC
         LIMIT $11::bigint) AS looked
OFFSET $11::bigint - 1 LIMIT 1;

-- fragment: job_shelves
SELECT id, NULL::text AS state FROM shelves AS place WHERE {shelf_filter};

-- fragment: one_shots_in_shelf
{in_shelf} AND schedule IS NOT NULL;

-- fragment: paused_in_shelf
{in_shelf} AND paused AND schedule || '' IS NOT NULL;

-- fragment: list_one_shots(range)
{first(live_runs, {job_shelves}, {range}, {one_shot_filter}, {newest_of_shelf}, {newest}, id, {lowest_id}, true)};

-- fragment: edge_of_one_shots(range)
{edge(live_runs, {job_shelves} AND {no_live_filter}, {range}, {newest_of_shelf}, {newest}, {lowest_id}, $15::uuid)};

-- name: list_live_one_shots
{list_one_shots({one_shots_in_shelf})};

-- name: edge_of_live_one_shots
{edge_of_one_shots({one_shots_in_shelf})};

-- name: list_paused_one_shots
{list_one_shots({paused_in_shelf})};

-- name: edge_of_paused_one_shots
{edge_of_one_shots({paused_in_shelf})};

-- name: list_stopping_one_shots
WITH stopping AS MATERIALIZED (
    SELECT * FROM live_runs
     WHERE stop IS NOT NULL AND schedule IS NOT NULL AND ($1::text IS NULL OR owner = $1) AND {one_shot_filter}
       AND $11::bigint > 0
)
SELECT * FROM stopping WHERE id < $10::uuid ORDER BY id DESC LIMIT $4::bigint;

-- fragment: of_key
WHERE key >= $6 AND (key, id) < ($6, $10::uuid) AND schedule IS NOT NULL;

-- fragment: newest_of_key
ORDER BY key DESC, id DESC;

-- fragment: own
($1::text IS NULL OR owner = $1);

-- name: list_live_one_shots_of_key
SELECT * FROM (SELECT * FROM live_runs {of_key} {newest_of_key} LIMIT $11::bigint) AS run
 WHERE {own} AND {one_shot_filter}
 LIMIT $4::bigint;

-- name: edge_of_live_one_shots_of_key
SELECT * FROM (SELECT NULL AS due_at, id FROM live_runs {of_key} AND (key, id) >= ($6, $15::uuid) AND ({no_live_filter} OR {own})
         {newest_of_key}
         LIMIT $11::bigint) AS looked
OFFSET $11::bigint - 1 LIMIT 1;

-- name: list_ended_one_shots_of_key
SELECT * FROM (SELECT * FROM ended_runs {of_key} {newest_of_key} LIMIT $11::bigint) AS run
 WHERE {own} AND {ended_one_shot_filter}
 LIMIT $4::bigint;

-- fragment: no_ended_filter
({no_spec_filter} OR $12::text[] IS NULL OR $13::timestamptz IS NULL);

-- name: edge_of_ended_one_shots_of_key
SELECT * FROM (SELECT NULL AS due_at, id FROM ended_runs {of_key} AND (key, id) >= ($6, $14::uuid) AND ({no_ended_filter} OR {own})
         {newest_of_key}
         LIMIT $11::bigint) AS looked
OFFSET $11::bigint - 1 LIMIT 1;

-- fragment: one_shot_days
ended_on >= $15::date AND ended_on < $16::date;

-- fragment: ended_one_shots_in_shelf
{one_shots_in_shelf} AND {one_shot_days};

-- name: list_ended_one_shots
{first(ended_runs, {job_shelves}, {ended_one_shots_in_shelf}, {ended_one_shot_filter}, {newest_of_shelf}, {newest}, id,
       $14::uuid, $17)};

-- fragment: no_ended_filter_by_day
({no_ended_filter} OR $17::boolean IS NULL);

-- name: edge_of_ended_one_shots
{edge(ended_runs, {job_shelves} AND {no_ended_filter_by_day}, {ended_one_shots_in_shelf}, {newest_of_shelf}, {newest},
      $14::uuid, $18::uuid)};

-- fragment: shelves_by_state
SELECT id, wanted.state FROM shelves AS place CROSS JOIN unnest($12::text[]) AS wanted(state) WHERE {shelf_filter};

-- fragment: unsuccessful_one_shots_in_shelf
(shelf, state, id) >= (place.id, place.state, place.since) AND (shelf, state, id) < (place.id, place.state, $10::uuid)
AND state <> 'succeeded' AND schedule IS NOT NULL AND {one_shot_days};

-- fragment: newest_of_state
run.shelf DESC, run.state DESC, run.id DESC;

-- name: list_unsuccessful_one_shots
{first(ended_runs, {shelves_by_state}, {unsuccessful_one_shots_in_shelf}, {ended_one_shot_filter}, {newest_of_state}, {newest},
       id, $14::uuid, $17)};

-- name: edge_of_unsuccessful_one_shots
{edge(ended_runs, {shelves_by_state} AND {no_ended_filter_by_day}, {unsuccessful_one_shots_in_shelf}, {newest_of_state},
      {newest}, $14::uuid, $18::uuid)};
