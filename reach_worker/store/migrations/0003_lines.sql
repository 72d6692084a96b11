-- The line of a task's dispatches: which one each came after (empty: it is the first of its life; NULL: an older version
-- wrote it). Those that were recorded first and then did not go out stand in `unsent`, whichever row comes first.
ALTER TABLE dispatches ADD COLUMN after TEXT;

CREATE TABLE unsent (
    dispatch_id TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
