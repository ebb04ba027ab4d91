-- Owners take turns within a queue: each is in one of a few bands. What waits already stays in the first.
ALTER TABLE runs ADD COLUMN band INTEGER NOT NULL DEFAULT 0;
DROP INDEX runs_claim;
CREATE INDEX runs_claim ON runs (queue, priority, band, wake_at)
    WHERE state IN ('scheduled', 'retrying') AND parked = 0 AND paused = 0;
