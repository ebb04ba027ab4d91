-- Recurring runs: their gates are left in the statement that ends them, and batches of them share what is alike across jobs.

-- Where runs are punctual, each wakes at its due time, which is its slot if it has one: the arrays of these are NULL.
ALTER TYPE new_runs ADD ATTRIBUTE gates text[], ADD ATTRIBUTE punctual boolean;

-- The earliest parked run of each gate goes on; it wakes at `moment`, not in a past that claims no longer look at. If a dead
-- letter blocks it, it blocks those after it as well. Answers when they wake; NULL when nothing was parked.
-- A function, for its statements see what was parked while the caller's waited for the rows that it deletes.
CREATE FUNCTION wake_parked(gates text[], moments timestamptz[]) RETURNS timestamptz[] LANGUAGE plpgsql AS $$
DECLARE
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
        RETURNING runs.wake_at
    )
    SELECT array_agg(wake_at) INTO wake_ats FROM woken;
    RETURN wake_ats;
END $$;
