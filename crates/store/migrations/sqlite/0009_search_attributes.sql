-- 0009_search_attributes: what an event is about, and an index of it.
--
-- Why:    an event must be found by a phone number, the id of a message, its kind … without a look at
--         every body (docs/decisions/0037).
-- Costs:  nothing; no event has any of this yet.

ALTER TABLE events ADD COLUMN kind TEXT;
-- An object of lists of texts; NULL when there are none.
ALTER TABLE events ADD COLUMN attributes TEXT;

-- Digests of kind and attributes. A segment holds those of the events of some time, in the order
-- of the digests, a page of them in a row (see terms.rs). What is found here has to be asked itself, and
-- may be gone: a segment goes when none of its events is left.
CREATE TABLE term_segments (
    id        INTEGER PRIMARY KEY,
    min_event BLOB NOT NULL,
    max_event BLOB NOT NULL,
    is_whole  INTEGER NOT NULL,
    CONSTRAINT ids_are_uuids CHECK (length(min_event) = 16 AND length(max_event) = 16)
) STRICT;
CREATE INDEX term_segments_by_event ON term_segments (max_event);

CREATE TABLE term_blocks (
    seq     INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL REFERENCES term_segments (id),
    first   BLOB NOT NULL,
    entries BLOB NOT NULL,
    CONSTRAINT entries_are_whole CHECK (length(entries) > 0 AND length(entries) % 24 = 0)
) STRICT;
CREATE INDEX term_blocks_by_first ON term_blocks (segment, first);

-- The same of the newest events, all terms of an event in a row; on their way into a segment. Ids begin with their time, so this appends.
CREATE TABLE terms_fresh (
    event_id BLOB PRIMARY KEY NOT NULL,
    terms    BLOB NOT NULL,
    CONSTRAINT id_is_uuid CHECK (length(event_id) = 16),
    CONSTRAINT terms_are_whole CHECK (length(terms) > 0 AND length(terms) % 8 = 0)
) STRICT, WITHOUT ROWID;
