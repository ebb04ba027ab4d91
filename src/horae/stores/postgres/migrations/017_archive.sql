-- As drop_history_days, for days of which an archive has so many runs: nothing is dropped as long as there are more of them.
-- Attempts stay two days longer, because runs that were retried over midnight are archived with the day on which they ended.
-- Runs that were restored from the archive are in the partition of the day on which that was, and do not count.
CREATE FUNCTION drop_archived_days(before date, most integer, archived bigint) RETURNS integer LANGUAGE plpgsql
    SET lock_timeout = '2s' SET enable_seqscan = 'on' AS $$
DECLARE
    part text;
    found bigint;
    dropped integer := 0;
BEGIN
    -- One node counts and drops at a time: two that count the same day would both keep it from being dropped.
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' archived days'));
    FOR part IN
        SELECT relname
          FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
         WHERE inhparent = 'history'::regclass AND to_date(right(relname, 8), 'YYYYMMDD') < before
    LOOP
        BEGIN
            EXECUTE format('LOCK TABLE %I IN SHARE MODE', part);  -- nothing is written between the count and the drop
        EXCEPTION WHEN undefined_table THEN  -- a node that does not archive dropped it meanwhile
            CONTINUE;
        END;
        EXECUTE format('SELECT count(*) FROM %I WHERE ended_on = (finished_at AT TIME ZONE ''UTC'')::date', part)
           INTO found;
        archived := archived - found;
    END LOOP;
    IF archived < 0 THEN
        RETURN 0;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' history days'));
    FOR part IN
        SELECT relname
          FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
         WHERE (inhparent = 'history'::regclass AND to_date(right(relname, 8), 'YYYYMMDD') < before)
            OR (inhparent = 'attempts'::regclass AND to_date(right(relname, 8), 'YYYYMMDD') < before - 2)
         ORDER BY right(relname, 8)
         LIMIT most
    LOOP
        EXECUTE format('DROP TABLE %I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
