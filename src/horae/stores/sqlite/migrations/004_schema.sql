-- The schema of a new database. Times are microseconds since 1970 in UTC, ids the 16 bytes of a UUID.
-- contract: since 4
--
-- Live and ended runs share one table: a run is inserted once and updated in place. The indexes for claims, gates and
-- nodes cover live runs only, so history does not slow them down. Moving each ended run to a second table was measured
-- to take twice as long, because every list index is then written three times.

CREATE TABLE runs (
    -- STORED_RUN of codecs.py, in that order: statements select *. New columns go to the end.
    id BLOB NOT NULL,
    job_id BLOB NOT NULL,
    owner TEXT NOT NULL,
    created_by TEXT NOT NULL,
    task TEXT NOT NULL,
    params TEXT NOT NULL,
    params_blob TEXT,
    name TEXT,
    key TEXT,
    labels TEXT,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ordering_key TEXT,
    policy TEXT NOT NULL,
    schedule TEXT,
    trigger TEXT NOT NULL,
    slot INTEGER,
    due_at INTEGER NOT NULL,
    wake_at INTEGER NOT NULL,
    gate TEXT,
    state TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    stop TEXT,
    node BLOB,
    fence INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 1,
    progress REAL,
    error TEXT,
    result TEXT,
    reason TEXT,
    created_at INTEGER NOT NULL,
    first_started_at INTEGER,
    started_at INTEGER,
    finished_at INTEGER,  -- null while the run is alive
    resolution TEXT,
    parked INTEGER NOT NULL DEFAULT 0,
    seq INTEGER PRIMARY KEY,  -- the order of insertion: breaks ties in lists, and keeps the other indexes small
    secrets TEXT,
    requeue_of BLOB,
    band INTEGER NOT NULL DEFAULT 0  -- a group of owners: they take turns within a queue
);

CREATE UNIQUE INDEX runs_id ON runs (id);
-- for the engine; live runs only
CREATE INDEX runs_claim ON runs (queue, priority, band, wake_at)
    WHERE state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0;
-- with the queue, so that the held runs of a queue are counted in the index alone
CREATE INDEX runs_held ON runs (node, queue) WHERE state IN ('claimed', 'running');
CREATE INDEX runs_stop ON runs (node) WHERE stop IS NOT NULL AND finished_at IS NULL;
CREATE INDEX runs_gate ON runs (gate, due_at, id) WHERE gate IS NOT NULL AND finished_at IS NULL;
CREATE INDEX runs_parked ON runs (gate, due_at, id) WHERE parked = 1;
CREATE INDEX runs_paused ON runs (queue) WHERE paused = 1 AND finished_at IS NULL;
CREATE INDEX runs_live_of_job ON runs (job_id, due_at) WHERE schedule IS NULL AND finished_at IS NULL;
-- for lists; a one-shot is found by its own id, so the indexes by job leave it out
CREATE INDEX runs_job ON runs (job_id, due_at) WHERE schedule IS NULL;
CREATE INDEX runs_slot ON runs (job_id, slot) WHERE trigger = 'schedule' AND schedule IS NULL;
CREATE INDEX runs_due ON runs (due_at);
CREATE INDEX runs_owner ON runs (owner, due_at);
CREATE INDEX runs_task ON runs (owner, task, due_at);
CREATE INDEX runs_queue ON runs (owner, queue, due_at);
CREATE INDEX runs_live ON runs (owner, due_at) WHERE finished_at IS NULL;
CREATE INDEX runs_state ON runs (owner, state, due_at) WHERE state NOT IN ('scheduled', 'claimed');
CREATE INDEX one_shots_live ON runs (owner, id) WHERE schedule IS NOT NULL AND finished_at IS NULL;
CREATE INDEX one_shots_ended ON runs (owner, id) WHERE schedule IS NOT NULL AND finished_at IS NOT NULL;
-- few rows
CREATE INDEX one_shots_paused ON runs (owner, id) WHERE schedule IS NOT NULL AND finished_at IS NULL AND paused = 1;
CREATE INDEX one_shots_cancelled ON runs (owner, id)
    WHERE schedule IS NOT NULL AND (state = 'cancelled' OR stop = 'cancelled');
CREATE INDEX one_shots_key ON runs (owner, key, id) WHERE schedule IS NOT NULL AND key IS NOT NULL;
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_params_blob ON runs (params_blob) WHERE params_blob IS NOT NULL;

