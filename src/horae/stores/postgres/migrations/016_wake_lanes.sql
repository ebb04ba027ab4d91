-- As before, without a join, which was planned for as many lanes as there were when they were last counted: that took seconds
-- for some hundreds of new ones.
CREATE OR REPLACE FUNCTION wake_lanes(woken integer[], moments timestamptz[]) RETURNS void LANGUAGE sql AS $$
    WITH given AS MATERIALIZED (
        SELECT array_agg(lane) AS ids, array_agg(moment) AS moments
          FROM (SELECT lane, min(moment) AS moment FROM unnest(woken, moments) AS each(lane, moment) GROUP BY lane) AS first
    )
    UPDATE lanes SET next_at = (SELECT given.moments[array_position(ids, lanes.id)] FROM given)
     WHERE id = ANY(ARRAY(SELECT id FROM lanes
                           WHERE id = ANY((SELECT ids FROM given)::integer[])
                             AND next_at > (SELECT given.moments[array_position(ids, lanes.id)] FROM given)
                           ORDER BY id
                             FOR NO KEY UPDATE))
$$;
