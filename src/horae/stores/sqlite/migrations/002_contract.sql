-- Secrets, requeued runs, ordering keys that wait for a failed run, settings of queues, receipts of requests, the
-- outbox of events, and schedules that are declared in code.

-- New columns stand behind all others; codecs.py knows their places.
ALTER TABLE runs ADD COLUMN secrets TEXT;
ALTER TABLE runs ADD COLUMN requeue_of BLOB;
ALTER TABLE jobs ADD COLUMN secrets TEXT;

-- with the queue, what the nodes hold of one is counted in the index alone
DROP INDEX runs_held;
CREATE INDEX runs_held ON runs (node, queue) WHERE state IN ('claimed', 'running');

-- Failed runs that nobody has resolved. As a table of their own they cost the runs that go well nothing; four indexes
-- on the runs, although they held only these, took a twentieth of the time of every insert.
CREATE TABLE letters (
    run INTEGER PRIMARY KEY,  -- the seq of the run
    id BLOB NOT NULL,
    owner TEXT NOT NULL,
    job_id BLOB NOT NULL,
    due_at INTEGER NOT NULL,
    gate TEXT  -- if it waits until this is resolved
);

CREATE UNIQUE INDEX letters_id ON letters (id);
CREATE INDEX letters_due ON letters (due_at);
CREATE INDEX letters_owner ON letters (owner, due_at);
CREATE INDEX letters_job ON letters (job_id, due_at);
CREATE INDEX letters_gate ON letters (gate, due_at, id) WHERE gate IS NOT NULL;

INSERT INTO letters (run, id, owner, job_id, due_at)
SELECT seq, id, owner, job_id, due_at FROM runs WHERE state = 'failed' AND resolution IS NULL;

DROP INDEX runs_dead;

CREATE TABLE queues (
    -- A row stays when everything is as usual again: what woke during a pause lies below the floor of the claims, which
    -- is therefore not kept in queues that have a row.
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
    -- There is one writer at a time, so positions are given in the order of the commits; they are never given again.
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    at INTEGER NOT NULL,
    subjects BLOB NOT NULL  -- ids of 16 bytes, one after another
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
