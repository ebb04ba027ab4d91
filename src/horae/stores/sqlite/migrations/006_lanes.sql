-- Runs of one queue, priority and owner wait in a lane, which knows when the first of them wakes. A claim looks only into
-- the lanes that are due, however many there are.
-- contract: since 6
CREATE TABLE lanes (
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    owner TEXT NOT NULL,
    next_at INTEGER NOT NULL,  -- no run of it wakes earlier
    PRIMARY KEY (queue, priority, owner)
) WITHOUT ROWID;
CREATE INDEX lanes_next ON lanes (next_at);

DROP INDEX runs_claim;
ALTER TABLE runs DROP COLUMN band;
CREATE INDEX runs_claim ON runs (queue, priority, owner, wake_at)
 WHERE state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0;

INSERT INTO lanes (queue, priority, owner, next_at)
SELECT queue, priority, owner, min(wake_at) FROM runs INDEXED BY runs_claim
 WHERE state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0
 GROUP BY queue, priority, owner;
