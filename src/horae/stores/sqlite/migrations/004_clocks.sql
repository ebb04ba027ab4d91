-- How far the clock of a node's machine is ahead of the store's, in microseconds. Two nodes on one file share a machine,
-- and may still differ: a process can be given a clock of its own.
ALTER TABLE nodes ADD COLUMN wall_ahead INTEGER NOT NULL DEFAULT 0;