CREATE TABLE attempts (
    run_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    node BLOB,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    error TEXT,
    PRIMARY KEY (run_id, fence)
) WITHOUT ROWID;

CREATE TABLE jobs (
    -- STORED_JOB of codecs.py, in that order
    id BLOB NOT NULL,
    owner TEXT NOT NULL,
    created_by TEXT NOT NULL,
    task TEXT NOT NULL,
    params TEXT NOT NULL,
    params_blob TEXT,
    name TEXT,
    key TEXT,
    labels TEXT,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ordering_key TEXT,
    policy TEXT NOT NULL,
    schedule TEXT NOT NULL,
    status TEXT NOT NULL,
    next_fire_at INTEGER,
    plan_at INTEGER,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    seq INTEGER PRIMARY KEY,
    secrets TEXT
);

CREATE UNIQUE INDEX jobs_id ON jobs (id);
CREATE INDEX jobs_plan ON jobs (plan_at, shard) WHERE plan_at IS NOT NULL;
CREATE INDEX jobs_owner ON jobs (owner, id);
CREATE INDEX jobs_key ON jobs (owner, key, id) WHERE key IS NOT NULL;
CREATE INDEX jobs_params_blob ON jobs (params_blob) WHERE params_blob IS NOT NULL;

CREATE TABLE skips (
    job_id BLOB NOT NULL,
    revision INTEGER NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    seq INTEGER PRIMARY KEY
);

CREATE INDEX skips_job ON skips (job_id, start_at);
CREATE INDEX skips_end ON skips (end_at);

CREATE TABLE backfills (
    id BLOB NOT NULL PRIMARY KEY,
    job_id BLOB NOT NULL,
    trigger TEXT NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    plan_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    shard INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX backfills_plan ON backfills (plan_at, shard);
CREATE INDEX backfills_job ON backfills (job_id);

CREATE TABLE keys (
    owner TEXT NOT NULL, key TEXT NOT NULL, job_id BLOB NOT NULL, PRIMARY KEY (owner, key)
) WITHOUT ROWID;

CREATE TABLE gates (gate TEXT NOT NULL PRIMARY KEY, node BLOB NOT NULL) WITHOUT ROWID;

CREATE INDEX gates_node ON gates (node);

CREATE TABLE nodes (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    version TEXT NOT NULL,
    queues TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at INTEGER NOT NULL,
    running INTEGER NOT NULL,
    tasks TEXT NOT NULL,
    -- microseconds that the node's clock is ahead of the store's; a process can have a clock of its own
    wall_ahead INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE tasks (name TEXT NOT NULL PRIMARY KEY, schema TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE blobs (
    key TEXT NOT NULL UNIQUE,
    data BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    seq INTEGER PRIMARY KEY
);

CREATE INDEX blobs_created ON blobs (created_at);

-- Dead letters: failed runs that are not resolved. They have a table of their own, because four partial indexes on runs
-- took a twentieth of the time of every insert.
CREATE TABLE letters (
    run INTEGER PRIMARY KEY,  -- the seq of the run
    id BLOB NOT NULL,
    owner TEXT NOT NULL,
    job_id BLOB NOT NULL,
    due_at INTEGER NOT NULL,
    gate TEXT  -- if the letter blocks its gate until it is resolved
);

CREATE UNIQUE INDEX letters_id ON letters (id);
CREATE INDEX letters_due ON letters (due_at);
CREATE INDEX letters_owner ON letters (owner, due_at);
CREATE INDEX letters_job ON letters (job_id, due_at);
CREATE INDEX letters_gate ON letters (gate, due_at, id) WHERE gate IS NOT NULL;

CREATE TABLE queues (
    -- A row stays after its settings are back to the defaults: runs that woke during a pause are below the floor of the
    -- claims, so claims ignore the floor in queues that have a row.
    queue TEXT NOT NULL PRIMARY KEY,
    paused INTEGER NOT NULL,
    concurrency INTEGER
) WITHOUT ROWID;

CREATE TABLE receipts (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    answer TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (owner, key)
);

CREATE INDEX receipts_created ON receipts (created_at);

CREATE TABLE events (
    -- SQLite has one writer at a time, so positions have the order of the commits; none is used twice.
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    at INTEGER NOT NULL,
    subjects BLOB NOT NULL  -- concatenated ids of 16 bytes
);

CREATE INDEX events_owner ON events (owner);

CREATE TABLE declarations (
    owner TEXT NOT NULL,
    app TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (owner, app, key, digest)
) WITHOUT ROWID;
