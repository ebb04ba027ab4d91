-- Owners take turns within a queue: each is in one of a few bands, and a lane is a (queue, priority, band). What waits
-- already stays in its lane, the first band's.
ALTER TABLE lanes ADD COLUMN band smallint NOT NULL DEFAULT 0;
ALTER TABLE lanes DROP CONSTRAINT lanes_queue_priority_key;
ALTER TABLE lanes ADD UNIQUE (queue, priority, band);
