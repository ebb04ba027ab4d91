-- Runs of one queue, priority and owner wait in a lane, which knows when the first of them wakes. A claim looks only into
-- the lanes that are due, however many there are; lanes that nobody uses any more are removed. Runs that were put into lanes
-- of several owners stay there: these have no owner, and go when they are empty.
-- contract: since 12

ALTER TABLE lanes DROP CONSTRAINT lanes_queue_priority_band_key;
ALTER TABLE lanes DROP COLUMN band;
ALTER TABLE lanes
    ADD COLUMN owner text COLLATE "C",
    ADD COLUMN next_at timestamptz NOT NULL DEFAULT '-infinity',  -- no run of it wakes earlier, if it is settled
    -- A lane that was put off is looked into until then all the same: whoever read the time before may still commit a run.
    ADD COLUMN settled_at timestamptz,
    ADD COLUMN used_at timestamptz NOT NULL DEFAULT clock_timestamp();  -- when a node last learned of it
ALTER TABLE lanes SET (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.1);
CREATE UNIQUE INDEX lanes_place ON lanes (queue, priority, owner);
CREATE INDEX lanes_next ON lanes (next_at);
CREATE INDEX lanes_unsettled ON lanes (settled_at) WHERE settled_at IS NOT NULL;

-- Note when the first runs of lanes wake, unless others wake before them; in an order, so that two never wait for each other.
CREATE FUNCTION wake_lanes(woken integer[], moments timestamptz[]) RETURNS void LANGUAGE sql AS $$
    UPDATE lanes SET next_at = first.moment
      FROM (SELECT lanes.id, given.moment
              FROM (SELECT lane, min(moment) AS moment FROM unnest(woken, moments) AS each(lane, moment) GROUP BY lane) AS given
              JOIN lanes ON lanes.id = given.lane
             WHERE lanes.next_at > given.moment
             ORDER BY lanes.id
               FOR NO KEY UPDATE OF lanes) AS first
     WHERE lanes.id = first.id
$$;

-- As before, and the lanes of the runs are woken.
CREATE OR REPLACE FUNCTION wake_parked(gates text[], moments timestamptz[]) RETURNS timestamptz[] LANGUAGE plpgsql AS $$
DECLARE
    woken_lanes integer[];
    wake_ats timestamptz[];
BEGIN
    PERFORM FROM runs WHERE parked ORDER BY gate LIMIT 1;
    IF NOT FOUND THEN  -- the usual case
        RETURN NULL;
    END IF;
    WITH woken AS (
        UPDATE runs SET parked = false, wake_at = greatest(runs.wake_at, given.moment)
          FROM (SELECT gate, max(moment) AS moment FROM unnest(gates, moments) AS given(gate, moment) GROUP BY gate) AS given
         CROSS JOIN LATERAL (SELECT id FROM runs AS next
                              WHERE next.gate = given.gate AND parked
                              ORDER BY next.due_at, next.id
                              LIMIT 1) AS next
         WHERE runs.id BETWEEN next.id AND next.id AND runs.parked
           AND NOT EXISTS (SELECT FROM blocks
                            WHERE blocks.gate = given.gate AND (blocks.due_at, blocks.run_id) < (runs.due_at, runs.id))
        RETURNING runs.lane, runs.wake_at
    )
    SELECT array_agg(lane), array_agg(wake_at) INTO woken_lanes, wake_ats FROM woken;
    PERFORM wake_lanes(woken_lanes, wake_ats);
    RETURN wake_ats;
END $$;

-- The functions below are called on connections of users, whose search_path is their own: ours is kept with each.
SELECT set_config('search_path', quote_ident(current_schema()), true);

-- As before, and the lanes of the runs are woken: not earlier, because a transaction of the user may take long.
CREATE OR REPLACE FUNCTION tell_enlisted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM enlisted WHERE id = NEW.id;
    UPDATE runs SET wake_at = clock_timestamp()
     WHERE id = ANY(NEW.runs) AND wake_at < clock_timestamp() - interval '1 s';
    PERFORM wake_lanes(array_agg(lane), array_agg(wake_at)) FROM runs WHERE id = ANY(NEW.runs);
    INSERT INTO events (kind, owner, subjects) VALUES ('job.created', NEW.owner, NEW.runs);
    RETURN NULL;
END $$;

-- The lanes of these runs cannot be removed until the caller commits.
CREATE FUNCTION hold_lanes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM lanes WHERE id IN (SELECT lane FROM runs WHERE runs.id = ANY(NEW.runs)) ORDER BY id FOR KEY SHARE;
    RETURN NULL;
END $$;
CREATE TRIGGER hold_lanes AFTER INSERT ON enlisted FOR EACH ROW EXECUTE FUNCTION hold_lanes();
