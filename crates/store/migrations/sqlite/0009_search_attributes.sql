-- 0009_search_attributes: what an event is about, and an index of it.
--
-- Why:    an event must be found by a phone number, the id of a message, its kind … without a look at
--         every body (docs/decisions/0037).
-- Costs:  nothing; no event has any of this yet.

ALTER TABLE events ADD COLUMN kind TEXT;
-- An object of lists of texts; NULL when there are none.
ALTER TABLE events ADD COLUMN attributes TEXT;

-- Digests of kind and attributes, in no order. What is found by one has to be asked itself.
CREATE TABLE terms (
    term     BLOB NOT NULL,
    event_id BLOB NOT NULL,
    PRIMARY KEY (term, event_id),
    CONSTRAINT term_is_8_bytes CHECK (length(term) = 8),
    CONSTRAINT id_is_uuid CHECK (length(event_id) = 16)
) STRICT, WITHOUT ROWID;

-- The same of the newest events, all terms of an event in a row; on their way into `terms`
-- (see terms.rs). Ids begin with their time, so this appends.
CREATE TABLE terms_fresh (
    event_id BLOB PRIMARY KEY NOT NULL,
    terms    BLOB NOT NULL,
    CONSTRAINT id_is_uuid CHECK (length(event_id) = 16),
    CONSTRAINT terms_are_whole CHECK (length(terms) > 0 AND length(terms) % 8 = 0)
) STRICT, WITHOUT ROWID;
