-- What an attempt has cost, by its agent's word: money in the unit of its price, tokens where a model was asked.
ALTER TABLE outcomes ADD COLUMN cost REAL NOT NULL DEFAULT 0;
ALTER TABLE outcomes ADD COLUMN tokens_in INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outcomes ADD COLUMN tokens_out INTEGER NOT NULL DEFAULT 0;
