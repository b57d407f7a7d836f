-- 0025_quarantine_senders: how much of the quarantine each sender holds.
--
-- Why:    one address with invented signatures pushed out everything that others sent
--         (docs/decisions/0060).
-- Costs:  one pass over the quarantine, which is bounded for each source.

-- The address that limits count the sender under: an IPv4 address, or an IPv6 network. Of older rows,
-- the address as it is.
ALTER TABLE quarantine ADD COLUMN sender TEXT NOT NULL DEFAULT '';
UPDATE quarantine SET sender = remote;
CREATE INDEX quarantine_by_sender ON quarantine (source_id, sender, is_stranger DESC, id);

CREATE TABLE quarantine_senders (
    source_id BLOB NOT NULL,
    sender    TEXT NOT NULL,
    many      INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    PRIMARY KEY (source_id, sender)
) STRICT, WITHOUT ROWID;
CREATE INDEX quarantine_senders_by_number ON quarantine_senders (source_id, many);
CREATE INDEX quarantine_senders_by_bytes ON quarantine_senders (source_id, bytes);
INSERT INTO quarantine_senders
    SELECT source_id, sender, count(*), sum(body_bytes + length(headers)) FROM quarantine
     GROUP BY source_id, sender;

CREATE TRIGGER quarantine_sender_in AFTER INSERT ON quarantine BEGIN
    INSERT INTO quarantine_senders
    VALUES (new.source_id, new.sender, 1, new.body_bytes + length(new.headers))
    ON CONFLICT (source_id, sender) DO UPDATE SET many = many + 1, bytes = bytes + excluded.bytes;
END;

-- The same request again has other headers. It stays with its first sender.
CREATE TRIGGER quarantine_sender_again AFTER UPDATE OF headers ON quarantine BEGIN
    UPDATE quarantine_senders SET bytes = bytes - length(old.headers) + length(new.headers)
     WHERE source_id = new.source_id AND sender = new.sender;
END;

CREATE TRIGGER quarantine_sender_out AFTER DELETE ON quarantine BEGIN
    UPDATE quarantine_senders
       SET many = many - 1, bytes = bytes - old.body_bytes - length(old.headers)
     WHERE source_id = old.source_id AND sender = old.sender;
    DELETE FROM quarantine_senders
     WHERE source_id = old.source_id AND sender = old.sender AND many = 0;
END;
