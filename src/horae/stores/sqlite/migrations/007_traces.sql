-- Recurring jobs that were cancelled are removed once their history is.
CREATE INDEX jobs_cancelled ON jobs (updated_at) WHERE status = 'cancelled';
