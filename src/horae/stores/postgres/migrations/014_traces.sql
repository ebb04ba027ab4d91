-- Shelves that nobody uses any more are removed, like lanes.

ALTER TABLE shelves ADD COLUMN used_at timestamptz NOT NULL DEFAULT clock_timestamp();  -- when a node last learned of it

-- Shelves that a node learns of are not removed as long as it may use them. A trigger, so that nodes of the release before note
-- it, too: it fires even for a shelf that is there already.
CREATE FUNCTION note_shelf() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE shelves SET used_at = clock_timestamp()
     WHERE owner = NEW.owner AND task = NEW.task AND queue = NEW.queue
       AND used_at < clock_timestamp() - interval '10 min';
    RETURN NEW;
END $$;
CREATE TRIGGER note_shelf BEFORE INSERT ON shelves FOR EACH ROW EXECUTE FUNCTION note_shelf();

-- The function is called on connections of users, whose search_path is their own: ours is kept with it.
SELECT set_config('search_path', quote_ident(current_schema()), true);

-- The lanes and shelves of these runs cannot be removed until the caller commits.
CREATE OR REPLACE FUNCTION hold_lanes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM lanes WHERE id IN (SELECT lane FROM runs WHERE runs.id = ANY(NEW.runs)) ORDER BY id FOR KEY SHARE;
    PERFORM FROM shelves WHERE id IN (SELECT shelf FROM runs WHERE runs.id = ANY(NEW.runs)) ORDER BY id FOR KEY SHARE;
    RETURN NULL;
END $$;
