-- While a transaction elsewhere is open for long, nothing dead is cleaned up. What is asked every few seconds must not walk
-- over all of that.

-- Held runs that should stop. It costs only those.
CREATE INDEX runs_stopped ON runs (node) WHERE stop IS NOT NULL AND node IS NOT NULL;

-- Nodes that are gone and may have left something behind: whoever removes them, and of whatever version, it is noted.
CREATE TABLE graves (
    node             uuid        PRIMARY KEY
);
INSERT INTO graves
SELECT DISTINCT node FROM runs WHERE node IS NOT NULL AND node NOT IN (SELECT id FROM nodes);

SELECT set_config('search_path', quote_ident(current_schema()), true);  -- kept with the function, whoever calls it
CREATE FUNCTION dig_grave() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO graves VALUES (OLD.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER dig_grave AFTER DELETE ON nodes FOR EACH ROW EXECUTE FUNCTION dig_grave();

-- As in 002, but what has been due for a second wakes now: claims look back for two seconds only.
CREATE OR REPLACE FUNCTION tell_enlisted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM enlisted WHERE id = NEW.id;
    UPDATE runs SET wake_at = clock_timestamp()
     WHERE id = ANY(NEW.runs) AND wake_at < clock_timestamp() - interval '1 s';
    INSERT INTO events (kind, owner, subjects) VALUES ('job.created', NEW.owner, NEW.runs);
    RETURN NULL;
END $$;
