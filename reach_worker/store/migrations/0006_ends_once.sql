-- Which dispatch's outcome ended the task (empty: none did, it expired while it waited, say; or an older version wrote it).
-- Two routers may settle one outcome, where the session of the first ends over it: that is one end.
ALTER TABLE ends ADD COLUMN dispatch_id TEXT NOT NULL DEFAULT '';
