-- Recurring jobs that were cancelled are removed, once their history is.
-- way: concurrently

CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_cancelled ON {schema}.jobs (updated_at) WHERE status = 'cancelled';
