-- One table for small records instead of one for each kind. Keys of several texts are JSON arrays, written as the code
-- writes them.
-- contract: since 5

CREATE TABLE records (
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    at INTEGER,
    PRIMARY KEY (kind, owner, key)
);

CREATE INDEX records_idempotency ON records (at) WHERE kind = 'idempotency';

INSERT INTO records (kind, owner, key, value, at)
SELECT 'key', owner, key, lower(hex(job_id)), NULL FROM keys
 UNION ALL
SELECT 'idempotency', owner, key, json_array(fingerprint, answer), created_at FROM receipts
 UNION ALL
SELECT 'declaration', owner, json_array(app, key, digest), '', seen_at FROM declarations
 UNION ALL
SELECT 'task', '', name, schema, NULL FROM tasks;

DROP TABLE keys;
DROP TABLE receipts;
DROP TABLE declarations;
DROP TABLE tasks;
