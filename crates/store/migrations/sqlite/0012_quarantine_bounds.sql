-- 0012_quarantine_bounds: what strangers send goes first, and headers count.
--
-- Why:    a few large requests without any credential pushed out what was to be kept (docs/decisions/0039).
-- Costs:  one pass over the quarantine, which is bounded for each source.

ALTER TABLE quarantine ADD COLUMN is_stranger INTEGER
    GENERATED ALWAYS AS (code IN ('missing_signature', 'missing_credentials')) VIRTUAL;
CREATE INDEX quarantine_by_worth ON quarantine (source_id, is_stranger DESC, id);

DROP TRIGGER quarantine_in;
DROP TRIGGER quarantine_out;
UPDATE quarantine_totals SET bytes =
    (SELECT coalesce(sum(body_bytes + length(headers)), 0) FROM quarantine
      WHERE quarantine.source_id = quarantine_totals.source_id);

CREATE TRIGGER quarantine_in AFTER INSERT ON quarantine BEGIN
    INSERT INTO quarantine_totals VALUES (new.source_id, 1, new.body_bytes + length(new.headers))
    ON CONFLICT (source_id) DO UPDATE SET many = many + 1, bytes = bytes + excluded.bytes;
END;

-- The same request again has other headers.
CREATE TRIGGER quarantine_again AFTER UPDATE OF headers ON quarantine BEGIN
    UPDATE quarantine_totals SET bytes = bytes - length(old.headers) + length(new.headers)
     WHERE source_id = new.source_id;
END;

CREATE TRIGGER quarantine_out AFTER DELETE ON quarantine BEGIN
    UPDATE quarantine_totals
       SET many = many - 1, bytes = bytes - old.body_bytes - length(old.headers)
     WHERE source_id = old.source_id;
END;
