-- How far the clock of a node's machine is ahead of the store's: nothing goes by it, but somebody should set it right.
ALTER TABLE nodes ADD COLUMN wall_ahead interval NOT NULL DEFAULT '0';
