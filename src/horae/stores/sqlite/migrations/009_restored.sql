-- Runs that were restored from the archive: retention deletes them by the time at which that was, and does not archive them again.
CREATE TABLE restored (id BLOB NOT NULL PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;

CREATE INDEX restored_at ON restored (at);
