-- Upkeep: what the server does on its own account.

-- Our statements follow indexes whatever statistics say, so a small sample will do. With the usual one the analysis of a day
-- took half a second of a core, again and again while the day grew.
CREATE FUNCTION sample_little(part regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE (SELECT format('ALTER TABLE %s %s', part,
                           string_agg(format('ALTER COLUMN %I SET STATISTICS 10', attname), ', '))
               FROM pg_attribute
              WHERE attrelid = part AND attnum > 0 AND NOT attisdropped);
END $$;
SELECT sample_little(part) FROM unnest(ARRAY['runs', 'history', 'attempts', 'events', 'jobs']::regclass[]) AS part;
ALTER TABLE events ALTER COLUMN subjects SET STATISTICS 0;  -- nobody asks for these, and to look into them takes long

-- As in 001, and new days are sampled little as well: they do not take that over from their parent.
CREATE OR REPLACE FUNCTION ensure_history_day(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    part text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' history days'));
    FOREACH parent IN ARRAY ARRAY['history', 'attempts'] LOOP
        part := parent || to_char(day, '_YYYYMMDD');
        IF to_regclass(part) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, parent);
            EXECUTE format('ALTER TABLE %I ADD CONSTRAINT one_day CHECK (ended_on >= %L AND ended_on < %L)',
                           part, day, day + 1);
            PERFORM sample_little(part::regclass);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, day, day + 1);
        END IF;
    END LOOP;
END $$;

-- The pages of runs that ended are needed again in a moment. To give them back would shut out everyone for as long as that
-- takes, and then they would have to be made anew.
ALTER TABLE runs SET (vacuum_truncate = off);
